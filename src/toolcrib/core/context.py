"""Context of a running tool: the caller, the session's settings, and services.

A `Context` lives as long as one call. Function tools receive it by annotating a parameter with `Context`; sources
receive it with every call.

Output on its way to the listeners and the client, with a crib's redactor:

    output(text) ──► RedactedStream.add   masks secrets; holds back an end that may be the beginning of one
                        └──► _tell   listener; then a progress message, or a log message
    end of the call ──► settle       sends what was held back
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors import ToolFailure
from .call_guards import Signal
from .elicitation import DISMISSED, Blank, Clarification, Elicitor, Form
from .from_thread import run_from_thread
from .intent import Intent
from .permission import Effect
from .result import ToolResult
from .sandbox import Sandbox
from .services.host import Host, ServedTools
from .services.records import Records
from .services.schedules import Schedules
from .services.shared_storage import Event, Schema, SharedStorage
from .taint import StoredTaint, Taint
from .workspace import Workspace

T = TypeVar("T")

_logger = logging.getLogger(__name__)
_MESSAGE: Final = 500
"""Characters of a piece of output that one progress message holds."""


class Peer(Protocol):
    """The client at the far end of a call, as far as a tool may use it. Messages are MCP's, params plain JSON."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities that the client declared: `sampling`, `elicitation`, `roots` …"""
        ...

    @property
    def takes_requests(self) -> bool:
        """Whether requests reach the client while its call runs, as up to revision 2025-11-25.

        Later ones have a call end with its questions, and come back with the answers.
        """
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification that belongs to this call; dropped silently once the client has left."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request to the client; raises `ToolFailure` when it cannot, will not, or has left."""
        ...


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of a call."""

    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


class Output(Struct, frozen=True, kw_only=True):
    """A piece of output before the end of the call: text, or a value of a stream."""

    call_id: str
    chunk: Any


Listener = Callable[[Progress | Output], None]
"""Callback for reports of a running call. Called on the event loop; its exceptions are logged."""


class RedactedStream(Protocol):
    """A stream of text on its way out, without secrets: the end of a piece may wait for the next one."""

    def add(self, piece: str) -> str:
        """Return the part of the output that can be sent now; may be empty."""
        ...

    def end(self) -> str:
        """Return the rest."""
        ...


class Cleaner(Protocol):
    """Redactor of the output of running calls.

    `results.redaction.output` implements it. Text in pieces needs `pieces`: a secret may reach over two of them.
    """

    def of(self, principal: str) -> Cleaner:
        """Return the redactor of what a principal is shown; it knows no value that is hidden after that."""
        ...

    def value(self, value: Any) -> Any:
        """Return text or JSON-like `value` without secrets."""
        ...

    def pieces(self) -> RedactedStream:
        """Begin a stream."""
        ...


class Sent(Struct):
    """The progress last sent to the client: it must grow from one notification to the next.

    MCP requires progress that grows; `Context.output` counts pieces until the tool reports a progress of its own.
    """

    progress: float = 0
    by_tool: bool = False
    """The tool counts its progress itself, so that its output must not."""
    pieces: RedactedStream | None = None
    """The stream of its output, from the first piece on."""


class CallHost(Host, Protocol):
    """Services of the crib for one call, further calls of its session included.

    The crib implements it; the protocol is here so that a tool and its tests need no crib.
    """

    async def call(self, context: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Make a call of the session that `context` is a call of, through every step of any other call."""
        ...

    def serve(
        self, context: Context, folder: Path, *, categories: Sequence[str], read_only: Sequence[str], mode: str
    ) -> AbstractAsyncContextManager[ServedTools | None]:
        """Serve built-in tools to a program in the sandbox until the context is left; None where that cannot be.

        They are those of some categories, of the `read_only` ones only tools that read, in a session of their own: the
        principal, rules and limits of the session that `context` is a call of, `folder` as its workspace, and `mode`.
        What would ask is denied.
        """
        ...


