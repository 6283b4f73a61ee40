"""One dispatch for both eras: a table of methods, the handlers that both eras use, and notifications of changes.

A handler takes the request and its client and returns the JSON text of the result. What the eras do differently (the
head of a result, running a call, tasks) is a method of `Client`; methods of one era only are in the table of that era
(`legacy`, `modern`). Notifications of changed lists and changed resources go to one client each.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import anyio

from ...core.json import as_list, dumps
from ...core.server_features import NO_FEATURES, ServerFeatures
from ...errors import ToolFailure
from ..jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Request, RpcError, notification_message
from .backend import BackendSession, Tasks
from .exchange import Exchange
from .resources import (
    CALL_METHODS,
    LIST_METHODS,
    SKILL_METHODS,
    complete,
    list_body,
    refuse_cursor,
    rpc_of,
    skills_body,
)
from .service import Service

_logger = logging.getLogger(__name__)

UPDATED: Final = "notifications/resources/updated"

_WATCHED: Final = 1_000
"""Resources that one client may watch at a time."""
_KINDS: Final = ("tools", "prompts", "resources")


class Client(ABC):
    """The client of one request."""

    __slots__ = ("exchange", "service")

    def __init__(self, service: Service, exchange: Exchange) -> None:
        self.service = service
        self.exchange = exchange

    @property
    @abstractmethod
    def session(self) -> BackendSession:
        """The conversation of the request. Raises `UsageError` for an unknown profile or mode."""

    @property
    @abstractmethod
    def listing(self) -> bytes:
        """JSON array of the tool definitions."""

    @property
    @abstractmethod
    def tasks(self) -> Tasks:
        """Tasks of the client's principal. Raises `RpcError` if the client did not declare tasks."""

    @abstractmethod
    def head(self, fresh_ms: int | None = None) -> dict[str, Any]:
        """Return the members of every result in this era; with `fresh_ms`, also how long it may be cached."""

    @abstractmethod
    def mark_listed(self, kind: str) -> None:
        """Note that the client receives the current list of this kind."""

    @abstractmethod
    async def call(self, request: Request) -> bytes | None:
        """Run one of `tools/call`, `resources/read`, `prompts/get`; None if the exchange was answered already."""


_C = TypeVar("_C", bound=Client)
Handler = Callable[[Request, _C], Awaitable[bytes | None]]


async def dispatch(methods: Mapping[str, Handler[_C]], request: Request, client: _C) -> bytes | None:
    """Run the handler of the request's method. Raises `RpcError`, with METHOD_NOT_FOUND for an unknown one."""
    handler = methods.get(request.method)
    if handler is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")
    return await handler(request, client)


async def _list_tools(request: Request, client: Client) -> bytes:
    refuse_cursor(request)
    await client.service.warm()
    # Nothing waits from here on: the listing that is noted as seen is the one that is sent.
    client.mark_listed("tools")
    client.session.note_listed()
    head = client.head(client.service.fresh_ms)
    # The listing is JSON text already, made once for each view: it is put into the object instead of serialised again.
    return b'%b%b"tools":%b}' % (dumps(head)[:-1], b"," if head else b"", client.listing)


async def _list_resources(request: Request, client: Client) -> bytes:
    await client.service.warm()
    client.mark_listed("prompts" if request.method == "prompts/list" else "resources")
    return list_body(request, client.session.resources.features, client.head(client.service.fresh_ms))


async def _skills(request: Request, client: Client) -> bytes:
    await client.service.warm()
    return skills_body(request, client.session.resources, client.head(client.service.fresh_ms))


async def _complete(request: Request, client: Client) -> bytes:
    return await complete(request, client.session.resources, client.head())


async def _call(request: Request, client: Client) -> bytes | None:
    return await client.call(request)


async def _task(request: Request, client: Client) -> bytes:
    return await client.tasks.answer(request, client.exchange)


SHARED: Mapping[str, Handler[Client]] = {
    "completion/complete": _complete,
    **dict.fromkeys(CALL_METHODS, _call),
    **dict.fromkeys(LIST_METHODS, _list_resources),
    **dict.fromkeys(SKILL_METHODS, _skills),
    "tasks/cancel": _task,
    "tasks/get": _task,
    "tools/call": _call,
    "tools/list": _list_tools,
}
"""Methods of both eras."""


