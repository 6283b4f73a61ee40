"""Seed 004: the tools that a task needs are selected for it, in three levels, anew for every interaction.

  level 1   core tools, always included
  level 2   tools with the capabilities that the schema, the plan and the intent ask for
  level 3   the whitelist, over both

`analyse` finds what a task in words needs, before its interaction begins; an agent asks its model (`checked_intent`).
`select` decides and gives its reasons; the strategy shows the selection, and its meta-tool adds to it. `route` names
the one capability for a request.

Invocation types by the table of seed 004, and their effects.

  DIRECT         a standard tool: its function is called
  PROGRAMMATIC   a tool behind an API: a request to its configured endpoint; also calls that a program sends in numbers
  STREAMING      a tool that runs long or takes much input: its output is sent in pieces while the call lasts

The output of a generator tool is sent by its source, piece by piece. For a call with more than 10 KB of arguments, or a
tool declared streaming, the result goes to the listener in pieces of 4,096 characters before the call ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args

from ...core.call import Call
from ...core.context import Context
from ...core.json import dumps
from ...core.result import ToolResult
from ...core.tool import Tool
from .. import growing_list, meta_tools
from ..base import Strategy, View, VisibleCatalog
from .intent import CLASSIFICATION, SELECT, UNKNOWN_TASK, analyse, checked_intent, describe_choices
from .requirements import SelectionState, words
from .selector import FAILING, Candidate, Route, Selection, is_simple, route, select

__all__ = [
    "CHUNK",
    "CLASSIFICATION",
    "LARGE_INPUT",
    "MANY",
    "STRATEGY",
    "UNKNOWN_TASK",
    "Candidate",
    "Invocation",
    "Route",
    "Selection",
    "SelectionState",
    "analyse",
    "checked_intent",
    "deliver",
    "describe_choices",
    "invocation_of",
    "route",
    "select",
]

Invocation = Literal["DIRECT", "PROGRAMMATIC", "STREAMING"]

LARGE_INPUT: Final = 10 * 1024
"""Bytes of arguments as JSON."""
CHUNK: Final = 4096
"""Characters of one piece."""
MANY: Final = 2
"""Tools of a task of several; more than this are the work of a program."""

_ENDPOINTS: Final = ("openapi", "rest")
"""Origins whose tools are requests to an API."""
_PROGRAMS: Final = ("batch", "multi_tool", "orchestration")


def invocation_of(call: Call) -> Invocation | None:
    """Return the strategy of a call that is resolved; None where a plan recommends a skill in its place."""
    tool = call.target
    hint = str(tool.capability.metadata.get("invocation_hint", "")).upper()
    if hint in get_args(Invocation):
        return cast("Invocation", hint)
    if tool.execution.streaming:
        return "STREAMING"
    if _is_behind_api(tool):
        return "PROGRAMMATIC"
    if call.session.state_of(SelectionState).current_plan.get("recommended_skill"):
        return None
    if len(dumps(call.arguments)) > LARGE_INPUT:
        return "STREAMING"
    return "PROGRAMMATIC" if _is_one_of_many(call) else "DIRECT"


async def deliver(call: Call, result: ToolResult) -> ToolResult:
    """Return the result with `invocation` in its metadata, after sending a streamed one to the listener in pieces.

    A plan that a tool returns (`metadata: {plan: true}`) feeds the selection with what it needs.
    """
    plan = result.structured_content
    if not result.is_error and call.target.capability.metadata.get("plan") is True and isinstance(plan, Mapping):
        call.session.state_of(SelectionState).note_plan(cast("Mapping[str, Any]", plan))
    how = invocation_of(call)
    if how == "STREAMING" and not call.target.execution.streaming and not result.is_error:
        session = call.session
        context = Context(
            call_id=call.id,
            session_key=session.key,
            principal=session.principal,
            peer=call.client.peer,
            progress_token=call.client.progress_token,
            listener=call.client.listener,
        )
        for start in range(0, len(result.text), CHUNK):
            await context.output(result.text[start : start + CHUNK])
    return result.with_meta(invocation=how)


def _is_behind_api(tool: Tool) -> bool:
    return tool.origin in _ENDPOINTS or tool.capability.constraints.get("requires_api") is True


def _is_one_of_many(call: Call) -> bool:
    if call.turn.together > 1 or call.parent:
        return True
    intent = call.session.state_of(SelectionState).intent
    tools = len(words(intent.get("required_tools")))
    return str(intent.get("task_type", "")).lower() in _PROGRAMS and tools > MANY


def _view(visible: VisibleCatalog) -> View:
    """List the selected tools; the meta-tool that reads long results joins when one exists, if the list may grow."""
    selection = select(visible)
    session, profile = visible.session, visible.profile
    declared = meta_tools.definitions(profile, {**meta_tools.VERBS, **SELECT})
    way_out = profile.verbs.get("select", "")
    if session.audience.grows:
        is_closed = is_simple(visible) or session.scope.exact is not None or not selection.tools
        listed = {*session.history.loaded, *([] if is_closed else [way_out])}
        declared = tuple(tool for tool in declared if tool.name in listed)
    shown = {tool.name for tool in declared}
    later = growing_list.loaded_tools(visible)
    chosen = {tool.name: tool for tool in (*selection.tools, *(later if session.audience.grows else ()))}
    if not session.audience.grows:
        chosen = {name: tool for name, tool in chosen.items() if name not in session.state_of(SelectionState).selected}
    faces = (visible.declared(face) for tool in chosen.values() for face in visible.presentations(tool))
    tools = (face for face in faces if face.name not in shown)
    failing = [name for name, why in selection.left_out.items() if why == FAILING]
    return View(
        tools=(*tools, *declared),
        instructions=meta_tools.instructions(profile),
        callable=frozenset((*selection.names, *failing, *(tool.name for tool in later))),
    )


STRATEGY: Final = Strategy(
    view=_view,
    deliver=deliver,
    verbs=SELECT,
    options={
        "analyse": bool,
        "analyser": frozenset({"model", "ranking"}),
        "available": dict,
        "core_tools_override": list,
        "simple_task_tools": list,
        "skill_groups": dict,
        "tools": list,
        "unknown_task": frozenset({"all", "core"}),
    },
)
