"""Web APIs that tools describe and call.

A description is OpenAPI 3, or Swagger 2. It is stored under the name that its owner gives it, over restarts; the other
parameters of a call (address, credentials) come with every call and are kept by the caller.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from ..result import ToolResult


class Endpoint(Struct, frozen=True, kw_only=True):
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


class Described(Struct, frozen=True, kw_only=True):
    """Content of an API description."""

    title: str = ""
    description: str = ""
    servers: tuple[str, ...] = ()
    """Base URLs as written in the description; may be relative."""
    schemes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The security schemes of the description, by name."""
    endpoints: tuple[Endpoint, ...] = ()
    """In the order of the description."""
    problems: tuple[str, ...] = ()
    """Unusable parts, with the reason."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiPlace:
    """An API that was described, and how it is reached."""

    owner: str
    name: str
    base_url: str
    auth: Sequence[Mapping[str, Any]] = dataclasses.field(default=(), repr=False)
    """Credentials in the words of `sources.openapi`: `{type: bearer, token: …}`, `basic`, `api_key`, `oauth2`."""


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request to an endpoint, with values by the description's parameter names."""

    method: str
    path: str
    """As the description has it, or filled in, or the endpoint's name."""
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the query; values for places in the path too."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


class Apis(Protocol):
    """APIs by their descriptions.

    Raises `ToolFailure`: `not_found` for a missing description or endpoint, `invalid_arguments` for values that do not
    fit it, `denied`, `unavailable`, `timeout` and `too_large` as the web does, `storage` while the store cannot be
    used.
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
        """Store a description, in place of an earlier one; return its content.

        `check` is called in a thread; when it raises, the exception propagates and the earlier description stays.
        """
        ...

    async def remove(self, owner: str, name: str) -> bool:
        """Forget a description; return whether there was one."""
        ...

    async def described(self, place: ApiPlace) -> Described:
        """Return the description as seen with these credentials: values that they carry are not parameters."""
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
