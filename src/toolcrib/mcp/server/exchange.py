"""One request of a client: the way of its messages, however the bytes travel, and its client as a tool sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio

from ...core.json import as_mapping
from ...core.result import ToolResult
from ...errors import ToolFailure
from ..jsonrpc import LOG_LEVELS, MISSING_CAPABILITY, Id, Notification, RpcError

NEEDS: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
}
"""Requests of a tool to a client → the capability that the client must have declared."""


class Exchange(ABC):
    """Destination of the messages of one request. Lives from the request to its answer.

    `scope` is the cancel scope around the work; withdrawing the request cancels it. The transport makes one for each
    request: `connection` for a pipe, `http_messages.HttpExchange` for a POST. It ends in one of two ways: `answer` sets
    `ended`, a withdrawal by the client sets `withdrawn`, and then no answer is sent.
    """

    __slots__ = ("call_id", "ended", "is_again", "is_overloaded", "request_id", "scope", "trace", "withdrawn")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.scope = scope
        self.request_id: Id = ""
        self.trace: Mapping[str, str] = {}
        """Trace context of the transport, for a request whose `_meta` has none."""
        self.call_id = ""
        """Id of the call that the request makes; empty for a new one."""
        self.is_again = False
        """True when an earlier process, which has ended, got this request, and may have begun its call."""
        self.ended = False
        """True once the answer is on its way; what is still done then is done for a later request."""
        self.is_overloaded = False
        """True when the request was refused because too much is going on; the client may send it again."""
        self.withdrawn = False
        """True once the client has withdrawn the request."""

    def withdraw(self) -> None:
        """End the work because the client took the request back; does nothing once it was answered."""
        if not self.ended:
            self.withdrawn = True
            self.scope.cancel()

    @abstractmethod
    async def tell(self, message: bytes) -> None:
        """Send a notification that belongs to the request; it may be dropped when the client does not keep up."""

    @abstractmethod
    async def ask(self, message: bytes) -> None:
        """Send a request of ours that belongs to the request; raises `ToolFailure` when it cannot get there."""

    @abstractmethod
    async def answer(self, message: bytes) -> None:
        """Send the final answer and end the exchange before its work has ended."""


def needed(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the client capabilities that asking `method` takes; raises `ToolFailure` for what no client is asked."""
    capability = NEEDS.get(method)
    if capability is None:
        raise ToolFailure("unavailable", f"clients are not asked for {method}")
    if capability == "elicitation" and params.get("mode") == "url":
        return {capability: {"url": {}}}
    return {capability: {}}


def supports(declared: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a client that declared `declared` can do all of `wanted`."""
    for name, inner in wanted.items():
        have = declared.get(name)
        if not isinstance(have, Mapping) or not supports(cast("Mapping[str, Any]", have), inner):
            return False
    return True


def is_wanted(method: str, params: Mapping[str, Any], level: str | None) -> bool:
    """Whether a notification passes the client's log level; None lets no log message pass."""
    if method != "notifications/message":
        return True
    given = params.get("level")
    if level is None or given not in LOG_LEVELS:
        return False
    return LOG_LEVELS.index(given) >= LOG_LEVELS.index(level)


def refused(method: str, error: Mapping[str, Any]) -> ToolFailure:
    """Return the failure for a client that answered `method` with an error."""
    message = error.get("message")
    reason = message if isinstance(message, str) else "no reason given"
    return ToolFailure(
        "unavailable", f"the client refused {method}: {reason[:300]}", details={"rpc_code": error.get("code")}
    )


def missing_capability(wanted: Mapping[str, Any]) -> RpcError:
    """Return the error for a client that did not declare `wanted`."""
    return RpcError(
        MISSING_CAPABILITY,
        "The request needs a capability that the client did not declare",
        {"requiredCapabilities": wanted},
    )


def missing_downstream(result: ToolResult) -> Mapping[str, Any] | None:
    """Return the capabilities that the tool's own server reported as missing, if any."""
    if result.error is None or result.error.details.get("rpc_code") != MISSING_CAPABILITY:
        return None
    wanted = as_mapping(result.error.details.get("data")).get("requiredCapabilities")
    return cast("Mapping[str, Any]", wanted) if isinstance(wanted, Mapping) else None


def take_notification(message: Notification, running: Mapping[Id, Exchange]) -> None:
    """Take a notification of a client; `notifications/cancelled` withdraws the request that it names."""
    if message.method == "notifications/cancelled":
        target = message.params.get("requestId")
        exchange = running.get(target) if isinstance(target, str | int) else None
        if exchange is not None:
            exchange.withdraw()
