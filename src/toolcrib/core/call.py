"""The call: the immutable value that travels through the pipeline. Each step returns a new one.

The two forms of a call's arguments, made here alone for every reader of a call.

    effective   what runs: the tool's own argument names, the values of the caller, then the context values of the
                session, then the schema's defaults. The tool's body, the grant, the hash of an approval, receipts and
                the detection of loops take this form. So does the policy: a rule that names an argument sees its value
                wherever that comes from
    canonical   the effective form without the arguments, at any depth, that are null because null is their default,
                whether the caller wrote it or not; a null that a context value would replace stays. People, records and
                telemetry get this form. Every other default stays: who approves a call sees what will run

Each form determines the other: completing the canonical form gives the effective one, to the byte of its JSON. Where
that does not hold (defaults that make a valid call invalid are not filled in, see `Validator.accept`), canonical is
effective. What reads commands, paths and links out of arguments takes any null for an argument that is not given.

The argument names of a profile become the tool's own before, in the step `resolve`.

The fields that steps set, in the order of the steps (`dispatch.pipeline`):

    Resolve            tool, name, route; of a meta-tool the arguments and options of the call that it stands for
    Repair … Validate  arguments, changes, references
    CheckBudget        charged
    Decide             decision
    ReplayOrDescribe   reserved
    Approve            grant; where a person is asked also implementation, and approval once the answer is used
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Self, cast

from msgspec import Struct
from msgspec.structs import replace

from .context import Listener, Peer
from .kept_secrets import SIGN, placeholders_in
from .permission import Decision, Grant
from .result import Trust
from .schema import FieldError, Validator, ValidatorCache
from .session import SessionState
from .tool import Kind, Tool

OF_CLIENTS: Final = frozenset({"mcp", "rest"})
"""Origins of calls of a tool that clients make, over MCP and over REST: a model may read the result."""
UNREAD: Final = frozenset({"cli", "resource", "schedule", "service"})
"""Origins of calls that a person or a program made beforehand: no model reads the result and chooses the next call."""
NESTED: Final = "batch"
"""Origin of a call whose tool the caller of another call named among its arguments: a batch, a started job."""
VIEW: Final = "view"
"""Origin of the calls by which a page of the console reads what it shows; a click there makes calls of `console`."""
_NO_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType({})
_VALIDATORS: Final = ValidatorCache()
"""By the digest of a tool's definition, so that every crib of a process may share it."""


def validator_of(tool: Tool) -> Validator:
    """Return the validator of a tool's arguments. Raises `ValueError` for a schema that cannot be compiled."""
    return _VALIDATORS.of(tool)


def complete_arguments(
    tool: Tool, given: Any, defaults: Mapping[str, Any] = _NO_DEFAULTS
) -> tuple[Any, tuple[FieldError, ...]]:
    """Return the effective arguments, and every error of them; with an error, `given` comes back as it was.

    `defaults` are the session's context values, for declared arguments that the caller left out. Nothing is coerced.
    Raises `ValueError` for a tool whose schema cannot be compiled.
    """
    validator = _VALIDATORS.of(tool)
    if defaults:
        given = _with_context(tool, given, defaults)
    return validator.accept(given)


def effective_arguments(
    tool: Tool, given: Mapping[str, Any], defaults: Mapping[str, Any] = _NO_DEFAULTS
) -> Mapping[str, Any]:
    """Return the effective arguments of a call, valid or not, for a decision on it; effective ones come back unchanged.

    Defaults are filled into invalid arguments as well, although no call runs with them. Raises `ValueError` as
    `complete_arguments` does.
    """
    validator = _VALIDATORS.of(tool)
    if defaults:
        given = _with_context(tool, given, defaults)
    return validator.complete(given)


