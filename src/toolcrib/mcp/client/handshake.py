"""Handshake: detection of the MCP revision of a server, once for every connection.

Two eras: up to 2025-11-25 a connection begins with `initialize`; since 2026-07-28 every request carries its own
envelope and `server/discover` lists the features. A server of unknown era is asked `server/discover` first; any error
means the old era, but for one that offers our revision in refusing it: that server is asked once more. A server that
stays silent gets `initialize` too, and its first answer, of either kind, decides.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Literal

import anyio
from msgspec import Struct, field

from ...core.json import as_mapping
from ...core.patterns import regex
from ...errors import ToolFailure
from ..jsonrpc import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    LATEST,
    LATEST_HANDSHAKE,
    SERVER_INFO_KEY,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    RpcError,
)
from ..stdio import SpooledMessage
from .transport import Link, LinkLost, Outgoing, Reply

_REVISION: Final = regex(r"[\w.-]{1,20}", re.ASCII)

Hint = Literal["", "legacy", "modern"]
"""Era that an earlier connection found."""


class Era(Struct, frozen=True, kw_only=True):
    """Result of the handshake. Holds for one connection."""

    version: str
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The server's."""
    instructions: str = ""
    title: str = ""
    description: str = ""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The server's `Implementation`, unchecked."""

    @property
    def modern(self) -> bool:
        """Whether requests carry their own envelope."""
        return self.version == LATEST

    @property
    def lists_changes(self) -> bool:
        """Whether the server says when its tools change."""
        return as_mapping(self.capabilities.get("tools")).get("listChanged") is True


class ClientInfo(Struct, frozen=True, kw_only=True):
    """Version and capabilities that a handshake names (`clientInfo`)."""

    version: str
    capabilities: Mapping[str, Any]
    """Capabilities that may be relayed to the client of a call; a handshake holds for all of them."""

    @property
    def info(self) -> dict[str, str]:
        """Our name and version on the wire."""
        return {"name": "toolcrib", "version": self.version}


def envelope(client: ClientInfo, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_meta` that a request of the modern era carries; `capabilities` are those of this one request."""
    return {VERSION_KEY: LATEST, CLIENT_INFO_KEY: client.info, CAPABILITIES_KEY: capabilities}


async def negotiate(link: Link, client: ClientInfo, hint: Hint, probe_timeout: float) -> Era:
    """Agree on a revision; raises `LinkLost`, `RpcError` or `ToolFailure` without a common one.

    A server that never answers keeps this waiting: the caller sets the limit.
    """
    if hint == "legacy":
        return await _initialize(link, client)
    race = _Race()
    async with anyio.create_task_group() as group:
        group.start_soon(race.run, _discover(link, client))
        with anyio.move_on_after(probe_timeout):
            await race.finished(1)
        if race.era is None and not link.reason:
            group.start_soon(race.run, _initialize(link, client))
            await race.finished(2)
        group.cancel_scope.cancel()
    if race.era is None:
        raise race.errors[-1]
    return race.era


class _Race:
    """Two ways to begin; the first that succeeds decides."""

    def __init__(self) -> None:
        self.era: Era | None = None
        self.errors: list[Exception] = []
        self._done = 0
        self._wake = anyio.Event()

    async def run(self, way: Coroutine[Any, Any, Era]) -> None:
        """Try one way."""
        try:
            era = await way
            self.era = self.era or era
        except (LinkLost, RpcError, ToolFailure) as error:
            self.errors.append(error)
        self._done += 1
        self._wake.set()

    async def finished(self, number: int) -> None:
        """Return when one succeeded or `number` of them failed."""
        while self.era is None and self._done < number:
            await self._wake.wait()
            self._wake = anyio.Event()


async def _discover(link: Link, client: ClientInfo) -> Era:
    try:
        result = await _asked(link, client)
    except RpcError as error:
        if not _is_offered(error):
            raise
        result = await _asked(link, client)  # refused and offered in one breath: so do servers between two releases
    supported = result.get("supportedVersions")
    if not isinstance(supported, list) or LATEST not in supported:
        raise RpcError(UNSUPPORTED_VERSION, f"the server does not offer revision {LATEST}")
    info = as_mapping(as_mapping(result.get("_meta")).get(SERVER_INFO_KEY))
    return _era(LATEST, result, info)


async def _asked(link: Link, client: ClientInfo) -> Mapping[str, Any]:
    params = {"_meta": envelope(client, {})}
    return _object(await link.ask(Outgoing("server/discover", params, version=LATEST)))


def _is_offered(refusal: RpcError) -> bool:
    """Whether a server that refuses our revision lists it as supported."""
    supported = as_mapping(refusal.data).get("supported")
    return refusal.code == UNSUPPORTED_VERSION and isinstance(supported, list) and LATEST in supported


async def _initialize(link: Link, client: ClientInfo) -> Era:
    params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": client.capabilities, "clientInfo": client.info}
    result = _object(await link.ask(Outgoing("initialize", params)))
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        known = ", ".join((LATEST, *reversed(HANDSHAKE_VERSIONS)))
        named = f"{version!r}" if isinstance(version, str) and _REVISION.fullmatch(version) else "of another form"
        raise ToolFailure("unavailable", f"the server speaks an MCP revision {named}; known are {known}")
    era = _era(str(version), result, as_mapping(result.get("serverInfo")))
    link.agree(era.version)
    link.tell("notifications/initialized", {})
    return era


def _era(version: str, result: Mapping[str, Any], info: Mapping[str, Any]) -> Era:
    return Era(
        version=version,
        capabilities=as_mapping(result.get("capabilities")),
        instructions=_text(result.get("instructions")),
        title=_text(info.get("title")) or _text(info.get("name")),
        description=_text(info.get("description")),
        info=info,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(reply: Reply) -> Mapping[str, Any]:
    if isinstance(reply, SpooledMessage):
        reply.discard()
        raise ToolFailure("unavailable", "the server's answer to the handshake is larger than any can be")
    return reply
