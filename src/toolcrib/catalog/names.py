"""Names that every model API and client accepts, made so that the same tool always gets the same one.

The floor of all of them is `^[A-Za-z_][A-Za-z0-9_-]{0,63}$` with the client's own prefix included
(`mcp__toolcrib__` and the like), so a declared tool has at most 40 characters. Only a declaration is shortened: the
catalog, the arguments of meta-tools, the command line and the log have the whole name, and calls may use either.

    qualify("git", "push")      git__push                        catalog, at most 128 characters
    declared(name, …)           the same up to 40 characters, else READABLE_PART_1a2b3c4d
    portable("issues/create")   issues_create
"""

from __future__ import annotations

import hashlib
from typing import Final

from ..core.patterns import regex

MAX_NAME: Final = 40
"""Characters of the name of a declared tool, where the client puts its prefix before it."""
MAX_WHOLE: Final = 128
"""Characters of a name in MCP."""
SEPARATOR: Final = "__"
_DIGEST_LENGTH: Final = 8
_FORBIDDEN = regex(r"[^A-Za-z0-9_-]+")
_START = regex(r"^[^A-Za-z_]")


def portable(name: str) -> str:
    """Return `name` with characters replaced that an API may refuse: `issues/create` becomes `issues_create`."""
    clean = _FORBIDDEN.sub("_", name)
    return f"_{clean}" if not clean or _START.match(clean) else clean


def qualify(source: str, local: str, *, prefix: bool = True) -> str:
    """Return the catalog's name of the tool `local` of `source`: whole, up to the length that MCP allows."""
    return shortened(f"{source}{SEPARATOR}{local}" if prefix else local, source, local, MAX_WHOLE)


def declared(name: str, source: str, local: str) -> str:
    """Return the name under which a client declares the tool `local` of `source`, which the catalog calls `name`."""
    return name if len(name) <= MAX_NAME else shortened(name, source, local)


def shortened(name: str, source: str, local: str, most: int = MAX_NAME) -> str:
    """Return `name` made portable and short: the readable part, and 8 hex digits of a hash of source and name.

    The hash is over source and original name, so that two long names with one beginning stay two.
    """
    name = portable(name)
    if len(name) <= most:
        return name
    digest = hashlib.sha256(f"{source}\0{local}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: most - _DIGEST_LENGTH - 1].rstrip('_-')}_{digest}"
