"""Arguments of `tool_exec`: the op, its arguments and the options, in every shape that models send."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from ...core.json import read_json
from ...core.patterns import regex
from ...core.schema.repair import WRAPPERS
from ...errors import ToolFailure
from ..base import Unwrapped

MAX_KEY: Final = 255
"""Characters of an idempotency key."""

_OPS: Final = ("op", "operation", "tool", "tool_name", "name", "path")
_OWN: Final = ("idempotency_key", "dry_run")
_NOISE: Final = "\"'`.,;: \t\r\n"
_CALLED: Final = regex(r"\s*tool_exec\s*\(\s*")
_REST: Final = regex(r"[\s({<,\"'`].*", re.DOTALL)
_AROUND: Final = regex(r"[^\w./-]")
_DOTTED: Final = regex(r"[A-Za-z]\w*(?:\.[\w-]+)+")
_ARGUMENT: Final = regex(r"[({]\s*[^\s(){}]")
"""An argument behind an op, in the notation of a call or of an object."""
_BOOLEANS: Final = {"true": True, "false": False}


def unwrap(arguments: Any, shown: str) -> Unwrapped:
    """Return the call behind the arguments of `tool_exec`.

    Accepted: an object or JSON text of one, the whole wrapped in `args` or the like, the tool's arguments as an object,
    as JSON text (also encoded twice) or flat beside `op`, another word for `op`, and an op with quotes, brackets or
    text around it. Raises `ToolFailure` with field errors for anything else.
    """
    given = _unwrapped(_object(arguments) or {})
    whole = _object(given.get("op")) or {}
    if isinstance(whole.get("op"), str):
        given = {**given, **whole}
    key, op = op_of(given)
    if not op:
        raise _wrong(shown, [_field("op", "required", "op is required: the op to run")])
    if not given.get("args"):
        given = _with_args(shown, given, given[key].partition(op)[2])
    rest = {name: value for name, value in given.items() if name != key}
    options, wrong = _options(rest)
    if wrong:
        raise _wrong(shown, wrong)
    inner = _inner({name: value for name, value in rest.items() if name not in options})
    return Unwrapped(name=op, arguments=inner, options={name: value for name, value in options.items() if value})


def op_of(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key that holds the op, and the op without surrounding text."""
    for key in ("op",) if isinstance(given.get("op"), str) else _OPS:
        value = given.get(key)
        if isinstance(value, str) and (op := _clean(value)):
            return key, op
    return "", ""


def _clean(text: str) -> str:
    """Return the op without what models write around it: quotes, brackets, a prefix, a sentence."""
    text = text.strip(_NOISE)
    inside = _DOTTED.search(text) if _AROUND.search(text) else None
    if inside is not None:
        return inside[0]
    op = _CALLED.sub("", text.strip(_NOISE)).removeprefix("op:").strip(_NOISE)
    return _REST.sub("", op).strip(_NOISE)


def _with_args(shown: str, given: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the call with the arguments that the text behind its op holds; unreadable ones raise `ToolFailure`."""
    bracket = _ARGUMENT.search(text)
    if bracket is None:
        return dict(given)
    first, last = text.find("{"), text.rfind("}")
    ends = (last + 1, last) if 0 <= first < last else ()
    found = next((one for end in ends if (one := _object(text[first:end])) is not None), None)
    if found is None:
        raise _wrong(
            shown, [_field("op", "format", f"op holds more than an op: put {text.strip(_NOISE)[:80]} into args")]
        )
    return {**given, "args": found}


def _options(rest: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the options of the call itself, and their errors; `null` counts as not set."""
    options: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []
    if "dry_run" in rest:
        flag = rest["dry_run"]
        flag = _BOOLEANS.get(flag.strip().lower(), flag) if isinstance(flag, str) else flag
        if not isinstance(flag, bool | None):
            wrong.append(_field("dry_run", "type", "dry_run must be true or false"))
        options["dry_run"] = flag
    if "idempotency_key" in rest:
        key = rest["idempotency_key"]
        if not isinstance(key, str | None) or len(key or "") > MAX_KEY:
            message = f"idempotency_key must be text of at most {MAX_KEY} characters"
            wrong.append(_field("idempotency_key", "type", message))
        options["idempotency_key"] = key
    return options, wrong


def _inner(rest: dict[str, Any]) -> Any:
    """Return the tool's arguments: those under `args`, and those flat beside it."""
    if "args" in rest:
        wrapper = "args"
    else:
        wrapper = next((name for name in WRAPPERS if name in rest and _object(rest[name]) is not None), "")
    if not wrapper:
        return rest
    flat = {name: value for name, value in rest.items() if name != wrapper}
    inner = rest[wrapper]
    found = {} if inner is None else _object(inner)
    if found is None:
        return inner if not flat else {**flat, wrapper: inner}  # the schema check reports the defect
    return {**found, **flat}


def _object(value: Any) -> dict[str, Any] | None:
    """Return an object, or the one that a text holds, also encoded twice; None for anything else."""
    for _ in range(2):
        if isinstance(value, str):
            try:
                value = read_json(value, strict=True)
            except ValueError:
                return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _unwrapped(given: dict[str, Any]) -> dict[str, Any]:
    """Take the whole call out of a wrapper: the only key, or one beside nothing but options."""
    wrappers = [name for name in given if name in WRAPPERS]
    if len(wrappers) != 1 or any(name not in _OWN for name in given if name not in wrappers):
        return given
    inner = _object(given[wrappers[0]]) or {}
    if not any(isinstance(inner.get(name), str) for name in _OPS[:4]):
        return given
    return {**{name: value for name, value in given.items() if name in _OWN}, **inner}


def _field(path: str, keyword: str, message: str) -> dict[str, Any]:
    return {"path": path, "keyword": keyword, "message": message}


def _wrong(shown: str, fields: list[dict[str, Any]]) -> ToolFailure:
    return ToolFailure(
        "invalid_arguments",
        f"{shown} did not run: {'; '.join(str(field['message']) for field in fields)}",
        hint=f'for example {shown}({{"op": "<group>.<entity>.<action>", "args": {{}}}})',
        details={"field_errors": fields},
    )
