"""Agent: a model that works with the tools of a session.

    async with Toolcrib.open() as crib, crib.session() as session:
        agent = Agent("anthropic:claude-sonnet-5-5", session)
        outcome = await agent.run("Which tests cover the parser?")
        print(outcome.text)
        outcome = await agent.run("Run them.", history=outcome.history)

The agent holds no conversation: each run is given one and returns the longer one. It belongs to the session's event
loop, and does one run at a time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import date
from types import TracebackType
from typing import Self, Unpack

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from toolcrib import InteractionOptions, Session, Tool
from toolcrib.errors import UsageError

from .agent_setup import AgentSetup, add_agent_tools, prompt_of
from .events import AgentEvent, EventListener, Finished, Outcome, discard
from .limits import AgentLimits, UsageLimits, limits_for
from .loop import Prompt, Run
from .models import model_of
from .prompts import PromptFacts, project_of
from .session_agent import begin_task, start_run
from .sub_agents.registry import SubAgents, registry_of
from .sub_agents.tools import SubAgentTools
from .tools import ASK, AgentTools

_logger = logging.getLogger(__name__)


class Agent:
    """A model at work in a session. Holds nothing that must be closed.

    One run at a time. A run that is cancelled while its task is still analysed has no `Run` yet: `cancel` is
    remembered then, and the run ends as soon as it exists.
    """

    def __init__(
        self,
        model: Model | str,
        session: Session,
        *,
        instructions: str | PromptFacts = "",
        limits: AgentLimits | None = None,
        settings: ModelSettings | None = None,
        local: Model | str | None = None,
        sub_agents: bool | None = None,
    ) -> None:
        """`model` is one of Pydantic AI's, or its name (see `models.model_of`).

        `instructions` say who the agent is and what it is for; the rest of the prompt is made from the session
        (`prompts.compose`), and `PromptFacts` replaces that rest too. `settings` go to the model's API with every
        request (`max_tokens`, `thinking` …). `local` is a model that costs nothing: where `model` does, tasks that only
        read can be delegated to it. Without `limits` the session's profile sets those of sub-agents.

        `sub_agents` gives the agent the tools that manage sub-agents in the background; by default it has them where
        the crib has its built-in tools. Raises `UsageError` for a model that cannot be had.
        """
        self.model = model_of(model)
        self.session = session
        self.limits = limits if limits is not None else limits_for(session.visible.profile.session.agents)
        self._manages_sub_agents = sub_agents
        self._facts = instructions if isinstance(instructions, PromptFacts) else PromptFacts(instructions=instructions)
        self._has_own_facts = isinstance(instructions, PromptFacts)
        self._settings: ModelSettings = settings if settings is not None else {}
        self._local = model_of(local) if local is not None else None
        self._is_ready = False
        self._run: Run | None = None
        self._is_running = False
        self._analysis: anyio.CancelScope | None = None  # made in a run: the agent itself may be made without a loop
        self._is_cancelled = False
        """True if `cancel` was called since the run began, perhaps before there was a task to cancel."""

    @property
    def last_outcome(self) -> Outcome | None:
        """Outcome of the newest run, also of one whose caller was cancelled; None before the first run has ended."""
        return self._run.outcome if self._run is not None else None

    @property
    def sub_agents(self) -> SubAgents:
        """The sub-agents of the session that work in the background: what each does, and to wait for them."""
        return registry_of(self.session)

    async def ready(self) -> None:
        """Mount the agent's own tools in the session. `run` does so by itself.

        `spawn_agent` always, `ask_user` if the session can ask its user, `delegate_task` if there is
        a local model beside a paid one; those that manage sub-agents as `sub_agents` says.
        """
        if not self._is_ready:
            builtins = self.session.parts.settings.sources.builtins
            await self._mount(AgentTools(without=frozenset({ASK}) if builtins else frozenset()))
            if self._manages_sub_agents or (self._manages_sub_agents is None and builtins):
                chosen = frozenset(builtins) if isinstance(builtins, tuple) and not self._manages_sub_agents else None
                await self._mount(SubAgentTools(only=chosen))
            self._is_ready = True
        add_agent_tools(self._make_setup(self._facts))

    async def _mount(self, source: AgentTools | SubAgentTools) -> None:
        try:
            await self.session.parts.tools.mount_source(source, prefix=False, trusted=True)
        except UsageError:
            if source.state.state == "ready":
                raise
            # Another agent of this crib has mounted it.

    async def run(
        self,
        prompt: Prompt,
        *,
        history: Iterable[ModelMessage] = (),
        on_event: EventListener | None = None,
        **options: Unpack[InteractionOptions],
    ) -> Outcome:
        """Work on `prompt` until there is an answer; `options` are those of an interaction (`Session.begin`).

        `history` is what earlier runs returned; it is made valid where it is not. `on_event` gets every event as it
        happens. Failures of models and tools are in the outcome. Raises `UsageError` for an option that
        does not exist, and while another run goes on. A caller that is cancelled finds the outcome in `last_outcome`.
        """
        self._reserve_run()
        return await self._run_prompt(prompt, history, on_event or discard, options)

    def _reserve_run(self) -> None:
        if self._is_running:
            raise UsageError("this agent works already: one run at a time, or make another agent in another session")
        self._is_running, self._is_cancelled = True, False

    async def _run_prompt(
        self, prompt: Prompt, history: Iterable[ModelMessage], on_event: EventListener, options: InteractionOptions
    ) -> Outcome:
        def notify(event: AgentEvent) -> None:
            try:
                on_event(event)
            except Exception:  # a screen that breaks must not end the work
                _logger.exception("a listener broke on %s", type(event).__name__)

        try:
            await self.ready()
            history = tuple(history)
            setup, usage = self._make_setup(await self._current_facts()), UsageLimits(self.limits)
            self._analysis = scope = anyio.CancelScope()
            await begin_task(setup, usage, prompt, history, options, notify, scope=scope)
            return await start_run(setup, usage, prompt, history, notify, self._on_run_started)
        finally:
            self._is_running = False

    def stream(
        self, prompt: Prompt, *, history: Iterable[ModelMessage] = (), **options: Unpack[InteractionOptions]
    ) -> Stream:
        """Return a run whose events are read one by one:

            async with agent.stream("…") as events:
                async for event in events:
                    ...
            events.outcome

        Leaving the block early ends the run, and `outcome` is there all the same.
        """
        messages = tuple(history)
        return Stream(
            self._reserve_run, lambda on_event: self._run_prompt(prompt, messages, on_event, options), self.cancel
        )

    def cancel(self) -> None:
        """End the run that goes on, if one does: `run` returns, the history is valid, `stopped` is `cancelled`."""
        self._is_cancelled = True
        if self._analysis is not None:
            self._analysis.cancel()
        if self._is_running and self._run is not None and self._run.outcome is None:
            self._run.cancel()

    async def compact(
        self, history: Iterable[ModelMessage], *, on_event: EventListener | None = None
    ) -> tuple[ModelMessage, ...]:
        """Return `history` with its older part summarised by the model; the same if there is nothing to take away.

        Runs do so by themselves when the context window fills (`limits.compact_at`). `on_event` hears a `Compacted`.
        """
        async with self.model:
            return await Run(self._make_setup(self._facts), UsageLimits(self.limits), on_event or discard).compact(
                history
            )

    async def preview(self) -> tuple[str, tuple[Tool, ...]]:
        """Return the model's view now, beside the conversation: the prompt, and the tools in their order."""
        await self.ready()
        return prompt_of(self._make_setup(await self._current_facts())), self.session.tools

    def _on_run_started(self, run: Run) -> None:
        self._run = run
        if self._is_cancelled:
            run.cancel()

    def _make_setup(self, facts: PromptFacts) -> AgentSetup:
        return AgentSetup(
            model=self.model,
            session=self.session,
            facts=facts,
            limits=self.limits,
            settings=self._settings,
            local=self._local,
        )

    async def _current_facts(self) -> PromptFacts:
        """Return the facts for the prompt: as configured, else with the current project and date."""
        if self._has_own_facts:
            return self._facts
        return replace(self._facts, project=await project_of(self.session), today=date.today())


