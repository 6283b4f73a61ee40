"""The assembly of a crib: which part gets which, top to bottom."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from ..catalog.registry import Overlay
from ..catalog.success_rates import Learning
from ..config import Settings
from ..config.directories import Directories
from ..core.session import SessionState
from ..disclosure.base import Profile
from ..dispatch import default
from ..dispatch.budgets import Spending
from ..dispatch.pipeline import Pipeline
from ..dispatch.steps.custom import NO_STEPS, CustomSteps
from ..jobs.job import Jobs
from ..policy.asking.answers import Board
from ..policy.decision import Policy
from ..results.artifacts import Artifacts
from ..results.limit import Limiter
from ..results.redact import Redactor
from ..sources.source import Source
from ..sources.startup import MountedSources
from ..store.store import Store
from .approvals import ApprovalChannels, ApprovalService, DeferredCalls
from .calls import CallRunner
from .catalog_ingest import Intake, Locking
from .explainer import Explainer
from .host import Hosting, InsightParts
from .jobs import jobs_of
from .loader import Loader
from .plans import Plans
from .plugins import Plugins
from .policy import policy_of
from .profiles import ProfileRegistry
from .resources import ResourceRegistry
from .sandbox import Shells
from .saved_calls import SavedCalls
from .session import SessionParts
from .session_table import Runtimes, SessionTable
from .sessions import SessionFactory
from .storage import Folders, Ranking, ServerLogins, open_telemetry, store_of
from .tools import ToolRegistry
from .views import Views
from .workspaces import Workspaces

__all__ = ["Parts", "assemble", "build_pipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Every part of one crib. None is open yet after `assemble`."""

    settings: Settings
    redactor: Redactor
    folders: Folders
    store: Store
    overlays: dict[str, Overlay]
    sources: dict[str, Source]
    profiles: ProfileRegistry
    policy: Policy
    ranking: Ranking
    runtimes: Runtimes
    views: Views
    locking: Locking
    intake: Intake
    plans: Plans
    workspaces: Workspaces
    artifacts: Artifacts
    calls: CallRunner
    tools: ToolRegistry
    shells: Shells
    learning: Learning
    sessions: SessionFactory
    session_table: SessionTable
    saved_calls: SavedCalls
    jobs: Jobs
    approvals: ApprovalService
    approval_channels: ApprovalChannels
    deferred_calls: DeferredCalls
    spending: Spending
    explainer: Explainer
    hosting: Hosting
    resources: ResourceRegistry
    loader: Loader
    plugins: Plugins
    custom: CustomSteps
    """The steps of the program that embeds the crib."""
    session: SessionParts
    """The parts that the crib's sessions use."""


