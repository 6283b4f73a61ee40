"""Backend of the MCP server: its functions, implemented with a crib; and approval by the client's user.

A client that declares `elicitation` is asked by `ClientApprover`. The session has one approver for all its calls, while
each call has its own way to the client: the context variable `current_peer`, set for the time of a call, holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, cast

from ..config import Settings
from ..core.context import Peer
from ..core.json import read_json
from ..core.permission import Answer, NoApprover, Question, Verdict
from ..core.result import ToolResult
from ..core.tool import Tool
from ..crib import CallOptions, Session, Toolcrib
from ..crib.resources import SessionResources
from ..mcp.server.backend import SessionRequest
from ..mcp.server.calls import ToolCall
from ..mcp.server.exchange import supports
from ..mcp.server.service import ServiceLimits
from .tasks import JobSessionTasks, JobTasks

current_peer: ContextVar[Peer | None] = ContextVar("current_peer", default=None)
"""The client of the call that runs in this task."""

_CHOICES: Final[Mapping[Verdict, str]] = {
    "yes": "Run it this once",
    "always": "Run it, and every later call of this tool in this session",
    "turn": "Run it, and every call until the next request of the user",
    "idle": "Run it, and every call until the session rests",
    "all": "Run it, and every call of this session",
    "no": "Do not run it",
    "comment": "Do not run it, and give the model the reason (in `comment`)",
    "never": "Refuse it, and every later call of this tool in this session",
    "edit": "Run it with the arguments below instead (in `arguments`)",
}
_ONE_CALL: Final[tuple[Verdict, ...]] = ("yes", "no", "comment", "edit")
"""Verdicts permitted where several clients share one conversation: one client's answer must not cover the others."""
_USER: Final = "the client's user"
_UNCONFIRMED: Final = (
    "Tools of this project are missing: its user has not confirmed the project's `.toolcrib`. `toolcrib doctor` tells "
    "the user how."
)
_IDLE: Final = 1800.0
"""Seconds without a request after which a conversation without a key of its own begins anew."""


class ClientApprover:
    """Has the client show the real tool and its arguments, whole and escaped; everything but a clear yes is a no."""

    def __init__(self, *, is_shared: bool = False) -> None:
        """`is_shared`: other clients of the principal are in the same conversation, so an answer is for its call."""
        self._choices = _ONE_CALL if is_shared else tuple(_CHOICES)
        self._schema = _schema(self._choices)

    def reaches(self) -> bool:
        """Whether the client at the far end can ask its user."""
        peer = current_peer.get()
        return peer is not None and supports(peer.capabilities, {"elicitation": {}})

    async def __call__(self, question: Question) -> Answer:
        """Return the user's answer. Raises `NoApprover` when this client cannot ask."""
        peer = current_peer.get()
        if peer is None or not self.reaches():
            raise NoApprover
        form = {"message": _message(question), "requestedSchema": self._schema}
        return _answer(await peer.request("elicitation/create", form), self._choices)


def _schema(choices: Iterable[Verdict]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "oneOf": [{"const": verdict, "title": _CHOICES[verdict]} for verdict in choices],
            },
            "comment": {"type": "string", "title": "Comment", "description": "Reason that the model reads after a no"},
            "arguments": {"type": "string", "title": "Arguments", "description": "With edit: all arguments, as JSON"},
        },
        "required": ["decision"],
    }


def _message(question: Question) -> str:
    parts = [
        f"May {question.tool.name} ({question.tool.kind}) run with these arguments?",
        question.shown,
        *(["It would change:", question.diff.rstrip("\n")] if question.diff else []),
        f"Asked because of: {question.decision.rule}",
        f"Call {question.call_id}, approval {question.approval}",
    ]
    return "\n".join(parts)


def _answer(result: Mapping[str, Any], choices: Collection[Verdict]) -> Answer:
    """Parse the client's answer; a form that was not accepted, or is unclear, is a refusal."""
    content = result.get("content")
    if result.get("action") != "accept" or not isinstance(content, dict):
        return Answer(verdict="no", by=_USER)
    form = cast("dict[str, Any]", content)
    decision, comment = form.get("decision"), form.get("comment")
    if decision not in choices:
        return Answer(verdict="no", by=_USER)
    reason = comment if isinstance(comment, str) else ""
    if decision != "edit":
        return Answer(verdict=cast("Verdict", decision), by=_USER, comment=reason)
    arguments = _arguments(form.get("arguments"))
    if arguments is None:
        return Answer(verdict="no", by=_USER, comment="the changed arguments were not a JSON object")
    return Answer(verdict="edit", by=_USER, arguments=arguments)


def _arguments(text: Any) -> dict[str, Any] | None:
    try:
        value = read_json(text, strict=True) if isinstance(text, str) else None
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def limits_of(settings: Settings) -> ServiceLimits:
    """Return the limits of the MCP server that the configuration sets; the others are the defaults."""
    return ServiceLimits(first_list=settings.sources.first_list_timeout)


