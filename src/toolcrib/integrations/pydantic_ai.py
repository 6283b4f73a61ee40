"""Toolcrib in Pydantic AI: a session as a toolset.

    toolset = ToolcribToolset(crib.session())
    agent = Agent("openai:gpt-5.6", toolsets=[toolset])

In every step the model sees the session's present tools, so tools that it finds or loads are in the next one. Every
call is a call of the session. A failed call is a failed tool result (`ToolFailed`) with Toolcrib's error, including
invalid arguments: none of it counts against the agent's retries, which limit the model's output, not the tools.

Approvals: a session with an approver asks it while the run waits. A session with `defer_approval` ends the run with
Pydantic AI's `DeferredToolRequests`; `questions` returns the questions, `answered` makes the results for the next run.
In both cases the stored approval makes the call.

Tool search: with `deferred=` the tools outside the core are passed as deferred ones, and `tool_search()` finds them
with Toolcrib's ranking: through the model API's own deferral if it has one, else through a `search_tools`.
"""

from __future__ import annotations

import base64
import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, Literal, cast
from weakref import WeakValueDictionary

from ..catalog.index import Index, IndexEntry
from ..catalog.names import declared
from ..core.bounded_mapping import BoundedMapping
from ..core.extras import needs_extra
from ..core.json import as_mapping, canonical, read_json
from ..core.permission import Answer
from ..core.result import ToolResult
from ..core.tool import Tool
from ..crib import CallOptions
from ..crib.approvals import PendingApproval, pending_approval
from ..crib.session import Session
from ..errors import UsageError
from ..sources.python.framework_tools import in_run
from .turns import Media, begin, check_session, parts

with needs_extra("pydantic-ai"):
    from pydantic_ai import AbstractToolset, BinaryContent, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.capabilities import ToolSearch
    from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
    from pydantic_ai.messages import InstructionPart, ModelResponse, ToolReturnPart, UserContent
    from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults
    from pydantic_ai.toolsets import ToolsetTool

__all__ = ["ToolcribToolset", "answered", "questions"]

_Opens = Callable[[RunContext[AgentDepsT]], Session]
"""Gives the session of a run, ready for it."""

_UNREAD: Final = ""
"""The only key of arguments that are not a JSON object: its value is the model's text, for the pipeline to repair."""
_KEY: Final = "toolcrib"
"""Under which the metadata of a deferred call has the question and its answer."""
_REMEMBERED: Final = 1000
"""Questions whose calls may be resumed without their metadata."""
_BY: Final = "Pydantic AI"
"""Name of the decider for an answer by `ToolApproved` or `ToolDenied`."""
_NOT_DEFERRED: Final = "search_tools"
"""Name of Pydantic AI's own search tool."""


