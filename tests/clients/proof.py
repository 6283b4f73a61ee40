"""Every client before and after `toolcrib connect`, on the same servers: calls, tokens and waiting, as one table.

    PYTHONPATH=tests python -m clients.proof [--clients claude,codex] [--sizes small,middle,large] [--repeats 3]
                                                [--profile flat]

Eight real clients and one without any capability have the servers in their own files, then `toolcrib connect CLIENT
--replace` is run, with its default settings. The claims, one a column:

calls     a read, a write and a fetch succeed after as they did before
tokens    o200k of what the model reads of the servers in the first request (definitions, names that are held back,
          instructions, all servers being there; of a client without a model the definitions that it lists): at most 2 %
          or 100 tokens more for up to 10 tools, fewer above (the same where a client shows nothing of its servers)
waiting   from the start of the client to its first request with tools (of a client without a model to the result of its
          first call): at most 150 ms more, right after `connect`, which starts the local daemon; beside it, and not in
          the verdict, the wait where no daemon runs, as after the start of the machine
"""

from __future__ import annotations

import argparse
import dataclasses
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from clients.reactive import Reactive, Wish, named, reactive_model
from clients.running import Command, output
from clients.script import printed
from clients.seven import config as seven_config
from clients.seven import prepare
from clients.world import TOOLCRIB, reap
from rig import ROOT, Hearing, ensure_npm, node, node_env, npm_package_main
from rig.agents import agent_binary, clai
from toolcrib.config.clients.table import CLIENTS
from toolcrib.core.json import dumps
from toolcrib.telemetry.tokens import tokenizer

Json = dict[str, Any]
Servers = Mapping[str, tuple[str, list[str]]]
"""Program and arguments by name: entries without variables, which every client's format has."""

_MORE_TOKENS: Final = 100
_MORE_PART: Final = 0.02
_MORE_SECONDS: Final = 0.15
_FEW: Final = 10
"""Tools up to which the definitions may cost a little more."""
_PAGE: Final = "the page of the proof"
_PLAIN_SERVER: Final = str(ROOT / "tests" / "peers" / "plain_server.py")
_APPROVED: Final = 'default_tools_approval_mode = "approve"'
_PRIVATE: Final = ("ANTHROPIC_", "CLAUDE", "CODEX_", "GOOSE_", "OPENAI_", "OPENCODE_", "TMPDIR", "TOOLCRIB_", "XDG_")


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Servers, and the calls that are made of them."""

    servers: Servers
    tools: int
    wishes: tuple[Wish, ...]
    expected: tuple[str, ...]
    """A part of the result of each call."""
    written: Path
    """What the write changes."""


def small(home: Path, page: str) -> Catalog:
    """Three servers with four tools."""
    every, written = _programs(home), home / "written.txt"
    servers = {name: every[name] for name in ("time", "fetch")} | {"write": (sys.executable, [_PLAIN_SERVER, "write"])}
    wishes = (
        Wish(server="time", tool="get_current_time", arguments={"timezone": "Asia/Tokyo"}, reads=True),
        Wish(server="write", tool="write_file", arguments={"path": str(written), "text": "written"}),
        Wish(server="fetch", tool="fetch", arguments={"url": page}),
    )
    return Catalog(servers=servers, tools=4, wishes=wishes, expected=("+09:00", "wrote", _PAGE), written=written)


def middle(home: Path, page: str) -> Catalog:
    """Three servers with 17 tools: just above the few that may cost more."""
    some = {name: program for name, program in _programs(home).items() if name in ("filesystem", "time", "fetch")}
    return dataclasses.replace(large(home, page), servers=some, tools=17)


def large(home: Path, page: str) -> Catalog:
    """Nine servers with 75 tools: two of each kind of which people have several."""
    space = home / "project" / "space"
    written = space / "written.txt"
    wishes = (
        Wish(server="filesystem", tool="read_text_file", arguments={"path": str(space / "a.txt")}, reads=True),
        Wish(server="filesystem", tool="write_file", arguments={"path": str(written), "content": "written"}),
        Wish(server="fetch", tool="fetch", arguments={"url": page}),
    )
    return Catalog(servers=_programs(home), tools=75, wishes=wishes, expected=("two", "wrote", _PAGE), written=written)


SIZES: Final[Mapping[str, Callable[[Path, str], Catalog]]] = {"small": small, "middle": middle, "large": large}


def _programs(home: Path) -> Servers:
    """Return nine real servers; variables are set by `env`, for not every client's entry is asked to."""
    space = home / "project" / "space"
    entries: dict[str, Json] = dict(seven_config(space)["mcpServers"])
    (home / "documents").mkdir(exist_ok=True)
    entries["documents"] = {
        **entries["filesystem"],
        "args": [entries["filesystem"]["args"][0], str(home / "documents")],
    }
    entries["notes"] = {**entries["memory"], "env": {"MEMORY_FILE_PATH": str(home / "notes.jsonl")}}
    programs: dict[str, tuple[str, list[str]]] = {}
    for name, entry in entries.items():
        variables = [f"{key}={value}" for key, value in entry.get("env", {}).items()]
        words = [entry["command"], *entry.get("args", [])]
        programs[name] = ("/usr/bin/env", [*variables, *words]) if variables else (words[0], words[1:])
    return programs


