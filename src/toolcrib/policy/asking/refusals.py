"""What the model, and the person behind it, read when a call was not approved."""

from __future__ import annotations

from ...core.approval import Approval
from ...core.call import Call
from ...core.permission import Decision, Question
from ...errors import ToolFailure

__all__ = ["broken", "denied_by_rule", "nobody_to_ask", "refused", "standing", "unanswered"]

_NO_OTHER_WAY = "Do not try another way to the same effect; tell the user."
_INSISTS = ("approval always: ", "irrecoverable: ", "no sandbox: ")
"""What no rule that allows can change (`policy.decide`)."""
_AS_SAID = "Go by what was said; do not try another way to the same effect."


def refused(settled: Approval, name: str = "") -> ToolFailure:
    """Return the refusal of somebody who was asked; `name` is what the model calls the tool, where that is known."""
    comment = settled.comment
    said = f": {comment}" if comment else ""
    message = f"{settled.by or 'the approver'} refused {name or settled.tool}{said}"
    hint = _AS_SAID if comment else _NO_OTHER_WAY
    return ToolFailure("denied", message, hint=hint, details=_why(settled.rule, "refused", comment))


def standing(question: Question) -> ToolFailure:
    """Return the refusal of a call whose question stands; `details` say which, and all that the user is to be shown."""
    shown = {"tool": question.tool.name, "arguments": question.shown, "diff": question.diff, "hash": question.hash}
    details = {**_why(question.decision.rule, "standing"), "approval": question.approval, **shown}
    message = f"{question.tool.name} did not run yet: whether it may waits for an answer"
    hint = "do not call it again; go on when the user has answered"
    return ToolFailure("denied", message, hint=hint, details=details)


def denied_by_rule(call: Call, rule: str) -> ToolFailure:
    """Return what a rule says of a call that waited for an answer, or of the arguments that an answer gave it."""
    return ToolFailure(
        "denied", f"{call.name} is denied by {rule}", hint=_NO_OTHER_WAY, details={"rule": rule, "reason": "denied"}
    )


def nobody_to_ask(call: Call, decision: Decision) -> ToolFailure:
    """Return the refusal where there is no approver, or none that can be reached."""
    message = f"{call.name} needs approval ({decision.rule}), and there is nobody to ask"
    ways = ["set approvals: {wait: true} and answer with `toolcrib approvals`"]
    return ToolFailure("denied", message, hint=_how_to_allow(call, ways), details=_why(decision.rule, "nobody_to_ask"))


def unanswered(call: Call, decision: Decision, seconds: float) -> ToolFailure:
    """Return the refusal that silence is."""
    message = f"nobody answered within {seconds:g} s whether {call.name} may run"
    return ToolFailure("denied", message, hint=_how_to_allow(call), details=_why(decision.rule, "unanswered"))


def broken(call: Call, decision: Decision) -> ToolFailure:
    """Return the refusal where asking itself failed."""
    message = f"{call.name} needs approval, and asking for it failed"
    return ToolFailure("denied", message, hint=_how_to_allow(call), details=_why(decision.rule, "broken"))


def _why(rule: str, reason: str, comment: str = "") -> dict[str, str]:
    """Return which rule asked, and why it came to no: refused, standing, nobody_to_ask, unanswered or broken."""
    why = {"rule": rule, "reason": reason}
    return {**why, "comment": comment} if comment else why


def _how_to_allow(call: Call, more: list[str] | None = None) -> str:
    """For the person behind the model: a rule for this tool, a mode that does not ask, a way to be asked."""
    insists = call.decision is not None and call.decision.rule.startswith(_INSISTS)
    ways = [] if insists else [f"add the rule allow: {call.target.name}"]
    if call.decision is not None and call.decision.rule.startswith("mode "):
        ways.append("use --mode autonomous")
    if not (ways := [*ways, *(more or [])]):
        return f"It asks each time, and no rule changes that. {_NO_OTHER_WAY}"
    return f"Whoever runs Toolcrib can allow it: {', or '.join(ways)}. {_NO_OTHER_WAY}"
