"""The HTTP+SSE transport of revision 2024-11-05: one stream of events down, a POST for every message up."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import anyio
import httpx2

from ...core.json import dumps
from ...errors import ToolFailure
from ...net.urls import same_origin
from ...system.tasks import Background
from ..auth.access import Access
from ..auth.login_store import NeedsLogin
from ..sse import Event, EventReader
from ..stdio import Flood, SpooledMessage
from .http_exchange import exchange, failure_of, make_client, media_type, pieces, refusal_of
from .spec import McpLimits, ServerSpec
from .transport import Inbound, LinkLost, Mux, Outgoing, Reply

_logger = logging.getLogger(__name__)

_POST_TIMEOUT: Final = 10.0
_FAREWELL: Final = 1.0


class SseLink:
    """A server behind an event stream. It is lost when the stream ends.

    The first event, `endpoint`, names the address for messages: one of the same origin, or the link is refused, as the
    credentials go there. A POST is answered with a bare status; the answer to its message is an event.
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
        self._spec = spec
        self._user_agent = user_agent
        self._background = background
        self._mux = Mux(self, inbound, limits, self._lose)
        self._events = EventReader(limits, spool_dir)
        self._client: httpx2.AsyncClient | None = None
        self._scope = anyio.CancelScope()
        self._endpoint = ""
        self._opened = anyio.Event()
        self._failure: Exception | None = None

    @property
    def pending(self) -> Mapping[int, Outgoing]:
        """The requests in flight."""
        return self._mux.pending

    async def open(self) -> None:
        """Open the stream and wait until the server has named the address for messages."""
        self._client = make_client(self._spec, self._user_agent)
        self._background.spawn(self._receive)
        await self._opened.wait()
        if not self._endpoint:
            raise self._failure or LinkLost(self.reason or "ended its stream", written=False)

    async def ask(self, request: Outgoing) -> Reply:
        """POST `request` and wait for its answer on the stream; a cancellation is sent to the server."""
        if self.reason:
            raise LinkLost(self.reason, written=False)
        return await self._mux.ask(
            request, lambda message: self._background.spawn(partial(self._send, dumps(message), request))
        )

    def agree(self, version: str) -> None:
        """Nothing on this transport depends on the revision."""

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """POST a notification in the background."""
        self._background.spawn(partial(self._send, dumps({"jsonrpc": "2.0", "method": method, "params": params}), None))

    def answer(self, reply: Mapping[str, Any]) -> None:
        """POST the answer to a request of the server in the background."""
        self._background.spawn(partial(self._send, dumps({"jsonrpc": "2.0", **reply}), None))

    async def close(self) -> None:
        """End the stream."""
        self._lose("was disconnected")
        self._scope.cancel()
        self._events.close()
        client, self._client = self._client, None
        if client is not None:
            with anyio.move_on_after(_FAREWELL):
                await client.aclose()

    async def _receive(self) -> None:
        """Read the stream to its end, and take note of why it ended."""
        try:
            with self._scope:
                await self._read_stream()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            self._failure = failure_of(error)
        except (LinkLost, Flood, ToolFailure) as error:
            self._failure = error if not isinstance(error, Flood) else LinkLost(str(error))
        finally:
            self._lose(self._failure.reason if isinstance(self._failure, LinkLost) else "ended its stream")

    async def _read_stream(self) -> None:
        client = self._client
        if client is None:
            return
        accepted = {"accept": "text/event-stream"}
        async with exchange(client, self.access, "GET", self._spec.url, headers=accepted) as response:
            if response.status_code != 200 or media_type(response) != "text/event-stream":
                self._failure = await refusal_of(response)
                return
            async for piece in pieces(response):
                for event in self._events.feed(piece):
                    self._take(event)

    def _take(self, event: Event) -> None:
        if event.name == "endpoint" and not isinstance(event.data, SpooledMessage):
            try:
                endpoint = urljoin(self._spec.url, event.data.decode("utf-8", "replace"))
            except ValueError:
                endpoint = ""
            if not same_origin(endpoint, self._spec.url):
                raise ToolFailure("unavailable", "the server wants messages sent to another origin; that is refused")
            self._endpoint = endpoint
            self._opened.set()
        elif event.name == "message" and event.data:
            self._mux.receive(event.data)

    async def _send(self, body: bytes, request: Outgoing | None) -> None:
        """POST one message; a request that is not taken ends with the reason."""
        outcome: Exception | None = None
        try:
            with anyio.fail_after(_POST_TIMEOUT):
                outcome = await self._post(body)
        except httpx2.HTTPError as error:
            outcome = failure_of(error)
        except TimeoutError:
            outcome = LinkLost("does not take messages")
        except ToolFailure as failure:
            outcome = failure
            if isinstance(failure, NeedsLogin):
                self._lose(failure.message)
        if outcome is not None and request is not None:
            request.settle(outcome)
        elif outcome is not None:
            _logger.debug("server %s did not take a message: %s", self._spec.name, outcome)

    async def _post(self, body: bytes) -> Exception | None:
        client = self._client
        if client is None or self.reason:
            return LinkLost(self.reason or "was disconnected", written=False)
        headers = {"content-type": "application/json"}
        how: dict[str, Any] = {"content": body, "headers": headers}
        async with exchange(client, self.access, "POST", self._endpoint, **how) as response:
            return None if 200 <= response.status_code < 300 else await refusal_of(response)

    def _lose(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason
            self._mux.fail(reason, lambda request: True)
            self.lost.set()
            self._opened.set()
