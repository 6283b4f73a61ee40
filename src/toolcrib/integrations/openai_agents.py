"""Toolcrib in the OpenAI Agents SDK: an agent whose tools are those of a session.

    agent = ToolcribAgent(name="Assistant", instructions="Be brief.", session=crib.session())
    result = await Runner.run(agent, "How many tickets are open?")

In every turn the model gets the session's present tools, beside the agent's own, and every call is a call of the
session. A failed call is a tool output with Toolcrib's error. A call by an unknown name ends the run, unless
`RunConfig(tool_not_found_behavior="return_error_to_model")` is set.

Approvals: a session with an approver asks it while the run waits. A session with `defer_approval` interrupts the run,
which continues from its `RunState`:

    while result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            question = await agent.question(item)
            await agent.answer(state, item, Answer(verdict="yes"))
        result = await Runner.run(agent, state)

`state.approve(item)` and `state.reject(item)` work as well. `always_approve` covers only the questions of that pause,
since it would otherwise cover all calls through a meta-tool; `Answer(verdict="always")` covers one tool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from weakref import WeakKeyDictionary, WeakSet

from msgspec import Struct, field

from ..core.extras import needs_extra
from ..core.json import canonical, read_json
from ..core.permission import Answer
from ..core.result import ToolResult
from ..crib.approvals import PendingApproval, defer_approval, pending_approval
from ..crib.options import CallOptions
from ..crib.session import Session
from ..errors import UsageError
from ..sources.python.framework_tools import in_run
from .turns import Media, begin, check_session, parts

with needs_extra("openai-agents"):
    from agents import (
        Agent,
        FunctionTool,
        RunContextWrapper,
        RunState,
        Tool,
        ToolOutputFileContent,
        ToolOutputImage,
        ToolOutputText,
        ToolSearchTool,
        tool_namespace,
    )
    from agents.items import ToolApprovalItem
    from agents.run_context import TContext
    from agents.tool_context import ToolContext

__all__ = ["ToolcribAgent"]

_Opens = Callable[[RunContextWrapper[Any]], Session]
"""Gives the session of a run by its context: one agent then serves many users."""

_ORIGIN: Final = "openai_agents"
_BY: Final = "OpenAI Agents SDK"
"""Name of the decider for an approval through the SDK's own API."""
_HELD: Final = "toolcrib.integrations.openai_agents"
"""Key in the session's runtime for state that its runs share."""
_REMEMBERED: Final = 1000
"""Calls of one session whose runs did not come back for them."""
_NO_CALL: Final = "toolcrib"
"""A call id that never occurs: if the SDK approves it, it approves every call."""


class _Held(Struct, eq=False):
    """State that the runs of one session share."""

    made: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """Results by call id that the SDK has still to fetch: of calls that ran when it asked whether they need approval,
    and of those whose questions stand."""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """Answers by call id."""
    given: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Arguments of those calls by call id: some models reuse ids."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The tools of calls whose questions stand, by call id."""
    tools: dict[str, tuple[dict[str, Any], FunctionTool]] = field(
        default_factory=dict[str, tuple[dict[str, Any], FunctionTool]]
    )
    """Tools by name, each with its definition: an unchanged tool is the same object in every turn."""
    turn: dict[str, int] = field(default_factory=dict[str, int])
    """Calls of the model's last answer by id, each with its place in it, from 1."""
    begun: WeakSet[RunContextWrapper[Any]] = field(default_factory=WeakSet[RunContextWrapper[Any]])
    """Runs that have begun their interaction."""

    def call_options(self, call_id: str) -> CallOptions:
        """Return which call of the model's answer this is, so that the profile sees turns that go in circles."""
        return {"origin": _ORIGIN, "place": self.turn.setdefault(call_id, len(self.turn) + 1)}

    def remember(self, call_id: str, name: str, given: bytes, result: ToolResult) -> None:
        self.forget(call_id)
        self.made[call_id], self.given[call_id] = result, given
        if pending_approval(result) is not None:
            self.names[call_id] = name
        for oldest in tuple(self.made)[:-_REMEMBERED]:
            self.forget(oldest)

    def forget(self, call_id: str) -> None:
        for kept in (self.made, self.given, self.answers, self.names):
            kept.pop(call_id, None)


