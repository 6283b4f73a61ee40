"""Keyword options: of a crib, of a session and of one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict, cast

from ..catalog.names import nearest
from ..config import Settings, bare, load
from ..config.keys import KEYS
from ..core.context import Listener, Peer
from ..core.elicitation import Elicitor
from ..core.permission import Approver, Effect
from ..core.workspace import Workspace
from ..errors import UsageError
from ..results.limit import HINTS, Hint

__all__ = [
    "CallOptions",
    "InteractionOptions",
    "SessionOptions",
    "check_calls",
    "check_options",
    "check_values",
    "settings_of",
]

_OF_CRIB: Final = ("after", "before", "memory", "settings")
"""The keywords of `Toolcrib` that are no keys of the configuration."""


class CallOptions(TypedDict, total=False):
    """What a caller may say about one call besides its name and arguments."""

    timeout: float | None
    """Seconds; the session's limits cap it."""
    idempotency_key: str
    """A repeat with the same key and arguments gets the recorded outcome instead of a second run."""
    background: bool
    """True: go on in the background from the beginning; the result names the job, see `Toolcrib.jobs`."""
    takes_task: bool
    """True: the caller follows jobs by itself (an MCP client that knows tasks), and needs no tool for that."""
    version: str
    """The version of the tool to run, for this call alone; a session pins by its own option `versions`."""
    dry_run: bool
    """True: describe the effect, run nothing, ask no approver."""
    result_hint: Hint
    """How to shorten the result where the profile lets one say so (`selection`): skip, normal, force or search."""
    listener: Listener | None
    """Hears output and progress while the tool runs."""
    place: int
    """Of the calls of one answer of a model, which one this is, from 1: for hosts that make them one by one, so that
    their profile sees turns that go round in circles. 0 is no model's turn. `call_many` says it by itself."""
    together: int
    """How many calls that answer has."""
    origin: str
    client_name: str
    """Name and version of the program that calls, for the record."""
    parent: str
    """The id of the call on behalf of which it is made, that of a sub-agent for instance."""
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
    """The plan that is worked on; `required_capabilities`, `required_skills` and `required_tools` in it are honoured.
    None leaves it to the plan that the session's own tools made."""


class SessionOptions(InteractionOptions, total=False):
    """How a session is set up; what is not given comes from the crib's settings."""

    profile: str
    mode: str
    rules: Mapping[Effect, Sequence[str]]
    """Rules for this session, beside those of the configuration: `{"deny": ["Bash(git push:*)"]}`."""
    approver: Approver | None
    key: str
    principal: str
    instance: str
    allowed_tools: Iterable[str] | None
    """An exact set of names; a call outside is refused on every path."""
    available: Mapping[str, Any]
    """What there is for tools that need it: `network`, `auth` (true by default), `apis` (their names)."""
    elicitor: Elicitor | None
    """Answers the questions that tools have for the user; else the client's user is asked, where that is possible."""
    cwd: str | Path
    """Where the relative paths of its tools begin, instead of the process's working directory."""
    workspace: str | Path | Iterable[str | Path] | Workspace | None
    """The folders whose files its tools may work on, the first one for relative paths; None is no file at all."""
    task: str
    """The task that it works on: what waits for review belongs to it, and is there in its next session."""
    shadow: bool
    """True: its tools work in a git worktree of the task; the main tree changes when that is merged."""
    context: Mapping[str, Any]
    """Argument values that calls get when their schema has such an argument and they give none."""
    contexts: Iterable[str]
    """Kinds of session that this is (`global`, `project` …): tools made for others are out of scope."""
    versions: Mapping[str, str]
    """Versions that it pins, by the tool's name; an empty one follows the newest, as all others do."""
    user: str
    """Whom the conversation serves, for tools that want to know."""
    for_client: bool
    """True: an MCP client with limits of its own reads what the session gets. Results pass whole up to
    `results.pass_whole`, and the instructions of servers whose tools are shown are among the session's."""
    grows: bool | None
    """False: the shown tools stand still, as MCP 2026-07-28 wants. None: they grow only where a verb loads tools, for
    clients that get a notification of each change."""


def check_options(given: Iterable[str], known: type[CallOptions | InteractionOptions | SessionOptions]) -> None:
    """Raise `UsageError` for an option that does not exist: a misspelt `allowed_tools` must not mean every tool."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            how = "; a tool's arguments are one mapping: call(name, {…})" if known is CallOptions else ""
            raise UsageError(f"{_unknown(name, names)}{how}")


def _unknown(name: str, known: Iterable[str]) -> str:
    close = nearest(name, known, 1)
    meant = f"; did you mean {close[0]!r}?" if close else f", only {', '.join(known)}"
    return f"there is no option {name!r}{meant}"


def settings_of(given: Settings | str | Path | None, keywords: Mapping[str, Any]) -> Settings:
    """Return the settings of a crib: `given`, or those of a file and of keywords, which win over the file.

    Raises `ConfigError` for a file or a keyword that cannot be taken, as a configuration file would: with the place,
    the key and the nearest key. Raises `UsageError` for keywords beside settings.
    """
    if isinstance(given, Settings):
        if keywords:
            raise UsageError(
                f"{next(iter(keywords))}: settings take no keywords beside them; use settings.with_values(…)"
            )
        return given
    if given is not None and not isinstance(cast("Any", given), str | Path):
        raise UsageError(
            f"Toolcrib takes settings, the path of a configuration file or keywords, not {type(given).__name__}"
        )
    for name in keywords:
        if name not in KEYS and (close := nearest(name, (*KEYS, *_OF_CRIB), 1)) and close[0] in _OF_CRIB:
            raise UsageError(_unknown(name, close))
    if given is None and not keywords:
        return bare()
    return load(None if given is None else (given,), keywords)


def check_values(given: CallOptions) -> None:
    """Raise `UsageError` for a `timeout` that is no number, and for a `result_hint` that does not exist."""
    timeout = cast("Any", given.get("timeout"))
    if timeout is not None and not isinstance(timeout, int | float):
        raise UsageError(f"timeout: a number of seconds was expected, not {timeout!r}")
    hint = given.get("result_hint")
    if hint is not None and hint not in HINTS:
        raise UsageError(f"result_hint: there is no hint {hint!r}, only {', '.join(HINTS)}")


def check_calls(calls: Iterable[Any]) -> None:
    """Raise `UsageError` for what is no pair of a name and arguments, with its place."""
    for place, call in enumerate(calls):
        pair = cast("Sequence[Any]", call) if isinstance(call, tuple | list) else ()
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError(f"calls[{place}]: takes a pair (name, arguments)")
