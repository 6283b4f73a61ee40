"""THE list: the steps of every call, in order. Adding a step is one file in `steps` and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..catalog.learning import Learning
from ..core.call import Call
from ..core.events import CallFinished
from ..core.host import Host
from ..core.session import SessionState
from ..disclosure.base import Profile
from ..jobs.job import Jobs
from ..policy.approval import Approvals
from ..policy.decide import Policy
from ..results.limit import Limiter
from ..results.redact import Redactor
from ..results.streams import Cleaning
from ..sources.base import Source
from ..store.store import Store
from ..telemetry.otel import Telemetry
from .background import InBackground
from .outward import Outward
from .pipeline import Pipeline
from .spending import Spending
from .steps.approve import Approve
from .steps.assess import Assess
from .steps.budget import CheckBudget
from .steps.decide import Decide
from .steps.enrich import Enrich
from .steps.examine import Examine
from .steps.execute import Execute
from .steps.expand import Expand
from .steps.limit import Limit
from .steps.migrate import migrate_arguments
from .steps.provenance import Provenance
from .steps.record import Record
from .steps.redact import Redact
from .steps.repair import repair_arguments
from .steps.replay import ReplayOrDescribe
from .steps.resolve import Resolve, Surroundings
from .steps.validate import validate_arguments
from .steps.version import tell_version
from .steps.wrap import Wrap

__all__ = ["Parts", "build"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the steps work with; each lives as long as the crib."""

    surroundings: Callable[[SessionState], Surroundings]
    profile_of: Callable[[SessionState], Profile]
    sources: Callable[[str], Source | None]
    policy: Policy
    approvals: Approvals
    redactor: Redactor
    limiter: Limiter
    store: Store
    jobs: Jobs
    tell: Callable[[Callable[[], CallFinished]], None]
    """Takes what makes the event of a call that ended; asked only where somebody listens."""
    learning: Learning = field(default_factory=Learning)
    enrich: Enrich = field(default_factory=Enrich)
    spending: Spending = field(default_factory=Spending)
    telemetry: Telemetry = field(default_factory=Telemetry)
    host: Host | None = None


def build(parts: Parts) -> Pipeline:
    """Return the pipeline of one crib."""
    wrap = Wrap(parts.profile_of)
    expand, decide = Expand(parts.limiter.artifacts, parts.policy.taint), Decide(parts.policy)

    async def revise(call: Call) -> Call:
        return await decide(await validate_arguments(await expand(call)))

    return Pipeline(
        before=[
            Resolve(parts.surroundings),
            repair_arguments,
            migrate_arguments,
            expand,
            validate_arguments,
            CheckBudget(parts.spending, parts.profile_of),
            decide,
            ReplayOrDescribe(parts.store.receipts, parts.sources, parts.approvals.diff),
            Approve(parts.approvals, revise),
        ],
        execute=Execute(
            parts.sources,
            parts.store.calls,
            parts.policy.permissions,
            Outward(Cleaning(parts.redactor)),
            parts.host,
        ),
        after=[
            parts.enrich,
            tell_version,
            Redact(parts.redactor),
            Provenance(parts.policy.taint),
            Limit(parts.limiter, parts.profile_of),
            Examine(parts.policy.taint),
            Assess(parts.learning, parts.profile_of),
            Record(parts.store, parts.tell, parts.telemetry, parts.spending),
            wrap,
        ],
        background=InBackground(parts.jobs, wrap),
        telemetry=parts.telemetry,
    )
