"""The catalog of a session with pinned tool versions: the same names, resolved to the pinned versions.

Every user of a catalog (resolve, views, rules, saved calls) gets the derived one, so that there is a single truth. A
version that was removed is served by the migration of the present one; without a migration the name is withheld, with
the list of versions.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from ..core.events import Problem
from ..core.json import canonical
from ..core.tool import Tool
from ..core.versions import pin_of_session
from .catalog import Catalog

__all__ = ["PinnedCatalogs"]

_KEPT: Final = 32
"""Derived catalogs that are kept: one for each set of pins, a catalog."""


class PinnedCatalogs:
    """Derives catalogs, and keeps the newest. One for a crib."""

    def __init__(self) -> None:
        """Start with none."""
        self._made: OrderedDict[tuple[int, bytes], tuple[Catalog, Catalog]] = OrderedDict()

    def at(self, catalog: Catalog, versions: Mapping[str, str], name: str, version: str) -> Catalog:
        """Return `catalog` as one call has it that pins the tool `name` by itself, in a session with these pins."""
        tool = catalog.find(name) if version else None
        if tool is None:
            return self.of(catalog, versions)
        others = {pinned: wanted for pinned, wanted in versions.items() if catalog.find(pinned) is not tool}
        return self.of(catalog, {**others, tool.name: version})

    def of(self, catalog: Catalog, versions: Mapping[str, str]) -> Catalog:
        """Return `catalog` as a session with these pins has it; the same object for the same two."""
        if not versions:
            return catalog
        key = (id(catalog), canonical(versions))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = (catalog, _derived(catalog, versions))  # the first keeps its id from being reused
        self._made.move_to_end(key)
        if len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return made[1]


def _derived(catalog: Catalog, versions: Mapping[str, str]) -> Catalog:
    tools, withheld = dict(catalog.tools), dict(catalog.withheld)
    meant = {tool.name: tool for name in versions if (tool := catalog.find(name)) is not None}
    changed: list[str] = []
    for name, tool in meant.items():
        wanted = pin_of_session(versions, tool)
        if wanted in ("", tool.version):
            continue
        changed.append(f"{name} {wanted}")
        older = next((other for other in tool.older if other.version == wanted), None)
        if older is not None:
            tools[name] = older.renamed(name)
        elif wanted not in tool.migrations:
            del tools[name]
            withheld[name] = _missing(tool, wanted)
    if not changed:
        return catalog
    digest = hashlib.sha256(canonical([catalog.version, sorted(changed)])).hexdigest()
    return Catalog(tools, version=digest[:16], searcher=catalog, withheld=withheld, about=catalog.about)


def _missing(tool: Tool, wanted: str) -> Problem:
    there = ", ".join(other.version or "none" for other in (tool, *tool.older))
    return Problem(
        source=tool.source,
        tool=tool.local_name,
        code="not_found",
        message=f"version {wanted} of {tool.name} is pinned and not there: there is {there}",
        hint="the pin is in the call, or in `versions` of the session or of the configuration",
    )