@dataclass(frozen=True, kw_only=True)
class Home:
    """Where a client runs: its user's home, and the model that it asks."""

    path: Path
    env: Mapping[str, str]
    model: Reactive

    @property
    def project(self) -> Path:
        """The folder that clients are started in."""
        return self.path / "project"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of a client gave."""

    calls: tuple[str, ...] = ()
    """The result of each call."""
    tokens: int = 0
    """Of a client without a model."""
    shown: tuple[frozenset[str], ...] = ()
    """What the model of the others read in each request."""
    seconds: float = 0.0
    output: str = ""


class Subject(ABC):
    """One client: its file is written, `connect` is run, and the same is done before and after."""

    name: str
    title: str
    connects: str
    """What `toolcrib connect` calls the file that it reads."""

    def configure(self, home: Home, servers: Servers) -> None:
        """Write the client's own file with these servers."""
        client = CLIENTS[self.connects]
        entries = {name: self.entry(name, client.entry(*program)) for name, program in servers.items()}
        self.write(home, entries)

    def entry(self, name: str, entry: Json) -> Json:
        """Return the entry of a server as this client has it."""
        del name
        return entry

    def file(self, home: Home) -> Path:
        """Return its configuration file."""
        return home.path / ".mcporter" / "mcporter.json"

    def write(self, home: Home, entries: Mapping[str, Json]) -> None:
        """Write the file."""
        _write(self.file(home), json.dumps({"mcpServers": entries}))

    def waits_for_all(self, home: Home) -> Sequence[Run]:
        """Return a run in which the client waits for all of its servers, where it does not do so anyway."""
        return ()

    @abstractmethod
    def calls(self, home: Home, wishes: Sequence[Wish]) -> Run:
        """Have the calls made."""

    @abstractmethod
    def starts(self, home: Home, wishes: Sequence[Wish]) -> float:
        """Return the seconds until the first answer."""


class Modelled(Subject):
    """A client with a model: what it says to begin with makes the model do it."""

    def env(self, home: Home) -> Mapping[str, str]:
        """Return what is set for it."""
        return {}

    @abstractmethod
    def command(self, home: Home) -> Command:
        """Return what runs one conversation with nobody there."""

    def calls(self, home: Home, wishes: Sequence[Wish]) -> Run:
        home.model.begin(wishes)
        start = time.monotonic()
        said = output(self.command(home), {**home.env, **self.env(home)}, home.project)
        model = home.model
        return Run(
            calls=tuple(model.results), shown=tuple(model.shown), seconds=model.first_at - start, output=said[-2000:]
        )

    def starts(self, home: Home, wishes: Sequence[Wish]) -> float:
        return self.calls(home, ()).seconds


