"""Needs of a task, found before its interaction begins: the intent stage of seed 004, by our ranking or by a model.

`analyse` asks no model. The tools that the ranking finds for the words of the task are required; how much of a task it
is shows in its length, in its steps and in what its best tool does. A task for which nothing is found is of medium
complexity, and nothing is narrowed.

Where a model classifies the task, the ranking proposes and the model chooses: it reads the groups of skills and the
tools that fit the words of the task (`describe_choices`), not the whole catalog, and `checked_intent` reads its answer.
The request is made by the agent (`toolcrib_agent.task_analysis`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.sanitize import clip
from ..base import Verb, VerbContext, VisibleCatalog, answer, object_schema
from .requirements import (
    SelectionState,
    Wanted,
    all_groups,
    expand_groups,
    require,
    selectable_tools,
    wanted,
    with_earlier_tools,
    words,
)
from .selector import select, unavailable

if TYPE_CHECKING:
    from ...catalog.ranking.terms import Hit

_FOUND: Final = 5
"""Tools that a task in words brings in at most."""
_LEAST: Final = 0.5
"""Share of the best tool's score that another one needs to be required, too."""
_SIMPLE: Final = 25
"""Words of a task up to which one step is simple."""
_COMPLEX: Final = 120
_GREETING: Final = 3
"""Words of a task for which no tool is found, up to which it needs none."""
_SELECTED: Final = 12
"""Tools that one call of the meta-tool adds at most."""
_WORDS: Final = regex(r"\w+")
_STEPS: Final = regex(
    r"^\s*(?:[-*•]|\d+[.)])\s|\b(?:then|after(?:wards| that)|finally|next|first|second|third)\b|;",
    re.IGNORECASE | re.MULTILINE,
)
"""Beginnings of a further step: list items, words of order, semicolons."""
_FOLLOWS: Final = regex(
    r"\s*(?:and|also|now|again|it|that|this|these|those|the same|continue|go on|yes|no|ok)\b", re.IGNORECASE
)
_FEW: Final = 8
"""Words of a request that can only be understood by the messages before it."""

_PROPOSED: Final = 20
"""Tools that the model can choose from."""
_DESCRIPTION: Final = 120
"""Characters of the description of one."""
_MOST: Final = 12
"""Tools and groups that an intent brings in at most; a model that names everything has chosen nothing."""
_COMPLEXITIES: Final = ("simple", "medium", "complex")

_LIST: Final = {"type": "array", "items": {"type": "string"}}


def analyse(visible: VisibleCatalog, task: str, *, follows: bool) -> Mapping[str, Any]:
    """Return the intent of a task in words; `follows` says that a conversation goes before it.

    Costs one search of the catalog.
    """
    steps, length = len(_STEPS.findall(task)), len(_WORDS.findall(task))
    is_follow_up = follows and length <= _FEW and _FOLLOWS.match(task) is not None
    required = _required(visible, task)
    best = visible.find(required[0]) if required else None
    is_small = best.kind == "read" if best is not None else length <= _GREETING
    complexity = "simple" if is_small and length <= _SIMPLE and not steps else "medium"
    if length > _COMPLEX or steps > 2:
        complexity = "complex"
    intent: dict[str, Any] = {"complexity": complexity, "is_follow_up": is_follow_up}
    return with_earlier_tools(visible, {**intent, "needs_plan": complexity != "simple", "required_tools": required})


def _required(visible: VisibleCatalog, task: str) -> list[str]:
    """Return the names of the tools that fit the words of a task, best first; the core is there without them."""
    selectable = selectable_tools(visible)
    hits: list[Hit] = visible.catalog.search(
        task, _FOUND, allowed=lambda name: name in selectable.tools, boost=visible.boost
    )
    best = max((hit.score for hit in hits), default=0.0)
    fitting = (selectable.tools[hit.name] for hit in hits if hit.exact or hit.score >= _LEAST * best)
    return [visible.aliases.name(tool) for tool in fitting if not unavailable(visible, tool)]


CLASSIFICATION: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "complexity": {
            "type": "string",
            "enum": list(_COMPLEXITIES),
            "description": "simple: one step, answered or read at once. medium: a few steps. complex: needs a plan.",
        },
        "is_follow_up": {"type": "boolean", "description": "True if it continues the work of earlier messages."},
        "relevant_skill_groups": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of groups that the task needs; often none.",
        },
        "required_tools": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of listed tools that the task needs; often none.",
        },
    },
    "required": ["complexity", "is_follow_up", "relevant_skill_groups", "required_tools"],
    "additionalProperties": False,
}
"""JSON Schema of the model's answer."""