class ToolcribToolset(AbstractToolset[AgentDepsT]):
    """Tools of a session as a toolset of an agent. Lives as long as the agent; each run works on a copy.

    With a session, it is one conversation: a run with a prompt begins its next interaction, one with only the results
    of deferred calls continues the last. With a function, every run has the session that it returns; one agent then
    serves many users over one crib.
    """

    def __init__(self, session: Session | _Opens[AgentDepsT], *, id: str = "toolcrib", deferred: int = 0) -> None:
        """`deferred` is the number of non-core tools that are passed for searching; 0 passes the shown ones only.

        It needs a profile that shows all its tools (`flat`), and `tool_search` among the agent's capabilities. Of more
        tools than that a run gets those that match its prompt best, and those that its searches find.
        """
        check_session(session)
        self._session = session if isinstance(session, Session) else None
        self._opens = None if isinstance(session, Session) else session
        self._id = id
        self._deferred = deferred
        self._window: dict[str, None] = {}
        self._asked = BoundedMapping[tuple[str | None, str | None], Mapping[str, str]](_REMEMBERED)
        self._runs: WeakValueDictionary[str, ToolcribToolset[AgentDepsT]] = WeakValueDictionary()

    @property
    def id(self) -> str:
        """Identifier among the toolsets of the agent."""
        return self._id

    @property
    def session(self) -> Session:
        """The session of this run. Raises `UsageError` where each run has its own and none has begun."""
        if self._session is None:
            raise UsageError("this toolset opens a session for each run: it has none of its own")
        return self._session

    def tool_search(self, *, limit: int = 5) -> ToolSearch[AgentDepsT]:
        """Return Pydantic AI's tool search with Toolcrib's ranking, for the agent's capabilities.

        It ranks deferred tools of the agent's other toolsets as well. `limit` is how many one search finds.
        """

        def found(ctx: RunContext[AgentDepsT], queries: Sequence[str], tools: Sequence[ToolDefinition]) -> list[str]:
            return self._found(ctx, queries, tools, limit)

        return ToolSearch(strategy=found, max_results=limit)

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return the toolset of one run, with its session."""
        run = copy.copy(self)
        if self._opens is not None:
            run._session = self._opens(ctx)
        elif not _goes_on(ctx):
            begin(run.session)
        run._window = run._chosen(ctx.prompt)
        if ctx.run_id is not None:
            self._runs[ctx.run_id] = run
        return run

    async def for_run_step(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Record refusals by Pydantic AI's own `ToolDenied`, which never reach a call."""
        last = ctx.messages[-1].parts if ctx.messages else ()
        for part in last:
            if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                asked = self._asked.get((ctx.conversation_id, part.tool_call_id))
                if asked is not None:
                    await self.session.resume(asked["approval"], Answer(verdict="no", by=_BY))
        return self

    async def get_instructions(self, ctx: RunContext[AgentDepsT]) -> InstructionPart | None:
        """Return the instructions of the session's profile and mode."""
        text = self.session.instructions
        return InstructionPart(text) if text else None

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the session's present tools, in its order."""
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=_definition(tool, is_deferred=is_deferred),
                max_retries=ctx.max_retries,
                args_validator=_AS_SENT,
            )
            for tool, is_deferred in self._shown()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> ToolReturn:
        """Make the call, or go on with the one that the user was asked about."""
        arguments = tool_args[_UNREAD] if tool_args.keys() == {_UNREAD} else tool_args
        earlier = self._question(ctx)
        with in_run(ctx):
            if ctx.tool_call_approved and earlier:
                result = await self.session.resume(str(earlier["approval"]), self._answer(earlier, name, arguments))
            else:
                result = await self.session.call(name, arguments, **_turn(ctx))
        question = pending_approval(result)
        if question is not None:
            asked = {**question.to_json(), "given": _digest(arguments)}
            self._asked[ctx.conversation_id, ctx.tool_call_id] = asked
            raise ApprovalRequired(metadata={_KEY: asked})
        return _returned(result)

    def _shown(self) -> list[tuple[Tool, bool]]:
        """Return the shown tools, each with whether it is deferred."""
        shown = self.session.tools
        if not self._deferred:
            return [(tool, False) for tool in shown]
        if any(tool.name == _NOT_DEFERRED for tool in shown):
            profile = self.session.state.profile
            raise UsageError(
                f"deferred: the profile {profile} has a {_NOT_DEFERRED} of its own, and Pydantic AI brings one;"
                " open the session with profile='flat', or leave `deferred` out"
            )
        named = {tool.name: tool for tool in shown}
        found = (self.session.visible.aliases.name(tool) for tool in self._activated())
        window = {**self._window, **{name: None for name in found if name in named and not named[name].core}}
        live = [(tool, False) for tool in shown if tool.core]
        return [*live, *((named[name], True) for name in window if name in named)]

    def _activated(self) -> Iterable[Tool]:
        tools = self.session.visible.catalog.tools
        return (tools[name] for name in self.session.state.history.activated if name in tools)

    def _chosen(self, prompt: str | Sequence[UserContent] | None) -> dict[str, None]:
        """Return which deferred tools a run begins with, all, or those that fit its prompt and then others."""
        if not self._deferred:
            return {}
        names = [tool.name for tool in self.session.tools if not tool.core]
        if len(names) <= self._deferred:
            return dict.fromkeys(names)
        near = set(self._ranked(_text(prompt), self._deferred))
        fitting = [name for name in names if name in near]
        rest = [name for name in names if name not in near]
        kept = {*fitting, *rest[: self._deferred - len(fitting)]}
        return dict.fromkeys(name for name in names if name in kept)

    def _ranked(self, query: str, limit: int) -> list[str]:
        visible = self.session.visible
        hits = visible.catalog.search(query, limit, allowed=visible.admitted, boost=visible.boost)
        found = (visible.catalog.tools[hit.name] for hit in hits)
        return [declared(visible.aliases.name(tool), tool.source, tool.local_name) for tool in found]

    def _found(
        self, ctx: RunContext[AgentDepsT], queries: Sequence[str], tools: Sequence[ToolDefinition], limit: int
    ) -> list[str]:
        """Return the deferred tools that fit, best first; one beyond the window is in it from the next step."""
        run = self._runs.get(ctx.run_id or "", self)
        known = {tool.name for tool in tools}
        others = Index(_entry(tool) for tool in tools if (tool.metadata or {}).get(_KEY) is None)
        ranked = [run._ranked(query, limit) for query in queries]
        ranked += [[hit.name for hit in others.search(query, limit)] for query in queries]
        found = list(dict.fromkeys(name for rank in zip_longest(*ranked) for name in rank if name is not None))[:limit]
        beyond = [name for name in found if name not in known]
        for name in beyond:
            tool = run.session.visible.find(name)
            if tool is not None and not tool.core:
                run.session.state.history.activated.setdefault(tool.name)
        if beyond and len(beyond) == len(found):
            raise ModelRetry(f"found {', '.join(beyond)}; search once more to get them")
        return [name for name in found if name in known]

    def _question(self, ctx: RunContext[AgentDepsT]) -> Mapping[str, Any]:
        """Return the question about this call and its answer, as they came with the results or are remembered."""
        given = as_mapping(ctx.tool_call_metadata)
        return as_mapping(given.get(_KEY)) or self._asked.get((ctx.conversation_id, ctx.tool_call_id), {})

    def _answer(self, question: Mapping[str, Any], name: str, arguments: Any) -> Answer:
        """Return the user's answer: from `answered`, or Pydantic AI's own approval, perhaps with other arguments."""
        answer: Mapping[str, Any] | None = question.get("answer")
        if answer is not None:
            return Answer(**answer)
        if _digest(arguments) == question.get("given"):
            return Answer(verdict="yes", by=_BY)
        changed = as_mapping(arguments)
        if name in self.session.visible.profile.verbs.values():
            changed = as_mapping(changed.get("arguments"))
        return Answer(verdict="edit", by=_BY, arguments=changed)


