"""Configuration of one HTTP API: where its description is, where it is served, and the credentials.

Made by the configuration, with every `${VAR}` already replaced; frozen, and as old as the crib that mounts it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from ...core.json import canonical

__all__ = ["ApiKey", "ApiSettings", "Auth", "Basic", "Bearer", "ClientCredentials", "OpenApiSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """`Authorization: Bearer …`."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basic:
    """`Authorization: Basic …`."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key under a name of the API's own."""

    value: str = field(repr=False)
    name: str = ""
    """Of the header, query parameter or cookie; empty takes it from the description's security schemes."""
    place: Literal["header", "query", "cookie", ""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """OAuth 2.0 client credentials: a token is fetched when needed and kept until it runs out."""

    client_id: str
    client_secret: str = field(repr=False)
    token_url: str = ""
    """Empty takes the description's, if that is of the same origin as the API itself."""
    scopes: tuple[str, ...] = ()
    in_body: bool = False
    """Send id and secret in the form instead of as `Authorization: Basic`."""


Auth = Bearer | Basic | ApiKey | ClientCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Address and credentials of an API, and its selected operations."""

    base_url: str = ""
    """Empty takes the first server of a description that the operator holds: a file, or a URL of the same origin."""
    auth: tuple[Auth, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Sent with every call, to the API's origin only; values may be secrets and are never shown."""
    include: tuple[str, ...] = ()
    """Tags, operation ids or `METHOD /path`, with `*` and `?`; none takes all operations."""
    exclude: tuple[str, ...] = ()
    allow_private: bool = False
    """The API, its token URL and its description may be at loopback or private addresses."""
    private_hosts: tuple[str, ...] | None = None
    """Hosts, with their ports, that may be at such addresses, and no others: in the place of `allow_private`."""
    timeout: float | None = None
    """Seconds that one call may take; None leaves it to the session."""
    annotations: Mapping[str, Mapping[str, bool]] = field(default_factory=dict[str, Mapping[str, bool]])
    """MCP hints by tool name that override those of the method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiSpec:
    """One entry of `sources.openapi`."""

    name: str
    """The configured name: the namespace of its tools."""
    spec: str
    """The description: an absolute path or a URL."""
    settings: ApiSettings = field(default_factory=ApiSettings)

    @property
    def identity(self) -> str:
        """12 hex digits over description and address, without secrets that change from time to time."""
        return hashlib.sha256(canonical([self.spec, self.settings.base_url])).hexdigest()[:12]

    def key(self) -> str:
        """64 hex digits over everything configured; secrets go in only through the hash."""
        return hashlib.sha256(canonical([self.name, self.spec, asdict(self.settings)])).hexdigest()
