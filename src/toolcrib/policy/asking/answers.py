"""Answers to approval questions: their delivery to the caller that waits, and blanket approvals of a session."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from ...core.permission import Answer, Approval
from ...core.session import SessionState
from ...core.tool import Tool
from ..destructive_commands import irrecoverable

__all__ = ["Board", "approved_as", "covering", "end_turn", "forget", "remember", "rest"]

_LOG: Final = logging.getLogger(__name__)


class Board:
    """One for a crib, on its event loop."""

    def __init__(self) -> None:
        """Start without listeners."""
        self._waiting: dict[str, anyio.Event] = {}
        self._watchers: dict[object, Callable[[Approval], None]] = {}

    def notify(self, approval: Approval) -> None:
        """Wake the waiter for this approval, and notify all watchers. Never raises."""
        if (event := self._waiting.get(approval.id)) is not None:
            event.set()
        for watcher in tuple(self._watchers.values()):
            try:
                watcher(approval)
            except Exception:  # noqa: BLE001 - a failing watcher must not break the decision
                _LOG.exception("a watcher of approvals broke")

    def stir(self) -> None:
        """Wake all waiters: an answer may cover more calls than its own."""
        for event in self._waiting.values():
            event.set()

    async def wait(self, id: str, seconds: float) -> None:
        """Return when `id` has changed, at the latest after `seconds`. One waiter for an id at a time."""
        event = self._waiting[id] = anyio.Event()
        try:
            with anyio.move_on_after(seconds):
                await event.wait()
        finally:
            if self._waiting.get(id) is event:
                del self._waiting[id]

    def watch(self, watcher: Callable[[Approval], None]) -> Callable[[], None]:
        """Call `watcher` with every approval that is requested or settled here; returns the function that ends it."""
        token = object()
        self._watchers[token] = watcher

        def stop() -> None:
            self._watchers.pop(token, None)

        return stop


_WIDE: Final = ("all", "turn", "idle")


def approved_as(tool: Tool) -> str:
    """Return the key of an `always`: it covers this definition, not another one under the same name."""
    return f"{tool.name} {tool.digest.hex()}"


def remember(session: SessionState, tool: Tool, arguments: Mapping[str, Any], answer: Answer) -> bool:
    """Keep the part of `answer` that reaches beyond its call; return whether it has one.

    For a tool that always asks, and for an effect that cannot be undone, a blanket answer approves this call only.
    """
    verdict = answer.verdict
    if verdict == "never":
        session.approvals.remembered[tool.name] = "deny"
        return True
    if verdict not in (*_WIDE, "always") or tool.approval == "always" or irrecoverable(tool, arguments):
        return False
    if verdict == "always":
        session.approvals.remembered[approved_as(tool)] = "allow"
    else:
        session.approvals.blanket[verdict] = time.monotonic()
    return True


def covering(session: SessionState) -> str:
    """Return the wide answer that lets every call of this session run now, or nothing."""
    return next((verdict for verdict in _WIDE if verdict in session.approvals.blanket), "")


def rest(session: SessionState, idle: float) -> None:
    """Take note of a call that begins or ends; an `idle` that has had none for `idle` seconds is over."""
    since = session.approvals.blanket.get("idle")
    if since is None:
        return
    now = time.monotonic()
    if now - since > idle:
        del session.approvals.blanket["idle"]
    else:
        session.approvals.blanket["idle"] = now


def end_turn(session: SessionState) -> None:
    """Begin the next interaction: answers with `turn` expire."""
    session.approvals.blanket.pop("turn", None)


def forget(session: SessionState) -> None:
    """Forget every answer that was remembered."""
    session.approvals.remembered.clear()
    session.approvals.blanket.clear()
