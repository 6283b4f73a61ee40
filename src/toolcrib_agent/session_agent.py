"""Runs of agents in their sessions, those of sub-agents included.

An agent that works for another one comes in three kinds:

    spawn     within the call    same model       its usage also counts against the parent's limits
    delegate  within the call    local model      limits of its own; tools that only read
    start     in the background  of its profile   outlives the run; its usage counts against the run that began the turn

Every kind has a session of its own (`toolcrib.agents`), whose rights follow those of the parent's at each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import anyio
from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage
from pydantic_ai.settings import ModelSettings

from toolcrib import Context, InteractionOptions, ToolResult
from toolcrib.agents import child_of, follow, readable, tell_child, tell_parent
from toolcrib.errors import ToolFailure

from .agent_setup import AgentSetup, add_agent_tools
from .compaction import untrusted_origin
from .events import AgentEvent, EventListener, Outcome, Selected, SubAgentEvent, TextDelta, ThinkingDelta
from .limits import UsageLimits
from .loop import Prompt, Run
from .questions import ask_through, reporting_questions
from .sub_agents.registry import PARENT, RECORDS, SubAgent, TurnRunner, registry_of
from .sub_agents.roles import inline_role, profile_role
from .sub_agents.tools import START, render_context
from .task_analysis import Analysis, analyse_task
from .tools import DELEGATE, RUNNER_KEY, SPAWN

_SPAWNED_INSTRUCTIONS: Final = (
    "You work for another agent, which sees your last answer and nothing else: put everything it needs in there, with"
    " names, paths and figures. Do the task alone, and say what you could not do."
)
_DELEGATED_INSTRUCTIONS: Final = (
    "You do research for another agent, which sees your last answer and nothing else. You can only read. Answer with a"
    " summary: what you found, where (paths, names, lines), and what is uncertain."
)


async def begin_task(
    setup: AgentSetup,
    usage: UsageLimits,
    prompt: Prompt,
    history: Iterable[ModelMessage],
    options: InteractionOptions,
    on_event: EventListener,
    *,
    scope: anyio.CancelScope | None = None,
) -> None:
    """Begin an interaction, and report the tools that were selected for its task, where the profile selects by it.

    A caller's own intent comes before an analysis. To cancel `scope` ends the analysis by a model, not the task.
    """
    session = setup.session
    task = prompt if isinstance(prompt, str) else " ".join(part for part in prompt if isinstance(part, str))
    analysis = Analysis()
    if options.keys().isdisjoint(("intent", "plan", "required_capabilities", "tools")):
        analysis = await analyse_task(setup, usage, task, history, on_event, scope or anyio.CancelScope())
    intent = analysis.intent
    session.begin(**(options | {"intent": intent} if intent else options))
    if intent:
        names = tuple(tool.name for tool in session.tools)
        reason = session.selection.reason
        on_event(Selected(tools=names, reason=reason, intent=intent, by=analysis.by, problem=analysis.problem))


async def start_run(
    setup: AgentSetup,
    usage: UsageLimits,
    prompt: Prompt,
    history: Iterable[ModelMessage],
    on_event: EventListener,
    on_start: Callable[[Run], None],
    take_messages: Callable[[], Sequence[str]] = tuple,
) -> Outcome:
    """Run the agent to its end; `on_start` gets the run, to end it early. Raises only what cancels the caller.

    `take_messages` removes and returns messages to the agent, which reads them before each request to its model. The
    model's connections, the runner of sub-agents in the session's runtime, and the listener of questions last as long
    as the run. A run that was cancelled stops the sub-agents in the background, too.
    """
    session, history = setup.session, tuple(history)
    # Another session may have read what the history holds.
    session.parts.policy.taint.mark_tainted_by(untrusted_origin(history), session.state)
    add_agent_tools(setup)
    registry = registry_of(session)
    if setup.depth == 0:  # the session of a sub-agent is not opened again
        await registry.restore(session.parts.records(session.state.principal, RECORDS))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(setup.model)
        if setup.depth == 0:
            stack.enter_context(reporting_questions(session, on_event))
        session.state.runtime[RUNNER_KEY] = SessionSubAgents(setup, usage, on_event)
        stack.callback(session.state.runtime.pop, RUNNER_KEY, None)
        registry.attach(on_event)
        stack.callback(registry.detach)
        run = Run(setup, usage, on_event, lambda: [*take_messages(), *registry.take_events()])
        on_start(run)
        try:
            return await run.execute(prompt, history)
        finally:
            if run.outcome is not None and run.outcome.stopped == "cancelled":
                registry.stop_all()  # a user who stops the work means all of it


class SessionSubAgents:
    """Runs the sub-agents of one run of an agent, or of a client's session. The tools reach it by the runtime."""

    def __init__(self, setup: AgentSetup, usage: UsageLimits, on_event: EventListener) -> None:
        self._setup = setup
        self._usage = usage
        self._on_event = on_event

    async def spawn(self, task: str, background: str, context: Context) -> ToolResult:
        """Run an agent with the same model, tools and rights, counted against the same limits."""
        self._check_may_spawn()
        setup = self._setup
        limits = replace(setup.limits, requests=setup.limits.spawned_requests)
        instructions = "\n".join(filter(None, (setup.facts.instructions, _SPAWNED_INSTRUCTIONS)))
        child = replace(
            setup,
            session=child_of(setup.session),
            facts=replace(setup.facts, instructions=instructions),
            limits=limits,
            depth=setup.depth + 1,
            parent=context.call_id,
        )
        return await self._run_child(child, UsageLimits(limits, self._usage), SPAWN, task, background)

    async def delegate(self, task: str, background: str, context: Context) -> ToolResult:
        """Run a read-only agent on the local model. It costs nothing and is not counted against the limits."""
        setup = self._setup
        if setup.local is None:
            raise ToolFailure("unavailable", "there is no local model to delegate to", hint="do the task yourself")
        limits = replace(setup.limits, requests=setup.limits.delegated_requests, context=None)
        child = replace(
            setup,
            model=setup.local,
            local=None,
            session=child_of(setup.session, readable(setup.session), may_ask=False),
            facts=replace(setup.facts, instructions=_DELEGATED_INSTRUCTIONS),
            limits=replace(limits, depth=0),
            settings=ModelSettings(),
            depth=setup.depth + 1,
            parent=context.call_id,
        )
        return await self._run_child(child, UsageLimits(limits), DELEGATE, task, background)

    async def start(self, arguments: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Start a sub-agent in the background; return its id. Raises `ToolFailure` if it may have none.

        Its turns are counted against the limits of the run that began them.
        """
        setup, registry = self._setup, registry_of(self._setup.session)
        name, profile = arguments.get("name", "").strip(), arguments.get("profile", "").strip()
        if name and profile:
            raise ToolFailure("invalid_arguments", "give either a name or a profile", hint="a profile has a name")
        if profile and arguments.get("inline_config"):
            raise ToolFailure("invalid_arguments", "inline_config is for a sub-agent without a profile")
        self._check_may_spawn()
        role = await profile_role(setup, profile) if profile else inline_role(setup, arguments.get("inline_config", {}))
        background = render_context(arguments.get("context", ""))
        task = f"{arguments['task']}\n\nWhat is known:\n{background}" if background else arguments["task"]
        session = child_of(setup.session, role.tool_names)
        ask_through(registry, session)
        child = SubAgent(
            id=registry.new_id(name or profile),
            name=name,
            profile=profile,
            task=task,
            session=session,
            max_turns=role.max_turns,
            redact=context.cleaner.value if context.cleaner is not None else str,
        )
        child.agent = replace(
            setup, model=role.model, session=session, facts=role.facts, limits=role.limits, depth=setup.depth + 1
        )
        session.state.runtime[PARENT] = partial(registry.post, child, "shares")
        try:
            await registry.add(child, self._turn_runner(context.call_id), max_agents=setup.limits.sub_agents)
        except BaseException:
            await session.__aexit__(None, None, None)
            raise
        message = "It works in the background; its answer comes by itself into your next turn."
        return {"success": True, "subagent_id": child.id, "status": "spawned", "message": message}

    async def send(self, id: str, message: str) -> str:
        """Send a message to a sub-agent: `queued` or `dispatched`. Raises `ToolFailure` for an unknown one."""
        registry = registry_of(self._setup.session)
        agent = registry.get(id)
        if not agent.running:
            self._check_may_spawn()
        tell_child(self._setup.session, agent.session)
        return registry.send(id, message, self._turn_runner(""))

    def _check_may_spawn(self) -> None:
        """Raise `ToolFailure` if no sub-agent may work now."""
        setup = self._setup
        if setup.depth >= setup.limits.depth:
            raise ToolFailure("tool_error", f"maximum nesting depth ({setup.limits.depth}) reached")
        if exhausted_limit := self._usage.exhausted_limit:
            raise ToolFailure(
                "budget_exceeded", f"no agent was started: {exhausted_limit}", hint="answer with what you have"
            )

    def _turn_runner(self, call: str) -> TurnRunner:
        """Return the runner of a sub-agent's turns that begin now. `call` is the id of the call that asked for it.

        A message (`send`) has no call to name: events of such a turn carry the id of the call that came before.
        """

        async def run_turn(agent: SubAgent, prompt: str) -> tuple[str, str]:
            parent, registry = self._setup.session, registry_of(self._setup.session)
            setup: AgentSetup = replace(agent.agent, parent=call or agent.agent.parent)
            agent.agent = setup

            def on_event(event: AgentEvent) -> None:
                if not isinstance(event, TextDelta | ThinkingDelta):
                    follow(parent, agent.session)
                agent.update_phase(event)
                registry.forward_event(
                    SubAgentEvent(id=setup.parent, tool=START, depth=setup.depth, task=agent.task, event=event)
                )

            def on_start(run: Run) -> None:
                agent.cancel = run.cancel
                if agent.is_cancelled:
                    run.cancel()

            follow(parent, agent.session)
            usage, scope = UsageLimits(setup.limits, self._usage), anyio.CancelScope()
            agent.cancel = scope.cancel
            await begin_task(setup, usage, prompt, agent.history, {}, on_event, scope=scope)
            outcome = await start_run(setup, usage, prompt, agent.history, on_event, on_start, agent.take_messages)
            agent.history, agent.cancel = outcome.history, None
            return _describe_ending(outcome), outcome.text

        return run_turn

    async def _run_child(
        self, setup: AgentSetup, usage: UsageLimits, tool: str, task: str, background: str
    ) -> ToolResult:
        prompt = f"{task}\n\nWhat is known:\n{background}" if background.strip() else task

        def on_event(event: AgentEvent) -> None:
            follow(self._setup.session, setup.session)
            self._on_event(SubAgentEvent(id=setup.parent, tool=tool, depth=setup.depth, task=task, event=event))

        async with setup.session as session:
            await begin_task(setup, usage, task, (), {}, on_event)
            try:
                outcome = await start_run(setup, usage, prompt, (), on_event, _ignore_run)
            finally:
                tell_parent(self._setup.session, session)
        return outcome.result(hint="do the task yourself")


def _ignore_run(run: Run) -> None:
    """Keep no hold of a sub-agent's run: it ends with the call that runs it."""


def _describe_ending(outcome: Outcome) -> str:
    if outcome.is_complete:
        return "answers"
    return "was cancelled" if outcome.stopped == "cancelled" else f"did not come to an end by itself ({outcome.reason})"
