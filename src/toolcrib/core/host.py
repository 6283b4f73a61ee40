"""Services of a crib for the tools that run in it: records, guarded web requests, API descriptions, a folder.

A tool reaches it by `Context.host`; a `Host` lives as long as its crib and belongs to its event loop.

HTTP APIs among them: stored descriptions, and calls made by them.

A description is OpenAPI 3, or Swagger 2. It is kept under the name that its owner gives it, over restarts; what a call
needs beside it (address, credentials) comes with every call and is kept by the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from .result import ToolResult
from .sandbox import Sandbox

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
    "Record",
    "Records",
    "Setting",
    "Web",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a description says of its API."""

    title: str = ""
    description: str = ""
    servers: tuple[str, ...] = ()
    """Where it is served, as it is written there; may be relative."""
    schemes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The security schemes of the description, by name."""
    endpoints: tuple[Endpoint, ...] = ()
    """In the order of the description."""
    problems: tuple[str, ...] = ()
    """What of it cannot be used, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPlace:
    """An API that was described, and how it is reached."""

    owner: str
    name: str
    base_url: str
    auth: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """Credentials in the words of `sources.openapi`: `{type: bearer, token: …}`, `basic`, `api_key`, `oauth2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What is to be sent to an endpoint, by the names that its description gives the parameters."""

    method: str
    path: str
    """As the description has it, or filled in, or the endpoint's name."""
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the query; values for places in the path too."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


class Apis(Protocol):
    """APIs by their descriptions.

    Raises `ToolFailure`: `not_found` for a description or endpoint that is not there, `invalid_arguments` for what does
    not fit it, `denied`, `unavailable`, `timeout` and `too_large` as the web does, `storage` while nothing can be kept.
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
        """Keep a description, in the place of an earlier one; return what it says.

        What `check` raises is raised, and everything is as it was; it is called in a thread.
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


SESSIONS: Final = "sessions"
"""The collection in which a principal's sessions are described: `{"description": …}` under the key of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One thing that is remembered: plain JSON under an id."""

    id: str
    value: Mapping[str, Any]
    group: str = ""
    """What it is listed by: a project, a state, a kind; one a record."""
    revision: int = 1
    """Grows by one with each change."""
    created: float
    """Seconds since 1970."""
    updated: float
    score: float = 0.0
    """How well it fits, in what a search found; greater is better, and only the order means something."""


class Records(Protocol):
    """The records of one collection of one owner. Kept over restarts, shared by all processes of one store.

    Every method raises `ToolFailure("storage")` while the store cannot be used. Secrets are masked before anything
    is kept, in ids and groups too. There is room for 100,000 records in a collection, for 1 MiB of JSON and of text in
    a record, and for 2,000 bytes in an id and a group: what is larger raises `ToolFailure("too_large")`, what JSON
    cannot hold `invalid_arguments`.
    """

    async def add(self, value: Mapping[str, Any], *, group: str = "", text: str = "", title: str = "") -> Record:
        """Keep a new one under the collection's next number, and return it.

        `text` is what a search goes by; a word of `title` counts three times.
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
        """Return those whose text shares words with the query, best first. A word also finds what it begins.

        Where the crib has an embedder, those that mean the same in other words are found as well, and what both words
        and meaning speak for comes first. A score is between 0 and 1 then, and comparable between groups.
        """
        ...

    async def meant(self, *, group: str | None = None) -> int | None:
        """Return how many are found by their meaning; None where all are found by words only.

        Those that were kept before the crib had its embedder are not: `put` them again.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What texts mean, as vectors of length 1: the greater the product of two, the nearer are their texts."""

    model: str
    """Vectors of one model are comparable, also after a restart."""
    vectors: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """Search by meaning among many texts."""

    found: Mapping[str, float] = field(default_factory=dict[str, float])
    """Keys of those that are near, best first, each with a nearness up to 1."""
    unread: int = 0
    """Texts that were skipped because they have no vector yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Response of a web server, with any status."""

    status: int
    url: str
    """Where it came from in the end, after redirects."""
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
        """Return the answer, after redirects, or the redirect itself where they are not to be followed.

        Raises `ToolFailure`: `denied` for an address that may not be reached, `unavailable`, `timeout`, `too_large`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of the configuration."""

    key: str
    """Dotted."""
    value: Any
    fixed: str = ""
    """Why no tool changes it; empty where one may."""
    before: Any = None
    """What holds until the next start, of a setting that was changed."""
    file: str = ""
    """Where it was changed."""


class Configuration(Protocol):
    """What the crib was configured with, without secrets. What is changed holds from the next start on."""

    def all(self) -> Mapping[str, Any]:
        """Return every key that may be shown, with its value."""
        ...

    def get(self, key: str) -> Setting:
        """Return one setting. Raises `ToolFailure`: `not_found` for an unknown key, `denied` for a secret one."""
        ...

    async def update(self, key: str, value: str | float | bool) -> Setting:
        """Write a setting into the user's file, comments kept; return it as it will be.

        Raises `ToolFailure`: `denied` for what only the user changes, `invalid_arguments` for a value that it cannot
        have, `tool_error` where the file cannot be changed, `unavailable` without such a file.
        """
        ...

    async def switch(self, backend: str) -> Setting:
        """Choose another of the listed models. Raises `ToolFailure`: `not_found`, and those of `update`."""
        ...


class Insight(Protocol):
    """What a crib tells one session of itself, as JSON. Nothing of other principals is in it."""

    async def status(self) -> Mapping[str, Any]:
        """Return version, sources, number of tools, problems, and how the session is set up."""
        ...

    async def usage(self) -> Mapping[str, Any]:
        """Return calls and estimated tokens, of the session by tool, and what its budgets leave."""
        ...

    async def events(self, *, limit: int, tool: str = "", outcome: str = "") -> list[Mapping[str, Any]]:
        """Return the newest calls of the principal; `tool` may hold `*`, the outcome `error` is every failure."""
        ...

    def fields(self, entity: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the arguments of the tools that work on a kind of thing, by name; empty where there are none."""
        ...


class Host(Protocol):
    """What a crib lends."""

    def configuration(self, owner: str) -> Configuration:
        """Return the configuration. Raises `ToolFailure("denied")` unless `owner` is who runs the crib."""
        ...

    def insight(self, owner: str, session: str) -> Insight:
        """Return what the crib tells a session of itself."""
        ...

    def records(self, owner: str, collection: str) -> Records:
        """Return the records of a collection; `owner` is a principal."""
        ...

    @property
    def web(self) -> Web:
        """Guarded requests."""
        ...

    @property
    def apis(self) -> Apis:
        """HTTP APIs by their descriptions."""
        ...

    @property
    def sandbox(self) -> Sandbox | None:
        """Where commands run; None where they may not."""
        ...

    async def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin work that outlives the call; it is cancelled when the crib closes."""
        ...

    def folder(self, name: str, *, kept: bool = False) -> Path:
        """Return a folder (0700) for what can be made anew, such as an index; made when missing.

        `kept` gives a folder that is never cleared: beside the records, for data too large for them.
        """
        ...

    def setting(self, name: str) -> Any:
        """Return what the configuration says under `tools: {NAME: …}`; None where it says nothing."""
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
        """Whether the crib has an embedder. Tells without opening it."""
        ...

    async def nearest(self, query: str, texts: Mapping[str, str], limit: int) -> Nearest:
        """Return which texts mean what a query asks for; nothing where the crib has no embedder.

        Texts that were never seen before are read for some seconds; with what is left then the crib goes on beside
        other work, so that a later call finds it.
        """
        ...