def questions(requests: DeferredToolRequests) -> dict[str, PendingApproval]:
    """Return the questions to the user, by the id of the tool call; calls of other toolsets are left out."""
    names = PendingApproval.__struct_fields__
    asked = {id: entry[_KEY] for id, entry in requests.metadata.items() if _KEY in entry}
    return {id: PendingApproval(**{name: entry[name] for name in names}) for id, entry in asked.items()}


def answered(requests: DeferredToolRequests, answers: Mapping[str, Answer]) -> DeferredToolResults:
    """Return the results with which a run continues after these answers, by the id of the tool call.

    A refusal takes the same way as an approval: Toolcrib records it and informs the model. Pydantic AI's own
    `ToolApproved` and `ToolDenied` work as well, in the process that asked. Raises `UsageError` for an answer without a
    question.
    """
    asked = questions(requests)
    for id in answers:
        if id not in asked:
            raise UsageError(f"no question of Toolcrib's is about the call {id!r}, only {', '.join(asked) or 'none'}")
    metadata = {id: {_KEY: {**requests.metadata[id][_KEY], "answer": _plain(answer)}} for id, answer in answers.items()}
    by = {id: answer.by for id, answer in answers.items() if answer.by}
    return DeferredToolResults(approvals=dict.fromkeys(answers, True), metadata=metadata, answered_by=by)


