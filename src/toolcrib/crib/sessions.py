"""Sessions of a crib: found, set up by their options, and begun anew for each interaction."""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy
from inspect import isawaitable, iscoroutinefunction, isfunction
from pathlib import Path
from typing import Any, Final, Literal, cast

from ..catalog.success_rates import SuccessRates
from ..config import Settings
from ..core.json import canonical
from ..core.sandbox import KEEPS_SHELL
from ..core.session import LOCAL, SessionState, SessionTable
from ..core.similar import nearest
from ..disclosure.base import Profile
from ..disclosure.selection.requirements import SelectionState
from ..errors import UsageError
from ..policy.decision import Policy
from ..policy.remembered_answers import end_turn
from .inventory import Inventory
from .needs import provide
from .options import InteractionOptions, SessionOptions, check_options
from .policy import apply_rules, identity_terms, session_rules
from .profiles import ProfileRegistry
from .views import Views
from .workspaces import Workspaces

_AVAILABLE: Final = ("apis", "auth", "network")
_IDS: Final = ("instance", "key", "principal", "task", "user")


def _configure(state: SessionState, options: SessionOptions) -> None:
    """Set what the options name; everything else stays as it was. Raises `UsageError` for what cannot be."""
    allowed = options.get("allowed_tools")
    context = options.get("context", state.defaults)
    if not isinstance(cast("Any", context), Mapping):
        raise UsageError(f"context is a mapping of arguments to their values, not {context!r}")
    approver, elicitor = _asking(options, "approver"), _asking(options, "elicitor")
    available = _available(options.get("available", state.scope.available))
    versions = _versions(state.scope.versions, options["versions"]) if "versions" in options else state.scope.versions
    allowed = state.scope.allowed if allowed is None else _whole_names(allowed)

    state.scope.available, state.scope.versions, state.scope.allowed = available, versions, allowed
    state.scope.contexts = frozenset(options.get("contexts", state.scope.contexts))
    state.instance = options.get("instance", state.instance)
    state.defaults = context
    state.user = options.get("user", state.user)
    state.audience.is_client = options.get("for_client", state.audience.is_client)
    state.approvals.approver = approver if "approver" in options else state.approvals.approver
    state.elicitor = elicitor if "elicitor" in options else state.elicitor
    if state.elicitor is not None or state.approvals.approver is not None:
        state.scope.provided |= {"user"}
    state.files.cwd = Path(options["cwd"]).absolute() if "cwd" in options else state.files.cwd


@contextmanager
def _unchanged_by_failure(state: SessionState) -> Generator[None]:
    """Give a session that goes on back what it had, where the options of its next part are refused."""
    before = {name: getattr(state, name) for name in state.__struct_fields__}
    before |= {name: copy(before[name]) for name in ("approvals", "audience", "files", "scope")}
    try:
        yield
    except BaseException:
        for name, value in before.items():
            setattr(state, name, value)
        raise


def _check_texts(options: SessionOptions) -> None:
    """Raise `UsageError` for an id that is not text, such as the number of a user, or a principal without a name.

    Records are kept by the text; and a user who is missing would have the rights of the program's own, `local`.
    """
    for name, value in options.items():
        if name in _IDS and not isinstance(value, str) and not (name == "key" and value is None):
            raise UsageError(f"{name} is a text, not {value!r}")
    if options.get("principal") == "":
        raise UsageError("principal is a text that is not empty; without one it is the program's own, `local`")


def _asking(options: SessionOptions, name: Literal["approver", "elicitor"]) -> Callable[[Any], Awaitable[Any]] | None:
    """Return the awaitable form of a function that asks a person. Raises `UsageError` for anything but a function."""
    ask = cast("Callable[[Any], Any] | None", options.get(name))
    if ask is not None and not callable(ask):
        raise UsageError(f"{name} is a function of the question, not {type(ask).__name__}")
    if ask is None or not isfunction(ask) or iscoroutinefunction(ask):
        return ask

    async def asking(question: Any) -> Any:
        answer = ask(question)
        return await answer if isawaitable(answer) else answer

    return asking


