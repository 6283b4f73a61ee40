"""THE list: the steps of every call, in order. Adding a step is a class in its module of `steps`, and one line here.

    CallRunner.run (crib/calls.py)
      └─ Pipeline.run
           before     a Call goes on to the next step; a ToolResult or a ToolFailure goes straight to `after`
           execute    in front of the caller, or `InBackground`: a job, which comes back by `Pipeline.work`
           after      every outcome, refusals and cancellations included

`crib.assembly` calls `build` once for each crib. The order carries these guarantees:

- `validate` stands before `decide`, so that a rule, an approver and the grant see the arguments that run, with context
  values and defaults filled in. The program's own before-steps stand between them for the same reason.
- The budget is reserved before `decide` and `approve`, because an approval may take minutes: calls that wait
  together could otherwise overdraw it. `Record` returns the share of a call that was not granted.
- The program's after-steps stand before `Redact`, so that what they add is redacted, too. `Redact` stands before
  `Limit` and `Record`, which put the result, its artifact and its receipt into the store.
- `Provenance` stands before `Examine` and `Wrap`, which act on the trust that it sets.
- `Wrap` is the last: records and receipts hold the result itself, never the form of one profile.
"""

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
from .plan import Plans
from .redacted_peers import RedactedPeers
from .steps import arguments, content, permission, record
from .steps.custom import NO_STEPS, CustomAfter, CustomBefore, CustomSteps
from .steps.execute import Execute, InBackground
from .steps.resolve import Resolve, Surroundings


class StepServices(Struct, frozen=True, kw_only=True):
    """Services of the steps; each lives as long as the crib."""

    surroundings: Callable[[SessionState], Surroundings]
    """The catalog, meta-tools and view of a session at this moment; asked at each call."""
    registry: Registry
    catalog_of: Callable[[SessionState], Catalog]
    """The present catalog of a session: of its instance, and with its pinned versions."""
    profile_of: Callable[[SessionState], Profile]
    """The profile of a session; builds one that `profiles` does not have."""
    profiles: Mapping[str, Profile]
    """Profiles that are built, by name."""
    sources: Callable[[str], Source | None]
    """An open source by its name; None for one that is closed or unknown."""
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
    """Services of the crib for running tools (`Context.host`); None offers none."""
    memory: MemoryBudget | None = None
    """The budget for large contents; None without a limit."""
    file_marks: FileMarks | None = None
    """The marks of files with untrusted content."""
    file_options: str = ""
    """The options that name the configuration files of this process to a command; empty for the usual files."""
    custom: CustomSteps = NO_STEPS
    """The steps of the program that embeds Toolcrib."""


def build(services: StepServices) -> Pipeline:
    """Return the pipeline of one crib.

    `revise` runs the steps on arguments once more when an approver has edited them: expand, validate, the program's
    before-steps (which may only agree), and the decision. A deny of the edited arguments is raised as `ToolFailure`.
    """

    def tools_of(state: SessionState) -> tuple[Tool, ...]:
        return services.surroundings(state).view().tools

    wrap, validate = content.Wrap(services.profile_of), arguments.Validate()
    expand = arguments.Expand(services.limiter.artifacts, services.policy.taint)
    decide = permission.Decide(services.policy, services.is_unreviewed, services.catalog_of, tools_of)
    before = [CustomBefore(step, validate) for step in services.custom.before]

    async def revise(call: Call) -> Call:  # by the answer of an approver: changed arguments pass these steps again
        expanded = expand(call)
        call = validate(expanded if isinstance(expanded, Call) else await expanded)
        for step in before:
            call = await step.confirm(call)
        decided = decide(call)
        return decided if isinstance(decided, Call) else await decided

    execute = Execute(
        services.sources,
        services.store.calls,
        services.policy.permissions,
        RedactedPeers(OutputCleaner(services.redactor)),
        services.policy.taint.mark_tainted_by,
        services.host,
        services.memory,
        services.redactor.learn_used,
        services.file_marks,
    )
    plans = Plans(
        before=[
            Resolve(services.surroundings),
            arguments.Repair(),
            arguments.Migrate(),
            expand,
            validate,
            *before,
            permission.CheckBudget(services.budget_usage, services.profile_of),
            decide,
            permission.ReplayOrDescribe(
                services.store.receipts, services.store.calls, services.sources, services.approvals.diff
            ),
            permission.Approve(services.approvals, revise, execute.check, services.catalog_of),
        ],
        execute=execute,
        after=[
            services.enrich,
            content.NoteVersion(),
            *((content.NameFiles(services.file_options),) if services.file_options else ()),
            *(CustomAfter(step) for step in services.custom.after),
            content.Redact(services.redactor),
            content.Provenance(services.policy.taint, services.policy.is_strict),
            content.Limit(services.limiter, services.profile_of),
            content.Examine(services.policy.taint),
            record.Assess(services.success_rates, services.profile_of),
            record.Record(services.store, services.finished, services.telemetry, services.budget_usage),
            wrap,
        ],
        registry=services.registry,
        catalog_of=services.catalog_of,
        profile_of=services.profile_of,
        profiles=services.profiles,
    )
    background = InBackground(services.jobs, wrap, services.profile_of, services.catalog_of)
    return Pipeline(plans, background=background, telemetry=services.telemetry)
