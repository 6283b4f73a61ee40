"""Facts of the overview, from files alone: configurations of clients, our own, and what was listed and seen before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ...catalog.preflight import findings
from ...config import load
from ...config.clients.connections import NAME, entries
from ...config.clients.discovery import FoundServer, discover
from ...config.clients.table import CLIENTS, Client, is_ours
from ...config.directories import Places, config_files
from ...config.files import FOREIGN_MAX_BYTES, read
from ...config.own_file import read_servers
from ...config.servers import specs_of
from ...core.events import Problem
from ...core.patterns import regex
from ...core.tool import Tool
from ...errors import ConfigError, ToolcribError
from ...mcp.client.spec import ServerSpec
from ...sources.mcp.tool_list import Cached, ListingCache
from ...telemetry.tokens import Tokenizer, definition_tokens, tokenizer
from ..clients.choice import Candidate, broken_entries, candidates
from ..last_seen import last_seen_file, read_last_seen

_RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "bunx": (),
    "npx": ("-p", "--package"),
    "pipx": ("--spec",),
    "pnpx": (),
    "uvx": ("--from", "--with", "-p", "--python"),
}
"""Programs that fetch a package when a server starts, with their options that take a value."""
_PINNED: Final = regex(r".@[^/]*\d|==|\.whl$|^[./]|://")
"""A package with a version, a file, or an address."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NOTICE: Final = "notice"


class _Server(Struct, frozen=True, kw_only=True):
    """One server with what is known of it without asking it."""

    name: str
    spec: ServerSpec
    cached: Cached | None
    seen: Mapping[str, Any]
    """Its last state, empty for one that was never asked."""
    is_own: bool

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that it listed last."""
        return self.cached.listing.tools if self.cached else ()

    def tokens(self, counter: Tokenizer, client: Client | None = None) -> int:
        """Return the tokens of its definitions and instructions in a request, under the names that the client gives."""
        if self.cached is None:
            return 0
        named = [replace(tool, name=client.declared(self.name, tool.name)) if client else tool for tool in self.tools]
        return sum(definition_tokens(tool, counter) for tool in named) + counter.count(self.cached.listing.instructions)


class _FileWalk:
    """One walk through the files; `files` are all that were looked for."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.cache = places.directories.cache
        self.seen = read_last_seen(self.cache)
        self.files: list[Path] = [last_seen_file(self.cache)]
        self.findings: list[dict[str, str]] = []

    def find(self, kind: str, subject: str, detail: str) -> None:
        """Add a finding, once."""
        found = {"kind": kind, "subject": subject, "detail": detail}
        if found not in self.findings:
            self.findings.append(found)

    def server(self, spec: ServerSpec, *, is_own: bool) -> _Server:
        """Return the facts of a server."""
        cache = ListingCache(self.cache, spec)
        self.files += [cache.path] if cache.path else []
        seen = self.seen["servers"].get(spec.key(), {})
        return _Server(name=spec.name, spec=spec, cached=cache.read(), seen=seen, is_own=is_own)

    def problems(self, problems: Iterable[Problem]) -> None:
        """Add problems of configurations as findings."""
        for problem in problems:
            if problem.code != _NOTICE:
                self.find("problem", problem.source, problem.message + (f"; {problem.hint}" if problem.hint else ""))


def gather(places: Places) -> tuple[dict[str, Any], Sequence[Path]]:
    """Return the facts, and every file that they come from, those that are missing included."""
    gathering = _FileWalk(places)
    counter = tokenizer()
    own, own_file = _own_servers(gathering)
    rows = _found_servers(gathering)
    clients = [row for client in CLIENTS.values() if (row := _client(gathering, client, rows, counter))]
    listed: dict[str, _Server] = {server.name: server for server in (*(own or ()), *(server for _, server in rows))}
    _find_duplicates(gathering, rows)
    for client, detail in broken_entries(gathering.places):
        gathering.find("entry", client.title, detail)
    for server in listed.values():
        _find_in(gathering, server)
    facts = {
        "clients": clients,
        "own": {"file": own_file, "servers": len(own or ()), **_sums(own or (), counter)},
        "tokenizer": counter.name,
        "findings": gathering.findings,
        "fixable": [
            row["client"]
            for row in clients
            if own is not None and row["movable"] and not (row["connected"] or row["refused"])
        ],
    }
    return facts, gathering.files


def _own_servers(gathering: _FileWalk) -> tuple[list[_Server] | None, str]:
    """Return the servers behind Toolcrib, None where its configuration is broken, and its first file."""
    places = gathering.places
    files = config_files(places.directories, places.project)
    gathering.files += [*files, places.directories.state / "trusted.json"]
    try:
        settings = load(environ=places.environ, cwd=places.project)
    except ToolcribError as error:
        for one in error.each if isinstance(error, ConfigError) else (error,):
            gathering.find("problem", "configuration", str(one))
        return None, str(files[0])
    gathering.problems(settings.problems)
    return [gathering.server(spec, is_own=True) for spec in settings.sources.servers], str(files[0])


def _found_servers(gathering: _FileWalk) -> list[tuple[Candidate, _Server]]:
    """Return the servers in the clients' files, each different one once."""
    places = gathering.places
    for client in CLIENTS.values():
        gathering.files += [*client.user(places), *(places.project / name for name in client.project)]
    discovery = discover(places)
    gathering.problems(discovery.problems)
    known: Mapping[str, Any] = {}
    with suppress(ConfigError):  # `_own_servers` has reported it
        known = read_servers(config_files(places.directories, places.project)[0])
    rows = candidates(sorted(discovery.servers, key=lambda found: found.scope == "project"), known)
    pairs: list[tuple[Candidate, _Server]] = []
    for row in rows:
        specs, bad = specs_of([row.found.entry(row.name)], places.environ)
        gathering.problems(bad)
        pairs += [(row, gathering.server(spec, is_own=row.known)) for spec in specs]
    return pairs


