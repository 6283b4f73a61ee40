"""What each profile costs for a catalog: tokens shown at first, and tokens until the first correct call.

For every query an ideal reader walks to the tool that answers it, by the profile's own verbs and through the one door:
it searches with the query's words, and where a profile has no search it opens the category, the group or the tag that
the tool really is in. So a profile with a search is measured with its misses, and one without as if it were never
misread: its figures are lower bounds.

    shown     definitions and instructions of the first turn
    read      everything that the model has to read until it can make the call, each token once
    sent      the sum of what is sent over all turns, with no prompt cache: every turn repeats what came before it
    turns     model turns until the call, the one that makes it included
    reached   share of the queries for which the walk came to the tool
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from ..core.json import dumps
from ..core.result import ToolResult
from ..core.tool import Tool
from ..disclosure.profiles import strategy_name
from ..telemetry.tokens import Tokenizer, definition_text
from .session import Session
from .toolcrib import Toolcrib

__all__ = ["PLAIN_LIST", "Cost", "Query", "compare", "own_queries"]

PLAIN_LIST: Final = "full list"
"""The row of a client that declares every tool itself, without Toolcrib."""

_SEARCHES: Final = (5, 25)
"""How many tools the reader asks for, first and when it was not among them."""
_OWN: Final = 40
"""Queries made of the catalog's own descriptions, when none are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Something to do, and the tool that does it."""

    text: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One row: what one profile costs. Tokens; means over the queries."""

    profile: str
    tools: int
    """Definitions that are shown at first."""
    shown: int
    read: float
    sent: float
    turns: float
    reached: float

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON, means rounded."""
        return {
            "profile": self.profile,
            "tools": self.tools,
            "shown": self.shown,
            "read": round(self.read, 1),
            "sent": round(self.sent, 1),
            "turns": round(self.turns, 2),
            "reached": round(self.reached, 3),
        }


