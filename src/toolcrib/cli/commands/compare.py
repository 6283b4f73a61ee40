"""`toolcrib compare`: tokens of the user's catalog under every profile, as a table.

Measured for each profile: the tokens shown at first, and those until the first correct call.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from ...config import Settings
from ...config.loader import here
from ...core.json import as_mapping, dumps, read_json
from ...core.result import ToolResult
from ...core.tool import Tool
from ...crib import Toolcrib
from ...crib.session import Session
from ...disclosure.profiles import BUILT_IN, strategy_name
from ...errors import CODES, ConfigError, ToolcribError, ToolFailure
from ...telemetry.tokens import Tokenizer, definition_text, tokenizer
from ..open_crib import opened, report
from ..options import AsJson, ConfigFiles, Wait, run, settings_of
from ..output import Column, emit_json, note, out, table

PLAIN_LIST: Final = "full list"
"""The row of a client that declares every tool itself, without Toolcrib."""

_SEARCHES: Final = (5, 25)
"""Numbers of results that the reader asks for: first, and when the tool was not among them."""
_OWN: Final = 40
"""Queries made of the catalog's own descriptions, when none are given."""

_COLUMNS: Final[tuple[Column, ...]] = (
    ("PROFILE", "<"),
    ("TOOLS", ">"),
    ("SHOWN AT FIRST", ">"),
    ("READ TO THE CALL", ">"),
    ("SENT, NO CACHE", ">"),
    ("TURNS", ">"),
    ("REACHED", ">"),
)


class Query(Struct, frozen=True, kw_only=True):
    """Something to do, and the tool that does it."""

    text: str
    tool: str


class Cost(Struct, frozen=True, kw_only=True):
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


async def compare_profiles(
    crib: Toolcrib, profiles: Iterable[str], queries: Sequence[Query], counter: Tokenizer
) -> list[Cost]:
    """Measure every profile, and the plain full list. Queries of tools that are not there are left out."""
    asked = [(query, tool) for query in queries if (tool := crib.catalog.find(query.tool))]
    meter = _Meter(counter)
    rows = [_plain(crib, meter, asked)]
    for profile in profiles:
        readers = [await _measure(crib, profile, query.text, tool, meter) for query, tool in asked]
        rows.append(_cost(crib, profile, readers, meter))
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


class _ToolReader(Struct, kw_only=True):
    """A model looking for one tool, and what that costs it."""

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
        name = self.session.visible.profile.verbs[verb]
        result = await self.session.call(name, arguments)
        request = self.meter.text(name) + self.meter.text(dumps(arguments).decode())
        heard = self.meter.text(result.text)
        self.talk += request + heard
        self.read += heard
        return result

    def name(self, tool: Tool) -> str:
        """Return the tool's name in the profile."""
        return self.session.visible.aliases.name(tool)

    def sees(self, tool: Tool) -> bool:
        """Whether the tool can be called by its own name now."""
        return any(shown.name in (tool.name, self.name(tool)) for shown in self.session.tools)


async def _measure(crib: Toolcrib, profile: str, query: str, tool: Tool, meter: _Meter) -> _ToolReader:
    """Walk to `tool`, and count the turn that calls it."""
    async with crib.session(profile=profile) as session:
        reader = _ToolReader(session=session, meter=meter)
        reader.reached = reader.sees(tool) or await _READERS[strategy_name(session.visible.profile)](
            reader, query, tool
        )
        reader.turn()
    return reader


async def _search(reader: _ToolReader, query: str, tool: Tool) -> bool:
    for limit in _SEARCHES:
        result = await reader.ask("search", {"query": query, "limit": limit})
        if any(line.startswith(f"{reader.name(tool)}(") for line in result.text.splitlines()):
            return True
    return False


async def _load(reader: _ToolReader, query: str, tool: Tool) -> bool:
    await reader.ask("browse", {})
    await reader.ask("load", {"category": reader.session.visible.category(tool) or tool.source})
    return reader.sees(tool)


async def _activate(reader: _ToolReader, query: str, tool: Tool) -> bool:
    overview = await reader.ask("list", {})
    offered = [category["name"] for category in overview.structured_content["categories"]]
    known = (reader.session.visible.category(tool), tool.source, "MCP")
    category = next((name for name in known if name in offered), "uncategorized")
    await reader.ask("list", {"category": category})
    await reader.ask("schemas", {"names": [reader.name(tool)]})
    return reader.sees(tool)


async def _help(reader: _ToolReader, query: str, tool: Tool) -> bool:
    parts = reader.session.visible.aliases.ops.of(tool).split(".")
    result = await reader.ask("help", {"path": "root"})
    for depth in range(1, len(parts) + 1):
        result = await reader.ask("help", {"path": ".".join(parts[:depth])})
    return result.structured_content.get("type") == "op"


async def _select(reader: _ToolReader, query: str, tool: Tool) -> bool:
    reader.session.begin(required_capabilities=tool.tags or (tool.name,))
    return reader.sees(tool)


async def _nothing(reader: _ToolReader, query: str, tool: Tool) -> bool:
    return False


_READERS: Final[Mapping[str, Callable[[_ToolReader, str, Tool], Awaitable[bool]]]] = MappingProxyType(
    {
        "adaptive": _search,
        "flat": _nothing,
        "gateway": _help,
        "introspection": _activate,
        "selection": _select,
        "tiered": _load,
    }
)
"""Steps of an ideal reader to a tool that it does not see, by strategy."""


def _plain(crib: Toolcrib, meter: _Meter, asked: Sequence[tuple[Query, Tool]]) -> Cost:
    tools = tuple(crib.catalog.tools.values())
    total = meter.tools(tools)
    share = 1.0 if asked else 0.0
    return Cost(profile=PLAIN_LIST, tools=len(tools), shown=total, read=total, sent=total, turns=share, reached=share)


