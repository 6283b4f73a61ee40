"""Approvals of a crib: the service that lists and answers them, and deferred calls."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
from msgspec import Struct
from msgspec.structs import asdict

from ..core.call import complete_arguments
from ..core.permission import OPEN, Answer, Approval, ApprovalPending, ApprovalState, Question
from ..core.result import ToolResult
from ..core.saved_call import SavedCall
from ..core.session import SessionTable
from ..core.tool import Tool
from ..errors import ToolFailure
from ..policy.approval_options import ApprovalNotices
from ..policy.open_question import settlement_of
from ..policy.questions import refusal_by_answer
from ..policy.remembered_answers import remember
from ..store.approvals import ApprovalRows
from .calls import SavedCalls
from .views import Views

_logger = logging.getLogger(__name__)
LOOK_AGAIN: Final = 0.5
"""Seconds between two looks into the store for what other processes have asked or answered (seed 003)."""
_NEWS: Final = 1000
"""Approvals that one watcher may be behind."""
_SEEN: Final = 10_000
"""Approvals that a watcher knows to have seen."""


class ApprovalService:
    """Approvals of a store, for the person who decides. One for a crib.

    `principal` is who asks: others' approvals do not exist for him. None is the operator, who sees all.
    """

    def __init__(
        self,
        rows: ApprovalRows,
        notices: ApprovalNotices,
        redact: Callable[[Any], Any],
        find: Callable[[str], Tool | None],
    ) -> None:
        """`find` has the tools by which changed arguments are checked before they count as an answer."""
        self._rows = rows
        self._notices = notices
        self._redact = redact
        self._find = find

    async def pending(self, principal: str | None = None) -> list[Approval]:
        """Return the pending approvals, the oldest first."""
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
        settlement = settlement_of(answer, self._redact, hash=hash, principal=principal)
        settled = await self._rows.settle(id, settlement)
        self._notices.notify(settled)
        return settled

    async def result(self, id: str, principal: str | None = None) -> ToolResult | None:
        """Return the result of a call that ran after its caller had left; None while there is none.

        Raises `ToolFailure("not_found")`.
        """
        await self.get(id, principal)
        return await self._rows.result(id)

    async def watch(self, principal: str | None = None) -> AsyncGenerator[Approval]:
        """Yield what is pending now, then every approval when it is asked for or settled.

        Other processes are looked at twice a second: what one of them both asks and settles in between is not reported.
        """
        send, receive = anyio.create_memory_object_stream[Approval](_NEWS)
        stop = self._notices.watch(lambda approval: _offer(send.send_nowait, approval))
        seen: dict[str, ApprovalState] = {}
        announced = list[str]()
        try:
            while True:
                for approval in await self._changed(principal, seen, announced):
                    yield approval
                announced = list[str]()
                with anyio.move_on_after(LOOK_AGAIN):
                    announced.append((await receive.receive()).id)
        finally:
            stop()
            send.close()
            receive.close()

    async def _changed(
        self, principal: str | None, seen: dict[str, ApprovalState], announced: Iterable[str]
    ) -> Sequence[Approval]:
        """Return approvals that are pending, seen open or in `announced`, and differ from `seen`, which is updated."""
        pending = {approval.id: approval for approval in await self.pending(principal)}
        open_before = (id for id, state in seen.items() if state in OPEN)
        others = [await self._rows.get(id) for id in {*open_before, *announced} - pending.keys()]
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


def _offer(put: Callable[[Approval], None], approval: Approval) -> None:
    """Wake a watcher; one that is far behind finds in the store what it missed."""
    try:
        put(approval)
    except anyio.WouldBlock:
        return


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A question that stands: what the user is to be shown, and the id that his answer goes to."""

    approval: str
    tool: str
    """The real one, by its catalog name, whichever verb the model called it through."""
    arguments: str
    """All that will run, as JSON: secrets masked, what cannot be seen written as escapes."""
    diff: str
    rule: str
    """Rule by which the person is asked."""
    hash: str

    def to_json(self) -> dict[str, str]:
        """Return the fields, for frameworks that keep a run as JSON until it goes on."""
        return asdict(self)


async def defer_approval(question: Question) -> Answer:
    """An approver that lets every question stand, for programs that answer in another request or process.

    The call ends as `approval_pending`; `pending_approval` returns what to show, and `Session.resume` makes the call.
    """
    raise ApprovalPending


def pending_approval(result: ToolResult) -> PendingApproval | None:
    """Return the question that a call has left, or None where it has ended in another way."""
    details: Mapping[str, Any] = result.error.details if result.error is not None else {}
    if details.get("reason") != "pending":
        return None
    return PendingApproval(**{name: str(details[name]) for name in PendingApproval.__struct_fields__})