def _client(
    gathering: _FileWalk, client: Client, rows: Sequence[tuple[Candidate, _Server]], counter: Tokenizer
) -> dict[str, Any] | None:
    """Return the row of one client; None for one without a configuration here."""
    places = gathering.places
    files = [file for file in (client.user_file(places), client.project_file(places)) if file and file.is_file()]
    if not files:
        return None
    connected = [file for file in files if _is_connected(client, file)]
    mine = [(found, server) for row, server in rows for found in row.places if found.client.name == client.name]
    servers = list({(found.file, found.name): server for found, server in mine}.values())
    sums = _sums(servers, counter, client)
    if connected:
        paid = gathering.seen["clients"].get(str(connected[0]))
        known = paid if paid and "tokens" in paid else {"tokens": None, "exact": False}
        sums |= {"tokens": known["tokens"], "exact": bool(known["exact"])}
    user_file = client.user_file(places)
    refusal: Mapping[str, Any] = {} if connected else gathering.seen["clients"].get(str(user_file), {})
    refused = refusal.get("refused")
    is_known = len(sums["unlisted"]) <= refusal.get("unanswered", 0)  # no server came since that is not counted
    is_cheaper = refused is not None and is_known and sums["tokens"] < refused
    return {
        "client": client.name,
        "title": client.title,
        "files": [str(file) for file in files],
        "servers": len(servers),
        **sums,
        "connected": bool(connected),
        "refused": refused if is_cheaper else None,
        "movable": [found.name for found, _ in mine if found.file == user_file and found.scope == "user"],
    }


def _is_connected(client: Client, file: Path) -> bool:
    try:
        there = entries(client, read(file, limit=FOREIGN_MAX_BYTES), str(file))
    except ConfigError:
        return False  # the discovery has reported it
    raw: Any = there.get(NAME)
    entry: Mapping[str, Any] = cast("Mapping[str, Any]", raw) if isinstance(raw, Mapping) else dict[str, Any]()
    return is_ours(entry)


def _sums(servers: Sequence[_Server], counter: Tokenizer, client: Client | None = None) -> dict[str, Any]:
    """Return the figures of some servers together."""
    return {
        "tools": sum(len(server.tools) for server in servers),
        "tokens": sum(server.tokens(counter, client) for server in servers),
        "exact": counter.exact,
        "unlisted": [server.name for server in servers if server.cached is None],
    }


def _find_duplicates(gathering: _FileWalk, rows: Sequence[tuple[Candidate, _Server]]) -> None:
    """Name servers that more than one client starts, or one client under two names."""
    alike: dict[bytes, list[FoundServer]] = {}
    for row, _ in rows:
        alike.setdefault(row.identity, []).extend(row.places)
    for places in alike.values():
        if len(places) > 1:
            names = ", ".join(dict.fromkeys(found.name for found in places))
            where = ", ".join(dict.fromkeys(f"{found.client.title} ({found.scope})" for found in places))
            gathering.find("duplicate", names, f"configured {len(places)} times: {where}")


def _find_in(gathering: _FileWalk, server: _Server) -> None:
    """Add what there is to do about one server."""
    for risk in _risks(server):
        gathering.find("risky", server.name, risk)
    state, detail = str(server.seen.get("state", "")), str(server.seen.get("detail", ""))
    if state == "needs_login":
        first = "" if server.is_own else "`toolcrib import`, then "
        gathering.find("login", server.name, f"{first}`toolcrib login {server.name}`")
    elif state == "failed":
        gathering.find("silent", server.name, detail or "it failed")
    elif server.cached is None:
        command = "toolcrib tools" if server.is_own else "toolcrib import --dry-run"
        gathering.find("unknown", server.name, f"`{command}` lists and counts them")


def _risks(server: _Server) -> Iterator[str]:
    """Yield why a server wants a look before it is used, one sentence each."""
    spec = server.spec
    address = urlsplit(spec.url)
    if address.scheme == "http" and address.hostname not in _LOOPBACK:
        yield f"{address.scheme}://{address.netloc.rpartition('@')[2]} is not encrypted: others can read and change it"
    package = _package(spec)
    if package and not _PINNED.search(package):
        yield f"{Path(spec.command).stem} runs the newest {package} at every start: name a version"
    for tool in server.tools:
        for finding in findings(tool)[:1]:
            yield f"its tool {tool.local_name}: {finding}"


def _package(spec: ServerSpec) -> str:
    """Return the package that a server's program fetches, empty where it fetches none."""
    runner = Path(spec.command).stem
    if runner not in _RUNNERS:
        return ""
    words = [word for word in spec.args if word != "run"] if runner == "pipx" else list(spec.args)
    while words:
        word = words.pop(0)
        option, _, value = word.partition("=")
        if option in ("--from", "--package", "--spec", "-p") and option in _RUNNERS[runner] and runner != "uvx":
            return value or (words[0] if words else "")
        if option == "--from":
            return value or (words[0] if words else "")
        if word.startswith("-"):
            if option in _RUNNERS[runner] and not value and words:
                words.pop(0)
            continue
        return word
    return ""
