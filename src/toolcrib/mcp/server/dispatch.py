"""One dispatch for both eras: a table of methods, and the handlers that both eras use.

A handler takes the request and its client and returns the JSON text of the result. What the eras do differently (the
head of a result, running a call, tasks) is a method of `Client`; methods of one era only are in the table of that era
(`legacy`, `modern`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ...core.json import dumps
from ..jsonrpc import METHOD_NOT_FOUND, Request, RpcError
from .backend import Session, Tasks
from .exchange import Exchange
from .resources import CALL_METHODS, LIST_METHODS, SKILL_METHODS, complete, list_body, refuse_cursor, skills_body
from .service import Service

__all__ = ["SHARED", "Client", "Handler", "dispatch"]


class Client(ABC):
    """The client of one request."""

    __slots__ = ("exchange", "service")

    def __init__(self, service: Service, exchange: Exchange) -> None:
        self.service = service
        self.exchange = exchange

    @property
    @abstractmethod
    def session(self) -> Session:
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
    client.mark_listed("tools")
    head = client.head(client.service.fresh_ms)
    return b'%b%b"tools":%b}' % (dumps(head)[:-1], b"," if head else b"", client.listing)


async def _list_resources(request: Request, client: Client) -> bytes:
    await client.service.warm()
    client.mark_listed("prompts" if request.method == "prompts/list" else "resources")
    return list_body(request, client.session.resources.offer, client.head(client.service.fresh_ms))


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
