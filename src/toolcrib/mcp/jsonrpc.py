"""JSON-RPC 2.0 and the revisions of MCP, for client and server: constants, error codes, reading and framing.

`parse` reads messages of clients strictly, so that two readers never disagree on a message: no duplicate keys, no NaN,
no number that would be rounded, valid UTF-8, no batches. The lenient reader for messages of servers is
`mcp.client.transport`. Both read through `core.json.read_json`, which limits size and depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard, cast

from msgspec import Struct

from ..core.json import JsonError, as_mapping, dumps, encodable, read_json

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`, oldest first."""

MODERN_VERSIONS: Final = ("2026-07-28",)
"""Revisions without sessions: every request carries version and capabilities in `_meta`."""

LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
LATEST: Final = MODERN_VERSIONS[-1]
TASKS_VERSION: Final = "2025-11-25"
"""The only revision with `tasks/list` and `tasks/result`; later ones have the extension `TASKS_EXTENSION`."""

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
SERVERS_KEY: Final = "io.toolcrib/servers"
"""Ours: how the servers behind the gateway introduce themselves, by their names in the configuration."""
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
"""SEP-2640: files of skills are resources, and `skills/list` groups them."""

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
RESOURCE_NOT_FOUND: Final = -32002
"""A missing resource, up to revision 2025-11-25; later revisions answer INVALID_PARAMS."""
REQUEST_CANCELLED: Final = -32800
"""Error code for a cancelled request whose stream must end with an answer (HTTP, handshake era)."""

Id = str | int
"""Id of a request."""


class RpcError(Exception):
    """A JSON-RPC error: received from a server, or to be sent to a client. `data` is JSON.

    `request_id` is the id of a request that `parse` refuses, if the message has a readable one.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, request_id: Id | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.request_id = request_id

    @classmethod
    def of(cls, error: Any) -> RpcError:
        """Read the `error` member of a response, which may be any JSON value."""
        member = as_mapping(error)
        code = member.get("code")
        number = code if isinstance(code, int) else 0
        message = error if isinstance(error, str) else member.get("message")
        text = message if isinstance(message, str) and message else "the server gave no reason"
        return cls(number, text[:4000], member.get("data"))


class Request(Struct, frozen=True, kw_only=True):
    """A message that is owed an answer. Absent `params` are an empty mapping."""

    id: Id
    method: str
    params: Mapping[str, Any]


class Notification(Struct, frozen=True, kw_only=True):
    """A message that is owed nothing."""

    method: str
    params: Mapping[str, Any]


class Response(Struct, frozen=True, kw_only=True):
    """The client's answer to something we asked: `result`, or `error` when that is not None."""

    id: Id
    result: Mapping[str, Any]
    error: Mapping[str, Any] | None = None


def parse(raw: bytes) -> Request | Notification | Response:
    """Return the one message in `raw`. Raises `RpcError` with PARSE_ERROR or INVALID_REQUEST."""
    try:
        value = read_json(raw, strict=True)
    except JsonError as error:
        raise RpcError(PARSE_ERROR, f"Parse error: {error}", request_id=_known_id(error.value)) from None
    except ValueError as error:
        raise RpcError(PARSE_ERROR, f"Parse error: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        what = "a batch is not accepted, send one message at a time" if isinstance(value, list) else "not an object"
        raise RpcError(INVALID_REQUEST, f"Invalid request: {what}")
    message = cast("dict[str, Any]", value)
    try:
        return _message(message)
    except RpcError as error:
        error.request_id = _known_id(message)
        raise


def _message(value: dict[str, Any]) -> Request | Notification | Response:
    if value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0"')
    if "method" not in value:
        return _response(value)
    method, params = value["method"], value.get("params")
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, 'Invalid request: "method" must be a string')
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise RpcError(INVALID_REQUEST, 'Invalid request: "params" must be an object')
    params = cast("dict[str, Any]", params)
    if "id" not in value:
        return Notification(method=method, params=params)
    return Request(id=_id(value["id"]), method=method, params=params)


def _id(value: Any) -> Id:
    if _is_id(value):
        return value
    raise RpcError(INVALID_REQUEST, 'Invalid request: "id" must be a string or an integer')


def _is_id(value: Any) -> TypeGuard[Id]:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _known_id(value: Any) -> Id | None:
    """Return the id of a refused request, so that its sender does not wait for an answer.

    A message without a method may be a response: its id is one of ours, and would name another request of the client.
    """
    if not isinstance(value, dict) or "method" not in value:
        return None
    found: Any = cast("dict[str, Any]", value).get("id")
    return found if _is_id(found) else None


def _response(value: dict[str, Any]) -> Response:
    result, error = value.get("result"), value.get("error")
    if isinstance(error, dict) and result is None:
        return Response(id=_id(value.get("id")), result={}, error=cast("dict[str, Any]", error))
    if isinstance(result, dict) and error is None:
        return Response(id=_id(value.get("id")), result=cast("dict[str, Any]", result))
    raise RpcError(INVALID_REQUEST, "Invalid request: neither a request, a notification nor a response")


def result_message(request_id: Id, body: bytes) -> bytes:
    """Return the answer to `request_id`; `body` is the JSON text of the result, taken as it is."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (dumps(request_id), body)


def error_message(request_id: Id | None, error: RpcError) -> bytes:
    """Return the error answer to `request_id`, or to a message whose id could not be read (None)."""
    shown: dict[str, Any] = {"code": error.code, "message": encodable(error.message)}
    try:
        data = {} if error.data is None else {"data": error.data}
        return dumps({"jsonrpc": "2.0", "id": request_id, "error": {**shown, **data}})
    except TypeError:  # data of a tool that is not JSON
        return dumps({"jsonrpc": "2.0", "id": request_id, "error": shown})


def notification_message(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Return a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return dumps(message)


def request_message(request_id: Id, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request of ours."""
    return dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
