"""JSON-RPC as bytes: reading a message that may be broken, and naming what can go wrong with a request.

Nothing here trusts the far end: what is no message is an error value, never an exception of a parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import orjson

from ...core.json import MAX_DEPTH, JsonError, JsonTooDeep, read_json
from ...errors import ToolFailure

__all__ = [
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "LinkLost",
    "RpcError",
    "broken_answer",
    "decode",
    "encode",
    "id_of_broken",
    "mapping",
    "messages_in",
    "outcome_of",
]

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

_LENIENT_BYTES: Final = 1024 * 1024
"""The second, forgiving parser is slow; longer messages get only the strict one."""

_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")')


class RpcError(Exception):
    """The far end answered a request with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def of(cls, error: Any) -> RpcError:
        """Read the `error` member of an answer, whatever it is."""
        shown = mapping(error)
        code, message = shown.get("code"), shown.get("message")
        number = code if isinstance(code, int) else 0
        text = message if isinstance(message, str) and message else "the server gave no reason"
        return cls(number, text[:4000], shown.get("data"))


class LinkLost(Exception):
    """The connection ended before the answer came.

    `written` is False when no byte of the request reached the far end, so that it cannot have run.
    """

    def __init__(self, reason: str, *, written: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.written = written


def encode(message: Mapping[str, Any]) -> bytes:
    """Return one line, without its end. Raises `TypeError` for what JSON cannot hold."""
    return orjson.dumps(message, default=_plain)


def decode(text: bytes) -> Any:
    """Parse one message; raises `ValueError`.

    Servers in the wild write NaN, lone surrogates and wrong UTF-8: a short message that the strict parser refuses is
    read again with those replaced. Its size was limited while it arrived.
    """
    try:
        return read_json(text, limit=len(text))
    except JsonTooDeep:
        raise
    except ValueError:
        if len(text) > _LENIENT_BYTES:
            raise
    try:
        value = json.loads(text.decode("utf-8", "replace"), parse_constant=lambda _: None)
        mended = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError as error:
        raise JsonTooDeep(f"nested deeper than {MAX_DEPTH} levels") from error
    return read_json(mended, limit=len(mended))


def id_of_broken(text: bytes, error: ValueError) -> int | str | None:
    """Guess which request a message answers that `decode` refused with `error`; None when it does not say."""
    if isinstance(error, JsonError) and error.value is not None:
        known = mapping(error.value).get("id")
        return known if isinstance(known, int | str) else None
    found = _ID.search(text[:4096]) or _ID.search(text[-256:])
    if found is None:
        return None
    try:
        value: Any = orjson.loads(found[1])
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None


def messages_in(body: Any) -> list[Any]:
    """Return the messages of a body: one, or those of a batch (revision 2025-03-26)."""
    return cast("list[Any]", body) if isinstance(body, list) else [body]


def outcome_of(message: Mapping[str, Any]) -> Mapping[str, Any] | Exception:
    """Return the result of an answer, or the error it carries, or that it carries neither."""
    if message.get("error") is not None:
        return RpcError.of(message["error"])
    result = message.get("result")
    if type(result) is dict or isinstance(result, Mapping):
        return cast("Mapping[str, Any]", result)
    return ToolFailure("tool_error", f"the server answered with a result that is no object but {_kind(result)}")


def broken_answer(error: ValueError) -> ToolFailure:
    """Return the failure of a request whose answer `decode` refused with `error`."""
    if isinstance(error, JsonTooDeep):
        return ToolFailure(
            "too_large",
            f"the server answered with JSON nested deeper than {MAX_DEPTH} levels; the tool may have run",
            hint="Check the effect before calling again; ask for a smaller or flatter part of the data.",
        )
    return ToolFailure(
        "tool_error",
        "the server answered with a message that is not valid JSON; the tool may have run",
        hint="This is a fault of the server. Check the effect before calling again.",
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """Return `value` when it is an object, else an empty one."""
    # The exact type first: asking an abstract class costs more than all the rest of a message.
    return cast("Mapping[str, Any]", value) if type(value) is dict or isinstance(value, Mapping) else {}


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"{type(value).__name__} is not JSON")
