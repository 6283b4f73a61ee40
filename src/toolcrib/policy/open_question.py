"""One question while its call waits: asked through all channels at once, and settled by the first answer.

  the session's approver · channels (webhook) · the store itself, from any process

The store is the judge: an answer counts once it is written there.

    settled()
      ├─ _store_question  the question is in the store, or an older one about the same call is taken over
      └─ _ask             two tasks side by side, until the first ends the question
           ├─ _ask_all   approver and channels; each writes its answer by `_settle`
           └─ _watch     reads the store, and asks the policy again, when it is woken and every `_POLL_SECONDS` seconds

    allowed_by()       turns the approval into the rule of the grant, or raises the refusal

An answer from another process cannot wake the call; the look every half second finds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, MutableMapping
from inspect import isawaitable
from typing import Any, Final, Literal, get_args

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..core.call import Call
from ..core.context import Progress
from ..core.permission import (
    HELD,
    OPEN,
    Answer,
    AnswersLater,
    Approval,
    ApprovalPending,
    Approver,
    NoApprover,
    Question,
    Settlement,
    Verdict,
)
from ..core.saved_call import SavedCall
from ..errors import ToolFailure
from .approval_options import ApprovalOptions, ApprovalStore, Channel, reaches
from .decision import Policy
from .questions import (
    approved_by,
    refusal_after_error,
    refusal_by_answer,
    refusal_by_rule,
    refusal_while_held,
    refusal_while_pending,
    refusal_without_answer,
    refusal_without_approver,
    shown_arguments,
)
from .remembered_answers import remember
from .shell.command_tools import CallArguments

_logger = logging.getLogger(__name__)
_POLL_SECONDS: Final = 0.5
"""Seconds between two checks of decisions made in other processes (seed 003)."""
_PROGRESS_SECONDS: Final = 5.0
"""Seconds between two progress notices of a waiting call: they restart the timeout of many clients."""
_CLIENT_TIMEOUT_SHARE: Final = 0.8
"""Part of a client's own timeout within which its call is answered in any case."""
_MAX_COMMENT_LENGTH: Final = 2000
"""Characters of a comment that are kept."""
_AfterFailure = Literal["settle", "hold", "keep"]
"""After a failure: the question is over · the same call, made again, uses the answer · its caller comes back for it."""
_VERDICTS: Final = get_args(Verdict)
_KNOWN_VERDICTS: Final = f"verdicts are {', '.join(_VERDICTS)}"
_APPROVING_VERDICTS: Final = ("yes", "once", "always", "turn", "idle", "all", "edit")