def _names(option: str, given: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of tools. Raises `UsageError` for an object, such as the function itself."""
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"{option} takes names of tools, not {type(name).__name__}")
    return names


def _whole_names(allowed: Iterable[Any]) -> frozenset[str]:
    """Return the names. Raises `UsageError` for a pattern or an object: either would silently allow nothing."""
    names = _names("allowed_tools", allowed)
    for name in names:
        if any(sign in name for sign in "*?["):
            raise UsageError(
                f"allowed_tools takes whole names, not the pattern {name!r};"
                " choose from the catalog: [name for name in crib.catalog if …]"
            )
    return frozenset(names)


def _begin_interaction(
    state: SessionState,
    options: InteractionOptions,
    *,
    profile: Profile,
    exact: tuple[str, ...] | None,
    success_rates: SuccessRates,
) -> None:
    """Begin an interaction: what the last one was given holds no longer, what past calls taught does from now on.

    `exact` holds the catalog names of the option `tools`. Raises `UsageError` before anything changes.
    """
    required, intent = options.get("required_capabilities", ()), options.get("intent") or {}
    for name, value in (("intent", intent), ("plan", options.get("plan") or {})):
        if not isinstance(cast("Any", value), Mapping):
            raise UsageError(f"{name} is a mapping, not {value!r}")
        try:
            canonical(value)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{name} must be plain JSON: {error}") from None
    if profile.session.lifetime == "interaction":
        state.history.loaded.clear()
    end_turn(state)
    state.history.interactions += 1
    state.scope.exact = exact
    state.state_of(SelectionState).required = tuple(required)
    state.state_of(SelectionState).intent = intent
    state.state_of(SelectionState).plan = options.get("plan")
    state.state_of(SelectionState).selected = ()
    state.history.learned = success_rates.points(state.principal, profile.session.learning)


def _versions(before: Mapping[str, str], given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise UsageError(f"versions is a mapping of a tool's name to its version, not {given!r}")
    pins = {**before, **cast("Mapping[str, Any]", given)}
    for name, version in pins.items():
        if not isinstance(version, str):
            raise UsageError(f'versions.{name}: a version is a text, not {version!r}; write "{version}"')
    return pins


def _available(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UsageError(f"available is a mapping of {', '.join(_AVAILABLE)}, not {given!r}")
    known = cast("Mapping[str, Any]", given)
    for key, value in known.items():
        if key not in _AVAILABLE:
            close = nearest(str(key), _AVAILABLE, 1) or _AVAILABLE
            raise UsageError(f"available: there is no {key!r}; did you mean {', '.join(close)}?")
        if key != "apis" and not isinstance(value, bool):
            raise UsageError(f"available.{key} is true or false, not {value!r}")
    apis = known.get("apis", ())
    if isinstance(apis, str):
        raise UsageError(f"available.apis is a list of names, not the text {apis!r}")
    return {**known, "apis": tuple(apis)} if "apis" in known else dict(known)


class SessionFactory:
    """Makes the sessions of a crib and finds those that live."""

    def __init__(
        self,
        settings: Settings,
        table: SessionTable,
        profiles: ProfileRegistry,
        policy: Policy,
        views: Views,
        workspaces: Workspaces,
        inventory: Inventory,
        success_rates: SuccessRates,
    ) -> None:
        """`success_rates` is what earlier calls taught."""
        self._settings = settings
        self._table = table
        self._profiles = profiles
        self._policy = policy
        self._views = views
        self._workspaces = workspaces
        self._shells = workspaces.shells
        self._sources = inventory.sources
        self._disabled = inventory.disabled
        self._success_rates = success_rates
        self.conditions_of_clients: frozenset[str] = frozenset()
        """Requirements of tools (`Availability.needs`) that the sessions of clients meet, by what is mounted."""

    def find(self, principal: str, key: str) -> SessionState | None:
        """Return the session of that principal and key if this process still has it."""
        return self._table.find(principal, key)

    def open(self, options: SessionOptions) -> SessionState:
        """Return the session that the options describe; a known key continues the session that it names.

        Raises `UsageError` for an option, a profile or a mode that does not exist.
        """
        check_options(options, SessionOptions)
        _check_texts(options)
        principal, key = options.get("principal") or LOCAL, options.get("key") or secrets.token_hex(16)
        found = self._table.find(principal, key)
        is_new = found is None
        state = found or SessionState(
            key=key, principal=principal, **identity_terms(self._settings, principal, self._disabled)
        )
        if is_new and options.get("key"):
            state.keep_for = math.inf
        profile = options.get("profile") or state.profile
        presented = self._profiles.get_or_load(profile)
        self._policy.mode(options.get("mode") or state.mode)
        rules = session_rules(options)
        prepared = self._workspaces.prepare(state, options, is_new=is_new)
        with nullcontext() if is_new else _unchanged_by_failure(state):
            _configure(state, options)
            apply_rules(state, rules, self._settings)  # after the scope that the options name
            self._workspaces.arrange(state, options, prepared, is_new=is_new)
            self._shells.arrange(state)
            if state.audience.is_client:
                state.scope.provided |= self.conditions_of_clients
            provide(self._sources.values(), state.scope.provided)
            state.profile = profile
            grows = options.get("grows", state.audience.grows)
            state.audience.grows = self._profiles.loads(profile) if grows is None else grows
            state.scope.included, state.scope.excluded = presented.limits_on_built_in
            state.treat_as_write = frozenset(presented.session.treat_as_write)
            wanted: dict[str, Any] = {
                name: value for name, value in options.items() if name in InteractionOptions.__annotations__
            }
            if wanted or is_new:
                self.begin(state, cast("InteractionOptions", wanted))
        self._workspaces.promise(state, options, prepared)
        state.runtime[KEEPS_SHELL] = presented.session.shell.get("keep", self._settings.shell.keep)
        if is_new:
            self._table.put(state)  # last: after an error no later session may continue a half-made one
        return state

    def begin(self, state: SessionState, options: InteractionOptions) -> None:
        """Begin the next interaction of a session; see `Session.begin`."""
        exact = options.get("tools")
        exact = None if exact is None else _names("tools", exact)
        named = None if exact is None else self._views.named(state, exact)
        profile = self._profiles.get_or_load(state.profile)
        _begin_interaction(state, options, profile=profile, exact=named, success_rates=self._success_rates)

    def enter(self, state: SessionState, mode: str) -> None:
        """Let a session work in a mode from now on; see `Session.mode`."""
        self._workspaces.enter(state, mode)
