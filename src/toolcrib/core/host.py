"""Services of a crib for the tools that run in it: records, guarded web requests, API descriptions, a folder.

A tool reaches it by `Context.host`; a `Host` lives as long as its crib and belongs to its event loop.

An API description is OpenAPI 3, or Swagger 2. It is stored under the name that its owner gives it, over restarts; the
other parameters of a call (address, credentials) come with every call and are kept by the caller.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct, field

from .intent import Intent
from .result import ToolResult
from .sandbox import Sandbox
from .shared_storage import EventLog, Schema, SharedStorage
from .taint import StoredTaint

__all__ = [
    "SESSIONS",
    "ApiPlace",
    "ApiRequest",
    "Apis",
    "Configuration",
    "Described",
    "Embedded",
    "Endpoint",
    "Host",
    "Insight",
    "Nearest",
    "Page",
    "ProgramRequest",
    "Record",
    "Records",
    "Schedule",
    "Schedules",
    "ServedTools",
    "Setting",
    "Web",
]

SESSIONS: Final = "sessions"
"""The collection in which a principal's sessions are described: `{"description": …}` under the key of each."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """One method of one path of an API."""

    name: str
    """Unique in the API: the operation's id, else made of method and path."""
    method: str
    """In upper case."""
    path: str
    """With `{name}` for path parameters."""
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()


class Described(Struct, frozen=True, kw_only=True):
    """Content of an API description."""

    title: str = ""
    description: str = ""
    servers: tuple[str, ...] = ()
    """Base URLs as written in the description; may be relative."""
    schemes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The security schemes of the description, by name."""
    endpoints: tuple[Endpoint, ...] = ()
    """In the order of the description."""
    problems: tuple[str, ...] = ()
    """Unusable parts, with the reason."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiPlace:
    """An API that was described, and how it is reached."""

    owner: str
    name: str
    base_url: str
    auth: Sequence[Mapping[str, Any]] = dataclasses.field(default=(), repr=False)
    """Credentials in the words of `sources.openapi`: `{type: bearer, token: …}`, `basic`, `api_key`, `oauth2`."""


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request to an endpoint, with values by the description's parameter names."""

    method: str
    path: str
    """As the description has it, or filled in, or the endpoint's name."""
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the query; values for places in the path too."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


class Apis(Protocol):
    """APIs by their descriptions.

    Raises `ToolFailure`: `not_found` for a missing description or endpoint, `invalid_arguments` for values that do not
    fit it, `denied`, `unavailable`, `timeout` and `too_large` as the web does, `storage` while the store cannot be
    used.
    """

    async def fetch(self, url: str) -> bytes:
        """Return the description at a URL; 64 MiB at most."""
        ...

    async def put(
        self,
        owner: str,
        name: str,
        description: bytes | Mapping[str, Any],
        check: Callable[[Described], None] | None = None,
    ) -> Described:
        """Store a description, in place of an earlier one; return its content.

        `check` is called in a thread; when it raises, the exception propagates and the earlier description stays.
        """
        ...

    async def remove(self, owner: str, name: str) -> bool:
        """Forget a description; return whether there was one."""
        ...

    async def described(self, place: ApiPlace) -> Described:
        """Return the description as seen with these credentials: values that they carry are not parameters."""
        ...

    async def schema(self, place: ApiPlace, method: str, path: str) -> Mapping[str, Any]:
        """Return parameters, body and answers of one endpoint, as JSON Schema 2020-12."""
        ...

    async def preview(self, place: ApiPlace, request: ApiRequest) -> str:
        """Return the curl line that a call would be, secrets masked; nothing is sent."""
        ...

    async def call(self, place: ApiPlace, request: ApiRequest, seconds: float) -> ToolResult:
        """Check the request against the description, send it, and return the answer.

        Raises `ToolFailure` for every status but success: `denied` for 401 and 403, `tool_error` for most others.
        """
        ...


class Record(Struct, frozen=True, kw_only=True):
    """One thing that is remembered: plain JSON under an id."""

    id: str
    value: Mapping[str, Any]
    group: str = ""
    """Group for listing: a project, a state, a kind; one a record."""
    revision: int = 1
    """Grows by one with each change."""
    created: float
    """Seconds since 1970."""
    updated: float
    score: float = 0.0
    """Score of a search result; greater is better, and only the order is meaningful."""
    tainted: str = ""
    """The tool that had brought content of strangers into the session which stored it; empty for a clean one."""