class OpenQuestion(Struct, eq=False, kw_only=True):
    """One question while it is open in this process. Used once, by the call that waits for it.

    `failure` and `after_failure` are set by the task that asks. `_watch` alone ends the question by them, after a look
    into the store: a failure cannot overtake an answer that is written there already.
    """

    policy: Policy
    """It is asked again whenever rules or answers to other calls may decide."""
    store: ApprovalStore
    options: ApprovalOptions
    turns: MutableMapping[tuple[str, str], anyio.Lock]
    """Locks of the sessions whose approvers are asked: each gets one question at a time."""
    call: Call
    question: Question
    read: CallArguments | None
    """Arguments found in the files that the command runs: a new rule is matched against the question as asked."""
    rule: str = ""
    """The rule that allowed the call without an answer."""
    failure: ToolFailure | None = None
    """Reason why the question cannot be answered any more, in this process at least."""
    after_failure: _AfterFailure = "settle"
    is_answered: bool = False
    """The session's own approver has answered."""
    was_announced: bool = False
    """It is the question of a held call."""
    answers_elsewhere: bool = False
    """A channel has announced that the answer comes through the store."""
    approver_defers: bool = False
    """The approver leaves the answer to others, who have its own time for it."""
    is_remembered: bool = False
    """The effect of the answer on later calls was applied; see `_remember_answer`."""

    async def settled(self) -> Approval:
        """Store the question, ask, and return the approval once it is settled. Raises `ToolFailure` where it is not."""
        stored = await self._store_question()
        if stored.state == "pending":
            return await self._ask()
        self._remember_answer(stored)
        return stored

    async def allowed_by(self, settled: Approval) -> str:
        """Return the answer or the rule that allows the call; raise the refusal otherwise."""
        call, decision, options = self.call, self.question.decision, self.options
        if settled.state == "denied" and settled.verdict:
            if call.session.audience.is_client and options.holds(call) and not self.is_answered:
                # A model that tries again would have it wait as long for the next no.
                await self.store.hold(settled.id, ("denied",))
            raise refusal_by_answer(settled, call.name)
        if settled.state != "approved":
            raise self.failure or refusal_without_answer(call, decision, options.settings.expires)
        now = self.policy.decide_call(call, self.read)
        if now.effect == "deny":  # a rule of the last moment, which `_watch` had not seen when the answer came
            failure = refusal_by_rule(call, now.rule)
            await self.store.withdraw(settled.id, failure.message)
            raise failure
        return self.rule or approved_by(settled, decision)

    async def leave(self, *, keep: bool = False) -> None:
        """Drop the question of a caller who leaves, or keep it for a late answer.

        A client that can be held may only have run out of time, and calls again.

        Called shielded when the call is cancelled.
        """
        id, session, options = self.question.approval, self.call.session, self.options
        keep = keep or options.settings.when_gone == "run"
        try:
            is_alone = session.audience.is_client and not reaches(session.approvals.approver)
            if not keep and is_alone and options.holds(self.call):
                await self.store.hold(id, OPEN)
                return
            left = await self.store.leave(id, keep=keep)
        except ToolFailure as failure:
            _logger.warning("approval %s could not be taken back: %s", id, failure)
        else:
            if keep:
                options.outlives(id)
            if left is not None:
                options.notices.notify(left)
                if left.state == "cancelled":
                    options.settled(left)

    async def _store_question(self) -> Approval:
        """Store the question; the result may be an older one about the same call."""
        asked, tool, now = self.question, self.call.target, self.store.now()
        stored = Approval(
            id=asked.approval,
            call_id=asked.call_id,
            principal=asked.principal,
            session=self.call.session.key,
            tool=tool.name,
            kind=tool.kind,
            source=tool.source,
            definition=tool.digest.hex(),
            hash=asked.hash,
            arguments=asked.shown,
            rule=self.question.decision.rule,
            folder=asked.folder,
            diff=asked.diff,
            created=now,
            expires=asked.expires or now,
        )
        with anyio.CancelScope(shield=True):  # an approval taken over from a dead process would lose its owner
            stored = await self.store.put(stored, SavedCall.of(self.call), limit=self.options.settings.pending)
        if stored.id != asked.approval:
            self.question = replace(asked, approval=stored.id)
        self.was_announced = stored.job == HELD
        if stored.state == "pending":
            self.options.notices.notify(stored)
        return stored

    async def _ask(self) -> Approval:
        """Ask in every way, and return the approval once it is settled, by any of them."""
        found: Approval | ToolFailure = refusal_after_error(self.call, self.question.decision)
        async with anyio.create_task_group() as group:
            group.start_soon(self._ask_all)
            try:  # the store is the judge: an answer from anywhere counts once it is written there
                found = await self._watch()
            except ToolFailure as failure:  # raised here it would come out as a group of one
                found = failure
            group.cancel_scope.cancel()
        if isinstance(found, ToolFailure):
            raise found
        self.options.settled(found)
        return found

    async def _watch(self) -> Approval:
        """Return the approval when it is settled: here, by another process, by a rule, or by time."""
        notices, id = self.options.notices, self.question.approval
        while True:
            approval = await self.store.get(id)
            if approval is None:
                raise refusal_after_error(self.call, self.question.decision)
            if approval.state != "pending":
                self._remember_answer(approval)
                return approval
            if not await self._settle_by_rule():
                await notices.wait(id, _POLL_SECONDS)

    async def _settle_by_rule(self) -> bool:
        """Settle what a rule decides meanwhile, or what cannot be answered here; return whether that was so."""
        if self.failure is not None:
            await self._end_by_failure(self.failure)
            return True
        now = self.policy.decide_call(self.call, self.read)  # a new rule may decide, or an answer to another call
        if now.effect == "allow":
            self.rule = now.rule
            await self._settle(Settlement(state="approved", by=now.rule))
        elif now.effect == "deny":
            self.failure = refusal_by_rule(self.call, now.rule)
            await self._settle(Settlement(state="denied", by=now.rule))
        return now.effect != "ask"

    async def _end_by_failure(self, failure: ToolFailure) -> None:
        """Settle the question by a failure; raise that where the question outlives its call."""
        if self.after_failure == "keep":
            await self.leave(keep=True)
            raise failure
        if self.after_failure == "hold":
            if await self.store.hold(self.question.approval):
                self.options.outlives(self.question.approval)
                raise failure
            return
        state = "expired" if failure.details.get("reason") == "unanswered" else "cancelled"
        await self._settle(Settlement(state=state, comment=failure.message))

    async def _ask_all(self) -> None:
        """Ask through all channels at once; when all of them fail, wait for the store or give up.

        A call that can be held, and whose approver reaches no one, is announced at once: its client would give up long
        before a person answers.
        """
        options, session = self.options, self.call.session
        approver = session.approvals.approver
        began = anyio.current_time()
        if options.holds(self.call) and not reaches(approver):
            await self._wait_or_hold(() if self.was_announced else options.channels)
            return
        async with anyio.create_task_group() as group:
            if approver is not None and reaches(approver):
                group.start_soon(self._ask_approver, approver)
            for channel in options.channels:
                group.start_soon(self._ask_channel, channel)
        if self.failure is not None:
            return
        if options.holds(self.call) and not self.approver_defers:  # its client turned out not to reach its user
            await self._wait_or_hold(())
        elif self.answers_elsewhere or options.waits(session):
            await anyio.sleep(max(0.0, began + options.timeout - anyio.current_time()))
            self._set_failure(refusal_without_answer(self.call, self.question.decision, options.timeout))
        else:
            self._set_failure(refusal_without_approver(self.call, self.question.decision))

    async def _wait_or_hold(self, channels: Iterable[Channel]) -> None:
        """Announce the question, wait for an answer from elsewhere, and then let the call be held.

        The wait takes at most 80 % of the time that the caller allows, so that it gets an answer rather than a timeout.
        """
        options, call, id = self.options, self.call, self.question.approval
        allowed = call.options.timeout
        seconds = options.wait if allowed is None else min(options.wait, allowed * _CLIENT_TIMEOUT_SHARE)
        if not self.was_announced and (approval := await self.store.get(id)) is not None:
            options.notify(approval)
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                for channel in channels:
                    group.start_soon(self._ask_channel, channel)
                await _report_waiting(call, f"waits for approval: toolcrib approvals yes {id}")
        self._set_failure(refusal_while_held(self.question, options.settings.link.replace("{id}", id)), "hold")

    async def _ask_approver(self, approver: Approver) -> None:
        """Show the question to the session's own approver, when it is its turn.

        One question of a session at a time: the lock makes simultaneous calls queue, and each looks first whether an
        answer to an earlier one has covered it.
        """
        session = self.call.session
        turn = self.turns.setdefault((session.principal, session.key), anyio.Lock())
        try:
            async with turn:
                if not await self._is_open():  # settled while others of the session were shown
                    return
                with anyio.fail_after(self.options.timeout):
                    answer = await _call_approver(approver, self.question)
                self.is_answered = True
                await self._record_answer(answer)
        except TimeoutError:
            self._set_failure(refusal_without_answer(self.call, self.question.decision, self.options.timeout))
        except AnswersLater:
            self.answers_elsewhere = self.approver_defers = True
        except ApprovalPending:
            self._set_failure(refusal_while_pending(self.question), "keep")
        except NoApprover:
            return
        except ToolFailure as failure:
            self._set_failure(failure)
        except Exception:  # any exception is a refusal
            _logger.exception("the approver of session %s broke", session.key)
            self._set_failure(refusal_after_error(self.call, self.question.decision))

    async def _ask_channel(self, channel: Channel) -> None:
        """Ask a person outside. A broken channel is a refusal, unless another one can still answer."""
        try:
            answer = await channel(self.question)
            if answer is None:
                self.answers_elsewhere = True
            else:
                await self._record_answer(answer)
        except Exception as error:  # any exception is a refusal, or leaves the answer to the other channels
            expected = isinstance(error, ToolFailure)
            _logger.error("a channel could not ask about call %s: %s", self.call.id, error, exc_info=not expected)
            session = self.call.session
            if not (reaches(session.approvals.approver) or self.answers_elsewhere or self.options.waits(session)):
                self._set_failure(refusal_after_error(self.call, self.question.decision))

    async def _is_open(self) -> bool:
        """Whether the question still needs an answer: an earlier one may have covered it."""
        approval = await self.store.get(self.question.approval)
        return approval is not None and approval.state == "pending" and not await self._settle_by_rule()

    async def _record_answer(self, answer: Answer) -> None:
        """Record an answer, and its effect on later calls."""
        settled = await self._settle(settlement_of(answer, self.options.redact_for(self.question.principal)))
        if settled is not None:
            self._remember_answer(settled)

    async def _settle(self, settlement: Settlement) -> Approval | None:
        """Write down how it ends; None where another answer was first and therefore counts.

        The store refuses a second settlement as `conflict`, which is not an error here: the other answer counts.
        """
        try:
            settled = await self.store.settle(self.question.approval, settlement)
        except ToolFailure as failure:
            if failure.code != "conflict":
                raise
            return None
        self.options.notices.notify(settled)
        return settled

    def _remember_answer(self, settled: Approval) -> None:
        """Apply the part of an answer that reaches beyond its call, once, and to the conversation it was asked for.

        Runs for an answer from anywhere, also one that another process wrote; not for a conversation that only shares
        the question.
        """
        if self.is_remembered or not settled.verdict or settled.session != self.call.session.key:
            return
        self.is_remembered = True
        answer = Answer(verdict=settled.verdict)
        if remember(self.call.session, self.call.target, self.call.arguments, answer):
            self.options.notices.wake_all()

    def _set_failure(self, failure: ToolFailure, after_failure: _AfterFailure = "settle") -> None:
        """Take note of the reason why no answer comes; the first one counts."""
        if self.failure is None:
            self.failure, self.after_failure = failure, after_failure
        self.options.notices.wake_all()