class CribBackend:
    """Implements `mcp.server.backend.Backend`."""

    def __init__(self, crib: Toolcrib) -> None:
        """`crib` is open, and the caller closes it."""
        self.crib = crib

    @property
    def is_connecting(self) -> bool:
        """Whether a source is still connecting."""
        return any(source.state == "connecting" for source in self.crib.tools.sources)

    def find_tool(self, name: str, /) -> Tool | None:
        """Return the tool of that name."""
        return self.crib.catalog.get(name)

    def open_session(self, wanted: SessionRequest, /) -> CribSession:
        """Open a conversation. Raises `UsageError` for an unknown profile or mode."""
        session = self.crib.session(
            key=wanted.key,
            principal=wanted.principal,
            profile=wanted.profile,
            mode=wanted.mode,
            approver=ClientApprover(is_shared=wanted.is_shared),
            grows=False if wanted.is_stateless else None,
            for_client=True,
            instance=wanted.instance,
        )
        if wanted.is_resumable:
            session.state.is_alone = True  # no other process changes it meanwhile: it is not read again at each call
        elif not wanted.is_stateless:
            session.state.keep_for = 0.0  # other sessions of the handshake era end with the process that opened them
        elif wanted.is_shared and session.state.keep_for:
            session.state.keep_for = _IDLE
        return self.serve(session)

    def serve(self, session: Session) -> CribSession:
        """Return the server's view of an open session; a subclass may extend it."""
        return CribSession(session)

    def on_change(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call `callback` after every change of the catalog; return the unsubscribe function."""
        return self.crib.tools.on_change(lambda _: callback())

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work now, with reasons for the operator; takes 2 s at most."""
        reason = await self.crib.store.check()
        return {"store": reason} if reason else {}

    async def wait_ready(self, seconds: float, /) -> None:
        """Return when every source has published or failed once, at the latest after `seconds`."""
        await self.crib.tools.wait_ready(seconds)

    def session_tasks(self, principal: str, notify: Callable[[bytes], object], /) -> JobSessionTasks:
        """Return the tasks of a handshake session."""
        return JobSessionTasks(self.crib.jobs, principal, notify)

    def stateless_tasks(self, principal: str, stamp: Mapping[str, Any], /) -> JobTasks:
        """Return the tasks of a principal in the stateless era."""
        return JobTasks(self.crib.jobs, principal, stamp)


class CribSession:
    """Implements `mcp.server.backend.BackendSession`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def listing(self) -> bytes:
        """JSON array of the listed tool definitions."""
        return self.session.listing

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The listed tools, in the order of `listing`."""
        return self.session.tools

    @property
    def instructions(self) -> str:
        """Instructions for the model; they mention files of the project that its user has not confirmed."""
        text = self.session.instructions
        unconfirmed = any(one.code == "untrusted" for one in self.session.parts.settings.problems)
        return "\n".join(part for part in (text, _UNCONFIRMED) if part) if unconfirmed else text

    @property
    def servers(self) -> Mapping[str, Mapping[str, Any]]:
        """Server info of the MCP servers in scope, by source."""
        return self.session.servers

    @property
    def resources(self) -> SessionResources:
        """Resources, prompts and skills in scope."""
        return self.session.resources

    def note_listed(self) -> None:
        """Count the present tools as shown, with those of earlier lists: a client may go on with an older one."""
        audience = self.session.state.audience
        shown = frozenset((tool.source, tool.local_name) for tool in self.session.tools)
        audience.listed = shown | (audience.listed or shown)

    async def restore(self) -> None:
        """Take over what an earlier process has stored of the conversation."""
        await self.session.parts.calls.restore(self.session.state)

    async def call(self, call: ToolCall, peer: Peer, resume: Mapping[str, Any] | None) -> ToolResult:
        """Run one call through the pipeline. Approval questions go to `peer`, the client of this call."""
        options = _call_options(call)
        options["peer"] = peer
        if resume is not None:
            options["resume"] = resume
        token = current_peer.set(peer)
        arguments = call.arguments
        try:
            if call.method == "resources/read":
                return await self.session.resources.read(arguments["uri"], **options)
            if call.method == "prompts/get":
                return await self.session.resources.get(arguments["name"], arguments["arguments"], **options)
            return await self.session.call(call.name, arguments, **options)
        finally:
            current_peer.reset(token)


def _call_options(call: ToolCall) -> CallOptions:
    options: CallOptions = {"origin": call.origin, "progress_token": call.progress_token, "meta": call.meta}
    if call.id:
        options["id"] = call.id
    if call.is_again:
        options["is_again"] = True
    if call.client:
        options["client_name"] = call.client
    if call.timeout is not None:
        options["timeout"] = call.timeout
    if call.idempotency_key:
        options["idempotency_key"] = call.idempotency_key
    if call.dry_run:
        options["dry_run"] = True
    if call.version:
        options["version"] = call.version
    if call.takes_task:
        options["takes_task"] = True
        options["background"] = call.background
    return options
