"""All tools and one way to run them.

    async with Toolcrib() as crib:
        crib.add(my_function)
        await crib.mount({"mcpServers": {...}})
        async with crib.session() as session:
            result = await session.call("my_function", {"x": 1})

A `Toolcrib` lives as long as its tools do; sessions live inside it, one a conversation. Both belong to one event loop.
"""

from __future__ import annotations

import itertools
import logging
import math
import secrets
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, Unpack, cast
from weakref import WeakValueDictionary

from ..catalog.catalog import Catalog
from ..catalog.registry import Overlay
from ..catalog.skill_groups import SkillGroups
from ..catalog.success_rates import MEMORY, Learning
from ..catalog.versions import PinnedCatalogs
from ..config import Settings, bare, load
from ..config.profiles import GivenProfile
from ..core.call import Call, Client
from ..core.context import Context
from ..core.events import CallFinished, CatalogChanged, Problem
from ..core.result import ToolResult
from ..core.session import LOCAL, SessionState
from ..disclosure.base import Profile, Scene, View
from ..disclosure.meta_tool_source import Counter
from ..dispatch import default
from ..dispatch.budgets import Spending
from ..dispatch.pipeline import Pipeline
from ..dispatch.steps.content import Enrich, Enricher
from ..dispatch.steps.resolve import Surroundings
from ..errors import ToolFailure, UsageError
from ..jobs.inprocess import InProcessJobs
from ..jobs.job import Job, Jobs
from ..plugin import load_entry_points
from ..policy.asking.blanket_approvals import rest
from ..policy.decision import Policy
from ..results.artifacts import Artifacts
from ..results.limit import Limiter
from ..results.redact import Redactor
from ..sources.python import PythonSource
from ..sources.source import Source
from ..store.store import Store
from . import loading
from .apis import mount_apis
from .approving import Approvable, Approving
from .background import mount_jobs
from .desk import Deskable
from .durable import follow_catalog, jobs_of
from .hosting import Hosting
from .intake import Intake
from .listeners import Listeners
from .locking import Locking
from .logins import ServerLogins
from .mounting import FUNCTIONS, Mountable
from .needs import held, provide
from .options import InteractionOptions, SessionOptions, check_options
from .pending import Pending
from .planning import Plans
from .plugins import Plugins
from .ranking import Ranking
from .registration import Registering
from .resuming import Resumable
from .reviewing import Reviewable
from .ruling import hold, identified, policy_of
from .runtimes import Runtimes
from .session import Session
from .setup import begin, configure
from .shadows import Shadows
from .shelving import Shelving
from .showcase import Showcase
from .storing import open_store
from .switches import Switchable, Switches
from .telling import open_telemetry
from .why import Explainable, Explainer
from .workflows import Workflows, WorkflowTaker
from .workspaces import Workspaces

__all__ = ["Toolcrib"]

_logger: Final = logging.getLogger(__name__)

_GUESTS: Final = "builtin"
"""The source of the tools that installed packages bring."""


