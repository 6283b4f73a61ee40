"""The services that a crib gives its tools: records, web, API descriptions, sandbox, configuration; see `core.host`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from ..catalog.embedding.embedder import SharedEmbedder
from ..catalog.index import Entry, Index
from ..config import Settings
from ..core.context import Context
from ..core.host import SESSIONS, Apis, Embedded, Nearest, Page, Record, Records, Web
from ..core.json import dumps
from ..core.sandbox import Sandbox
from ..core.session import LOCAL
from ..core.tool import Tool
from ..errors import ToolFailure, UsageError
from ..jobs.job import Jobs
from ..net.guard import Guard, NetFailure
from ..results.redact import Redactor
from ..store.records import MOST_RECORDS, RecordRows, SearchText
from ..store.store import Store
from ..system.tasks import Background
from .configuration import Adjusting
from .profiles import ProfileRegistry
from .storage import Folders
from .text_meaning import Meaning, mixed
from .tools import ToolRegistry
from .views import Views
from .workspaces import Shells

if TYPE_CHECKING:
    from ..net.client import WebClient
    from .api_descriptions import ApiShelf

__all__ = ["Collection", "Hosting", "InsightParts", "SessionInsight"]

_NAME_BYTES: Final = 2000
"""Of an id or a group: PostgreSQL's indexes hold 2,704 bytes, with the owner and the collection."""
_VALUE_BYTES: Final = 1 << 20
"""Of a record as JSON."""
_CANDIDATES: Final = 50
"""Records that share words with a query and are weighed by their meaning, at least."""
_TEXT: Final = 1 << 20
"""Characters that a search goes by."""


class Collection:
    """One collection of one owner. As long as the store is open."""

    def __init__(self, rows: RecordRows, key: tuple[str, str], mask: Callable[[Any], Any], meaning: Meaning) -> None:
        """`key` is the owner with the collection's name; `mask` takes secrets out."""
        self._rows = rows
        self._key = key
        self._mask = mask
        self._meaning = meaning

    async def add(self, value: Mapping[str, Any], *, group: str = "", text: str = "", title: str = "") -> Record:
        """Keep a new one; see `core.host.Records`, here and below. Raises `ToolFailure` for what is over a limit."""
        group = self._name(group, "group")
        kept, search_text = await self._content(value, text, title)
        return await self._rows.add(self._key, kept, group=group, text=search_text)

    async def put(
        self,
        id: str,
        value: Mapping[str, Any],
        *,
        group: str = "",
        text: str = "",
        title: str = "",
        revision: int | None = None,
    ) -> Record:
        """Keep one in the place of what has the id."""
        named, group = self._name(id, "id"), self._name(group, "group")
        kept, search_text = await self._content(value, text, title)
        return await self._rows.put(self._key, named, kept, group=group, text=search_text, revision=revision)

    async def get(self, id: str) -> Record | None:
        """Return one."""
        return await self._rows.get(self._key, self._name(id, "id"))

    async def remove(self, id: str) -> bool:
        """Forget one."""
        return await self._rows.remove(self._key, self._name(id, "id"))

    async def list(self, *, group: str | None = None, limit: int = 1000) -> list[Record]:
        """Return those of a group, or all."""
        return await self._rows.list(self._key, group=self._group(group), limit=_within(limit))

    async def search(self, query: str, *, group: str | None = None, limit: int = 10) -> list[Record]:
        """Return those that share words with the query, or mean the same."""
        group, limit = self._group(group), _within(limit)
        model = await self._meaning.model()
        if not model or not limit:
            return await self._rows.search(self._key, query, group=group, limit=limit)
        wide = max(limit, _CANDIDATES)
        found = await self._rows.search(self._key, query, group=group, limit=wide)
        shares = {record.id: min(record.score, 1.0) for record in found}
        held = await self._rows.vectors(self._key, group=group, model=model)
        scores = mixed(shares, await self._meaning.cosines(query, held), limit)
        records = await self._rows.some(self._key, list(scores))
        return [replace(record, score=scores[record.id]) for record in records]

    async def meant(self, *, group: str | None = None) -> int | None:
        """Return how many are found by their meaning; None where there is no embedder."""
        group, model = self._group(group), await self._meaning.model()
        return await self._rows.count_vectors(self._key, group=group, model=model) if model else None

    async def _content(self, value: Mapping[str, Any], text: str, title: str) -> tuple[Mapping[str, Any], SearchText]:
        size = _size(value)
        if size > _VALUE_BYTES:
            raise _too_large(f"it has {size:,} bytes as JSON, {_VALUE_BYTES:,} is the most")
        if len(text) + len(title) > _TEXT:
            raise _too_large(f"its text has {len(text) + len(title):,} characters, {_TEXT:,} is the most")
        return self._mask(value), await self._meaning.search_text(self._mask(text), self._mask(title))

    def _group(self, group: str | None) -> str | None:
        return None if group is None else self._name(group, "group")

    def _name(self, name: str, what: str) -> str:
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise _cannot_hold(f"its {what} is no Unicode text") from error
        if "\0" in name:
            raise _cannot_hold(f"its {what} has a NUL character, which not every database takes")
        if size > _NAME_BYTES:
            raise _too_large(f"its {what} has {size:,} bytes, {_NAME_BYTES:,} is the most")
        return self._mask(name)


