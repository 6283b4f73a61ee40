"""Every way into Toolcrib, made to look the same: open one, call through it, get an `Outcome`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import anyio.to_thread
import httpx2
import mcp_types
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.session import ElicitationFnT
from typer.testing import CliRunner

from peers import LEDGER
from peers.ledger_server import SECRET
from rig import PATIENCE
from rig.process import announced
from toolcrib.cli.main import app
from toolcrib.config import load
from toolcrib.core.permission import Approver
from toolcrib.core.result import ToolResult
from toolcrib.crib import Toolcrib
from toolcrib.errors import CODES
from toolcrib.testing import RecordingApprover

Profile = Literal["flat", "adaptive", "(catalog)"]
Mode = Literal["legacy", "2026-07-28"]

REVISIONS: Mapping[Mode, str] = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
_PASSING = re.compile(
    r"\(\d+\.\d s\)|[0-9a-f]{32}|(?<=artifact-)[0-9a-f]{8}|call_\w{6,}|\(config [^)]*\)|(?<= -c )[^`\"]+"
)
"""What is another one in every call: seconds it took, the artifact's id, its own id, a file of a rule or a command."""
_OWN_META = ("io.toolcrib/error", "io.modelcontextprotocol/serverInfo")
_PER_CALL_META = ("call_id", "latency_ms", "recovery")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One call as somebody makes it."""

    tool: str
    arguments: Mapping[str, Any]
    timeout: float | None = None
    dry_run: bool = False
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it, whoever asked."""

    content: Any
    structured: Any
    is_error: bool
    error: Mapping[str, Any] | None
    meta: Mapping[str, Any]

    @property
    def code(self) -> str:
        """The error's code, or `ok`."""
        return str(self.error["code"]) if self.error else "ok"

    @property
    def lasting(self) -> Outcome:
        """The same without what no two calls have in common."""
        cleaned = json.loads(_PASSING.sub("…", json.dumps([self.content, self.structured, self.error, self.meta])))
        content, structured, error, meta = cleaned
        meta = {key: value for key, value in meta.items() if key not in _PER_CALL_META}
        return replace(self, content=content, structured=structured, error=error, meta=meta)


Caller = Callable[[Ask], Awaitable[Outcome]]


