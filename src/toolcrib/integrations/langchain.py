"""Toolcrib in LangChain and LangGraph: a session as middleware of an agent, or as tools of a graph of your own.

    agent = create_agent("openai:gpt-5.6", middleware=[ToolcribMiddleware(crib.session())])
    await agent.ainvoke({"messages": [...]})

Every request to the model has the tools that the session shows then, and every call is a call of the session: tools
that it loads are in the next request. A failed call is a `ToolMessage` with `status="error"` and Toolcrib's error; the
rest of a result (structured content, metadata) is its `artifact`. Sessions are async: use `ainvoke` and `astream`.

In a graph of your own, bind `session_tools(session)` anew before every request, and let `tool_node(session)` run calls.

Approvals: a session with an approver asks it while the graph waits. A session with `defer_approval` interrupts the
graph; `Command(resume=...)` continues with an answer, and the stored approval makes the call. It needs a checkpointer,
as every interrupt does. The interrupt's value has the form of LangChain's own human-in-the-loop in its mode `per_call`;
its decisions are accepted, as are Toolcrib's verdicts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, cast

import anyio
from msgspec import Struct, field

from ..core.extras import needs_extra
from ..core.json import dumps, loads
from ..core.permission import Answer, Verdict
from ..core.result import ToolResult
from ..crib.approvals import PendingApproval, pending_approval
from ..crib.options import CallOptions
from ..crib.session import Session
from ..errors import UsageError
from .turns import CUT, Media, begin, check_session, parts

with needs_extra("langchain"):
    from langchain.agents.middleware import (
        AgentMiddleware,
        AgentState,
        ModelRequest,
        ModelResponse,
        ProviderToolSearchMiddleware,
        hook_config,
    )
    from langchain.agents.middleware.human_in_the_loop import ApproveDecision, EditDecision, RejectDecision
    from langchain.agents.middleware.types import ContextT, ResponseT, ToolCallRequest
    from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, SystemMessage, ToolCall, ToolMessage
    from langchain_core.runnables import RunnableConfig, ensure_config
    from langchain_core.tools import BaseTool
    from langgraph.prebuilt import ToolNode
    from langgraph.runtime import Runtime
    from langgraph.types import Command, interrupt

__all__ = ["SessionTool", "ToolcribMiddleware", "session_tools", "tool_node"]

_Opens = Callable[[RunnableConfig], Session]
"""Gives the session of a run by its config: the same one for the same `thread_id`, as often as it is asked."""
_Handle = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]

_ORIGIN: Final = "langchain"
_BY: Final = "LangGraph"
"""Name of the decider, if the answer has none."""
_STEPS: Final = "toolcrib.integrations.langchain"
"""Key in the session's runtime for the calls of steps that a graph may begin again."""
_KEPT: Final = 256
"""Calls of one session whose results are kept for a step that is begun again."""
_EVERY: Final = "__remove_all__"
"""Id by which LangGraph removes all messages: its `REMOVE_ALL_MESSAGES`, of a module without types."""
_STOPPED: Final = ToolResult.failed("cancelled", "the run was stopped during this call: it may have had an effect")
_call: ContextVar[ToolCall | None] = ContextVar("toolcrib_langchain_call", default=None)
"""The call of this task as the model made it."""
_turn: ContextVar[CallOptions] = ContextVar("toolcrib_langchain_turn")
"""Position of this task's call among the calls of the model's message."""

_Reply = bool | Verdict | Answer | ApproveDecision | EditDecision | RejectDecision
"""Types with which a graph may be resumed. LangGraph refuses any other, and the interrupt can be answered again."""


