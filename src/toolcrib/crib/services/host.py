"""Services that a crib gives its tools (`core.services.host`): records, web, APIs, sandbox, insight, configuration.

A tool reaches them by its context (`ctx.records(…)`, `ctx.lent.…`), which adds the caller, its taint and its intent.
What takes long to load or to start (the web client, descriptions of APIs, background tasks) begins with its first use.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from ...catalog.embedding.embedder import SharedEmbedder
from ...config import Settings
from ...core.call import default_key
from ...core.context import Context
from ...core.files import make_private_folder
from ...core.intent import Intent
from ...core.result import ToolResult
from ...core.sandbox import Sandbox
from ...core.services.apis import Apis
from ...core.services.host import Page, ProgramRequest, ServedTools, Web
from ...core.services.records import Embedded, Nearest, Records
from ...core.services.shared_storage import Schema, SharedStorage
from ...core.session import LOCAL, SessionTable
from ...core.taint import StoredTaint
from ...errors import ToolFailure, UsageError
from ...net.guard import Guard, NetFailure
from ...results.artifacts import Artifacts
from ...system.tasks import Background
from ..calls import CallRunner
from ..profiles import ProfileRegistry
from ..schedules import Schedules, SessionSchedules
from ..storage import AccountLogins, Storage
from ..workspaces import Workspaces
from .insight import InsightParts, SessionInsight
from .own_settings import OwnSettings
from .records import MeaningSearch, RecordCollection
from .shared_storage import GuestStorage, StoredEvents

_Serve = Callable[[Context, ProgramRequest], AbstractAsyncContextManager[ServedTools | None]]

_PRIVATE: Final = "private_hosts"
"""Under `tools.web`: addresses of this machine or network that tools may reach all the same."""
_HINT: Final = (
    "the operator can name a host that may be reached all the same under `tools: {web: {private_hosts: […]}}`"
)


if TYPE_CHECKING:
    from ...net.client import WebClient
    from .api_descriptions import ApiDescriptions


class CribHost:
    """The `Host` of one crib, open as long as the crib is."""

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        profiles: ProfileRegistry,
        workspaces: Workspaces,
        insight: InsightParts,
        schedules: Schedules,
        calls: CallRunner,
        sessions: SessionTable,
        artifacts: Artifacts,
        embedder: SharedEmbedder | None,
    ) -> None:
        """Secrets are masked in records; a crib with a home was configured by a person, in files."""
        self._settings = settings
        self._folders = storage.folders
        self._rows = storage.store.records
        self._shared = storage.store.shared
        self.events = StoredEvents(storage.store.shared, self.spawn)
        """The log of events."""
        self._logins = AccountLogins(settings, storage.folders.home, storage.redactor.learn)
        self._private = tuple(str(host) for host in settings.tools.get("web", {}).get(_PRIVATE, ()))
        self._web = _GuardedWeb(Guard.of(self._private))
        self._apis: ApiDescriptions | None = None
        self._work: Background | None = None
        self._starting = anyio.Lock()
        self._is_filling = False
        self._meaning = MeaningSearch(embedder, lambda: self.folder("meaning") / "texts.db")
        self._workspaces = workspaces
        self._insight = insight
        self._schedules = schedules
        self._calls = calls
        self._sessions = sessions
        self._artifacts = artifacts
        self._redactor = storage.redactor
        self._serve: _Serve | None = None
        self._configuration = OwnSettings(settings, has_files=storage.folders.home is not None, profiles=profiles.keys)

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

    def _mask(self, principal: str) -> Callable[[Any], Any]:
        """Return the function that masks secrets in the values that a principal stores."""
        return self._redactor.of(principal).value

    def records(
        self, owner: str, collection: str, taint: StoredTaint | None = None, intent: Intent | None = None
    ) -> Records:
        """Return the records of a collection, marked by and marking the call with that taint."""
        return RecordCollection(self._rows, (owner, collection), self._mask(owner), self._meaning, taint, intent)

    def storage(
        self, principal: str, schema: Schema, taint: StoredTaint | None = None, intent: Intent | None = None
    ) -> SharedStorage:
        """Return the tables of a guest for a principal, marked by and marking the call with that taint."""
        parts = self._shared, self._rows, self._mask(principal), self._meaning, self.events
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
        state = self._sessions.of_call(owner, session)
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
            from .api_descriptions import ApiDescriptions  # slow to load: few cribs have API descriptions

            self._apis = ApiDescriptions(self._folders.for_tools, self._private)
        return self._apis

    def sandbox(self, owner: str, session: str, taint: StoredTaint | None = None) -> Sandbox | None:
        """Return the sandbox of a session's commands; None if they may not run. `taint` marks what they write."""
        state = self._sessions.find(owner, session)
        return self._workspaces.sandbox_of(state, taint) if state is not None else None

    def configuration(self, owner: str) -> OwnSettings:
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
                data = (await anyio.to_thread.run_sync(self._redactor.of(owner).text, data.decode())).encode()
        put = partial(self._artifacts.put, data, owner, media_type, source=source, trust="untrusted")
        return (await anyio.to_thread.run_sync(put)).link(f"a file that {source} has kept")

    def folder(self, name: str, *, kept: bool = False) -> Path:
        """Return a folder for a cache, or for `kept` data. Raises `UsageError` for anything but a plain name."""
        if not name.isidentifier():
            raise UsageError(f"a folder for a tool has a plain name, not {name!r}")
        path = self._folders.for_tools(kept) / name
        make_private_folder(path)
        return path

    def setting(self, name: str) -> Any:
        """Return the setting `tools: {NAME: …}`; None if it is not set."""
        return self._settings.tools.get(name)

    def rank(self, query: str, texts: Mapping[str, tuple[str, str]], limit: int) -> list[str]:
        """Return the keys of the texts that fit a query, best first."""
        from ...catalog.index import Index, IndexEntry  # it brings the stemmer and word lists: only to rank

        entries = (
            IndexEntry(name=key, leaf=title, source="", description=text) for key, (title, text) in texts.items()
        )
        return [hit.name for hit in Index(entries).search(query, limit)]

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of texts. Raises `ToolFailure("unavailable")` if there is no embedder."""
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

    async def check(self, url: str) -> None:
        try:
            await self._opened().check(url, look_up=False)
        except NetFailure as failure:
            raise _explained(failure) from failure

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
        from ...net.client import WebRequest  # the HTTP client is slow to load: few tools use it

        lowered = {name.lower(): value for name, value in (headers or {}).items()}
        request = WebRequest(method=method.upper(), url=url, headers=lowered, content=content)
        try:
            return await self._opened().send(request, seconds=seconds, redirects=redirects)
        except NetFailure as failure:
            raise _explained(failure) from failure

    def _opened(self) -> WebClient:
        from ...net.client import WebClient  # as above

        if self._client is None:
            self._client = WebClient(self._guard)
        return self._client

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _explained(failure: NetFailure) -> ToolFailure:
    hint = _HINT if failure.code == "denied" else failure.hint
    explained = ToolFailure(failure.code, failure.message, hint=hint)
    explained.sent = failure.sent
    return explained
