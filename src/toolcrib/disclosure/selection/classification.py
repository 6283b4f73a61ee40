"""Classification of a task by a model: the choices that it is given, the schema of its answer, and the checked intent.

The ranking proposes and the model chooses: it reads the groups of skills and the tools that fit the words of the task,
not the whole catalog. This module makes no request; the agent does (`toolcrib_agent.task_analysis`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...core.sanitize import clip
from ..base import VisibleCatalog
from .requirements import all_groups, selectable_tools, with_earlier_tools, words

__all__ = ["CLASSIFICATION", "UNKNOWN_TASK", "checked_intent", "describe_choices"]

_PROPOSED: Final = 20
"""Tools that the model can choose from."""
_DESCRIPTION: Final = 120
"""Characters of the description of one."""
_MOST: Final = 12
"""Tools and groups that an intent brings in at most; a model that names everything has chosen nothing."""
_COMPLEXITIES: Final = ("simple", "medium", "complex")

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
    listed = (f"- {visible.labels.name(tool)}: {clip(tool.summary, _DESCRIPTION)}" for tool in tools)
    sections = (("Groups of skills:", all_groups(selectable).described()), ("Tools:", "\n".join(listed)))
    return "\n\n".join(f"{title}\n{lines}" for title, lines in sections if lines)


def checked_intent(visible: VisibleCatalog, answer: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    """Return the intent that a model's answer states; what is invalid in it has no effect.

    An unknown complexity is medium, a flag that is not a boolean is false, unknown names are left out. The group of a
    skill that the task names literally is in it, whether the model chose it or not.
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
        "required_tools": [visible.labels.name(selectable.tools[name]) for name in dict.fromkeys(tools)][:_MOST],
    }
    return with_earlier_tools(visible, intent)
