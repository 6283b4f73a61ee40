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
from .compaction import untrusted_in
from .events import AgentEvent, OfAgent, Outcome, Selected, Tell, TextDelta, ThinkingDelta
from .limits import UsageLimits
from .loop import Prompt, Run
from .questions import ask_through, listening
from .sub_agents.registry import PARENT, RECORDS, SubAgent, Turn, registry_of
from .sub_agents.roles import inline_role, profile_role
from .sub_agents.tools import START, render_context
from .task_analysis import Analysis, analyse_task
from .tools import CREW, DELEGATE, SPAWN

_SPAWNED: Final = (
    "You work for another agent, which sees your last answer and nothing else: put everything it needs in there, with"
    " names, paths and figures. Do the task alone, and say what you could not do."
)
_DELEGATED: Final = (
    "You do research for another agent, which sees your last answer and nothing else. You can only read. Answer with a"
    " summary: what you found, where (paths, names, lines), and what is uncertain."
)


async def begin_task(
    setup: AgentSetup,
    usage: UsageLimits,
    prompt: Prompt,
    history: Iterable[ModelMessage],
    options: InteractionOptions,
    tell: Tell,
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
        analysis = await analyse_task(setup, usage, task, history, tell, scope or anyio.CancelScope())
    intent = analysis.intent
    session.begin(**(options | {"intent": intent} if intent else options))
    if intent:
        names = tuple(tool.name for tool in session.tools)
        reason = session.selection.reason
        tell(Selected(tools=names, reason=reason, intent=intent, by=analysis.by, problem=analysis.problem))


async def start_run(
    setup: AgentSetup,
    usage: UsageLimits,
    prompt: Prompt,
    history: Iterable[ModelMessage],
    tell: Tell,
    began: Callable[[Run], None],
    inbox: Callable[[], Sequence[str]] = tuple,
) -> Outcome:
    """Run the agent to its end; `began` gets the run, to end it early. Raises only what cancels the caller.

    `inbox` removes and returns messages to the agent, which reads them before each request to its model. The model's
    connections, the runner of sub-agents in the session's runtime, and the listener of questions last as long as
    the run. A run that was cancelled stops the sub-agents in the background, too.
    """
    session, history = setup.session, tuple(history)
    session.parts.policy.taint.mark_tainted_by(untrusted_in(history), session.state)  # another session may have read it
    add_agent_tools(setup)
    registry = registry_of(session)
    if setup.depth == 0:  # the session of a sub-agent is not opened again
        await registry.restore(session.parts.records(session.state.principal, RECORDS))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(setup.model)
        if setup.depth == 0:
            stack.enter_context(listening(session, tell))
        session.state.runtime[CREW] = SessionSubAgents(setup, usage, tell)
        stack.callback(session.state.runtime.pop, CREW, None)
        registry.attach(tell)
        stack.callback(registry.detach)
        run = Run(setup, usage, tell, lambda: [*inbox(), *registry.take_events()])
        began(run)
        try:
            return await run.go(prompt, history)
        finally:
            if run.outcome is not None and run.outcome.stopped == "cancelled":
                registry.stop_all()  # a user who stops the work means all of it


class SessionSubAgents:
    """Runs the sub-agents of one run of an agent, or of a client's session. The tools reach it by the runtime."""

    def __init__(self, setup: AgentSetup, usage: UsageLimits, tell: Tell) -> None:
        self._setup = setup
        self._usage = usage
        self._tell = tell

    async def spawn(self, task: str, background: str, context: Context) -> ToolResult:
        """Run an agent with the same model, tools and rights, counted against the same limits."""
        self._check()
        setup = self._setup
        limits = replace(setup.limits, requests=setup.limits.spawned_requests)
        instructions = "\n".join(filter(None, (setup.facts.instructions, _SPAWNED)))
        child = replace(
            setup,
            session=child_of(setup.session),
            facts=replace(setup.facts, instructions=instructions),
            limits=limits,
            depth=setup.depth + 1,
            parent=context.call_id,
        )
        return await self._work(child, UsageLimits(limits, self._usage), SPAWN, task, background)

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
            facts=replace(setup.facts, instructions=_DELEGATED),
            limits=replace(limits, depth=0),
            settings=ModelSettings(),
            depth=setup.depth + 1,
            parent=context.call_id,
        )
        return await self._work(child, UsageLimits(limits), DELEGATE, task, background)

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
        self._check()
        role = await profile_role(setup, profile) if profile else inline_role(setup, arguments.get("inline_config", {}))
        background = render_context(arguments.get("context", ""))
        task = f"{arguments['task']}\n\nWhat is known:\n{background}" if background else arguments["task"]
        session = child_of(setup.session, role.only)
        ask_through(registry, session)
        child = SubAgent(
            id=registry.new_id(name or profile),
            name=name,
            profile=profile,
            task=task,
            session=session,
            max_turns=role.turns,
            clean=context.cleaner.value if context.cleaner is not None else str,
        )
        child.agent = replace(
            setup, model=role.model, session=session, facts=role.facts, limits=role.limits, depth=setup.depth + 1
        )
        session.state.runtime[PARENT] = partial(registry.post, child, "shares")
        try:
            await registry.add(child, self._turn(context.call_id), most=setup.limits.sub_agents)
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
            self._check()
        tell_child(self._setup.session, agent.session)
        return registry.send(id, message, self._turn(""))

    def _check(self) -> None:
        """Raise `ToolFailure` if no sub-agent may work now."""
        setup = self._setup
        if setup.depth >= setup.limits.depth:
            raise ToolFailure("tool_error", f"maximum nesting depth ({setup.limits.depth}) reached")
        if lacks := self._usage.lacks:
            raise ToolFailure("budget_exceeded", f"no agent was started: {lacks}", hint="answer with what you have")

    def _turn(self, call: str) -> Turn:
        """Return the runner of a sub-agent's turns that begin now. `call` is the id of the call that asked for it.

        A message (`send`) has no call to name: events of such a turn carry the id of the call that came before.
        """

        async def turn(agent: SubAgent, prompt: str) -> tuple[str, str]:
            parent, registry = self._setup.session, registry_of(self._setup.session)
            setup: AgentSetup = replace(agent.agent, parent=call or agent.agent.parent)
            agent.agent = setup

            def tell(event: AgentEvent) -> None:
                if not isinstance(event, TextDelta | ThinkingDelta):
                    follow(parent, agent.session)
                agent.hear(event)
                registry.tell(OfAgent(id=setup.parent, tool=START, depth=setup.depth, task=agent.task, event=event))

            def began(run: Run) -> None:
                agent.cancel = run.cancel
                if agent.is_cancelled:
                    run.cancel()

            follow(parent, agent.session)
            usage, scope = UsageLimits(setup.limits, self._usage), anyio.CancelScope()
            agent.cancel = scope.cancel
            await begin_task(setup, usage, prompt, agent.history, {}, tell, scope=scope)
            outcome = await start_run(setup, usage, prompt, agent.history, tell, began, agent.take_messages)
            agent.history, agent.cancel = outcome.history, None
            return _ending(outcome), outcome.text

        return turn

    async def _work(self, setup: AgentSetup, usage: UsageLimits, tool: str, task: str, background: str) -> ToolResult:
        prompt = f"{task}\n\nWhat is known:\n{background}" if background.strip() else task

        def tell(event: AgentEvent) -> None:
            follow(self._setup.session, setup.session)
            self._tell(OfAgent(id=setup.parent, tool=tool, depth=setup.depth, task=task, event=event))

        async with setup.session as session:
            await begin_task(setup, usage, task, (), {}, tell)
            try:
                outcome = await start_run(setup, usage, prompt, (), tell, _nobody)
            finally:
                tell_parent(self._setup.session, session)
        return outcome.result(hint="do the task yourself")


def _nobody(run: Run) -> None:
    """Keep no hold of a sub-agent's run: it ends with the call that runs it."""


def _ending(outcome: Outcome) -> str:
    if outcome.is_complete:
        return "answers"
    return "was cancelled" if outcome.stopped == "cancelled" else f"did not come to an end by itself ({outcome.reason})"
