"""Names in a profile without a tool, and ops that two tools claim: reported while the profile is in use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..catalog.catalog import OUR_SOURCES, Catalog
from ..core.events import Problem
from ..core.tool import Tool
from .aliases import Labels
from .base import Profile
from .ops import OpMap
from .profiles import BUILT_IN

__all__ = ["Gaps", "gaps", "op_problems"]


_MADE: Final = frozenset({"MCP", "uncategorized"})
"""Categories that a strategy makes itself, of tools that name none; there may be none of those just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Entries of one profile that mean nothing in one catalog; everything else of it works."""

    core: tuple[str, ...] = ()
    """Core tools that no source provides."""
    names: tuple[str, ...] = ()
    """Names of the profile behind which no source provides the tool."""
    categories: tuple[str, ...] = ()
    """Categories that no tool is in."""

    def problem(self, profile: Profile) -> Problem | None:
        """Return the problem to report while the profile is in use; None when every tool exists.

        The built-in profiles name all built-in tools, including those that a crib leaves out.
        """
        missing = self.core if profile.name in BUILT_IN else tuple(dict.fromkeys((*self.core, *self.names)))
        if not missing:
            return None
        message = f"the profile {profile.name} names tools that no source provides, and goes without: "
        return Problem(
            source=profile.name,
            code="not_provided",
            message=message + ", ".join(missing),
            hint=f"`toolcrib profile check {profile.name}` shows which key names them",
        )


def gaps(profile: Profile, catalog: Catalog, held: Collection[str] = ()) -> Gaps:
    """Return the names in `profile` that `catalog` does not have. Inherited ones are not reported.

    `held` names tools that appear as soon as a session meets their requirements.
    """

    def is_there(tool: str) -> bool:
        return tool in held or catalog.find(tool) is not None

    def own(name: str) -> bool:
        return name not in profile.inherited

    shown = frozenset(profile.verbs.values())
    known = (name in shown or is_there(_tool(profile, name)) for name in profile.core)
    there = _groups(profile, catalog) if profile.strategy == "gateway" else _categories(catalog, profile.placed)
    return Gaps(
        core=tuple(name for name, is_known in zip(profile.core, known, strict=True) if not is_known and own(name)),
        names=tuple(name for name, label in profile.names.items() if own(name) and not is_there(label.tool)),
        categories=tuple(name for name in profile.categories if own(name) and name not in there),
    )


def op_problems(ops: OpMap) -> Iterator[Problem]:
    """Yield a problem for each op that a tool claims and does not have; between built-in tools a profile decides."""
    for lost in ops.lost:
        if lost.winner is not None and {lost.tool.source, lost.winner.source} <= OUR_SOURCES:
            continue
        winner = (
            f"belongs to {lost.winner.name} of {lost.winner.source}" if lost.winner else "is claimed by several servers"
        )
        yield Problem(
            source=lost.tool.source,
            tool=lost.tool.local_name,
            code="op_taken",
            message=f"the op {lost.op} {winner}; {lost.tool.name} has the op {ops.of(lost.tool)}",
            hint="declare another `op` for one of them, or set option `ops` of the profile",
        )


def _categories(catalog: Catalog, placed: Mapping[str, str]) -> frozenset[str]:
    return _MADE.union(word for tool in catalog.tools.values() for word in (*_places(tool, placed), tool.source))


def _places(tool: Tool, placed: Mapping[str, str]) -> tuple[str, str]:
    return tool.category, placed.get(tool.name) or placed.get(tool.category, "")


def _groups(profile: Profile, catalog: Catalog) -> frozenset[str]:
    """Return the category descriptions of `gateway` that match no tool: op prefixes, and the group of other tools."""
    ops = Labels(catalog, profile.names, profile.mcp_names, profile.options.get("ops"), ours=profile.ours).ops
    return frozenset({"x", *(ops.of(tool).partition(".")[0] for tool in catalog.tools.values())})


def _tool(profile: Profile, name: str) -> str:
    label = profile.names.get(name)
    return label.tool if label else name
