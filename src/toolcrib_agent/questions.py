"""Questions of an agent's session: reported as events of its run, and asked of its parent's people by a sub-agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio

from toolcrib import Answer, Approver, Clarification, Elicitor, Question, Session

from .events import Answered, Asked, Clarified, Clarifying, EventListener
from .sub_agents.registry import SubAgents


@contextmanager
def reporting_questions(session: Session, on_event: EventListener) -> Generator[None]:
    """Announce the questions of `session` until the block ends."""
    state, question_lock = session.state, anyio.Lock()
    approver, elicitor = state.approvals.approver, state.elicitor
    observed_approver = _ObservedApprover(approver, on_event, question_lock) if approver is not None else None
    observed_elicitor = _observed_elicitor(elicitor, on_event, question_lock) if elicitor is not None else None
    state.approvals.approver, state.elicitor = observed_approver, observed_elicitor
    try:
        yield
    finally:
        if state.approvals.approver is observed_approver:
            state.approvals.approver = approver
        if state.elicitor is observed_elicitor:
            state.elicitor = elicitor


def asks_user(session: Session) -> bool:
    """True if tools of the session can ask its user a question."""
    return session.state.elicitor is not None or hasattr(session.state.approvals.approver, "clarify")


class _ObservedApprover:
    """Approver that reports its questions as events. Other attributes (`reaches`, `clarify`) pass through."""

    def __init__(self, approver: Approver, on_event: EventListener, question_lock: anyio.Lock) -> None:
        self._approver = approver
        self._on_event = on_event
        self._question_lock = question_lock

    async def __call__(self, question: Question) -> Answer:
        """Ask, and announce it."""
        async with self._question_lock:
            self._on_event(Asked(question=question))
            try:
                answer = await self._approver(question)
            except BaseException:
                self._on_event(Answered(question=question, answer=None))
                raise
            self._on_event(Answered(question=question, answer=answer))
            return answer

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the approver beside its answer."""
        found = getattr(self._approver, name)
        return _observed_elicitor(found, self._on_event, self._question_lock) if name == "clarify" else found


def _observed_elicitor(
    elicitor: Elicitor, on_event: EventListener, question_lock: anyio.Lock
) -> Callable[[Clarification], Awaitable[str | None]]:
    async def clarify(clarification: Clarification) -> str | None:
        answer: str | None = None
        async with question_lock:
            on_event(Clarifying(clarification=clarification))
            try:
                answer = await elicitor(clarification)
            finally:
                on_event(Clarified(clarification=clarification, answer=answer))
        return answer

    return clarify


def ask_through(registry: SubAgents, child: Session) -> None:
    """Let the child ask those whom its parent can ask at that time: while no run of the parent goes on, it waits."""
    state, parent = child.state, registry.parent.state
    if state.approvals.approver is not None:
        state.approvals.approver = _ParentApprover(registry)
    if state.elicitor is not None:

        async def elicit(clarification: Clarification) -> str | None:
            await registry.wait_attached()
            return await parent.elicitor(clarification) if parent.elicitor is not None else None

        state.elicitor = elicit


class _ParentApprover:
    """Approver of a background sub-agent: its parent's, as it is when the question is put."""

    def __init__(self, registry: SubAgents) -> None:
        self._registry = registry

    async def __call__(self, question: Question) -> Answer:
        """Ask, once a run of the parent goes on."""
        await self._registry.wait_attached()
        approver = self._registry.parent.state.approvals.approver
        if approver is None:
            return Answer(verdict="no", by="the session, which has nobody to ask any more")
        return await approver(question)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the parent's approver beside its answer."""
        return getattr(self._registry.parent.state.approvals.approver, name)
