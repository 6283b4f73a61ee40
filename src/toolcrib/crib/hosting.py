"""What a crib lends its tools: see `core.host`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import anyio

from ..catalog.embedding.embedder import SharedEmbedder
from ..catalog.index import Entry, Index
from ..config import Settings
from ..core.host import Apis, Embedded, Nearest, Page, Records, Web
from ..core.sandbox import Sandbox
from ..core.session import LOCAL
from ..errors import ToolFailure, UsageError
from ..net.guard import Guard, NetFailure
from ..results.redact import Redactor
from ..system.tasks import Background
from .adjusting import Adjusting
from .folders import Folders
from .insight import InsightParts, SessionInsight
from .keeping import Collection
from .meaning import Meaning
from .profiles import ProfileRegistry
from .shells import Shells

__all__ = ["Hosting"]

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
        self._apis: Any = None
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
            self._apis = import_module("toolcrib.crib.described").ApiShelf(self._folders.for_tools, self._private)
        return cast("Apis", self._apis)

    @property
    def sandbox(self) -> Sandbox | None:
        """Where commands run; None where they may not."""
        return self._shells.sandbox

    def configuration(self, owner: str) -> Adjusting:
        """Return the configuration. Raises `ToolFailure("denied")` unless `owner` is who runs the crib."""
        if owner != LOCAL:
            raise ToolFailure("denied", "the configuration is for whoever runs this Toolcrib, not for its clients")
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
        self._client: Any = None

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
        net = import_module("toolcrib.net.client")
        if self._client is None:
            self._client = net.WebClient(self._guard)
        lowered = {name.lower(): value for name, value in (headers or {}).items()}
        request = net.WebRequest(method=method.upper(), url=url, headers=lowered, content=content)
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
