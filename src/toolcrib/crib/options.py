"""Keyword options: of a crib, of a session and of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Final, TypedDict, cast

from ..config import Settings, bare, load
from ..config.keys import KEYS
from ..core.budget import Budgets
from ..core.context import Listener, Peer
from ..core.elicitation import Clarification, Elicitor
from ..core.permission import Answer, Approver, Effect, Question
from ..core.session import Limits
from ..core.similar import did_you_mean, nearest
from ..core.workspace import Workspace
from ..errors import UsageError
from ..mcp.client.spec import ServerSpec
from ..results.limit import HINTS, Hint
from ..telemetry.settings import TelemetryOptions
from .named_servers import without_objects

_LISTS: Final = ("allowed_tools", "contexts", "required_capabilities", "tools")
_OF_CRIB: Final = ("after", "before", "memory", "settings")
"""The keywords of `Toolcrib` that are not keys of the configuration."""
_ADDED: Final = "functions are added with crib.add(function)"
_FILE_FIRST: Final = "the path of a configuration file is the first argument: Toolcrib('toolcrib.yaml')"
_OTHER_LIBRARIES: Final[Mapping[str, str]] = {
    "config": _FILE_FIRST,
    "config_file": _FILE_FIRST,
    "database": "the record and the state are kept where the keyword 'store' says",
    "functions": _ADDED,
}
"""Replacements for keywords of other libraries."""


class CribOptions(TypedDict, total=False):
    """Keys of the configuration as keywords of `Toolcrib`, for editors; its reference describes each.

    A section is a mapping, or a value of its type (`TelemetryOptions`). A duration is seconds, or a text such as `30s`.
    """

    accept: bool
    admin_token: str
    approval_wait: float
    approvals: Mapping[str, Any]
    budgets: Mapping[str, Any] | Budgets
    builtins: bool | Sequence[str]
    catalogs: Sequence[str | Path | Mapping[str, Any]]
    chat: Mapping[str, Any]
    daemon: Mapping[str, Any]
    drain: float | str
    first_list_timeout: float | str
    guard: bool
    host: str
    hosts: Sequence[str]
    identities: Mapping[str, Mapping[str, Any]]
    jobs: Mapping[str, Any]
    limits: Mapping[str, Any] | Limits
    lock: str | Path
    mcpServers: Mapping[str, Mapping[str, Any]]
    mode: str
    modes: Mapping[str, Mapping[str, Any]]
    no_prefix: bool
    origins: Sequence[str]
    plugins: Mapping[str, Any]
    port: int
    profile: str
    profiles: Mapping[str, Mapping[str, Any]]
    ranking: Mapping[str, Any]
    ready_timeout: float | str
    records: Mapping[str, Any]
    redact: Sequence[str]
    registration: Mapping[str, Any]
    results: Mapping[str, Any]
    rules: Mapping[str, Sequence[str]]
    servers: Mapping[str, Any]
    shell: Mapping[str, Any]
    skills: bool | Sequence[str | Path] | Mapping[str, Any]
    sources: Mapping[str, Mapping[str, Any]]
    store: str | Path | Mapping[str, Any] | None
    telemetry: Mapping[str, Any] | TelemetryOptions
    token: str
    tokens: Sequence[Mapping[str, Any]]
    tool_permissions: Mapping[str, str]
    tools: Mapping[str, Any]
    untrusted: Mapping[str, Any]
    versions: Mapping[str, str]
    workflows: Mapping[str, Mapping[str, Any]]
    workspace: str | Path | Mapping[str, Any]


class ApiOptions(TypedDict, total=False):
    """Options of an API that `Toolcrib.load` mounts: the keys of an entry of `sources.openapi`."""

    app: Any
    """An ASGI application of this process that answers the calls, where its description is given by itself."""
    base_url: str
    """Address of the API, else the first server of its description."""
    auth: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    """Credentials: `{"type": "bearer", "token": …}`, or of type `basic`, `api_key` or `oauth2`."""
    headers: Mapping[str, str]
    """Sent with every call."""
    include: Sequence[str]
    """Tags, operation ids or `METHOD /path`, with `*` and `?`; else all operations."""
    exclude: Sequence[str]
    allow_private: bool
    """True: it may be at a loopback or private address."""
    timeout: float | str
    annotations: Mapping[str, Mapping[str, bool]]
    """MCP hints by tool, over those of the HTTP methods."""
    trusted: bool
    """Whether its answers count as the program's own; true by default for an application of this process."""


class CallOptions(TypedDict, total=False):
    """Options of one call, besides its name and arguments."""

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
    """Shortening of the result, in a profile that has the choice (`selection`): skip, normal, force or search."""
    listener: Listener | None
    """Hears output and progress while the tool runs."""
    place: int
    """Of the calls of one answer of a model, which one this is, from 1: for hosts that make them one by one, so that
    their profile sees turns that go round in circles. 0 is not a model's turn. `call_many` says it by itself."""
    together: int
    """Number of calls in that answer."""
    id: str
    """An id of the call that its caller knows before; no other call may have it."""
    is_again: bool
    """True: an earlier process was given the call under this id. What it began is not begun again, unless the call is a
    read or idempotent."""
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
    """Options of one interaction of a session; they hold until the next one begins."""

    tools: Iterable[str] | None
    """An exact set of tools by name, in this order: nothing else is shown or run. Empty shows no tool at all."""
    required_capabilities: Iterable[str]
    """Capability tags that the task needs."""
    intent: Mapping[str, Any]
    """Analysis of the task: `complexity`, `needs_plan`, `is_follow_up`, `skill_groups`, `required_tools`."""
    plan: Mapping[str, Any] | None
    """The plan that is worked on; `required_capabilities`, `required_skills` and `required_tools` in it are honoured.
    None leaves it to the plan that the session's own tools made."""


