"""Schedules of a crib: made in its sessions, fired by processes that serve or work, as jobs of the creator.

The session of a run has the principal, profile, mode, rules, scope and folders of the creator, and no person: calls
that ask wait in the store for their answer, like those of clients. What a message has no channel for is added to the
next result that a session of the principal gets.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from msgspec.structs import replace

from ..config import Settings
from ..config.directories import here
from ..core.call import Call
from ..core.context import Context
from ..core.entry_points import installed
from ..core.result import ToolResult
from ..core.saved_call import SavedCall, SavedSession
from ..core.services.host import Host
from ..core.services.schedules import Schedule
from ..core.session import LOCAL, SessionState, SessionTable
from ..core.taint import StoredTaint
from ..core.tool import Annotations, Availability, Execution, Tool
from ..errors import ToolFailure, UsageError
from ..jobs.durable import DurableJobs
from ..jobs.job import Jobs
from ..jobs.scheduler import ScheduledRun, Scheduler, ScheduleSpec
from ..jobs.triggers import Trigger, local_zone, trigger_of
from ..sources.python import PythonSource
from ..sources.source import BaseSource
from ..store.store import Store
from .calls import CallRunner, SavedCalls
from .session import Session, SessionParts
from .tools import ToolRegistry
from .views import Views

AGENTS: Final = "toolcrib.agents"
"""Entry point group of the package that runs agents; its target is an `AgentRunner`."""
AgentRunner = Callable[[Session, str], Awaitable[ToolResult]]
"""Runs an agent on a prompt in a session, with the configured model. Raises `ToolFailure`."""

_logger = logging.getLogger(__name__)

_ORIGIN: Final = "schedule"
"""Origin of the calls of runs, and the kind of their sessions."""
_KEYS: Final = "schedule/"
"""Prefix of the keys of their sessions."""
_MESSAGE: Final = "send_message"
_ZONE: Final = "timezone"
"""Context value of a session that names the zone of its schedules."""
_AGENT: Final = Tool(
    name="run_agent_task",
    source="schedules",
    local_name="run_agent_task",
    op="x.schedule.agent",
    description="Let an agent do a task by itself, with the tools and rights of the schedule's session.",
    input_schema={
        "type": "object",
        "properties": {"prompt": {"type": "string", "minLength": 1}},
        "required": ["prompt"],
        "additionalProperties": False,
    },
    annotations=Annotations(read_only=False, destructive=False, open_world=False),
    approval="never",  # what the agent calls is decided call by call
    category="agents",
    availability=Availability(contexts=(_ORIGIN,)),
    execution=Execution(timeout=3600.0),
)


class Schedules:
    """The schedules of one crib."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        sessions: SessionTable,
        saved_calls: SavedCalls,
        views: Views,
        tools: ToolRegistry,
        calls: CallRunner,
        jobs: Jobs,
    ) -> None:
        """Open nothing."""
        self._settings = settings
        self._store = store
        self._sessions = sessions
        self._saved_calls = saved_calls
        self._views = views
        self._tools = tools
        self._calls = calls
        self._jobs = jobs
        self._parts: SessionParts | None = None
        self._host: Host | None = None
        self._delivers = False
        self._agent: _AgentTask | None = None
        self.scheduler = Scheduler(store.schedules, store.vault, _place_name(settings), self)
        """The schedules of every principal, for the operator."""

    async def open(self, parts: SessionParts, host: Host) -> None:
        """Deliver the messages that wait; fires nothing. `host` is for what tells whether a tool has anything to do."""
        self._parts = parts
        self._host = host
        with suppress(ToolFailure):
            if await self._store.schedules.has_messages():
                self._deliver()

    async def start(self) -> None:
        """Fire due schedules from now on, unless this process carries no jobs (`jobs.work`)."""
        if not self._settings.jobs.work:
            return
        if installed(AGENTS) and self._parts is not None and self._agent is None:
            self._agent = _AgentTask(self._parts)
            await self._tools.mount_source(self._agent, prefix=False, trusted=True)
        await self.scheduler.start()

    async def close(self) -> None:
        """Fire no more."""
        await self.scheduler.stop()

    @property
    def works(self) -> bool:
        """Whether this process fires schedules, and has one to wait for."""
        return self.scheduler.works

    def of(self, owner: str, session: str, taint: StoredTaint | None = None) -> SessionSchedules:
        """Return the schedules of a principal, as one of its sessions may make and change them.

        `taint` is that of the call: it marks what is written, and is noted of what is read.
        """
        return SessionSchedules(self.scheduler, self._sessions.of_call(owner, session), self._settings, taint)

    def offer(self) -> None:
        """List the tool that runs agents; see `jobs.scheduler.Runner`, here and below."""
        if self._agent is not None:
            self._agent.offer(_AGENT)

    def lacks(self, plan: ScheduleSpec) -> str:
        """Return the missing requirement: the tool, a package that runs agents, or built-in tools for one."""
        kind = plan.action["type"]
        if kind == "agent_task" and self._agent is None:
            return "no process that fires has an agent (the extra `agent`)"
        if kind == "agent_task" and plan.builtins and not self._settings.sources.builtins:
            return "no process that fires has the built-in tools (`builtins: true`)"
        if kind != "call":
            return ""
        return "" if self._tool_of(plan) else f"no process that fires has the tool {plan.action['tool']}"

    def _tool_of(self, plan: ScheduleSpec) -> Tool | None:
        visible = self._views.visible(SessionState(key="", instance=plan.session.instance))
        return visible.catalog.find(str(plan.action["tool"]))

    async def is_due(self, plan: ScheduleSpec) -> bool:
        """Ask the tool of a call without arguments (`@tool(due=…)`); one that does not tell always has something."""
        if plan.action["type"] != "call" or plan.action.get("arguments") or self._host is None:
            return True
        tool = self._tool_of(plan)
        source = None if tool is None else self._tools.source_of(tool)
        try:
            due = source.due(tool) if tool is not None and isinstance(source, PythonSource) else None
            return due is None or await due(self._host, plan.session.principal)
        except ToolFailure:
            raise
        except Exception:  # of a guest; its call meets the same, and records it
            _logger.debug("whether %s has anything to do is not known", plan.action["tool"], exc_info=True)
            return True

    async def run(self, run: ScheduledRun) -> ToolResult | None:
        """Make the call of a run."""
        session = _with_agent(run.session) if run.action["type"] == "agent_task" else run.session
        try:
            state = self._saved_calls.session(session)
        except UsageError as error:
            return ToolResult.failed("unavailable", f"the session of this schedule cannot be had again: {error}")
        name, arguments = _call_of(run)
        tool = self._views.visible(state, name).catalog.find(name)
        can_send = tool is not None and state.admits(tool) and not tool.availability.missing
        if run.action["type"] == "send_message" and not can_send:
            return None
        saved = SavedCall(
            id=run.id,
            name=name if tool is None else tool.name,
            arguments=arguments,
            session=session,
            definition="" if tool is None else tool.digest.hex(),
            origin=_ORIGIN,
            requested=name,
            idempotency_key=run.key,
        )
        if tool is None or not isinstance(self._jobs, DurableJobs):
            return await self._saved_calls.make(saved, job=self._settings.jobs)
        job = await self._jobs.submit(saved, tool, state.treat_as_write)
        return await self._jobs.result(job, state.principal)

    def note(self, run: ScheduledRun) -> None:
        """Record a message that was left for the next session, and add it to a result from now on."""
        state = SessionState(key=run.session.key, principal=run.session.principal)
        name, arguments = _call_of(run)
        call = Call(id=run.id, name=name, arguments=arguments, session=state, origin=_ORIGIN)
        self._store.calls.note(call, ToolResult.of_text("it waits for the next session"))
        self._deliver()

    def _deliver(self) -> None:
        """Add messages to results from now on."""
        if not self._delivers:
            self._delivers = True
            self._calls.enrich(self._with_messages)

    async def _with_messages(self, call: Call, result: ToolResult) -> ToolResult:
        """Return a result with the messages that wait for its principal."""
        if call.is_nested or call.session.key.startswith(_KEYS):
            return result
        for title, text, mark in await self.scheduler.messages(call.session.principal):
            if mark:
                result = result.with_meta(source=mark, trust="untrusted")
            head = f"[Scheduled message{f' ({title})' if title else ''}, for the user:]"
            result = replace(result, content=(*result.content, {"type": "text", "text": f"{head}\n{text}"}))
        return result


