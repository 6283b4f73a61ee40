"""What a crib tells a session of itself: see `core.host.Insight`. Made for one call, and read only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Protocol, cast

from ..config import Settings
from ..core.context import Context
from ..core.events import Problem, SourceState
from ..core.host import SESSIONS
from ..core.session import LOCAL, SessionState
from ..core.tool import Tool
from ..disclosure.base import Scene
from ..jobs.job import Jobs
from ..store.store import Store

__all__ = ["SessionInsight", "Telling"]

_ROWS: Final = 10_000
"""Calls that are counted at most, the newest ones."""
_DAY: Final = 86_400
_BYTES_A_TOKEN: Final = 4
"""As everywhere that tokens are estimated (`core.session.Limits.result_tokens`)."""
_PROBLEMS: Final = 20
_OF_FIELD: Final = (
    "type",
    "anyOf",
    "enum",
    "items",
    "default",
    "description",
    "minimum",
    "maximum",
    "maxLength",
    "pattern",
)


class Telling(Protocol):
    """What an insight needs of a crib."""

    settings: Settings

    @property
    def store(self) -> Store:
        """The records."""
        ...

    @property
    def jobs(self) -> Jobs:
        """What runs in the background."""
        ...

    @property
    def sources(self) -> tuple[SourceState, ...]:
        """How every source is doing."""
        ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be taken."""
        ...

    def listing(self, state: SessionState) -> bytes:
        """Return the shown definitions."""
        ...

    def scene_of(self, context: Context) -> Scene:
        """Return what the session of a call can see."""
        ...


class SessionInsight:
    """What one session is told."""

    def __init__(self, crib: Telling, owner: str, session: str) -> None:
        """`owner` is the principal, `session` the key; the session exists."""
        self._crib = crib
        self._owner = owner
        self._scene = crib.scene_of(Context(call_id="", session_key=session, principal=owner))

    async def status(self) -> Mapping[str, Any]:
        """Return how things are. What the operator alone is to know is told where the operator works."""
        state = self._scene.session
        tools = list(self._scene.offered())
        working = await self._crib.jobs.list(self._owner, "working")
        described = await self._crib.store.records.get((self._owner, SESSIONS), state.key)
        told: dict[str, Any] = {
            "version": version("toolcrib"),
            "session": {
                "profile": state.profile,
                "mode": state.mode,
                "folders": [str(root) for root in state.files.workspace.roots] if state.files.workspace else [],
                "has": sorted(state.scope.provided),
                "tainted_by": state.taint.source or None,
                "description": described.value.get("description") if described else None,
            },
            "tools": {"count": len(tools), "by_category": _counted(tool.category or "other" for tool in tools)},
            "jobs_working": len(working),
        }
        if self._owner == LOCAL:
            problems = self._crib.problems
            told["sources"] = [
                {name: value for name, value in asdict(source).items() if value != ""} for source in self._crib.sources
            ]
            told["problems"] = [f"{one.source}: {one.message}" for one in problems[:_PROBLEMS]]
            told["problem_count"] = len(problems)
        return told

    async def usage(self) -> Mapping[str, Any]:
        """Return what was used. Tokens are estimated: four bytes each."""
        state, calls = self._scene.session, self._crib.store.calls
        rows = await calls.list(session=state.key, principal=self._owner, limit=_ROWS)
        midnight = time.time() // _DAY * _DAY
        today = await calls.list(principal=self._owner, since=midnight, limit=_ROWS)
        tools: dict[str, dict[str, int]] = {}
        for row in rows:
            used = tools.setdefault(row.tool or row.requested, {"calls": 0, "failed": 0, "tokens": 0})
            used["calls"] += 1
            used["failed"] += row.outcome not in ("ok", "input_required")
            used["tokens"] += _tokens(row.result_bytes)
        budget = self._crib.settings.budgets.session
        limits = [limit for limit in (state.limits.calls, budget.calls) if limit is not None]
        return {
            "session": {"calls": len(rows), "tokens": sum(used["tokens"] for used in tools.values())},
            "by_tool": dict(sorted(tools.items(), key=lambda item: -item[1]["tokens"])),
            "definitions": {"tokens": _tokens(len(self._crib.listing(state)))},
            "today": {"calls": len(today), "tokens": sum(_tokens(row.result_bytes) for row in today)},
            "left": {
                "calls": max(0, min(limits) - state.usage.calls.total()) if limits else None,
                "tokens": None if budget.tokens is None else max(0, budget.tokens - state.usage.tokens.total()),
            },
        }

    async def events(self, *, limit: int, tool: str = "", outcome: str = "") -> list[Mapping[str, Any]]:
        """Return the newest calls, the newest first."""
        rows = await self._crib.store.calls.list(principal=self._owner, tool=tool, outcome=outcome, limit=limit)
        return [
            {
                "call_id": row.id,
                "time": datetime.fromtimestamp(row.finished, UTC).isoformat(timespec="seconds"),
                "tool": row.tool or row.requested,
                "outcome": row.outcome,
                "decision": row.decision,
                "milliseconds": round(row.latency_ms, 1),
                "in_this_session": row.session == self._scene.session.key,
            }
            for row in rows
        ]

    def fields(self, entity: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the arguments of the tools whose name or op has the entity in it, in one form or the other."""
        found: dict[str, dict[str, Any]] = {}
        for tool in self._scene.offered():
            if _singular(entity) not in set(_words(tool)):
                continue
            required = tool.input_schema.get("required", ())
            for name, given in cast("Mapping[str, Any]", tool.input_schema.get("properties", {})).items():
                schema = _one(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else dict[str, Any]()
                told = {key: schema[key] for key in _OF_FIELD if key in schema}
                known = found.setdefault(name, {**told, "taken_by": [], "required_by": []})
                known["taken_by"].append(tool.name)
                if name in required:
                    known["required_by"].append(tool.name)
        return found


def _words(tool: Tool) -> Iterator[str]:
    for word in f"{tool.name}_{tool.op}".lower().replace(".", "_").split("_"):
        yield _singular(word)


def _one(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of what may be left out as that of what may be given: without its null."""
    options: list[Any] = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    return {**options[0], **{key: value for key, value in schema.items() if key != "anyOf" and value is not None}}


def _singular(word: str) -> str:
    folded = word.strip().lower()
    return folded[:-1] if folded.endswith("s") and not folded.endswith("ss") else folded


def _counted(names: Iterator[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _tokens(size: int) -> int:
    return -(-size // _BYTES_A_TOKEN)
