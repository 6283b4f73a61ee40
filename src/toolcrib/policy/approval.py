"""Approval of calls by people. A missing approver, a late answer and an exception all count as a refusal.

  store the question ──► ask through all channels at once ──► record the first answer ──► use it
  the session's approver · channels (webhook) · the store itself, from any process

An approver gets a copy of the arguments that will run, and a call whose arguments changed meanwhile is refused. One
session gets one question at a time; the store lists all open ones.
"""

from __future__ import annotations

import copy
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any, Final, get_args

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from ..core.call import Call
from ..core.context import Progress
from ..core.json import encodable
from ..core.permission import (
    HELD,
    OPEN,
    Answer,
    AnswersLater,
    Approval,
    ApprovalPending,
    Approver,
    Decision,
    NoApprover,
    Question,
    Settlement,
    Verdict,
)
from ..core.saved_call import SavedCall
from ..core.session import SessionState
from ..errors import ToolFailure
from .approval_options import ApprovalOptions, ApprovalStore, Channel
from .decision import Policy
from .grant import arguments_digest, mint
from .questions import (
    binding_of,
    broken,
    denied_by_rule,
    folder_of,
    held,
    no_approver,
    refused,
    shown_arguments,
    shown_text,
    still_pending,
    unanswered,
)
from .remembered_answers import remember
from .shell.command_tools import CallArguments

__all__ = ["ApprovalOptions", "ApprovalStore", "Approvals", "Revise", "settlement_of"]

_logger = logging.getLogger(__name__)
_LOOK_AGAIN: Final = 0.5
"""Seconds between two checks of decisions made in other processes (seed 003)."""
_PROGRESS: Final = 5.0
"""Seconds between two progress notices of a waiting call: they restart the timeout of many clients."""
_SHARE: Final = 0.8
"""Part of a client's own timeout within which its call is answered in any case."""
_COMMENT: Final = 2000
"""Characters of a comment that are kept."""
_VERDICTS: Final = get_args(Verdict)
_KNOWN_VERDICTS: Final = f"verdicts are {', '.join(_VERDICTS)}"
_YES: Final = ("yes", "once", "always", "turn", "idle", "all", "edit")

Revise = Callable[[Call], Awaitable[Call]]
"""Validates the arguments of a call and decides on it anew. Raises `ToolFailure`."""


class _Queue(Struct):
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: int = 0


class _Case(Struct, eq=False):
    """One question while it is open in this process."""

    call: Call
    decision: Decision
    question: Question
    read: CallArguments | None = None
    """Arguments found in the files that the command runs: a new rule is matched against the question as asked."""
    rule: str = ""
    """The rule that allowed the call without an answer."""
    failure: ToolFailure | None = None
    """Reason why the question cannot be answered any more."""
    is_held: bool = False
    """The caller leaves now; the same call, made again, uses the answer."""
    is_answered: bool = False
    """The session's own approver has answered."""
    announced: bool = False
    """The question was announced before: it is that of a held call."""
    elsewhere: bool = False
    """A channel has announced that the answer comes through the store."""
    is_patient: bool = False
    """The approver leaves the answer to others, who have its own time for it."""
    stands: bool = False
    """The caller leaves now, and comes back with the answer."""
    learned: bool = False


