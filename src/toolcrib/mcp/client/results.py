"""Conversion of a server's answer to a `ToolResult`. Nothing is trusted: a wrong type is an error with its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ...core.result import ToolError, ToolResult
from ...core.schema import FieldError, Validator
from ...errors import ToolFailure
from ..jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_CANCELLED, RpcError, mapping
from .server_requests import elicitation_from
from .spec import ServerSpec
from .spooled_result import Spilled

__all__ = ["asked_for_input", "of_error", "of_reply", "of_spilled"]

_MESSAGE: Final = 500
"""Characters of a failure's own text that are repeated in the error's message."""

_OURS: Final = "io.modelcontextprotocol/"


def of_reply(reply: Mapping[str, Any], spec: ServerSpec, output: Validator | None) -> ToolResult:
    """Return the outcome that a `tools/call` result means; raises `ToolFailure` when it means nothing."""
    if (asked := asked_for_input(reply, spec)) is not None:
        return asked
    content = _content(reply)
    structured = reply.get("structuredContent")
    meta = _meta(reply)
    if reply.get("isError") is True:
        error = ToolError(code="tool_error", message=_message(content))
        return ToolResult(content=content, structured_content=structured, error=error, meta=meta)
    if output is not None and (wrong := _output_error(structured, "structuredContent" in reply, output)):
        raise ToolFailure("tool_error", wrong, hint="The tool ran; its output breaks its own outputSchema.")
    return ToolResult(content=content, structured_content=structured, meta=meta)


def asked_for_input(reply: Mapping[str, Any], spec: ServerSpec) -> ToolResult | None:
    """Return the outcome of a reply that asks for input first; None when it does not. Raises `ToolFailure`."""
    kind = reply.get("resultType", "complete")
    if kind == "input_required":
        return ToolResult(input_required=_input_required(reply, spec))
    if kind != "complete":
        raise ToolFailure("tool_error", f"the server answered with a result of unknown type {str(kind)[:60]!r}")
    return None


def of_error(error: RpcError, tool: str) -> ToolFailure:
    """Return the failure that a JSON-RPC error means."""
    details: dict[str, Any] = {"rpc_code": error.code}
    if error.data is not None:
        details["data"] = error.data
    if error.code == METHOD_NOT_FOUND:
        return ToolFailure(
            "unavailable", f"the server does not know {tool!r} any more: {error.message}", details=details
        )
    if error.code == REQUEST_CANCELLED:
        return ToolFailure("cancelled", f"the server cancelled the call: {error.message}", details=details)
    code = "invalid_arguments" if error.code == INVALID_PARAMS else "tool_error"
    return ToolFailure(code, f"the server refused the call: {error.message}", details=details)


def of_spilled(spilled: Spilled) -> ToolResult:
    """Return the result whose output is on disk."""
    error = None
    if spilled.is_error:
        error = ToolError(code="tool_error", message=spilled.spooled.head[:_MESSAGE] or "the tool failed")
    return ToolResult(spooled=spilled.spooled, error=error)


def _content(reply: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    value = reply.get("content")
    if value is None and "structuredContent" in reply:
        return ()
    if not isinstance(value, list):
        raise ToolFailure("tool_error", "the server answered with a malformed result: `content` is not a list")
    blocks = cast("list[Any]", value)
    for block in map(mapping, blocks):
        kind = block.get("type")
        if not isinstance(kind, str):
            raise ToolFailure("tool_error", "the server answered with a malformed result: a block without a type")
        if kind == "text" and not isinstance(block.get("text"), str):
            raise ToolFailure("tool_error", "the server answered with a malformed result: a text block without text")
    return tuple(blocks)


def _message(content: tuple[Mapping[str, Any], ...]) -> str:
    text = "\n".join(block["text"] for block in content if block["type"] == "text").strip()
    return text[:_MESSAGE] or "the tool failed and gave no reason"


def _meta(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the server's own `_meta` under one key, without what the protocol put there."""
    given = {key: value for key, value in mapping(reply.get("_meta")).items() if not key.startswith(_OURS)}
    return {"_meta": given} if given else {}


def _output_error(structured: Any, given: bool, output: Validator) -> str:
    if not given:
        return "the tool declares an outputSchema but gave no structuredContent"
    errors = [error for error in output.check(structured) if error.keyword != "limit"]
    return (
        "the structuredContent is not what the tool promised: " + "; ".join(map(_shown, errors[:3])) if errors else ""
    )


def _shown(error: FieldError) -> str:
    return f"{error.path}: {error.message}" if error.path else error.message


def _input_required(reply: Mapping[str, Any], spec: ServerSpec) -> Mapping[str, Any]:
    """Return the server's question; what it asks a person carries the server's name."""
    if not spec.relay:
        raise ToolFailure("denied", "the server asks for input, which its configuration does not let through")
    asked = mapping(reply.get("inputRequests"))
    if not asked and not isinstance(reply.get("requestState"), str):
        raise ToolFailure("tool_error", "the server asks for input but says neither what nor in which state")
    requests: dict[str, Any] = {}
    for key, one in asked.items():
        request = mapping(one)
        if request.get("method") == "elicitation/create":
            request = {**request, "params": elicitation_from(spec.name, mapping(request.get("params")))}
        requests[key] = request
    return {**reply, "inputRequests": requests} if requests else reply
