"""Plan of a call: the list of steps, bound to what stays the same from call to call.

A step may have `bind(subject)`. It returns the function that runs for such calls, or None where the step cannot have an
effect on any of them; a step without `bind` runs as it is. A binding may rest on the fields of `Subject` and on nothing
else that changes: everything else (answers, taint, switches, usage) is read at each call.

Plans are kept and dropped here, and nowhere else. `Plans.of` reads the terms of the session at each call: where one of
them is another object than before, all plans of that session are dropped. The pipeline asks again after each wait that
comes before the decision, so a rule, mode or definition that changes is in force for every call that is not decided.

    session ─ state_of ─ SessionPlans(catalog, profile, terms)
                           ├─ plan of no tool     a call before `resolve`: the first plan of every walk
                           ├─ plan of tool A      the rest of the walk, once `resolve` has found A
                           └─ plan of tool B

A step that reads something changing inside `bind`, rather than in the function that it returns, is a defect: the value
would outlive its change. `tests/contract/test_plan.py` compares each plan with the unbound list.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ..catalog.catalog import Catalog
from ..catalog.registry import Registry
from ..core.call import Call
from ..core.permission import Effect
from ..core.result import ToolResult
from ..core.session import NO_LIMITS, Limits, SessionState
from ..core.tool import Tool
from ..disclosure.base import Profile

Before = Callable[[Call], Call | ToolResult | Awaitable[Call | ToolResult]]
"""Returns the call to go on with, or the result that ends the walk; awaitable only where it waits."""
Execute = Callable[[Call], Awaitable[ToolResult]]
"""Runs the granted call. Raises `ToolFailure` when it could not run or did not end in time."""
After = Callable[[Call, ToolResult], ToolResult | Awaitable[ToolResult]]
"""Returns the result to go on with; awaitable only where it waits."""

_logger = logging.getLogger("toolcrib.dispatch")
_NO_PROFILES: Final[Mapping[str, Profile]] = {}
_MOST: Final = 256
"""Tools of one session for which plans are kept. Past it all are dropped, and made again when they are needed."""


class Subject(NamedTuple):
    """Everything that a binding may rest on: the tool, and the terms of the session."""

    tool: Tool | None
    """None before the tool is known, and for calls that never had one."""
    catalog: Catalog | None = None
    profile: Profile | None = None
    mode: str = ""
    rules: tuple[tuple[Effect, tuple[str, ...]], ...] = ()
    treat_as_write: frozenset[str] = frozenset()
    allowed: frozenset[str] | None = None
    exact: tuple[str, ...] | None = None
    contexts: frozenset[str] = frozenset()
    provided: frozenset[str] = frozenset()
    planning: bool = False
    limits: Limits = NO_LIMITS


class Plan(NamedTuple):
    """Functions of one subject (that of `tool` and `profile`), in the order of the list.

    `before` has only the steps that may have an effect; `behind` is as long as the whole list of before-steps.
    """

    tool: Tool | None
    profile: Profile | None
    limits: Limits
    before: Sequence[tuple[int, Before]]
    """With the place of each in the list, so that a call can go on in another plan."""
    behind: Sequence[int]
    """For each place in the list, where `before` goes on behind it."""
    execute: Execute
    after: Sequence[After]
    may_wait: bool
    """Whether the tool has a time after which its calls go on in the background."""


class SessionPlans:
    """Plans of one session, and the terms that they hold for. Kept with the session, made and dropped by `Plans`."""

    __slots__ = ("catalog", "maker", "plans", "profile", "terms")

    shown_by = ()
    """Views do not depend on it."""

    def __init__(self, maker: Plans, catalog: Catalog | None, profile: Profile | None, terms: tuple[Any, ...]) -> None:
        self.maker = maker
        self.catalog = catalog
        self.profile = profile
        self.terms = terms
        self.plans: dict[int, Plan] = {}

    def of(self, tool: Tool | None) -> Plan:
        """Return the plan of the calls of `tool`."""
        plan = self.plans.get(id(tool))  # a plan keeps its tool, so that the id stays its own
        if plan is None:
            if len(self.plans) >= _MOST:
                self.plans.clear()
            subject = Subject(tool, self.catalog, self.profile, *self.terms)
            plan = self.plans[id(tool)] = self.maker.make(subject)
        return plan


class Plans:
    """Makes the plans of the sessions, and drops them. One for a pipeline, used from its event loop."""

    def __init__(
        self,
        before: Iterable[Before],
        execute: Execute,
        after: Iterable[After],
        *,
        registry: Registry | None = None,
        catalog_of: Callable[[SessionState], Catalog] | None = None,
        profile_of: Callable[[SessionState], Profile] | None = None,
        profiles: Mapping[str, Profile] = _NO_PROFILES,
    ) -> None:
        """Take the steps in order. `profiles` has the known ones by name, `profile_of` builds another.

        `catalog_of` is asked where the catalog is not the present one of `registry`: for a session with an instance or
        pinned versions, and after a change.
        """
        self.before = tuple(before)
        self.execute = execute
        self.after = tuple(after)
        self._registry = registry
        self._catalog_of = catalog_of or _nothing
        self._profile_of = profile_of or _nothing
        self._profiles = profiles

    def of(self, session: SessionState) -> SessionPlans:
        """Return the plans of a session on its present terms.

        Costs a tuple and a comparison at each call. Values that are compared by identity (catalog, profile) are made
        anew when they change; the others are compared by value.
        """
        scope, registry, catalog = session.scope, self._registry, None
        if registry is not None and not session.instance and not scope.versions:
            catalog = registry.snapshot
        try:
            catalog = self._catalog_of(session) if catalog is None else catalog
            profile = self._profiles.get(session.profile) or self._profile_of(session)
        except Exception:  # the steps meet the same error themselves, where it becomes a result and is recorded
            _logger.exception("the plans of session %s cannot be made", session.key)
            catalog = profile = None
        # Every value that a binding may rest on. A term that is missing here is a permission that outlives its end;
        # tests/contract/test_plan.py changes each of them.
        terms = (
            session.mode,
            session.rules,
            session.treat_as_write,
            scope.allowed,
            scope.exact,
            scope.contexts,
            scope.provided,
            scope.planning,
            session.limits,
        )
        kept: Any = session.strategies.get(SessionPlans)
        if (
            kept is None
            or kept.maker is not self
            or kept.catalog is not catalog  # by identity: catalogs and profiles are immutable, and made anew
            or kept.profile is not profile
            or kept.terms != terms
        ):
            kept = session.strategies[SessionPlans] = SessionPlans(self, catalog, profile, terms)
        return kept

    def after_of(self, plan: Plan, call: Call) -> Sequence[After]:
        """Return the after-steps of a call that went by `plan`: they rest on tool, profile and limits alone.

        The profile is compared with the one that the name has now: a session may change its profile while the call
        runs.
        """
        session = call.session
        is_same = plan.tool is call.tool and plan.limits is session.limits
        if not is_same or plan.profile is not self._profiles.get(session.profile):
            return self.of(call.session).of(call.tool).after
        return plan.after

    def make(self, subject: Subject) -> Plan:
        """Bind every step to `subject`.

        `place` counts steps over the whole list, those without effect included.
        """
        before = [(place, bound(step, subject)) for place, step in enumerate(self.before)]
        # After-steps get less: a call may end on other terms than those on which it began.
        ended = Subject(subject.tool, profile=subject.profile, limits=subject.limits)
        after = [bound(step, ended) for step in self.after]
        kept = tuple((place, step) for place, step in before if step is not None)
        return Plan(
            tool=subject.tool,
            profile=subject.profile,
            limits=subject.limits,
            before=kept,
            behind=tuple(accumulate(int(step is not None) for _, step in before)),
            execute=bound(self.execute, subject),
            may_wait=subject.tool is not None and subject.tool.execution.background_after is not None,
            after=tuple(step for step in after if step is not None),
        )


def _nothing(session: SessionState) -> None:
    """Return no catalog and no profile: those of a pipeline whose steps need none."""


def bound(step: Any, subject: Subject) -> Any:
    """Return the function of a step for `subject`; None where it has no effect. A binding that fails is the step."""
    bind = getattr(step, "bind", None)
    if bind is None:
        return step
    try:
        return bind(subject)
    except Exception:
        _logger.exception("%s cannot be bound and runs as it is", type(step).__name__)
        return step
