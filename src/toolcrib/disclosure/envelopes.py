"""The shapes in which results reach the model: one internal result, five vocabularies, one table of codes.

    mcp        the result as it is: content, structured content, `isError`
    error      seed 000: the tool's own result, or `{"error": text}`
    gateway    seed 001: `{op, ok, result, meta}` or `{op, ok, error: {code, message, details, help_path}}`
    text       seed 002: one string, and whether it is an error
    outcome    seed 003: the tool's own result, or `{"error": text}`; a refusal adds `_permission`
    typed      seed 004: the tool's own result, or `{success: false, error, error_type, recovery_hint?, …}`

An envelope changes what the model reads. The result's error, its metadata and its record stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ..core.call import Call
from ..core.json import dumps
from ..core.result import ToolError, ToolResult
from ..errors import CODES
from .verbs import SOURCE

__all__ = ["ENVELOPES", "Envelope", "op_name"]

Envelope = Callable[[Call, ToolResult], ToolResult]

_DENIALS: Final = ("denied", "not_in_scope", "disabled")
_RATE_LIMIT_SECONDS: Final = 30
"""Seed 004: what a rate limit that names no time is told to wait."""


def _mcp(call: Call, result: ToolResult) -> ToolResult:
    """Return the result as it is."""
    return result


def _error(call: Call, result: ToolResult) -> ToolResult:
    """Seed 000: an error is an object with one key."""
    if result.error is None:
        return result
    return _as_json(result, {"error": _sentence(result.error)})


def _gateway(call: Call, result: ToolResult) -> ToolResult:
    """Seed 001: what came through `exec` is wrapped, success and failure; help and batches speak for themselves."""
    if call.tool is not None and call.tool.source == SOURCE and result.error is None:
        return result
    op = call.requested or (op_name(call) if call.tool else call.name)
    meta = result.meta
    if result.error is not None:
        failure = result.error
        code = CODES[failure.code].gateway
        told: dict[str, Any] = {"code": code, "message": failure.message}
        if failure.details:
            told["details"] = failure.details
        told["help_path"] = op_name(call) if call.tool is not None and code != "NOT_FOUND" else "root"
        return _as_json(result, {"op": op, "ok": False, "error": told})
    warnings = [*meta.get("warnings", ()), *(f"arguments repaired: {repair}" for repair in call.repairs)]
    shown: dict[str, Any] = {
        "trace_id": f"tr_{meta.get('call_id', call.id)}",
        "latency_ms": meta.get("latency_ms", 0),
        "warnings": warnings,
    }
    executed = op_name(call)
    if executed != op:
        shown["executed_op"] = executed
    if meta.get("replayed"):
        shown["replayed"] = True
    return _as_json(result, {"op": op, "ok": True, "result": _plain(result), "meta": shown})


def _text(call: Call, result: ToolResult) -> ToolResult:
    """Seed 002: an error is a plain sentence; a success is what it was, without structured content beside it."""
    if result.error is None:
        return replace(result, structured_content=None) if call.verb or _is_ours(call) else result
    if result.error.code == "not_found" and call.tool is None:
        told = f"Unknown tool: {call.requested or call.name}"
    elif result.error.code == "denied" and call.decision is not None and call.decision.effect == "ask":
        told = "Tool call denied by user."
    else:
        told = _sentence(result.error)
    return replace(result, content=({"type": "text", "text": told},), structured_content=None)


def _outcome(call: Call, result: ToolResult) -> ToolResult:
    """Seed 003: `(success, result)`, where the result of a failure is an object that says why."""
    if result.error is None:
        return result
    failure = result.error
    if failure.code in _DENIALS:
        rule = call.decision.rule if call.decision else failure.code
        permission = {"decision": "deny", "reason": failure.message, "method": rule}
        return _as_json(result, {"error": f"Permission denied: {failure.message}", "_permission": permission})
    if failure.code == "not_found" and call.tool is None:
        return _as_json(result, {"error": f"No executor registered for {call.name}", **_hint(failure, "hint")})
    return _as_json(result, {"error": failure.message, **_hint(failure, "hint")})


def _typed(call: Call, result: ToolResult) -> ToolResult:
    """Seed 004: an error has a type, and what to do about it."""
    if result.error is None:
        return result
    failure = result.error
    told: dict[str, Any] = {"success": False, "error": failure.message, "error_type": CODES[failure.code].selection}
    told |= _hint(failure, "recovery_hint")
    wait = failure.details.get("retry_after_seconds")
    if wait is None and failure.code in ("overloaded", "budget_exceeded"):
        wait = _RATE_LIMIT_SECONDS
    if wait is not None:
        told["retry_after_seconds"] = wait
    return _as_json(result, told)


ENVELOPES: Final[Mapping[str, Envelope]] = MappingProxyType(
    {"error": _error, "gateway": _gateway, "mcp": _mcp, "outcome": _outcome, "text": _text, "typed": _typed}
)


def op_name(call: Call) -> str:
    """Return the op of the tool that a call means, else the name it has."""
    return (call.tool.op or call.tool.name) if call.tool is not None else call.name


def _is_ours(call: Call) -> bool:
    return call.tool is not None and call.tool.source == SOURCE


def _plain(result: ToolResult) -> Any:
    """Return a success as one JSON value: the structured content, else the text, else the content blocks."""
    if result.structured_content is not None:
        return result.structured_content
    if all(block.get("type") == "text" for block in result.content):
        return result.text
    return list(result.content)


def _sentence(failure: ToolError) -> str:
    return f"{failure.message}\n{failure.hint}" if failure.hint else failure.message


def _hint(failure: ToolError, key: str) -> dict[str, str]:
    return {key: failure.hint} if failure.hint else {}


def _as_json(result: ToolResult, value: Mapping[str, Any]) -> ToolResult:
    media = tuple(block for block in result.content if block.get("type") != "text")
    shown = {"type": "text", "text": dumps(value).decode()}
    return replace(result, content=(shown, *media), structured_content=dict(value))
