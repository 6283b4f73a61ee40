"""The desk of approvals: who asks, who may look and answer, and what runs for callers who have left.

crib.approvals.pending()              what waits for an answer
crib.approvals.decide(id, Answer(…))  the first answer counts, from whichever process it comes
crib.approvals.watch()                every question and every answer, as they come
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any, Final, Protocol, Unpack

import anyio

from ..config import Settings
from ..core.approval import OPEN, Approval, ApprovalState
from ..core.arguments import complete_arguments
from ..core.call import Call
from ..core.permission import Answer
from ..core.result import ToolResult
from ..core.session import SessionState
from ..core.tool import Tool
from ..disclosure.base import Scene
from ..errors import ToolFailure
from ..jobs.job import Jobs
from ..policy.approval import Approvals, Ways, settlement_of
from ..policy.asking.notifications import Board
from ..policy.asking.questions import diff_of
from ..policy.decision import Policy
from ..results.redact import Redactor
from ..store.approvals import ApprovalRows
from ..store.store import Store
from ..system.tasks import Background
from .deferring import Deferred
from .desk import ORIGIN, text_on_disk
from .options import SessionOptions
from .resuming import resume
from .session import Session

__all__ = ["Approvable", "ApprovalDesk", "Approving"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_AGAIN: Final = 0.5
"""Seconds between two looks into the store for what other processes have asked or answered (seed 003)."""
_NEWS: Final = 1000
"""Approvals that one watcher may be behind."""
_SEEN: Final = 10_000
"""Approvals that a watcher knows to have seen."""
_FILE_BYTES: Final = 256 * 1024
"""Of a file that is read to show what a call would change in it."""


class ApprovalDesk:
    """What whoever decides has of the approvals of a store. One for a crib.

    `principal` is who asks: others' approvals do not exist for him. None is the operator, who sees all.
    """

    def __init__(
        self,
        rows: ApprovalRows,
        board: Board,
        redact: Callable[[Any], Any],
        find: Callable[[str], Tool | None],
    ) -> None:
        """`find` has the tools by which changed arguments are checked before they count as an answer."""
        self._rows = rows
        self._board = board
        self._redact = redact
        self._find = find

    async def pending(self, principal: str | None = None) -> list[Approval]:
        """Return what waits for an answer, the oldest first."""
        return (await self._rows.list(principal=principal, states=("pending",)))[::-1]

    async def list(
        self, principal: str | None = None, states: Sequence[ApprovalState] = (), limit: int = 200
    ) -> list[Approval]:
        """Return the newest `limit`, in any of these states; settled ones are kept for 30 days."""
        return await self._rows.list(principal=principal, states=states, limit=limit)

    async def get(self, id: str, principal: str | None = None) -> Approval:
        """Return the approval; raises `ToolFailure("not_found")`."""
        approval = await self._rows.get(id)
        if approval is None or principal not in (None, approval.principal):
            raise ToolFailure("not_found", f"there is no approval {id[:60]!r}")
        return approval

    async def decide(self, id: str, answer: Answer, *, principal: str | None = None, hash: str = "") -> Approval:
        """Answer the question, and return the approval; `hash` is that of what the decider was shown.

        Raises `ToolFailure`: `not_found`, `conflict` where it is settled already or is about something else,
        `invalid_arguments` for changed arguments that the tool does not take.
        """
        approval = await self.get(id, principal)
        if answer.arguments is not None:
            self._check(approval, answer)
        said = settlement_of(answer, self._redact, hash=hash, principal=principal)
        settled = await self._rows.settle(id, said)
        self._board.tell(settled)
        return settled

    async def result(self, id: str, principal: str | None = None) -> ToolResult | None:
        """Return what came of a call that ran after its caller had left; None while there is nothing.

        Raises `ToolFailure("not_found")`.
        """
        await self.get(id, principal)
        return await self._rows.result(id)

    async def watch(self, principal: str | None = None) -> AsyncGenerator[Approval]:
        """Yield what is pending now, then every approval when it is asked for or settled.

        Other processes are looked at twice a second: what one of them both asks and settles in between is no news.
        """
        send, receive = anyio.create_memory_object_stream[Approval](_NEWS)
        stop = self._board.watch(lambda approval: _offer(send.send_nowait, approval))
        seen: dict[str, ApprovalState] = {}
        told = list[str]()
        try:
            while True:
                for approval in await self._changed(principal, seen, told):
                    yield approval
                told = list[str]()
                with anyio.move_on_after(_LOOK_AGAIN):
                    told.append((await receive.receive()).id)
        finally:
            stop()
            send.close()
            receive.close()

    async def _changed(
        self, principal: str | None, seen: dict[str, ApprovalState], told: Iterable[str]
    ) -> Sequence[Approval]:
        """Return what is pending, was seen open or was `told` of, and is not as it was seen; `seen` takes note."""
        pending = {approval.id: approval for approval in await self.pending(principal)}
        open_before = (id for id, state in seen.items() if state in OPEN)
        others = [await self._rows.get(id) for id in {*open_before, *told} - pending.keys()]
        found = [one for one in others if one is not None and principal in (None, one.principal)]
        news = [one for one in (*found, *pending.values()) if seen.get(one.id) != one.state]
        seen.update((one.id, one.state) for one in news)
        for id in tuple(seen)[:-_SEEN]:
            del seen[id]
        return news

    def _check(self, approval: Approval, answer: Answer) -> None:
        """Raise `ToolFailure` for arguments that would be refused later; a tool that is not known here says nothing."""
        tool = self._find(approval.tool)
        if tool is None or tool.digest.hex() != approval.definition:
            return
        _, errors = complete_arguments(tool, dict(answer.arguments or {}))
        if errors:
            listed = "; ".join(str(error) for error in errors[:10])
            details = {"field_errors": [error.to_json() for error in errors]}
            raise ToolFailure("invalid_arguments", f"{tool.name} does not take that: {listed}", details=details)


class Approvable:
    """What has approvals: a crib."""

    _approving: Approving

    @property
    def approvals(self) -> ApprovalDesk:
        """Questions whether calls may run: who decides looks and answers here."""
        return self._approving.desk

    async def resume(self, approval: str, answer: Answer | None = None, *, principal: str | None = None) -> ToolResult:
        """Make the call whose question stands (`ask_later`), as its answer says; see `Session.resume`.

        `principal` is who asks for it: others' approvals do not exist for him. None is the operator.
        """
        return await self._approving.deferred.resume(approval, answer, principal)


class _Crib(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def jobs(self) -> Jobs: ...

    def living(self, principal: str, key: str) -> SessionState | None: ...

    def session(self, **options: Unpack[SessionOptions]) -> Session: ...

    def scene(self, state: SessionState, name: str = "", version: str = "") -> Scene: ...

    async def call(self, call: Call) -> ToolResult: ...


class Approving:
    """Puts asking together from the settings. One for a crib, from `prepare` to the end of its stack."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is opened before `prepare`."""
        self._settings = settings.approvals
        self._timeout = settings.approval_timeout
        self._board = Board()
        self._tasks = Background()
        self._desk: ApprovalDesk | None = None
        self._deferred: Deferred | None = None

    @property
    def deferred(self) -> Deferred:
        """What makes calls whose questions stand. Raises `RuntimeError` before the crib is open."""
        if self._deferred is None:
            raise RuntimeError("the crib is not open")
        return self._deferred

    @property
    def desk(self) -> ApprovalDesk:
        """The desk of a crib that is open. Raises `RuntimeError` before."""
        if self._desk is None:
            raise RuntimeError("the crib is not open")
        return self._desk

    def prepare(
        self,
        store: Store,
        policy: Policy,
        redactor: Redactor,
        find: Callable[[str], Tool | None],
        stack: AsyncExitStack,
    ) -> Approvals:
        """Return what asks; what it opens is closed with `stack`. `find` finds tools by their catalog names."""
        self._desk = ApprovalDesk(store.approvals, self._board, redactor.value, find)
        ways = Ways(
            settings=self._settings, timeout=self._timeout, board=self._board, redact=redactor.value, diff=_diff
        )
        if self._settings.webhook is not None:
            # Loaded now, for it brings the HTTP client: who has no webhook does not wait for that.
            hook = import_module(".webhook", __package__).WebhookChannel(self._settings.webhook)
            stack.push_async_callback(hook.aclose)

            def tell(settled: Approval) -> None:
                self._tasks.spawn(lambda: hook.tell(settled))

            ways = replace(ways, channels=(hook,), settled=tell)
        return Approvals(policy, store.approvals, ways)

    async def start(self, crib: _Crib, stack: AsyncExitStack) -> None:
        """Begin to tell channels how questions ended, and to run what is approved for callers who have left."""
        await self._tasks.start()
        stack.push_async_callback(self._tasks.stop)
        self._deferred = Deferred(crib, self.desk, late=self._settings.when_gone == "run")
        if self._settings.when_gone != "run":
            return
        late = _LateRuns(crib, self._board)
        await late.start()
        stack.push_async_callback(late.stop)


