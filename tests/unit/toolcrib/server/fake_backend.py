"""A backend without a crib behind it: a few tools with a will of their own, and a record of what happened to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from toolcrib.core.context import Peer
from toolcrib.core.json import dumps
from toolcrib.core.permission import Decision, NoApprover, Question
from toolcrib.core.result import ToolResult
from toolcrib.core.server_features import NO_FEATURES
from toolcrib.core.tool import Annotations, Tool
from toolcrib.errors import ToolFailure, UsageError
from toolcrib.jobs.inprocess import InProcessJobs
from toolcrib.jobs.job import Jobs
from toolcrib.mcp.server.backend import SessionRequest
from toolcrib.mcp.server.calls import ToolCall
from toolcrib.policy.questions import shown_arguments
from toolcrib.server.backend import ClientApprover, current_peer
from toolcrib.server.tasks import JobSessionTasks, JobTasks


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One call as it arrived at the backend."""

    call: ToolCall
    resume: Mapping[str, Any] | None
    key: str
    principal: str
    profile: str
    is_stateless: bool


def _tool(name: str, **properties: Mapping[str, Any]) -> Tool:
    return Tool(
        name=name,
        source="fake",
        local_name=name,
        description=f"The {name} tool.",
        input_schema={"type": "object", "properties": properties},
        annotations=Annotations(read_only=True),
    )


