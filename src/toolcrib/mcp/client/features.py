"""Server features of one server: reading, getting, completing and watching of resources and prompts.

All of it only reads, so that a request whose connection broke is sent once more on the next one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

import anyio

from ...core.context import Context
from ...core.json import as_list, as_mapping
from ...core.result import ToolResult
from ...core.server_features import EMPTY_ROLE, PROMPT_DESCRIPTION, ROLE, WATCHED
from ...errors import ToolFailure
from ..jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, RpcError
from ..stdio import SpooledMessage
from .connection import Connection
from .content_blocks import block_error
from .session import ClientSession, asked_for_input, of_error, of_spooled
from .spec import ServerSpec
from .spooled_result import SpooledAnswer
from .transport import LinkLost, Reply

_logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 2
"""Connections on which one request is tried."""
_VALUES: Final = 100
"""Of one completion: what the specification allows."""
_COMPLETION_SECONDS: Final = 10.0
_RELISTEN: Final = 30.0
"""Seconds before a subscription that ended is opened again."""


class RemoteFeatures:
    """Resources and prompts of one server. Lives as long as its source."""

    def __init__(
        self,
        spec: ServerSpec,
        connection: Connection,
        convert: Callable[[SpooledMessage], Awaitable[SpooledAnswer]],
    ) -> None:
        """`convert` takes an answer that was too large to parse to disk."""
        self._spec = spec
        self._connection = connection
        self._convert_spooled = convert
        self._watched: dict[str, int] = {}
        self._moved = anyio.Event()
        self.on_update: Callable[[str], None] = _no_listener

    @property
    def traits(self) -> tuple[str, ...]:
        """Traits of the server's tools."""
        return self._spec.traits

    async def read(self, uri: str, context: Context) -> ToolResult:
        """Read a resource; see `FeatureReader`."""
        reply = await self._ask("resources/read", {"uri": uri}, context, uri)
        if isinstance(reply, SpooledMessage):
            return of_spooled(await self._convert_spooled(reply))
        if (asked := asked_for_input(reply, self._spec)) is not None:
            return asked
        contents = reply.get("contents")
        if not isinstance(contents, list):
            raise ToolFailure("tool_error", "the server answered with a malformed resource: `contents` is not a list")
        return ToolResult(content=tuple(_resource(as_mapping(one)) for one in cast("list[Any]", contents)))

    async def prompt(self, name: str, arguments: Mapping[str, str], context: Context) -> ToolResult:
        """Get a prompt; see `FeatureReader`."""
        reply = await self._ask("prompts/get", {"name": name, "arguments": arguments}, context, name)
        if isinstance(reply, SpooledMessage):
            return of_spooled(await self._convert_spooled(reply))
        if (asked := asked_for_input(reply, self._spec)) is not None:
            return asked
        messages = reply.get("messages")
        if not isinstance(messages, list):
            raise ToolFailure("tool_error", "the server answered with a malformed prompt: `messages` is not a list")
        content = _messages([as_mapping(one) for one in cast("list[Any]", messages)], reply.get("description"))
        return ToolResult(content=content)

    async def complete(self, params: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the server's completions; see `FeatureReader`."""
        session = await self._connection.get()
        if "completions" not in session.era.capabilities:
            return {"values": []}
        with anyio.move_on_after(min(context.remaining, _COMPLETION_SECONDS)):
            reply = await self._ask("completion/complete", params, context, "completions")
            if isinstance(reply, SpooledMessage):
                reply.discard()
                raise ToolFailure("tool_error", f"the server proposes {reply.size} bytes, more than is taken")
            given = as_mapping(reply.get("completion"))
            texts = [value for value in as_list(given.get("values")) if isinstance(value, str)]
            shown: dict[str, Any] = {"values": texts[:_VALUES]}
            if isinstance(total := given.get("total"), int):
                shown["total"] = total
            if isinstance(more := given.get("hasMore"), bool):
                shown["hasMore"] = more or len(texts) > _VALUES
            return shown
        raise ToolFailure("timeout", f"server {self._spec.name!r} proposed nothing in time")

    async def watch(self, uri: str) -> None:
        """Have the server say when the resource changes; see `FeatureReader`. Raises `ToolFailure` if it refuses."""
        if uri not in self._watched and len(self._watched) >= WATCHED:
            raise ToolFailure(
                "overloaded",
                f"{WATCHED} resources of {self._spec.name} are watched already, by all clients together",
                hint="Try again when a client has unsubscribed, or read the resource when it is needed.",
            )
        self._watched[uri] = self._watched.get(uri, 0) + 1
        if self._watched[uri] == 1:
            try:
                await self._tell("resources/subscribe", uri)
            except BaseException as error:  # a client that leaves here has nothing to unsubscribe with
                self._release(uri)
                if isinstance(error, RpcError):
                    raise _failure(error, uri) from None
                raise

    async def unwatch(self, uri: str) -> None:
        """Unsubscribe from the resource, once it has no watcher."""
        if uri in self._watched and self._release(uri):
            with self._logged("resources/unsubscribe"):
                await self._tell("resources/unsubscribe", uri)

    def _release(self, uri: str) -> bool:
        """Count one watcher of the resource less; return whether it was the last."""
        self._watched[uri] -= 1
        if is_last := not self._watched[uri]:
            del self._watched[uri]
        return is_last

    def updated(self, uri: str) -> None:
        """Handle the server's notice that a resource changed; unwatched resources are ignored."""
        if uri in self._watched:
            self.on_update(uri)

    async def follow(self, session: ClientSession) -> None:
        """Have a new connection say what changes: its lists, and what is watched. Runs until it ends."""
        if not session.era.modern:
            for uri in tuple(self._watched):
                with self._logged("resources/subscribe"):
                    await self._subscribe(session, "resources/subscribe", uri)
            return
        while not session.link.reason:
            self._moved = anyio.Event()
            wanted = self._wanted(session)
            if not wanted:
                await _first(session.link.lost.wait, self._moved.wait)
            elif await _first(partial(session.listen, wanted), self._moved.wait) == 0:
                with anyio.move_on_after(_RELISTEN):
                    await _first(session.link.lost.wait, self._moved.wait)

    def _wanted(self, session: ClientSession) -> dict[str, Any]:
        capabilities = session.era.capabilities
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in ("prompts", "resources")
            if as_mapping(capabilities.get(kind)).get("listChanged") is True
        }
        if self._watched and _takes_watches(session):
            wanted["resourceSubscriptions"] = sorted(self._watched)
        return wanted

    async def _tell(self, method: str, uri: str) -> None:
        session = self._connection.live
        if session is None:
            return  # the next connection subscribes when it begins
        if not _takes_watches(session) and method == "resources/subscribe":
            raise ToolFailure(
                "unavailable",
                f"server {self._spec.name!r} does not report changes of resources",
                hint="Read the resource when it is needed.",
            )
        if session.era.modern:
            self._moved.set()
        else:
            await self._subscribe(session, method, uri)

    async def _subscribe(self, session: ClientSession, method: str, uri: str) -> None:
        if not _takes_watches(session):
            return
        with anyio.move_on_after(_COMPLETION_SECONDS), suppress(LinkLost):  # the next connection subscribes
            reply = await session.ask(method, {"uri": uri})
            if isinstance(reply, SpooledMessage):
                reply.discard()

    @contextmanager
    def _logged(self, method: str) -> Generator[None]:
        """Log a refusal that no client waits for."""
        try:
            yield
        except (RpcError, ToolFailure) as error:
            _logger.info("server %s does not take %s: %s", self._spec.name, method, error)

    async def _ask(self, method: str, params: Mapping[str, Any], context: Context, what: str) -> Reply:
        limit = min(context.remaining, self._spec.timeout or math.inf)
        with anyio.move_on_after(None if limit == math.inf else limit):
            for _ in range(_ATTEMPTS):
                session = await self._connection.get()
                try:
                    return await session.ask(method, params, context)
                except RpcError as error:
                    raise _failure(error, what) from error
                except LinkLost as lost:
                    _logger.info("server %s %s during %s", self._spec.name, lost.reason, method)
            raise ToolFailure("unavailable", f"server {self._spec.name!r} ended {_ATTEMPTS} times before it answered")
        raise ToolFailure("timeout", f"server {self._spec.name!r} did not answer within {limit:.1f} s")


