"""Cost of a connection: tokens of the definitions in a client's first request, before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ...claude_code.approve_tool import WithApprove
from ...config import Settings
from ...config.clients.connections import NAME
from ...config.clients.discovery import FoundServer
from ...config.clients.table import Client
from ...config.directories import Places
from ...config.loader import load_gateway
from ...config.own_file import read_servers
from ...config.servers import specs_of
from ...core.json import loads
from ...core.tool import Tool
from ...crib import Toolcrib
from ...server.backend import CribBackend
from ...telemetry.tokens import Tokenizer, definition_tokens, tokenizer
from ..open_crib import opened
from ..options import run
from ..output import note
from .changes import ClientChange
from .choice import candidates, identity
from .moved_servers import LIST_SECONDS

_MORE_TOKENS: Final = 100
_MORE_PART: Final = 0.02
"""Tokens and part by which definitions may cost more: names are longer by ours."""
_OWN_KINDS: Final = frozenset({"jobs", "plan", "resources", "verbs"})
"""Kinds of sources that no client could have itself."""
_NOTHING_ELSE: Final[Mapping[str, Any]] = {
    "openapi": (),
    "catalogs": (),
    "skills": None,
    "workflows": (),
    "builtins": False,
}
"""Settings of a crib that only lists servers."""


class _Listed(Struct, frozen=True, kw_only=True):
    """Listing of one server, by its own names."""

    tools: tuple[Tool, ...]
    instructions: str


class Cost(Struct, frozen=True, kw_only=True):
    """Tokens of the definitions in a client's first request."""

    before: int
    after: int
    direct: int
    """Of the servers that can be reached after but those of `others`, if the client had all of them itself."""
    others: int
    """Of servers that can be reached after and only other clients of this `connect` have."""
    silent: tuple[str, ...]
    """Servers that list nothing now, and are in neither figure. One that is switched off costs nothing."""


def costs_of(
    changes: Sequence[ClientChange], places: Places, *, anyway: bool
) -> tuple[dict[str, Cost], list[ClientChange]]:
    """Return the cost of each client's definitions, by its name, and the clients that stay as they were.

    Servers that come with the latter alone are in no figure of another client. Each server is started once.
    """
    if not changes:
        return {}, []
    way = changes[0].way
    overrides = {"guard": "on"} if way.desk else {} if way.guard else {"guard": "off"}
    settings = load_gateway((), {**overrides, "profile": way.profile})
    found = [server for change in changes for server in change.before]
    rows = candidates(found, read_servers(way.own_file(places)))
    ours = [row for row in rows if row.known]
    kept = {(change.file, name) for change in changes for name in change.kept}  # not to be waited for again
    unknown = [row for row in rows if not row.known]
    off = [row for row in unknown if row.found.entry(row.name).is_off]
    asked = [row for row in unknown if all((place.file, place.name) not in kept for place in row.places)]
    others, _ = specs_of([_as_started_there(row.found, places).entry(row.name) for row in asked])
    if not settings.policy.guard:
        _warn_of_questions(settings)

    async def main() -> tuple[dict[str, Cost], list[ClientChange]]:
        counter = tokenizer()
        lists: dict[bytes, _Listed | None] = {row.identity: _Listed(tools=(), instructions="") for row in off}
        if others:
            async with opened(settings.with_values(servers=tuple(others), **_NOTHING_ELSE), wait=LIST_SECONDS) as crib:
                there = {spec.name for spec in others}
                lists |= {row.identity: _listed(crib, row.name) for row in rows if row.name in there}
        async with opened(settings, wait=LIST_SECONDS) as crib:
            lists |= {row.identity: _listed(crib, row.name) for row in ours}
            more = _more_servers(crib, {row.name for row in ours})

            def cost_of(change: ClientChange, connected: Sequence[ClientChange]) -> Cost:
                gone = _gone(changes, connected)
                served = _served(crib, change, counter, gone)
                added = sum(_tokens_of(change.client, source, listed, counter) for source, listed in more.items())
                cost = _cost(change, served, lists, counter)
                beside = (row for row in ours if row.name not in gone and change.client not in row.clients)
                others = sum(_tokens_of(change.client, row.name, lists.get(row.identity), counter) for row in beside)
                return replace(cost, direct=cost.before + added, others=others)

            return _settled(changes, cost_of, anyway=anyway)

    return run(main)


def _is_worse(change: ClientChange, cost: Cost) -> bool:
    """Whether the first request gets longer by more than longer names explain. A guarded entry has tools of its own."""
    if change.way.guard or change.is_more:
        return False
    return is_longer(cost.after, cost.direct)


def is_longer(after: int, before: int) -> bool:
    """Whether definitions cost more by more than longer names explain."""
    return after > before + max(_MORE_TOKENS, _MORE_PART * before)


def _as_started_there(found: FoundServer, places: Places) -> FoundServer:
    """Return the server as its client starts it here: in the folder that is open, if it says no other."""
    if not found.works_in_its_folder or found.value.get("cwd"):
        return found
    return replace(found, value={**found.value, "cwd": str(places.project)})