class Approvals:
    """Asks about calls. One for a crib, used from one event loop."""

    def __init__(self, policy: Policy, store: ApprovalStore, options: ApprovalOptions | None = None) -> None:
        """`policy` is asked again when a question's turn comes; `store` is where everything is written down first."""
        self._policy = policy
        self._store = store
        self._options = options or ApprovalOptions()
        self._queues: dict[tuple[str, str], _Queue] = {}

    async def ask(self, call: Call, revise: Revise) -> Call:
        """Return `call` with its grant, and with the arguments of the answer, if it has some.

        An approval that comes with the call is used instead of asking. Raises `ToolFailure("denied")`, naming the
        refuser and the way to allow it.
        """
        decision = call.decision or Decision(effect="ask", rule="no decision was made")
        if call.approval:
            return await self._redeemed(call, decision, revise)
        if not self._can_ask(call.session):
            raise no_approver(call, decision)
        before = arguments_digest(call.arguments)  # making the question waits for files
        question = await self._question(call, decision)
        case = _Case(call, decision, question, await self._policy.read(call))
        try:
            settled = await self._stored(case)
            if settled.state == "pending":
                settled = await self._answered(case)
            else:
                self._learn(case, settled)
            if arguments_digest(call.arguments) != before:
                changed = f"the arguments of {call.name} changed while it waited for approval"
                await self._store.withdraw(settled.id, changed)
                raise ToolFailure("denied", changed)
            return await self._used(case, settled, revise)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._left(case)
            raise

    async def diff(self, call: Call) -> str:
        """Return the file changes of `call`, as a unified diff; empty for a call that edits none."""
        return await self._options.diff(call)

    def _can_ask(self, session: SessionState) -> bool:
        return _reaches(session.approvals.approver) or bool(self._options.channels) or self._waits(session)

    def _waits(self, session: SessionState) -> bool:
        """Whether a call of this session waits for an answer through the store."""
        options = self._options
        return options.settings.wait or (session.audience.is_client and (options.is_shared or bool(options.channels)))

    def _holds(self, call: Call) -> bool:
        """Whether this call is held when no answer comes: its caller makes it again, which a job does not."""
        return self._waits(call.session) and call.options.job_seconds is None

    async def _question(self, call: Call, decision: Decision) -> Question:
        options, redact = self._options, self._options.redact_for(call.session.principal)
        return Question(
            call_id=call.id,
            tool=call.target,
            arguments=copy.deepcopy(call.arguments),
            decision=decision,
            principal=call.session.principal,
            folder=encodable(folder_of(call)),
            diff=shown_text(redact(await options.diff(call))),
            approval=f"approval_{secrets.token_hex(16)}",
            expires=self._store.now() + options.settings.expires,
            shown=shown_arguments(redact(call.display_arguments)),
            hash=binding_of(call),
        )

    async def _stored(self, case: _Case) -> Approval:
        """Store the question; the result may be an older one about the same call."""
        asked, tool, now = case.question, case.call.target, self._store.now()
        approval = Approval(
            id=asked.approval,
            call_id=asked.call_id,
            principal=asked.principal,
            session=case.call.session.key,
            tool=tool.name,
            kind=tool.kind,
            source=tool.source,
            definition=tool.digest.hex(),
            hash=asked.hash,
            arguments=asked.shown,
            rule=case.decision.rule,
            folder=asked.folder,
            diff=asked.diff,
            created=now,
            expires=asked.expires or now,
        )
        stored = approval
        with anyio.CancelScope(shield=True):  # an approval taken over from a dead process would lose its owner
            stored = await self._store.put(approval, SavedCall.of(case.call), limit=self._options.settings.pending)
        if stored.id != asked.approval:
            case.question = replace(asked, approval=stored.id)
        case.announced = stored.job == HELD
        if stored.state == "pending":
            self._options.notices.notify(stored)
        return stored

    async def _answered(self, case: _Case) -> Approval:
        """Ask every way, and return the approval once it is settled, by any of them."""
        found: Approval | ToolFailure = broken(case.call, case.decision)
        async with anyio.create_task_group() as group:
            group.start_soon(self._ask_all, case)
            try:  # the store is the judge: an answer from anywhere counts once it is written there
                found = await self._watch(case)
            except ToolFailure as failure:  # raised here it would come out as a group of one
                found = failure
            group.cancel_scope.cancel()
        if isinstance(found, ToolFailure):
            raise found
        self._options.settled(found)
        return found

    async def _watch(self, case: _Case) -> Approval:
        """Return the approval when it is settled: here, by another process, by a rule, or by time."""
        notices, id = self._options.notices, case.question.approval
        while True:
            approval = await self._store.get(id)
            if approval is None:
                raise broken(case.call, case.decision)
            if approval.state != "pending":
                self._learn(case, approval)
                return approval
            if not await self._ruled(case):
                await notices.wait(id, _LOOK_AGAIN)

    async def _ruled(self, case: _Case) -> bool:
        """Settle a case that a rule decides meanwhile, or that cannot be asked; return whether it was settled."""
        now = self._policy.decide_call(case.call, case.read)  # a new rule may decide, or an answer to another call
        if case.stands and case.failure is not None:
            await self._left(case, stands=True)
            raise case.failure
        if case.is_held and case.failure is not None:
            if await self._store.hold(case.question.approval):
                self._options.outlives(case.question.approval)
                raise case.failure
            return True
        if case.failure is not None:
            reason = str(case.failure.details.get("reason", ""))
            state = "expired" if reason == "unanswered" else "cancelled"
            await self._settle(case, Settlement(state=state, comment=case.failure.message))
        elif now.effect == "ask":
            return False
        elif now.effect == "allow":
            case.rule = now.rule
            await self._settle(case, Settlement(state="approved", by=now.rule))
        else:
            case.failure = denied_by_rule(case.call, now.rule)
            await self._settle(case, Settlement(state="denied", by=now.rule))
        return True

    async def _ask_all(self, case: _Case) -> None:
        """Ask through all channels at once; when all of them fail, wait for the store or give up."""
        options, session = self._options, case.call.session
        approver = session.approvals.approver
        began = anyio.current_time()
        if self._holds(case.call) and not _reaches(approver):
            await self._wait_or_hold(case, () if case.announced else options.channels)
            return
        async with anyio.create_task_group() as group:
            if approver is not None and _reaches(approver):
                group.start_soon(self._ask_approver, case, approver)
            for channel in options.channels:
                group.start_soon(self._ask_channel, case, channel)
        if case.failure is not None:
            return
        if self._holds(case.call) and not case.is_patient:  # its client turned out not to reach its user
            await self._wait_or_hold(case, ())
        elif case.elsewhere or self._waits(session):
            await anyio.sleep(max(0.0, began + options.timeout - anyio.current_time()))
            self._fail(case, unanswered(case.call, case.decision, options.timeout))
        else:
            self._fail(case, no_approver(case.call, case.decision))

    async def _wait_or_hold(self, case: _Case, channels: Iterable[Channel]) -> None:
        """Announce the question, wait for an answer from elsewhere, and then let the call be held."""
        options, call, id = self._options, case.call, case.question.approval
        allowed = call.options.timeout
        seconds = options.wait if allowed is None else min(options.wait, allowed * _SHARE)
        if not case.announced and (approval := await self._store.get(id)) is not None:
            options.notify(approval)
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as group:
                for channel in channels:
                    group.start_soon(self._ask_channel, case, channel)
                await _report_waiting(call, f"waits for approval: toolcrib approvals yes {id}")
        case.is_held = True
        self._fail(case, held(case.question, options.settings.link.replace("{id}", id)))

    async def _ask_approver(self, case: _Case, approver: Approver) -> None:
        """Show the question to the session's own approver, when it is its turn."""
        session = case.call.session
        key = (session.principal, session.key)
        queue = self._queues.setdefault(key, _Queue())
        queue.waiting += 1
        try:
            async with queue.lock:
                if not await self._is_open(case):  # settled while others of the session were shown
                    return
                with anyio.fail_after(self._options.timeout):
                    answer = await _answer_of(approver, case.question)
                case.is_answered = True
                await self._take(case, answer)
        except TimeoutError:
            self._fail(case, unanswered(case.call, case.decision, self._options.timeout))
        except AnswersLater:
            case.elsewhere = case.is_patient = True
        except ApprovalPending:
            case.stands = True
            self._fail(case, still_pending(case.question))
        except NoApprover:
            return
        except ToolFailure as failure:
            self._fail(case, failure)
        except Exception:  # any exception is a refusal
            _logger.exception("the approver of session %s broke", session.key)
            self._fail(case, broken(case.call, case.decision))
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                self._queues.pop(key, None)

    async def _ask_channel(self, case: _Case, channel: Channel) -> None:
        """Ask a person outside. A broken channel is a refusal, unless another one can still answer."""
        try:
            answer = await channel(case.question)
            if answer is None:
                case.elsewhere = True
            else:
                await self._take(case, answer)
        except Exception as error:  # any exception is a refusal, or leaves the answer to the other channels
            expected = isinstance(error, ToolFailure)
            _logger.error("a channel could not ask about call %s: %s", case.call.id, error, exc_info=not expected)
            session = case.call.session
            if not (_reaches(session.approvals.approver) or case.elsewhere or self._waits(session)):
                self._fail(case, broken(case.call, case.decision))

    async def _is_open(self, case: _Case) -> bool:
        """Whether the question still needs an answer: an earlier one may have covered it."""
        approval = await self._store.get(case.question.approval)
        return approval is not None and approval.state == "pending" and not await self._ruled(case)

    async def _take(self, case: _Case, answer: Answer) -> None:
        """Record an answer, and its effect on later calls."""
        settled = await self._settle(case, settlement_of(answer, self._options.redact_for(case.question.principal)))
        if settled is not None:
            self._learn(case, settled)

    async def _settle(self, case: _Case, settlement: Settlement) -> Approval | None:
        """Write down how it ends; None where another answer was first and therefore counts."""
        try:
            settled = await self._store.settle(case.question.approval, settlement)
        except ToolFailure as failure:
            if failure.code != "conflict":
                raise
            return None
        self._options.notices.notify(settled)
        return settled

    def _learn(self, case: _Case, settled: Approval) -> None:
        """Apply the part of an answer that reaches beyond its call, once, and to the conversation it was asked for."""
        if case.learned or not settled.verdict or settled.session != case.call.session.key:
            return
        case.learned = True
        answer = Answer(verdict=settled.verdict)
        if remember(case.call.session, case.call.target, case.call.arguments, answer):
            self._options.notices.wake_all()

    def _fail(self, case: _Case, failure: ToolFailure) -> None:
        if case.failure is None:
            case.failure = failure
        self._options.notices.wake_all()

    async def _used(self, case: _Case, settled: Approval, revise: Revise) -> Call:
        """Return the call with its grant if it was approved; raise the refusal otherwise."""
        call, decision = case.call, case.decision
        if settled.state == "denied" and settled.verdict:
            if call.session.audience.is_client and self._holds(call) and not case.is_answered:
                # A model that tries again would have it wait as long for the next no.
                await self._store.hold(settled.id, ("denied",))
            raise refused(settled, call.name)
        if settled.state != "approved":
            raise case.failure or unanswered(call, decision, self._options.settings.expires)
        rule = case.rule or _approved_by(settled, decision)
        return await self._granted(call, settled, rule, revise)

    async def _redeemed(self, call: Call, decision: Decision, revise: Revise) -> Call:
        """Return the call with its grant for the approval that it brought along."""
        approval = await self._store.get(call.approval)
        if approval is None or approval.principal != call.session.principal:
            raise ToolFailure("denied", "this approval is for another call, tool, folder or caller: nothing ran")
        return await self._granted(call, approval, _approved_by(approval, decision), revise)

    async def _granted(self, call: Call, approval: Approval, rule: str, revise: Revise) -> Call:
        hash = binding_of(call)
        edited = await self._store.edited(approval.id)
        if edited is not None:
            revised = await self._edited(call.evolve(arguments=edited, references=()), approval, revise)
            if arguments_digest(revised.arguments) == arguments_digest(call.arguments):
                hash = approval.hash  # a job saves the edited call, which is made again
            by, given = approval.by or "the approver", " ".join(approval.arguments.split())
            call = revised.evolve(edited=f"{by} approved this call with other arguments: {given}")
        await self._store.redeem(approval.id, call.id, hash)
        return call.evolve(approval=approval.id, grant=mint(call.id, call.target, call.arguments, rule))

    async def _edited(self, call: Call, approval: Approval, revise: Revise) -> Call:
        """Return the call with the arguments that the answer gave, which no rule denies."""
        try:
            return await revise(call)
        except ToolFailure as failure:
            await self._store.withdraw(approval.id, failure.message)
            by = approval.by or "the approver"
            message = f"{by} changed the arguments of {call.name}, and it cannot run with them: {failure.message}"
            raise ToolFailure("denied", message, hint=failure.hint, details=failure.details) from failure

    async def _left(self, case: _Case, *, stands: bool = False) -> None:
        """Drop the question of a caller who left, or keep it for a late answer.

        A client that can be held may only have run out of time, and calls again.
        """
        id, session = case.question.approval, case.call.session
        keeps = stands or self._options.settings.when_gone == "run"
        try:
            is_alone = session.audience.is_client and not _reaches(session.approvals.approver)
            if not keeps and is_alone and self._holds(case.call):
                await self._store.hold(id, OPEN)
                return
            left = await self._store.leave(id, keep=keeps)
        except ToolFailure as failure:
            _logger.warning("approval %s could not be taken back: %s", id, failure)
        else:
            if keeps:
                self._options.outlives(id)
            if left is not None:
                self._options.notices.notify(left)
                if left.state == "cancelled":
                    self._options.settled(left)


async def _answer_of(approver: Approver, question: Question) -> Answer:
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
        state="approved" if answer.verdict in _YES else "denied",
        verdict=answer.verdict,
        by=str(redact(answer.by)),
        comment=str(redact(answer.comment))[:_COMMENT],
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
        await anyio.sleep(_PROGRESS)


def _reaches(approver: Approver | None) -> bool:
    """Whether the approver can be reached now; one that cannot know raises `NoApprover` when it is asked."""
    reaches: Callable[[], bool] | None = getattr(approver, "reaches", None)
    return approver is not None and (reaches is None or reaches())


def _approved_by(approval: Approval, decision: Decision) -> str:
    return f"approved by {approval.by or 'the approver'} ({decision.rule})"