async def _call_approver(approver: Approver, question: Question) -> Answer:
    """Return the answer of an approver, which may be a plain function. Raises `TypeError` for another value."""
    answer: Any = approver(question)
    if isawaitable(answer):
        answer = await answer
    if not isinstance(answer, Answer):
        wanted = 'an `Answer`, such as Answer(verdict="yes")'
        raise TypeError(f"an approver returns {wanted}, and this one returned {type(answer).__name__}")
    if answer.verdict not in _VERDICTS:
        raise TypeError(f"this approver returned the verdict {answer.verdict!r}; {_KNOWN_VERDICTS}")
    return answer


def settlement_of(
    answer: Answer, redact: Callable[[Any], Any], *, hash: str = "", principal: str | None = None
) -> Settlement:
    """Return the settlement of a pending approval by `answer`; `redact` masks secrets in all but the arguments to run.

    Raises `ToolFailure("invalid_arguments")` for an `edit` without arguments, and for an unknown verdict.
    """
    if answer.verdict not in _VERDICTS:
        raise ToolFailure("invalid_arguments", f"unknown verdict {answer.verdict!r}; {_KNOWN_VERDICTS}")
    if (answer.verdict == "edit") != (answer.arguments is not None):
        raise ToolFailure("invalid_arguments", "arguments go with the verdict edit, and edit needs them")
    return Settlement(
        state="approved" if answer.verdict in _APPROVING_VERDICTS else "denied",
        verdict=answer.verdict,
        by=str(redact(answer.by)),
        comment=str(redact(answer.comment))[:_MAX_COMMENT_LENGTH],
        arguments=answer.arguments,
        shown="" if answer.arguments is None else shown_arguments(redact(answer.arguments)),
        hash=hash,
        principal=principal,
    )


async def _report_waiting(call: Call, message: str) -> None:
    """Send notices of progress, until cancelled; they leave room below what the tool itself will report."""
    client, number = call.client, 0
    while True:
        number += 1
        progress = number / 1000
        try:
            if client.listener is not None:
                client.listener(Progress(call_id=call.id, progress=progress, message=message))
            if client.peer is not None and client.progress_token is not None:
                notice = {"progressToken": client.progress_token, "progress": progress, "message": message}
                await client.peer.notify("notifications/progress", notice)
        except Exception:  # a listener must not end the call that it observes
            _logger.exception("progress of call %s could not be reported", call.id)
        await anyio.sleep(_PROGRESS_SECONDS)