class SessionTool(BaseTool):
    """A tool of a session under the name that its model knows. Lives as long as the session; async only."""

    session: Session
    args_schema: Any = None
    """The schema as JSON. Arguments are checked in the pipeline, not here."""

    async def ainvoke(
        self, input: str | dict[str, Any] | ToolCall, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        """Make the call. A `ToolCall` gets a `ToolMessage`, bare arguments get the content of one."""
        call = cast("ToolCall", input) if isinstance(input, dict) and input.get("type") == "tool_call" else None
        token = _call.set(call)
        try:
            return await super().ainvoke(input, config, **kwargs)
        finally:
            _call.reset(token)

    async def _arun(self, /, *_: Any, **arguments: Any) -> Any:
        call = _call.get()
        if call is None:
            return _content(await self.session.call(self.name, arguments, origin=_ORIGIN))
        return _message(call, await _result(self.session, call["args"], call))

    def _run(self, /, *_: Any, **arguments: Any) -> Any:
        raise UsageError(f"{self.name} is a tool of a Toolcrib session, which is async: use ainvoke or astream")


class ToolcribMiddleware(AgentMiddleware[AgentState[ResponseT], ContextT, ResponseT]):
    """Gives an agent the tools of a session, beside those that it has. Lives as long as the agent.

    Given a session, it is one conversation; every invocation with new messages begins its next interaction. Given a
    function, every invocation has the session that it returns for its config, and one agent serves many users.
    """

    def __init__(self, session: Session | _Opens, *, defer: bool = False) -> None:
        """`defer` declares all other tools, too, as ones that the model's API itself searches (Anthropic, OpenAI)."""
        super().__init__()
        check_session(session)
        self._session = session
        self._search = ProviderToolSearchMiddleware[ResponseT, ContextT]() if defer else None

    def session(self) -> Session:
        """Return the session of the run that this task belongs to."""
        return self._session if isinstance(self._session, Session) else self._session(ensure_config())

    async def abefore_agent(self, state: AgentState[ResponseT], runtime: Runtime[ContextT]) -> dict[str, Any] | None:
        """Begin the next interaction. An interrupted run that is resumed does not come here.

        Calls of a run that was stopped get a result: the APIs refuse a conversation with a call that has none.
        """
        begin(self.session())
        messages = _closed(state["messages"])
        return None if messages is None else {"messages": [RemoveMessage(id=_EVERY), *messages]}

    async def awrap_model_call(
        self,
        request: ModelRequest[ContextT],
        handler: Callable[[ModelRequest[ContextT]], Awaitable[ModelResponse[ResponseT]]],
    ) -> ModelResponse[ResponseT] | AIMessage:
        """Give the model the session's present tools, and the instructions of the profile."""
        session = self.session()
        tools: list[BaseTool | dict[str, Any]] = [
            *request.tools,
            *session_tools(session, defer=self._search is not None),
        ]
        prepared = request.override(tools=tools, system_message=_with(request.system_message, session.instructions))
        if self._search is not None:
            return await self._search.awrap_model_call(prepared, handler)
        return await handler(prepared)

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: AgentState[ResponseT], runtime: Runtime[ContextT]) -> dict[str, Any] | None:
        """Make the calls whose arguments LangChain could not parse: they are repaired, or the model gets the error.

        Of an answer that was cut off at its limit the last call does not run: LangChain completes a truncated one.
        """
        last = state["messages"][-1]
        if not isinstance(last, AIMessage):
            return None
        session, broken = self.session(), last.invalid_tool_calls
        cut = last.tool_calls[-1:] if _was_cut(last) and not broken else []
        calls = [(ToolCall(name=one["name"] or "", args={}, id=one["id"]), one["args"]) for one in broken]
        messages = list[ToolMessage]()
        for call, arguments in calls:
            with _placed(state, call):
                messages.append(_message(call, await _result(session, arguments, call)))
        messages += [_message(call, CUT) for call in cut]
        if not messages:
            return None
        has_more = len(last.tool_calls) > len(cut)
        return {"messages": messages} if has_more else {"messages": messages, "jump_to": "model"}

    async def awrap_tool_call(self, request: ToolCallRequest, handler: _Handle) -> ToolMessage | Command[Any]:
        """Make the call through the session, unless it is of a tool that the agent has itself."""
        if request.tool is not None:
            return await handler(request)
        return await _handled(self.session(), request, handler)


