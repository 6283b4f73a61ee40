"""Envelopes: the shapes in which results reach the model: one internal result, five vocabularies, one table of codes.

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
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, cast

from ..core.call import OF_CLIENTS, Call
from ..core.json import dumps, encodable, read_json
from ..core.result import ToolError, ToolResult
from ..core.similar import nearest
from ..errors import CODES
from ..results.error_advice import ADVICE, error_type, retry_after
from .meta_tools import SOURCE

Envelope = Callable[[Call, ToolResult], ToolResult]

_MAX_NAME_LENGTH: Final = 200
"""Characters of a name that does not exist that an error repeats."""

KEEP_SUCCESSES: Final = frozenset({"error", "mcp", "text"})
"""Envelopes that leave the success of a tool unchanged, if it was called by its own name and is not a meta-tool."""


def _mcp(call: Call, result: ToolResult) -> ToolResult:
    """Return the result unchanged."""
    return result


def _error(call: Call, result: ToolResult) -> ToolResult:
    """Seed 000: an error is an object with one key."""
    failure = result.error
    if failure is None:
        return result
    if _is_unknown(call, failure):
        return _replace_content(result, {"error": _unknown_command(call.route.requested or call.name, failure)})
    return _replace_content(result, {"error": _sentence(failure)})


def _is_unknown(call: Call, failure: ToolError) -> bool:
    """Whether no tool has the name; a tool without the version that is asked for is known."""
    return failure.code == "not_found" and call.tool is None and failure.details.get("reason") != "version"


def _unknown_command(name: str, failure: ToolError) -> str:
    """Seed 000's message for an unknown name, with the nearest known one."""
    close = nearest(name, failure.details.get("nearest", ()))
    meant = f". Did you mean {', '.join(close)}?" if close else ""
    return f"Unknown command: {name[:_MAX_NAME_LENGTH]}{meant}"


def _gateway(call: Call, result: ToolResult) -> ToolResult:
    """Seed 001: results of `exec` are wrapped, success and failure; help and batches have their own shape.

    Help and batches answer in their own form; everything else is `{op, ok, result | error, meta}`.
    """
    is_verb = _is_meta_tool(call) and call.route.verb != "exec"
    if is_verb and (result.error is None or result.structured_content is not None):
        return result
    is_clients = call.origin in OF_CLIENTS and not call.route.verb
    if result.error is None and is_clients and call.target.output_schema is not None:
        return result  # an MCP client was promised this tool's own structure and takes nothing else
    reading, meta = call.route.reading or {}, result.meta
    op = str(reading.get("op") or call.name)[:_MAX_NAME_LENGTH]
    if result.error is not None:
        return _replace_content(result, {"op": op, "ok": False, "error": _gateway_error(call, result.error)})
    value, warnings = _json_value(result), [*meta.get("warnings", ()), *reading.get("warnings", ())]
    warnings += [f"arguments repaired: {repair}" for repair in call.changes.repairs]
    warnings += [*([call.changes.edited] if call.changes.edited else []), *call.changes.unused]
    if call.options.dry_run and isinstance(value, dict):
        described = cast("dict[str, Any]", value)
        value = {"dry_run": True, "tool_name": call.target.name, "args": described.get("arguments")}
        warnings.append(f"dry run: nothing was changed ({described.get('rule')})")
    if reading.get("fallback"):
        marked = cast("dict[str, Any]", value) if isinstance(value, dict) else {"items": value}
        value = {**marked, "_fallback": reading["fallback"]}
    shown: dict[str, Any] = {
        "trace_id": f"tr_{meta.get('call_id', call.id)}",
        "latency_ms": meta.get("latency_ms", 0),
        "warnings": warnings,
    }
    if _op_name(call) != op:
        shown["executed_op"] = _op_name(call)
    if meta.get("replayed"):
        shown["replayed"] = True
    return _replace_content(result, {"op": op, "ok": True, "result": value, "meta": shown})


def _gateway_error(call: Call, failure: ToolError) -> dict[str, Any]:
    """Return code, message, details and help path: the op that was to run, or the root without one.

    A hint is part of the message, but for that of arguments which the schema refuses: it repeats the schema, which help
    returns.
    """
    code = CODES[failure.code].gateway
    body: dict[str, Any] = {"code": code, "message": failure.message}
    is_by_schema = "example" in failure.details
    if failure.hint and not is_by_schema and (code != "VALIDATION_ERROR" or "field_errors" in failure.details):
        body["message"] = f"{failure.message}{' ' if failure.message.endswith('?') else '; '}{failure.hint}"
    if failure.details:
        body["details"] = failure.details
    if code == "VALIDATION_ERROR" and "field_errors" not in failure.details:  # of the arguments as a whole
        whole = {"path": "", "keyword": "invalid", "message": failure.hint or failure.message}
        body["details"] = {**failure.details, "field_errors": [whole]}
    is_known = call.tool is not None or (
        failure.code == "unavailable" and call.route.op
    )  # it cannot run here, and has help
    has_help = not _is_meta_tool(call) or (call.tool is not None and bool(call.tool.op))
    body["help_path"] = _op_name(call) if is_known and has_help else "root"
    return body


