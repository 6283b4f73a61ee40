"""Agent in a session: its prompt, its tools, its sub-agents, and the questions that the session asks.

A sub-agent has its own activation and tool runtime, and never more rights than its parent.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from toolcrib.core.context import Context
from toolcrib.core.elicitation import Clarification, Elicitor
from toolcrib.core.permission import Answer, Approver, Effect, Question
from toolcrib.core.result import ToolResult
from toolcrib.core.session import BUILT_IN, SessionState
from toolcrib.core.tool import Tool
from toolcrib.crib import Session
from toolcrib.crib.options import InteractionOptions
from toolcrib.crib.policy import end_planning
from toolcrib.errors import ToolFailure

from .events import AgentEvent, Answered, Asked, Clarified, Clarifying, OfAgent, Outcome, Selected
from .limits import AgentLimits, UsageLimits
from .loop import Prompt, Run, Setup, Tell
from .models import is_paid
from .prompts import Facts, compose, text_of
from .tools import ASK, CREW, DELEGATE, NEEDS, SOURCE, SPAWN

__all__ = [
    "AgentContext",
    "add_agent_tools",
    "asks_user",
    "begin_task",
    "child_of",
    "follow",
    "listening",
    "prompt_of",
    "readable",
    "start_run",
    "tell_parent",
]


_LOG: Final = logging.getLogger(__name__)


def child_of(parent: Session, only: frozenset[str] | None = None, *, may_ask: bool = True) -> Session:
    """Open a session that works for `parent`: the same principal, files, rules, mode and scope, or less.

    `only` cuts the scope down to these catalog names; without `may_ask` what must be asked is denied. What the child
    calls is counted in its parent's budgets. Answers that were wide in the parent are not in the child; `never` is.
    """
    state = parent.state
    scope = only
    for names in (state.scope.allowed, state.scope.exact):
        if names is not None:
            scope = frozenset(names) if scope is None else scope & frozenset(names)
    child = parent.sibling(
        key=f"{state.key}/{secrets.token_hex(4)}",
        principal=state.principal,
        instance=state.instance,
        profile=state.profile,
        mode=state.mode,
        rules=_rules(state),
        approver=state.approvals.approver if may_ask else None,
        elicitor=state.elicitor if may_ask else None,
        allowed_tools=scope,
        context=state.defaults,
        contexts=state.scope.contexts,
        versions=state.scope.versions,
        user=state.user,
        available=state.scope.available,
        cwd=state.files.cwd,
        workspace=None,
        task=state.files.task,
        shadow=False,
        grows=state.audience.grows,
        for_client=False,
    )
    _share(state, child.state)
    return child


def _share(state: SessionState, child: SessionState) -> None:
    """Give the child what no option sets: its parent's files as they are, its budgets, and what limits it."""
    if not state.scope.planning:
        end_planning(child)
    child.files.workspace = state.files.workspace
    child.scope.provided = state.scope.provided.difference(NEEDS.values())
    child.limits = state.limits
    child.usage.calls, child.usage.tokens, child.usage.rates = state.usage.calls, state.usage.tokens, state.usage.rates
    child.scope.disabled = state.scope.disabled
    child.approvals.remembered.update(
        (key, effect) for key, effect in state.approvals.remembered.items() if effect == "deny"
    )
    child.taint.source, child.taint.private_read_by = state.taint.source, state.taint.private_read_by
    child.taint.is_unread = state.taint.is_unread
    child.taint.links.update(state.taint.links)


def follow(parent: Session, child: Session) -> None:
    """Keep the child in its parent's current mode: a change of mode applies to all work in progress."""
    if child.mode == parent.mode:
        return
    child.mode = parent.mode
    child.state.files.workspace = parent.state.files.workspace
    if not parent.state.scope.planning:
        end_planning(child.state)


def tell_parent(parent: Session, child: Session) -> None:
    """Let the parent be as careful as its child has to be: the child's answer may repeat what it has read."""
    ours, theirs = parent.state, child.state
    is_news = theirs.taint.source and not ours.taint.source
    ours.taint.source = ours.taint.source or theirs.taint.source
    ours.taint.private_read_by = ours.taint.private_read_by or theirs.taint.private_read_by
    ours.approvals.remembered.update(
        (key, effect) for key, effect in theirs.approvals.remembered.items() if effect == "deny"
    )
    if is_news:  # answers that were to hold for the session were given without knowing
        for key in [key for key, effect in ours.approvals.remembered.items() if effect == "allow"]:
            del ours.approvals.remembered[key]