class DeferredCalls:
    """Makes the calls whose questions stand. One for a crib.

    The store decides who makes a call: `ApprovalRows.claim` succeeds once, in one process. Every other `resume` waits,
    looking twice a second, for the result that the first one stores.
    """

    def __init__(
        self,
        approvals: ApprovalService,
        rows: ApprovalRows,
        saved_calls: SavedCalls,
        sessions: SessionTable,
        views: Views,
        *,
        late: bool,
    ) -> None:
        """With `late` the crib itself makes the approved calls of callers that left: then only results are read."""
        self._service = approvals
        self._rows = rows
        self._saved_calls = saved_calls
        self._sessions = sessions
        self._views = views
        self._late = late

    async def resume(self, id: str, answer: Answer | None = None, *, principal: str | None = None) -> ToolResult:
        """Answer the question, unless it is answered, and return the result of its call; see `Session.resume`.

        `principal` limits it to the approvals of one principal. None is the operator.
        """
        try:
            approval = await self._service.get(id, principal)
            if answer is not None:
                approval = await self._answered(approval, answer)
            if approval.state == "denied":
                self._learn(approval, {})
                raise refusal_by_answer(approval)
            if approval.state not in ("approved", "used"):
                hint = "" if approval.state == "pending" else "make the call again where it is still wanted"
                message = f"{approval.tool} did not run: approval {id} is {approval.state}"
                raise ToolFailure("denied", message, hint=hint)
            return await self._made(approval)
        except ToolFailure as failure:
            return ToolResult.of_failure(failure)

    async def has_changed(self, id: str) -> bool:
        """Return whether its principal was asked about another definition of the tool, and never about this call."""
        now = await self._service.get(id)
        others = [one for one in await self._service.list(now.principal) if one.id != id and one.tool == now.tool]
        is_new = all(one.hash != now.hash for one in others)
        return is_new and any(one.definition != now.definition for one in others)

    async def _answered(self, approval: Approval, answer: Answer) -> Approval:
        """Write the answer down where the question is still open; a no counts as long as nothing ran."""
        if approval.state == "pending":
            try:
                return await self._service.decide(approval.id, answer)
            except ToolFailure as failure:
                if failure.code != "conflict":
                    raise
                approval = await self._service.get(approval.id)
        if approval.state == "approved" and answer.verdict in ("no", "comment", "never"):
            await self._rows.withdraw(approval.id, answer.comment)
            approval = await self._service.get(approval.id)
        return approval

    async def _made(self, approval: Approval) -> ToolResult:
        """Make the call, or wait until the crib itself or another process, whichever was first, has made it."""
        rows = self._rows
        while True:
            saved = None if self._late else await rows.claim(approval.id, here=True)
            if saved is not None:
                return await self._make(approval, saved)
            now = await self._service.get(approval.id)  # before its result: what has ended since has one
            result = await rows.result(approval.id)
            if result is not None:
                return result
            if not now.gone:
                raise ToolFailure("conflict", f"approval {now.id} is used by its call, which has not ended: it waits")
            if now.ran:
                message = f"{approval.tool} had begun when its process died; its effects are unknown"
                raise ToolFailure("outcome_unknown", message, hint="look before you call it again")
            await anyio.sleep(LOOK_AGAIN)

    async def _make(self, approval: Approval, saved: SavedCall) -> ToolResult:
        self._learn(approval, saved.arguments)
        result = ToolResult.failed("cancelled", f"{approval.tool} was cancelled while it ran")
        try:
            result = await self._saved_calls.make(saved, approval=approval.id)
        finally:
            with anyio.CancelScope(shield=True):
                await self._kept(approval, result)
        return result

    async def _kept(self, approval: Approval, result: ToolResult) -> None:
        """Keep the result for who resumes again; that it cannot be kept does not undo what the call has done."""
        try:
            await self._rows.finished(approval.id, result)
        except ToolFailure as failure:
            _logger.warning("the result of approval %s is not kept: %s", approval.id, failure)

    def _learn(self, settled: Approval, arguments: Mapping[str, Any]) -> None:
        """Keep what the answer says beyond its call, in the session that made it, where that still lives."""
        state = self._sessions.find(settled.principal, settled.session)
        tool = self._views.visible(state).catalog.tools.get(settled.tool) if state is not None else None
        if state is None or tool is None or not settled.verdict or tool.digest.hex() != settled.definition:
            return
        remember(state, tool, arguments, Answer(verdict=settled.verdict))
