"""Approval of calls by people. A missing approver, a late answer and an exception all count as a refusal.

  store the question ──► ask through all channels at once ──► record the first answer ──► use it
  └─────────────────────────── `open_question` ────────────────────────────────────┘

An approver gets a copy of the arguments that will run, and a call whose arguments changed meanwhile is refused. One
session gets one question at a time; the store lists all open ones.

Three ways through `Approvals.ask`:

    call.approval set      the answer was given before (a job, a held call, `Session.resume`): redeemed, nothing asked
    no one can answer      `denied`, with the ways to allow the call
    else                   `OpenQuestion`, which ends with the stored approval, and then the same redemption

`redeem` in the store is the only step that turns an answer into a grant, in one transaction and once for an approval.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import anyio

from ..core.call import Call
from ..core.json import encodable
from ..core.permission import Approval, Decision, Question
from ..errors import ToolFailure
from .approval_options import ApprovalOptions, ApprovalStore
from .decision import Policy
from .grant import arguments_digest, mint
from .open_question import OpenQuestion
from .questions import approved_by, binding_of, folder_of, refusal_without_approver, shown_arguments, shown_text

Revise = Callable[[Call], Awaitable[Call]]
"""Validates the arguments of a call and decides on it anew. Raises `ToolFailure`."""


class Approvals:
    """Asks about calls. One for a crib, used from one event loop.

    The locks of sessions are held weakly: one exists as long as a question of its session is open.
    """

    def __init__(self, policy: Policy, store: ApprovalStore, options: ApprovalOptions | None = None) -> None:
        """`policy` is asked again when a question's turn comes; `store` is where everything is written down first."""
        self._policy = policy
        self._store = store
        self._options = options or ApprovalOptions()
        self._turns = WeakValueDictionary[tuple[str, str], anyio.Lock]()

    async def ask(self, call: Call, revise: Revise) -> Call:
        """Return `call` with its grant, and with the arguments of the answer, if it has some.

        An approval that comes with the call is used instead of asking. Raises `ToolFailure("denied")`, naming the
        refuser and the way to allow it.
        """
        decision = call.decision or Decision(effect="ask", rule="no decision was made")
        if call.approval:
            return await self._redeem(call, decision, revise)
        if not self._options.can_ask(call.session):
            raise refusal_without_approver(call, decision)
        before = arguments_digest(call.arguments)  # making the question waits for files
        question = OpenQuestion(
            policy=self._policy,
            store=self._store,
            options=self._options,
            turns=self._turns,
            call=call,
            question=await self._make_question(call, decision),
            read=await self._policy.read(call),
        )
        try:
            settled = await question.settled()
            if arguments_digest(call.arguments) != before:
                changed = f"the arguments of {call.name} changed while it waited for approval"
                await self._store.withdraw(settled.id, changed)
                raise ToolFailure("denied", changed)
            return await self._grant(call, settled, await question.allowed_by(settled), revise)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await question.leave()
            raise

    async def diff(self, call: Call) -> str:
        """Return the file changes of `call`, as a unified diff; empty for a call that edits none."""
        return await self._options.diff(call)

    async def _make_question(self, call: Call, decision: Decision) -> Question:
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

    async def _redeem(self, call: Call, decision: Decision, revise: Revise) -> Call:
        """Return the call with its grant for the approval that it brought along."""
        approval = await self._store.get(call.approval)
        if approval is None or approval.principal != call.session.principal:
            raise ToolFailure("denied", "this approval is for another call, tool, folder or caller: nothing ran")
        return await self._grant(call, approval, approved_by(approval, decision), revise)

    async def _grant(self, call: Call, approval: Approval, rule: str, revise: Revise) -> Call:
        """Return the call with the grant that `approval` gives, which is used up by this.

        The hash covers definition, arguments, principal and folder as they are now: the store refuses it where the
        question was another one.
        """
        hash = binding_of(call)
        edited = await self._store.edited(approval.id)
        if edited is not None:
            revised = await self._revise_edited(call.evolve(arguments=edited, references=()), approval, revise)
            if arguments_digest(revised.arguments) == arguments_digest(call.arguments):
                hash = approval.hash  # a job saves the edited call, which is made again
            by, given = approval.by or "the approver", " ".join(approval.arguments.split())
            call = revised.evolve(edited=f"{by} approved this call with other arguments: {given}")
        await self._store.redeem(approval.id, call.id, hash)
        return call.evolve(approval=approval.id, grant=mint(call.id, call.target, call.arguments, rule))

    async def _revise_edited(self, call: Call, approval: Approval, revise: Revise) -> Call:
        """Return the call with the arguments that the answer gave, which no rule denies."""
        try:
            return await revise(call)
        except ToolFailure as failure:
            await self._store.withdraw(approval.id, failure.message)
            by = approval.by or "the approver"
            message = f"{by} changed the arguments of {call.name}, and it cannot run with them: {failure.message}"
            raise ToolFailure("denied", message, hint=failure.hint, details=failure.details) from failure
