"""Listing of server features: resources, templates and prompts, each entry checked by itself.

A list that cannot be had, or holds nonsense, is a problem and costs neither the tools nor the other lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio

from ...core.json import dumps
from ...core.sanitize import Icons, clean_text, cut
from ...core.server_features import ServerFeatures
from ...errors import ToolFailure
from ..jsonrpc import METHOD_NOT_FOUND, RpcError, mapping
from ..stdio import SpooledMessage
from .spec import McpLimits
from .transport import Reply

__all__ = ["RawOffer", "build_offer", "list_offer"]

_SECONDS: Final = 10.0
"""That all of these lists may take together: the tools do not wait longer for them."""
_URI_BYTES: Final = 2048
_ENTRY_BYTES: Final = 16 * 1024
"""Of one entry; a larger one is a load, not a description."""
_LISTS: Final = (
    ("resources", "resources/list", "resources"),
    ("resources", "resources/templates/list", "resourceTemplates"),
    ("prompts", "prompts/list", "prompts"),
)
"""The capability, the method, and the key of the entries."""
_KEPT: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "resources": {"mimeType": str, "size": int, "annotations": dict, "_meta": dict},
    "resourceTemplates": {"mimeType": str, "annotations": dict, "_meta": dict},
    "prompts": {"_meta": dict},
}
"""What of an entry is passed on beside its words; of another type it is left out."""

_Ask = Callable[[str, Mapping[str, Any]], Awaitable[Reply]]

_Report = Callable[[str, str], None]
"""Takes the code and the message of a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOffer:
    """What the lists gave, unchecked, by the key of their entries; and why one of them could not be had."""

    lists: Mapping[str, Sequence[Any]]
    missing: Mapping[str, str]
    reads: bool


async def list_offer(ask: _Ask, capabilities: Mapping[str, Any], limits: McpLimits) -> RawOffer:
    """Fetch every list that a server of these capabilities says it has; `ask` sends a request.

    Raises `LinkLost` alone.
    """
    lists: dict[str, Sequence[Any]] = {}
    missing: dict[str, str] = {}
    wanted = [entry for entry in _LISTS if entry[0] in capabilities]
    with anyio.move_on_after(_SECONDS):
        for _, method, key in wanted:
            try:
                lists[key] = await _pages(ask, method, key, limits)
            except RpcError as error:
                if error.code == METHOD_NOT_FOUND:
                    lists[key] = ()
                else:
                    missing[key] = error.message
            except ToolFailure as failure:
                missing[key] = failure.message
    for _, _, key in wanted:
        if key not in lists and key not in missing:
            missing[key] = f"it was not listed within {_SECONDS:g} s"
    return RawOffer(lists=lists, missing=missing, reads="resources" in capabilities)


async def _pages(ask: _Ask, method: str, key: str, limits: McpLimits) -> list[Any]:
    found: list[Any] = []
    cursor: Any = None
    for _ in range(limits.pages):
        reply = await ask(method, {} if cursor is None else {"cursor": cursor})
        if isinstance(reply, SpooledMessage):
            reply.discard()
            raise ToolFailure("unavailable", f"a page of it has {reply.size} bytes, more than is taken")
        page = reply.get(key)
        if not isinstance(page, list):
            raise ToolFailure("unavailable", f"it is malformed: `{key}` is not a list")
        found += cast("list[Any]", page)
        cursor = reply.get("nextCursor")
        if not (isinstance(cursor, str) and cursor) or len(found) > limits.tools:
            break
    return found


def build_offer(raw: RawOffer, limits: McpLimits, report: _Report, icons: Icons) -> ServerFeatures:
    """Check every entry of `raw` and return what can be offered."""
    for key, reason in raw.missing.items():
        report("unavailable", f"its list of {key} cannot be used: {cut(clean_text(reason)[0], 300)}")
    return ServerFeatures(
        resources=_entries(raw, "resources", "uri", limits, report, icons),
        templates=_entries(raw, "resourceTemplates", "uriTemplate", limits, report, icons),
        prompts=_entries(raw, "prompts", "name", limits, report, icons),
        reads=raw.reads,
    )


def _entries(
    raw: RawOffer, key: str, naming: str, limits: McpLimits, report: _Report, icons: Icons
) -> tuple[Mapping[str, Any], ...]:
    listed = raw.lists.get(key, ())
    if len(listed) > limits.tools:
        report("too_many", f"the server lists {len(listed)} {key}; the first {limits.tools} are taken")
    taken: dict[str, Mapping[str, Any]] = {}
    for entry in map(mapping, listed[: limits.tools]):
        named = entry.get(naming)
        reason = _refusal(entry, named, naming)
        if reason or not isinstance(named, str):
            shown = ascii(named)[:200] if named else "one without a name"
            report("bad_entry", f"{shown} of its {key} is left out: {reason}")
        elif named in taken:
            report("duplicate", f"{ascii(named)[:200]} is twice among its {key}; the first one is taken")
        else:
            shown = icons.take(entry.get("icons"))
            taken[named] = _entry(entry, key, naming, limits) | ({"icons": shown} if shown else {})
    return tuple(taken.values())


def _refusal(entry: Mapping[str, Any], named: Any, naming: str) -> str:
    """Say why an entry cannot be offered; empty when it can."""
    if not isinstance(named, str) or not named or len(named.encode("utf-8", "replace")) > _URI_BYTES:
        return f"its {naming} is not a text of 1 to {_URI_BYTES} bytes"
    if clean_text(named)[1] or not named.isprintable():
        return f"its {naming} holds invisible characters"
    if naming != "name" and ":" not in named:
        return f"its {naming} is not a URI"
    try:
        size = len(dumps({name: value for name, value in entry.items() if name != "icons"}))
    except (TypeError, ValueError, RecursionError):
        return "it is not JSON that could be passed on"
    return f"it has {size} bytes; {_ENTRY_BYTES} are allowed" if size > _ENTRY_BYTES else ""


def _entry(entry: Mapping[str, Any], key: str, naming: str, limits: McpLimits) -> dict[str, Any]:
    """Return the entry with clean words and nothing of a wrong type."""
    shown: dict[str, Any] = {naming: entry[naming]}
    if naming != "name":
        name = entry.get("name")
        shown["name"] = cut(clean_text(name)[0], 200) if isinstance(name, str) and name else entry[naming]
    for word, most in (("title", 200), ("description", limits.description_bytes)):
        if isinstance(text := entry.get(word), str) and text:
            shown[word] = cut(clean_text(text)[0], most)
    if key == "prompts" and (arguments := _arguments(entry, limits)):
        shown["arguments"] = arguments
    kept = {name: entry[name] for name, kind in _KEPT[key].items() if isinstance(entry.get(name), kind)}
    return {**shown, **kept}


def _arguments(entry: Mapping[str, Any], limits: McpLimits) -> list[dict[str, Any]]:
    given = entry.get("arguments")
    found: list[dict[str, Any]] = []
    for argument in map(mapping, cast("list[Any]", given) if isinstance(given, list) else ()):
        name = argument.get("name")
        if not isinstance(name, str) or not name or clean_text(name)[1]:
            continue
        shown: dict[str, Any] = {"name": name}
        for word in ("title", "description"):
            if isinstance(text := argument.get(word), str) and text:
                shown[word] = cut(clean_text(text)[0], limits.description_bytes)
        found.append({**shown, "required": argument.get("required") is True})
    return found
