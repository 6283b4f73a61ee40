"""Console of the operator, in a browser: servers, approvals, calls, tools and jobs of one crib and its store.

Pages are made here, of text alone: no script runs in them, and nothing is loaded from elsewhere. Needs the extra
`console`.
"""
