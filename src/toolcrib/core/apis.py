"""What a crib lends its tools of HTTP APIs: descriptions that it keeps for somebody, and calls that are made by them.

A description is OpenAPI 3, or Swagger 2. It is kept under the name that its owner gives it, over restarts; what a call
needs beside it (address, credentials) is said with every call and kept by whoever makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .result import ToolResult

__all__ = ["ApiPlace", "ApiRequest", "Apis", "Described", "Endpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path of an API."""

    name: str
    """Unique in the API: the operation's id, else made of method and path."""
    method: str
    """In upper case."""
    path: str
    """With `{name}` for path parameters."""
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a description says of its API."""

    title: str = ""
    description: str = ""
    servers: tuple[str, ...] = ()
    """Where it is served, as it is written there; may be relative."""
    schemes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The security schemes of the description, by name."""
    endpoints: tuple[Endpoint, ...] = ()
    """In the order of the description."""
    problems: tuple[str, ...] = ()
    """What of it cannot be used, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPlace:
    """An API that was described, and how it is reached."""

    owner: str
    name: str
    base_url: str
    auth: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    """Credentials in the words of `sources.openapi`: `{type: bearer, token: …}`, `basic`, `api_key`, `oauth2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """What is to be sent to an endpoint, by the names that its description gives the parameters."""

    method: str
    path: str
    """As the description has it, or filled in, or the endpoint's name."""
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the query; values for places in the path too."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


class Apis(Protocol):
    """APIs by their descriptions.

    Raises `ToolFailure`: `not_found` for a description or endpoint that is not there, `invalid_arguments` for what does
    not fit it, `denied`, `unavailable`, `timeout` and `too_large` as the web does, `storage` while nothing can be kept.
    """

    async def fetch(self, url: str) -> bytes:
        """Return the description at a URL; 64 MiB at most."""
        ...

    async def put(
        self,
        owner: str,
        name: str,
        description: bytes | Mapping[str, Any],
        check: Callable[[Described], None] | None = None,
    ) -> Described:
        """Keep a description, in the place of an earlier one; return what it says.

        What `check` raises is raised, and everything is as it was; it is called in a thread.
        """
        ...

    async def remove(self, owner: str, name: str) -> bool:
        """Forget a description; return whether there was one."""
        ...

    async def described(self, place: ApiPlace) -> Described:
        """Return what a description says to somebody with these credentials: what they carry is no parameter."""
        ...

    async def schema(self, place: ApiPlace, method: str, path: str) -> Mapping[str, Any]:
        """Return parameters, body and answers of one endpoint, as JSON Schema 2020-12."""
        ...

    async def preview(self, place: ApiPlace, request: ApiRequest) -> str:
        """Return the curl line that a call would be, secrets masked; nothing is sent."""
        ...

    async def call(self, place: ApiPlace, request: ApiRequest, seconds: float) -> ToolResult:
        """Check the request against the description, send it, and return the answer.

        Raises `ToolFailure` for every status but success: `denied` for 401 and 403, `tool_error` for most others.
        """
        ...
