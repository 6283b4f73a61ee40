"""Asking whoever may decide. No approver, no answer in time, an exception: all of them are a no.

One session asks one question at a time, in the order of the calls. What is shown is what will run: the approver gets
a copy of the arguments, and a call whose arguments changed meanwhile is refused.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field
from typing import Final

import anyio

from ..core.call import Call
from ..core.permission import Answer, Approver, Decision, Grant, NobodyToAsk, Question
from ..errors import ToolFailure
from .decide import Policy, approved_as
from .grant import arguments_digest, mint
from .irrecoverable import irrecoverable

__all__ = ["Approvals"]

_LOG: Final = logging.getLogger(__name__)
_MAX_WAITING: Final = 100
"""Questions of one session that may wait (security.md T32)."""
_NO_OTHER_WAY: Final = "Do not try another way to the same effect; tell the user."


@dataclass(slots=True)
class _Queue:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: int = 0


class Approvals:
    """Asks the approver of each session. One for a crib, used from one event loop."""

    def __init__(self, policy: Policy, *, timeout: float = 120.0) -> None:
        """`policy` is asked again when a question's turn comes; `timeout` are the seconds that an approver has."""
        self._policy = policy
        self._timeout = timeout
        self._queues: dict[tuple[str, str], _Queue] = {}

    async def ask(self, call: Call) -> Grant:
        """Return the right to run `call`; raises `ToolFailure("denied")`, saying who refused and how to allow it."""
        session = call.session
        decision = call.decision or Decision(effect="ask", rule="no decision was made")
        if session.approver is None:
            raise _nobody_to_ask(call, decision)
        shown = arguments_digest(call.arguments)
        key = (session.principal, session.key)
        queue = self._queues.setdefault(key, _Queue())
        if queue.waiting >= _MAX_WAITING:
            raise ToolFailure("overloaded", f"{queue.waiting} calls of this session already wait for approval")
        queue.waiting += 1
        try:
            async with queue.lock:
                rule = await self._settle(call, session.approver, decision)
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                self._queues.pop(key, None)
        if arguments_digest(call.arguments) != shown:
            raise ToolFailure("denied", f"the arguments of {call.name} changed while it waited for approval")
        return mint(call.id, call.target, call.arguments, rule)

    async def _settle(self, call: Call, approver: Approver, decision: Decision) -> str:
        """Return who allowed the call: an earlier `always`, or the approver now."""
        now = self._policy.decide(call.target, call.arguments, call.session)
        if now.effect == "allow":
            return now.rule
        if now.effect == "deny":
            raise ToolFailure(
                "denied", f"{call.name} is denied by {now.rule}", hint=_NO_OTHER_WAY, details={"rule": now.rule}
            )
        answer = await self._answer(call, approver, decision)
        _remember(call, answer)
        if answer.verdict in ("yes", "always"):
            return f"approved by {answer.by or 'the approver'} ({decision.rule})"
        said = f": {answer.comment}" if answer.comment else ""
        by = answer.by or "the approver"
        raise ToolFailure(
            "denied",
            f"{by} refused {call.name}{said}",
            hint=_NO_OTHER_WAY,
            details=_why(decision, "refused", answer.comment),
        )

    async def _answer(self, call: Call, approver: Approver, decision: Decision) -> Answer:
        question = Question(
            call_id=call.id,
            tool=call.target,
            arguments=copy.deepcopy(call.arguments),
            decision=decision,
            principal=call.session.principal,
        )
        try:
            with anyio.fail_after(self._timeout):
                return await approver(question)
        except TimeoutError:
            message = f"nobody answered within {self._timeout:g} s whether {call.name} may run"
            raise ToolFailure(
                "denied", message, hint=_how_to_allow(call), details=_why(decision, "unanswered")
            ) from None
        except NobodyToAsk:
            raise _nobody_to_ask(call, decision) from None
        except ToolFailure:
            raise
        except Exception as error:
            _LOG.exception("the approver of session %s broke", call.session.key)
            message = f"{call.name} needs approval, and asking for it failed"
            why = _why(decision, "broken")
            raise ToolFailure("denied", message, hint=_how_to_allow(call), details=why) from error


def _remember(call: Call, answer: Answer) -> None:
    """Keep an `always` or a `never`; an `always` to what cannot be taken back is a yes for this time."""
    session, tool = call.session, call.target
    if answer.verdict == "always" and not irrecoverable(tool, call.arguments):
        session.remembered[approved_as(tool)] = "allow"
    elif answer.verdict == "never":
        session.remembered[tool.name] = "deny"


def _nobody_to_ask(call: Call, decision: Decision) -> ToolFailure:
    message = f"{call.name} needs approval ({decision.rule}), and there is nobody to ask"
    return ToolFailure("denied", message, hint=_how_to_allow(call), details=_why(decision, "nobody_to_ask"))


def _why(decision: Decision, reason: str, comment: str = "") -> dict[str, str]:
    """Return which rule asked, and why it came to no: `refused`, `nobody_to_ask`, `unanswered` or `broken`."""
    why = {"rule": decision.rule, "reason": reason}
    return {**why, "comment": comment} if comment else why


def _how_to_allow(call: Call) -> str:
    """For the person behind the model: a rule for this tool, or a mode that does not ask."""
    ways = [f"add the rule allow: {call.target.name}"]
    if call.decision is not None and call.decision.rule.startswith("mode "):
        ways.append("use --mode autonomous")
    return f"Whoever runs Toolcrib can allow it: {', or '.join(ways)}. {_NO_OTHER_WAY}"