def _text(call: Call, result: ToolResult) -> ToolResult:
    """Seed 002: an error is a plain sentence; a success stays, without structured content beside it."""
    failure = result.error
    if failure is None:
        return result.evolve(structured_content=None) if call.route.verb or _is_meta_tool(call) else result
    body = _failure_sentence(call, failure) or result.text.removeprefix(f"{failure.code}: ") or _sentence(failure)
    media = tuple(block for block in result.content if block.get("type") != "text")
    return result.evolve(content=({"type": "text", "text": encodable(body)}, *media), structured_content=None)


def _failure_sentence(call: Call, failure: ToolError) -> str:
    """Return seed 002's sentence for a failure; empty if it has none of its own and the text itself is one."""
    if failure.code == "not_in_scope" or _is_unknown(call, failure):
        near = f"\n{failure.hint}" if failure.details.get("nearest") else ""
        name = (call.route.requested or call.name)[:_MAX_NAME_LENGTH]
        return f"Unknown tool: {name if name.isprintable() else ascii(name)}{near}"
    if failure.code == "internal":
        return f"Internal error: {failure.message}"
    if failure.code != "denied":
        return ""
    reason = failure.details.get("reason")
    if reason == "refused":
        comment = failure.details.get("comment")
        return f"Tool call denied by user.\n{comment}" if comment else "Tool call denied by user."
    if reason is None and "rule" in failure.details:
        return f"Tool call denied by policy: {_sentence(failure)}"
    return f"Tool call denied: {_sentence(failure)}"


def _outcome(call: Call, result: ToolResult) -> ToolResult:
    """Seed 003: `(success, result)`, where the result of a failure is an object with the reason."""
    if result.error is None:
        return result
    failure = result.error
    if failure.code == "denied":
        rule = call.decision.rule if call.decision else failure.code
        permission = {"decision": "deny", "reason": failure.message, "method": rule}
        return _replace_content(result, {"error": f"Permission denied: {failure.message}", "_permission": permission})
    if failure.code == "not_found" and call.tool is None:
        name = call.route.requested or call.name
        return _replace_content(
            result, {"error": f"No executor registered for {name[:_MAX_NAME_LENGTH]}", **_hint(failure, "hint")}
        )
    return _replace_content(result, {"error": failure.message, **_hint(failure, "hint")})


def _typed(call: Call, result: ToolResult) -> ToolResult:
    """Seed 004: an error has a type, and a recovery hint."""
    if result.error is None:
        return result
    failure = result.error
    body: dict[str, Any] = {"success": False, "error": failure.message, "error_type": error_type(failure)}
    advice = ADVICE.get(result.meta.get("recovery", ""), "")
    hint = "\n".join(part for part in (failure.hint, advice) if part)
    body |= {"recovery_hint": hint} if hint else {}
    wait = retry_after(failure)
    if wait is not None:
        body["retry_after_seconds"] = wait
    return _replace_content(result, body)


ENVELOPES: Final[Mapping[str, Envelope]] = MappingProxyType(
    {"error": _error, "gateway": _gateway, "mcp": _mcp, "outcome": _outcome, "text": _text, "typed": _typed}
)


def _op_name(call: Call) -> str:
    """Return the op of the tool that a call means, else the name it has."""
    return call.route.op or (call.tool.op if call.tool is not None else "") or call.name


def _is_meta_tool(call: Call) -> bool:
    return call.tool is not None and call.tool.source == SOURCE


def _json_value(result: ToolResult) -> Any:
    """Return a success as one JSON value: the structured content, else the text, else a description of the blocks.

    Text that is a JSON array or object is parsed: a tool may return one without a typed result. So is a number or a
    boolean whose source says that the text is its JSON: an id that is text may look like one. Images and the like
    stay blocks of their own beside the JSON, which only names them.

    One value for the envelope, of a result of any form.
    """
    if result.structured_content is not None:
        return result.structured_content
    if any(block.get("type") not in ("text", "resource_link") for block in result.content):
        return [{key: block[key] for key in ("type", "text", "mimeType") if key in block} for block in result.content]
    if result.text[:1] in ("[", "{") or result.meta.get("format") == "json":
        with suppress(ValueError):
            return read_json(result.text, limit=len(result.text))
    return result.text


def _sentence(failure: ToolError) -> str:
    return f"{failure.message}\n{failure.hint}" if failure.hint else failure.message


def _hint(failure: ToolError, key: str) -> dict[str, str]:
    return {key: failure.hint} if failure.hint else {}


def _replace_content(result: ToolResult, value: Mapping[str, Any]) -> ToolResult:
    media = tuple(block for block in result.content if block.get("type") != "text")
    try:
        text = dumps(value)
    except TypeError:  # a name that no tool has may be anything
        value = encodable(value)
        text = dumps(value)
    return result.evolve(content=({"type": "text", "text": text.decode()}, *media), structured_content=dict(value))