@dataclass(frozen=True, kw_only=True)
class Home:
    """A user whose configuration has the server with the ledger, some rules, a secret and a small budget."""

    folder: Path

    @property
    def ledger(self) -> list[tuple[str, Any]]:
        """What reached the server: tools and arguments, in order."""
        file = self.folder / "ledger"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(entry["tool"], entry["arguments"]) for entry in map(json.loads, lines)]

    @property
    def environ(self) -> dict[str, str]:
        """The process environment of this user."""
        kept = {f"XDG_{kind}_HOME": str(self.folder / kind) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        return {**os.environ, **kept, "XDG_RUNTIME_DIR": str(self.folder), "HOME": str(self.folder)}

    @property
    def config(self) -> str:
        """The configuration file."""
        file = self.folder / "toolcrib.yaml"
        server = {"command": sys.executable, "args": ["-IS", LEDGER, str(self.folder / "ledger")]}
        rules = {"deny": ["t__erase(path=/etc/*)"], "allow": ["t__put"]}
        told = {"rules": rules, "redact": [SECRET], "limits": {"result_tokens": 300}, "accept": True, "builtins": False}
        held = {"approvals": {"wait": True}, "approval_wait": 0.05}
        file.write_text(json.dumps({"servers": {"t": server}, **told, **held}))
        return str(file)


Open = Callable[[Home, bool], AbstractAsyncContextManager[Caller]]
"""Opens a way in for a user who, when asked, says yes (True) or is not there (False)."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way in, and the profile that is met there."""

    name: str
    open: Open
    profile: Profile = "flat"
    has_keys: bool = True
    """Whether an idempotency key can be said; the command line has no use for one."""


def through(profile: Profile, ask: Ask) -> tuple[str, dict[str, Any]]:
    """Return the call that a model makes: the tool itself, or `call_tool`."""
    if profile != "adaptive":
        return ask.tool, dict(ask.arguments)
    return "call_tool", {"name": ask.tool, "arguments": dict(ask.arguments)}


@asynccontextmanager
async def _library(home: Home, says_yes: bool, *, profile: Profile) -> AsyncGenerator[Caller]:
    approver: Approver | None = RecordingApprover("yes") if says_yes else None
    async with Toolcrib(load([home.config], environ=home.environ)) as crib:
        await crib.tools.wait_ready(PATIENCE)
        session = crib.session(profile=profile, approver=approver)

        async def call(ask: Ask) -> Outcome:
            name, arguments = through(profile, ask)
            result = await session.call(
                name, arguments, timeout=ask.timeout, dry_run=ask.dry_run, idempotency_key=ask.key
            )
            return _of_library(result)

        yield call


def _of_library(result: ToolResult) -> Outcome:
    return Outcome(
        content=[dict(block) for block in result.content],
        structured=result.structured_content,
        is_error=result.is_error,
        error=result.error.to_json() if result.error else None,
        meta=dict(result.meta),
    )


def _of_json(shown: Mapping[str, Any]) -> Outcome:
    return Outcome(
        content=shown["content"],
        structured=shown.get("structuredContent"),
        is_error=shown["isError"],
        error=shown.get("error"),
        meta=shown.get("_meta", {}),
    )


@asynccontextmanager
async def _command_line(home: Home, says_yes: bool) -> AsyncGenerator[Caller]:
    runner = CliRunner(env=home.environ)
    always = ["call", "--json", "--config", home.config, *(["--yes"] if says_yes else [])]

    def call(ask: Ask) -> Outcome:
        words = [*always, ask.tool, "--args", json.dumps(ask.arguments)]
        words += ["--timeout", str(ask.timeout)] if ask.timeout else []
        words += ["--dry-run"] if ask.dry_run else []
        result = runner.invoke(app, words)
        shown: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (CODES[shown["error"]["code"]].exit if shown["isError"] else 0)
        return _of_json(shown)

    async def in_a_thread(ask: Ask) -> Outcome:
        return await anyio.to_thread.run_sync(call, ask)

    yield in_a_thread


@asynccontextmanager
async def _stdio(home: Home, says_yes: bool, *, mode: Mode, options: tuple[str, ...]) -> AsyncGenerator[Caller]:
    words = ["serve", "--config", home.config, "--profile", "flat", *options]
    server = StdioServerParameters(command=TOOLCRIB, args=words, env=home.environ, cwd=home.folder)
    log = home.folder / "stderr"
    with log.open("w") as errlog:
        async with Client(stdio_client(server, errlog), mode=mode, elicitation_callback=_answer(says_yes)) as client:
            assert client.protocol_version == REVISIONS[mode]
            yield partial(_call, client, "flat")
    assert "Traceback" not in log.read_text()


@asynccontextmanager
async def _server(home: Home) -> AsyncGenerator[str]:
    """The URL of a gateway's endpoint."""
    command = [TOOLCRIB, "serve", "--config", home.config, "--http", "--port", "0"]
    async with await anyio.open_process(command, env=home.environ, cwd=home.folder) as process:
        try:
            yield await announced(process)
        finally:
            process.terminate()


@asynccontextmanager
async def _http(home: Home, says_yes: bool, *, mode: Mode, profile: Profile) -> AsyncGenerator[Caller]:
    async with (
        _server(home) as url,
        Client(f"{url}/{profile}", mode=mode, elicitation_callback=_answer(says_yes)) as client,
    ):
        assert client.protocol_version == REVISIONS[mode]
        yield partial(_call, client, profile)


@asynccontextmanager
async def _rest(home: Home, says_yes: bool) -> AsyncGenerator[Caller]:
    """A program that cannot be asked: a person says yes at a terminal, and it sends the call again."""
    async with _server(home) as url, httpx2.AsyncClient(base_url=url.removesuffix("mcp"), timeout=PATIENCE) as client:
        await client.get("v1/tools")  # waits for servers that were never seen, as the first list of every client does

        async def call(ask: Ask) -> Outcome:
            said = {"timeout": ask.timeout, "dry_run": "true" if ask.dry_run else None}
            query = {key: value for key, value in said.items() if value is not None}
            headers = {"Idempotency-Key": ask.key} if ask.key else {}
            response = await client.post(f"v1/tools/{ask.tool}", params=query, headers=headers, json=ask.arguments)
            shown: dict[str, Any] = response.json()
            assert response.status_code == (CODES[shown["error"]["code"]].http if shown["isError"] else 200)
            return _of_json(shown)

        async def call_and_approve(ask: Ask) -> Outcome:
            first = await call(ask)
            if first.code != "approval_pending":
                return first
            words = str((first.error or {})["details"]["command"]).split()
            await anyio.run_process([TOOLCRIB, *words[1:]], env=home.environ)
            return await call(ask)

        yield call_and_approve if says_yes else call


def _answer(says_yes: bool) -> ElicitationFnT | None:
    return _say_yes if says_yes else None


async def _say_yes(context: Any, params: Any) -> mcp_types.ElicitResult:
    """Answer the question for approval with the first choice of the form, which is yes."""
    choices = params.requested_schema["properties"]["decision"]["oneOf"]
    return mcp_types.ElicitResult(action="accept", content={"decision": choices[0]["const"]})


async def _call(client: Client, profile: Profile, ask: Ask) -> Outcome:
    name, arguments = through(profile, ask)
    said = {"timeout": ask.timeout, "dryRun": ask.dry_run or None, "idempotencyKey": ask.key or None}
    meta = {f"io.toolcrib/{key}": value for key, value in said.items() if value is not None}
    result = await client.call_tool(name, arguments, meta=cast("mcp_types.RequestParamsMeta", meta) if meta else None)
    shown = dict(result.meta or {})
    error = shown.get("io.toolcrib/error")
    return Outcome(
        content=[block.model_dump(by_alias=True, exclude_none=True) for block in result.content],
        structured=result.structured_content,
        is_error=bool(result.is_error),
        error={key: value for key, value in error.items() if key != "retryable"} if error else None,
        meta={key.removeprefix("io.toolcrib/"): value for key, value in shown.items() if key not in _OWN_META},
    )


def _over_http(mode: Mode, profile: Profile) -> Way:
    return Way(
        name=f"http-{REVISIONS[mode]}-{profile}", profile=profile, open=partial(_http, mode=mode, profile=profile)
    )


WAYS = {
    way.name: way
    for way in (
        Way(name="library-flat", open=partial(_library, profile="flat")),
        Way(name="library-adaptive", profile="adaptive", open=partial(_library, profile="adaptive")),
        Way(name="library-(catalog)", profile="(catalog)", open=partial(_library, profile="(catalog)")),
        Way(name="command-line", profile="(catalog)", open=_command_line, has_keys=False),
        Way(name="stdio-daemon", open=partial(_stdio, mode="legacy", options=("--daemon-idle", "1"))),
        Way(name="stdio-in-process", open=partial(_stdio, mode="2026-07-28", options=("--no-daemon",))),
        Way(name="rest", profile="(catalog)", open=_rest),
        *(_over_http(mode, profile) for mode in ("legacy", "2026-07-28") for profile in ("flat", "adaptive")),
    )
}
"""Every way in, by name."""
