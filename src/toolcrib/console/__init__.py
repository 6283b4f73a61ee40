"""Console of the operator, in a browser: servers, approvals, calls, tools and jobs of one crib and its store.

Pages are made here, of text alone: no script runs in them, and nothing is loaded from elsewhere. Needs the extra
`console`.
"""

from importlib.util import find_spec

__all__ = ["is_installed"]


def is_installed() -> bool:
    """Whether the extra `console` is there, without loading it."""
    return all(find_spec(name) is not None for name in ("jinja2", "starlette"))