class ResourceWatches:
    """Resources that one client subscribed to, and those that changed since its last notification.

    At most 1,000 at a time. Its owner, a session or a subscription, calls `close`, which ends the subscriptions at the
    servers behind. A resource that changes several times between two calls of `take` is notified of once.
    """

    def __init__(self, session: BackendSession, wake: Callable[[], None]) -> None:
        """`wake` is called when something changed."""
        self._session = session
        self._wake = wake
        self._stops: dict[str, Callable[[], Awaitable[None]]] = {}
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._stops)

    async def add(self, uri: str) -> None:
        """Watch a resource; again is harmless. Raises `RpcError` for one that is not there."""
        if uri in self._stops:
            return
        if len(self._stops) >= _WATCHED:
            raise RpcError(
                INVALID_PARAMS, f"Invalid params: {_WATCHED} resources are watched already: unsubscribe some"
            )

        def changed() -> None:
            self._changed[uri] = None
            self._wake()

        try:
            stop = await self._session.resources.watch(uri, changed)
        except ToolFailure as failure:
            _logger.info("refused a subscription to %s: %s", uri[:300], failure)
            raise rpc_of(failure) from None
        if self._stops.setdefault(uri, stop) is not stop:  # the same request, sent twice at a time
            await stop()

    async def try_add(self, uri: str) -> bool:
        """Watch a resource if it is there; return whether it is."""
        try:
            await self.add(uri)
        except RpcError:
            return False
        return True

    async def remove(self, uri: str) -> None:
        """Stop watching it; an unwatched one is ignored."""
        stop = self._stops.pop(uri, None)
        self._changed.pop(uri, None)
        if stop is not None:
            await stop()

    async def close(self) -> None:
        """Watch nothing any more."""
        for uri in tuple(self._stops):
            await self.remove(uri)

    def take(self) -> list[str]:
        """Return the changes since the last time."""
        changed = list(self._changed)
        self._changed.clear()
        return changed


class ListChanges:
    """Lists that changed since the client's last notification. `wanted` names the kinds of lists.

    Two snapshots: the lists that the client got or was notified of, and those that it really got. After a
    notification the first is ahead of the second, until the client lists again (`saw`).
    """

    def __init__(self, session: BackendSession, wanted: Mapping[str, bool]) -> None:
        self._session = session
        self._wanted = wanted
        self._known: tuple[int, ServerFeatures] = (-1, NO_FEATURES)
        """The features at a version: reading them merges those of all sources, so it is done once a version."""
        self._seen = self._listed = self._lists()

    @classmethod
    def of_filter(
        cls, session: BackendSession, wanted: Mapping[str, Any]
    ) -> tuple[ListChanges, dict[str, Any], list[str]]:
        """Read a `SubscriptionFilter`: the changes, the honoured part of the filter, and the resources to watch."""
        kinds = {kind: wanted.get(f"{kind}ListChanged") is True for kind in _KINDS}
        uris = [uri for uri in as_list(wanted.get("resourceSubscriptions")) if isinstance(uri, str)]
        return cls(session, kinds), {f"{kind}ListChanged": True for kind in _KINDS if kinds[kind]}, uris

    def take(self) -> list[str]:
        """Return the notifications to send: methods without parameters."""
        seen = self._lists()
        changed = [kind for kind in _KINDS if self._wanted.get(kind) and seen[kind] != self._seen[kind]]
        self._seen = seen
        return [f"notifications/{kind}/list_changed" for kind in changed]

    def saw(self, kind: str) -> None:
        """The client has just been listed this kind."""
        now = {kind: self._lists()[kind]}
        self._seen, self._listed = self._seen | now, self._listed | now

    def repeat(self) -> None:
        """Notify again of what the client has not listed since: a notification may be lost with its stream."""
        self._seen = self._listed

    def _lists(self) -> dict[str, Any]:
        resources = self._session.resources
        if self._known[0] != resources.version:
            self._known = (resources.version, resources.features)
        features = self._known[1]
        return {
            "tools": self._session.listing,
            "prompts": features.prompts,
            "resources": (features.resources, features.templates),
        }


async def serve_subscription(
    service: Service, session: BackendSession, exchange: Exchange, wanted: Mapping[str, Any], meta: Mapping[str, Any]
) -> None:
    """Serve one `subscriptions/listen`: acknowledge what is honoured, send its notifications until the service stops.

    A resource that is not there is left out of the acknowledgement.
    """
    changed = anyio.Event()

    def wake() -> None:
        changed.set()

    async def tell(method: str, **params: Any) -> None:
        await exchange.tell(notification_message(method, {**params, "_meta": meta}))

    changes, honoured, uris = ListChanges.of_filter(session, wanted)
    watches = ResourceWatches(session, wake)
    unsubscribe = service.subscribe(wake)
    try:
        if uris:
            await service.warm()
        if watched := [uri for uri in dict.fromkeys(uris) if await watches.try_add(uri)]:
            honoured["resourceSubscriptions"] = watched
        await tell("notifications/subscriptions/acknowledged", notifications=honoured)
        while not service.stopping.is_set():
            await changed.wait()
            changed = anyio.Event()  # before the changes are taken: one that comes while they are sent wakes again
            for method in changes.take():
                await tell(method)
            for uri in watches.take():
                await tell(UPDATED, uri=uri)
    finally:
        unsubscribe()
        with anyio.CancelScope(shield=True):
            await watches.close()
