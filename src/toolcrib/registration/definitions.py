"""Definitions of registered tools: read, checked, and made into tools with their runners; and the source of them.

A definition is an entry of a YAML catalog as JSON, so it is read by the reader of catalogs; an `api` is read as the
endpoint of its base address. What that reader only warns of is an error here: the one who registers can correct it.
A variable (`${NAME}`) is refused: it would read the environment of this process for a client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ..core.context import Context
from ..core.documents.tree import MAX_DEPTH, Member, Node
from ..core.events import SourceState
from ..core.json import canonical, dumps, read_json
from ..core.patterns import regex
from ..core.result import ToolResult
from ..core.schema import Validator, compile_schema
from ..core.similar import did_you_mean
from ..core.tool import Annotations, Tool
from ..errors import ConfigError, ToolFailure, UsageError
from ..net.urls import climbs, unquoted
from ..results.redaction.redactor import Redactor
from ..sources.source import Listing, Publish
from ..sources.yaml.entry import KEYS, EntryContext, ToolEntry, check_output, read_entry
from ..sources.yaml.fields import Template
from ..sources.yaml.implementation import METHODS, Command, Endpoint
from ..sources.yaml.run_endpoint import EndpointRunner
from ..system.child_processes import shared_reaper

if TYPE_CHECKING:
    from ..net.client import WebClient


PRIORITY: Final = 80
"""Of an instance's own tools (seed 004)."""

_OVER_REST: Final = (
    "name title description category capabilities aliases input_schema output_schema kind annotations examples policy"
    " timeout version implementation api".split()
)
"""Keys that a definition may have that comes over the network. The others say who is asked, what is trusted and what is
always shown: that is the operator's to say."""

_MAX_BYTES: Final = 64 << 10
_FILE: Final = "definition"
_NAME: Final = regex(r"[A-Za-z0-9_-]{1,64}")
_NOT_YOURS: Final = frozenset(
    "connection content-length expect host keep-alive proxy-authorization proxy-connection te trailer"
    " transfer-encoding upgrade".split()
)
"""Headers that belong to the connection: they could make a proxy read another request than the one that was checked."""
_PUBLIC: Final = frozenset("accept accept-language content-type user-agent".split())
_SHORTEST_SECRET: Final = 8
"""Characters of a header's value that is masked; a shorter one stands in every other sentence."""

Run = Callable[[Tool, Mapping[str, Any], Context], Awaitable[ToolResult]]
"""Runs a tool with valid arguments. Raises `ToolFailure`."""


