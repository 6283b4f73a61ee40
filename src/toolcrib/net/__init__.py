"""Outbound HTTP: one careful client for everything that talks to an address which somebody else may have chosen.

`guard` which addresses may be reached · `transport` connections to checked addresses only · `client` requests with
limits, redirects checked one by one · `failures` what went wrong, and whether the request was sent.

Nothing is imported here: a configuration needs `guard` only, and `client` brings the HTTP client with it.
"""

__all__: list[str] = []