class Claude(Modelled):
    """Claude Code, which asks its user about what its settings do not allow: the servers are allowed there."""

    name, connects = "claude", "claude-code"

    def __init__(self, *, defers: bool) -> None:
        self.defers = defers
        self.title = f"Claude Code, tool search {'on' if defers else 'off'}"
        self.name = "claude" if defers else "claude-all"

    def file(self, home: Home) -> Path:
        return home.path / ".claude.json"

    def write(self, home: Home, entries: Mapping[str, Json]) -> None:
        seen = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": ["mock"], "rejected": []}}
        trusted = {"projects": {str(home.project): {"hasTrustDialogAccepted": True}}}
        _write(self.file(home), json.dumps({"mcpServers": entries, **seen, **trusted}))
        allowed = {"permissions": {"allow": [f"mcp__{name}" for name in entries]}}
        _write(home.path / ".claude" / "settings.json", json.dumps(allowed))

    def env(self, home: Home) -> Mapping[str, str]:
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}
        search = {"ENABLE_TOOL_SEARCH": str(self.defers).lower()}
        return {"ANTHROPIC_BASE_URL": home.model.url, "ANTHROPIC_API_KEY": "mock", **quiet, **search}

    def command(self, home: Home) -> Command:
        main = ensure_npm() / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
        return [node(), main, "-p", "Make the calls"]


class Codex(Modelled):
    """Codex, which searches itself with the models that can, and approves nothing in `codex exec` unless it is told."""

    connects = "codex"

    def __init__(self, *, defers: bool) -> None:
        self.defers = defers
        self.title = f"Codex, tool search {'on' if defers else 'off'}"
        self.name = "codex" if defers else "codex-all"

    def file(self, home: Home) -> Path:
        return home.path / ".codex" / "config.toml"

    def write(self, home: Home, entries: Mapping[str, Json]) -> None:
        model = f'name = "mock"\nbase_url = "{home.model.url}/v1"\nwire_api = "responses"\n'
        name = "gpt-5.5" if self.defers else "gpt-4.1"
        parts = [
            f'model = "{name}"\nmodel_provider = "mock"\ncheck_for_update_on_startup = false\n',
            f"[model_providers.mock]\n{model}",
            f'[projects."{home.project}"]\ntrust_level = "trusted"\n',
            '[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n',
        ]
        for server, entry in entries.items():
            lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items() if key != "env_vars"]
            parts.append("\n".join([f"[mcp_servers.{server}]", *lines, _APPROVED, ""]))
        _write(self.file(home), "\n".join(parts))

    def waits_for_all(self, home: Home) -> Sequence[Run]:
        before = self.file(home).read_text()
        self.file(home).write_text(before.replace(_APPROVED, f"{_APPROVED}\nrequired = true"))
        run = self.calls(home, ())
        self.file(home).write_text(before)
        return (run,)

    def command(self, home: Home) -> Command:
        return [agent_binary("@openai/codex"), "exec", "--skip-git-repo-check", "--json", "Make the calls"]


class OpenCode(Modelled):
    """OpenCode, which asks about nothing unless it is told to."""

    name, title, connects = "opencode", "OpenCode", "opencode"

    def file(self, home: Home) -> Path:
        return home.path / ".config" / "opencode" / "opencode.json"

    def write(self, home: Home, entries: Mapping[str, Json]) -> None:
        options = {"baseURL": f"{home.model.url}/v1", "apiKey": "mock"}
        mock: Json = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"mock": {}}}
        _write(self.file(home), json.dumps({"mcp": entries, "provider": {"mock": mock}, "autoupdate": False}))

    def command(self, home: Home) -> Command:
        words = ["run", "--pure", "--format", "json", "-m", "mock/mock", "Make the calls"]
        return [agent_binary("opencode-ai"), *words]


class Goose(Modelled):
    """Goose in its mode `auto`."""

    name, title, connects = "goose", "Goose", "goose"

    def file(self, home: Home) -> Path:
        return home.path / ".config" / "goose" / "config.yaml"

    def entry(self, name: str, entry: Json) -> Json:
        return {**entry, "name": name, "description": name}

    def write(self, home: Home, entries: Mapping[str, Json]) -> None:
        _write(self.file(home), yaml.safe_dump({"GOOSE_MODE": "auto", "extensions": dict(entries)}))

    def env(self, home: Home) -> Mapping[str, str]:
        model = {"OPENAI_HOST": home.model.url, "OPENAI_API_KEY": "mock", "GOOSE_PROVIDER": "openai"}
        return {**model, "GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false", "GOOSE_MODEL": "gpt-4o"}

    def command(self, home: Home) -> Command:
        return [agent_binary("@aaif/goose"), "run", "--no-session", "-t", "Make the calls"]