def assemble(
    settings: Settings,
    home: Directories | None,
    custom: CustomSteps = NO_STEPS,
    *,
    memory_by_default: bool = False,
) -> Parts:
    """Make the parts of a crib; nothing is opened. Without a `home` everything is kept in memory.

    `memory_by_default`: no setting asks for that, so an approval that is meant to outlive the process logs a warning.

    Raises `ConfigError` for a rule, a mode or a profile that does not exist, `UsageError` for a store or jobs that
    cannot be had.
    """
    # Values that several parts share.
    overlays: dict[str, Overlay] = {}
    sources: dict[str, Source] = {}
    starting = MountedSources()
    disabled: dict[str, None] = {}
    learning = Learning()
    spending = Spending(settings.budgets)
    board = Board()
    redactor = Redactor(settings.secrets)
    folders = Folders(home)
    store = store_of(settings, memory=home is None, redact=redactor.value)
    artifacts = Artifacts(folders.artifacts, settings.results)
    runtimes = Runtimes()
    table = SessionTable(runtimes)

    # What is allowed, and what each session sees.
    profiles = ProfileRegistry(settings.disclosure.profiles, table, guarded=settings.policy.guard)
    policy = policy_of(settings, profiles)
    profiles.get_or_load(settings.disclosure.profile)
    ranking = Ranking(settings, home)
    views = Views(ranking.registry, overlays, sources, starting, profiles, policy, table, guarded=settings.policy.guard)
    plans = Plans(table)
    workspaces = Workspaces(settings, policy, store.pending, plans)

    # The tools, and the calls of them.
    locking = Locking(settings.sources.lock, settings.environment)
    intake = Intake(ranking.registry, store, locking, guarded=settings.policy.guard)
    logins = ServerLogins(home, redactor.learn)
    calls = CallRunner(settings, store, table, views, workspaces, runtimes)
    tools = ToolRegistry(
        settings,
        ranking.registry,
        overlays,
        sources,
        starting,
        disabled,
        intake,
        locking,
        logins,
        folders,
        calls,
        views,
    )
    shells = Shells(settings)
    sessions = SessionFactory(settings, table, profiles, policy, views, workspaces, shells, sources, disabled, learning)

    # Calls that are made later: as jobs, or once somebody approved them.
    saved_calls = SavedCalls(store, sessions, views, calls)
    jobs = jobs_of(settings, store, tools, views, saved_calls, memory=home is None, tell=calls.jobs.tell)
    approvals = ApprovalService(store.approvals, board, redactor.value, tools.get)
    approval_channels = ApprovalChannels(
        settings,
        store,
        policy,
        redactor,
        board,
        saved_calls,
        jobs,
        is_shared=home is not None,
        memory_by_default=memory_by_default,
    )
    when_gone = settings.approvals.when_gone
    deferred_calls = DeferredCalls(approvals, store.approvals, saved_calls, table, views, late=when_gone == "run")

    # What tools and their users get beside.
    insight = InsightParts(settings=settings, store=store, jobs=jobs, tools=tools, views=views)
    resources = ResourceRegistry(intake, sources, views, policy, redactor)
    return Parts(
        settings=settings,
        redactor=redactor,
        folders=folders,
        store=store,
        overlays=overlays,
        sources=sources,
        profiles=profiles,
        policy=policy,
        ranking=ranking,
        runtimes=runtimes,
        views=views,
        locking=locking,
        intake=intake,
        plans=plans,
        workspaces=workspaces,
        artifacts=artifacts,
        calls=calls,
        tools=tools,
        shells=shells,
        learning=learning,
        sessions=sessions,
        session_table=table,
        saved_calls=saved_calls,
        jobs=jobs,
        approvals=approvals,
        approval_channels=approval_channels,
        deferred_calls=deferred_calls,
        spending=spending,
        explainer=Explainer(views, policy, sources, tools, spending, custom),
        hosting=Hosting(settings, folders, profiles, shells, insight, redactor, ranking.embedder),
        resources=resources,
        loader=Loader(settings, tools, calls),
        plugins=Plugins(settings.sources.plugins, tools, folders),
        custom=custom,
        session=SessionParts(
            settings=settings,
            policy=policy,
            calls=calls,
            views=views,
            sessions=sessions,
            tools=tools,
            resources=resources,
            artifacts=artifacts,
            deferred_calls=deferred_calls,
        ),
    )


def build_pipeline(parts: Parts, stack: AsyncExitStack) -> Pipeline:
    """Return the steps that every call goes through; what they open is closed with `stack`."""

    def profile_of(state: SessionState) -> Profile:
        return parts.profiles.get_or_load(state.profile)

    return default.build(
        default.Parts(
            surroundings=parts.views.surroundings,
            profile_of=profile_of,
            sources=parts.sources.get,
            policy=parts.policy,
            is_unreviewed=parts.intake.is_unreviewed,
            approvals=parts.approval_channels.asker(stack),
            redactor=parts.redactor,
            limiter=Limiter(parts.artifacts, parts.redactor, pass_whole=parts.settings.results.pass_whole),
            store=parts.store,
            jobs=parts.jobs,
            tell=parts.calls.finished.tell_of,
            enrich=parts.calls.enrichment,
            spending=parts.spending,
            telemetry=open_telemetry(stack, parts.settings.telemetry, parts.redactor),
            learning=parts.learning,
            host=parts.hosting,
            custom=parts.custom,
        )
    )
