"""Services of a crib for the tools that run in it: records, settings, introspection, guarded web requests, a folder.

A tool reaches it by `Context.host`; a `Host` lives as long as its crib and belongs to its event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct, field

from ..intent import Intent
from ..sandbox import Sandbox
from ..taint import StoredTaint
from .apis import Apis
from .records import Embedded, Nearest, Records
from .schedules import Schedules
from .shared_storage import EventLog, Schema, SharedStorage

SESSIONS: Final = "sessions"
"""The collection in which a principal's sessions are described: `{"description": …}` under the key of each."""


class Page(Struct, frozen=True, kw_only=True):
    """Response of a web server, with any status."""

    status: int
    url: str
    """Final URL, after redirects."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case names; values of repeated ones are joined by commas."""
    body: bytes = b""
    """Decompressed."""

    @property
    def media_type(self) -> str:
        """The content type in lower case, without parameters; empty when the response has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Web(Protocol):
    """Requests to addresses that a model may have chosen: private ones are refused, every answer has its limits."""

    async def check(self, url: str) -> None:
        """Raise `ToolFailure` `denied` for an address that is never reached, before a person is asked about it.

        Nothing is sent, no name looked up: a model may have written a secret into it.
        """
        ...

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
        """Return the response, after redirects, or the redirect itself without `redirects`.

        Raises `ToolFailure`: `denied` for a forbidden address, `unavailable`, `timeout`, `too_large`.
        """
        ...


class ProgramRequest(Struct, frozen=True, kw_only=True):
    """Session that a program in the sandbox is to have; see `core.context.CallHost.serve`."""

    folder: Path
    categories: frozenset[str]
    read_only: frozenset[str]
    mode: str


class ServedTools(Struct, frozen=True, kw_only=True):
    """Tools that a program in the sandbox reaches over MCP."""

    session: str
    """Key of the session of its calls in the record."""
    names: tuple[str, ...]
    """Tools that it is shown."""
    command: tuple[str, ...]
    """The MCP server to start inside the sandbox: it serves on its standard input and output."""
    readable: tuple[Path, ...]
    """Paths that the sandbox must have for it (`Command.readable`)."""


class Setting(Struct, frozen=True, kw_only=True):
    """One key of the configuration."""

    key: str
    """Dotted."""
    value: Any
    fixed: str = ""
    """Reason why tools cannot change the setting; empty if they can."""
    before: Any = None
    """Value in effect until the next start, of a changed setting."""
    file: str = ""
    """File of the change."""


class Configuration(Protocol):
    """Configuration of the crib, without secrets. Changes take effect at the next start."""

    def all(self) -> Mapping[str, Any]:
        """Return every key that may be shown, with its value."""
        ...

    def get(self, key: str) -> Setting:
        """Return one setting. Raises `ToolFailure`: `not_found` for an unknown key, `denied` for a secret one."""
        ...

    async def update(self, key: str, value: str | float | bool) -> Setting:
        """Write a setting into the user's file, keeping comments; return its new state.

        Raises `ToolFailure`: `denied` for a setting that only the user changes, `invalid_arguments` for an invalid
        value, `tool_error` if the file cannot be changed, `unavailable` without such a file.
        """
        ...

    async def switch(self, backend: str) -> Setting:
        """Choose another of the listed models. Raises `ToolFailure`: `not_found`, and those of `update`."""
        ...


class Insight(Protocol):
    """Introspection of the crib for one session, as JSON, without data of other principals."""

    async def status(self) -> Mapping[str, Any]:
        """Return version, sources, number of tools, problems, and how the session is set up."""
        ...

    async def usage(self) -> Mapping[str, Any]:
        """Return calls and estimated tokens of the session, by tool, and the rest of its budgets."""
        ...

    async def events(self, *, limit: int, tool: str = "", outcome: str = "") -> list[Mapping[str, Any]]:
        """Return the newest calls of the principal; `tool` may hold `*`, the outcome `error` is every failure."""
        ...

    def tools(self) -> Mapping[str, str]:
        """Return the tools that the session may call, by name, with the first sentence of each description."""
        ...

    def has_tool(self, pattern: str) -> bool:
        """Whether a pattern with `*` and `?` means a tool of the session, by names of its profile or of the catalog."""
        ...

    def fields(self, entity: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the arguments of the tools that work on a kind of entity, by name; empty without any."""
        ...