def readable(parent: Session) -> frozenset[str]:
    """Return the catalog names of the parent's tools that only read, need no approval and are vouched for."""
    return frozenset(tool.name for tool in parent.scene.offered() if _only_reads(tool, parent.state))


_RESEARCH: Final = frozenset(
    {
        "display_diagram",
        "find_references",
        "get_diagnostics",
        "git_diff",
        "git_log",
        "git_status",
        "grep",
        "list_directory",
        "read_file",
        "search_files",
    }
)
"""Built-in tools of a delegated task (seed 002): a small model reads their definitions in every turn."""


def _only_reads(tool: Tool, state: SessionState) -> bool:
    is_said = tool.kind == "read" and tool.approval != "always" and tool.origin not in state.treat_as_write
    is_known = tool.source not in BUILT_IN or tool.name in _RESEARCH
    return is_said and is_known and tool.source != SOURCE and not {"asks_user", "outbound"}.intersection(tool.traits)


def _rules(state: SessionState) -> dict[Effect, list[str]]:
    rules: dict[Effect, list[str]] = {}
    for effect, texts in state.rules:
        rules.setdefault(effect, []).extend(texts)
    return rules


@contextmanager
def listening(session: Session, tell: Callable[[AgentEvent], None]) -> Generator[None]:
    """Tell of the questions of `session` until the block ends."""
    state, turn = session.state, anyio.Lock()
    approver, elicitor = state.approvals.approver, state.elicitor
    heard = _ObservedApprover(approver, tell, turn) if approver is not None else None
    asked = _clarifying(elicitor, tell, turn) if elicitor is not None else None
    state.approvals.approver, state.elicitor = heard, asked
    try:
        yield
    finally:
        if state.approvals.approver is heard:
            state.approvals.approver = approver
        if state.elicitor is asked:
            state.elicitor = elicitor


def asks_user(session: Session) -> bool:
    """True if tools of the session can ask its user a question."""
    return session.state.elicitor is not None or hasattr(session.state.approvals.approver, "clarify")


class _ObservedApprover:
    """Approver that reports its questions as events. Other attributes (`reaches`, `clarify`) pass through."""

    def __init__(self, approver: Approver, tell: Callable[[AgentEvent], None], turn: anyio.Lock) -> None:
        self._approver = approver
        self._tell = tell
        self._turn = turn

    async def __call__(self, question: Question) -> Answer:
        """Ask, and tell of it."""
        async with self._turn:
            self._tell(Asked(question=question))
            try:
                answer = await self._approver(question)
            except BaseException:
                self._tell(Answered(question=question, answer=None))
                raise
            self._tell(Answered(question=question, answer=answer))
            return answer

    def __getattr__(self, name: str) -> Any:
        """Return what the approver has beside its answer."""
        found = getattr(self._approver, name)
        return _clarifying(found, self._tell, self._turn) if name == "clarify" else found


def _clarifying(
    elicitor: Elicitor, tell: Callable[[AgentEvent], None], turn: anyio.Lock
) -> Callable[[Clarification], Awaitable[str | None]]:
    async def clarify(asked: Clarification) -> str | None:
        answer: str | None = None
        async with turn:
            tell(Clarifying(clarification=asked))
            try:
                answer = await elicitor(asked)
            finally:
                tell(Clarified(clarification=asked, answer=answer))
        return answer

    return clarify


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


def begin_task(session: Session, prompt: Prompt, options: InteractionOptions, tell: Tell, *, follows: bool) -> None:
    """Begin an interaction, and report the tools that were selected for its task, where the profile selects by it.

    What a caller says of the task comes before what is found in its words. `follows` says that a conversation goes on.
    """
    task = prompt if isinstance(prompt, str) else " ".join(part for part in prompt if isinstance(part, str))
    intent: Mapping[str, Any] = {}
    if options.keys().isdisjoint(("intent", "plan", "required_capabilities", "tools")):
        try:
            intent = session.intent_of(task, follows=follows)
        except Exception:  # noqa: BLE001 - without an intent nothing is narrowed
            _LOG.exception("the task could not be analysed")
    session.begin(**(options | {"intent": intent} if intent else options))
    if intent:
        names = tuple(tool.name for tool in session.tools)
        tell(Selected(tools=names, reason=session.selection.reason, intent=intent))


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
            begin_task(session, task, {}, tell, follows=False)
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
