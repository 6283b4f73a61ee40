"""The files of skills as MCP resources (`sources.offering.Offers`), and as what `resources/list` shows of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import anyio.to_thread

from ...core.context import Context
from ...core.offer import Offer
from ...core.result import ToolResult
from ...errors import ToolFailure
from .resources import SkillResource

__all__ = ["SkillOffers", "offer_of"]


def offer_of(resources: Iterable[SkillResource]) -> Offer:
    """Return the entries that `resources/list` shows."""
    entries = tuple(map(_entry, resources))
    return Offer(resources=entries, reads=bool(entries))


class SkillOffers:
    """Reads files of skills. Lives as long as its source."""

    traits: tuple[str, ...] = ()

    def __init__(self, read: Callable[[str], tuple[str, bytes]]) -> None:
        """`read` returns media type and content of a URI; it raises `KeyError` for what is not there."""
        self._read = read
        self.on_update: Callable[[str], None] = _nobody

    async def read(self, uri: str, context: Context) -> ToolResult:
        """Return the file: its text, or base64 where it is none."""
        try:
            mime_type, content = await anyio.to_thread.run_sync(partial(self._read, uri))
        except KeyError:
            raise ToolFailure("not_found", f"there is no resource {uri[:300]!r}, or it changed a moment ago") from None
        resource = {"uri": uri, "mimeType": mime_type, **_body(content)}
        return ToolResult(content=({"type": "resource", "resource": resource},))

    async def prompt(self, name: str, arguments: Mapping[str, str], context: Context) -> ToolResult:
        """Raise `ToolFailure`: skills are no prompts."""
        raise ToolFailure("not_found", f"there is no prompt named {name[:200]!r}")

    async def complete(self, params: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Return nothing: there is no argument to complete."""
        return {"values": []}

    async def watch(self, uri: str) -> None:
        """Do nothing: a skill that changes is listed anew."""

    async def unwatch(self, uri: str) -> None:
        """Do nothing."""


def _nobody(uri: str) -> None:
    """Nothing is ever said of a single file."""


def _entry(resource: SkillResource) -> dict[str, Any]:
    shown: dict[str, Any] = {"uri": resource.uri, "name": resource.name}
    if resource.description:
        shown["description"] = resource.description
    return {**shown, "mimeType": resource.mime_type, "size": resource.size}


def _body(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"blob": base64.b64encode(content).decode()}
