"""Messages of a server, read leniently, and the ways in which a request can fail.

Servers send NaN, lone surrogates and wrong UTF-8. An unreadable message becomes an error value for the request that it
answers. The strict reader for messages of clients is `mcp.jsonrpc.parse`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import orjson

from ...core.json import MAX_DEPTH, JsonError, JsonTooDeep, read_json
from ...errors import ToolFailure
from ..jsonrpc import RpcError, mapping

__all__ = [
    "LinkLost",
    "broken_answer",
    "decode",
    "id_of_broken",
    "messages_in",
    "outcome_of",
]

_LENIENT_BYTES: Final = 1024 * 1024
"""The second, forgiving parser is slow; longer messages get only the strict one."""

_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")')


class LinkLost(Exception):
    """The connection ended before the answer came.

    `written` is False when no byte of the request reached the far end, so that it cannot have run.
    """

    def __init__(self, reason: str, *, written: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.written = written


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
    return ToolFailure("tool_error", f"the server answered with a result that is not an object but {_kind(result)}")


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


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
