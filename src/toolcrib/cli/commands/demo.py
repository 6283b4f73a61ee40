"""`toolcrib demo`, run by `make run`: a gateway in front of sample servers, proved by one search and one call."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import typer
from msgspec import Struct, field
from msgspec.structs import replace

from ...config import Settings, load
from ...config.files import write
from ...core.json import dumps, fields_of
from ...crib import Session, Toolcrib
from ...errors import CODES, ToolFailure, UsageError
from ...results.redaction.redactor import Redactor
from ...server.backend import CribBackend
from ...server.http import serve_http
from ...server.logs import log_to
from ..options import AsJson
from ..output import emit_json, escape, note, out
from ..processes.server import http_options, snippet, tell_what_is_served

_PORTS: Final = range(8737, 8757)
"""The first free one is taken."""

_COLD_SECONDS: Final = 30.0
"""Seconds that sample servers may take to list their tools the first time, on a slow machine."""
_SHOWN_LINES: Final = 12
_BUDGET: Final = 500
"""Tokens from which on the sample servers are behind a search: a quarter of the default, for they are few."""

_INTERRUPTED: Final = 130
"""The exit status of a program that Ctrl-C ended."""


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the proof, with its outcome.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="What the sample servers work on instead of this clone.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the gateway at work on sample servers, with one real find and call through an MCP client.

    What it keeps meanwhile is in a temporary folder, and gone at its end.
    """
    here = (folder or _clone()).resolve()
    if not here.is_dir():
        raise UsageError(f"{here} is not a directory")
    with tempfile.TemporaryDirectory(prefix="toolcrib-demo-", ignore_cleanup_errors=True) as kept:
        settings = _settings(_servers(here), here, Path(kept, "gateway"))
        log_to(sys.stderr, "warning", Redactor(settings.secrets).text)
        show = _Show(here=here, kept=Path(kept), settings=settings, once=once, as_json=as_json)
        anyio.run(show.run, backend_options={"use_uvloop": sys.platform != "win32"})
    if show.proof is None:
        raise typer.Exit(CODES["internal"].exit if show.has_failed else _INTERRUPTED)


class _Proof(Struct, frozen=True, kw_only=True):
    """Definitions, search and call of a client of the demonstration."""

    listed: list[str]
    query: str
    found: str
    """The answer of `search_tools`."""
    tool: str
    arguments: Mapping[str, Any]
    result: str


class _Show(Struct, kw_only=True):
    """One run of the demonstration."""

    here: Path
    kept: Path
    settings: Settings
    once: bool
    as_json: bool
    proof: _Proof | None = None
    has_failed: bool = False
    stop: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> None:
        """Serve on the first free port, prove it, and stay until interrupted unless once is enough."""
        note(f"starting {', '.join(spec.name for spec in self.settings.sources.servers)} on {self.here} …")
        async with Toolcrib(self.settings.at_once()) as crib, anyio.create_task_group() as tasks:

            def started(url: str) -> None:
                tasks.start_soon(self._show, crib, url)

            for port in _PORTS:
                try:
                    options = replace(http_options(self.settings), port=port)
                    await serve_http(CribBackend(crib), options, started=started, stop=self.stop)
                except UsageError:
                    if port == _PORTS[-1]:
                        raise
                    continue
                break
            tasks.cancel_scope.cancel()

    async def _show(self, crib: Toolcrib, url: str) -> None:
        try:
            await crib.tools.wait_ready(_COLD_SECONDS)
            await tell_what_is_served(crib, note, [spec.name for spec in self.settings.sources.servers])
            own = _settings({"gateway": {"url": url}}, self.here, self.kept / "client")
            async with Toolcrib(own.with_values(untrusted={"trusted": ["gateway"]})) as client:
                self.proof = await _prove(client.session(profile="flat", mode="autonomous"), self.here)
        except ToolFailure as failure:
            self.has_failed = True
            note(f"the proof failed: {failure.message} {failure.hint}")
        if self.proof is not None and self.as_json:
            emit_json({"folder": str(self.here), "url": url, **fields_of(self.proof)})
        elif self.proof is not None:
            proof = self.proof
            out(f"\na client is shown: {', '.join(proof.listed)}")
            _tell(f'search_tools "{proof.query}"', proof.found)
            _tell(f"call_tool {proof.tool} {dumps(proof.arguments).decode()}", proof.result)
        if self.once or self.proof is None:
            self.stop.set()
            return
        if not self.as_json:
            out(f"\nserving MCP at {url}\n{snippet(url)}\nending with Ctrl-C", verbatim=True)  # a line to copy
        sys.stdout.flush()