def session_tools(session: Session, *, defer: bool = False) -> list[BaseTool]:
    """Return the session's present tools as LangChain tools, in its order.

    `defer` adds all other tools, marked for LangChain's `ProviderToolSearchMiddleware`; the meta-tools that search are
    then left out. Raises `UsageError` if the profile does not permit that.
    """
    found = session.definitions("openai-responses" if defer else "openai", defer=defer)
    flat = [inner for one in found for inner in (one["tools"] if one["type"] == "namespace" else [one])]
    shown = [one.get("function", one) for one in flat if one["type"] == "function"]
    return [
        SessionTool(
            name=one["name"],
            description=one["description"],
            args_schema=one["parameters"],
            session=session,
            extras={"defer_loading": True} if one.get("defer_loading") else None,
        )
        for one in shown
    ]


def tool_node(session: Session, tools: Sequence[BaseTool | Callable[..., Any]] = ()) -> ToolNode:
    """Return a node that makes the calls of the last message through the session; `tools` are your own beside it."""

    async def wrap(request: ToolCallRequest, handler: _Handle) -> ToolMessage | Command[Any]:
        if request.tool is not None:
            return await handler(request)
        return await _handled(session, request, handler)

    return ToolNode(tools, awrap_tool_call=cast("Any", wrap))


async def _handled(session: Session, request: ToolCallRequest, handler: _Handle) -> ToolMessage | Command[Any]:
    call = request.tool_call
    with _placed(request.state, call):
        tool = SessionTool(name=call["name"], description="", args_schema={}, session=session)
        return await handler(request.override(tool=tool))


@contextmanager
def _placed(state: Any, call: ToolCall) -> Generator[None]:
    """Set the position of a call in its message, so that the profile's limits on repeated turns apply."""
    messages: Any = getattr(state, "messages", None) or (state.get("messages", ()) if hasattr(state, "get") else state)
    answer = next((message for message in reversed(messages) if isinstance(message, AIMessage)), AIMessage(""))
    made = [one["id"] for one in (*answer.invalid_tool_calls, *answer.tool_calls)]  # in the order in which they run
    place = made.index(call["id"]) + 1 if call["id"] in made else 0
    token = _turn.set({"origin": _ORIGIN, "place": place, "together": max(len(made), 1)})
    try:
        yield
    finally:
        _turn.reset(token)


_OF_ANOTHER: Final = Answer(
    verdict="comment", by=_BY, comment="the tool changed after the question: make the call again where it is wanted"
)
"""In the place of an answer to a question that was not this one."""


class _Step(Struct):
    """A call of a step that may be begun again: it is made once, and the second comer waits for the first."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    result: ToolResult | None = None


async def _result(session: Session, arguments: Any, call: ToolCall) -> ToolResult:
    """Make the call; if it needs an approval, interrupt the graph and continue with the answer.

    An interrupt ends the step, and LangGraph begins it again from its start with the answer. Calls that the step made
    before are not repeated: they are found by their position in the graph.
    """
    place, turn = _place(call), _turn.get({"origin": _ORIGIN})
    if place is None:
        return await session.call(call["name"], arguments, **turn)
    steps = cast("dict[str, _Step]", session.state.runtime.setdefault(_STEPS, {}))
    # A graph that goes on in another process asks anew, and runs nothing twice.
    options: CallOptions = {**turn, "idempotency_key": sha256(place.encode()).hexdigest()}
    is_begun = place in steps
    result = await _once(steps, place, lambda: session.call(call["name"], arguments, **options))
    question = pending_approval(result)
    if question is not None:
        answer = _answer(interrupt(_asked(question, call), response_schema=cast("type[Any]", _Reply)))
        if not is_begun and await session.parts.deferred_calls.has_changed(question.approval):
            answer = _OF_ANOTHER  # another process asked, when the tool was another one
        result = steps[place].result = await session.resume(question.approval, answer)
    return result


async def _once(steps: dict[str, _Step], place: str, make: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    while (step := steps.get(place)) is not None:
        await step.ended.wait()
        if step.result is not None:
            return step.result
    step = steps[place] = _Step()
    try:
        result = step.result = await make()
    finally:
        if step.result is None:
            del steps[place]
        step.ended.set()
    for oldest in [place for place, one in steps.items() if one.result is not None][:-_KEPT]:
        del steps[oldest]
    return result


def _closed(messages: Sequence[AnyMessage]) -> list[AnyMessage] | None:
    """Return the messages with a result behind each call that has none; None where each has one."""
    ended = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    closed = list[AnyMessage]()
    for message in messages:
        closed.append(message)
        calls = [*message.tool_calls, *message.invalid_tool_calls] if isinstance(message, AIMessage) else []
        left = [ToolCall(name=call["name"] or "", args={}, id=call["id"]) for call in calls if call["id"] not in ended]
        closed += [_message(call, _STOPPED) for call in left]
    return closed if len(closed) > len(messages) else None


def _was_cut(message: AIMessage) -> bool:
    """Whether an answer reached its limit, in the words of the APIs."""
    metadata = message.response_metadata
    details: dict[str, Any] = metadata.get("incomplete_details") or {}
    reasons = (metadata.get("finish_reason"), metadata.get("stop_reason"), details.get("reason"))
    return not {"length", "max_tokens", "model_context_window_exceeded", "max_output_tokens"}.isdisjoint(reasons)


def _place(call: ToolCall) -> str | None:
    """Return the thread and the position of the call in it; None outside of an interruptible graph."""
    known: Mapping[str, Any] = ensure_config().get("configurable") or {}
    thread, step = known.get("thread_id"), known.get("checkpoint_ns")
    return None if thread is None or not step else f"{thread} {step} {call['id']}"


def _asked(question: PendingApproval, call: ToolCall) -> dict[str, Any]:
    """Return the value of an interrupt: LangChain's `ToolApprovalRequest`, and the question as Toolcrib has it."""
    lines = [f"May {question.tool} run with these arguments?", question.arguments]
    lines += ["It would change:", question.diff] if question.diff else []
    return {
        "type": "tool_approval",
        "tool_call_id": call["id"],
        "name": question.tool,
        "args": loads(question.arguments),
        "description": "\n".join([*lines, f"Asked because of: {question.rule}"]),
        "question": question.to_json(),
    }


