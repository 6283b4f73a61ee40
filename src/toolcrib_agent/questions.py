"""Questions of an agent's session: reported as events of its run, and asked of its parent's people by a sub-agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio

from toolcrib import Answer, Approver, Clarification, Elicitor, Question, Session

from .events import Answered, Asked, Clarified, Clarifying, Tell
from .sub_agents.registry import SubAgents


@contextmanager
def listening(session: Session, tell: Tell) -> Generator[None]:
    """Announce the questions of `session` until the block ends."""
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

    def __init__(self, approver: Approver, tell: Tell, turn: anyio.Lock) -> None:
        self._approver = approver
        self._tell = tell
        self._turn = turn

    async def __call__(self, question: Question) -> Answer:
        """Ask, and announce it."""
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
        """Return an attribute of the approver beside its answer."""
        found = getattr(self._approver, name)
        return _clarifying(found, self._tell, self._turn) if name == "clarify" else found


def _clarifying(elicitor: Elicitor, tell: Tell, turn: anyio.Lock) -> Callable[[Clarification], Awaitable[str | None]]:
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


def ask_through(registry: SubAgents, child: Session) -> None:
    """Let the child ask those whom its parent can ask at that time: while no run of the parent goes on, it waits."""
    state, parent = child.state, registry.parent.state
    if state.approvals.approver is not None:
        state.approvals.approver = _ParentApprover(registry)
    if state.elicitor is not None:

        async def elicit(asked: Clarification) -> str | None:
            await registry.attached()
            return await parent.elicitor(asked) if parent.elicitor is not None else None

        state.elicitor = elicit


class _ParentApprover:
    """Approver of a background sub-agent: its parent's, as it is when the question is put."""

    def __init__(self, registry: SubAgents) -> None:
        self._registry = registry

    async def __call__(self, question: Question) -> Answer:
        """Ask, once a run of the parent goes on."""
        await self._registry.attached()
        approver = self._registry.parent.state.approvals.approver
        if approver is None:
            return Answer(verdict="no", by="the session, which has nobody to ask any more")
        return await approver(question)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the parent's approver beside its answer."""
        return getattr(self._registry.parent.state.approvals.approver, name)
