"""Agent in a session: its prompt, its tools, and its sub-agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session
from toolcrib.errors import ToolFailure

from .child_sessions import child_of, follow, readable, tell_parent
from .events import AgentEvent, OfAgent, Outcome
from .limits import AgentLimits, UsageLimits
from .loop import Prompt, Run, Setup, Tell
from .models import is_paid
from .prompts import Facts, compose, text_of
from .questions import asks_user, listening
from .tools import ASK, CREW, DELEGATE, NEEDS, SPAWN

__all__ = ["AgentContext", "add_agent_tools", "prompt_of", "start_run"]

_SPAWNED: Final = (
    "You work for another agent, which sees your last answer and nothing else: put everything it needs in there, with"
    " names, paths and figures. Do the task alone, and say what you could not do."
)
_DELEGATED: Final = (
    "You do research for another agent, which sees your last answer and nothing else. You can only read. Answer with a"
    " summary: what you found, where (paths, names, lines), and what is uncertain."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """Model, session and settings of one agent."""

    model: Model
    session: Session
    facts: Facts
    limits: AgentLimits = field(default_factory=AgentLimits)
    settings: ModelSettings = field(default_factory=lambda: ModelSettings())
    local: Model | None = None
    """Takes delegated tasks, where `model` is a paid one."""
    depth: int = 0
    parent: str = ""
    """Id of the call that runs it; empty for a root agent."""

    @property
    def delegates(self) -> bool:
        """True if research can be delegated to a model that costs less."""
        return self.local is not None and is_paid(self.model)


def add_agent_tools(post: AgentContext) -> None:
    """Put those tools of agents into the scope of the session that this one can use."""
    has = {SPAWN: post.depth < post.limits.depth, DELEGATE: post.delegates, ASK: asks_user(post.session)}
    state = post.session.state
    state.scope.provided |= {NEEDS[name] for name, is_there in has.items() if is_there}
    state.scope.provided -= {NEEDS[name] for name, is_there in has.items() if not is_there}


def prompt_of(post: AgentContext) -> str:
    """Return the instructions before the conversation, as of now."""
    mode = post.facts.mode or post.session.parts.policy.mode(post.session.mode)
    return text_of(compose(post.session, replace(post.facts, mode=mode)))


async def start_run(
    post: AgentContext,
    usage: UsageLimits,
    prompt: Prompt,
    history: Iterable[ModelMessage],
    tell: Tell,
    began: Callable[[Run], None],
) -> Outcome:
    """Run the agent to its end; `began` gets the run, to end it early. Raises only what cancels the caller."""
    session = post.session
    add_agent_tools(post)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(post.model)
        if post.depth == 0:
            stack.enter_context(listening(session, tell))
        session.state.runtime[CREW] = _SubAgents(post, usage, tell)
        stack.callback(session.state.runtime.pop, CREW, None)
        setup = Setup(model=post.model, session=session, limits=post.limits, settings=post.settings, parent=post.parent)
        run = Run(setup, usage, lambda: prompt_of(post), tell)
        began(run)
        return await run.go(prompt, history)


class _SubAgents:
    """Runs the sub-agents of one run. The tools `spawn_agent` and `delegate_task` reach it."""

    def __init__(self, post: AgentContext, usage: UsageLimits, tell: Tell) -> None:
        self._post = post
        self._usage = usage
        self._tell = tell

    async def spawn(self, task: str, background: str, context: Context) -> ToolResult:
        """Run an agent with the same model, tools and rights, counted against the same limits."""
        post = self._post
        if post.depth >= post.limits.depth:
            raise ToolFailure("tool_error", f"maximum nesting depth ({post.limits.depth}) reached")
        if lacks := self._usage.lacks:
            raise ToolFailure("budget_exceeded", f"no agent was started: {lacks}", hint="answer with what you have")
        limits = replace(post.limits, requests=post.limits.spawned_requests)
        instructions = "\n".join(filter(None, (post.facts.instructions, _SPAWNED)))
        child = replace(
            post,
            session=child_of(post.session),
            facts=replace(post.facts, instructions=instructions),
            limits=limits,
            depth=post.depth + 1,
            parent=context.call_id,
        )
        return await self._work(child, UsageLimits(limits, self._usage), SPAWN, task, background)

    async def delegate(self, task: str, background: str, context: Context) -> ToolResult:
        """Run a read-only agent on the local model. It costs nothing and is not counted against the limits."""
        post = self._post
        if post.local is None:
            raise ToolFailure("unavailable", "there is no local model to delegate to", hint="do the task yourself")
        limits = replace(post.limits, requests=post.limits.delegated_requests, context=None)
        child = replace(
            post,
            model=post.local,
            local=None,
            session=child_of(post.session, readable(post.session), may_ask=False),
            facts=replace(post.facts, instructions=_DELEGATED),
            limits=replace(limits, depth=0),
            settings=ModelSettings(),
            depth=post.depth + 1,
            parent=context.call_id,
        )
        return await self._work(child, UsageLimits(limits), DELEGATE, task, background)

    async def _work(self, post: AgentContext, usage: UsageLimits, tool: str, task: str, background: str) -> ToolResult:
        prompt = f"{task}\n\nWhat is known:\n{background}" if background.strip() else task

        def tell(event: AgentEvent) -> None:
            follow(self._post.session, post.session)
            self._tell(OfAgent(id=post.parent, tool=tool, depth=post.depth, task=task, event=event))

        async with post.session as session:
            try:
                outcome = await start_run(post, usage, prompt, (), tell, _nobody)
            finally:
                tell_parent(self._post.session, session)
        if outcome.stopped == "failed":
            raise ToolFailure("unavailable", outcome.text, hint="do the task yourself")
        note = "" if outcome.is_complete else f"\n[The agent did not come to an end by itself: {outcome.reason}.]"
        return ToolResult.of_text(f"{outcome.text}{note}")


def _nobody(run: Run) -> None:
    """Keep no hold of a sub-agent's run: it ends with the call that runs it."""