def _answer(reply: Any) -> Answer:
    """Read what LangGraph has checked."""
    if isinstance(reply, bool):
        return Answer(verdict="yes" if reply else "no", by=_BY)
    if isinstance(reply, str):
        return Answer(verdict=cast("Verdict", reply), by=_BY)
    if isinstance(reply, Answer):
        return reply if reply.by else replace(reply, by=_BY)
    decision = cast("dict[str, Any]", reply)
    if decision["type"] == "approve":
        return Answer(verdict="yes", by=_BY)
    if decision["type"] == "edit":
        return Answer(verdict="edit", by=_BY, arguments=decision["edited_action"]["args"])
    comment = decision.get("message", "")
    return Answer(verdict="comment" if comment else "no", by=_BY, comment=comment)


def _message(call: ToolCall, result: ToolResult) -> ToolMessage:
    return ToolMessage(
        content=_content(result),
        tool_call_id=call["id"] or "",
        name=call["name"],
        status="error" if result.is_error else "success",
        artifact=_artifact(result),
    )


def _content(result: ToolResult) -> Any:
    """Return the text, or content blocks if there is more than text."""
    text, others = parts(result)
    if not others:
        return text
    return [*([{"type": "text", "text": text}] if text else []), *map(_block, others)]


def _block(media: Media) -> dict[str, Any]:
    """Return a picture or a PDF as LangChain's standard content block."""
    if media.is_image:
        return {"type": "image", "base64": media.data, "mime_type": media.kind}
    return {"type": "file", "base64": media.data, "mime_type": media.kind, "filename": media.name}


def _artifact(result: ToolResult) -> dict[str, Any]:
    """Return the part of a result that the model does not read, as plain JSON, which every checkpointer can store."""
    error = result.error.to_json() if result.error is not None else None
    return loads(dumps({"structured_content": result.structured_content, "error": error, "meta": dict(result.meta)}))


def _with(message: SystemMessage | None, instructions: str) -> SystemMessage | None:
    """Return the system message with the profile's instructions at its end."""
    if not instructions:
        return message
    if message is None:
        return SystemMessage(instructions)
    if isinstance(message.content, str):
        return SystemMessage(f"{message.content}\n\n{instructions}")
    return SystemMessage(content=[*message.content, {"type": "text", "text": instructions}])