UNKNOWN_TASK: Final[Mapping[str, Any]] = {"complexity": "medium", "is_follow_up": False, "needs_plan": True}
"""Intent of a task that could not be analysed: nothing is narrowed."""


def describe_choices(visible: VisibleCatalog, task: str) -> str:
    """Return the groups of skills, and the tools that fit the words of the task, one a line."""
    selectable = selectable_tools(visible)
    hits = visible.catalog.search(task, _PROPOSED, allowed=lambda name: name in selectable.tools, boost=visible.boost)
    tools = (selectable.tools[hit.name] for hit in hits)
    listed = (f"- {visible.aliases.name(tool)}: {clip(tool.summary, _DESCRIPTION)}" for tool in tools)
    sections = (("Groups of skills:", all_groups(selectable).described()), ("Tools:", "\n".join(listed)))
    return "\n\n".join(f"{title}\n{lines}" for title, lines in sections if lines)


def checked_intent(visible: VisibleCatalog, answer: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    """Return the intent that a model's answer states; what is invalid in it has no effect.

    An unknown complexity is medium, a flag that is not a boolean is false, unknown names are left out. The group of a
    skill that the task names literally is in it, whether the model chose it or not.

    The answer is a model's: every part of it is checked, and at most `_MOST` names of each kind are taken.
    """
    selectable = selectable_tools(visible)
    groups, named = all_groups(selectable), words(answer.get("relevant_skill_groups"))
    unknown = groups.expand(named).unknown
    chosen = groups.named_in(task, [name for name in named if name not in unknown][:_MOST])
    tools = [name for word in words(answer.get("required_tools")) for name in selectable.by_name(word)]
    complexity = answer.get("complexity")
    complexity = complexity if complexity in _COMPLEXITIES else "medium"
    intent = {
        "complexity": complexity,
        "is_follow_up": answer.get("is_follow_up") is True,
        "needs_plan": complexity != "simple",
        "relevant_skill_groups": list(chosen),
        "required_tools": [visible.aliases.name(selectable.tools[name]) for name in dict.fromkeys(tools)][:_MOST],
    }
    return with_earlier_tools(visible, intent)


async def _select(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    """Add tools to the selection of this interaction."""
    state = visible.session.state_of(SelectionState)
    selectable, limit = selectable_tools(visible), wanted(selectable_tools(visible)).whitelist
    found = Wanted()
    task = str(arguments.get("task") or "")
    by_words = _required(visible, task) if task else []
    require(selectable, (*words(arguments.get("names")), *by_words), "the call", found, by_name=True)
    require(selectable, words(arguments.get("capabilities")), "the call", found)
    expand_groups(selectable, words(arguments.get("skill_groups")), found)
    names = dict.fromkeys((*found.names, *(name for tag in found.tags for name in selectable.tagged(tag))))
    added: list[str] = []
    before = set(select(visible).names)
    for name in names:
        tool = selectable.tools[name]
        if why := unavailable(visible, tool):
            found.warnings.append(f"{visible.aliases.name(tool)} is left out: {why}")
        elif limit is not None and name not in limit:
            found.warnings.append(f"{visible.aliases.name(tool)} is left out: the whitelist does not name it")
        elif name not in before and len(added) < _SELECTED:
            added.append(name)
    if visible.session.scope.exact is not None:
        added, found.warnings = [], ["the tools of this interaction are an exact set"]
    state.selected = (*state.selected, *added)
    there = [name for name in names if name in before or name in added]
    reason = f"they fit {task!r}" if by_words else "they were asked for" if there else "nothing here fits"
    shown: dict[str, Any] = {
        "names": [visible.aliases.name(selectable.tools[name]) for name in there],
        "added": [visible.aliases.name(selectable.tools[name]) for name in added],
        "reason": reason[:200],
        "warnings": found.warnings,
    }
    return answer(shown)


SELECT: Final[Mapping[str, Verb]] = {
    "select": Verb(
        description="Get tools for this task that are not listed: say what you want to do, or name them.",
        input_schema=object_schema(
            [],
            task={"type": "string", "description": "What the tools are for, in a few words."},
            names={**_LIST, "description": "Names of tools or skills."},
            capabilities={**_LIST, "description": "Capability tags or categories."},
            skill_groups={**_LIST, "description": "Groups of skills."},
        ),
        run=_select,
        loads=True,
    )
}
