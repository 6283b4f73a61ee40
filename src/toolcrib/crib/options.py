"""What callers may say, by keyword, about a session and about one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from ..core.context import Peer
from ..core.permission import Approver
from ..errors import UsageError

__all__ = ["CallOptions", "InteractionOptions", "SessionOptions", "check_options"]


class CallOptions(TypedDict, total=False):
    """What a caller may say about one call besides its name and arguments."""

    timeout: float | None
    """Seconds; the session's limits cap it."""
    idempotency_key: str
    """A repeat with the same key and arguments gets the recorded outcome instead of a second run."""
    dry_run: bool
    """True: describe the effect, run nothing, ask nobody."""
    origin: str
    peer: Peer | None
    progress_token: str | int | None
    meta: Mapping[str, Any] | None
    resume: Mapping[str, Any] | None


class InteractionOptions(TypedDict, total=False):
    """What one interaction of a session needs; it holds until the next one begins."""

    tools: Iterable[str] | None
    """An exact set of tools by name, in this order: nothing else is shown or run. Empty is no tool at all."""
    required_capabilities: Iterable[str]
    """Capability tags that the task needs."""
    intent: Mapping[str, Any]
    """What is known of the task: `complexity`, `needs_plan`, `is_follow_up`, `skill_groups`, `required_tools`."""
    plan: Mapping[str, Any] | None
    """The plan that is worked on; `required_capabilities` and `required_skills` in it are honoured."""


class SessionOptions(InteractionOptions, total=False):
    """How a session is set up; what is not given comes from the crib's settings."""

    profile: str
    mode: str
    approver: Approver | None
    key: str
    principal: str
    instance: str
    allowed_tools: Iterable[str] | None
    """An exact set of names; a call outside is refused on every path."""
    context: Mapping[str, Any]
    """Argument values that calls get when their schema has such an argument and they give none."""
    contexts: Iterable[str]
    """Kinds of session that this is (`global`, `project` …): tools made for others are out of scope."""
    user: str
    """Whom the conversation serves, for tools that want to know."""
    grows: bool
    """False: the shown tools stand still, as MCP wants."""


def check_options(given: Iterable[str], known: type[CallOptions | InteractionOptions | SessionOptions]) -> None:
    """Raise `UsageError` for an option that does not exist: a misspelt `allowed_tools` must not mean every tool."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise UsageError(f"there is no option {name!r}, only {', '.join(names)}")
