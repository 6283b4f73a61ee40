"""Services that a crib gives its tools (`core.host`): records, web, APIs, sandbox, insight, configuration.

A changed configuration key is written into the user's own file, or into the last one that was named when the crib was
started. It holds from the next start on. A file of a project is never changed: other users may trust it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
from msgspec import Struct

from ..catalog.embedding.embedder import SharedEmbedder
from ..config import Settings, files, load
from ..config.directories import PROJECT_FOLDER
from ..config.keys import CHANGEABLE, MODEL, check, fixed_by, shown, steps_of, value_of
from ..core.call import default_key
from ..core.context import Context
from ..core.events import SourceState
from ..core.host import SESSIONS, Apis, Embedded, Nearest, Page, ProgramRequest, Records, ServedTools, Setting, Web
from ..core.intent import Intent
from ..core.json import fields_of
from ..core.result import ToolResult
from ..core.sandbox import Sandbox
from ..core.session import LOCAL, SessionState, SessionTable
from ..core.shared_storage import Schema, SharedStorage
from ..core.taint import StoredTaint
from ..core.tool import Tool
from ..errors import ConfigError, ToolFailure, UsageError
from ..jobs.job import Jobs
from ..net.guard import Guard, NetFailure
from ..results.artifacts import Artifacts
from ..store.store import Store
from ..system.tasks import Background
from ..workspace.marked_sandbox import MarkedSandbox
from ..workspace.tainted_files import FileMarks
from .calls import CallRunner
from .profiles import ProfileRegistry
from .records import Meaning, RecordCollection
from .schedules import Schedules, SessionSchedules
from .shared_storage import GuestStorage, StoredEvents
from .storage import AccountLogins, Storage
from .tools import ToolRegistry
from .views import Views
from .workspaces import Shells

__all__ = ["Adjusting", "Hosting", "InsightParts", "SessionInsight"]

_YAML: Final = (".yaml", ".yml")
_PROFILES: Final = ("profile", "chat.profile")
_BACKENDS: Final = "tools: {settings: {backends: {NAME: 'provider:model'}}}"

_Serve = Callable[[Context, ProgramRequest], AbstractAsyncContextManager[ServedTools | None]]

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

_PRIVATE: Final = "private_hosts"
"""Under `tools.web`: addresses of this machine or network that tools may reach all the same."""
_HINT: Final = (
    "the operator can name a host that may be reached all the same under `tools: {web: {private_hosts: […]}}`"
)


class Adjusting:
    """The configuration of one crib, for the person who runs it. Changes come one after the other."""

    def __init__(self, settings: Settings, *, has_files: bool, profiles: Callable[[], Collection[str]]) -> None:
        """`has_files` is false for a crib that a program has made; `profiles` are the names that there are."""
        self._settings = settings
        self._has_files = has_files
        self._profiles = profiles
        self._changing = anyio.Lock()

    def all(self) -> Mapping[str, Any]:
        """Return every key that may be shown with its value; see `core.host.Configuration`, here and below."""
        return {key: value_of(self._settings, key) for key in shown()}

    def get(self, key: str) -> Setting:
        """Return one setting. Raises `ToolFailure`: `not_found` for what is no key, `denied` for a secret one."""
        try:
            reason = fixed_by(key)
            if reason == "it holds secrets":
                raise ToolFailure("denied", f"{key} holds secrets: no tool shows it, and no tool changes it")
            return Setting(key=key, value=value_of(self._settings, key), fixed=reason)
        except ConfigError as error:
            raise ToolFailure("not_found", str(error), hint=f"the keys are {', '.join(shown())}") from error

    async def update(self, key: str, value: str | float | bool) -> Setting:
        """Write a setting into the user's file; return it as it will be."""
        if reason := self.get(key).fixed:
            raise ToolFailure(
                "denied",
                f"{key} is not for tools to change: {reason}",
                hint=f"the user can change it in the configuration file; tools can change {', '.join(CHANGEABLE)}",
            )
        if isinstance(value, str) and "${" in value:
            raise ToolFailure("invalid_arguments", f"value: {key} takes no variables here")
        if key in _PROFILES and value not in self._profiles():
            names = ", ".join(sorted(self._profiles()))
            raise ToolFailure("invalid_arguments", f"value: there is no profile {value!r}, only {names}")
        return await self._change(key, value)

    async def switch(self, backend: str) -> Setting:
        """Let `toolcrib chat` ask another of the models that the operator has listed."""
        backends = self._settings.tools.get("settings", {}).get("backends")
        listed = cast("dict[str, Any]", backends) if isinstance(backends, dict) else dict[str, Any]()
        if not listed:
            hint = f"the operator can list them in the configuration: `{_BACKENDS}`"
            raise ToolFailure("unavailable", "no backends are listed here", hint=hint)
        model = listed.get(backend)
        if not isinstance(model, str):
            raise ToolFailure("not_found", f"there is no backend {backend!r}", hint=f"there are {', '.join(listed)}")
        return await self._change(MODEL, model)

    async def _change(self, key: str, value: Any) -> Setting:
        async with self._changing:
            return await anyio.to_thread.run_sync(self._write, key, value)

    def _write(self, key: str, value: Any) -> Setting:
        from ..config.own_file import set_key  # it brings the readers of YAML catalogs: few programs change settings

        steps, file = steps_of(key), self._file()
        nested = value
        for step in reversed(steps[1:]):
            nested = {step: nested}
        try:
            check({steps[0]: nested}, {})
        except ConfigError as error:
            raise ToolFailure("invalid_arguments", f"value: {error}") from error
        try:
            before = files.read(file) if file.is_file() else None
            content = set_key(file, steps, value)
            files.write(file, content)
            after = self._settled(file, before, key, value)
        except ConfigError as error:
            raise ToolFailure("tool_error", f"nothing was changed: {error}") from error
        return Setting(key=key, value=after, before=value_of(self._settings, key), file=str(file))

    def _settled(self, file: Path, before: bytes | None, key: str, value: Any) -> Any:
        """Return what will hold with the file as it is now; what does not hold is taken back."""
        try:
            named = self._named()
            fresh = load(named, environ=self._settings.environment)
            wanted = load([file], environ=self._settings.environment) if file not in named else fresh
            effective, expected = value_of(fresh, key), value_of(wanted, key)
            if effective != expected or file not in fresh.files:
                raise ConfigError("another file says something else, and counts more", file=str(file), key=key)
        except ConfigError:
            if before is None:
                file.unlink()
            else:
                files.write(file, before)
            raise
        return effective

    def _named(self) -> list[Path]:
        """Configuration files named at start; empty if the default locations were searched."""
        own = self._settings.directories.config / "config.yaml"
        return [file for file in self._settings.files if file != own and file.parent.name != PROJECT_FOLDER]

    def _file(self) -> Path:
        if not self._has_files:
            raise ToolFailure("unavailable", "this Toolcrib was made by a program, which says how it is configured")
        named = self._named()
        if not named:
            return self._settings.directories.config / "config.yaml"
        ours = [file for file in named if file.suffix.lower() in _YAML]
        if not ours:
            raise ToolFailure("unavailable", f"{named[-1]} is another program's file: nothing is changed there")
        return ours[-1]