def _elicitation(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return {"message": message, "requestedSchema": schema}


@dataclass
class FakeBackend:
    """Holds tools named after what they do."""

    seen: list[Seen] = field(default_factory=list[Seen])
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    """Set when a call of `wait` was cancelled."""
    waiting: anyio.Event = field(default_factory=anyio.Event)
    """Set when a call of `wait` runs."""
    release: anyio.Event = field(default_factory=anyio.Event)
    """What `wait` waits for."""
    running: int = 0
    most_running: int = 0
    ready: anyio.Event = field(default_factory=anyio.Event)
    is_connecting: bool = False
    callbacks: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    """Parts that do not work, with their reasons."""
    checks: int = 0
    """How often somebody asked for them."""
    background: Jobs = field(default_factory=lambda: InProcessJobs(lambda job: None))
    """Jobs that nobody opens: no call here goes on in the background."""

    def __post_init__(self) -> None:
        """Offer the tools."""
        self.ready.set()
        text = {"type": "string"}
        routed = {"type": "string", "x-mcp-header": "Region"}
        for tool in (
            _tool("echo", text=text),
            _tool("routed", region=routed, count={"type": "integer", "x-mcp-header": "Count"}),
            *map(
                _tool,
                ("wait", "progress", "log", "ask", "ask_twice", "wants_input", "broken", "guarded", "needs_sampling"),
            ),
            _tool("no_json"),
        ):
            self.tools[tool.name] = tool

    def find_tool(self, name: str, /) -> Tool | None:
        return self.tools.get(name.removeprefix("fake__"))

    def open_session(self, wanted: SessionRequest, /) -> FakeSession:
        if wanted.profile == "nonsense":
            raise UsageError("there is no profile nonsense; did you mean flat?")
        return FakeSession(
            self,
            key=wanted.key,
            principal=wanted.principal,
            profile=wanted.profile,
            is_stateless=wanted.is_stateless,
            is_shared=wanted.is_shared,
        )

    def session_tasks(self, principal: str, notify: Callable[[bytes], object], /) -> JobSessionTasks:
        return JobSessionTasks(self.background, principal, notify)

    def stateless_tasks(self, principal: str, stamp: Mapping[str, Any], /) -> JobTasks:
        return JobTasks(self.background, principal, stamp)

    def on_change(self, callback: Callable[[], None], /) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    async def failing(self) -> Mapping[str, str]:
        self.checks += 1
        return dict(self.failures)

    async def wait_ready(self, seconds: float, /) -> None:
        with anyio.move_on_after(seconds):
            await self.ready.wait()

    def add(self, name: str) -> None:
        """Offer one more tool and tell everybody."""
        self.tools[name] = _tool(name)
        self.touch()

    def touch(self) -> None:
        """Say that the catalog changed."""
        for callback in tuple(self.callbacks):
            callback()


class FakeResources:
    """Nothing to read."""

    version = 0
    features = NO_FEATURES
    may_exist = True
    skills: tuple[Mapping[str, Any], ...] = ()

    async def complete(self, kind: str, named: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ToolFailure("not_found", f"there is no {named!r}")

    async def watch(self, uri: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        raise ToolFailure("not_found", f"there is no resource {uri!r}")


class FakeSession:
    """One conversation at the fake backend."""

    def __init__(
        self, backend: FakeBackend, *, key: str, principal: str, profile: str, is_stateless: bool, is_shared: bool
    ) -> None:
        self.backend = backend
        self.key = key
        self.principal = principal
        self.profile = profile
        self.is_stateless = is_stateless
        self.approver = ClientApprover(is_shared=is_shared)
        self.instructions = "Call echo."
        self.servers: Mapping[str, Mapping[str, Any]] = {}
        self.resources = FakeResources()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(self.backend.tools.values())

    @property
    def listing(self) -> bytes:
        return dumps([tool.definition for tool in self.tools])

    def note_listed(self) -> None:
        pass

    async def restore(self) -> None:
        """Nothing is kept."""

    async def call(self, call: ToolCall, peer: Peer, resume: Mapping[str, Any] | None) -> ToolResult:
        backend, name, arguments = self.backend, call.name, call.arguments
        backend.seen.append(
            Seen(
                call=call,
                resume=resume,
                key=self.key,
                principal=self.principal,
                profile=self.profile,
                is_stateless=self.is_stateless,
            )
        )
        if call.method == "tools/call" and name == "guarded":
            decision = Decision(effect="ask", rule="mode cautious: a write asks")
            question = Question(
                call_id="c1",
                tool=backend.tools["echo"],
                arguments=arguments,
                decision=decision,
                principal="local",
                shown=shown_arguments(arguments),
            )
            token = current_peer.set(peer)
            try:
                answer = await self.approver(question)
            except NoApprover:
                return ToolResult.failed("denied", "no approver")
            finally:
                current_peer.reset(token)
            return ToolResult.of_text(answer.verdict)
        body = _BODIES.get(name) if call.method == "tools/call" else None
        if body is None:
            return ToolResult.failed("not_found", f"there is no tool {name}", hint="Did you mean echo?")
        backend.running += 1
        backend.most_running = max(backend.most_running, backend.running)
        try:
            return await body(backend, _Call(arguments=arguments, peer=peer, token=call.progress_token, resume=resume))
        except ToolFailure as failure:
            return ToolResult.of_failure(failure)
        finally:
            backend.running -= 1


@dataclass(frozen=True, kw_only=True)
class _Call:
    arguments: Mapping[str, Any]
    peer: Peer
    token: str | int | None
    resume: Mapping[str, Any] | None


async def _echo(backend: FakeBackend, call: _Call) -> ToolResult:
    return ToolResult.of_text(str(call.arguments.get("text", ""))).with_meta(call_id="c1")


async def _routed(backend: FakeBackend, call: _Call) -> ToolResult:
    return ToolResult.of_text("routed", structured_content={"region": call.arguments.get("region")})


async def _wait(backend: FakeBackend, call: _Call) -> ToolResult:
    backend.waiting.set()
    try:
        await backend.release.wait()
    except BaseException:
        backend.cancelled.set()
        raise
    return ToolResult.of_text("waited")


async def _progress(backend: FakeBackend, call: _Call) -> ToolResult:
    if call.token is not None:
        for step in (1, 2, 3):
            params = {"progressToken": call.token, "progress": step, "total": 3}
            await call.peer.notify("notifications/progress", params)
    return ToolResult.of_text("done")


async def _log(backend: FakeBackend, call: _Call) -> ToolResult:
    for level in ("debug", "warning"):
        await call.peer.notify("notifications/message", {"level": level, "data": f"a {level}"})
    return ToolResult.of_text("logged")


async def _ask(backend: FakeBackend, call: _Call) -> ToolResult:
    answer = await call.peer.request("elicitation/create", _elicitation("Who are you?"))
    return ToolResult.of_text(f"hello {answer['content']['name']}")


async def _ask_twice(backend: FakeBackend, call: _Call) -> ToolResult:
    names: list[str] = []
    for message in ("First?", "Second?"):
        answer = await call.peer.request("elicitation/create", _elicitation(message))
        names.append(answer["content"]["name"])
    return ToolResult.of_text(" and ".join(names))


async def _wants_input(backend: FakeBackend, call: _Call) -> ToolResult:
    given = (call.resume or {}).get("inputResponses", {})
    if "who" in given:
        return ToolResult.of_text(f"{given['who']['content']['name']} with {(call.resume or {}).get('requestState')}")
    question = {"method": "elicitation/create", "params": _elicitation("Who?")}
    return ToolResult(input_required={"inputRequests": {"who": question}, "requestState": "round-1"})


async def _broken(backend: FakeBackend, call: _Call) -> ToolResult:
    raise RuntimeError("secret path /srv/private token=hunter2")


async def _no_json(backend: FakeBackend, call: _Call) -> ToolResult:
    return ToolResult.of_text("an object", structured_content={"object": object()})


async def _needs_sampling(backend: FakeBackend, call: _Call) -> ToolResult:
    details: dict[str, Any] = {"rpc_code": -32021, "data": {"requiredCapabilities": {"sampling": {}}}}
    return ToolResult.failed("tool_error", "the server refused the call", details=details)


_BODIES: Mapping[str, Callable[[FakeBackend, _Call], Awaitable[ToolResult]]] = {
    "ask": _ask,
    "ask_twice": _ask_twice,
    "broken": _broken,
    "echo": _echo,
    "log": _log,
    "needs_sampling": _needs_sampling,
    "no_json": _no_json,
    "progress": _progress,
    "routed": _routed,
    "wait": _wait,
    "wants_input": _wants_input,
}