def _cost(crib: Toolcrib, profile: str, readers: Sequence[_ToolReader], meter: _Meter) -> Cost:
    session = crib.session(profile=profile)
    count = max(1, len(readers))
    return Cost(
        profile=profile,
        tools=len(session.tools),
        shown=meter.tools(session.tools) + meter.text(session.instructions),
        read=sum(reader.read for reader in readers) / count,
        sent=sum(reader.sent for reader in readers) / count,
        turns=sum(reader.turns for reader in readers) / count,
        reached=sum(reader.reached for reader in readers) / count,
    )


def compare(
    config: ConfigFiles = None,
    catalog: Annotated[
        list[Path] | None,
        typer.Option("--catalog", help="Add a YAML catalog, a skills folder or an OpenAPI document.", metavar="PATH"),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", help='What to look for: JSON lines {"query": …, "tool": …}.', metavar="FILE"),
    ] = None,
    profile: Annotated[list[str] | None, typer.Option("--profile", help="Only these; repeatable.")] = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """Compare the profiles on your own tools: tokens shown at first, and until the first correct call.

    A catalog that cannot be read is left out; the command then ends with status 7.
    """
    folder = here().project
    given = None if queries is None else read_queries(folder / queries)
    counter = tokenizer()
    failed: list[str] = []

    async def main() -> tuple[list[Cost], int]:
        with _apart(settings_of(config)) as settings:
            async with opened(settings, wait=wait) as crib:
                failed.extend(await _add_catalogs(crib, folder, catalog or (), wait))
                asked = own_queries(tuple(crib.catalog.tools.values())) if given is None else _answered(crib, given)
                if not asked:
                    raise ConfigError("has no query that a tool answers", file=str(queries or "the catalog"))
                return await compare_profiles(crib, profile or BUILT_IN, asked, counter), len(asked)

    rows, count = run(main)
    if as_json:
        source = str(queries) if queries else "summaries"
        shown = [row.to_json() for row in rows]
        emit_json(
            {"tokenizer": counter.name, "queries": count, "source": source, "profiles": shown, "left_out": failed}
        )
    else:
        _print(rows, count, counter, queries)
    if failed:
        note(f"the figures leave out {', '.join(failed)}")
        raise typer.Exit(CODES["unavailable"].exit)


async def _add_catalogs(crib: Toolcrib, folder: Path, paths: Sequence[Path], wait: float) -> list[str]:
    """Load catalogs, by their paths from `folder`, beside what is configured; return what could not be had of them."""
    configured = {state.source for state in crib.tools.sources}
    failed: list[str] = []
    for path in paths:
        try:
            await crib.load(folder / path)
        except ToolcribError as error:
            note(str(error))
            failed.append(str(path))
    await crib.tools.wait_ready(wait)  # `opened` makes `load` return at once
    report(crib)
    added = [state for state in crib.tools.sources if state.source not in configured]
    return failed + [state.source for state in added if state.state not in ("ready", "cached")]


def _print(rows: Sequence[Cost], count: int, counter: Tokenizer, queries: Path | None) -> None:
    """Print the table, and where its figures come from."""
    table(_COLUMNS, ((*_cells(row, counter.shown),) for row in rows))
    source = f"{queries}" if queries else "the tools' own summaries"
    asked = "1 query" if count == 1 else f"{count} queries"
    out(f"\n{asked} from {source}; tokens by {counter.name}, means over the queries.")


def read_queries(path: Path) -> list[Query]:
    """Return the queries of a file of JSON lines. Raises `ConfigError` naming the line that is none."""
    found: list[Query] = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            entry: Any = read_json(line)
        except ValueError as error:
            raise ConfigError(f"is not JSON: {error}", file=f"{path}:{number}") from error
        raw = as_mapping(entry)
        if not all(isinstance(raw.get(key), str) for key in ("query", "tool")):
            raise ConfigError('takes {"query": text, "tool": name}', file=f"{path}:{number}")
        found.append(Query(text=raw["query"], tool=raw["tool"]))
    return found


@contextmanager
def _apart(settings: Settings) -> Generator[Settings]:
    """Lend the user's records as a copy: the calls of the reader are not the user's."""
    kept = settings.directories.data / "toolcrib.db"
    with tempfile.TemporaryDirectory(prefix="toolcrib-") as folder:
        if kept.is_file():
            try:
                with closing(sqlite3.connect(kept)) as whole, closing(sqlite3.connect(Path(folder, kept.name))) as copy:
                    whole.backup(copy)
            except sqlite3.Error as error:
                hint = "`toolcrib doctor` looks at it"
                raise ToolFailure("storage", f"{kept} cannot be read: {error}", hint=hint) from error
        yield replace(settings, directories=settings.directories._replace(data=Path(folder)))


def _answered(crib: Toolcrib, asked: Sequence[Query]) -> list[Query]:
    """Return the queries whose tool exists; report the others, which would count as missed."""
    missing = dict.fromkeys(query.tool for query in asked if crib.catalog.find(query.tool) is None)
    for name in missing:
        close = crib.catalog.nearest(name)
        note(f"there is no tool {name!r}, its queries are left out" + (f"; did you mean {close[0]}?" if close else ""))
    return [query for query in asked if query.tool not in missing]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot be read: {reason}", file=str(path)) from error


def _cells(row: Cost, shown: Any) -> tuple[str, ...]:
    reached = "" if row.profile == PLAIN_LIST else f"{row.reached:.0%}"
    figures = (shown(row.shown), shown(round(row.read)), shown(round(row.sent)))
    return (row.profile, str(row.tools), *figures, f"{row.turns:.1f}", reached)
