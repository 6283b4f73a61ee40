"""Questions that outlive their call: for hosts that end the run of a model, ask the user, and go on with his answer.

    session = crib.session(approver=ask_later)
    result = await session.call("send_letter", {...})        # refused for now; `standing(result)` has the question
    ...                                                      # minutes later, in this process or another one
    result = await session.resume(question.approval, Answer(verdict="yes"))

The question is the stored approval, so whoever else may decide can answer it as well (`toolcrib approvals`). Its call
is made from the top and redeems it: once, however often it is resumed. No answer within `approvals.expires` is a no.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from ..core.approval import Approval
from ..core.permission import Answer, Question, QuestionStands
from ..core.result import ToolResult
from ..core.saved_call import SavedCall
from ..errors import ToolFailure
from ..policy.asking.blanket_approvals import remember
from ..policy.asking.questions import refused
from ..store.approvals import ApprovalRows
from .approving import ApprovalService
from .saved_calls import SavedCalls
from .sessions import SessionTable
from .views import Views

__all__ = ["DeferredCalls", "Standing", "ask_later", "standing"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_AGAIN: Final = 0.5
"""Seconds between two looks at a call that somebody else makes (seed 003)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A question that stands: what the user is to be shown, and the id that his answer goes to."""

    approval: str
    tool: str
    """The real one, by its catalog name, whichever verb the model called it through."""
    arguments: str
    """All that will run, as JSON: secrets masked, what cannot be seen written as escapes."""
    diff: str
    rule: str
    """Why he is asked."""
    hash: str

    def to_json(self) -> dict[str, str]:
        """Return the fields, for frameworks that keep a run as JSON until it goes on."""
        return {name: getattr(self, name) for name in self.__slots__}


async def ask_later(question: Question) -> Answer:
    """An approver that lets every question stand: the call ends, and is made by `Session.resume`."""
    raise QuestionStands


def standing(result: ToolResult) -> Standing | None:
    """Return the question that a call has left, or None where it has ended in another way."""
    details: Mapping[str, Any] = result.error.details if result.error is not None else {}
    if details.get("reason") != "standing":
        return None
    return Standing(**{name: str(details[name]) for name in Standing.__slots__})


class DeferredCalls:
    """Makes the calls whose questions stand. One for a crib."""

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
        self._desk = approvals
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
            approval = await self._desk.get(id, principal)
            if answer is not None:
                approval = await self._answered(approval, answer)
            if approval.state == "denied":
                self._learn(approval, {})
                raise refused(approval)
            if approval.state not in ("approved", "used"):
                hint = "" if approval.state == "pending" else "make the call again where it is still wanted"
                message = f"{approval.tool} did not run: approval {id} is {approval.state}"
                raise ToolFailure("denied", message, hint=hint)
            return await self._made(approval)
        except ToolFailure as failure:
            return ToolResult.of_failure(failure)

    async def _answered(self, approval: Approval, answer: Answer) -> Approval:
        """Write the answer down where the question is still open; a no counts as long as nothing ran."""
        if approval.state == "pending":
            try:
                return await self._desk.decide(approval.id, answer)
            except ToolFailure as failure:
                if failure.code != "conflict":
                    raise
                approval = await self._desk.get(approval.id)
        if approval.state == "approved" and answer.verdict in ("no", "comment", "never"):
            await self._rows.withdraw(approval.id, answer.comment)
            approval = await self._desk.get(approval.id)
        return approval

    async def _made(self, approval: Approval) -> ToolResult:
        """Make the call, or wait for whoever makes it: the crib itself, or another process that was first."""
        rows = self._rows
        while True:
            saved = None if self._late else await rows.claim(approval.id, here=True)
            if saved is not None:
                return await self._make(approval, saved)
            now = await self._desk.get(approval.id)  # before its result: what has ended since has one
            result = await rows.result(approval.id)
            if result is not None:
                return result
            if not now.gone:
                raise ToolFailure("conflict", f"approval {now.id} is used by its call, which has not ended: it waits")
            if now.ran:
                message = f"{approval.tool} had begun when its process died; nobody knows what it has done"
                raise ToolFailure("outcome_unknown", message, hint="look before you call it again")
            await anyio.sleep(_LOOK_AGAIN)

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
            _LOG.warning("the result of approval %s is not kept: %s", approval.id, failure)

    def _learn(self, settled: Approval, arguments: Mapping[str, Any]) -> None:
        """Keep what the answer says beyond its call, in the session that made it, where that still lives."""
        state = self._sessions.find(settled.principal, settled.session)
        tool = self._views.scene(state).catalog.tools.get(settled.tool) if state is not None else None
        if state is None or tool is None or not settled.verdict or tool.digest.hex() != settled.definition:
            return
        remember(state, tool, arguments, Answer(verdict=settled.verdict))