def canonical_arguments(tool: Tool, effective: Any, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> Any:
    """Return the canonical form of effective arguments; values without one (not JSON) unchanged.

    `defaults` are the session's context values: a null that one of them would replace stays, so that arguments which an
    approver edits and which are completed again have the meaning that the approver read.
    """
    try:
        stripped = _VALIDATORS.of(tool).strip_nulls(effective)
    except (TypeError, ValueError, RecursionError):  # a call that is refused for just that is recorded all the same
        return effective
    if stripped is effective or not defaults:
        return stripped
    filled = context_values(tool, defaults)
    return {name: value for name, value in effective.items() if name in stripped or name in filled} | stripped


def _with_context(tool: Tool, given: Any, defaults: Mapping[str, Any]) -> Any:
    """Add context values for declared arguments that the caller left out, those in `tool.explicit` excepted."""
    if not isinstance(given, Mapping):
        return given
    sent = cast("Mapping[str, Any]", given)
    declared = tool.input_schema.get("properties", {})
    missing = {
        name: value for name, value in context_values(tool, defaults).items() if name in declared and name not in sent
    }
    return {**sent, **missing} if missing else sent


def default_key(name: str, category: str) -> str:
    """Return the key of a context value that is for the tools of one category."""
    return f"{category}/{name}" if category else name


def context_values(tool: Tool, defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the session's context values that fill arguments of a tool, by name; those in `tool.explicit` excepted.

    A value for the tool's category fills what the tool requires, and takes the place of the session's own value. It
    fills no optional argument by itself: left out, such a filter means "all", and a tool that ran cannot change that.

        {"tasks/project": 7}                  7 for a tool of `tasks` that requires `project`, none for any other
        {"project": 1, "tasks/project": 7}    7 for each tool of `tasks` that declares `project`, 1 for any other

    The names may include arguments that the tool does not declare.
    """
    if not defaults:
        return defaults
    values = {name: value for name, value in defaults.items() if "/" not in name}
    required = tool.input_schema.get("required") or ()
    for name in {*values, *required} if len(values) < len(defaults) else ():
        key = default_key(name, tool.category)
        if key in defaults:
            values[name] = defaults[key]
    for name in tool.explicit:
        values.pop(name, None)
    return values


class Reference(Struct, frozen=True, kw_only=True):
    """Reference to an artifact inside the arguments of a call.

    `Expand` puts the content into the arguments, and keeps this beside it for all who show the call.
    """

    path: tuple[str | int, ...]
    """Names and places, from the arguments down."""
    display: Mapping[str, Any]
    """Value for display and storage: the reference, and size, hash and beginning of the content."""
    trust: Trust = "local"
    """Trust of the content."""


TRACE: Final = ("traceparent", "tracestate", "baggage")
"""Trace context: keys of `_meta`, unprefixed (SEP-414), and headers of HTTP."""


def trace_of(meta: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the trace context in the metadata of a request, and nothing else of them."""
    return {key: str(meta[key]) for key in TRACE if key in meta} if meta else {}


class Client(Struct, frozen=True, kw_only=True):
    """Client of a call: the receiver of its messages, and the metadata of its request.

    A saved call keeps `meta` and `client_name` of it and nothing else (`core.saved_call`).
    """

    peer: Peer | None = None
    progress_token: str | int | None = None
    listener: Listener | None = None
    """Receives output and progress while the tool runs."""
    meta: Mapping[str, Any] | None = None
    resume: Mapping[str, Any] | None = None
    client_name: str = ""
    """Name and version of the client's program, as it declares them: `claude-code/2.1`."""


class Options(Struct, frozen=True, kw_only=True):
    """Conditions of one call that its caller sets.

    Frozen, and shared: most calls have `USUAL`, so that a call without options costs no object.
    """

    timeout: float | None = None
    """Seconds the caller allows; None takes the tool's or the session's."""
    only: Kind | None = None
    """`read`: the caller vouched for a call without side effects, anything else is refused."""
    dry_run: bool = False
    background: bool = False
    """Answer at once and let the work go on."""
    takes_task: bool = False
    """Whether the caller can follow a job by its id without our tools: it may then be answered with one."""
    job_seconds: float | None = None
    """Time limit of a call that may go on in the background, in place of the session's limits."""
    is_again: bool = False
    """An earlier process was given it under the same id, and may have begun it."""
    is_stored: bool = False
    """A stored job makes it: its end is on disk before it is reported, and gives the idempotency key back."""
    idempotency_key: str = ""
    result_hint: str = ""
    """Style of shortening the result (`results.limit.HINTS`); empty leaves it to the tool."""
    raw: bool = False
    """Made by a workflow or a tool, no model: named as the catalog does, the result neither cut nor in an envelope."""
    version: str = ""
    """The version of the tool that this call pins, independent of its session; empty without a pin."""
    ask: bool = False
    """A person has to approve it, also where rules and mode allow it: a step of a workflow with `approval`."""

    @property
    def is_special(self) -> bool:
        """Whether they decide which tool the call means, or may mean."""
        return self.raw or bool(self.version) or self.only is not None


class Route(Struct, frozen=True, kw_only=True):
    """Path from the requested name to the tool, in the profile's words."""

    requested: str = ""
    """The name at the way in, when a meta-tool or an alias stood for the real tool."""
    op: str = ""
    """The op by which the profile knows the tool, where the tool names none itself."""
    reading: Mapping[str, Any] | None = None
    """Entries for the profile's envelope: `op`, `warnings`, `fallback`."""
    verb: str = ""
    """The meta-tool through which it came (`call`, `exec` …); empty for a call by the tool's own name."""
    is_unlisted: bool = False
    """The client called by its name a tool that no list of its session had, in front of a policy that counts this."""
    as_written: tuple[Tool, Mapping[str, Any]] | None = None
    """Of a call by a name of the profile's: the tool as the model sees it, and the arguments in its words."""


class Changes(Struct, frozen=True, kw_only=True):
    """Differences between the arguments that were sent and those that run, for the caller and the record."""

    repairs: tuple[str, ...] = ()
    """Changes that `repair` and a migration made."""
    unused: tuple[str, ...] = ()
    """Notes on arguments that the profile takes and that do nothing here."""
    edited: str = ""
    """Note on arguments that the approver changed; empty when unchanged."""
    migrated: str = ""
    """The older version that the arguments were migrated from."""


class Turn(Struct, frozen=True, kw_only=True):
    """The place of a call among those of one turn of a model."""

    together: int = 1
    """Number of calls that the caller sent together."""
    place: int = 0
    """Its number, from 1 on, among the calls of one turn of a model (`call_many`); 0 for a call on its own."""


NO_CLIENT: Final = Client()
"""Client of most calls of a program: none that is known."""
USUAL: Final = Options()
"""Options of most calls: none that the caller set."""
DIRECT: Final = Route()
"""Route of most calls: by the tool's own name."""
UNCHANGED: Final = Changes()
"""Changes of most calls: none."""
_TURN: Final = Turn()


class Call(Struct, frozen=True, kw_only=True):
    """One request to run a tool. Lives from the way in to the record.

    Frozen: a step returns a changed copy. The record gets the last copy, also where a step refused the call
    (`Refused`).
    """

    id: str
    name: str
    """As the caller wrote it; after `resolve`, the name of the real tool."""
    arguments: Any
    """As the caller sent them; after `validate`, a dict that the schema accepts: effective (`core.call`)."""
    session: SessionState
    origin: str = "library"
    """The way in: library, mcp, cli; of a call inside another one `NESTED`, or the kind of the tool that makes it."""
    parent: str = ""
    """The id of the call that made this one: a batch, a pipeline, a sub-agent."""
    first: str = ""
    """The id of the first attempt, where a job makes a call again; empty for a call that is its own."""
    started: float = 0.0
    """On the clock of `time.monotonic`."""
    client: Client = NO_CLIENT
    options: Options = USUAL
    route: Route = DIRECT
    turn: Turn = _TURN
    changes: Changes = UNCHANGED
    references: tuple[Reference, ...] = ()
    """Outputs that `expand` put into the arguments."""
    tool: Tool | None = None
    decision: Decision | None = None
    grant: Grant | None = None
    approval: str = ""
    """The id of an approval that was given before this walk began: the approve step redeems it instead of asking."""
    reserved: bool = False
    """True once this call holds the receipt of its idempotency key."""
    charged: bool = False
    """True while this call holds a share of the budgets, which it gives back if it does not run."""
    implementation: str = ""
    """What the call would have run when a person was asked (`Source.implementation_of`); empty for one that was not."""

    @property
    def is_nested(self) -> bool:
        """Whether another call makes it."""
        return self.origin == NESTED or bool(self.parent)

    @property
    def target(self) -> Tool:
        """The real tool. Only valid after `resolve`; raises `RuntimeError` before.

        Steps behind `Resolve` use this instead of `tool`, which may be None.
        """
        if self.tool is None:
            raise RuntimeError("the call was not resolved yet")
        return self.tool

    @property
    def display_arguments(self) -> Any:
        """The arguments for display and records: canonical, with references in place of artifacts."""
        display = self.arguments
        for reference in self.references:
            display = _replaced(display, reference.path, reference.display)
        return display if self.tool is None else canonical_arguments(self.tool, display, self.session.defaults)

    @property
    def may_use_secrets(self) -> bool:
        """Whether placeholders of hidden values may be among the arguments, which nearly every call answers with no."""
        for value in self.arguments.values():  # a loop: a generator costs twice as much
            if isinstance(value, str):
                if SIGN in value:
                    return True
            elif value is None or isinstance(value, int | float):
                continue
            elif isinstance(value, Mapping | list) and any(True for _ in placeholders_in(value)):
                return True
        return False

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with `changes`: fields of the call, or of one of its groups (`timeout`, `listener` …).

        One copy is made of each group that changes. Steps that every call takes use `msgspec.structs.replace` for the
        fields of the call itself, at a third of the time. Raises `TypeError` for other names.
        """
        own: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            group = _GROUP_OF.get(name)
            if group is None:
                own[name] = value
            elif getattr(own.get(group) or getattr(self, group), name) is not value:
                parts.setdefault(group, {})[name] = value
        for group, values in parts.items():
            own[group] = replace(own.get(group) or getattr(self, group), **values)
        return replace(self, **own)


_GROUP_OF: Final = {
    name: group
    for group, one in (
        ("client", NO_CLIENT),
        ("options", USUAL),
        ("route", DIRECT),
        ("turn", _TURN),
        ("changes", UNCHANGED),
    )
    for name in one.__struct_fields__
}


def _replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """Return a copy of `value` with `new` at `path`; everything off that path is shared.

    The arguments themselves stay whole for the tool: `Call.display_arguments` alone uses the copy.
    """
    if not path:
        return new
    first, *rest = path
    copied: Any = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else list(value)
    copied[first] = _replaced(copied[first], tuple(rest), new)
    return copied
