"""Grant: the right to run exactly one call, once; minted, checked and spent here.

A grant that this module did not mint, or that was spent, covers nothing, independent of its fields.

    Approve    mint(id, tool, arguments, rule) ──► Call.grant
    Execute    spend(...)                      ──► True once; the body is entered with the next line
    Record     spend(...)                      ──► True again only if the body was never entered

The table of open grants is that of the process, shared by all its cribs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from ..core.json import canonical
from ..core.permission import Grant
from ..core.tool import Tool

_MAX_OPEN_GRANTS: Final = 10_000
"""Maximum of minted and unspent grants; beyond it the oldest, whose calls ended otherwise, are forgotten."""

_open_grants: dict[int, Grant] = {}
"""By identity, oldest first: an equal grant that was built elsewhere is not in it."""


def arguments_digest(arguments: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of these arguments, which the record has too. Raises `TypeError` for what is not JSON."""
    return hashlib.sha256(canonical(arguments)).digest()


def mint(call_id: str, tool: Tool, arguments: Mapping[str, Any], rule: str) -> Grant:
    """Return the right to run `tool` with these arguments as this call. Only the `approve` step calls this."""
    grant = Grant(call_id, tool.digest, arguments_digest(arguments), rule)
    _open_grants[id(grant)] = grant
    if len(_open_grants) > _MAX_OPEN_GRANTS:
        del _open_grants[next(iter(_open_grants))]
    return grant


def covers(grant: Grant, tool: Tool, arguments: Mapping[str, Any], call_id: str) -> bool:
    """Whether `grant` is open and is for this call of this tool with exactly these arguments."""
    return (
        _open_grants.get(id(grant)) is grant
        and grant.call_id == call_id
        and grant.tool == tool.digest
        and grant.arguments == arguments_digest(arguments)
    )


def spend(grant: Grant, tool: Tool, arguments: Mapping[str, Any], call_id: str) -> bool:
    """Whether `grant` covers the call; from then on it covers nothing any more."""
    if not covers(grant, tool, arguments, call_id):
        return False
    del _open_grants[id(grant)]
    return True
