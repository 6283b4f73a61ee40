"""`tools/call` and MCP tasks: what a client declares and asks for, and the result as it goes back.

Parameters are checked here for their shape alone, so that a wrong field is an error of the protocol (-32602). Whether
the tool exists, and whether the arguments fit its schema, is decided by the pipeline: those are results, which the
model can read. Beside the fields of the specification, a client may set ours in `_meta`:

    "_meta": {"io.toolcrib/timeout": 20, "io.toolcrib/idempotencyKey": "order-17", "io.toolcrib/dryRun": true,
              "io.toolcrib/version": "2.1", "io.toolcrib/session": "conversation-4"}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct

from ...core.call import TRACE
from ...core.json import as_mapping, dumps, loads
from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import CODES
from ..jsonrpc import CLIENT_INFO_KEY, INVALID_PARAMS, LOG_LEVEL_KEY, TASKS_EXTENSION, TASKS_VERSION, RpcError
from .exchange import Exchange, supports

_TEXTS: Final = (*TRACE, LOG_LEVEL_KEY)
_PREFIX: Final = "io.toolcrib/"
_OF_HOP: Final = regex(
    r"io\.toolcrib/|io\.modelcontextprotocol/|.*(?:authorization|cookie|token$|secret|passw|credential|api.?key|bearer)",
    re.IGNORECASE | re.DOTALL,
)
"""Keys of `_meta` that are for the gateway alone: ours, those of MCP, and credentials (security.md T9)."""
_KEY_LENGTH: Final = 255
_CLIENT_LENGTH: Final = 100

CAPABILITY: Final[Mapping[str, Any]] = {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}
"""Server capability of revision 2025-11-25."""
DECLARED: Final[Mapping[str, Any]] = {"extensions": {TASKS_EXTENSION: {}}}
"""Client capability of the extension, in the stateless era."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """One `tools/call` request, checked for its shape and nothing more."""

    name: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    """The client's `_meta` for the tool's own server: all but the keys that speak to the gateway (`_OF_HOP`)."""
    progress_token: str | int | None = None
    timeout: float | None = None
    """Seconds, from `_meta` `io.toolcrib/timeout`."""
    idempotency_key: str = ""
    dry_run: bool = False
    version: str = ""
    """Of the tool, from `_meta` `io.toolcrib/version`."""
    session_key: str = ""
    """`_meta` `io.toolcrib/session`: the conversation that a client of the stateless era names."""
    input_responses: Mapping[str, Any]
    """Answers of the client to the questions of an `input_required` result, by the keys of the questions."""
    request_state: str | None
    """The token that came with those questions (`suspended_calls.StateSigner`); None at the first attempt."""
    takes_task: bool = False
    """Whether the client may be answered with a task."""
    background: bool = False
    """Whether it asked for one."""
    origin: str = "mcp"
    """`rest` for a call by REST."""
    client: str = ""
    """Name and version of the client (`client_name`)."""
    id: str = ""
    """See `Exchange.call_id`."""
    is_again: bool = False
    """See `Exchange.is_again`."""
    method: str = "tools/call"
    """The method that it came by: reading a resource and getting a prompt run like a call (`resources`)."""


def client_name(info: object) -> str:
    """Return `name/version` of an `Implementation`, at most 100 characters; empty where it has no name."""
    fields = as_mapping(info)
    name, version = fields.get("name"), fields.get("version")
    if not isinstance(name, str) or not name:
        return ""
    return (f"{name}/{version}" if isinstance(version, str) and version else name)[:_CLIENT_LENGTH]


def _invalid(message: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"Invalid params: {message}")


def read_call(
    params: Mapping[str, Any], *, log_level: str = "", client: str | None = None, exchange: Exchange | None = None
) -> ToolCall:
    """Check the parameters of a `tools/call`. Raises `RpcError` with INVALID_PARAMS, naming the field.

    `log_level` is the session's: a server of the stateless era logs only for a request that says at which level.
    `client` is the session's too; None reads it from the request, where the stateless era has it.
    """
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise _invalid('"name" must be a string')
    if arguments is not None and not isinstance(arguments, dict):
        raise _invalid('"arguments" must be an object')
    meta = _object(params.get("_meta", {}), "_meta")
    state = params.get("requestState")
    if state is not None and not isinstance(state, str):
        raise _invalid('"requestState" must be a string')
    handed_on = {
        key: value
        for key, value in meta.items()
        if (isinstance(value, str) if key in _TEXTS else not _OF_HOP.match(key))
    }
    if exchange is not None and exchange.trace and "traceparent" not in handed_on:
        handed_on = {**exchange.trace, **handed_on}
    if log_level:
        handed_on[LOG_LEVEL_KEY] = log_level
    fields: dict[str, Any] = _fields_of(meta) if meta else {}
    if client is not None:
        fields["client"] = client
    if exchange is not None and exchange.call_id:
        fields["id"], fields["is_again"] = exchange.call_id, exchange.is_again
    return ToolCall(
        name=name,
        arguments=cast("Mapping[str, Any]", arguments or {}),
        meta=handed_on,
        input_responses=_responses(params),
        request_state=state,
        **fields,
    )


def _fields_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that `_meta` sets. Raises `RpcError`."""
    return {
        "progress_token": _progress_token(meta),
        "timeout": _timeout(meta),
        "idempotency_key": _short(meta, "idempotencyKey"),
        "dry_run": _flag(meta, "dryRun"),
        "version": _short(meta, "version"),
        "session_key": _short(meta, "session"),
        "client": client_name(meta.get(CLIENT_INFO_KEY)),
    }


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(f'"{where}" must be an object')
    return cast("dict[str, Any]", value)


