"""Specification of one configured MCP server: transport, selection of its tools, trust, and limits.

Made by the configuration, with every `${VAR}` already replaced; frozen, and as old as the crib that mounts it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from ...core.json import canonical_with_paths
from ...core.settings import identity_of
from ...net.oauth.spec import OAuthSpec

_KIB = 1024
_MIB = 1024 * _KIB

Transport = Literal["stdio", "http", "sse"]
"""`http` is streamable HTTP; `sse` the HTTP+SSE transport of revision 2024-11-05."""


class McpLimits(Struct, frozen=True, kw_only=True):
    """The limits of one server. Every one can be set; the defaults are those of security.md."""

    start_timeout: float = 30.0
    """From the first byte of a start to the first fresh list of tools."""
    probe_timeout: float = 2.0
    """Seconds after which `initialize` is sent beside an unanswered `server/discover`."""
    silence: float = 300.0
    """How long a program may stay silent after a call that it left unanswered, with no call of before in flight; then
    it is started again. Long, because one that does one thing at a time may still work on that call."""
    stop_grace: float = 0.8
    """After its stdin was closed, and again after SIGTERM: two graces and the kill stay below 3 s (R10)."""

    noise_bytes: int = 1 * _MIB
    """Longest line outside of JSON-RPC before the connection is closed."""
    memory_bytes: int = 1 * _MIB
    """Bytes of one unfinished message that are held in memory; the rest waits on disk."""
    inline_bytes: int = 16 * _MIB
    """The largest message that is parsed; a larger result is answered as `SpooledAnswer`."""
    spool_bytes: int = 256 * _MIB
    """The largest message that is taken at all; beyond it the connection closes."""
    bad_messages: int = 100_000
    """Invalid lines and unrequested answers since the last answer before a restart: what a program prints while it
    works is skipped, and only what seems to have no end costs the connection."""
    queue_bytes: int = 64 * _MIB
    """Requests that a server does not read; beyond it calls are refused as `overloaded`."""
    stderr_bytes: int = 256 * _KIB
    """The end of the server's stderr that is kept for the operator."""
    relays: int = 8
    """Requests of the server to the client that may be open at once."""

    pages: int = 100
    tools: int = 2000
    description_bytes: int = 4 * _KIB
    schema_bytes: int = 64 * _KIB
    icon_bytes: int = 64 * _KIB
    """Of one icon: mostly a `data:` URI."""
    icons_bytes: int = 1 * _MIB
    """Of all icons of one server."""
    refresh: float = 300.0
    """A connected server is listed again this often, so that a silent change does not go unseen; 0 never."""

    backoff: float = 0.1
    """After a failed start; doubles with each one, with jitter."""
    breaker_failures: int = 5
    breaker_window: float = 30.0
    breaker_open: float = 10.0
    """How long nothing is tried after `breaker_failures` failed starts within `breaker_window`; doubles each time, but
    a call has the server tried once this time is over."""
    breaker_open_max: float = 300.0


class ServerSpec(Struct, frozen=True, kw_only=True):
    """One entry of `mcpServers`. A stdio server has a `command`, one in memory a `server`, the others a `url`."""

    name: str
    """The configured name: the namespace of its tools, never what the server calls itself."""
    transport: Transport | Literal["memory"]
    """`memory`: in this process, which no configuration can say."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the environment that a child gets; values may be secrets."""
    inherit_env: bool = False
    """Whether a child gets our whole environment and not the small clean one. Not that of a project, which has pins."""
    cwd: str = ""
    """The working directory of the child; empty is ours."""
    url: str = ""
    server: Any = None
    """The object of a server in this process (`mcp.client.in_process`)."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent to the origin of `url` only; values may be secrets."""
    oauth: OAuthSpec | None = None
    """OAuth login, if the server asks for one; None sends `headers` and nothing else."""
    timeout: float | None = None
    """Seconds that one call may take; None leaves it to the tool and the session."""
    tools_allow: tuple[str, ...] | None = None
    """The server's tools that are taken, by the server's own names; None takes all."""
    tools_deny: tuple[str, ...] = ()
    """The server's tools that are left out, even if `tools_allow` names them."""
    relay: bool = True
    """Whether its sampling, elicitation and roots requests reach the client that made the call."""
    annotations: Mapping[str, Mapping[str, bool]] = field(default_factory=dict[str, Mapping[str, bool]])
    """MCP hints by tool name that replace what the server says of itself."""
    background_after: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds after which a call goes on in the background, by tool name; `*` is every tool that is not named."""
    env_file: str = ""
    """The file that some of `env` came from."""
    pinned: Mapping[str, str] | None = None
    """Confirmed digests of the files behind a project's server (`launch_pins`); None for a server of the user's own."""
    awaited: str = ""
    """The folder in the user's state with what is known of pinned files that were missing (`core.awaited_files`)."""
    relist_after: float = 30.0
    """Age in seconds of the list of tools above which a call with side effects lists the server again; 0 never."""
    schemas: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON Schemas by the URI that schemas of its tools refer to; references to others are refused."""
    trusted: bool = False
    """Whether what its tools return is vouched for: it taints no session."""

    def goes_on_after(self, tool: str) -> float | None:
        """Return the seconds after which a call of the server's tool `tool` goes on in the background; None: never."""
        return self.background_after.get(tool, self.background_after.get("*"))

    @property
    def traits(self) -> tuple[str, ...]:
        """`Tool.traits` of every tool of this server."""
        return ("reviewed",) if self.trusted else ()

    def traits_of(self, tool: str, hints: Mapping[str, Any] = {}) -> tuple[str, ...]:
        """Return the `Tool.traits` of the server's tool `tool`, whose own MCP hints are `hints`.

        A server of this process is code of the program, but a tool of it that declares an open world returns its text.
        """
        if self.server is not None and hints.get("openWorldHint") is True:
            return ()
        is_closed = self.annotations.get(tool, {}).get("openWorldHint") is False
        return (*self.traits, "closed_world") if is_closed else self.traits

    def takes(self, tool: str) -> bool:
        """Whether `tools_allow` and `tools_deny` let the server's tool `tool` in."""
        return tool not in self.tools_deny and (self.tools_allow is None or tool in self.tools_allow)

    @property
    def where(self) -> str:
        """The command or the URL, for people; no argument, environment or header value is shown."""
        return self.command if self.transport == "stdio" else self.url.partition("?")[0]

    @property
    def identity(self) -> str:
        """12 hex digits of what is run or reached, without the secrets that change from time to time."""
        parts = [self.transport, self.command, self.args, self.url]
        return hashlib.sha256(canonical_with_paths(parts)).hexdigest()[:12]

    def key(self) -> str:
        """64 hex digits that name this configuration on disk; secrets go in only through the hash."""
        reached = (self.transport, self.command, self.args, self.env, self.cwd, self.url, self.headers)
        taken = (self.tools_allow, self.tools_deny, self.annotations)
        later: list[Any] = [self.background_after] if self.background_after else []
        if self.inherit_env:
            later.append("inherit_env")
        if self.schemas:
            later.append({"schemas": self.schemas})
        if self.oauth not in (None, OAuthSpec()):
            later.append(identity_of(self.oauth))
        return hashlib.sha256(canonical_with_paths([self.name, *reached, *taken, *later])).hexdigest()