def _plain(answer: Answer) -> dict[str, Any]:
    plain = {"verdict": answer.verdict, "by": answer.by, "comment": answer.comment}
    return plain if answer.arguments is None else {**plain, "arguments": dict(answer.arguments)}


def _turn(ctx: RunContext[Any]) -> CallOptions:
    """Return who calls, and which of the calls of the model's answer this is."""
    last = ctx.messages[-1] if ctx.messages else None
    made = [call.tool_call_id for call in last.tool_calls] if isinstance(last, ModelResponse) else []
    place = made.index(ctx.tool_call_id) + 1 if ctx.tool_call_id in made else 0
    return {"origin": "pydantic_ai", "place": place, "together": max(len(made), 1)}


def _goes_on(ctx: RunContext[Any]) -> bool:
    """Whether a run continues the interaction of the one before: it has no prompt, or the results of calls."""
    last = ctx.messages[-1] if ctx.messages else None
    return last is not None and (ctx.prompt is None or (isinstance(last, ModelResponse) and bool(last.tool_calls)))


def _digest(arguments: Any) -> str:
    return hashlib.sha256(canonical(arguments)).hexdigest()


def _definition(tool: Tool, *, is_deferred: bool) -> ToolDefinition:
    about = {"source": tool.source, "category": tool.category, "kind": tool.kind, "tags": list(tool.tags)}
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=dict(tool.input_schema),
        return_schema=None if tool.output_schema is None else dict(tool.output_schema),
        sequential=tool.execution.serial,
        defer_loading=is_deferred,
        metadata={_KEY: about},
    )


def _entry(tool: ToolDefinition) -> IndexEntry:
    return IndexEntry(
        name=tool.name,
        leaf=tool.name,
        source="",
        description=tool.description or "",
        schema=tool.parameters_json_schema,
    )


def _returned(result: ToolResult) -> ToolReturn:
    """Return the content for the model, and beside it the part for the application alone. Raises `ToolFailed`."""
    text, media = parts(result)
    if result.is_error:
        raise ToolFailed(text)
    files = [file for file in map(_file, media) if file is not None]
    content = [*([text] if text else []), *files] if files else text
    metadata = {"structured_content": result.structured_content, "meta": dict(result.meta)}
    return ToolReturn(return_value=content, metadata=metadata)


def _file(media: Media) -> BinaryContent | None:
    """Return a picture or a PDF; None for one whose data cannot be read."""
    try:
        return BinaryContent(data=base64.b64decode(media.data, validate=True), media_type=media.kind)
    except ValueError:
        return None


def _text(prompt: str | Sequence[UserContent] | None) -> str:
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    return " ".join(part for part in prompt if isinstance(part, str))


class _AsSent:
    """Takes every argument as the model sent it: they are checked, and repaired where that can be, in the pipeline."""

    def validate_json(
        self,
        input: str | bytes | bytearray,
        *,
        allow_partial: bool | Literal["off", "on", "trailing-strings"] = False,
        **_: Any,
    ) -> dict[str, Any]:
        """Return the object that `input` is, or `input` under `_UNREAD`."""
        text = input if isinstance(input, str) else bytes(input).decode(errors="replace")
        try:
            value = read_json(text)
        except ValueError:
            value = None
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {_UNREAD: text}

    def validate_python(
        self, input: Any, *, allow_partial: bool | Literal["off", "on", "trailing-strings"] = False, **_: Any
    ) -> dict[str, Any]:
        """Return `input`, which a model adapter has read."""
        return dict(input)


_AS_SENT: Final = _AsSent()