class Records(Protocol):
    """The records of one collection of one owner. Stored over restarts, shared by all processes of one store.

    Every method raises `ToolFailure("storage")` while the store cannot be used. Secrets are masked before storing, in
    ids and groups too. The limits are 100,000 records in a collection, 1 MiB of JSON and of text in a record, and 2,000
    bytes in an id and a group: beyond them a method raises `ToolFailure("too_large")`, for a value that is not JSON
    `invalid_arguments`.
    """

    async def add(self, value: Mapping[str, Any], *, group: str = "", text: str = "", title: str = "") -> Record:
        """Add a record under the collection's next number, and return it.

        `text` is the searchable text; a word of `title` counts three times.
        """
        ...

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
        """Store a record in the place of the one with that id; return it.

        `revision` names the state that the change is based on, 0 for a new record: raises `ToolFailure("conflict")` if
        it has changed since. None overwrites any state.
        """
        ...

    async def get(self, id: str) -> Record | None:
        """Return one record; None when it does not exist."""
        ...

    async def remove(self, id: str) -> bool:
        """Forget one; return whether there was one."""
        ...

    async def list(self, *, group: str | None = None, limit: int = 1000) -> list[Record]:
        """Return those of a group, or all; the one changed last comes first."""
        ...

    async def search(self, query: str, *, group: str | None = None, limit: int = 10) -> list[Record]:
        """Return records that share words with the query, best first. A word also matches words that it begins.

        With an embedder, records of the same meaning in other words match as well, and those that match in both ways
        come first. A score is then between 0 and 1, and comparable between groups.
        """
        ...

    async def meant(self, *, group: str | None = None) -> int | None:
        """Return how many are found by their meaning; None where all are found by words only.

        Those that were kept before the crib had its embedder are not: `put` them again.
        """
        ...


class Embedded(Struct, frozen=True, kw_only=True):
    """Meaning of texts, as vectors of length 1: the greater the product of two, the nearer are their texts."""

    model: str
    """Vectors of one model are comparable, also after a restart."""
    vectors: tuple[tuple[float, ...], ...]


class Nearest(Struct, frozen=True, kw_only=True):
    """Search by meaning among many texts."""

    found: Mapping[str, float] = field(default_factory=dict[str, float])
    """Keys of those that are near, best first, each with a nearness up to 1."""
    unread: int = 0
    """Texts that were skipped because they have no vector yet."""


class Page(Struct, frozen=True, kw_only=True):
    """Response of a web server, with any status."""

    status: int
    url: str
    """Final URL, after redirects."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case names."""
    body: bytes = b""
    """Decompressed."""

    @property
    def media_type(self) -> str:
        """The content type in lower case, without parameters; empty when the response has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Web(Protocol):
    """Requests to addresses that a model may have chosen: private ones are refused, every answer has its limits."""

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
        """Return the tools that the session may call, by name, with their descriptions."""
        ...

    def fields(self, entity: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the arguments of the tools that work on a kind of entity, by name; empty without any."""
        ...


class Schedule(Struct, frozen=True, kw_only=True):
    """A call that is made later, once or again and again. Times are seconds since 1970."""

    id: str
    principal: str
    title: str
    trigger_type: str
    """once, cron or interval."""
    trigger_config: Mapping[str, Any]
    """`run_at`, `cron` or `interval_seconds`."""
    zone: str
    """IANA name of the time zone whose wall time the trigger means."""
    action: Mapping[str, Any]
    """`{type: send_message, content}`, `{type: agent_task, prompt}` or `{type: call, tool, arguments}`."""
    status: str
    """active, paused, completed or cancelled."""
    next_run: float | None
    """None while it is paused, and once it does not fire any more."""
    next_run_at: str | None
    """`next_run` in ISO 8601, in its own zone."""
    runs: int = 0
    last_run_at: str | None = None
    """Time that it was due for last, in ISO 8601."""
    outcome: str = ""
    """Outcome of the last run: `ok`, an error code, or the state of an approval."""
    is_running: bool = False
    created: float = 0.0
    tainted: str = ""
    """The tool that had brought untrusted content into the session which wrote it unasked; empty for a clean one."""


class Schedules(Protocol):
    """The schedules of one principal. Stored over restarts, fired by the processes that serve or work.

    Raises `ToolFailure`: `invalid_arguments` for a trigger or action that cannot be taken, `not_found` for an unknown
    id, `conflict` for a schedule that has ended, `overloaded` beyond the limit, `storage`.
    """

    async def create(
        self, *, title: str, trigger_type: str, trigger_config: Mapping[str, Any], action: Mapping[str, Any]
    ) -> tuple[Schedule, bool]:
        """Return a new schedule and True, or the active one with equal trigger and action and False.

        It fires under the rules of the session that creates it.
        """
        ...

    async def list(self) -> list[Schedule]:
        """Return the active and paused schedules, the next one first."""
        ...

    async def update(
        self,
        id: str,
        *,
        title: str | None = None,
        trigger_type: str | None = None,
        trigger_config: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Change what is given; a schedule that is changed fires under the rules of the session that changes it."""
        ...

    async def cancel(self, id: str) -> Schedule:
        """Let it fire no more."""
        ...

    async def warning(self) -> str:
        """Return that no process fires schedules, and what starts one; empty while one does."""
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
    """Those that it is shown."""
    command: tuple[str, ...]
    """The MCP server to start inside the sandbox: it speaks on its standard input and output."""
    readable: tuple[Path, ...]
    """Paths that the sandbox must have for it (`Command.readable`)."""


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