def _size(value: Mapping[str, Any]) -> int:
    try:
        return len(dumps(value))
    except TypeError as error:
        raise _cannot_hold(str(error.__cause__ or error)) from error


def _within(limit: int) -> int:
    return max(0, min(limit, MOST_RECORDS))


def _too_large(why: str) -> ToolFailure:
    return ToolFailure("too_large", f"this cannot be kept: {why}", hint="keep a shorter one, or several")


def _cannot_hold(why: str) -> ToolFailure:
    return ToolFailure("invalid_arguments", f"this cannot be kept: {why}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightParts:
    """The parts of a crib that an insight reads."""

    settings: Settings
    store: Store
    jobs: Jobs
    tools: ToolRegistry
    views: Views


class SessionInsight:
    """Status and catalog details for one session."""

    def __init__(self, parts: InsightParts, owner: str, session: str) -> None:
        """`owner` is the principal, `session` the key; the session exists."""
        self._parts = parts
        self._owner = owner
        self._scene = parts.views.scene_of(Context(call_id="", session_key=session, principal=owner))

    async def status(self) -> Mapping[str, Any]:
        """Return the status. Details for the operator appear only in the operator's sessions."""
        state = self._scene.session
        tools = list(self._scene.offered())
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
            "tools": {"count": len(tools), "by_category": _counted(tool.category or "other" for tool in tools)},
            "jobs_working": len(working),
        }
        if self._owner == LOCAL:
            problems = self._parts.tools.problems
            status["sources"] = [
                {name: value for name, value in asdict(source).items() if value != ""}
                for source in self._parts.tools.sources
            ]
            status["problems"] = [f"{one.source}: {one.message}" for one in problems[:_PROBLEMS]]
            status["problem_count"] = len(problems)
        return status

    async def usage(self) -> Mapping[str, Any]:
        """Return what was used. Tokens are estimated: four bytes each."""
        state, calls = self._scene.session, self._parts.store.calls
        rows = await calls.list(session=state.key, principal=self._owner, limit=_ROWS)
        midnight = time.time() // _DAY * _DAY
        today = await calls.list(principal=self._owner, since=midnight, limit=_ROWS)
        tools: dict[str, dict[str, int]] = {}
        for row in rows:
            used = tools.setdefault(row.tool or row.requested, {"calls": 0, "failed": 0, "tokens": 0})
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
        rows = await self._parts.store.calls.list(principal=self._owner, tool=tool, outcome=outcome, limit=limit)
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
                described = {key: schema[key] for key in _OF_FIELD if key in schema}
                known = found.setdefault(name, {**described, "taken_by": [], "required_by": []})
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


_PRIVATE: Final = "private_hosts"
"""Under `tools.web`: addresses of this machine or network that tools may reach all the same."""
_HINT: Final = (
    "the operator can name a host that may be reached all the same under `tools: {web: {private_hosts: […]}}`"
)