class Clai(Modelled):
    """The command line of Pydantic AI, with the file of mcporter: it asks about nothing either."""

    name, title, connects = "clai", "clai", "mcporter"

    def env(self, home: Home) -> Mapping[str, str]:
        return {"OPENAI_BASE_URL": f"{home.model.url}/v1", "OPENAI_API_KEY": "mock"}

    def command(self, home: Home) -> Command:
        words = ["-m", "openai-chat:gpt-5", "--no-stream", "--mcp-config", self.file(home), "Make the calls"]
        return [clai(), *words]


class Typed(Subject):
    """A command line on which somebody types the calls: a tool that is listed by its name, another by `call_tool`."""

    connects = "mcporter"

    @abstractmethod
    def listing(self, home: Home, server: str) -> Command:
        """Return the command that lists the tools of a server as JSON."""

    @abstractmethod
    def call(self, home: Home, server: str, tool: str, arguments: Mapping[str, Any]) -> Command:
        """Return the command that makes a call."""

    def calls(self, home: Home, wishes: Sequence[Wish]) -> Run:
        listed = {server: self._listed(home, server) for server in self._servers(home)}
        declared = [_definition(tool) for tools in listed.values() for tool in tools]
        results = [output(self._wished(home, wish, listed), home.env, home.project, alone=True) for wish in wishes]
        return Run(calls=tuple(results), tokens=sum(tokenizer().count(dumps(tool).decode()) for tool in declared))

    def starts(self, home: Home, wishes: Sequence[Wish]) -> float:
        names: dict[str, list[Json]] = {
            server: [{"name": wishes[0].tool if server == wishes[0].server else wishes[0].whole}]
            for server in self._servers(home)
        }
        command = self._wished(home, wishes[0], names)
        start = time.monotonic()
        output(command, home.env, home.project, alone=True)
        return time.monotonic() - start

    def _servers(self, home: Home) -> list[str]:
        return list(json.loads(self.file(home).read_text())["mcpServers"])

    def _listed(self, home: Home, server: str) -> list[Json]:
        text = output(self.listing(home, server), home.env, home.project, alone=True)
        start = min((text.find(mark) for mark in "[{" if mark in text), default=0)
        found: Any = json.loads(text[start:])
        return cast("list[Json]", found["tools"] if isinstance(found, dict) else found)

    def _wished(self, home: Home, wish: Wish, listed: Mapping[str, Sequence[Json]]) -> Command:
        names = {server: {str(tool["name"]) for tool in tools} for server, tools in listed.items()}
        if wish.tool in names.get(wish.server, ()):
            return self.call(home, wish.server, wish.tool, wish.arguments)
        if wish.whole in names["toolcrib"]:
            return self.call(home, "toolcrib", wish.whole, wish.arguments)
        verb = "call_tool_readonly" if wish.reads else "call_tool"
        return self.call(home, "toolcrib", verb, {"name": wish.whole, "arguments": dict(wish.arguments)})