def _progress_token(meta: Mapping[str, Any]) -> str | int | None:
    token = meta.get("progressToken")
    if token is None or (isinstance(token, str | int) and not isinstance(token, bool)):
        return token
    raise _invalid('"_meta.progressToken" must be a string or an integer')


def _timeout(meta: Mapping[str, Any]) -> float | None:
    value = meta.get(f"{_PREFIX}timeout")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise _invalid(f'"_meta.{_PREFIX}timeout" must be a number of seconds above 0')


def _short(meta: Mapping[str, Any], key: str) -> str:
    value = meta.get(_PREFIX + key, "")
    if isinstance(value, str) and len(value) <= _KEY_LENGTH:
        return value
    raise _invalid(f'"_meta.{_PREFIX}{key}" must be a string of at most {_KEY_LENGTH} characters')


def _flag(meta: Mapping[str, Any], key: str) -> bool:
    value = meta.get(_PREFIX + key, False)
    if isinstance(value, bool):
        return value
    raise _invalid(f'"_meta.{_PREFIX}{key}" must be true or false')


def _responses(params: Mapping[str, Any]) -> Mapping[str, Any]:
    if "inputResponses" not in params:
        return {}
    given = _object(params["inputResponses"], "inputResponses")
    for key, response in given.items():
        _object(response, f"inputResponses.{key[:60]}")
    return given


def result_body(result: ToolResult, *, modern: bool, stamp: Mapping[str, Any] | None = None) -> bytes:
    """Return the JSON text of a `CallToolResult`. `stamp` is what every result's `_meta` carries besides its own.

    The handshake era knows structured content only as an object; any other stays in the text alone.
    """
    structured = result.structured_content
    shown: dict[str, Any] = {"resultType": "complete"} if modern else {}
    shown["content"] = result.content
    if structured is not None and (modern or isinstance(structured, Mapping)):
        shown["structuredContent"] = structured
    shown["isError"] = result.error is not None
    meta = result_meta(result)
    if stamp:
        meta.update(stamp)
    if meta:
        shown["_meta"] = meta
    return dumps(shown)


def result_meta(result: ToolResult) -> dict[str, Any]:
    """Return the result's own metadata under our prefix, beside the `_meta` of the tool's server."""
    meta: dict[str, Any] = {}
    for key, value in result.meta.items():
        if key == "_meta":
            meta.update(value)
        else:
            meta[key if "/" in key else _PREFIX + key] = value
    if result.error is not None:
        error = result.error.to_json()
        meta[f"{_PREFIX}error"] = {**error, "retryable": CODES[result.error.code].retryable}
    return meta


def takes_tasks(declared: Mapping[str, Any]) -> bool:
    """Whether a client of the stateless era that declared `declared` accepts a task in place of a result."""
    return supports(declared, DECLARED)


def wants_task(params: Mapping[str, Any]) -> bool:
    """Whether a `tools/call` of revision 2025-11-25 asks for a task.

    Raises `RpcError` with INVALID_PARAMS if `task` is not an object. Its `ttl` is ignored: the answer has ours.
    """
    task = params.get("task")
    if task is not None and not isinstance(task, dict):
        raise RpcError(INVALID_PARAMS, 'Invalid params: "task" must be an object')
    return task is not None


def handshake_listing(listing: bytes, tools: tuple[Tool, ...], version: str) -> bytes:
    """Return the listing as clients of `version` can read it.

    The handshake era knows output schemas of objects alone, and its SDKs refuse a whole list for another one. In
    revision 2025-11-25 tools that move to the background by themselves have `execution.taskSupport`: clients gain by
    asking for those as tasks; any other tool can be called as a task as well.
    """
    other = {tool.name for tool in tools if tool.output_schema and tool.output_schema.get("type") != "object"}
    tasks = {tool.name for tool in tools if tool.execution.background_after is not None}
    if version != TASKS_VERSION:
        tasks.clear()
    if not other and not tasks:
        return listing
    definitions = cast("list[dict[str, Any]]", loads(listing))
    for definition in definitions:
        if definition["name"] in other:
            del definition["outputSchema"]
        if definition["name"] in tasks:
            definition["execution"] = {"taskSupport": "optional"}
    return dumps(definitions)


def read_task_id(params: Mapping[str, Any]) -> str:
    """Return the task that the parameters name. Raises `RpcError` with INVALID_PARAMS."""
    task = params.get("taskId")
    if not isinstance(task, str):
        raise RpcError(INVALID_PARAMS, 'Invalid params: "taskId" must be a string')
    return task