class _LateRuns:
    """Makes the calls that were approved after their callers had left, once each, as jobs of their principals."""

    def __init__(self, crib: _Crib, board: Board) -> None:
        self._crib = crib
        self._board = board
        self._tasks = Background()
        self._news = anyio.Event()
        self._told: set[str] = set()
        """What could not be had, and was logged: who has the key that it was sealed with runs the call."""
        self._unwatch: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Begin to look."""
        self._unwatch = self._board.watch(lambda approval: self._news.set())
        await self._tasks.start()
        self._tasks.spawn(self._look)

    async def stop(self) -> None:
        """Look no more. A call that was handed over goes on as a job."""
        self._unwatch()
        await self._tasks.stop()

    async def _look(self) -> None:
        rows = self._crib.store.approvals
        while True:
            self._news = anyio.Event()
            try:
                for id in await rows.waiting():
                    await self._run(id)
            except ToolFailure as failure:  # the store cannot be had now
                _LOG.warning("approved calls wait: %s", failure)
            with anyio.move_on_after(_LOOK_AGAIN):
                await self._news.wait()

    async def _run(self, id: str) -> None:
        """Make one call, if it is still to be made and nobody else has taken it."""
        rows = self._crib.store.approvals
        try:
            saved = await rows.claim(id)
        except ToolFailure as failure:
            if id not in self._told:
                _LOG.warning("approval %s is left to others: %s", id, failure)
            self._told.add(id)
            return
        if saved is None:
            return
        result = await resume(self._crib, saved, approval=id, background=True)
        job = str(result.meta.get("job", ""))
        if not job:
            await rows.finished(id, result)
            return
        await rows.started(id, job)
        self._tasks.spawn(lambda: self._collect(id, job, saved.session.principal))

    async def _collect(self, id: str, job: str, principal: str) -> None:
        """Keep the result of the job under the approval."""
        await self._crib.store.approvals.finished(id, await self._crib.jobs.result(job, principal))


def _offer(put: Callable[[Approval], None], approval: Approval) -> None:
    """Wake a watcher; one that is far behind finds in the store what it was not told."""
    try:
        put(approval)
    except anyio.WouldBlock:
        return


async def _diff(call: Call) -> str:
    """Return what a call would change in the files of its session."""
    workspace = call.session.files.workspace
    if workspace is None and call.origin != ORIGIN:
        return ""

    async def read(path: str) -> str | None:
        if workspace is None:
            return await text_on_disk(call.session.files.cwd / path, _FILE_BYTES)
        try:
            if await workspace.stat(path) is None:
                return None
            return (await workspace.read(path, limit=_FILE_BYTES)).decode()
        except ToolFailure as failure:
            raise ValueError(failure.message) from failure
        except UnicodeDecodeError:
            raise ValueError("it is no text") from None

    try:
        return await diff_of(call.target, call.arguments, read)
    except Exception:  # noqa: BLE001 - without a diff the arguments still say what will run
        _LOG.exception("no diff could be made for call %s", call.id)
        return ""
