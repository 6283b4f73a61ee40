"""Roles of background sub-agents: instructions, tools, model and limits, from a profile or from the call itself.

A role takes away from what the parent has, and never gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace
from pydantic_ai.models import Model

from toolcrib.errors import ToolFailure, UsageError

from ..agent_setup import AgentSetup
from ..limits import AgentLimits
from ..models import model_of
from ..prompts import Project, PromptFacts
from ..tools import SHARE
from .profiles import find_profile, resolve_tools

_BACKGROUND_INSTRUCTIONS: Final = (
    "You work in the background for another agent, which sees the last answer of each of your turns, and what you"
    " share with it, and nothing else: put everything it needs in there, with names, paths and figures. It may send you"
    " messages. Do the task alone, and say what you could not do."
)
_PROJECT_PROFILE_HEADING: Final = "The instructions of the sub-agent profile {name} came with the project: {path}"


class Role(Struct, frozen=True, kw_only=True):
    """Role of a background sub-agent, without its task."""

    facts: PromptFacts
    limits: AgentLimits
    model: Model
    tool_names: frozenset[str] | None
    max_turns: int | None


async def profile_role(setup: AgentSetup, name: str) -> Role:
    """Return the role that a profile describes. Raises `ToolFailure` if it is missing or wrong."""
    profile = await find_profile(setup.session, name)
    tool_names: frozenset[str] | None = None
    for words in profile.restrictions:
        names = _resolve_tools(setup, words)
        tool_names = names if tool_names is None else tool_names & names
    model = setup.model
    if profile.values.model:
        try:
            model = await to_thread.run_sync(model_of, profile.values.model)
        except UsageError as error:
            raise ToolFailure("unavailable", f"the model of the profile {name} cannot be used: {error}") from error
    text, project = profile.values.system_instructions, setup.facts.project
    if profile.is_from_project and text:
        heading = _PROJECT_PROFILE_HEADING.format(name=name, path=profile.path)
        whole = "\n\n".join(filter(None, (project.text if project is not None else "", f"{heading}\n{text}")))
        path = (project.path if project is not None else "") or profile.path
        project = Project(path=path, text=whole, is_whole=project is None or project.is_whole)
        text = ""
    role = _make_role(setup, text, tool_names, profile.values.max_turns)
    return replace(role, model=model, facts=replace(role.facts, project=project))


def inline_role(setup: AgentSetup, config: Mapping[str, Any]) -> Role:
    """Return the role that `inline_config` describes. Raises `ToolFailure` for a tool that is not there."""
    tool_names = _resolve_tools(setup, config["plugins"]) if config.get("plugins") else None
    role = _make_role(setup, config.get("system_instructions", ""), tool_names, config.get("max_turns"))
    percent = config.get("gc", {}).get("threshold_percent")
    if percent is None:
        return role
    full = percent / 100
    return replace(role, limits=replace(role.limits, compact_at=full, keep=min(role.limits.keep, full / 2)))


def _make_role(setup: AgentSetup, text: str, tool_names: frozenset[str] | None, max_turns: int | None) -> Role:
    """Return a role in the limits of the parent; what it may share with the parent is never taken away."""
    limit = setup.limits.spawned_turns
    instructions = "\n".join(filter(None, (setup.facts.instructions, _BACKGROUND_INSTRUCTIONS, text.strip())))
    return Role(
        facts=replace(setup.facts, instructions=instructions),
        limits=replace(setup.limits, requests=setup.limits.spawned_requests),
        model=setup.model,
        tool_names=None if tool_names is None else tool_names | {SHARE},
        max_turns=limit if max_turns is None else max_turns if limit is None else min(max_turns, limit),
    )


def _resolve_tools(setup: AgentSetup, words: Iterable[str]) -> frozenset[str]:
    """Return the tools that the words name. Raises `ToolFailure` if one of them names none."""
    names, unknown = resolve_tools(setup.session, words)
    if unknown:
        message = f"there is no tool and no category {', '.join(map(repr, unknown))} in this session"
        raise ToolFailure("invalid_arguments", message, hint="a sub-agent has tools of yours: name those")
    return names
