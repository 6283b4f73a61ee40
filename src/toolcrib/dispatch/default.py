"""THE list: the steps of every call, in order. Adding a step is one file in `steps` and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..catalog.learning import Learning
from ..core.events import CallFinished
from ..core.session import SessionState
from ..disclosure.base import Profile
from ..jobs.job import Jobs
from ..policy.approval import Approvals
from ..policy.decide import Policy
from ..results.limit import Limiter
from ..results.redact import Redactor
from ..sources.base import Source
from ..store.store import Store
from .background import InBackground
from .pipeline import Pipeline
from .steps.approve import Approve
from .steps.assess import Assess
from .steps.budget import check_budget
from .steps.decide import Decide
from .steps.enrich import Enrich
from .steps.execute import Execute
from .steps.limit import Limit
from .steps.record import Record
from .steps.redact import Redact
from .steps.repair import repair_arguments
from .steps.replay import ReplayOrDescribe
from .steps.resolve import Resolve, Surroundings
from .steps.validate import Validate
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


def build(parts: Parts) -> Pipeline:
    """Return the pipeline of one crib."""
    wrap = Wrap(parts.profile_of)
    return Pipeline(
        before=[
            Resolve(parts.surroundings),
            repair_arguments,
            Validate(),
            check_budget,
            Decide(parts.policy),
            ReplayOrDescribe(parts.store.receipts, parts.sources),
            Approve(parts.approvals),
        ],
        execute=Execute(parts.sources, parts.store.calls, parts.policy.permissions),
        after=[
            parts.enrich,
            Redact(parts.redactor),
            Limit(parts.limiter, parts.profile_of),
            Assess(parts.learning, parts.profile_of),
            Record(parts.store, parts.tell),
            wrap,
        ],
        background=InBackground(parts.jobs, wrap),
    )
