"""APIs by the descriptions that tools keep: see `core.services.apis.Apis`.

A description is a file (0600) in the kept folder of tools, one for each owner and name. What is called is opened as the
same source that the configuration would mount, and stays open for the next call: its tokens and connections with it.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, cast

import anyio
import anyio.to_thread
from msgspec import Struct, field

from ...core.context import Context
from ...core.json import as_mapping, canonical, dumps, loads
from ...core.result import ToolResult
from ...core.schema import Validator, ValidatorCache
from ...core.services.apis import ApiPlace, ApiRequest, Described, Endpoint
from ...core.tool import Tool
from ...errors import ToolFailure, UsageError
from ...net.guard import Guard
from ...net.urls import is_url
from ...sources.openapi.convert import Api, Picks, convert
from ...sources.openapi.description import Document, parse
from ...sources.openapi.endpoints import arguments_of, find, misfit, operation_details, with_headers
from ...sources.openapi.parameters import Sent
from ...sources.openapi.request import Operation
from ...sources.openapi.spec import ApiKey, ApiSettings, Auth, Basic, Bearer, ClientCredentials
from ...system.private_files import replace_private

_FOLDER: Final = "apis"
_OPEN: Final = 4
"""Open APIs beyond which idle ones are closed: a large description takes 100 MB while it is."""


class _Opened(Struct):
    """An open API, and who is using it."""

    source: Any
    """An `OpenApiSource`: its module brings the HTTP client, which most cribs never need."""
    document: Document
    """Document that the source was made from, and holds anyway."""
    tools: Mapping[str, Tool]
    users: int = 0
    validators: ValidatorCache = field(default_factory=ValidatorCache)

    @property
    def api(self) -> Api:
        """API that it describes."""
        return cast("Api", self.source.api)


class ApiDescriptions:
    """The `Apis` of one crib. What it opened is closed with it."""

    def __init__(self, folder: Callable[[bool], Path], private_hosts: tuple[str, ...]) -> None:
        """`folder` says where folders for tools may be made, kept ones or others.

        `private_hosts` may be reached although they are of this machine or network.
        """
        self._folder = folder
        self._private_hosts = private_hosts
        self._opened: OrderedDict[tuple[str, ...], _Opened] = OrderedDict()
        self._opening = anyio.Lock()

    async def fetch(self, url: str) -> bytes:
        """Return the description at a URL; 64 MiB at most."""
        from ...sources.openapi.description import fetch  # slow to load: few cribs fetch descriptions

        if not is_url(url):
            raise ToolFailure("invalid_arguments", f"{url!r} is not a web address")
        try:
            return await fetch(url, Guard.for_tools(self._private_hosts))
        except UsageError as error:
            raise ToolFailure("tool_error", str(error)) from error

    async def put(
        self,
        owner: str,
        name: str,
        description: bytes | Mapping[str, Any],
        check: Callable[[Described], None] | None = None,
    ) -> Described:
        """Keep a description that `check` does not refuse, in the place of an earlier one; return what it says."""
        return await anyio.to_thread.run_sync(self._put, self._file(owner, name), description, name, check)

    async def remove(self, owner: str, name: str) -> bool:
        """Forget a description; return whether there was one."""
        file = self._file(owner, name)
        try:
            await anyio.to_thread.run_sync(file.unlink)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unkept(error) from error
        return True

    async def described(self, place: ApiPlace) -> Described:
        """Return the content of a description under these credentials."""
        async with self._use(place) as opened:
            return _described(opened.api, opened.tools)

    async def schema(self, place: ApiPlace, method: str, path: str) -> Mapping[str, Any]:
        """Return parameters, body and answers of one endpoint."""
        async with self._use(place) as opened:
            name, _ = find(opened.api, method, path)
            operation, tool = opened.api.operations[name], opened.tools[name]
            return await anyio.to_thread.run_sync(
                operation_details, operation, tool, opened.document, abandon_on_cancel=True
            )

    async def preview(self, place: ApiPlace, request: ApiRequest) -> str:
        """Return the curl line that a call would be."""
        async with self._use(place) as opened:
            operation, arguments = _made(opened, request)
            return str(opened.source.line(operation, arguments))

    async def call(self, place: ApiPlace, request: ApiRequest, seconds: float) -> ToolResult:
        """Check the request, send it, and return the answer."""
        async with self._use(place) as opened:
            operation, arguments = _made(opened, request)
            context = Context(call_id="", session_key="", principal=place.owner, deadline=time.monotonic() + seconds)
            result: ToolResult = await opened.source.perform(operation, arguments, context)
            return result

    async def aclose(self) -> None:
        """Close what is open."""
        while self._opened:
            _, opened = self._opened.popitem()
            await opened.source.close()

    @asynccontextmanager
    async def _use(self, place: ApiPlace) -> AsyncGenerator[_Opened]:
        """Open an API unless it is open, and keep it so while it is used."""
        opened = await self._open(place)
        opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            await self._tidy()

    async def _open(self, place: ApiPlace) -> _Opened:
        file = self._file(place.owner, place.name)
        async with self._opening:
            key = (file.stem, await anyio.to_thread.run_sync(_stamp, file, place.name), _key(place))
            if key not in self._opened:
                self._opened[key] = await self._start(file, place)
            self._opened.move_to_end(key)
            return self._opened[key]

    async def _start(self, file: Path, place: ApiPlace) -> _Opened:
        document = await anyio.to_thread.run_sync(self._read, file, place.name)
        from ...sources.openapi.source import OpenApiSource  # as above

        auth = tuple(map(_auth, place.auth))
        settings = ApiSettings(base_url=place.base_url, auth=auth, private_hosts=self._private_hosts)
        listed: list[Any] = []
        source = OpenApiSource(file.stem, document.root, settings=settings, cache_dir=self._scratch)
        try:
            await source.open(listed.append)
            await source.ready()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await source.close()
            raise
        if source.state.state != "ready":
            await source.close()
            raise ToolFailure("invalid_arguments", f"{place.name} cannot be used: {source.state.detail}")
        return _Opened(source=source, document=document, tools={tool.local_name: tool for tool in listed[-1].tools})

    async def _tidy(self) -> None:
        """Close those that were used longest ago, beyond what may stay open."""
        while len(self._opened) > _OPEN:
            idle = next((key for key, opened in self._opened.items() if not opened.users), None)
            if idle is None:
                return
            await self._opened.pop(idle).source.close()

    @cached_property
    def _scratch(self) -> Path:
        return self._folder(False) / _FOLDER

    def _file(self, owner: str, name: str) -> Path:
        """Return the path of a description: unique for each owner and name, whichever characters they have."""
        return self._folder(True) / _FOLDER / f"{hashlib.sha256(canonical([owner, name])).hexdigest()[:40]}.json"

    @staticmethod
    def _put(
        file: Path, description: bytes | Mapping[str, Any], name: str, check: Callable[[Described], None] | None
    ) -> Described:
        try:
            document = parse(description, name)
        except UsageError as error:
            raise ToolFailure("invalid_arguments", str(error)) from error
        api = convert(document, Picks(), Sent(), name)
        made = _described(api, {tool.local_name: tool for tool in api.tools})
        if check is not None:
            check(made)
        try:
            replace_private(file, dumps(document.root))
        except OSError as error:
            raise _unkept(error) from error
        return made

    @staticmethod
    def _read(file: Path, name: str) -> Document:
        try:
            return parse(as_mapping(loads(file.read_bytes())), name)
        except (OSError, ValueError, UsageError) as error:
            raise _gone(name) from error


def _made(opened: _Opened, request: ApiRequest) -> tuple[Operation, Mapping[str, Any]]:
    """Return the operation and the checked arguments of a request."""
    name, values = find(opened.api, request.method, request.path)
    operation, tool = opened.api.operations[name], opened.tools[name]
    validator: Validator = opened.validators.of(tool)
    arguments, errors = validator.accept(arguments_of(operation, tool, values, request))
    if errors:
        raise misfit(operation, errors)
    sent, more = with_headers(operation, request.headers)
    return sent, {**arguments, **more}


def _described(api: Api, tools: Mapping[str, Tool]) -> Described:
    return Described(
        title=api.title,
        description=api.description,
        servers=api.servers,
        schemes=api.schemes,
        endpoints=tuple(
            Endpoint(
                name=name,
                method=operation.method,
                path=operation.path,
                title=tools[name].title,
                description=tools[name].description,
                tags=tools[name].tags,
            )
            for name, operation in api.operations.items()
        ),
        problems=tuple(f"{problem.tool}: {problem.message}".removeprefix(": ") for problem in api.problems),
    )


def _auth(given: Mapping[str, Any]) -> Auth:
    """Return credentials out of what a tool says; it has checked them."""
    match given["type"]:
        case "bearer":
            return Bearer(token=given["token"])
        case "basic":
            return Basic(username=given["username"], password=given["password"])
        case "api_key":
            place: Literal["header", "query", "cookie", ""] = given.get("in", "")
            return ApiKey(value=given["value"], name=given.get("name", ""), place=place)
        case _:
            return ClientCredentials(
                client_id=given["client_id"],
                client_secret=given["client_secret"],
                token_url=given.get("token_url", ""),
                scopes=tuple(given.get("scopes", ())),
                client_auth="body" if given.get("in_body") else "header",
            )


def _key(place: ApiPlace) -> str:
    """Name what decides how an API is reached, secrets through the hash only."""
    auth: Sequence[Mapping[str, Any]] = list(place.auth)
    return hashlib.sha256(canonical([place.base_url, auth])).hexdigest()


def _stamp(file: Path, name: str) -> str:
    try:
        seen = file.stat()
    except OSError as error:
        raise _gone(name) from error
    return f"{seen.st_mtime_ns}.{seen.st_size}.{seen.st_ino}"


def _gone(name: str) -> ToolFailure:
    return ToolFailure("not_found", f"the description of {name} is not here any more", hint="discover it again")


def _unkept(error: OSError) -> ToolFailure:
    return ToolFailure("storage", f"the description cannot be kept: {error.strerror or error}")