class Stream:
    """A run that is read event by event. Entered and iterated once, in one task.

    The run is a task of its own, and never waits for its reader: events that are not read yet are kept, all of them.
    """

    def __init__(
        self,
        reserve_run: Callable[[], None],
        run_prompt: Callable[[EventListener], Awaitable[Outcome]],
        cancel: Callable[[], None],
    ) -> None:
        """Made by `Agent.stream`."""
        self._reserve_run = reserve_run
        self._run_prompt = run_prompt
        self._cancel = cancel
        self._tasks: TaskGroup = anyio.create_task_group()
        self._send, self._receive = anyio.create_memory_object_stream[AgentEvent](math.inf)
        self._result: Outcome | None = None
        self._error: UsageError | None = None
        self._is_entered = False

    @property
    def outcome(self) -> Outcome:
        """Outcome of the run. Raises `UsageError` while it goes on, and if it could not begin."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise UsageError("the run has not ended: read its events to the end, or leave its block")
        return self._result

    def cancel(self) -> None:
        """End the run; its last events come, `Finished` as the last."""
        self._cancel()

    async def __aenter__(self) -> Self:
        """Begin the run. Raises `UsageError` while another run of the agent goes on."""
        self._reserve_run()
        self._is_entered = True
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run_to_end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End the run, if it still goes on. Raises `UsageError` if it could not begin, unless that was raised."""
        if self._result is None and self._error is None:
            self._cancel()
        is_cancelled = kind is not None and issubclass(kind, anyio.get_cancelled_exc_class())
        try:
            # What the block raises is its own, and goes on as it is; the group would wrap it.
            is_suppressed = await self._tasks.__aexit__(*((kind, error, trace) if is_cancelled else (None, None, None)))
        finally:
            self._receive.close()
        if kind is None and self._error is not None:
            raise self._error
        return is_suppressed if is_cancelled else None

    def __aiter__(self) -> Self:
        """Return itself. Raises `UsageError` outside of `async with`, where no event would ever come."""
        if not self._is_entered:
            self._send.close()
            self._receive.close()
            raise UsageError("enter the run before its events: `async with agent.stream(…) as events:`")
        return self

    async def __anext__(self) -> AgentEvent:
        """Return the next event."""
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None

    async def _run_to_end(self) -> None:
        with self._send:
            try:
                await self._run_prompt(self._on_event)
            except UsageError as error:
                self._error = error

    def _on_event(self, event: AgentEvent) -> None:
        if isinstance(event, Finished):
            self._result = event.outcome
        self._send.send_nowait(event)
