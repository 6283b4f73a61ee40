"""Stored conversations: taint, remembered answers and loaded tools by principal and key.

A row is merged into rather than replaced: two processes may serve calls of one conversation at the same time. The text
of a row is names of tools, and nothing of what they returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from msgspec import Struct, field

from ..core.json import dumps, fields_of, loads
from ..core.permission import Effect
from .chain import Transaction
from .database import Connection
from .readers import Reader
from .threads import Writer

_KEPT_SECONDS: Final = 30 * 86_400.0
"""Seconds after its last use for which a conversation is stored."""
_GET: Final = "SELECT state, revision, used FROM conversations WHERE principal = ? AND key = ?"
_PUT: Final = (
    "INSERT INTO conversations (principal, key, state, revision, used) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (principal, key) DO UPDATE SET state = excluded.state, revision = excluded.revision,"
    " used = excluded.used"
)


class SavedState(Struct, frozen=True, kw_only=True):
    """The part of a session's state that outlives its process; equal states are stored once."""

    tainted: str = ""
    """The tool that first brought untrusted content; empty while there is none."""
    private: str = ""
    """The tool that first read private data."""
    answers: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    """Remembered answers, by the keys of `SessionApprovals.remembered`."""
    loaded: tuple[str, ...] = ()
    """Tools that a meta-tool loaded, in order."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `dumps(fields_of(state))` wrote."""
        known = {name: value[name] for name in ("tainted", "private", "answers")}
        return cls(**known, loaded=tuple(value["loaded"]))

    def merge(self, base: SavedState, theirs: SavedState) -> SavedState:
        """Return this state with the changes that `theirs` has made to `base` since.

        Taint stays. An `allow` that was answered without the other side's knowledge of the taint is dropped.

        A three-way merge: what `theirs` has, without what this side dropped since `base`, with what this side added.
        """
        answers: dict[str, Effect] = {}
        if bool(self.tainted) != bool(theirs.tainted):
            knowing, other = (self, theirs) if self.tainted else (theirs, self)
            answers |= knowing.answers
            answers |= {name: effect for name, effect in other.answers.items() if effect == "deny"}
        else:
            dropped = set(base.answers) - set(self.answers)
            answers |= {name: effect for name, effect in theirs.answers.items() if name not in dropped}
            answers |= {name: effect for name, effect in self.answers.items() if base.answers.get(name) != effect}
        unloaded = set(base.loaded) - set(self.loaded)
        loaded = dict.fromkeys(name for name in theirs.loaded if name not in unloaded)
        loaded |= dict.fromkeys(name for name in self.loaded if name not in base.loaded)
        return SavedState(
            tainted=theirs.tainted or self.tainted,
            private=theirs.private or self.private,
            answers=answers,
            loaded=tuple(loaded),
        )


class ConversationRow(Struct, frozen=True, kw_only=True):
    """One stored conversation."""

    state: SavedState
    revision: int
    used: float
    """Seconds since 1970, exact to some minutes."""


class ConversationRows:
    """The conversations of one store. Every method raises `ToolFailure("storage")` while it cannot be used.

    `merge` returns what is stored then; the caller takes it as its next `base`.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def get(self, principal: str, key: str) -> ConversationRow | None:
        """Return one conversation; None when nothing was stored."""

        def query(connection: Connection) -> ConversationRow | None:
            return _row(connection.execute(_GET, (principal, key)).fetchone())

        return await self._reader.read(query, shared=("conversation", principal, key))

    async def merge(self, principal: str, key: str, state: SavedState, base: SavedState, now: float) -> ConversationRow:
        """Store the changes from `base` to `state`, and return the row with those of other processes."""
        return await self._writer.run(_merge, principal, key, state, base, now)

    def touch(self, principal: str, key: str, now: float) -> None:
        """Note a use with one of the next commits. Never waits, never raises."""
        self._writer.later(_touch, principal, key, now)

    def mark_tainted(self, principal: str, key: str, name: str, now: float) -> None:
        """Call a conversation tainted by the tool `name`, with one of the next commits. Never waits, never raises."""
        self._writer.later(_merge, principal, key, SavedState(tainted=name), SavedState(), now)

    async def forget(self, principal: str, key: str) -> None:
        """Forget a conversation."""
        await self._writer.run(_forget, principal, key)


def _row(found: Any) -> ConversationRow | None:
    if found is None:
        return None
    return ConversationRow(state=SavedState.from_json(loads(found[0])), revision=int(found[1]), used=float(found[2]))


def _merge(
    transaction: Transaction, principal: str, key: str, state: SavedState, base: SavedState, now: float
) -> ConversationRow:
    transaction.execute("DELETE FROM conversations WHERE used < ?", (now - _KEPT_SECONDS,))
    known = _row(transaction.execute(_GET, (principal, key)).fetchone())
    merged = state if known is None else state.merge(base, known.state)
    revision = 1 if known is None else known.revision + 1
    transaction.execute(_PUT, (principal, key, dumps(fields_of(merged)).decode(), revision, now))
    return ConversationRow(state=merged, revision=revision, used=now)


def _touch(transaction: Transaction, principal: str, key: str, now: float) -> None:
    transaction.execute("UPDATE conversations SET used = ? WHERE principal = ? AND key = ?", (now, principal, key))


def _forget(transaction: Transaction, principal: str, key: str) -> None:
    transaction.execute("DELETE FROM conversations WHERE principal = ? AND key = ?", (principal, key))