class Hosting:
    """The `Host` of one crib, open as long as the crib is."""

    def __init__(
        self,
        settings: Settings,
        folders: Folders,
        profiles: ProfileRegistry,
        shells: Shells,
        insight: InsightParts,
        redactor: Redactor,
        embedder: SharedEmbedder | None = None,
    ) -> None:
        """`redactor` takes secrets out of records; a crib with a home was configured by a person, in files."""
        self._settings = settings
        self._folders = folders
        self._rows = insight.store.records
        self._mask = redactor.value
        self._private = tuple(str(host) for host in settings.tools.get("web", {}).get(_PRIVATE, ()))
        self._web = _GuardedWeb(Guard.of(self._private))
        self._apis: ApiShelf | None = None
        self._work: Background | None = None
        self._starting = anyio.Lock()
        self._is_filling = False
        self._meaning = Meaning(embedder, lambda: self.folder("meaning") / "texts.db")
        self._shells = shells
        self._insight = insight
        self._configuration = Adjusting(settings, has_files=folders.home is not None, profiles=profiles.keys)

    async def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin work that outlives the call; it is cancelled when the crib closes."""
        async with self._starting:
            if self._work is None:
                self._work = Background()
                await self._work.start()
        self._work.spawn(work)

    async def aclose(self) -> None:
        """End what tools have begun, and close the connections of the web client."""
        if self._work is not None:
            await self._work.stop()
        await self._web.aclose()
        if self._apis is not None:
            await self._apis.aclose()

    def records(self, owner: str, collection: str) -> Records:
        """Return the records of a collection."""
        return Collection(self._rows, (owner, collection), self._mask, self._meaning)

    @property
    def web(self) -> Web:
        """Guarded requests."""
        return self._web

    @property
    def apis(self) -> Apis:
        """HTTP APIs by their descriptions. What they need is loaded now: most cribs have none."""
        if self._apis is None:
            from .api_descriptions import ApiShelf  # slow to load: few cribs have API descriptions

            self._apis = ApiShelf(self._folders.for_tools, self._private)
        return self._apis

    @property
    def sandbox(self) -> Sandbox | None:
        """Where commands run; None where they may not."""
        return self._shells.sandbox

    def configuration(self, owner: str) -> Adjusting:
        """Return the configuration. Raises `ToolFailure("denied")` unless `owner` is who runs the crib."""
        if owner != LOCAL:
            raise ToolFailure("denied", "the configuration is for the operator of this Toolcrib, not for its clients")
        return self._configuration

    def insight(self, owner: str, session: str) -> SessionInsight:
        """Return the status, usage and fields that a session may read of the crib."""
        return SessionInsight(self._insight, owner, session)

    def folder(self, name: str, *, kept: bool = False) -> Path:
        """Return a folder for what can be made anew, or is `kept`. Raises `UsageError` for what is no plain name."""
        if not name.isidentifier():
            raise UsageError(f"a folder for a tool has a plain name, not {name!r}")
        path = self._folders.for_tools(kept) / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def setting(self, name: str) -> Any:
        """Return what the configuration says under `tools: {NAME: …}`; None where it says nothing."""
        return self._settings.tools.get(name)

    def rank(self, query: str, texts: Mapping[str, tuple[str, str]], limit: int) -> list[str]:
        """Return the keys of the texts that fit a query, best first."""
        entries = (Entry(name=key, leaf=title, source="", description=text) for key, (title, text) in texts.items())
        return [hit.name for hit in Index(entries).search(query, limit)]

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of texts. Raises `ToolFailure("unavailable")` where there is no embedder."""
        return await self._meaning.embed(texts)

    @property
    def embeds(self) -> bool:
        """Whether there is an embedder."""
        return self._meaning.embeds

    async def nearest(self, query: str, texts: Mapping[str, str], limit: int) -> Nearest:
        """Return which texts mean what a query asks for; those that are left are read beside other work."""
        given = dict(texts)
        found = await self._meaning.nearest(query, given, limit)
        if found.unread and not self._is_filling:
            self._is_filling = True
            await self.spawn(partial(self._fill, given))
        return found

    async def _fill(self, texts: Mapping[str, str]) -> None:
        try:
            await self._meaning.fill(texts)
        finally:
            self._is_filling = False


class _GuardedWeb:
    """Requests through the guard. The HTTP client is loaded at the first one: most cribs make none."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._client: WebClient | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        seconds: float = 30.0,
        redirects: bool = True,
    ) -> Page:
        from ..net.client import WebClient, WebRequest  # the HTTP client is slow to load: few tools use it

        if self._client is None:
            self._client = WebClient(self._guard)
        lowered = {name.lower(): value for name, value in (headers or {}).items()}
        request = WebRequest(method=method.upper(), url=url, headers=lowered, content=content)
        try:
            answer = await self._client.send(request, seconds=seconds, redirects=redirects)
        except NetFailure as failure:
            hint = _HINT if failure.code == "denied" else failure.hint
            raise ToolFailure(failure.code, failure.message, hint=hint) from failure
        return Page(status=answer.status, url=answer.url, headers=answer.headers, body=answer.body)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