class SessionSchedules:
    """The schedules of one principal, for one session: `core.services.schedules.Schedules`."""

    def __init__(
        self, scheduler: Scheduler, state: SessionState, settings: Settings, taint: StoredTaint | None
    ) -> None:
        """`state` gives new schedules their rules; `taint` is that of the call."""
        self._taint = taint
        self._scheduler = scheduler
        self._state = state
        self._settings = settings

    async def create(
        self, *, title: str, trigger_type: str, trigger_config: Mapping[str, Any], action: Mapping[str, Any]
    ) -> tuple[Schedule, bool]:
        """Return a new schedule and True, or the active one that equals it and False."""
        trigger = trigger_of(trigger_type, trigger_config, self._zone())
        plan = self._marked(new_plan(title, trigger, action, self._session(), self._settings))
        made, is_new = await self._scheduler.create(plan)
        return self._noted(made), is_new

    async def list(self) -> list[Schedule]:
        """Return the open schedules."""
        return [self._noted(one) for one in await self._scheduler.list(self._state.principal)]

    async def update(
        self,
        id: str,
        *,
        title: str | None = None,
        trigger_type: str | None = None,
        trigger_config: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Change what is given."""
        session = self._session()

        def make(old: ScheduleSpec) -> ScheduleSpec:
            trigger = old.trigger
            if trigger_type is not None or trigger_config is not None:
                config = old.trigger.config if trigger_config is None else trigger_config
                trigger = trigger_of(trigger_type or old.trigger.type, config, self._zone())
            new_action = old.action if action is None else action
            made = new_plan(old.title if title is None else title, trigger, new_action, session, self._settings)
            keeps_words = title is None or action is None
            return self._marked(made, old.tainted if keeps_words else "")

        return self._noted(await self._scheduler.update(id, self._state.principal, make))

    async def cancel(self, id: str) -> Schedule:
        """End one."""
        return self._noted(await self._scheduler.cancel(id, self._state.principal))

    def _marked(self, plan: ScheduleSpec, mark: str = "") -> ScheduleSpec:
        """Return a schedule with the mark of its words: its own, or that of the call which writes it."""
        return replace(plan, tainted=mark or ("" if self._taint is None else self._taint.mark))

    def _noted(self, schedule: Schedule) -> Schedule:
        """Return a schedule whose words the call reads."""
        if self._taint is not None:
            self._taint.note([schedule.tainted])
        return schedule

    async def warning(self) -> str:
        """Return that nothing fires schedules, and what starts something; empty while a process fires them."""
        return await unfired(self._scheduler, self._settings)

    def _zone(self) -> str:
        named = self._state.defaults.get(_ZONE)
        return named if isinstance(named, str) and named else local_zone(self._settings.environment)

    def _session(self) -> SavedSession:
        """Return the session of the runs: refused tools stay refused; behind a client its mode is `cautious`."""
        state = self._state
        refused = tuple(name for name, effect in state.approvals.remembered.items() if effect == "deny")
        saved = SavedSession.of(state)
        return _unattended(
            replace(
                saved,
                mode=saved.mode if self._settings.policy.guard else "cautious",
                rules=(*saved.rules, ("deny", refused)) if refused else saved.rules,
            )
        )


def new_plan(
    title: str, trigger: Trigger, action: Mapping[str, Any], session: SavedSession, settings: Settings
) -> ScheduleSpec:
    """Return the content of a schedule, without empty fields of the action."""
    given = {key: value for key, value in action.items() if value not in (None, "", {})}
    builtins = bool(settings.sources.builtins)
    return ScheduleSpec(title=title.strip(), trigger=trigger, action=given, session=session, builtins=builtins)


async def unfired(scheduler: Scheduler, settings: Settings, place: str | None = None) -> str:
    """Return that no process fires the schedules of these settings, and what starts one; empty while one does.

    `place` names another configuration in the store of these settings.
    """
    if await scheduler.is_served(place):
        return ""
    if scheduler.is_private:
        return "No process fires it: the records are in memory, and this process fires none (`crib.schedules.start()`)."
    files = tuple(Path(file) for file in (scheduler.place if place is None else place).splitlines())
    options = settings.with_values(files=files).file_options
    return (
        "No process runs that would fire it: a client that starts `toolcrib serve`, `toolcrib serve --http` or"
        f" `{' '.join(('toolcrib worker', options)).strip()}` does."
    )


def _place_name(settings: Settings) -> str:
    """Return the name of a configuration: its files. Others have other rules, and do not fire its schedules."""
    return "\n".join(map(str, settings.files))


def scheduler_at(store: Store, settings: Settings) -> Scheduler:
    """Return the schedules of a store, for a process that shows and changes them, and fires none."""
    return Scheduler(store.schedules, store.vault, _place_name(settings), _NoRuns())


def session_for_cli(settings: Settings, *, mode: str, folders: tuple[Path, ...]) -> SavedSession:
    """Return the session of schedules that the operator makes at a terminal, with tools that work in `folders`."""
    identity = settings.policy.identities.get(LOCAL)
    session = SavedSession(
        key="",
        principal=LOCAL,
        profile=(identity.profile if identity else "") or settings.disclosure.profile,
        mode=settings.policy.local_mode(mode) or (identity.mode if identity else "") or settings.policy.mode,
        cwd=str(here().project),
        roots=tuple(map(str, folders)),
    )
    return _unattended(session)


def _unattended(session: SavedSession) -> SavedSession:
    """Return the session of a run: its calls that ask wait in the store, as those of clients do (`for_client`)."""
    key, contexts = f"{_KEYS}{secrets.token_hex(8)}", tuple(sorted({*session.contexts, _ORIGIN}))
    return replace(session, key=key, contexts=contexts, for_client=True)


def _with_agent(session: SavedSession) -> SavedSession:
    """Return a session whose scope has the tool that runs an agent; the agent itself gets no more than the scope."""
    own = (_AGENT.name,)
    allowed, exact = session.allowed, session.exact
    return replace(
        session,
        allowed=None if allowed is None else (*allowed, *own),
        exact=None if exact is None else (*exact, *own),
    )


def _call_of(run: ScheduledRun) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments of a run. One that is late says so."""
    action = run.action
    if action["type"] == "call":
        return str(action["tool"]), dict(cast("Mapping[str, Any]", action.get("arguments", {})))
    field = "content" if action["type"] == "send_message" else "prompt"
    text = "\n\n".join(filter(None, (str(action[field]), run.note)))
    if field == "prompt":
        return _AGENT.name, {"prompt": text}
    return _MESSAGE, {"content": text, **({"title": run.title[:200]} if run.title else {})}


class _NoRuns:
    """Stands for the calls of runs in a process that makes none."""

    def offer(self) -> None:
        """Offer nothing."""

    def lacks(self, plan: ScheduleSpec) -> str:
        """Lack everything."""
        return "this process fires no schedules"

    def note(self, run: ScheduledRun) -> None:
        """Record nothing."""

    async def is_due(self, plan: ScheduleSpec) -> bool:
        """Whether a call has anything to do: not known here."""
        return True

    async def run(self, run: ScheduledRun) -> ToolResult | None:
        """Refuse."""
        raise UsageError("this process fires no schedules")


class _AgentTask(BaseSource):
    """Source of the tool that runs an agent for a schedule. Only sessions of schedules have it."""

    def __init__(self, parts: SessionParts) -> None:
        super().__init__(_AGENT.source, "schedules")
        self._parts = parts

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run the agent. Raises `ToolFailure`."""
        state = self._parts.sessions.find(context.principal, context.session_key)
        if state is None:
            raise ToolFailure("unavailable", "the session of this task has ended")
        runner = cast("AgentRunner", installed(AGENTS)[0].load())
        return await runner(Session(self._parts, state), str(arguments["prompt"]))
