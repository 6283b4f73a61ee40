"""The streamable HTTP transport: every request is a POST of its own, answered with JSON or a stream of events."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2

from ...core.json import as_mapping, dumps
from ...core.memory import reserve
from ...core.patterns import regex
from ...errors import ToolFailure
from ...system.tasks import Background
from ..auth.access import Access
from ..auth.login_store import NeedsLogin
from ..headers import NAMED, header_value
from ..jsonrpc import LATEST, RpcError
from ..sse import Event, EventReader
from ..stdio import Flood, MessageBuffer, SpooledMessage, looks_like_message
from .http_exchange import exchange, failure_of, make_client, media_type, pieces, refusal_of
from .spec import McpLimits, ServerSpec
from .spooled_result import id_of_big
from .transport import (
    Inbound,
    LinkLost,
    Outgoing,
    Reply,
    broken_answer,
    decode,
    id_of_broken,
    messages_in,
    outcome_of,
    request_number,
)

_logger = logging.getLogger(__name__)

_ASIDE_TIMEOUT: Final = 10.0
"""Seconds for a notification, an answer of ours, or the end of a session."""

_FAREWELL: Final = 1.0
_RETRY: Final = 1.0
_LONGEST_RETRY: Final = 30.0
_RESUMES: Final = 5
"""Times in a row that a broken answer stream is taken up again without anything coming of it."""

_EVENTS: Final = "text/event-stream"
_MEDIA_TYPE: Final = regex(r"[\w.+-]{1,40}/[\w.+-]{1,60}", re.ASCII)
_BOTH: Final = f"application/json, {_EVENTS}"
"""`Accept` of every POST: the transport requires both, the server chooses."""
_SESSION: Final = "mcp-session-id"
_SESSION_REFUSED: Final = -32000
_NEVER_CANCELLED: Final = ("initialize", "server/discover")


class HttpLink:
    """A server behind a URL. It is lost when nothing listens there any more or it has forgotten our session.

    A broken response loses one request, not the link. After `agree` (handshake era) further requests wait until
    `notifications/initialized` was sent: each is a POST of its own, and could overtake it. Notifications and answers
    to the server are POSTs in the background; their failures are only logged.
    """

    def __init__(
        self,
        spec: ServerSpec,
        user_agent: str,
        limits: McpLimits,
        spool_dir: Path,
        inbound: Inbound,
        background: Background,
    ) -> None:
        self.lost = anyio.Event()
        self.reason = ""
        self.last_words = ""
        self.access: Access | None = None
        """Login, set before `open`; None sends the configured headers and nothing else."""
        self.pending: dict[int, Outgoing] = {}
        self._spec = spec
        self._user_agent = user_agent
        self._limits = limits
        self._folder = spool_dir
        self._inbound = inbound
        self._background = background
        self._client: httpx2.AsyncClient | None = None
        self._scopes: dict[int, anyio.CancelScope] = {}
        """Of the requests in flight, for `close`."""
        self._last = 0
        """Number of the newest request."""
        self._bad = 0
        """Messages that answered nothing."""
        self._session = ""
        """Session id of the server (handshake era); empty where it gave none."""
        self._version = ""
        """Agreed revision of the handshake era."""
        self._introduced: anyio.Event | None = None
        """Set once `notifications/initialized` was sent, or the link is lost; None before `agree`."""

    async def open(self) -> None:
        """Make the client; the first request connects."""
        self._client = make_client(self._spec, self._user_agent)

    async def ask(self, request: Outgoing) -> Reply:
        """POST `request` and read until its answer; a cancellation is sent to the server in its era's form."""
        if self._introduced is not None:
            await self._introduced.wait()
        if self.reason:
            raise LinkLost(self.reason, written=False)
        self._last += 1
        message = request.assign(self._last)
        self.pending[request.id] = request
        try:
            with anyio.CancelScope() as scope:
                self._scopes[request.id] = scope
                return await self._exchange(request, message)
            raise LinkLost("the connection was closed")  # `close` cancelled the scope
        except anyio.get_cancelled_exc_class():
            if request.version != LATEST and request.method not in _NEVER_CANCELLED:
                self.tell("notifications/cancelled", {"requestId": request.id, "reason": "no longer wanted"})
            raise
        finally:
            self._scopes.pop(request.id, None)
            self.pending.pop(request.id, None)
            request.drop()

    def agree(self, version: str) -> None:
        """Say the revision in every header from now on; ask for what the server wants to say unasked."""
        self._version = version
        self._introduced = anyio.Event()
        self._background.spawn(self._listen)

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """POST a notification in the background."""
        self._background.spawn(partial(self._aside, {"jsonrpc": "2.0", "method": method, "params": params}))

    def answer(self, reply: Mapping[str, Any]) -> None:
        """POST the answer to a request of the server in the background."""
        self._background.spawn(partial(self._aside, {"jsonrpc": "2.0", **reply}))

    async def close(self) -> None:
        """End what is in flight and the session."""
        self._lose("was disconnected")
        for scope in list(self._scopes.values()):
            scope.cancel()
        client, self._client = self._client, None
        if client is None:
            return
        if self._session:
            with anyio.move_on_after(_FAREWELL):
                token = {"authorization": self.access.current} if self.access and self.access.current else {}
                try:
                    await client.delete(self._spec.url, headers={**self._headers(), **token})
                except httpx2.HTTPError as error:
                    _logger.debug("server %s did not hear that we leave: %s", self._spec.name, error)
        with anyio.move_on_after(_FAREWELL):
            await client.aclose()

    def _lose(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason
            self.lost.set()
            if self._introduced is not None:
                self._introduced.set()

    def _headers(self, request: Outgoing | None = None) -> dict[str, str]:
        headers = {"accept": _BOTH, "content-type": "application/json"}
        version = self._version
        if request is not None:
            version = "" if request.method == "initialize" else request.version or version
            headers.update(request.headers)
            if request.version == LATEST:
                headers["mcp-method"] = request.method
                if (named := NAMED.get(request.method)) is not None:
                    headers["mcp-name"] = header_value(str(request.params[named]))
        if version:
            headers["mcp-protocol-version"] = version
        if self._session:
            headers[_SESSION] = self._session
        return headers

    async def _exchange(self, request: Outgoing, message: Mapping[str, Any]) -> Reply:
        try:
            body = dumps(message)
        except TypeError as error:
            raise ToolFailure("invalid_arguments", f"the arguments cannot be written as JSON: {error}") from error
        try:
            async with self._stream("POST", content=body, headers=self._headers(request)) as response:
                return await self._read(response, request)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            failure = failure_of(error)
            # With other requests in flight the server listens: one refused connection is not its end.
            if isinstance(failure, LinkLost) and not failure.written and len(self.pending) == 1:
                self._lose(failure.reason)
            raise failure from error
        except Flood as flood:
            raise LinkLost(str(flood)) from flood

    @asynccontextmanager
    async def _stream(self, method: str, **how: Any) -> AsyncGenerator[httpx2.Response]:
        if self._client is None:
            raise LinkLost(self.reason or "is not connected", written=False)
        try:
            async with exchange(self._client, self.access, method, self._spec.url, **how) as response:
                yield response
        except NeedsLogin as needed:
            self._lose(needed.message)
            raise

    async def _read(self, response: httpx2.Response, request: Outgoing) -> Reply:
        if response.status_code == 404 and self._session:
            self._lose("ended our session")
            raise LinkLost("ended our session", written=False)
        if response.status_code in (202, 204):
            raise ToolFailure("unavailable", "the server took the request but says that it will not answer")
        if not 200 <= response.status_code < 300:
            refusal = await refusal_of(response)
            if self._session and _names_session(refusal):
                self._lose("ended our session")
                raise LinkLost("ended our session", written=False)
            raise refusal
        if request.method == "initialize":
            self._session = _token(response.headers.get(_SESSION, ""))
        kind = media_type(response)
        if kind == _EVENTS:
            return await self._read_events(response, request)
        if kind != "application/json":
            named = repr(kind) if _MEDIA_TYPE.fullmatch(kind) else "another type" if kind else "no content type"
            raise ToolFailure("tool_error", f"the server answered with {named}, not with JSON")
        try:
            body = await _read_message(response, self._limits, self._folder)
        except ValueError as error:
            raise broken_answer(error) from error
        found = self._sort(body, request)
        if found is None:
            raise ToolFailure("tool_error", "the server answered another request than ours; the tool may have run")
        return _raised(found)

    async def _read_events(self, response: httpx2.Response, request: Outgoing) -> Reply:
        """Read one stream, and those that continue it, until the answer to `request` comes."""
        events = EventReader(self._limits, self._folder)
        try:
            found = await self._follow(response, request, events)
            for _ in range(_RESUMES):
                if found is not None or not events.last_id or request.version == LATEST:
                    break
                await anyio.sleep(min(_RETRY if events.retry is None else events.retry, _LONGEST_RETRY))
                headers = {**self._headers(), "accept": _EVENTS, "last-event-id": events.last_id}
                async with self._stream("GET", headers=headers) as resumed:
                    if resumed.status_code != 200 or media_type(resumed) != _EVENTS:
                        break
                    found = await self._follow(resumed, request, events)
        finally:
            events.close()
        if found is None:
            raise LinkLost("ended its stream")
        return _raised(found)

    async def _follow(
        self, response: httpx2.Response, request: Outgoing, events: EventReader
    ) -> Reply | Exception | None:
        """Read one stream of events to its end or to the answer."""
        async for piece in pieces(response):
            for event in events.feed(piece):
                if not isinstance(event.data, SpooledMessage):
                    await reserve(len(event.data))
                found = self._take(event, request)
                if found is not None:
                    await request.hand_on()
                    return found
            await request.hand_on()
        return None

    def _take(self, event: Event, request: Outgoing) -> Reply | Exception | None:
        """Sort what one event carries; return the outcome of `request` when that is it."""
        if event.name != "message" or not event.data:
            return None
        if isinstance(event.data, SpooledMessage):
            return self._sort(event.data, request)
        try:
            return self._sort(decode(event.data), request)
        except ValueError as error:
            if request_number(id_of_broken(event.data, error)) == request.id:
                return broken_answer(error)
            self._count_bad()
            return None

    def _sort(self, body: Any, request: Outgoing) -> Reply | Exception | None:
        if isinstance(body, SpooledMessage):
            if request_number(id_of_big(body)) == request.id:
                return body
            body.discard()
            return None
        outcome: Reply | Exception | None = None
        for message in messages_in(body):
            members = as_mapping(message)
            if "method" in members:
                self._hear(members, request)
            # An error without an id is about a request that could not be read: on this stream that is ours.
            elif request_number(members.get("id")) == request.id or ("error" in members and members.get("id") is None):
                outcome = outcome or outcome_of(members)
            else:
                self._count_bad()
        return outcome

    def _hear(self, message: Mapping[str, Any], owner: Outgoing | None) -> None:
        try:
            if "id" in message:
                self._inbound.on_request(self, message, owner)
            else:
                self._inbound.on_notification(self, message, owner)
        except Exception:  # one message never ends the stream
            _logger.exception("a message of server %s could not be handled", self._spec.name)
            self._count_bad()

    def _count_bad(self) -> None:
        """Count a message that answers nothing. Raises `Flood` beyond the limit, which grows with each request."""
        self._bad += 1
        if self._bad > self._limits.bad_messages + self._last:
            raise Flood(f"sent {self._bad} messages that answer nothing")

    async def _aside(self, message: Mapping[str, Any]) -> None:
        """POST what has no answer."""
        try:
            with anyio.fail_after(_ASIDE_TIMEOUT):
                async with self._stream("POST", content=dumps(message), headers=self._headers()) as response:
                    if response.status_code >= 400:
                        _logger.debug("server %s answered HTTP %d", self._spec.name, response.status_code)
        except (httpx2.HTTPError, LinkLost, TimeoutError, ToolFailure) as error:
            _logger.debug("server %s did not take a message: %s", self._spec.name, error)
        finally:
            if self._introduced is not None and message.get("method") == "notifications/initialized":
                self._introduced.set()

    async def _listen(self) -> None:
        """Keep the stream open on which a server of the old era sends its own messages, where it offers one."""
        if self._introduced is not None:
            await self._introduced.wait()
        pause = _RETRY
        events = EventReader(self._limits, self._folder)
        while not self.reason:
            try:
                headers = {**self._headers(), "accept": _EVENTS}
                if events.last_id:
                    headers["last-event-id"] = events.last_id
                async with self._stream("GET", headers=headers) as response:
                    if response.status_code != 200 or media_type(response) != _EVENTS:
                        return
                    pause = _RETRY
                    await self._hear_all(response, events)
            except (httpx2.HTTPError, LinkLost, Flood, ToolFailure) as error:
                _logger.debug("the event stream of server %s ended: %s", self._spec.name, error)
            with anyio.move_on_after(pause if events.retry is None else min(events.retry, _LONGEST_RETRY)):
                await self.lost.wait()
            pause = min(pause * 2, _LONGEST_RETRY)

    async def _hear_all(self, response: httpx2.Response, events: EventReader) -> None:
        """Take what a server says unasked; answers have no place on this stream, large messages neither."""
        async for piece in pieces(response):
            for event in events.feed(piece):
                if isinstance(event.data, SpooledMessage):
                    event.data.discard()
                    continue
                try:
                    message = as_mapping(decode(event.data) if event.data else None)
                except ValueError:
                    self._count_bad()
                    continue
                if "method" in message:
                    self._hear(message, None)


async def _read_message(response: httpx2.Response, limits: McpLimits, folder: Path) -> Any:
    """Read one JSON body: the parsed value, or `SpooledMessage`; raises `ValueError`, `Flood` or `LinkLost`."""
    buffer = MessageBuffer(limits, folder)
    checked = False
    try:
        async for piece in pieces(response):
            buffer.append(piece)
            if not checked and buffer.size > limits.noise_bytes:
                if not looks_like_message(buffer.head()):
                    raise Flood(f"sent {buffer.size} bytes that are not a JSON-RPC message")
                checked = True
        if buffer.size <= limits.inline_bytes:
            await reserve(buffer.size)
        body = buffer.take()
    finally:
        buffer.discard()
    return body if isinstance(body, SpooledMessage) else decode(body)


def _raised(found: Reply | Exception) -> Reply:
    if isinstance(found, Exception):
        raise found
    return found


def _names_session(refusal: Exception) -> bool:
    """Whether a server that restarted refuses the session of before with an error instead of a 404, as many do."""
    return isinstance(refusal, RpcError) and refusal.code == _SESSION_REFUSED and "session" in refusal.message.lower()


def _token(text: str) -> str:
    """Return a session id that can be sent back as a header; anything else counts as none."""
    return text if text.isascii() and text.isprintable() and len(text) <= 1024 else ""