class Host(Protocol):
    """Services of the crib for running tools."""

    def schedules(self, owner: str, session: str, taint: StoredTaint | None = None) -> Schedules:
        """Return the schedules of a principal, for one of its sessions; `taint` as for `records`."""
        ...

    def configuration(self, owner: str) -> Configuration:
        """Return the configuration. Raises `ToolFailure("denied")` unless `owner` runs the crib."""
        ...

    def insight(self, owner: str, session: str, taint: StoredTaint | None = None) -> Insight:
        """Return the introspection of the crib for a session; `taint` notes what servers say in it."""
        ...

    def records(
        self, owner: str, collection: str, taint: StoredTaint | None = None, intent: Intent | None = None
    ) -> Records:
        """Return the records of a collection; `owner` is a principal.

        `taint` and `intent` are those of the call that wants them.
        """
        ...

    def storage(
        self, principal: str, schema: Schema, taint: StoredTaint | None = None, intent: Intent | None = None
    ) -> SharedStorage:
        """Return the tables of a guest, as far as a principal may see their rows; the others as for `records`."""
        ...

    def set_default(self, owner: str, session: str, name: str, value: Any, categories: Sequence[str]) -> None:
        """Set a context value of a session from its next call on, for each category ("" is all); None removes it."""
        ...

    @property
    def events(self) -> EventLog:
        """The log of events."""
        ...

    @property
    def web(self) -> Web:
        """Guarded requests."""
        ...

    async def authorization(self, category: str, account: str) -> str:
        """Return the `Authorization` of requests to an account under `tools: {CATEGORY: {accounts: {NAME: …}}}`.

        Empty without a login. Raises `ToolFailure` where a login has run out.
        """
        ...

    @property
    def apis(self) -> Apis:
        """HTTP APIs by their descriptions."""
        ...

    def sandbox(self, owner: str, session: str, taint: StoredTaint | None = None) -> Sandbox | None:
        """Return the sandbox for commands of a session; None where none may run. `taint` as for `records`."""
        ...

    async def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin work that outlives the call; it is cancelled when the crib closes."""
        ...

    async def keep(self, owner: str, data: bytes, media_type: str, *, source: str) -> Mapping[str, Any]:
        """Store a file that strangers wrote as an artifact of `owner`; return the block that refers to it.

        Raises `ToolFailure`: `too_large`, or `storage` when the disk refuses.
        """
        ...

    def folder(self, name: str, *, kept: bool = False) -> Path:
        """Return a folder (0700) for data that can be made anew, such as an index; made when missing.

        `kept` returns a folder that is never cleared: beside the records, for data too large for them.
        """
        ...

    def setting(self, name: str) -> Any:
        """Return the configuration under `tools: {NAME: …}`; None if missing."""
        ...

    def rank(self, query: str, texts: Mapping[str, tuple[str, str]], limit: int) -> list[str]:
        """Return the keys of the texts, a title and more of each, that fit a query, best first, as tools are found.

        Blocks, for a millisecond a hundred texts: some hundreds are for an event loop, more are for a thread.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of texts, some 12 ms each.

        Raises `ToolFailure("unavailable")` where the crib has no embedder: the setting `ranking: {embedder: …}`.
        """
        ...

    @property
    def embeds(self) -> bool:
        """Whether the crib has an embedder. Does not open it."""
        ...

    async def nearest(self, query: str, texts: Mapping[str, str], limit: int) -> Nearest:
        """Return the texts of the same meaning as a query; empty without an embedder.

        New texts are embedded for some seconds; the rest follows in the background, so that a later call finds them.
        """
        ...