def _settled(
    changes: Sequence[ClientChange],
    cost_of: Callable[[ClientChange, Sequence[ClientChange]], Cost],
    *,
    anyway: bool,
) -> tuple[dict[str, Cost], list[ClientChange]]:
    """Return the cost of each change beside those that stay, and the changes that are worse than none, in order.

    Without the servers of one that is worse, others may be no longer, so that the rest is judged again. `cost_of` takes
    a change and all that are connected.
    """
    refused: dict[str, Cost] = {}
    """Cost by the name of the client, when it was refused."""
    while True:
        connected = [change for change in changes if change.client.name not in refused]
        costs = {change.client.name: cost_of(change, connected) for change in connected}
        worse = [change for change in connected if not anyway and _is_worse(change, costs[change.client.name])]
        if not worse:
            break
        more = {change.client.name: costs[change.client.name] for change in worse}
        worst = max(more, key=lambda name: more[name].after - more[name].direct)
        refused[worst] = more[worst]
    left = [change for change in changes if change.client.name in refused]
    for change in left:
        cost = cost_of(change, [*connected, change])
        costs[change.client.name] = cost if _is_worse(change, cost) else refused[change.client.name]
    return costs, left


def _gone(changes: Sequence[ClientChange], connected: Sequence[ClientChange]) -> frozenset[str]:
    """Return our names of the new servers that only changes other than `connected` have brought."""
    needed = {name for change in connected for name in change.names.values()}
    return frozenset(name for change in changes for name in change.added if name not in needed)


def _more_servers(crib: Toolcrib, shared: set[str]) -> dict[str, _Listed]:
    """Return the lists of our configured servers that no client of this `connect` has, by name."""
    states = (one for one in crib.tools.sources if one.kind not in _OWN_KINDS and one.source not in shared)
    found = {state.source: _listed(crib, state.source) for state in states}
    return {source: listed for source, listed in found.items() if listed is not None}


def _warn_of_questions(settings: Settings) -> None:
    """Name the keys of the user's configuration by which calls are asked about although the guard is off."""
    mode = settings.policy.modes[settings.policy.mode]
    asking = [f"mode: {mode.name}"] if {mode.read, mode.write, mode.destructive} != {"allow"} or mode.plan else []
    asking += ["untrusted: {ask: true}"] if settings.policy.untrusted.ask else []
    if asking:
        note(f"calls that worked before may wait for an answer: your configuration says `{'` and `'.join(asking)}`")


def _served(crib: Toolcrib, change: ClientChange, counter: Tokenizer, gone: frozenset[str]) -> int:
    """Return the tokens of what the new entry shows the client at first, without the servers `gone`."""
    backend = WithApprove(crib) if change.way.desk else CribBackend(crib)
    allowed = [tool.name for tool in crib.catalog.tools.values() if tool.source not in gone] if gone else None
    session = backend.serve(crib.session(profile=change.way.profile, grows=False, allowed_tools=allowed))
    shown: list[dict[str, Any]] = loads(session.listing)
    tools = (
        Tool(
            name=tool["name"],
            local_name=tool["name"],
            source=NAME,
            description=tool.get("description", ""),
            input_schema=tool["inputSchema"],
        )
        for tool in shown
    )
    return _tokens(change.client, NAME, tools, counter) + counter.count(session.instructions)


def _listed(crib: Toolcrib, source: str) -> _Listed | None:
    """Return the list of a server; None if it did not answer."""
    answers = any(state.source == source and state.state in ("ready", "cached") for state in crib.tools.sources)
    if not answers:
        return None
    about = crib.catalog.about.get(source)
    tools = (replace(tool, name=tool.local_name) for tool in crib.tools.listed(source))
    return _Listed(tools=tuple(tools), instructions=about.instructions if about else "")


def _cost(change: ClientChange, served: int, lists: Mapping[bytes, _Listed | None], counter: Tokenizer) -> Cost:
    """Add up the servers that the client had, and those that it keeps beside us."""
    before, kept, silent = 0, 0, list[str]()
    for server in change.before:
        listed = lists.get(identity(server.value))
        if listed is None:
            silent.append(server.name)
            continue
        tokens = _tokens_of(change.client, server.name, listed, counter)
        before += tokens
        kept += 0 if server.name in change.moved else tokens
    before += served if change.is_more else 0
    return Cost(before=before, after=served + kept, direct=before, others=0, silent=tuple(silent))


def _tokens_of(client: Client, server: str, listed: _Listed | None, counter: Tokenizer) -> int:
    """Return the tokens of one server that a client has itself."""
    return _tokens(client, server, listed.tools, counter) + counter.count(listed.instructions) if listed else 0


def _tokens(client: Client, server: str, tools: Iterable[Tool], counter: Tokenizer) -> int:
    declared = (replace(tool, name=client.declared(server, tool.name)) for tool in tools)
    return sum(definition_tokens(tool, counter) for tool in declared)