@dataclasses.dataclass
class ToolcribAgent(Agent[TContext]):
    """An agent with the tools of a session beside its own. Lives as long as you like; it holds no run.

    Given a session, it is one conversation; every run begins its next interaction, and one that goes on from its state
    goes on with the last. Given a function, every run has the session that it returns.
    """

    session: Session | _Opens = dataclasses.field(kw_only=True)
    defer: bool = dataclasses.field(default=False, kw_only=True)
    """Declare all other tools, too, as ones that the API itself searches: for models of the Responses API."""

    _opened: WeakKeyDictionary[RunContextWrapper[Any], Session] = dataclasses.field(
        default_factory=WeakKeyDictionary[RunContextWrapper[Any], Session], init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Raise `UsageError` for a `session` that is none."""
        super().__post_init__()
        check_session(self.session)

    def session_of(self, run_context: RunContextWrapper[Any]) -> Session:
        """Return the session of a run, which is kept as long as the run."""
        if isinstance(self.session, Session):
            return self.session
        if run_context not in self._opened:
            self._opened[run_context] = self.session(run_context)
        return self._opened[run_context]

    async def get_system_prompt(self, run_context: RunContextWrapper[TContext]) -> str | None:
        """Return the agent's own instructions, and those of the session's profile after them."""
        own = await super().get_system_prompt(run_context)
        instructions = self.session_of(run_context).instructions
        return "\n\n".join(part for part in (own, instructions) if part) or None

    async def get_all_tools(self, run_context: RunContextWrapper[TContext]) -> list[Tool]:
        """Return the agent's own tools and the session's present ones, in its order."""
        session = self.session_of(run_context)
        held = _held(session)
        held.turn.clear()
        if run_context not in held.begun:
            held.begun.add(run_context)
            if not run_context.usage.requests:
                begin(session)
        await _settle_rejected(session, run_context)
        own = await super().get_all_tools(run_context)
        return [*own, *_shown(session, defer=self.defer)]

    async def question(self, item: ToolApprovalItem) -> PendingApproval:
        """Return the question to the user about an interruption.

        A run whose process is gone is asked about anew: its call is made again, up to the question. Raises `UsageError`
        for an interruption of another session, and where the session belongs to a run (`session_of`).
        """
        session, call_id, name = self._one(), item.call_id or "", item.tool_name or ""
        held = _held(session)
        if call_id not in held.made:
            result = await session.call(name, item.arguments, origin=_ORIGIN)
            held.remember(call_id, name, _read(name, item.arguments or ""), result)
        found = pending_approval(held.made[call_id])
        if found is None:
            raise UsageError(f"the call {call_id!r} of {name} asks nothing: approve or reject it in the run's state")
        return found

    async def answer(self, state: RunState[Any, Any], item: ToolApprovalItem, answer: Answer) -> None:
        """Answer an interruption, for the run that goes on from `state`. Raises `UsageError` as `question` does."""
        question, session = await self.question(item), self._one()
        if answer.verdict in ("no", "comment", "never"):
            refusal = await session.resume(question.approval, answer)
            _held(session).forget(item.call_id or "")
            state.reject(item, rejection_message=refusal.text)
        else:
            _held(session).answers[item.call_id or ""] = answer
            state.approve(item)

    def _one(self) -> Session:
        if isinstance(self.session, Session):
            return self.session
        raise UsageError("each run of this agent has a session of its own: use state.approve() or state.reject()")


def _held(session: Session) -> _Held:
    return cast("_Held", session.state.runtime.setdefault(_HELD, _Held()))


def _shown(session: Session, *, defer: bool) -> list[Tool]:
    shown = list[Tool]()
    for one in session.definitions("openai-responses", defer=defer):
        if one["type"] == "tool_search":
            shown.append(ToolSearchTool())
        elif one["type"] == "namespace":
            shown += [_tool(session, inner, one) for inner in one["tools"]]
        else:
            shown.append(_tool(session, one))
    return shown


def _tool(session: Session, definition: dict[str, Any], space: Mapping[str, Any] | None = None) -> FunctionTool:
    """Return the tool of a definition, the same one as long as the definition is the same."""
    known, name = _held(session).tools, definition["name"]
    made_of = {"definition": definition, "space": space and (space["name"], space["description"])}
    if name in known and known[name][0] == made_of:
        return known[name][1]

    async def needs_approval(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        if session.state.approvals.approver is not defer_approval:
            return False
        held, given = _held(session), canonical([name, arguments])
        if call_id not in held.names or held.given[call_id] != given:
            with in_run(context):
                result = await session.call(name, arguments, **held.call_options(call_id))
            held.remember(call_id, name, given, result)
        return call_id in held.names

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        with in_run(context):
            return _output(await _invoked(session, context, name, arguments))

    tool = FunctionTool(
        name=name,
        description=definition["description"],
        params_json_schema=definition["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
        needs_approval=needs_approval,
        defer_loading=bool(definition.get("defer_loading")),
    )
    if space is not None:
        (tool,) = tool_namespace(name=space["name"], description=space["description"], tools=[tool])
    known[name] = (made_of, tool)
    return tool


async def _invoked(session: Session, context: ToolContext[Any], name: str, arguments: str) -> ToolResult:
    """Return the result that is there, that of the call whose question is answered, or that of a new call."""
    held, call_id = _held(session), context.tool_call_id
    is_known = held.given.get(call_id) == _read(name, arguments)
    known, answer = (held.made[call_id], held.answers.get(call_id)) if is_known else (None, None)
    held.forget(call_id)
    result = known or await session.call(name, arguments, **held.call_options(call_id))
    question = pending_approval(result)
    if question is None:
        return result
    was_asked = known is not None or not context.is_tool_approved(name, _NO_CALL)
    if answer is None and was_asked and context.is_tool_approved(name, call_id):
        answer = Answer(verdict="yes", by=_BY)
    return await session.resume(question.approval, answer) if answer is not None else result


def _read(name: str, arguments: str) -> bytes:
    """Return the canonical arguments of a call."""
    try:
        return canonical([name, read_json(arguments)])
    except ValueError:
        return f"{name} {arguments}".encode(errors="replace")


async def _settle_rejected(session: Session, context: RunContextWrapper[Any]) -> None:
    """Write down the no to questions that were answered in the state of the run."""
    held = _held(session)
    for call_id, name in tuple(held.names.items()):
        question = pending_approval(held.made[call_id])
        if question is not None and context.is_tool_approved(name, call_id) is False:
            held.forget(call_id)
            await session.resume(question.approval, Answer(verdict="no", by=_BY))


def _output(result: ToolResult) -> Any:
    """Return the text, or a list of outputs if there is more than text."""
    text, others = parts(result)
    return [*([ToolOutputText(text=text)] if text else []), *map(_other, others)] if others else text


def _other(media: Media) -> ToolOutputImage | ToolOutputFileContent:
    url = f"data:{media.kind};base64,{media.data}"
    return (
        ToolOutputImage(image_url=url) if media.is_image else ToolOutputFileContent(filename=media.name, file_data=url)
    )
