"""Installed guests, the built-in tools among them: all, or those of the chosen categories that no server covers.

Of chosen categories one is left out while a server does the same work: it has the category's name (`git`, `filesystem`
for files), or tools of the same names, words for the category and for the server aside (`fetch` and `web_fetch`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from ..catalog.catalog import Catalog
from ..catalog.ranking.terms import terms
from ..core.events import Problem
from ..core.tool import Tool
from ..plugin import load_entry_points
from ..sources.python import PythonSource, Setting, categories_of
from .tools import ToolRegistry

__all__ = ["GUESTS", "covered_categories", "follow_servers", "load_guests"]

GUESTS: Final = "builtin"
"""The source of the tools that installed packages bring."""
_SERVERS: Final = frozenset({"mcp", "openapi"})
"""Origins of the tools of servers."""
_SPELLINGS: Final[Mapping[str, str]] = {"filesystem": "files", "browser": "web"}
"""Names of servers, and the category that each means."""
_EMPTY_WORDS: Final = frozenset({"get", "tool"})
_ENOUGH: Final = 2
"""Tools of the same names that make a server one for the same work; half of its tools are enough, too."""


def load_guests(chosen: bool | tuple[str, ...], setting: Setting) -> PythonSource:
    """Load the tools that installed packages bring, of the chosen categories; an unknown category is a problem.

    `setting` gives the operator's settings for tools by the name of their section.
    """
    source = PythonSource(GUESTS, setting)
    guests, problems = load_entry_points()
    categories = None if isinstance(chosen, bool) else frozenset(chosen)
    known = set[str]()
    for guest in guests:
        known |= categories_of(guest.thing)
        source.offer(guest.thing, guest.origin, categories)
    unknown = sorted((categories or frozenset[str]()) - known)
    source.report(*problems, *(_unknown(name, known) for name in unknown))
    return source


def _unknown(name: str, known: Iterable[str]) -> Problem:
    close = get_close_matches(name, sorted(known), 1)
    meant = f"; did you mean {close[0]}?" if close else f": {', '.join(sorted(known))}"
    return Problem(source="builtins", code="bad_config", message=f"builtins: there is no category {name!r}{meant}")


def follow_servers(source: PythonSource, tools: ToolRegistry) -> None:
    """Leave out what servers do already, now and at every change of the catalog."""

    def look(_: object = None) -> None:
        source.withhold(covered_categories(tools.catalog, source.every_tool))

    tools.on_change(look)
    look()


def covered_categories(catalog: Catalog, mine: Iterable[Tool]) -> frozenset[str]:
    """Return the categories of the tools `mine` whose work a server of the catalog does."""
    categories: dict[str, list[Tool]] = defaultdict(list)
    for tool in mine:
        categories[tool.category].append(tool)
    servers: dict[str, list[Tool]] = defaultdict(list)
    for tool in catalog.tools.values():
        if tool.origin in _SERVERS:
            servers[tool.source].append(tool)
    return frozenset(
        category
        for category, own in categories.items()
        if any(_does_work(category, own, source, theirs) for source, theirs in servers.items())
    )


def _does_work(category: str, own: Iterable[Tool], source: str, theirs: Iterable[Tool]) -> bool:
    of_category, named = _words(category), _words(source)
    if _words(_SPELLINGS.get(source.lower(), source)) >= of_category:
        return True

    def action(tool: Tool) -> frozenset[str]:
        words = _words(tool.local_name) - of_category - _EMPTY_WORDS
        return words - named or words

    actions = set(map(action, own)) - {frozenset[str]()}
    listed = list(map(action, theirs))
    same = sum(action in actions for action in listed)
    return same >= _ENOUGH or (same > 0 and same * 2 >= len(listed))


def _words(name: str) -> frozenset[str]:
    return frozenset(terms(name, joined=False))
