"""THE list: the steps of every call, in order. Adding a step is a class in its module of `steps`, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from ..catalog.catalog import Catalog
from ..catalog.registry import Registry
from ..catalog.success_rates import SuccessRates
from ..core.call import Call
from ..core.context import CallHost
from ..core.events import CallFinished, Listeners
from ..core.memory import MemoryBudget
from ..core.session import SessionState
from ..core.tool import Tool
from ..disclosure.base import Profile
from ..jobs.job import Jobs
from ..policy.approval import Approvals
from ..policy.decision import Policy
from ..results.limit import Limiter
from ..results.redaction.output import OutputCleaner
from ..results.redaction.redactor import Redactor
from ..sources.source import Source
from ..store.store import Store
from ..telemetry.otel import Telemetry
from ..workspace.tainted_files import FileMarks
from .budgets import BudgetUsage
from .pipeline import Pipeline
from .steps import arguments, content, permission, record
from .steps.custom import NO_STEPS, CustomAfter, CustomBefore, CustomSteps
from .steps.execute import Execute, InBackground, RedactedPeers
from .steps.resolve import Resolve, Surroundings

__all__ = ["Parts", "build"]


class Parts(Struct, frozen=True, kw_only=True):
    """Services of the steps; each lives as long as the crib."""

    surroundings: Callable[[SessionState], Surroundings]
    registry: Registry
    catalog_of: Callable[[SessionState], Catalog]
    profile_of: Callable[[SessionState], Profile]
    profiles: Mapping[str, Profile]
    """Profiles that are built, by name."""
    sources: Callable[[str], Source | None]
    policy: Policy
    is_unreviewed: Callable[[Tool], bool]
    """Whether a tool is in use although its definition is unreviewed."""
    approvals: Approvals
    redactor: Redactor
    limiter: Limiter
    store: Store
    jobs: Jobs
    finished: Listeners[CallFinished]
    """Listeners to calls that ended."""
    success_rates: SuccessRates = field(default_factory=SuccessRates)
    enrich: content.Enrich = field(default_factory=content.Enrich)
    budget_usage: BudgetUsage = field(default_factory=BudgetUsage)
    telemetry: Telemetry = field(default_factory=Telemetry)
    host: CallHost | None = None
    memory: MemoryBudget | None = None
    """The budget for large contents; None without a limit."""
    file_marks: FileMarks | None = None
    """The marks of files with untrusted content."""
    file_options: str = ""
    """The options that name the configuration files of this process to a command; empty for the usual files."""
    custom: CustomSteps = NO_STEPS
    """The steps of the program that embeds Toolcrib."""


def build(parts: Parts) -> Pipeline:
    """Return the pipeline of one crib."""

    def tools_of(state: SessionState) -> tuple[Tool, ...]:
        return parts.surroundings(state).view().tools

    wrap, validate = content.Wrap(parts.profile_of), arguments.Validate()
    expand, decide = (
        arguments.Expand(parts.limiter.artifacts, parts.policy.taint),
        permission.Decide(parts.policy, parts.is_unreviewed, parts.catalog_of, tools_of),
    )

    before = [CustomBefore(step, validate) for step in parts.custom.before]

    async def revise(call: Call) -> Call:
        expanded = expand(call)
        call = validate(expanded if isinstance(expanded, Call) else await expanded)
        for step in before:
            call = await step.confirm(call)
        decided = decide(call)
        return decided if isinstance(decided, Call) else await decided

    execute = Execute(
        parts.sources,
        parts.store.calls,
        parts.policy.permissions,
        RedactedPeers(OutputCleaner(parts.redactor)),
        parts.policy.taint.stain_by,
        parts.host,
        parts.memory,
        parts.redactor.learn_used,
        parts.file_marks,
    )
    return Pipeline(
        before=[
            Resolve(parts.surroundings),
            arguments.Repair(),
            arguments.Migrate(),
            expand,
            validate,
            *before,
            permission.CheckBudget(parts.budget_usage, parts.profile_of),
            decide,
            permission.ReplayOrDescribe(parts.store.receipts, parts.store.calls, parts.sources, parts.approvals.diff),
            permission.Approve(parts.approvals, revise, execute.check),
        ],
        execute=execute,
        after=[
            parts.enrich,
            content.NoteVersion(),
            *((content.NameFiles(parts.file_options),) if parts.file_options else ()),
            *(CustomAfter(step) for step in parts.custom.after),
            content.Redact(parts.redactor),
            content.Provenance(parts.policy.taint, parts.policy.is_strict),
            content.Limit(parts.limiter, parts.profile_of),
            content.Examine(parts.policy.taint),
            record.Assess(parts.success_rates, parts.profile_of),
            record.Record(parts.store, parts.finished, parts.telemetry, parts.budget_usage),
            wrap,
        ],
        background=InBackground(parts.jobs, wrap, parts.profile_of),
        telemetry=parts.telemetry,
        registry=parts.registry,
        catalog_of=parts.catalog_of,
        profile_of=parts.profile_of,
        profiles=parts.profiles,
    )