def _takes_watches(session: ClientSession) -> bool:
    return as_mapping(session.era.capabilities.get("resources")).get("subscribe") is True


def _failure(error: RpcError, what: str) -> ToolFailure:
    """Return the failure for an error of the server; `not_found` if it says that the object does not exist."""
    if error.code in (RESOURCE_NOT_FOUND, INVALID_PARAMS):
        details: dict[str, Any] = {"rpc_code": error.code}
        code = "not_found" if error.code == RESOURCE_NOT_FOUND else "invalid_arguments"
        return ToolFailure(code, f"the server refuses {what[:200]!r}: {error.message}", details=details)
    if error.code == METHOD_NOT_FOUND:
        return ToolFailure("unavailable", f"the server has no {what[:200]!r}: {error.message}")
    return of_error(error, what[:200])


def _resource(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return one content of a resource as a block; raises `ToolFailure` for an invalid one."""
    if not isinstance(content.get("uri"), str) or not isinstance(content.get("text", content.get("blob")), str):
        raise ToolFailure("tool_error", "the server answered with a malformed resource: a content without uri or text")
    return {"type": "resource", "resource": content}


def _messages(messages: list[Mapping[str, Any]], description: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the messages as blocks; if there are several roles, the text for a model names them."""
    about = {PROMPT_DESCRIPTION: description} if isinstance(description, str) else {}
    speakers = {message.get("role") for message in messages}
    blocks: list[Mapping[str, Any]] = []
    for message in messages:
        role, block = message.get("role"), as_mapping(message.get("content"))
        wrong = "no message of user or model" if role not in ("user", "assistant") else block_error(block)
        if wrong:
            raise ToolFailure("tool_error", f"the server answered with a malformed prompt: {wrong}")
        if len(speakers) > 1:
            blocks.append({"type": "text", "text": f"{role}:", "_meta": {ROLE: EMPTY_ROLE}})
        blocks.append({**block, "_meta": {**as_mapping(block.get("_meta")), ROLE: role, **about}})
        about = {}
    return tuple(blocks)


async def _first(*waits: Callable[[], Awaitable[Any]]) -> int:
    """Run all until one ends, and return which that was."""
    ended: list[int] = []
    async with anyio.create_task_group() as group:

        async def run(index: int, wait: Callable[[], Awaitable[Any]]) -> None:
            await wait()
            ended.append(index)
            group.cancel_scope.cancel()

        for index, wait in enumerate(waits):
            group.start_soon(run, index, wait)
    return ended[0]


def _no_listener(uri: str) -> None:
    """Default listener."""