def own_queries(tools: Sequence[Tool], limit: int = _OWN) -> list[Query]:
    """Make queries of the tools' own summaries, spread evenly over the catalog: for a first look, not for a verdict."""
    described = [tool for tool in tools if tool.description]
    step = max(1, len(described) // limit)
    return [Query(text=tool.summary, tool=tool.name) for tool in described[::step][:limit]]


async def compare(crib: Toolcrib, profiles: Iterable[str], queries: Sequence[Query], counter: Tokenizer) -> list[Cost]:
    """Measure every profile, and the plain full list. Queries of tools that are not there are left out."""
    asked = [(query, tool) for query in queries if (tool := crib.catalog.find(query.tool))]
    meter = _Meter(counter)
    rows = [_plain(crib, meter, asked)]
    for profile in profiles:
        walks = [await _measure(crib, profile, query.text, tool, meter) for query, tool in asked]
        rows.append(_cost(crib, profile, walks, meter))
    return rows


class _Meter:
    """Counts tokens, each definition once."""

    def __init__(self, counter: Tokenizer) -> None:
        self._count = counter.count
        self._known: dict[bytes, int] = {}

    def text(self, text: str) -> int:
        return self._count(text) if text else 0

    def tools(self, tools: Iterable[Tool]) -> int:
        total = 0
        for tool in tools:
            if tool.digest not in self._known:
                self._known[tool.digest] = self._count(definition_text(tool))
            total += self._known[tool.digest]
        return total


@dataclass(slots=True, kw_only=True)
class _Walk:
    """One reader on its way to one tool."""

    session: Session
    meter: _Meter
    talk: int = 0
    """Tokens of the conversation so far: calls and results."""
    read: int = 0
    sent: int = 0
    turns: int = 0
    known: frozenset[str] = frozenset()
    reached: bool = False

    def turn(self) -> None:
        """Count one request to the model: what is shown, and the conversation so far."""
        tools, instructions = self.session.tools, self.meter.text(self.session.instructions)
        fresh = [tool for tool in tools if tool.name not in self.known]
        self.read += self.meter.tools(fresh) + (instructions if not self.turns else 0)
        self.known |= {tool.name for tool in fresh}
        self.sent += self.meter.tools(tools) + instructions + self.talk
        self.turns += 1

    async def ask(self, verb: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Take a turn in which the model calls `verb`, and read the answer."""
        self.turn()
        name = self.session.scene.profile.verbs[verb]
        result = await self.session.call(name, arguments)
        request = self.meter.text(name) + self.meter.text(dumps(arguments).decode())
        heard = self.meter.text(result.text)
        self.talk += request + heard
        self.read += heard
        return result

    def name(self, tool: Tool) -> str:
        """Return what the profile calls the tool."""
        return self.session.scene.labels.name(tool)

    def sees(self, tool: Tool) -> bool:
        """Whether the tool can be called by its own name now."""
        return any(shown.name in (tool.name, self.name(tool)) for shown in self.session.tools)


async def _measure(crib: Toolcrib, profile: str, query: str, tool: Tool, meter: _Meter) -> _Walk:
    """Walk to `tool`, and count the turn that calls it."""
    async with crib.session(profile=profile) as session:
        walk = _Walk(session=session, meter=meter)
        walk.reached = walk.sees(tool) or await _WALKS[strategy_name(session.scene.profile)](walk, query, tool)
        walk.turn()
    return walk


async def _search(walk: _Walk, query: str, tool: Tool) -> bool:
    for limit in _SEARCHES:
        result = await walk.ask("search", {"query": query, "limit": limit})
        if any(line.startswith(f"{walk.name(tool)}(") for line in result.text.splitlines()):
            return True
    return False


async def _load(walk: _Walk, query: str, tool: Tool) -> bool:
    await walk.ask("browse", {})
    await walk.ask("load", {"category": walk.session.scene.category(tool) or tool.source})
    return walk.sees(tool)


async def _activate(walk: _Walk, query: str, tool: Tool) -> bool:
    overview = await walk.ask("list", {})
    offered = [category["name"] for category in overview.structured_content["categories"]]
    known = (walk.session.scene.category(tool), tool.source, "MCP")
    category = next((name for name in known if name in offered), "uncategorized")
    await walk.ask("list", {"category": category})
    await walk.ask("schemas", {"names": [walk.name(tool)]})
    return walk.sees(tool)


async def _help(walk: _Walk, query: str, tool: Tool) -> bool:
    parts = walk.session.scene.labels.ops.of(tool).split(".")
    result = await walk.ask("help", {"path": "root"})
    for depth in range(1, len(parts) + 1):
        result = await walk.ask("help", {"path": ".".join(parts[:depth])})
    return result.structured_content.get("type") == "op"


async def _select(walk: _Walk, query: str, tool: Tool) -> bool:
    walk.session.begin(required_capabilities=tool.tags or (tool.name,))
    return walk.sees(tool)


async def _nothing(walk: _Walk, query: str, tool: Tool) -> bool:
    return False


_WALKS: Final[Mapping[str, Callable[[_Walk, str, Tool], Awaitable[bool]]]] = MappingProxyType(
    {
        "adaptive": _search,
        "flat": _nothing,
        "gateway": _help,
        "introspection": _activate,
        "selection": _select,
        "tiered": _load,
    }
)
"""How an ideal reader comes to a tool that it does not see, by strategy."""


def _plain(crib: Toolcrib, meter: _Meter, asked: Sequence[tuple[Query, Tool]]) -> Cost:
    tools = tuple(crib.catalog.tools.values())
    total = meter.tools(tools)
    share = 1.0 if asked else 0.0
    return Cost(profile=PLAIN_LIST, tools=len(tools), shown=total, read=total, sent=total, turns=share, reached=share)


def _cost(crib: Toolcrib, profile: str, walks: Sequence[_Walk], meter: _Meter) -> Cost:
    session = crib.session(profile=profile)
    count = max(1, len(walks))
    return Cost(
        profile=profile,
        tools=len(session.tools),
        shown=meter.tools(session.tools) + meter.text(session.instructions),
        read=sum(walk.read for walk in walks) / count,
        sent=sum(walk.sent for walk in walks) / count,
        turns=sum(walk.turns for walk in walks) / count,
        reached=sum(walk.reached for walk in walks) / count,
    )
