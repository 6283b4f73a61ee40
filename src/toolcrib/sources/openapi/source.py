"""An HTTP API as a source: its operations are tools, a call is one request.

The description is read in the background: a file again at every change, a URL when the source is opened and, at growing
intervals, until it has answered once; the cached conversion serves until then. A call is never repeated, except for a
read whose kept connection had died and for a read whose access token was refused.

    connecting ──> cached ──> ready <──> stale      stale: it cannot be read now, an earlier conversion serves
        └────────> failed ──> ready                 failed: it cannot be read, and there is no earlier one

Conversion, digests and the cache run in threads: a large description takes seconds.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from ...core.context import Context
from ...core.events import Problem, SourceState
from ...core.json import as_mapping, canonical
from ...core.result import ToolResult
from ...core.services.host import Page
from ...core.tool import Annotations, Tool
from ...errors import ToolcribError, ToolFailure, UsageError
from ...net.client import NetLimits, WebClient, WebRequest, curl
from ...net.guard import Guard, NetFailure
from ...net.urls import is_url
from ...system.file_watch import POLL_SECONDS, stamps, watch
from ...system.tasks import Background
from ...telemetry.otel import trace_headers
from ..source import Listing, Publish
from .auth import Credentials, completed, sent_by
from .convert import Api, ApiCache, Picks, convert
from .description import base_url_of, digest_of, fetch, parse, placed, shown
from .request import Draft, Operation, draft
from .response import result_of
from .spec import ApiKey, ApiSettings, ClientCredentials, OpenApiSpec

_logger = logging.getLogger(__name__)

_READS: Final = ("GET", "HEAD", "OPTIONS")
_LONGEST_PAUSE: Final = 300.0
"""Seconds between two requests for a description that cannot be had."""
_CALL: Final = NetLimits(seconds=3600.0, idle_seconds=3600.0)
"""The pipeline limits the time of a call; the size of the answer is limited here."""


class _Open(Struct, frozen=True, kw_only=True):
    """Services of calls, once the description is known."""

    api: Api
    base_url: str
    settings: ApiSettings
    client: WebClient
    credentials: Credentials


class OpenApiSource:
    """One API. `description` is a path, an http(s) URL, or the data itself."""

    def __init__(
        self,
        name: str,
        description: str | Path | Mapping[str, Any],
        *,
        settings: ApiSettings | None = None,
        cache_dir: Path | None = None,
        every: float = POLL_SECONDS,
        app: Any = None,
    ) -> None:
        """`cache_dir` stores the conversion; None converts each time. `app` answers in place of the network.

        `every` is the interval in seconds between two checks of a file, and before the second request of a URL. Raises
        `UsageError` for an invalid host.
        """
        self._name = name
        self._settings = settings or ApiSettings()
        self._given = description if isinstance(description, Mapping) else placed(description)
        self._cache = ApiCache(cache_dir, self._key(), name)
        self._background = Background()
        self._ready = anyio.Event()
        self._publish: Publish | None = None
        self._open: _Open | None = None
        self._state: Literal["cached", "connecting", "ready", "stale", "failed", "closed"] = "connecting"
        self._detail = ""
        self._own_reason = ""
        """Reason for a missing listing, without text of the description."""
        self._digest = ""
        self._every = every
        self._app = app

    @classmethod
    def of(cls, spec: OpenApiSpec, *, cache_dir: Path | None = None) -> OpenApiSource:
        """Return the source that `spec` configures."""
        return cls(spec.name, spec.spec, settings=spec.settings, cache_dir=cache_dir)

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def state(self) -> SourceState:
        """Present state; with `cached` and `stale` the listing is from disk, of the last readable description."""
        tools = len(self._open.api.tools) if self._open else 0
        outage = f"{self._name} is down: {self._own_reason}" if self._state == "failed" else ""
        hint = "`toolcrib doctor` examines it." if outage else ""
        return SourceState(
            source=self._name,
            kind="openapi",
            state=self._state,
            tools=tools,
            detail=self._detail,
            outage=outage,
            hint=hint,
        )

    async def open(self, publish: Publish) -> None:
        """Begin to read the description; the listing is published when it is known."""
        self._publish = publish
        await self._background.start()
        if isinstance(self._given, str) and not is_url(self._given):
            look = partial(stamps, (Path(self._given),))
            self._background.spawn(partial(watch, look, self._load, every=self._every))
        elif isinstance(self._given, str):
            self._background.spawn(self._load_url)
        else:
            self._background.spawn(self._load)

    async def ready(self) -> None:
        """Return when the description was read, or could not be."""
        await self._ready.wait()

    def describe(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Return the curl line that a call would be, secrets masked; None when the tool is not there any more.

        Raises `ToolFailure` for arguments that no request can be made of.
        """
        if self._open is None or tool.local_name not in self._open.api.operations:
            return None
        return self.line(self._open.api.operations[tool.local_name], arguments)

    def implementation_of(self, tool: Tool) -> str:
        """Return a hash over the request of a tool and its address; empty when the tool is not there any more."""
        opened = self._open
        operation = None if opened is None else opened.api.operations.get(tool.local_name)
        if opened is None or operation is None:
            return ""
        return hashlib.sha256(canonical([opened.base_url, operation.to_json()])).hexdigest()

    async def check(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> None:
        """Raise the `ToolFailure` of an API at an address that may not be reached."""
        if self._open is not None:
            await self._open.client.check(self._open.base_url)

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Send one request and return what came back; raises `ToolFailure` for every status but success."""
        opened = self._open
        operation = opened.api.operations.get(tool.local_name) if opened else None
        if operation is None:
            raise ToolFailure("unavailable", f"{tool.name} is not there: {self._detail or 'the API is not open'}")
        if opened is not None and tool.execution.address not in ("", opened.base_url):
            message = f"{tool.name} was not sent: the description has just moved the API to another address"
            raise ToolFailure("definition_changed", message, hint="look at the tool again, then call it anew")
        return await self.perform(operation, arguments, context)

    @property
    def api(self) -> Api | None:
        """Converted description; None until it is known."""
        return self._open.api if self._open else None

    def line(self, operation: Operation, arguments: Mapping[str, Any]) -> str:
        """Return the curl line that an operation would be, secrets masked. Raises `ToolFailure`."""
        opened = self._opened()
        made = draft(operation, arguments, opened.base_url)
        return curl(opened.credentials.masked(made, anonymous=operation.is_anonymous), made.parts)

    async def perform(self, operation: Operation, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Send an operation of the API, or one that was made of it, and return what came back; raises `ToolFailure`."""
        opened = self._opened()
        made = draft(operation, arguments, opened.base_url)
        made = replace(made, headers={**trace_headers(), **made.headers})
        with anyio.move_on_after(context.remaining):
            answer = await self._exchange(opened, operation, made)
            return result_of(opened.credentials.hidden(answer), operation, arguments)
        raise _unanswered(operation, ToolFailure("timeout", f"{opened.base_url} did not answer in time"))

    async def close(self) -> None:
        """Abort running calls and close every connection. Safe to call twice."""
        self._state, self._publish = "closed", None
        await self._background.stop()
        opened, self._open = self._open, None
        if opened is not None:
            await opened.client.aclose()

    def _opened(self) -> _Open:
        if self._open is None:
            raise ToolFailure("unavailable", self._detail or "the API is not open")
        return self._open

    async def _exchange(self, opened: _Open, operation: Operation, made: Draft) -> Page:
        sign = partial(opened.credentials.request, made, anonymous=operation.is_anonymous)
        answer = await self._send(opened.client, operation, await sign())
        if answer.status == 401 and opened.credentials.forget() and operation.method in _READS:
            answer = await self._send(opened.client, operation, await sign())
        return answer

    async def _send(self, client: WebClient, operation: Operation, request: WebRequest) -> Page:
        is_read = operation.method in _READS
        try:
            return await client.send(request)
        except NetFailure as failure:
            if not (is_read and failure.sent and failure.code == "unavailable"):
                raise _unanswered(operation, failure) if failure.sent else failure from None
        return await client.send(request)

    async def _load_url(self) -> None:
        """Ask until a description could be taken: the net, or the far end, may come back."""
        pause = self._every
        while True:
            await self._load()
            if self._state == "ready":
                return
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _load(self) -> None:
        """Read, convert and publish; every failure becomes the source's state and a problem."""
        try:
            kept = await anyio.to_thread.run_sync(self._cache.read)
            if kept is not None and self._open is None and isinstance(self._given, str) and is_url(self._given):
                await self._offer_kept(kept[1])
            data = await self._bytes()
            digest = await anyio.to_thread.run_sync(digest_of, data)
            if digest == self._digest and self._state == "ready":
                return
            if kept is not None and kept[0] == digest:
                api = kept[1]
            else:
                api = await anyio.to_thread.run_sync(self._convert, data)
                await self._keep(digest, api)
            await self._take(api, "ready")
            self._digest = digest
        except ToolFailure as failure:
            self._fail(failure.whole, own=str(failure))
        except (ToolcribError, OSError) as error:
            self._fail(str(error), own="its description cannot be used")
        except Exception:  # it is logged, and no caller waits for a failed source
            _logger.exception("the description of %s cannot be taken", self._name)
            self._fail("the description cannot be taken; our log has the reason")
        finally:
            self._ready.set()

    async def _offer_kept(self, api: Api) -> None:
        """Publish the cached conversion; if it does not match the configuration, the fresh one may."""
        try:
            await self._take(api, "cached")
        except UsageError as error:
            _logger.info("the cached conversion of %s is not usable: %s", self._name, error)

    async def _bytes(self) -> bytes | Mapping[str, Any]:
        if isinstance(self._given, Mapping):
            return self._given
        return await fetch(self._given, self._guard(self._given) if is_url(self._given) else Guard())

    def _convert(self, data: bytes | Mapping[str, Any]) -> Api:
        document = parse(data, _named(self._given))
        schemes = as_mapping(as_mapping(document.root.get("components")).get("securitySchemes"))
        picks = Picks(include=self._settings.include, exclude=self._settings.exclude)
        return convert(document, picks, sent_by(self._settings, schemes), self._name)

    async def _keep(self, digest: str, api: Api) -> None:
        try:
            await anyio.to_thread.run_sync(self._cache.write, digest, api)
        except OSError as error:
            _logger.warning("what %s offers cannot be kept: %s", self._name, error)

    async def _take(self, api: Api, state: Literal["cached", "ready"]) -> None:
        """Offer `api` from now on. Raises `UsageError` for settings that do not fit it."""
        base_url = self._base_url(api)
        settings = completed(self._settings, api.schemes, base_url)
        former, api = self._open, self._annotated(api, base_url)
        if former is not None and (former.base_url, former.settings) == (base_url, settings):
            self._open = replace(former, api=api)
        else:
            # Another address or another key: connections and tokens of the former one are of no use.
            client = WebClient(self._guard(base_url, *_token_urls(settings)), _CALL, app=self._app)
            self._open = _Open(
                api=api,
                base_url=base_url,
                settings=settings,
                client=client,
                credentials=Credentials(settings, client),
            )
            if former is not None:
                await former.client.aclose()
        self._state, self._detail = state, ""
        self._tell()

    def _fail(self, reason: str, own: str = "") -> None:
        """Report why no listing, or no newer one, is available; `own` are our own words for it, where others are in."""
        self._detail, self._own_reason = reason, own or reason
        self._state = "stale" if self._open is not None else "failed"
        self._tell(Problem(source=self._name, code="unavailable", message=reason))

    def _tell(self, *problems: Problem) -> None:
        if self._publish is None:
            return
        api = self._open.api if self._open else Api(tools=(), operations={})
        self._publish(
            Listing(
                tools=api.tools,
                problems=(*api.problems, *(self._doubts(self._open) if self._open else ()), *problems),
                title=api.title,
                description=api.description,
            )
        )

    def _doubts(self, opened: _Open) -> Iterator[Problem]:
        """Yield what works, but probably not as it was meant."""
        has_credentials = bool(self._settings.auth or self._settings.headers)
        if opened.api.is_guarded and not has_credentials:
            message = f"calls go without credentials; the description wants {' or '.join(opened.api.schemes)}"
            hint = "Configure `auth` for this API."
            yield Problem(source=self._name, code="no_credentials", message=message, hint=hint)
        if has_credentials and opened.base_url.startswith("http:") and not self._settings.allow_private:
            message = f"credentials travel in clear to {opened.base_url}"
            yield Problem(source=self._name, code="in_clear", message=message, hint="Use an https URL.")

    def _annotated(self, api: Api, base_url: str) -> Api:
        """Apply the configured hints over those of the methods, and the address, time and trust to every tool."""
        given, timeout, trusted = self._settings.annotations, self._settings.timeout, self._settings.trusted
        address = "" if self._settings.base_url else base_url
        if not given and timeout is None and not trusted and not address:
            return api
        tools = tuple(
            replace(
                tool,
                execution=replace(tool.execution, timeout=timeout, address=address),
                annotations=Annotations.from_mcp({**tool.annotations.to_mcp(), **given.get(tool.local_name, {})}),
                traits=("reviewed",) if trusted else (),
            )
            for tool in api.tools
        )
        return replace(api, tools=tools)

    def _base_url(self, api: Api) -> str:
        return self._settings.base_url or base_url_of(api.servers, self._given if isinstance(self._given, str) else "")

    def _guard(self, *urls: str) -> Guard:
        if self._settings.private_hosts is not None:
            return Guard.for_tools(self._settings.private_hosts)
        return Guard.of(urls if self._settings.allow_private else ())

    def _key(self) -> str:
        """Name what decides the conversion, besides the description itself; no secret does."""
        settings = self._settings
        keys = [[one.name, one.place] for one in settings.auth if isinstance(one, ApiKey)]
        where = self._given if isinstance(self._given, str) else ""
        parts = [self._name, where, settings.include, settings.exclude, sorted(settings.headers), keys]
        return digest_of(canonical(parts))


def _unanswered(operation: Operation, failure: ToolFailure) -> ToolFailure:
    """Return the failure of a request that may have run: a write must not be repeated in the belief that it did not."""
    if operation.method in _READS:
        return failure
    code = "timeout" if failure.code == "timeout" else "outcome_unknown"
    if failure.code == "too_large":
        code = "too_large"
    return ToolFailure(
        code,
        failure.message,
        hint="It may have been done all the same: look before you repeat it.",
        details={**failure.details, "outcome": "unknown"},
    )


def _token_urls(settings: ApiSettings) -> list[str]:
    return [one.token_url for one in settings.auth if isinstance(one, ClientCredentials)]


def _named(given: str | Mapping[str, Any]) -> str:
    return shown(given) if isinstance(given, str) else "the description"