class Toolcrib(
    Mountable, Switchable, Reviewable, Explainable, Resumable, Approvable, WorkflowTaker, Deskable, Registering
):
    """All tools, one way to run them. Opened and closed once, as an async context manager."""

    def __init__(self, settings: Settings | None = None, *, memory: bool = False) -> None:
        """Without `settings`: in memory, the default profile and mode, no servers, no guests.

        `memory` keeps records, pins and artifacts in memory and temporary files, whatever the settings say. Raises
        `ConfigError` for a rule, a mode or a profile that does not exist.
        """
        self.settings = settings or bare()
        self._home = None if memory or settings is None else settings.directories
        self._policy = policy_of(self.settings, self._profile)
        self._sources: dict[str, Source] = {}
        self._showcase = Showcase(
            lambda: self.skill_groups,
            lambda mode: self._policy.mode(mode).prompt,
            lambda: held(self._sources.values()),
            guarded=self.settings.guard,
        )
        self._showcase.take(self.settings.profiles)
        self._profile(self.settings.profile)
        self._ranking = Ranking(self.settings, self._home)
        self._registry = self._ranking.registry
        self._overlays: dict[str, Overlay] = {}
        self._pinned = PinnedCatalogs()
        self._disabled: dict[str, None] = {}
        self._switches = Switches(
            self._disabled,
            find=lambda name: self.catalog.find(name),
            tools=lambda: self.catalog.tools.values(),
            changed=lambda names: self._intake.announce(names),
        )
        self._functions = PythonSource(FUNCTIONS)
        self._spending = Spending(self.settings.budgets)
        self._explainer = Explainer(
            self._surroundings, self._policy, self._sources, lambda: self.problems, self._spending.check
        )
        self._instance_functions: dict[str, PythonSource] = {}
        self._sessions: WeakValueDictionary[tuple[str, str], SessionState] = WeakValueDictionary()
        self._enrich = Enrich()
        self._learning = Learning()
        self._plans = Plans(self.living)
        self._workspaces = Workspaces(self.settings, self._policy, lambda: self._store.pending, self._plans)
        self._approving = Approving(self.settings)
        self._locking = Locking(self.settings.lock, self.settings.environment)
        self._workflows = Workflows(self)
        self._plugins = Plugins(self, lambda: (self._home.data if self._home else self._folders) / "plugins")
        self._hosting = Hosting(self.settings, self._folder_for_tools, self._ranking.embedder)
        self._registrations = self._begin_registrations(self.next_call_id)
        self._listeners = Listeners[CallFinished]()
        self._job_listeners = Listeners[Job]()
        self._runtimes = Runtimes()
        self._jobs: Jobs = InProcessJobs(self._job_listeners.tell, self.settings.jobs)
        self._pipeline: Pipeline | None = None
        self._prefix = f"call_{secrets.token_hex(5)}_"
        self._numbers = itertools.count(1)
        self._exit = AsyncExitStack()

    @classmethod
    def open(cls, *files: str | Path) -> Toolcrib:
        """Return the crib that configuration `files` describe, or the user's own files when none are named.

        Raises `ConfigError` naming the file and the key.
        """
        return cls(load(files))

    async def __aenter__(self) -> Self:
        """Open the store, the sources and the guests. Waits for no server."""
        async with AsyncExitStack() as stack:
            redactor = Redactor(self.settings.secrets)
            self._logins = ServerLogins(self._home, redactor.learn)
            opened = open_store(self.settings, memory=self._home is None, redact=redactor.value)
            self._store = await stack.enter_async_context(opened)
            self._spending.open(self._store.budgets)
            self._hosting.open(self, redactor.value, has_files=self._home is not None)
            stack.push_async_callback(self._hosting.aclose)
            # Made by what is first put there, each folder below it 0700: a process that is killed leaves nothing else.
            self._folders = Path(tempfile.gettempdir()) / f"toolcrib-{secrets.token_hex(8)}"
            stack.callback(shutil.rmtree, self._folders, ignore_errors=True)
            self._artifacts = Artifacts(self._home.data / "artifacts" if self._home else None, self.settings.results)
            stack.callback(self._artifacts.close)
            self._jobs = jobs_of(self, memory=self._home is None, tell=self._job_listeners.tell)
            self._pipeline = default.build(self._parts(redactor, stack))
            self._intake = Intake(self._registry, self._store, self._locking, guarded=self.settings.guard)
            await self._intake.open(stack)
            self._shelving = Shelving(self, self._intake.shelf, self._sources.get, redactor.value)
            self._intake.on_offer = self._shelving.tools.look
            self._learning.replay(await self._store.calls.outcomes(since=time.time() - MEMORY))
            stack.push_async_callback(self._registrations.aclose)
            stack.push_async_callback(self._close_sources)
            stack.push_async_callback(self._runtimes.close)
            stack.push_async_callback(self._jobs.close)
            await self._jobs.open(self._pipeline.work)
            follow_catalog(self, self._jobs)
            await self._open_sources()
            await self._ranking.open(stack)
            await self._approving.start(self, stack)
            self._exit = stack.pop_all()
        return self

    def _parts(self, redactor: Redactor, stack: AsyncExitStack) -> default.Parts:
        """Return what the steps work with."""
        return default.Parts(
            surroundings=self._surroundings,
            profile_of=lambda state: self._profile(state.profile),
            sources=self._sources.get,
            policy=self._policy,
            approvals=self._approving.prepare(
                self._store, self._policy, redactor, lambda name: self.catalog.get(name), stack
            ),
            redactor=redactor,
            limiter=Limiter(self._artifacts, redactor, pass_whole=self.settings.results.pass_whole),
            store=self._store,
            jobs=self._jobs,
            tell=self._listeners.tell_of,
            enrich=self._enrich,
            spending=self._spending,
            telemetry=open_telemetry(stack, self.settings.telemetry, redactor),
            learning=self._learning,
            host=self._hosting,
        )

    async def __aexit__(self, *_: object) -> None:
        """Close every source, and write down what waits to be."""
        try:
            await self._exit.aclose()
        finally:
            self._pipeline = None  # a call that comes later is told so, instead of waiting for threads that are gone

    async def load(self, path: str | Path, *, name: str | None = None) -> None:
        """Mount what `path` holds: a YAML catalog, skills, an OpenAPI description (or its URL) or MCP servers.

        What it is shows its content; tools of catalogs and skills keep their names. Returns once it was read. What is
        wrong inside is in `problems`; raises `UsageError` when there is nothing of these kinds, or `name` is taken.
        """
        await loading.load(self, path, name)

    def enrich(self, enricher: Enricher, *, priority: int = 0) -> None:
        """Let `enricher` add to every success from now on; a higher priority comes earlier."""
        self._enrich.subscribe(enricher, priority=priority)

    def add_profile(self, profile: Profile | GivenProfile | Mapping[str, Any]) -> None:
        """Take a profile, ready made or in the keys of a profile's YAML file; it replaces one of the same name.

        Sessions that have it see the new one from now on. Raises `ConfigError` naming the key.
        """
        taken = profile if isinstance(profile, Profile) else self._showcase.built(profile)
        self._showcase.add(taken)
        for state in self._sessions.values():
            if state.profile == taken.name:
                state.treat_as_write = frozenset(taken.wary)

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Every profile by name: the built-in ones and the user's own; one that cannot be built is a problem."""
        return self._showcase.all()

    @property
    def status(self) -> Mapping[str, bool]:
        """Whether each tool is switched on, by name."""
        return {name: name not in self._disabled for name in self.catalog.tools}

    @property
    def catalog(self) -> Catalog:
        """What exists now, for whoever works with no instance."""
        return self._registry.catalog

    @property
    def skill_groups(self) -> SkillGroups:
        """The skill groups of all catalogs and skills, for a selection by intent."""
        return loading.groups_of(self._sources.values())

    @property
    def store(self) -> Store:
        """The records of this crib: calls, pins."""
        return self._store

    async def failing(self) -> Mapping[str, str]:
        """Return the parts that cannot work now, by name, each with its reason. Takes at most 2 s."""
        reason = await self._store.check()
        return {"store": reason} if reason else {}

    @property
    def artifacts(self) -> Artifacts:
        """Large outputs, kept whole."""
        return self._artifacts

    @property
    def shelving(self) -> Shelving:
        """What servers offer beside tools; sessions have it as `Session.shelf`."""
        return self._shelving

    @property
    def pending(self) -> Pending:
        """The changes of files that wait for review: list, diff, accept, reject."""
        return self._workspaces.pending

    @property
    def shadows(self) -> Shadows:
        """The git worktrees of tasks: list, diff, merge, discard."""
        return self._workspaces.shadows

    @property
    def policy(self) -> Policy:
        """What is allowed here: `decide(tool, arguments, session.state)` says of a call what the pipeline would."""
        return self._policy

    @property
    def jobs(self) -> Jobs:
        """What runs in the background: `get`, `result`, `cancel` and `list`, each for one principal."""
        return self._jobs

    @property
    def plugins(self) -> Plugins:
        """The plugins: what was found from where, `expose` and `unexpose`."""
        return self._plugins

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that could not be taken, with its reason."""
        of_instances = (problem for overlay in self._overlays.values() for problem in overlay.problems)
        return (
            *self.settings.problems,
            *self._registry.problems,
            *(self._intake.shelf.problems if self._pipeline is not None else ()),
            *of_instances,
            *self._showcase.problems(self.catalog),
        )

    def on_change(self, callback: Callable[[CatalogChanged], None]) -> Callable[[], None]:
        """Call `callback` with every change of the catalog; returns what ends it."""
        return self._intake.on_change(callback)

    def on_call(self, callback: Callable[[CallFinished], None]) -> Callable[[], None]:
        """Call `callback` with every call that ended, refusals included; returns what ends it."""
        return self._listeners.add(callback)

    def on_job(self, callback: Callable[[Job], None]) -> Callable[[], None]:
        """Call `callback` with every call that goes on as a job, and when the job ends; returns what ends it."""
        return self._job_listeners.add(callback)

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """Open a conversation. A key that is known continues the one that it names, as it was set up.

        Raises `UsageError` for an option, a profile or a mode that does not exist.
        """
        check_options(options, SessionOptions)
        principal, key = options.get("principal") or LOCAL, options.get("key") or secrets.token_hex(16)
        is_new = (principal, key) not in self._sessions
        state = self._state(principal, key)
        profile = options.get("profile") or state.profile
        self._profile(profile)
        self._policy.mode(options.get("mode") or state.mode)
        configure(state, options)
        hold(state, options, self.settings)
        self._workspaces.arrange(state, options, is_new=is_new)
        self._hosting.shells.arrange(state)
        provide(self._sources.values(), state.scope.provided)
        state.profile = profile
        grows = options.get("grows", state.audience.grows)
        state.audience.grows = self._showcase.loads(profile) if grows is None else grows
        state.treat_as_write = frozenset(self._profile(profile).wary)
        wanted: dict[str, Any] = {name: options[name] for name in InteractionOptions.__annotations__ if name in options}
        if wanted or is_new:
            self.begin(state, cast("InteractionOptions", wanted))
        return Session(self, state)

    def begin(self, state: SessionState, options: InteractionOptions) -> None:
        """Begin the next interaction of a session; see `Session.begin`."""
        exact = options.get("tools")
        if isinstance(exact, str):
            raise UsageError(f"tools is a list of names, not the text {exact!r}")
        named = None if exact is None else self._showcase.named(self._catalog_of(state), state, exact)
        begin(state, options, profile=self._profile(state.profile), exact=named, learning=self._learning)

    def enter(self, state: SessionState, mode: str) -> None:
        """Let a session work in a mode from now on; see `Session.mode`."""
        self._workspaces.enter(state, mode)

    def scene(self, state: SessionState, name: str = "", version: str = "") -> Scene:
        """Return the catalog as the session may know of it, with the tool `name` in `version` where one is said."""
        return self._showcase.scene(self._catalog_of(state, name, version), state)

    async def call(self, call: Call) -> ToolResult:
        """Run one call: the door that every way in comes through. Raises `UsageError` when the crib is not open."""
        pipeline = self.check_open()
        if self._runtimes.has_left:
            await self._runtimes.close_left()
        rest(call.session, self.settings.approvals.idle)
        try:
            await self._workspaces.ready(call.session)
        except ToolFailure as failure:
            refusal = ToolResult.of_failure(failure).with_meta(call_id=call.id)
            self._store.calls.note(call, refusal)
            return refusal
        try:
            return await pipeline.run(call)
        finally:
            rest(call.session, math.inf)

    def next_call_id(self) -> str:
        """Return an id that no other call has."""
        return f"{self._prefix}{next(self._numbers):x}"

    def view(self, state: SessionState) -> View:
        """Return what the session's model sees now."""
        return self._showcase.view(self._catalog_of(state), state)

    def listing(self, state: SessionState) -> bytes:
        """Return the shown definitions as a JSON array of MCP tools."""
        return self._showcase.listing(self._catalog_of(state), state)

    def _folder_for_tools(self, kept: bool) -> Path:
        base = self._folders if self._home is None else self._home.data if kept else self._home.cache
        return base / "tools"

    def _state(self, principal: str, key: str) -> SessionState:
        state = self._sessions.get((principal, key))
        if state is None:
            settings = self.settings
            state = SessionState(
                key=key,
                principal=principal,
                **identified(settings, principal, self._disabled),
            )
            self._sessions[principal, key] = state
            self._runtimes.watch(state)
        return state

    def _profile(self, name: str) -> Profile:
        return self._showcase.profile(name)

    def _catalog_of(self, state: SessionState, name: str = "", version: str = "") -> Catalog:
        overlay = self._overlays.get(state.instance) if state.instance else None
        return self._pinned.at(
            overlay.catalog if overlay else self._registry.catalog, state.scope.versions, name, version
        )

    def _surroundings(self, state: SessionState, name: str = "", version: str = "") -> Surroundings:
        around = partial(self._surroundings, state)
        return self._showcase.around(self._catalog_of(state, name, version), state, around)

    def scene_of(self, context: Context) -> Scene:
        """Return what the session of a call can see."""
        state = self._sessions[context.principal, context.session_key]
        return self.scene(state)

    def door_of(self, context: Context) -> Callable[..., Awaitable[ToolResult]]:
        """Return how a verb makes calls of the session that called it: `run(name, arguments, **fields of Call)`."""
        state = self._sessions[context.principal, context.session_key]
        blank = Call(
            id="",
            name="",
            arguments=None,
            session=state,
            origin="batch",
            parent=context.call_id,
            client=Client(peer=context.peer, meta=context.meta or None),
        )

        async def run(name: str, arguments: Any = None, **fields: Any) -> ToolResult:
            call = blank.evolve(
                id=self.next_call_id(), name=name, arguments=arguments, started=time.monotonic(), **fields
            )
            return await self.call(call)

        return run

    async def _open_sources(self) -> None:
        await self.mount_source(Counter(self, self._artifacts), trusted=True)
        await self.mount_source(self._functions, prefix=False, trusted=True)
        if self.settings.builtins:
            self._registry.declare(_GUESTS, prefix=False, yields=True)
            await self.mount_source(_guests(), prefix=False, trusted=True)
            there = await self._hosting.shells.ready()
            provide(self._sources.values(), there | {"workspace"} if self.settings.workspace.roots else there)
            await self._plugins.open(self._intake, self._home.config / "plugins" if self._home else None)
        await self._mount_servers(self.settings.servers, accept=self.settings.accept)
        await loading.mount_configured(self, self._intake.report)
        await mount_apis(self, self._intake, self._home.cache if self._home else None)
        await self._workflows.add(self.settings.workflows)
        await mount_jobs(self, at_once=self.settings.builtins)
        await self._registrations.restore()
        await self.mount_source(self._plans, prefix=False, trusted=True)
        await self.mount_source(self._shelving.tools, prefix=False, trusted=True)


def _guests() -> PythonSource:
    """Load what installed packages bring."""
    source = PythonSource(_GUESTS)
    guests, problems = load_entry_points()
    for guest in guests:
        source.offer(guest.thing, guest.origin)
    source.report(*problems)
    return source
