"""Sub-agents of one session: who they are, what they do now, what they report.

The registry belongs to the session's runtime: it outlives a run of the parent, and ends its sub-agents with the
session. Nothing here loads Pydantic AI: a session over MCP has a registry before it has a model.

    parent's run           SubAgents                     task in the background
    `add`, `send`  ──────> idle? begin a turn ─────────> turn(agent, prompt)
                           running? into its inbox ····> read before its next request
    `take_events`  <────── events waiting <───────────── post: its answer, what it shares

A sub-agent works ("running") until no message waits, is idle then, and stays so until it is closed.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import anyio
from msgspec import Struct, field

from toolcrib import Session
from toolcrib.agents import tell_parent
from toolcrib.errors import ToolFailure
from toolcrib.plugin import Background, Records, clip, fenced_text, is_alive, nearest

from ..events import AgentEvent, CallBegun, EventListener, Finished, Message, Requesting, TextDelta, ThinkingDelta

_logger = logging.getLogger(__name__)
REGISTRY: Final = "sub_agents@toolcrib"
"""Key of a session's runtime for its `SubAgents`."""
PARENT: Final = "parent@toolcrib"
"""Key of a sub-agent's runtime for the function that shares a text with its parent."""
RECORDS: Final = "toolcrib.sub_agents"
"""Collection of records: the sub-agents of sessions that a later process may continue."""
_PROCESS_NAME: Final = f"{os.getpid()}-{secrets.token_hex(4)}"
"""Names this process in records; process ids are used again."""
_MAX_EVENTS: Final = 100
"""Events that wait for the parent's next turn; older ones are dropped, and counted."""
_MAX_MESSAGES: Final = 20
"""Messages that wait for one sub-agent."""
_MAX_EVENT_CHARS: Final = 16_000
"""Of the text of one event; a longer one is cut in the middle."""
_MAX_TASK_CHARS: Final = 200
_NON_SLUG_CHARS: Final = re.compile(r"[^a-z0-9]+")

Phase = Literal["idle", "waiting_for_llm", "streaming", "executing_tool"]


class TurnRunner(Protocol):
    """Runs one turn of a sub-agent; returns how it ended, and its answer."""

    def __call__(self, agent: SubAgent, prompt: str, /) -> Awaitable[tuple[str, str]]:
        """Work on `prompt`. Failures of models and tools are in the answer."""
        ...


class SubAgent(Struct, kw_only=True, eq=False):
    """One sub-agent. Lives until it is closed; changed on the event loop alone."""

    id: str
    name: str
    profile: str
    task: str
    session: Session
    max_turns: int | None
    agent: Any = None
    """Its `AgentSetup`: model, instructions, limits."""
    created: float = field(default_factory=time.time)
    last_active: float = field(default_factory=time.time)
    phase: Phase = "idle"
    """For people and the parent's model; only `running` decides anything."""
    phase_since: float = field(default_factory=time.monotonic)
    turns: int = 0
    """Turns that have begun: its task, and each message that found it idle."""
    running: bool = False
    inbox: deque[str] = field(default_factory=deque[str])
    """Messages that it reads before its next request to the model."""
    history: tuple[Message, ...] = ()
    cancel: Callable[[], None] | None = None
    """Ends the current run; None between runs."""
    is_cancelled: bool = False
    is_closed: bool = False
    """True once its parent has closed it: it reports nothing any more."""
    redact: Callable[[str], str] = str
    """Takes secrets out of what it reports."""

    def set_phase(self, phase: Phase) -> None:
        """Record what it does now."""
        self.last_active = time.time()
        if phase != self.phase:
            self.phase, self.phase_since = phase, time.monotonic()

    def update_phase(self, event: AgentEvent) -> None:
        """Derive the phase from an event of its run."""
        match event:
            case Requesting():
                self.set_phase("waiting_for_llm")
            case TextDelta() | ThinkingDelta():
                self.set_phase("streaming")
            case CallBegun():
                self.set_phase("executing_tool")
            case Finished():
                self.set_phase("idle")
            case _:
                self.last_active = time.time()

    def take_messages(self) -> list[str]:
        """Remove and return the messages that wait, as the model reads them."""
        found = [f"[Message from the agent that you work for:]\n{text}" for text in self.inbox]
        self.inbox.clear()
        return found

    def describe(self) -> dict[str, Any]:
        """Return its state as the model reads it."""
        return {
            "subagent_id": self.id,
            **({"name": self.name} if self.name else {}),
            "profile": self.profile or None,
            "task": _shorten(self.task),
            "status": "running" if self.running else "idle",
            "activity_phase": self.phase,
            "phase_duration_sec": round(time.monotonic() - self.phase_since, 1),
            "can_cancel": self.running,
            "can_send": self.running or self.turns_left != 0,
            "created_at": _iso_time(self.created),
            "last_activity": _iso_time(self.last_active),
            "turn_count": self.turns,
            "max_turns": self.max_turns,
        }

    @property
    def turns_left(self) -> float:
        """Turns that it may still begin."""
        return float("inf") if self.max_turns is None else max(0, self.max_turns - self.turns)