class SessionOptions(InteractionOptions, total=False):
    """Options of a session; one that is not given comes from the crib's settings."""

    profile: str
    mode: str
    rules: Mapping[Effect, Sequence[str]]
    """Rules for this session, beside those of the configuration: `{"deny": ["Bash(git push:*)"]}`."""
    approver: Approver | Callable[[Question], Answer] | None
    key: str | None
    principal: str
    instance: str
    allowed_tools: Iterable[str] | None
    """An exact set of names; a call outside is refused on every path."""
    available: Mapping[str, Any]
    """Resources for tools that need them: `network`, `auth` (true by default), `apis` (their names)."""
    elicitor: Elicitor | Callable[[Clarification], str | None] | None
    """Answers the questions that tools have for the user; else the client's user is asked, if possible."""
    cwd: str | Path
    """Folder of its tools' relative paths, instead of the process's working directory."""
    workspace: str | Path | Iterable[str | Path] | Workspace | None
    """The folders whose files its tools may work on, the first one for relative paths; None allows no file at all."""
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
    """User of the conversation, for tools that read it."""
    for_client: bool
    """True: an MCP client with limits of its own reads what the session gets. Results pass whole up to
    `results.pass_whole`, and the instructions of servers whose tools are shown are among the session's."""
    grows: bool | None
    """False: the shown tools stand still, as MCP 2026-07-28 wants. None: they grow only where a verb loads tools, for
    clients that get a notification of each change."""


def check_options(given: Mapping[str, Any], known: type[CallOptions | InteractionOptions | SessionOptions]) -> None:
    """Raise `UsageError` for an option that does not exist, and for one text where several are expected.

    A misspelt `allowed_tools` must not mean every tool, and a text must not be read as a list of its letters.
    """
    names = known.__annotations__
    for name, value in given.items():
        if name not in names:
            how = "; a tool's arguments are one mapping: call(name, {…})" if known is CallOptions else ""
            raise UsageError(_unknown(name, names, how))
        if name in _LISTS and isinstance(value, str):
            raise UsageError(f"{name} is a list of names, not the text {value!r}; write {name}=[{value!r}]")


def _unknown(name: str, known: Iterable[str], how: str = "") -> str:
    close = did_you_mean(name, known)
    return f"there is no option {name!r}" + (close or f"{how}; options are {', '.join(known)}")


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
            "Toolcrib takes settings, the path of a configuration file or keywords, "
            f"not {type(given).__name__}; {_ADDED}"
        )
    _check_keywords(keywords)
    if given is None and not keywords:
        return bare()
    values = {name: _as_text(value) for name, value in keywords.items()}
    objects: list[ServerSpec] = []
    if isinstance(servers := values.get("servers"), Mapping):
        values["servers"], objects = without_objects(cast("Mapping[str, Any]", servers))
    settings = load(None if given is None else (given,), values)
    return settings.with_values(servers=(*settings.sources.servers, *objects)) if objects else settings


def _check_keywords(keywords: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a keyword that belongs elsewhere; what is wrong with any other one, the loader says."""
    if isinstance(keywords.get("tools"), list | tuple):
        raise UsageError(f"tools: options by name of the tool were expected; {_ADDED}")
    for name in keywords:
        if (instead := _OTHER_LIBRARIES.get(name)) is not None:
            raise UsageError(f"there is no option {name!r}; {instead}")
        if name in KEYS:
            continue
        if name in SessionOptions.__annotations__:
            raise UsageError(f"there is no option {name!r} of a Toolcrib; sessions have it: crib.session({name}=…)")
        if (close := nearest(name, (*KEYS, *_OF_CRIB), 1)) and close[0] in _OF_CRIB:
            raise UsageError(_unknown(name, close))


def _as_text(value: Any) -> Any:
    """Return a path, alone or in a list, as the text that a file has in its place."""
    if isinstance(value, list | tuple):
        return [_as_text(one) for one in cast("Sequence[Any]", value)]
    return str(value) if isinstance(value, Path) else value


def check_values(given: CallOptions) -> None:
    """Raise `UsageError` for values that would be ignored, or fail once the tool runs."""
    timeout = cast("Any", given.get("timeout"))
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise UsageError(f"timeout: a number of seconds above 0 was expected, not {timeout!r}")
    listener = cast("Any", given.get("listener"))
    if listener is not None:
        if iscoroutinefunction(listener):
            raise UsageError(
                "listener is called and not awaited while the tool runs; use `def`, and start a task in it"
            )
        if not callable(listener):
            raise UsageError(f"listener: a function of one update was expected, not {type(listener).__name__}")
    hint = given.get("result_hint")
    if hint is not None and hint not in HINTS:
        raise UsageError(f"result_hint: there is no hint {hint!r}, only {', '.join(HINTS)}")


def check_calls(calls: Any) -> None:
    """Raise `UsageError` for anything but a list of pairs of a name and arguments, with the place of a wrong one."""
    if not isinstance(calls, list | tuple):
        raise UsageError(f"calls: a list of pairs (name, arguments) was expected, not {type(calls).__name__}")
    for place, call in enumerate(cast("Sequence[Any]", calls)):
        pair = cast("Sequence[Any]", call) if isinstance(call, tuple | list) else ()
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise UsageError(f"calls[{place}]: takes a pair (name, arguments)")