class Wrong(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a definition."""

    path: str
    """Where: keys joined by dots; empty for the whole."""
    message: str


class BadDefinition(UsageError):
    """A definition that cannot be registered. `errors` says what is wrong, each with its place."""

    def __init__(self, errors: Sequence[Wrong]) -> None:
        super().__init__("; ".join(": ".join(filter(None, (wrong.path, wrong.message))) for wrong in errors))
        self.errors = tuple(errors)


class Definition(Struct, frozen=True, kw_only=True):
    """A definition that was read. As old as its registration."""

    given: Mapping[str, Any]
    """As it came: it may hold credentials."""
    tool: Tool
    how: Endpoint | Command
    api: bool
    """Whether `how` is the base of an API and not one request."""
    methods: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 of the whole definition in hexadecimal: identifies the reviewed definition."""
        return hashlib.sha256(canonical(self.given)).hexdigest()

    @property
    def url(self) -> str:
        """Its URL, with `x` for every argument; empty for a command."""
        if isinstance(self.how, Command):
            return ""
        return "".join("x" if place % 2 else piece for place, piece in enumerate(self.how.url.pieces))

    @property
    def target(self) -> str:
        """Target for people: without a query or headers, which may hold credentials."""
        if isinstance(self.how, Command):
            return f"command {self.how.argv[0][0].pieces[0]}"
        pieces = self.how.url.pieces
        written = "".join(f"{{{piece}}}" if place % 2 else piece for place, piece in enumerate(pieces))
        return f"{'|'.join(self.methods) or self.how.method} {written.partition('?')[0].partition('#')[0]}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values of headers and of the URL's own query, to mask wherever they turn up."""
        if isinstance(self.how, Command):
            return ()
        headers = (template for name, template in self.how.headers.items() if name not in _PUBLIC)
        written = [piece.strip() for template in headers for piece in template.pieces[::2]]
        written += [value for query in self.how.query.values() for value in query.pieces[::2]]
        query = urlsplit(self.url).query
        written += [part.partition("=")[2] for part in query.split("&")]
        found = {part for text in written for part in (text, text.rpartition(" ")[2])}
        return tuple(sorted(part for part in found if len(part) >= _SHORTEST_SECRET))


def read_definition(source: str, given: Mapping[str, Any], *, over_rest: bool, commands: bool) -> Definition:
    """Return the definition in `given`. Raises `BadDefinition`.

    `over_rest` restricts it to what an untrusted client may define; `commands` lets it run a program.
    """
    plain = _plain(given)
    if wrong := list(_unknown(plain, _OVER_REST if over_rest else (*KEYS, "api"))):
        raise BadDefinition(wrong)
    is_api = plain.get("api") is not None
    methods = _api_methods(plain) if is_api else ()
    entry = _entry(source, _as_entry(plain, methods) if is_api else plain, is_api=is_api)
    if wrong := list(_refused(entry, over_rest=over_rest, commands=commands)):
        at = [replace(one, path=_place(one.path, is_api=is_api)) for one in wrong]
        raise BadDefinition(at)
    capability = replace(entry.tool.capability, priority=PRIORITY)
    tool = replace(entry.tool, origin="rest", capability=capability)
    if is_api and "kind" not in plain and "annotations" not in plain and set(methods) <= {"GET", "HEAD"}:
        tool = replace(tool, annotations=Annotations(read_only=True, destructive=False, idempotent=True))
    how = cast("Endpoint | Command", entry.implementation)
    return Definition(given=plain, tool=tool, how=how, api=is_api, methods=methods)


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that is plain JSON, not too large and not too deep."""
    try:
        text = dumps(given)
        plain: Any = read_json(text, limit=len(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadDefinition([Wrong(path="", message=f"this is not JSON: {error}")]) from None
    if not isinstance(plain, dict):
        raise BadDefinition([Wrong(path="", message="an object was expected")])
    if len(text) > _MAX_BYTES:
        raise BadDefinition([Wrong(path="", message=f"has {len(text)} bytes; at most {_MAX_BYTES} are taken")])
    return cast("dict[str, Any]", plain)


def _unknown(plain: Mapping[str, Any], known: Sequence[str]) -> Iterator[Wrong]:
    for key in plain:
        if key in known:
            continue
        if key in KEYS:
            message = "only the operator's own catalogs may say this, and the library"
        else:
            message = f"unknown key{did_you_mean(key[:100], known)}"
        yield Wrong(path=key[:100], message=message)


def _entry(source: str, plain: Mapping[str, Any], *, is_api: bool) -> ToolEntry:
    label = str(plain.get("name") or "[0]")
    try:
        entry = read_entry(_node(plain), 0, EntryContext(source=source, file=_FILE, expand=_literal))
    except ConfigError as error:
        wrong: list[Wrong] = []
        for one in error.each:
            path = one.key.removeprefix(label).removeprefix(".")
            message = str(one).removeprefix(f"{one.file}: ").removeprefix(f"{one.key}: ")
            wrong.append(Wrong(path=_place(path, is_api=is_api), message=message))
        raise BadDefinition(wrong) from None
    if entry is None:
        raise BadDefinition([Wrong(path="enabled", message="what is switched off is not registered")])
    if entry.warnings:
        warnings = [text.removeprefix(f"{_FILE}:1: ").removeprefix(f"{label}.") for text in entry.warnings]
        places = [text.partition(": ") for text in warnings]
        raise BadDefinition([Wrong(path=_place(path, is_api=is_api), message=text) for path, _, text in places])
    return entry


def _refused(entry: ToolEntry, *, over_rest: bool, commands: bool) -> Iterator[Wrong]:
    """Yield what an entry of a catalog may say and a registration may not."""
    how = entry.implementation
    for path, name in (("name", entry.tool.name), *(("aliases", alias) for alias in entry.tool.aliases)):
        if not _NAME.fullmatch(name):
            yield Wrong(path=path, message=f"{name[:80]!r}: 1 to 64 letters, digits, `_` and `-` were expected")
    if isinstance(how, Endpoint):
        yield from _refused_of_endpoint(how, over_rest=over_rest)
    elif not isinstance(how, Command) or how.script:
        message = "only an HTTP endpoint can be registered; code, scripts and servers come from the operator's files"
        yield Wrong(path="implementation", message=message)
    elif not commands:
        message = "commands are run for the operator's own catalogs only, unless `registration.commands` allows it"
        yield Wrong(path="implementation.command", message=message)
    elif over_rest and (how.env or how.cwd):
        yield Wrong(path="implementation", message="`env` and `cwd` are the operator's to say")


def _refused_of_endpoint(how: Endpoint, *, over_rest: bool) -> Iterator[Wrong]:
    place = "implementation.endpoint"
    if over_rest and how.allow_private:
        message = "only the operator lets tools reach private addresses: `registration.private_hosts`"
        yield Wrong(path=f"{place}.allow_private", message=message)
    for name in how.headers:
        if name in _NOT_YOURS:
            yield Wrong(path=f"{place}.headers.{name}", message="belongs to the connection")
    if urlsplit(how.url.pieces[0]).username is not None:
        yield Wrong(path=f"{place}.url", message="a URL with a user or password in it is not sent; use a header")


def _as_entry(plain: Mapping[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Return the entry that stands for an API."""
    api = cast("dict[str, Any]", plain["api"])
    base = {key: value for key, value in api.items() if key != "methods"}
    rest = {key: value for key, value in plain.items() if key != "api"}
    about = {"type": "string", "minLength": 1, "description": "The path below the API's URL, with its query."}
    properties: dict[str, Any] = {"endpoint": about, "method": {"enum": [*methods], "default": methods[0]}}
    if set(methods) - {"GET", "HEAD"}:
        properties["body"] = {"description": "Sent as JSON."}
    schema = {"type": "object", "properties": properties, "required": ["endpoint"], "additionalProperties": False}
    name = plain.get("name")
    return {
        **rest,
        "name": f"api_{name}" if isinstance(name, str) and name else name,
        "input_schema": schema,
        "implementation": {"endpoint": base},
    }


def _api_methods(plain: Mapping[str, Any]) -> tuple[str, ...]:
    api: Any = plain["api"]
    wrong = [
        Wrong(path=key, message="an API has its own") for key in ("implementation", "input_schema") if key in plain
    ]
    if not isinstance(api, dict):
        wrong.append(Wrong(path="api", message="a mapping with `url` was expected"))
    else:
        config = cast("dict[str, Any]", api)
        wrong += [
            Wrong(path=f"api.{key[:100]}", message="unknown key; an API has url, headers, methods, allow_private")
            for key in config
            if key not in ("url", "headers", "methods", "allow_private")
        ]
        if "{" in str(config.get("url")):
            wrong.append(Wrong(path="api.url", message="the base of an API is fixed: no argument may stand in it"))
        if "?" in str(config.get("url")) or "#" in str(config.get("url")):
            wrong.append(Wrong(path="api.url", message="the base of an API has no query and no fragment"))
    if wrong:
        raise BadDefinition(wrong)
    methods: Any = cast("dict[str, Any]", api).get("methods", [*METHODS])
    if not isinstance(methods, list) or not methods or any(one not in METHODS for one in cast("list[Any]", methods)):
        raise BadDefinition([Wrong(path="api.methods", message=f"a list of {', '.join(METHODS)} was expected")])
    return tuple(dict.fromkeys(cast("list[str]", methods)))


def _place(path: str, *, is_api: bool) -> str:
    """Return the place in what was given of a place in the entry that it was made into."""
    return path.replace("implementation.endpoint", "api", 1) if is_api else path


def _literal(text: str, is_secret: bool) -> str:
    if "${" in text:
        raise ConfigError("variables (${NAME}) are for the operator's own files")
    return text


def _node(value: Any, depth: int = 0) -> Node:
    """Return JSON as a document of one line."""
    if depth > MAX_DEPTH:
        raise BadDefinition([Wrong(path="", message=f"is nested deeper than {MAX_DEPTH} levels")])
    kind: Literal["mapping", "sequence", "scalar"] = "scalar"
    members: tuple[Member, ...] = ()
    items: tuple[Node, ...] = ()
    if isinstance(value, dict):
        kind = "mapping"
        inner = cast("dict[str, Any]", value).items()
        members = tuple(Member(key=key, start=0, line=1, column=0, node=_node(one, depth + 1)) for key, one in inner)
    elif isinstance(value, list):
        kind = "sequence"
        items = tuple(_node(one, depth + 1) for one in cast("list[Any]", value))
    text = "" if kind != "scalar" else value if isinstance(value, str) else dumps(value).decode()
    scalar: Any = cast("Any", value) if kind == "scalar" else None
    return Node(kind=kind, start=0, end=0, line=1, value=scalar, text=text, members=members, items=items)


class ApiRunner:
    """Any request below the URL of one API."""

    def __init__(self, base: Endpoint, client: WebClient) -> None:
        """The caller closes `client`."""
        self._base = base
        self._client = client

    async def __call__(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Send it. Raises `ToolFailure`, also for a path that leads out of the API."""
        return await self._endpoint(arguments)(tool, arguments, context)

    async def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise the `ToolFailure` of a request whose address may not be reached, or that cannot be made."""
        await self._endpoint(arguments).check(arguments)

    def _endpoint(self, arguments: Mapping[str, Any]) -> EndpointRunner:
        url = f"{self._base.url.pieces[0].rstrip('/')}/{_below(arguments['endpoint'])}"
        has_body = arguments.get("body") is not None
        request = replace(
            self._base,
            method=arguments.get("method") or self._base.method,
            url=Template(pieces=(url,)),
            body="template" if has_body else "none",
            content=Template(pieces=("", "body", "")) if has_body else None,
        )
        return EndpointRunner(request, self._client)


def _below(path: str) -> str:
    """Return `path` to stand behind a base; raises `ToolFailure` for what would leave it (security.md T21)."""
    folders, question, query = path.removeprefix("/").partition("?")
    steps = folders.split("/")
    leaves = any(_leaves(step) for step in steps) or "" in steps[:-1]
    if leaves or "#" in path or any(character <= " " for character in path):
        raise ToolFailure(
            "invalid_arguments",
            f"{path[:200]!r} is not a path below the API",
            hint="give it as `orders/17?full=true`: no scheme or host, no `..`, spaces as %20",
        )
    return f"{folders}{question}{query}"


def _leaves(step: str) -> bool:
    """Whether some server takes a step of a path for another one, or for two."""
    return climbs(step) or not {"/", "\\"}.isdisjoint(unquoted(step))


class Closable(Protocol):
    """An object that holds connections."""

    async def aclose(self) -> None:
        """Close them."""
        ...


class Registered(Struct, frozen=True, kw_only=True):
    """One tool with what runs it."""

    tool: Tool
    run: Run
    hash: str = ""
    """Of the whole definition (`Definition.hash`)."""
    secrets: tuple[str, ...] = ()
    """Secret values that it sends; masked in every answer."""
    closing: Closable | None = None
    """Object to close with the source: a removed tool may still have running calls."""


class _Entry:
    __slots__ = ("output", "redactor", "registered")

    def __init__(self, registered: Registered) -> None:
        promised = registered.tool.output_schema
        self.registered = registered
        self.output: Validator | None = None if promised is None else compile_schema(promised)
        self.redactor = Redactor(registered.secrets) if registered.secrets else None


class RestSource:
    """The registered tools of one instance. Opened with the first, closed with the last or with the crib."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._publish: Publish | None = None
        self._entries: dict[str, _Entry] = {}
        self._closing: list[Closable] = []

    @property
    def name(self) -> str:
        """Name in rules and records."""
        return self._name

    @property
    def state(self) -> SourceState:
        """`ready` while it is open: nothing is connected before a call."""
        state: Literal["ready", "closed"] = "closed" if self._publish is None else "ready"
        return SourceState(source=self._name, kind="rest", state=state, tools=len(self._entries))

    async def open(self, publish: Publish) -> None:
        """Publish the listing, now and at every change."""
        self._publish = publish
        shared_reaper().hold()
        self._tell()

    async def ready(self) -> None:
        """Return at once."""

    def put(self, registered: Registered) -> None:
        """Offer a tool, in the place of an earlier one of its name. Raises `ValueError` for a broken output schema."""
        self._entries[registered.tool.local_name] = _Entry(registered)
        if registered.closing is not None:
            self._closing.append(registered.closing)
        self._tell()

    def remove(self, name: str) -> None:
        """Offer a tool no longer; calls that are in it end by themselves."""
        self._entries.pop(name, None)
        self._tell()

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Return the request of a call, its secrets masked; None if its runner cannot describe it.

        Raises `ToolFailure` for arguments without a valid request.
        """
        entry = self._entries.get(tool.local_name)
        describe = getattr(entry.registered.run, "describe", None) if entry is not None else None
        if entry is None or describe is None:
            return None
        request = str(describe(tool, arguments))
        return request if entry.redactor is None else entry.redactor.text(request)

    def implementation_of(self, tool: Tool) -> str:
        """Return the hash of the registered definition, which has the address; empty for a tool that is gone."""
        entry = self._entries.get(tool.local_name)
        return "" if entry is None else entry.registered.hash

    async def check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the `ToolFailure` of a request whose address may not be reached, or that cannot be made."""
        entry = self._entries.get(tool.local_name)
        if entry is not None and isinstance(entry.registered.run, ApiRunner | EndpointRunner):
            await entry.registered.run.check(arguments)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run the tool; raises `ToolFailure`. Its secrets are masked in the answer."""
        entry = self._entries.get(tool.local_name)
        if entry is None or self._publish is None:
            raise ToolFailure("not_found", f"{tool.name} is not there any more")
        try:
            result = check_output(tool, await entry.registered.run(tool, arguments, context), entry.output)
        except ToolFailure as failure:
            if entry.redactor is None:
                raise
            return entry.redactor.result(ToolResult.of_failure(failure))
        return result if entry.redactor is None else await entry.redactor.clean(result)

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        if self._publish is None:
            return
        self._publish = None
        while self._closing:
            await self._closing.pop().aclose()
        shared_reaper().release()

    def _tell(self) -> None:
        if self._publish is not None:
            self._publish(Listing(tools=tuple(entry.registered.tool for entry in self._entries.values())))