class SubAgents:
    """The sub-agents of one session. Closed with the session's runtime, which ends all of them.

    Used on the event loop alone. Each sub-agent that works has one task; the task group begins with the first one.
    """

    def __init__(self, parent: Session) -> None:
        """Made by `registry_of`."""
        self.parent = parent
        self._agents: Final[dict[str, SubAgent]] = {}
        self._events: Final[deque[str]] = deque()
        self._dropped = 0
        self._tasks: Background | None = None
        self._starting = anyio.Lock()
        self._records: Records | None = None
        self._is_restored = False
        self._is_closed = False
        self._lost: Final[dict[str, Mapping[str, Any]]] = {}
        """Records of sub-agents that ended with their process or session, by id."""
        self._on_event: EventListener | None = None
        """Listener of the parent's run; None between runs."""
        self._attached = anyio.Event()
        """Set while a run of the parent goes on."""
        self._work_ended = anyio.Event()
        """Set, and replaced, whenever a sub-agent has ended its work."""

    # The parent's side.

    def attach(self, on_event: EventListener) -> None:
        """A run of the parent begins: events go to `on_event`, and questions can be asked."""
        self._on_event = on_event
        self._attached.set()

    def detach(self) -> None:
        """The parent's run has ended. Sub-agents go on; those that must ask wait for the next run."""
        self._on_event = None
        self._attached = anyio.Event()

    @property
    def is_attached(self) -> bool:
        """True while a run of the parent reads the events itself."""
        return self._on_event is not None

    async def wait_attached(self) -> None:
        """Return while a run of the parent goes on: there is a person to ask."""
        await self._attached.wait()

    def forward_event(self, event: AgentEvent) -> None:
        """Pass an event of a sub-agent's run to the parent's run, if one goes on."""
        if self._on_event is not None:
            self._on_event(event)

    def post(self, agent: SubAgent, kind: str, text: str) -> None:
        """Let the parent read `text` in its next turn, as data; it is as careful then as the sub-agent has to be."""
        if agent.is_closed:
            return
        tell_parent(self.parent, agent.session)
        text = agent.redact(text)
        if len(text) > _MAX_EVENT_CHARS:
            half = _MAX_EVENT_CHARS // 2
            text = f"{text[:half]}\n[{len(text) - 2 * half} characters cut; ask {agent.id} for them]\n{text[-half:]}"
        self._queue_event(f"[Sub-agent {agent.id} {kind}:]\n{fenced_text(text, agent.id)}")

    async def wait_idle(self) -> None:
        """Return once no sub-agent works: what they have to say is in the next turn then."""
        while any(agent.running for agent in self._agents.values()):
            await self._work_ended.wait()

    def take_events(self) -> list[str]:
        """Remove and return what sub-agents have reported since the last time."""
        found = list(self._events)
        self._events.clear()
        if self._dropped:
            found.insert(0, f"[{self._dropped} older events of sub-agents were dropped: {_MAX_EVENTS} are kept.]")
            self._dropped = 0
        return found

    async def restore(self, records: Records) -> None:
        """Find the sub-agents that an earlier process, or a closed session of this key, has left: they are lost.

        They are reported as an event, and named by `list` and by calls with their ids. Only a session that a later
        process may continue has records. Without a store nothing is reported, and a warning is logged.
        """
        if self._is_restored or not self.parent.state.keep_for:
            return
        self._is_restored = True
        self._records = records
        try:
            found = await records.list(group=self.parent.state.key)
        except ToolFailure as failure:
            _logger.warning("sub-agents of earlier processes cannot be read: %s", failure)
            self._is_restored = False
            return
        for record in reversed(found):
            if record.id not in self._agents and not _is_alive_elsewhere(str(record.value.get("process", ""))):
                self._lost[record.id] = record.value
                with suppress(ToolFailure):
                    await records.remove(record.id)
        if self._lost:
            lines = [f"- {id}: {_shorten(str(value.get('task', '')))}" for id, value in self._lost.items()]
            self._queue_event(
                "[These sub-agents were lost: the process or session that ran them ended before they were closed. Their"
                " unfinished work is not continued; spawn them again if it is still needed.]\n" + "\n".join(lines)
            )

    # Sub-agents.

    def new_id(self, name: str) -> str:
        """Return an id that no other sub-agent of the session had, in this process or before."""
        slug = _NON_SLUG_CHARS.sub("-", name.lower()).strip("-")[:32] or "subagent"
        while (id := f"{slug}-{secrets.token_hex(2)}") in self._agents or id in self._lost:
            continue
        return id

    async def add(self, agent: SubAgent, run_turn: TurnRunner, *, max_agents: int) -> None:
        """Begin the first turn of a new sub-agent, in the background.

        Raises `ToolFailure` if the session has `max_agents` of them already, or has ended.
        """
        async with self._starting:  # several may be spawned at once
            if self._tasks is None:
                tasks = Background()
                await tasks.start()
                self._tasks = tasks
        if self._is_closed:
            raise ToolFailure("unavailable", "the session of this call has ended")
        if len(self._agents) >= max_agents:
            message = f"this session has {len(self._agents)} sub-agents, the maximum"
            raise ToolFailure("budget_exceeded", message, hint="close one that is not needed any more")
        self._agents[agent.id], agent.running = agent, True  # before the record is written: it takes its place
        try:
            await self._write_record(agent)
            if self._is_closed or agent.is_closed:
                raise ToolFailure("unavailable", "the sub-agent was closed before it began")
        except BaseException:
            agent.running = False
            self._agents.pop(agent.id, None)
            raise
        self._start_turn(agent, agent.task, run_turn)

    def get(self, id: str) -> SubAgent:
        """Return a sub-agent. Raises `ToolFailure("not_found")` naming those there are, or how it was lost."""
        agent = self._agents.get(id)
        if agent is not None:
            return agent
        if id in self._lost:
            message = f"{id} was lost: the process or session that ran it ended"
            raise ToolFailure("not_found", message, hint="spawn it again if its task is still to be done")
        close = nearest(id, self._agents, 1)
        hint = f"did you mean {close[0]}?" if close else "list_active_subagents has the ids"
        raise ToolFailure("not_found", f"there is no sub-agent {id!r} in this session", hint=hint)

    def send(self, id: str, message: str, run_turn: TurnRunner) -> Literal["queued", "dispatched"]:
        """Queue a message for a running sub-agent, or begin a turn of an idle one.

        Raises `ToolFailure` for an unknown one, one without a turn left, and when too many messages wait.
        """
        agent = self.get(id)
        if agent.running:
            if len(agent.inbox) >= _MAX_MESSAGES:
                raise ToolFailure("overloaded", f"{_MAX_MESSAGES} messages wait for {id}", hint="wait, or cancel it")
            agent.inbox.append(message)
            return "queued"
        if not agent.turns_left:
            message = f"{id} has used its {agent.max_turns} turns"
            raise ToolFailure("budget_exceeded", message, hint="close it, and spawn another one")
        agent.is_cancelled = False
        self._start_turn(agent, message, run_turn)
        return "dispatched"

    def stop(self, id: str) -> bool:
        """Cancel the current turn of a sub-agent, which stays; return whether it had one."""
        agent = self.get(id)
        agent.inbox.clear()
        if not agent.running:
            return False
        agent.is_cancelled = True
        if agent.cancel is not None:
            agent.cancel()
        return True

    def stop_all(self) -> None:
        """Cancel what every sub-agent does now."""
        for id in self._agents:
            self.stop(id)

    async def close(self, id: str) -> None:
        """End a sub-agent and its session; it reports nothing any more.

        The session of one that still works is closed by its own task, once that has come to its end.
        """
        agent = self.get(id)
        agent.is_closed = True
        self.stop(id)
        del self._agents[id]
        if not agent.running:
            await agent.session.__aexit__(None, None, None)
        await self._remove_record(id)

    def describe(self) -> dict[str, Any]:
        """Return the state of all, oldest first, and those that were lost."""
        last_active = [agent.describe() for agent in self._agents.values()]
        lost = [{"subagent_id": id, "task": _shorten(str(value.get("task", "")))} for id, value in self._lost.items()]
        return {"active_sessions": last_active, "count": len(last_active), **({"lost": lost} if lost else {})}

    async def aclose(self) -> None:
        """End all of them, with the session. Records stay: the next session of that key reports them as lost."""
        self._is_closed = True
        async with self._starting:
            agents = list(self._agents.values())
        for agent in agents:
            agent.is_closed = True
        self.stop_all()
        if self._tasks is not None:
            await self._tasks.stop()
        for agent in agents:
            await agent.session.__aexit__(None, None, None)
        self._agents.clear()

    async def _write_record(self, agent: SubAgent) -> None:
        """Record a sub-agent of a session that a later process may continue."""
        if self._records is None:
            return
        value = {"task": agent.task[:2000], "name": agent.name, "process": f"{_host_name()}/{_PROCESS_NAME}"}
        await self._records.put(agent.id, value, group=self.parent.state.key)
        if agent.is_closed:
            await self._remove_record(agent.id)

    async def _remove_record(self, id: str) -> None:
        if self._records is not None:
            with suppress(ToolFailure):
                await self._records.remove(id)

    def _start_turn(self, agent: SubAgent, prompt: str, run_turn: TurnRunner) -> None:
        agent.running = True
        agent.set_phase("waiting_for_llm")
        assert self._tasks is not None
        self._tasks.spawn(lambda: self._run_turns(agent, prompt, run_turn))

    async def _run_turns(self, agent: SubAgent, prompt: str, run_turn: TurnRunner) -> None:
        """Run turns until no message waits."""
        try:
            while True:
                agent.turns += 1
                kind, text = await run_turn(agent, prompt)
                waiting = agent.take_messages()
                if waiting and not agent.turns_left:
                    text = f"{text}\n[{len(waiting)} messages were not read: its {agent.max_turns} turns are used up.]"
                elif waiting:
                    text = f"{text}\n[It goes on with your newest message.]"
                self.post(agent, kind, text)
                if not waiting or agent.is_closed or not agent.turns_left:
                    break
                agent.is_cancelled = False  # the messages came after that
                prompt = "\n\n".join(waiting)
        except Exception as error:
            self.post(agent, "broke", f"{type(error).__name__}: its conversation is as before this turn.")
            raise
        finally:
            agent.running, agent.cancel = False, None
            agent.inbox.clear()
            agent.set_phase("idle")
            self._work_ended.set()
            self._work_ended = anyio.Event()
        if agent.is_closed and not self._is_closed:  # closed while it ran
            await agent.session.__aexit__(None, None, None)

    def _queue_event(self, event: str) -> None:
        self._events.append(event)
        if len(self._events) > _MAX_EVENTS:
            self._events.popleft()
            self._dropped += 1


def registry_of(session: Session) -> SubAgents:
    """Return the registry of a session, made at first use."""
    runtime = session.state.runtime
    if REGISTRY not in runtime:
        runtime[REGISTRY] = SubAgents(session)
    found: SubAgents = runtime[REGISTRY]
    return found


def _shorten(text: str) -> str:
    return clip(" ".join(text.split()), _MAX_TASK_CHARS)


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _host_name() -> str:
    return os.uname().nodename if hasattr(os, "uname") else ""


def _is_alive_elsewhere(process: str) -> bool:
    """Whether another process of this machine has the sub-agent. One of another machine is taken for lost."""
    host, _, name = process.rpartition("/")
    number = name.partition("-")[0]
    if host != _host_name() or name == _PROCESS_NAME or not number.isdecimal() or int(number) == os.getpid():
        return False
    return is_alive(int(number))
