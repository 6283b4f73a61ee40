"""Insight into a session for its tools: status, usage, events, tools and the fields of their arguments."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Any, Final, cast

from msgspec import Struct

from ...config import Settings
from ...core.context import Context
from ...core.events import SourceState
from ...core.json import fields_of
from ...core.services.host import SESSIONS
from ...core.session import LOCAL
from ...core.taint import StoredTaint
from ...core.tool import Tool
from ...jobs.job import Jobs
from ...store.calls import CallRow
from ...store.store import Store
from ..tools import ToolRegistry
from ..views import Views

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


class InsightParts(Struct, frozen=True, kw_only=True):
    """The parts of a crib that an insight reads."""

    settings: Settings
    store: Store
    jobs: Jobs
    tools: ToolRegistry
    views: Views


class SessionInsight:
    """Status and catalog details for one session."""

    def __init__(self, parts: InsightParts, owner: str, session: str, taint: StoredTaint | None) -> None:
        """`owner` is the principal, `session` the key; the session exists. `taint` notes the words of servers."""
        self._parts = parts
        self._taint = taint
        self._owner = owner
        self._visible = parts.views.visible_of(Context(call_id="", session_key=session, principal=owner))

    async def status(self) -> Mapping[str, Any]:
        """Return the status. Details for the operator appear only in the operator's sessions."""
        state = self._visible.session
        tools = list(self._visible.offered())
        working = await self._parts.jobs.list(self._owner, "working")
        described = await self._parts.store.records.get((self._owner, SESSIONS), state.key)
        status: dict[str, Any] = {
            "version": version("toolcrib"),
            "session": {
                "profile": state.profile,
                "mode": state.mode,
                "folders": [str(root) for root in state.files.workspace.roots] if state.files.workspace else [],
                "has": sorted(state.scope.provided),
                "tainted_by": state.taint.source or None,
                "description": described.value.get("description") if described else None,
            },
            "tools": {
                "count": len(tools),
                "by_category": dict(sorted(Counter(tool.category or "other" for tool in tools).items())),
            },
            "jobs_working": len(working),
        }
        if self._owner == LOCAL:
            problems, sources = self._parts.tools.problems, tuple(self._parts.tools.sources)
            status["sources"] = [
                {name: value for name, value in fields_of(source).items() if value != ""} for source in sources
            ]
            self._note(sources, {one.source for one in problems[:_PROBLEMS]})
            status["problems"] = [f"{one.source}: {one.message}" for one in problems[:_PROBLEMS]]
            status["problem_count"] = len(problems)
        return status

    def _note(self, sources: Iterable[SourceState], troubled: Collection[str]) -> None:
        """Note what untrusted servers say of themselves: the end of their standard error, withheld instructions."""
        trust_of = self._parts.settings.policy.untrusted.trust_of
        speaking = [one for one in sources if one.detail or one.source in troubled]
        tools = (Tool(name=one.source, source=one.source, local_name=one.source, origin=one.kind) for one in speaking)
        if self._taint is not None:
            self._taint.note(tool.source for tool in tools if trust_of(tool) == "untrusted")

    async def usage(self) -> Mapping[str, Any]:
        """Return the usage. Tokens are estimated: four bytes each."""
        state, calls = self._visible.session, self._parts.store.calls
        rows = await calls.list(session=state.key, principal=self._owner, limit=_ROWS)
        midnight = time.time() // _DAY * _DAY
        today = await calls.list(principal=self._owner, since=midnight, limit=_ROWS)
        tools: dict[str, dict[str, int]] = {}
        for row in rows:
            used = tools.setdefault(self._shown(row), {"calls": 0, "failed": 0, "tokens": 0})
            used["calls"] += 1
            used["failed"] += row.outcome not in ("ok", "input_required")
            used["tokens"] += _tokens(row.result_bytes)
        budget = self._parts.settings.budgets.session
        limits = [limit for limit in (state.limits.calls, budget.calls) if limit is not None]
        return {
            "session": {"calls": len(rows), "tokens": sum(used["tokens"] for used in tools.values())},
            "by_tool": dict(sorted(tools.items(), key=lambda item: -item[1]["tokens"])),
            "definitions": {"tokens": _tokens(len(self._parts.views.listing(state)))},
            "today": {"calls": len(today), "tokens": sum(_tokens(row.result_bytes) for row in today)},
            "left": {
                "calls": max(0, min(limits) - state.usage.calls.total()) if limits else None,
                "tokens": None if budget.tokens is None else max(0, budget.tokens - state.usage.tokens.total()),
            },
        }

    async def events(self, *, limit: int, tool: str = "", outcome: str = "") -> list[Mapping[str, Any]]:
        """Return the newest calls, the newest first."""
        label = self._visible.aliases.rename_of(tool)
        tool = label.tool if label is not None and not label.instead else tool
        rows = await self._parts.store.calls.list(principal=self._owner, tool=tool, outcome=outcome, limit=limit)
        return [
            {
                "call_id": row.id,
                "time": datetime.fromtimestamp(row.finished, UTC).isoformat(timespec="milliseconds"),
                "tool": self._shown(row),
                "outcome": row.outcome,
                "decision": row.decision,
                "milliseconds": round(row.latency_ms, 1),
                "in_this_session": row.session == self._visible.session.key,
            }
            for row in rows
        ]

    def tools(self) -> Mapping[str, str]:
        """Return the tools in scope, by the names of the profile, with the first sentence of each description."""
        presentations = (
            presented for tool in self._visible.offered() for presented in self._visible.presentations(tool)
        )
        return {presented.name: presented.summary for presented in presentations}

    def has_tool(self, pattern: str) -> bool:
        """Whether a pattern means a tool in scope, by the names of the profile or of the catalog."""
        return any(
            fnmatchcase(name, pattern)
            for tool in self._visible.offered()
            for name in (tool.name, *(presented.name for presented in self._visible.presentations(tool)))
        )

    def fields(self, entity: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the arguments of the tools whose name or op has the entity in it, in one form or the other."""
        found: dict[str, dict[str, Any]] = {}
        for tool in self._visible.offered():
            if _singular(entity) not in set(_words(tool)):
                continue
            tool = self._visible.aliases.present(tool)
            required = tool.input_schema.get("required", ())
            for name, given in cast("Mapping[str, Any]", tool.input_schema.get("properties", {})).items():
                schema = _one(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else dict[str, Any]()
                described = {key: schema[key] for key in _OF_FIELD if key in schema}
                known = found.setdefault(name, {**described, "taken_by": [], "required_by": []})
                known["taken_by"].append(tool.name)
                if name in required:
                    known["required_by"].append(tool.name)
        return found

    def _shown(self, row: CallRow) -> str:
        """Return the profile's name of the tool of a recorded call: the requested one where it has several."""
        tool = self._visible.catalog.tools.get(row.tool)
        return row.tool or row.requested if tool is None else self._visible.aliases.name_used(row.requested, tool)


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


def _tokens(size: int) -> int:
    return -(-size // _BYTES_A_TOKEN)
