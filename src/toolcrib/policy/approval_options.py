"""Dependencies of approvals: the store, the channels by which people are asked, their times, and notices of changes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
from msgspec import Struct, field

from ..core.call import Call
from ..core.permission import (
    Answer,
    Approval,
    ApprovalState,
    Approver,
    Question,
    Settlement,
)
from ..core.saved_call import SavedCall
from ..core.session import SessionState
from .settings import ApprovalSettings

Channel = Callable[[Question], Awaitable[Answer | None]]
"""Asks a person outside; None means that the answer, if any, comes through the store."""


_logger = logging.getLogger(__name__)


class ApprovalStore(Protocol):
    """Store of approvals (`store.approvals`), as far as asking needs it."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    async def put(self, approval: Approval, saved: SavedCall, *, limit: int) -> Approval:
        """Store a question; return it, or the one about the same call that a dead process left open."""
        ...

    async def get(self, id: str) -> Approval | None:
        """Return the present state of the approval."""
        ...

    async def settle(self, id: str, settlement: Settlement) -> Approval:
        """Take a pending one to its next state; raises `ToolFailure("conflict")` where another answer was first."""
        ...

    async def edited(self, id: str) -> Mapping[str, Any] | None:
        """Return the arguments of an answer `edit`."""
        ...

    async def redeem(self, id: str, call_id: str, hash: str) -> None:
        """Use the approval; raises `ToolFailure("denied")` when it does not hold for this call."""
        ...

    async def withdraw(self, id: str, reason: str) -> None:
        """Take back an approval that cannot be used."""
        ...

    async def hold(self, id: str, states: Sequence[ApprovalState] = ("pending",)) -> bool:
        """Let it stand for the same call, made again; return whether it does: it is in one of `states`."""
        ...

    async def leave(self, id: str, *, keep: bool) -> Approval | None:
        """Take note that the caller left."""
        ...


class ApprovalNotices:
    """Notices within one process: who waits for an answer is woken, and watchers learn of each change.

    One for a crib, on its event loop.
    """

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
            except Exception:  # a failing watcher must not break the decision
                _logger.exception("a watcher of approvals broke")

    def wake_all(self) -> None:
        """Wake all waiters: an answer may cover more calls than its own."""
        for event in self._waiting.values():
            event.set()

    async def wait(self, id: str, seconds: float) -> None:
        """Return when `id` has changed, at the latest after `seconds`. One waiter for an id at a time.

        A later waiter for the same id takes the place of the earlier one, which then returns by time.
        """
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


def _no_redaction(principal: str) -> Callable[[Any], Any]:
    return lambda value: value


def _ignore_approval(settled: Approval) -> None:
    """Notify no one."""


def _ignore_id(id: str) -> None:
    """Notify no one."""


async def _no_diff(call: Call) -> str:
    return ""


class ApprovalOptions(Struct, frozen=True, kw_only=True):
    """Channels, store and services with which a crib asks."""

    settings: ApprovalSettings = field(default_factory=ApprovalSettings)
    timeout: float = 120.0
    """Seconds that an approver has, from when he is asked."""
    wait: float = 25.0
    """Seconds that a call waits for an answer through the store, before it is held."""
    is_shared: bool = False
    """Whether other processes can answer through the store: then a call of an MCP client is held, never refused."""
    notify: Callable[[Approval], None] = _ignore_approval
    """Announces a question that no approver is shown; it must not wait."""
    notices: ApprovalNotices = field(default_factory=ApprovalNotices)
    redact_for: Callable[[str], Callable[[Any], Any]] = _no_redaction
    """Returns what masks secrets in the values that a principal is shown, and in what is stored of its calls."""
    channels: tuple[Channel, ...] = ()
    settled: Callable[[Approval], None] = _ignore_approval
    """Callback for the end of each question, for channels that asked it; it must not block."""
    outlives: Callable[[str], None] = _ignore_id
    """Callback with the id of each question that is left for an answer after its call, from any process."""
    diff: Callable[[Call], Awaitable[str]] = _no_diff
    """Returns the file changes of a call as a unified diff; empty for a call that edits no file."""

    def can_ask(self, session: SessionState) -> bool:
        """Whether an answer can come to a question of this session."""
        return reaches(session.approvals.approver) or bool(self.channels) or self.waits(session)

    def waits(self, session: SessionState) -> bool:
        """Whether a call of this session waits for an answer through the store."""
        return self.settings.wait or (session.audience.is_client and (self.is_shared or bool(self.channels)))

    def holds(self, call: Call) -> bool:
        """Whether this call is held when no answer comes: its caller makes it again, which a job does not."""
        return self.waits(call.session) and call.options.job_seconds is None


def reaches(approver: Approver | None) -> bool:
    """Whether the approver can be reached now; one that cannot know raises `NoApprover` when it is asked.

    An approver that is a plain function is taken to be reachable.
    """
    reachable: Callable[[], bool] | None = getattr(approver, "reaches", None)
    return approver is not None and (reachable is None or reachable())