if TYPE_CHECKING:
    from ..net.client import WebClient
    from .api_descriptions import ApiShelf


class InsightParts(Struct, frozen=True, kw_only=True):
    """The parts of a crib that an insight reads."""

    settings: Settings
    store: Store
    jobs: Jobs
    tools: ToolRegistry
    views: Views


class SessionInsight:
    """Status and catalog details for one session."""

    def __init__(self, parts: InsightParts, owner: str, session: str, taint: StoredTaint | None = None) -> None:
        """`owner` is the principal, `session` the key; the session exists. `taint` notes the words of servers."""
        self._parts = parts
        self._taint = taint
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
                "time": datetime.fromtimestamp(row.finished, UTC).isoformat(timespec="milliseconds"),
                "tool": row.tool or row.requested,
                "outcome": row.outcome,
                "decision": row.decision,
                "milliseconds": round(row.latency_ms, 1),
                "in_this_session": row.session == self._scene.session.key,
            }
            for row in rows
        ]

    def tools(self) -> Mapping[str, str]:
        """Return the tools in scope, with their descriptions."""
        return {tool.name: tool.description for tool in self._scene.offered()}

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


class Hosting:
    """The `Host` of one crib, open as long as the crib is."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        profiles: ProfileRegistry,
        shells: Shells,
        insight: InsightParts,
        schedules: Schedules,
        calls: CallRunner,
        sessions: SessionTable,
        artifacts: Artifacts,
        marks: FileMarks,
        stain: Callable[[str, SessionState], None],
        embedder: SharedEmbedder | None = None,
    ) -> None:
        """Secrets are masked in records; a crib with a home was configured by a person, in files.

        `stain` taints a session with a cause.
        """
        self._marks = marks
        self._stain = stain
        self._settings = settings
        self._folders = storage.folders
        self._rows = storage.store.records
        self._shared = storage.store.shared
        self.events = StoredEvents(storage.store.shared, self.spawn)
        """The log of events."""
        self._mask = storage.redactor.value
        self._logins = AccountLogins(settings, storage.folders.home, storage.redactor.learn)
        self._private = tuple(str(host) for host in settings.tools.get("web", {}).get(_PRIVATE, ()))
        self._web = _GuardedWeb(Guard.of(self._private))
        self._apis: ApiShelf | None = None
        self._work: Background | None = None
        self._starting = anyio.Lock()
        self._is_filling = False
        self._meaning = Meaning(embedder, lambda: self.folder("meaning") / "texts.db")
        self._shells = shells
        self._insight = insight
        self._schedules = schedules
        self._calls = calls
        self._sessions = sessions
        self._artifacts = artifacts
        self._redact = storage.redactor.text
        self._serve: _Serve | None = None
        self._configuration = Adjusting(settings, has_files=storage.folders.home is not None, profiles=profiles.keys)

    def open(self, serve: _Serve) -> None:
        """Serve sessions to programs by `serve` from now on."""
        self._serve = serve

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
        await self._logins.aclose()
        if self._apis is not None:
            await self._apis.aclose()

    def records(
        self, owner: str, collection: str, taint: StoredTaint | None = None, intent: Intent | None = None
    ) -> Records:
        """Return the records of a collection, marked by and marking the call with that taint."""
        return RecordCollection(self._rows, (owner, collection), self._mask, self._meaning, taint, intent)

    def storage(
        self, principal: str, schema: Schema, taint: StoredTaint | None = None, intent: Intent | None = None
    ) -> SharedStorage:
        """Return the tables of a guest for a principal, marked by and marking the call with that taint."""
        parts = self._shared, self._rows, self._mask, self._meaning, self.events
        return GuestStorage(schema, principal, *parts, taint, intent)

    async def call(self, context: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Make a call of the session of another one, by the names of the catalog."""
        return await self._calls.door_of(context)(name, dict(arguments), raw=True)

    @asynccontextmanager
    async def serve(
        self, context: Context, folder: Path, *, categories: Sequence[str], read_only: Sequence[str], mode: str
    ) -> AsyncGenerator[ServedTools | None]:
        """Serve built-in tools to a program in the sandbox until the context is left; None where that cannot be."""
        if self._serve is None:
            yield None
            return
        request = ProgramRequest(
            folder=folder, categories=frozenset(categories), read_only=frozenset(read_only), mode=mode
        )
        async with self._serve(context, request) as served:
            yield served

    def set_default(self, owner: str, session: str, name: str, value: Any, categories: Sequence[str]) -> None:
        """Set a context value of a session for each category ("" is all); None removes it."""
        state = self._sessions.find(owner, session)
        if state is None:
            raise ToolFailure("unavailable", "the session of this call has ended")
        keys = [default_key(name, category) for category in categories]
        others = {key: known for key, known in state.defaults.items() if key not in keys}
        state.defaults = others if value is None else {**others, **dict.fromkeys(keys, value)}

    @property
    def web(self) -> Web:
        """Guarded requests."""
        return self._web

    async def authorization(self, category: str, account: str) -> str:
        """Return the `Authorization` of requests to an account of a tool; empty without a login."""
        return await self._logins.authorization(category, account)

    @property
    def apis(self) -> Apis:
        """HTTP APIs by their descriptions. What they need is loaded now: most cribs have none."""
        if self._apis is None:
            from .api_descriptions import ApiShelf  # slow to load: few cribs have API descriptions

            self._apis = ApiShelf(self._folders.for_tools, self._private)
        return self._apis

    def sandbox(self, owner: str, session: str, taint: StoredTaint | None = None) -> Sandbox | None:
        """Return where commands of a session run; None where they may not. `taint` marks what they write."""
        state = self._sessions.find(owner, session)
        sandbox = self._shells.sandbox_of(state) if state is not None else None
        if state is None or sandbox is None or taint is None:
            return sandbox

        def stain(cause: str) -> None:
            self._stain(cause, state)

        return MarkedSandbox(sandbox, self._marks, taint, session, stain, _is_read_before)

    def configuration(self, owner: str) -> Adjusting:
        """Return the configuration. Raises `ToolFailure("denied")` unless `owner` is who runs the crib."""
        if owner != LOCAL:
            raise ToolFailure("denied", "the configuration is for the operator of this Toolcrib, not for its clients")
        return self._configuration

    def insight(self, owner: str, session: str, taint: StoredTaint | None = None) -> SessionInsight:
        """Return the status, usage and fields that a session may read of the crib; `taint` is that of the call."""
        return SessionInsight(self._insight, owner, session, taint)

    def schedules(self, owner: str, session: str, taint: StoredTaint | None = None) -> SessionSchedules:
        """Return the schedules of a principal, for one of its sessions, marked by and marking the call with a taint."""
        return self._schedules.of(owner, session, taint)

    async def keep(self, owner: str, data: bytes, media_type: str, *, source: str) -> Mapping[str, Any]:
        """Store a file that strangers wrote as an artifact of `owner`; return the block that refers to it."""
        if media_type.startswith("text/") or media_type in ("application/json", "application/xml"):
            with suppress(UnicodeDecodeError):
                data = (await anyio.to_thread.run_sync(self._redact, data.decode())).encode()
        put = partial(self._artifacts.put, data, owner, media_type, source=source, trust="untrusted")
        return (await anyio.to_thread.run_sync(put)).link(f"a file that {source} has kept")

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
        from ..catalog.index import Index, IndexEntry  # it brings the stemmer and word lists: only to rank

        entries = (
            IndexEntry(name=key, leaf=title, source="", description=text) for key, (title, text) in texts.items()
        )
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


def _is_read_before(path: Path) -> bool:
    from ..sandbox.leftovers import is_taken_up  # loaded with the sandbox: most cribs run no command

    return is_taken_up(path.parts[:-1], path.name)
