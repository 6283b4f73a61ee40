"""The assembly of a crib: which part gets which, top to bottom.

    Toolcrib(settings) ─► lifecycle.make_parts ─► `assemble`         nothing is opened, no loop is needed
    async with         ─► lifecycle.open_parts ─► `build_pipeline`   opened in order, closed in reverse
    Toolcrib.slice     ─► `Slices.get`                               made at first use

A part gets others by its constructor alone, so that the order below is the order of dependence: what a part holds was
made above it. Functions are passed where a part needs one answer of another (`profiles.get_or_load`), not all of it.

A slice is a feature made of the parts, absent where nothing asks for it. It is a package of its own above `crib`.
Programs and ways in reach it by `Toolcrib.slice`; what a configuration or a store asks for is opened with the crib.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import Any, TypeVar, cast

from ..catalog.success_rates import SuccessRates
from ..config import Settings
from ..config.directories import Directories
from ..core.awaited_files import AWAITED
from ..core.memory import MemoryBudget
from ..core.session import SessionState, SessionTable
from ..disclosure.base import Profile
from ..dispatch import default
from ..dispatch.budgets import BudgetUsage
from ..dispatch.pipeline import Pipeline
from ..dispatch.steps.custom import NO_STEPS, CustomSteps
from ..errors import UsageError
from ..jobs.job import Jobs
from ..mcp.client.launch.awaited_pins import awaited_files
from ..policy.approval_options import ApprovalNotices
from ..results.artifacts import Artifacts
from ..results.limit import Limiter
from ..workspace.tainted_files import FileMarks
from .approval_channels import ApprovalChannels
from .approvals import ApprovalService, DeferredCalls
from .calls import CallRunner, SavedCalls
from .catalog_ingest import CatalogIngest
from .conversations import Conversations
from .enforced_lock import EnforcedLock
from .explainer import Explainer
from .inventory import Inventory, Ranking
from .jobs import jobs_of
from .loader import Loader
from .plan_mode import PlanMode
from .plugins import Plugins
from .policy import policy_of
from .profiles import ProfileRegistry
from .resources import ResourceRegistry
from .schedules import Schedules
from .services.host import CribHost
from .services.insight import InsightParts
from .session import SessionParts
from .sessions import SessionFactory
from .storage import ServerLogins, Storage, open_telemetry
from .tools import ToolRegistry
from .views import Views
from .workspaces import Workspaces


class Parts(SessionParts, frozen=True, kw_only=True):
    """Every part of one crib, beside those that its sessions use too. None is open yet after `assemble`."""

    storage: Storage
    inventory: Inventory
    ingest: CatalogIngest
    profiles: ProfileRegistry
    workspaces: Workspaces
    plan_mode: PlanMode
    session_table: SessionTable
    success_rates: SuccessRates
    budget_usage: BudgetUsage
    saved_calls: SavedCalls
    jobs: Jobs
    schedules: Schedules
    approvals: ApprovalService
    approval_channels: ApprovalChannels
    explainer: Explainer
    host_services: CribHost
    loader: Loader
    plugins: Plugins
    custom: CustomSteps
    """The steps of the program that embeds the crib."""


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
    guarded = settings.policy.guard

    # What is kept, and what exists.
    storage = Storage.of(settings, home)
    store, redactor = storage.store, storage.redactor
    inventory = Inventory(ranking=Ranking(settings, home))
    lock = EnforcedLock(settings.sources.lock, settings.environment, digest=settings.sources.lock_digest)
    ingest = CatalogIngest(inventory.registry, inventory.mounted.listings, store, lock, guarded=guarded)
    table = SessionTable()
    success_rates, budget_usage = SuccessRates(), BudgetUsage(settings.budgets)

    # What is allowed, and what each session sees.
    profiles = ProfileRegistry(settings.disclosure.profiles, table, guarded=guarded)
    policy = policy_of(settings, profiles, inventory.sources)
    profiles.get_or_load(settings.disclosure.profile)
    views = Views(inventory, profiles, policy, table, ingest.features, guarded=guarded)
    plan_mode = PlanMode(table)
    file_marks = FileMarks(store.tainted_files, awaited=awaited_files(settings.directories.state / AWAITED))
    workspaces = Workspaces(settings, policy, store.pending, plan_mode, file_marks)
    sessions = SessionFactory(settings, table, profiles, policy, views, workspaces, inventory, success_rates)

    # The tools, and the calls of them.
    conversations = None
    if home is not None:
        conversations = Conversations(
            store, lambda state: profiles.get_or_load(state.profile).session.lifetime == "interaction", time.time
        )
    calls = CallRunner(settings, store, table, views, workspaces, conversations)
    logins = ServerLogins(settings, home, redactor.learn)
    tools = ToolRegistry(settings, inventory, ingest, logins, storage.folders, calls, views)
    resources = ResourceRegistry(ingest, inventory.sources, views, policy, redactor)

    # Calls that are made later: as jobs, or after their approval.
    saved_calls = SavedCalls(store, sessions, views, calls)
    jobs = jobs_of(settings, store, tools, views, saved_calls, memory=home is None, tell=calls.jobs.tell)
    schedules = Schedules(settings, store, table, saved_calls, views, tools, calls, jobs)
    notices = ApprovalNotices()
    approvals = ApprovalService(store.approvals, notices, redactor.value, tools.get)
    late = settings.approvals.when_gone == "run"

    artifacts = Artifacts(storage.folders.artifacts, settings.results)
    host_services = CribHost(
        settings,
        storage,
        profiles,
        workspaces,
        InsightParts(settings=settings, store=store, jobs=jobs, tools=tools, views=views),
        schedules,
        calls,
        table,
        artifacts,
        inventory.ranking.embedder,
    )
    return Parts(
        settings=settings,
        storage=storage,
        inventory=inventory,
        ingest=ingest,
        profiles=profiles,
        policy=policy,
        views=views,
        workspaces=workspaces,
        file_marks=file_marks,
        plan_mode=plan_mode,
        session_table=table,
        sessions=sessions,
        success_rates=success_rates,
        budget_usage=budget_usage,
        calls=calls,
        tools=tools,
        resources=resources,
        artifacts=artifacts,
        saved_calls=saved_calls,
        jobs=jobs,
        schedules=schedules,
        approvals=approvals,
        approval_channels=ApprovalChannels(
            settings,
            store,
            policy,
            redactor,
            notices,
            saved_calls,
            jobs,
            is_shared=home is not None,
            memory_by_default=memory_by_default,
        ),
        deferred_calls=DeferredCalls(approvals, store.approvals, saved_calls, table, views, late=late),
        explainer=Explainer(views, policy, inventory.sources, tools, budget_usage, custom),
        host_services=host_services,
        records=host_services.records,
        loader=Loader(settings, tools, calls),
        plugins=Plugins(settings.sources.plugins, tools, calls, storage.folders),
        custom=custom,
    )


def build_pipeline(parts: Parts, stack: AsyncExitStack) -> Pipeline:
    """Return the steps that every call goes through; what they open is closed with `stack`."""

    def profile_of(state: SessionState) -> Profile:
        return parts.profiles.get_or_load(state.profile)

    return default.build(
        default.StepServices(
            surroundings=parts.views.surroundings,
            registry=parts.inventory.registry,
            catalog_of=parts.views.catalog_of,
            profile_of=profile_of,
            profiles=parts.profiles.built,
            sources=parts.inventory.sources.get,
            policy=parts.policy,
            is_unreviewed=parts.ingest.is_unreviewed,
            approvals=parts.approval_channels.asker(stack),
            redactor=parts.storage.redactor,
            limiter=Limiter(parts.artifacts, parts.storage.redactor, pass_whole=parts.settings.results.pass_whole),
            store=parts.storage.store,
            jobs=parts.jobs,
            finished=parts.calls.finished,
            enrich=parts.calls.enrichment,
            budget_usage=parts.budget_usage,
            telemetry=open_telemetry(
                stack, parts.settings.telemetry, parts.storage.redactor, lambda: parts.tools.sources
            ),
            success_rates=parts.success_rates,
            host=parts.host_services,
            memory=MemoryBudget(parts.settings.memory.budget),
            file_marks=parts.file_marks,
            file_options=parts.settings.file_options,
            custom=parts.custom,
        )
    )


class Slice:
    """Base of a feature beside the parts of a crib: one object a crib, made at first use and closed with the crib."""

    def __init__(self, parts: Parts) -> None:
        """The crib of the `parts` need not be open yet."""
        self.parts = parts

    async def aclose(self) -> None:
        """Release what the slice holds; by default nothing."""


_Kind = TypeVar("_Kind", bound=Slice)


class Slices:
    """The slices of one crib, by their class."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._made: dict[type[Slice], Slice] = {}

    def get(self, kind: type[_Kind]) -> _Kind:
        """Return the slice of this class, made now if it is the first use. Raises `UsageError` for anything else."""
        given = cast("Any", kind)
        if not (isinstance(given, type) and issubclass(given, Slice)):
            raise UsageError(f"slice takes the class of a feature, such as `Workflows`, not {kind!r}")
        made = self._made.get(kind)
        if made is None:
            made = self._made[kind] = kind(self._parts)
        return cast("_Kind", made)

    async def aclose(self) -> None:
        """Close every slice; a later use makes a new one."""
        while self._made:
            _, made = self._made.popitem()
            await made.aclose()