async def _prove(client: Session, here: Path) -> _Proof:
    """Find a tool by what is wanted of it, and call it. Raises `ToolFailure`."""
    listed = [tool.local_name for tool in client.tools if tool.source == "gateway"]
    wish, tool, arguments = _wish(here)
    found = await _answer(client, "search_tools", {"query": wish, "limit": 3})
    if tool not in found:
        raise ToolFailure("not_found", f"{tool} is not among what was found for {wish!r}")
    result = await _answer(client, "call_tool", {"name": tool, "arguments": arguments})
    if not result.strip():
        raise ToolFailure("tool_error", f"{tool} answered nothing")
    return _Proof(listed=listed, query=wish, found=found, tool=tool, arguments=arguments, result=result)


async def _answer(client: Session, name: str, arguments: Mapping[str, Any]) -> str:
    result = await client.call(name, arguments)
    if result.error is not None:
        raise ToolFailure("tool_error", f"{name}: {result.text}")
    return result.text


def _wish(here: Path) -> tuple[str, str, dict[str, Any]]:
    """Return a query, the tool to find and its arguments: the state of a repository if there is one, else the time."""
    if _is_repository(here):
        return "show the working tree status of the repository", "git__git_status", {"repo_path": str(here)}
    if find_spec("mcp_server_time") is None:
        return "what time is it in a time zone", "time__current_time", {"zone": "Europe/Paris"}
    return "what time is it in a timezone", "time__get_current_time", {"timezone": "Europe/Paris"}


def _tell(asked: str, answer: str) -> None:
    lines = answer.splitlines()
    shown = lines[:_SHOWN_LINES] + ([f"… {len(lines) - _SHOWN_LINES} lines more"] if len(lines) > _SHOWN_LINES else [])
    out(f"\n> {escape(asked)}")
    for line in shown:
        out(f"  {escape(line, lines=True)}")


def _settings(servers: Mapping[str, Any], here: Path, kept: Path) -> Settings:
    """The configured default with these servers, everything that is kept inside `kept`."""
    kept.mkdir()
    config = kept / "mcp.json"
    write(config, dumps({"mcpServers": servers}))
    small = {"adaptive": {"budget_tokens": _BUDGET}}
    options = {"profile": "adaptive", "profiles": small, "mode": "cautious", "accept": True, "builtins": False}
    settings = load([config], options, cwd=here)
    directories = settings.directories._replace(data=kept / "data", cache=kept / "cache", state=kept / "state")
    return dataclasses.replace(settings, directories=directories)


def _servers(here: Path) -> dict[str, dict[str, Any]]:
    """The reference servers that are installed (extra `samples`); our own sample servers where none is."""
    path = str(here)
    # A clone that another user made is refused by git otherwise; this says so for our server alone.
    trust = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": path}
    samples: dict[str, dict[str, Any]] = {
        "fetch": {"args": ["-m", "mcp_server_fetch"]},
        "time": {"args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
    }
    if _is_repository(here):
        samples["git"] = {"args": ["-m", "mcp_server_git", "--repository", path], "env": trust}
    installed = {name: sample for name, sample in samples.items() if find_spec(f"mcp_server_{name}") is not None}
    if not installed:
        own = ["-m", "toolcrib.cli.processes.sample_server"]
        installed = {"folder": {"args": [*own, "folder", path]}, "time": {"args": [*own, "time"]}}
    return {name: {"command": sys.executable, **sample} for name, sample in sorted(installed.items())}


def _is_repository(here: Path) -> bool:
    return (here / ".git").exists() and shutil.which("git") is not None and find_spec("mcp_server_git") is not None


def _clone() -> Path:
    """The folder above this file that is a checkout, else the folder we are in."""
    return next((folder for folder in Path(__file__).resolve().parents if (folder / ".git").exists()), Path.cwd())