class Context(Struct, frozen=True, kw_only=True):
    """The surroundings of one call: who calls, in which session, and what the tool may use.

    A function tool gets it in a parameter that is annotated with `Context`. It is made for the call and must not be
    kept after it; what a tool keeps between calls belongs into `runtime` (of the session) or `records` (of the
    principal, in the store).

    `Execute` makes it right before the source is called. Its methods belong to the event loop of the crib; a function
    in a thread reads fields only, and polls `signal.aborted`. A context that was built by hand, as for a list of tools,
    has no `host`: `lent`, and all that needs it, raises `unavailable` there.

        async def add_note(text: str, ctx: Context) -> str:
            record = await ctx.records("notes").add({"text": text})
            return record.id
    """

    call_id: str
    session_key: str
    principal: str
    first_call: str = ""
    """The id of the first attempt of a call that a job makes again; `call_id` in that attempt."""
    instance: str = ""
    defaults: Mapping[str, Any] = {}
    """Context values of the session, for arguments that a tool declares `explicit`."""
    user: str = ""
    """User of the conversation; it carries no rights."""
    deadline: float = float("inf")
    """On the clock of `time.monotonic`."""
    peer: Peer | None = None
    progress_token: str | int | None = None
    """The client's token; None when it asked for no progress."""
    client_name: str = ""
    """Name and version of the client's program, for the record: `claude-code/2.1`."""
    meta: Mapping[str, Any] = {}
    """The client's `_meta` that a source hands on to its server, the trace context (`traceparent` …) among it."""
    resume: Mapping[str, Any] | None = None
    """MCP 2026-07-28: `inputResponses` and `requestState` of a call that was answered `input_required` before."""
    cwd: Path = Path()
    """Base folder of relative paths; see `path`."""
    workspace: Workspace | None = None
    """The files that the tools of this session may read and write; None where no folder was declared."""
    host: CallHost | None = None
    """Services of the crib; None in a context that was built by hand."""
    result_bytes: int = 16_000
    """UTF-8 bytes of text that a result may have before it is cut: a tool that has pages makes them fit."""
    permissions: Mapping[str, Effect] = {}
    """Permissions of single tools in the session's mode, by name or pattern.

    For display: policy has already decided.
    """
    runtime: MutableMapping[str, Any] = {}
    """The session's own, kept between its calls: put a shell or a connection here, it is closed with the session."""
    signal: Signal = field(default_factory=Signal)
    """Abort signal, for functions in threads."""
    listener: Listener | None = None
    elicitor: Elicitor | None = None
    stored_taint: StoredTaint | None = None
    """Marks what the call stores and what it reads as untrusted; None in a context that was built by hand."""
    intent: Intent | None = None
    """Of a call that changes nothing but the store: its changes record it. Another one's is on the disk already."""
    cleaner: Cleaner | None = None
    """Masks secrets in all output; None sends output unchanged."""
    sent: Sent = field(default_factory=Sent)
    """What the listeners have got so far: a copy of the context for another call needs one of its own."""

    @property
    def client(self) -> Peer | None:
        """The client at the far end; the seeds' word for `peer`."""
        return self.peer

    def path(self, path: str | Path) -> Path:
        """Return `path` as the session means it: from its working directory, unless it is absolute."""
        return self.cwd / path

    @property
    def lent(self) -> CallHost:
        """Services of the crib. Raises `ToolFailure("unavailable")` for a tool that runs outside a crib."""
        if self.host is None:
            raise ToolFailure("unavailable", "this tool keeps records or asks other machines, and runs in no Toolcrib")
        return self.host

    @property
    def sandbox(self) -> Sandbox | None:
        """Sandbox for commands of this session; None where commands are not allowed."""
        if self.host is None:
            return None
        return self.host.sandbox(self.principal, self.session_key, self.stored_taint)

    def records(self, collection: str) -> Records:
        """Return the records of the caller's principal in a collection; other principals cannot see them."""
        return self.lent.records(self.principal, collection, self.stored_taint, self.intent)

    def storage(self, schema: Schema, *, source: str = "") -> SharedStorage:
        """Return the tables of a guest, with the rows of the projects that the caller's principal is a member of.

        `source` names the origin of content of strangers, such as the service that sent it: all that is written is
        marked with it, and taints the sessions that read it.
        """
        taint = StoredTaint(session=Taint(), is_approved=False, read=source) if source else self.stored_taint
        return self.lent.storage(self.principal, schema, taint, self.intent)

    async def events(self, *, project_id: str = "", types: Sequence[str] = (), limit: int = 50) -> list[Event]:
        """Return the newest events of guests that the caller's principal may see, newest first."""
        found = await self.lent.events.recent(self.principal, project_id=project_id, types=types, limit=limit)
        if self.stored_taint is not None:
            self.stored_taint.note(event.tainted for event in found)
        return found

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Make a call of the same session: decided, asked about and recorded as any other one."""
        return await self.lent.call(self, name, arguments)

    def set_default(self, name: str, value: Any, *, categories: Sequence[str] = ("",)) -> None:
        """Set a context value of the session from its next call on; None removes it.

        It fills the argument `name` of every tool that declares it. With `categories` it is for their tools only:
        it fills the argument where a tool requires it, and takes the place of the session's own value.
        """
        self.lent.set_default(self.principal, self.session_key, name, value, categories)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the caller's principal; other principals cannot see them."""
        return self.lent.schedules(self.principal, self.session_key, self.stored_taint)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def from_thread(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Return the result of an async function to a tool that is a plain one.

            answer = context.from_thread(context.clarify, "Which one?", ("a", "b"))

        Raises what `work` raises, `ToolFailure("cancelled")` once the call has ended, and `UsageError` in an `async`
        function, which awaits instead.
        """
        return run_from_thread(work, args, self.signal)

    async def report(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Report progress to all listeners: the library's callback, and a client that asked for progress."""
        self.sent.by_tool = True
        message = self._clean(message)
        self._hear(Progress(call_id=self.call_id, progress=progress, total=total, message=message))
        await self._notify_progress(progress, total, message)

    async def output(self, chunk: Any) -> None:
        """Send a piece of output to all listeners at once.

        The library's callback gets it whole. A client that asked for progress gets the first 500 characters of a text
        as a progress message, or, where the tool reports its progress itself, a log message. Secrets are masked: the
        end of a piece that may be the beginning of one waits for the next piece, or for the end of the call.
        """
        if self.cleaner is None:
            return await self._tell(chunk)
        if not isinstance(chunk, str):
            await self.settle()
            return await self._tell(self._clean(chunk))
        if self.sent.pieces is None:
            self.sent.pieces = self.cleaner.of(self.principal).pieces()
        if clean := self.sent.pieces.add(chunk):
            await self._tell(clean)

    @property
    def is_waiting(self) -> bool:
        """Whether some output is still held back; see `settle`."""
        return self.sent.pieces is not None

    async def settle(self) -> None:
        """Send the output that was held back. The runner of the call does this when the call ends.

        Also before a chunk that is not text, which would pass the text otherwise.
        """
        if self.sent.pieces is not None and (rest := self.sent.pieces.end()):
            await self._tell(rest)

    async def _tell(self, chunk: Any) -> None:
        self._hear(Output(call_id=self.call_id, chunk=chunk))
        if self.peer is None:
            return
        text = chunk[:_MESSAGE] if isinstance(chunk, str) else ""
        if self.progress_token is not None and not self.sent.by_tool:
            await self._notify_progress(self.sent.progress + 1, None, text)
        elif text:
            await self.log("info", text)

    async def clarify(self, question: str, options: tuple[str, ...] = (), *, allow_custom: bool = True) -> str:
        """Ask the user, and return the answer; a neutral sentence when the question was dismissed.

        The session's elicitor is asked first, else the client's user where the client supports it. Waits as long as
        the call may run. Raises `ToolFailure("unavailable")` where neither can be asked.
        """
        asked = Clarification(
            call_id=self.call_id, question=self._clean(question), options=tuple(options), allow_custom=allow_custom
        )
        if self.elicitor is not None:
            answer = await self.elicitor(asked)
        elif self.peer is not None and "elicitation" in self.peer.capabilities:
            form = {"message": asked.question, "requestedSchema": asked.schema()}
            answer = asked.answer_of(await self.peer.request("elicitation/create", form))
        else:
            raise _no_user()
        return answer if answer is not None and asked.takes(answer) else DISMISSED

    async def fill(self, message: str, blanks: tuple[Blank, ...]) -> dict[str, Any] | None:
        """Have the user answer several related questions; return the answers by key.

        None when the form was dismissed, or a required answer is missing. A client shows one form; the session's
        elicitor gets one question after the other. Raises `ToolFailure("unavailable")` as `clarify` does.
        """
        clean = tuple(
            replace(blank, question=self._clean(blank.question), options=tuple(map(self._clean, blank.options)))
            for blank in blanks
        )
        form = Form(call_id=self.call_id, message=self._clean(message), blanks=clean)
        if self.elicitor is not None:
            return await form.put_to(self.elicitor)
        if self.peer is not None and "elicitation" in self.peer.capabilities:
            params = {"message": form.message, "requestedSchema": form.schema()}
            return form.answers_of(await self.peer.request("elicitation/create", params))
        raise _no_user()

    async def log(self, level: str, data: Any, logger: str = "") -> None:
        """Send a log message to the client; `level` is one of MCP's (debug, info, notice, warning, error …)."""
        if self.peer is None:
            return
        params: dict[str, Any] = {"level": level, "data": self._clean(data)}
        if logger:
            params["logger"] = logger
        await self.peer.notify("notifications/message", params)

    def _clean(self, value: Any) -> Any:
        return value if self.cleaner is None or not value else self.cleaner.of(self.principal).value(value)

    def _hear(self, update: Progress | Output) -> None:
        if self.listener is None:
            return
        try:
            self.listener(update)
        except Exception:  # a failing listener must not end the call
            _logger.exception("a listener failed on call %s", self.call_id)

    async def _notify_progress(self, progress: float, total: float | None, message: str) -> None:
        if self.peer is None or self.progress_token is None:
            return
        self.sent.progress = max(self.sent.progress, progress)
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        await self.peer.notify("notifications/progress", params)


def _no_user() -> ToolFailure:
    return ToolFailure(
        "unavailable",
        "no user to ask: this session has no elicitor, and its client does not support elicitation",
        hint="continue with what you know, and state your assumptions",
    )
