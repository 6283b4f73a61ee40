"""Conversations across processes: the state of a session that the store keeps by principal and key.

Taint, remembered answers and loaded tools are read before each call and written after one that changed them, before its
caller has the result. So they survive a restart and are the same on every replica. Links that were shown are not
stored: following one on another replica asks. The answer `all` is stored for a conversation that one connection has for
itself: no later one has its key, while a key that a program chooses may name a session of another day.

Only a session under a key that its caller gave is kept: another process cannot name any other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from ..core.session import SessionState
from ..errors import ToolFailure
from ..store.conversations import ConversationRow, SavedState
from ..store.store import Store

_logger = logging.getLogger(__name__)
_TOUCH: Final = 600.0
"""Seconds after which a use is noted again."""
_NEW: Final = SavedState()
_EVERY_TOOL: Final = "*"
"""Stands among the stored answers for `all`; no tool has this name."""


class Conversations:
    """Stores and restores the sessions of one crib.

    `_known` is the row that a session was last in agreement with: the base of a three-way merge with what the session
    has learnt since (`SavedState.merge`), so that two replicas which answer the same conversation lose nothing.
    """

    def __init__(self, store: Store, is_brief: Callable[[SessionState], bool], clock: Callable[[], float]) -> None:
        """`is_brief`: whether loaded tools end with the interaction, so that a new process begins without them."""
        self._rows = store.conversations
        self._is_brief = is_brief
        self._clock = clock
        self._known: WeakKeyDictionary[SessionState, ConversationRow] = WeakKeyDictionary()

    async def restore(self, state: SessionState) -> None:
        """Take over what other processes have stored since.

        While the store cannot be read, the session keeps what it has, and acts as one that may be tainted: the store
        may take the intent of a side effect all the same. The store logs its outage, once for all calls.
        """
        try:
            row = await self._rows.get(state.principal, state.key)
        except ToolFailure as failure:
            _logger.debug("the conversation %s cannot be read: %s", state.key, failure)
            state.taint.is_unread = True
            return
        state.taint.is_unread = False
        if row is None:
            return
        now = self._clock()
        if now - row.used > state.keep_for + _TOUCH:
            await self._forget(state)
            return
        if now - row.used > _TOUCH:
            self._rows.touch(state.principal, state.key, now)
        known = self._known.get(state)
        if known is not None and known.revision == row.revision:
            return
        current = _state_of(state)
        merged = current.merge(_NEW if known is None else known.state, row.state)
        if known is None and self._is_brief(state):
            merged = replace(merged, loaded=current.loaded)
        _apply(state, merged)
        self._known[state] = row

    def mark_tainted(self, principal: str, key: str, name: str) -> None:
        """Call a conversation tainted by the tool `name`, whether a process has its session now or none."""
        self._rows.mark_tainted(principal, key, name, self._clock())

    async def _forget(self, state: SessionState) -> None:
        """Begin anew after a long rest, in every process."""
        try:
            await self._rows.forget(state.principal, state.key)
        except ToolFailure as failure:
            _logger.warning("the conversation %s cannot be forgotten: %s", state.key, failure)
            return
        self._known.pop(state, None)
        _apply(state, _NEW)

    async def save(self, state: SessionState) -> None:
        """Store what changed. Where the store cannot be written it is logged, and tried again after the next call."""
        known = self._known.get(state)
        base = known.state if known is not None else _NEW
        current = _state_of(state)
        if current == base:
            return
        try:
            row = await self._rows.merge(state.principal, state.key, current, base, self._clock())
        except ToolFailure as failure:
            _logger.debug("the conversation %s cannot be stored: %s", state.key, failure)
            return
        _apply(state, _state_of(state).merge(current, row.state))
        self._known[state] = row


def _state_of(state: SessionState) -> SavedState:
    answers = dict(state.approvals.remembered)
    if state.is_alone and "all" in state.approvals.blanket:
        answers[_EVERY_TOOL] = "allow"
    return SavedState(
        tainted=state.taint.source,
        private=state.taint.private_read_by,
        answers=answers,
        loaded=tuple(state.history.loaded),
    )


def _apply(state: SessionState, saved: SavedState) -> None:
    state.taint.source, state.taint.private_read_by = saved.tainted, saved.private
    answers = dict(saved.answers)
    if answers.pop(_EVERY_TOOL, "") and state.is_alone:
        state.approvals.blanket.setdefault("all", time.monotonic())
    elif state.is_alone:
        state.approvals.blanket.pop("all", None)
    if state.approvals.remembered != answers:
        state.approvals.remembered.clear()
        state.approvals.remembered.update(answers)
    if tuple(state.history.loaded) != saved.loaded:
        state.history.loaded.clear()
        state.history.loaded.update(dict.fromkeys(saved.loaded))