class Inspector(Typed):
    """The command line of the MCP Inspector."""

    name, title = "inspector", "MCP Inspector"

    def listing(self, home: Home, server: str) -> Command:
        return self._asks(home, server, "tools/list")

    def call(self, home: Home, server: str, tool: str, arguments: Mapping[str, Any]) -> Command:
        return self._asks(home, server, "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))

    def write(self, home: Home, entries: Mapping[str, Json]) -> None:
        super().write(home, {name: {"type": "stdio", **entry} for name, entry in entries.items()})

    def _asks(self, home: Home, server: str, method: str, *options: str) -> Command:
        main = npm_package_main("@modelcontextprotocol/inspector")
        where = ["--config", self.file(home), "--server", server]
        return [node(), main, "--cli", *where, "--method", method, *options]


class Mcporter(Typed):
    """mcporter."""

    name, title = "mcporter", "mcporter"

    def listing(self, home: Home, server: str) -> Command:
        return self._runs(home, "list", server, "--json", "--schema")

    def call(self, home: Home, server: str, tool: str, arguments: Mapping[str, Any]) -> Command:
        return self._runs(home, "call", f"{server}.{tool}", "--args", json.dumps(arguments), "--output", "json")

    def _runs(self, home: Home, *words: str) -> Command:
        return [node(), npm_package_main("mcporter"), "--config", self.file(home), *words]


class FastMcp(Typed):
    """The command line of FastMCP: one file a server, for it takes a file of several as one server with prefixes."""

    name, title = "fastmcp", "FastMCP CLI"

    def listing(self, home: Home, server: str) -> Command:
        return [self._program, "list", self._alone(home, server), "--json"]

    def call(self, home: Home, server: str, tool: str, arguments: Mapping[str, Any]) -> Command:
        return [self._program, "call", self._alone(home, server), tool, "--input-json", json.dumps(arguments)]

    def _alone(self, home: Home, server: str) -> Path:
        entry = json.loads(self.file(home).read_text())["mcpServers"][server]
        file = home.path / f"only-{server}.json"
        file.write_text(json.dumps({"mcpServers": {server: entry}}))
        return file

    @property
    def _program(self) -> Path:
        return Path(sys.executable).with_name("fastmcp")


class Plain(Subject):
    """A client with no capability at all, which asks its user itself, as Cursor does: the user says yes."""

    name, title, connects = "plain", "a client without elicitation", "cursor"

    def file(self, home: Home) -> Path:
        return home.path / ".cursor" / "mcp.json"

    def calls(self, home: Home, wishes: Sequence[Wish]) -> Run:
        with _connected(home, self._entries(home)) as servers:
            declared = [_definition(tool) for server in servers.values() for tool in server.tools]
            tokens = sum(tokenizer().count(dumps(tool).decode()) for tool in declared)
            tokens += sum(tokenizer().count(server.instructions) for server in servers.values())
            return Run(calls=tuple(self._call(home, servers, wish) for wish in wishes), tokens=tokens)

    def starts(self, home: Home, wishes: Sequence[Wish]) -> float:
        start = time.monotonic()
        with _connected(home, self._entries(home)):
            return time.monotonic() - start

    def _entries(self, home: Home) -> Mapping[str, Json]:
        return json.loads(self.file(home).read_text())["mcpServers"]

    def _call(self, home: Home, servers: Mapping[str, _Wire], wish: Wish) -> str:
        if wish.server in servers:
            return servers[wish.server].calls(wish.tool, wish.arguments)
        gateway = servers["toolcrib"]
        if named({tool["name"] for tool in gateway.tools}, wish.whole):
            return gateway.calls(wish.whole, wish.arguments)
        verb = "call_tool_readonly" if wish.reads else "call_tool"
        given = {"name": wish.whole, "arguments": dict(wish.arguments)}
        said = gateway.calls(verb, given)
        if not said.startswith("approval_pending"):
            return said
        env, project = dict(home.env), home.project
        for row in json.loads(printed([TOOLCRIB, "approvals", "list", "--json"], env, project)):
            printed([TOOLCRIB, "approvals", "yes", str(row["id"])], env, project)
        return f"{_HELD}{gateway.calls(verb, given)}"


_HELD: Final = "[after a yes] "


class _Wire:
    """One server over stdio, spoken to by hand."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._last = process, 0
        self._answers = Hearing(process.stdout)
        self.instructions, self.tools = "", list[Json]()

    def begin(self) -> int:
        info = {"name": "plain", "version": "1"}
        return self._send("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})

    def list(self, hello: int) -> None:
        self.instructions = self._answer(hello).get("instructions", "")
        self._notify("notifications/initialized")
        self.tools = self._answer(self._send("tools/list", {}))["tools"]

    def calls(self, tool: str, arguments: Mapping[str, Any]) -> str:
        result = self._answer(self._send("tools/call", {"name": tool, "arguments": dict(arguments)}))
        return "\n".join(str(part.get("text", "")) for part in result["content"])

    def _send(self, method: str, params: Json) -> int:
        self._last += 1
        self._put({"id": self._last, "method": method, "params": params})
        return self._last

    def _notify(self, method: str) -> None:
        self._put({"method": method})

    def _put(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def _answer(self, id: int) -> Json:
        while True:
            heard = json.loads(self._answers.line() or b'{"id": 0}')
            if heard.get("id") == 0:
                raise RuntimeError("the server ended")
            if heard.get("id") == id and "method" not in heard:
                return cast("Json", heard["result"])


@contextmanager
def _connected(home: Home, entries: Mapping[str, Json]) -> Generator[dict[str, _Wire]]:
    """Start all servers at the same time, as clients do, and list them."""
    pipe = subprocess.PIPE
    processes: list[subprocess.Popen[bytes]] = []
    try:
        wires: dict[str, _Wire] = {}
        for name, entry in entries.items():
            command = [entry["command"], *entry["args"]]
            process = subprocess.Popen(
                command, env=dict(home.env), cwd=home.project, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
            )
            processes.append(process)
            wires[name] = _Wire(process)
        hellos = {name: wire.begin() for name, wire in wires.items()}
        for name, wire in wires.items():
            wire.list(hellos[name])
        yield wires
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _definition(tool: Mapping[str, Any]) -> Json:
    return {key: tool[key] for key in ("name", "description", "inputSchema") if key in tool}


SUBJECTS: Final[tuple[Subject, ...]] = (
    Claude(defers=True),
    Claude(defers=False),
    Codex(defers=True),
    Codex(defers=False),
    OpenCode(),
    Goose(),
    Clai(),
    Inspector(),
    Mcporter(),
    FastMcp(),
    Plain(),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One client with one catalog."""

    client: str
    tools: int
    calls: tuple[int, int, int]
    """That succeeded before and after, of how many."""
    held: int
    """Of those after, how many ran after a yes elsewhere."""
    tokens: tuple[int, int]
    seconds: tuple[float, float, float]
    """Before, after `connect`, and after without a daemon."""
    notes: tuple[str, ...] = ()

    @property
    def verdicts(self) -> tuple[bool, bool, bool]:
        """Whether the claims about calls, tokens and waiting hold."""
        before, after = self.tokens
        # A client that holds back even names shows nothing of the servers: as many tokens are as few as can be.
        most = before + max(_MORE_TOKENS, _MORE_PART * before) if self.tools <= _FEW else before
        return (
            self.calls[1] >= self.calls[0] == self.calls[2],
            after <= most,
            self.seconds[1] - self.seconds[0] <= _MORE_SECONDS,
        )


def prove(subject: Subject, size: str, page: str, *, repeats: int, profile: str = "") -> Row:
    """Run one client before and after `connect`, with another profile than its own where one is given."""
    with tempfile.TemporaryDirectory(prefix="proof-") as folder, reactive_model() as model:
        path = Path(folder)
        (path / "project").mkdir()
        kept = {name: value for name, value in node_env().items() if not name.startswith(_PRIVATE)}
        # OpenCode takes its folder, which servers get as their root, from PWD and not from the process.
        home = Home(path=path, env={**kept, "HOME": str(path), "PWD": str(path / "project")}, model=model)
        prepare(path / "project" / "space")
        catalog = SIZES[size](path, page)
        try:
            return _prove(subject, home, catalog, repeats, ["--profile", profile, "--anyway"] if profile else [])
        finally:
            reap(path)


def _prove(subject: Subject, home: Home, catalog: Catalog, repeats: int, options: Sequence[str]) -> Row:
    none = _without_servers(subject, home)
    subject.configure(home, catalog.servers)
    before, before_ok = _calls(subject, home, catalog)
    whole = subject.waits_for_all(home)
    waits = [min((subject.starts(home, catalog.wishes) for _ in range(repeats)), default=0.0)]
    reap(home.path)
    command = [TOOLCRIB, "connect", subject.connects, "--replace", "--command", TOOLCRIB, "--json", *options]
    report = printed(command, dict(home.env), home.project)
    connected = [subject.starts(home, catalog.wishes) for _ in range(repeats)]
    after, after_ok = _calls(subject, home, catalog)
    cold: list[float] = []
    for _ in range(repeats):
        reap(home.path)
        cold.append(subject.starts(home, catalog.wishes))
    waits += [min(connected, default=0.0), min(cold, default=0.0)]
    failed = [
        f"{'before' if run is before else 'after'} {wish.whole}: {said[:300]}"
        for run, fine in ((before, before_ok), (after, after_ok))
        for wish, said, ok in zip(catalog.wishes, [*run.calls, "", "", ""], fine, strict=False)
        if not ok
    ]
    return Row(
        client=subject.title,
        tools=catalog.tools,
        calls=(sum(before_ok), sum(after_ok), len(catalog.wishes)),
        held=sum(call.startswith(_HELD) for call in after.calls),
        tokens=(max(_tokens(run, none) for run in (before, *whole)), _tokens(after, none)),
        seconds=(waits[0], waits[1], waits[2]),
        notes=(*failed, *([after.output] if failed else []), *([report] if failed else [])),
    )


def _without_servers(subject: Subject, home: Home) -> frozenset[str]:
    """Return what the model of a client reads that has no server."""
    if not isinstance(subject, Modelled):
        return frozenset()
    subject.configure(home, {})
    return frozenset[str]().union(*subject.calls(home, ()).shown)


def _tokens(run: Run, none: frozenset[str]) -> int:
    """Return the tokens of the first request that shows most of the servers: some clients do not wait for them."""
    counts = [sum(tokenizer().count(text) for text in shown - none) for shown in run.shown]
    return run.tokens + max(counts, default=0)


def _calls(subject: Subject, home: Home, catalog: Catalog) -> tuple[Run, list[bool]]:
    """Have the calls made, and look at what came of each."""
    catalog.written.unlink(missing_ok=True)
    run = subject.calls(home, catalog.wishes)
    fine = [part.lower() in call.lower() for part, call in zip(catalog.expected, run.calls, strict=False)]
    fine += [False] * (len(catalog.wishes) - len(fine))
    fine[1] = fine[1] and catalog.written.is_file()
    return run, fine


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@contextmanager
def _page() -> Generator[str]:
    """Serve a page on loopback."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(_PAGE.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


_WAITED: Final = "first answer before → after connect (without a daemon)"


def table(rows: Iterable[Row]) -> str:
    """Return the rows as Markdown."""
    head = ["client", "tools", "calls before → after", "", "tokens before → after", "", _WAITED, ""]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head))]
    for row in rows:
        verdicts = ["held" if held else "missed" for held in row.verdicts]
        after = f"{row.calls[1]}/{row.calls[2]}" + (f", {row.held} after a yes elsewhere" if row.held else "")
        first, after_connect, cold = (f"{seconds:.2f}" for seconds in row.seconds)
        cells = [
            row.client,
            str(row.tools),
            f"{row.calls[0]}/{row.calls[2]} → {after}",
            verdicts[0],
            f"{row.tokens[0]:,} → {row.tokens[1]:,}",
            verdicts[1],
            f"{first} → {after_connect} s ({cold} s)",
            verdicts[2],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the proof and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", default=",".join(subject.name for subject in SUBJECTS))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--repeats", type=int, default=3, help="of which the shortest wait counts; 0 measures none")
    parser.add_argument("--profile", default="", help="instead of the one that connect gives")
    given = parser.parse_args()
    wanted = given.clients.split(",")
    rows: list[Row] = []
    with _page() as page:
        for size in given.sizes.split(","):
            for subject in SUBJECTS:
                if subject.name in wanted:
                    row = prove(subject, size, page, repeats=given.repeats, profile=given.profile)
                    rows.append(row)
                    sys.stderr.write("\n  ".join([f"{row.client}, {row.tools} tools: {row.verdicts}", *row.notes, ""]))
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    main()
