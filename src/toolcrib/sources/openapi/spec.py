"""Configuration of one HTTP API: where its description is, where it is served, and the credentials.

    sources:
      openapi:
        github:
          spec: api.github.com.json          # a path (relative: to this file) or a URL
          base_url: https://api.github.com
          auth: {type: bearer, token: "${GITHUB_TOKEN}"}
          include: [issues, "pulls/*", "GET /repos/*"]

An API has one name in a configuration, and its tools carry it.
"""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from msgspec import Struct, field
from pydantic import AfterValidator, BeforeValidator, Discriminator, model_validator

from ...core.json import canonical
from ...core.settings import (
    CallTimeout,
    Flag,
    Hints,
    Scalar,
    Section,
    check_headers,
    conflicts,
    expected,
    setting,
)
from ...net.urls import url_parts


def _url(url: str) -> str:
    parts = url_parts(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
        raise expected("an http:// or https:// URL without a password in it")
    if parts.query or parts.fragment:
        raise expected("a URL without `?` and `#`")
    return url


def _needed(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("has invisible characters" if text else "is missing or empty")
    return text


def _token(text: str) -> str:
    if not text.isascii():
        raise ValueError("can only hold printable ASCII")
    return text


def _several(value: Any) -> Any:
    """One item stands for a list of it."""
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
    return [item for item in items if item not in (None, "")]


def _credentials(value: Any) -> Any:
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(item, Mapping | Section) for item in items):
        raise expected("a mapping with `type`, or a list of them,")
    return items


_Url = Annotated[Scalar, AfterValidator(_url)]
_Needed = Annotated[Scalar, AfterValidator(_needed)]
_Token = Annotated[_Needed, AfterValidator(_token)]
_Texts = Annotated[tuple[Scalar, ...], BeforeValidator(_several)]


class Bearer(Section):
    """`Authorization: Bearer …`."""

    type: Literal["bearer"] = "bearer"
    token: _Token = setting(secret=True)


class Basic(Section):
    """`Authorization: Basic …`."""

    type: Literal["basic"] = "basic"
    username: _Needed
    password: Scalar = setting("", secret=True)


class ApiKey(Section):
    """A key under a name of the API's own."""

    spellings: ClassVar[Mapping[str, str]] = {"in": "place"}

    type: Literal["api_key"] = "api_key"
    value: _Needed = setting(secret=True)
    name: Scalar = ""
    """Of the header, query parameter or cookie; empty takes it from the description's security schemes."""
    place: Literal["header", "query", "cookie", ""] = ""

    @model_validator(mode="after")
    def _can_be_sent(self) -> Self:
        if self.place == "header" or (self.name and not self.place):
            try:
                check_headers({self.name or "key": self.value})
            except ValueError as error:
                raise conflicts([((), str(error))]) from None
        return self


class ClientCredentials(Section):
    """OAuth 2.0 client credentials: a token is fetched when needed and kept until it runs out."""

    type: Literal["oauth2"] = "oauth2"
    client_id: _Needed
    client_secret: _Needed = setting(secret=True)
    token_url: _Url = ""
    """Empty takes the description's, if that is of the same origin as the API itself."""
    scopes: _Texts = ()
    client_auth: Literal["header", "body"] = "header"
    """`body` sends id and secret in the form instead of as `Authorization: Basic`."""


Auth = Bearer | Basic | ApiKey | ClientCredentials


class ApiSettings(Section):
    """Address and credentials of an API, and its selected operations."""

    base_url: _Url = ""
    """Empty takes the first server of a description that the operator holds: a file, or a URL of the same origin."""
    auth: Annotated[tuple[Annotated[Auth, Discriminator("type")], ...], BeforeValidator(_credentials)] = ()
    """Credentials, one or several."""
    headers: Annotated[Mapping[Scalar, Scalar], AfterValidator(check_headers)] = setting({}, hidden=True)
    """Sent with every call, to the API's origin only; values may be secrets and are never shown."""
    include: _Texts = ()
    """Tags, operation ids or `METHOD /path`, with `*` and `?`; none takes all operations."""
    exclude: _Texts = ()
    """Likewise, of operations that are left out."""
    allow_private: Flag = False
    """The API, its token URL and its description may be at loopback or private addresses."""
    private_hosts: tuple[str, ...] | None = setting(None, in_code=True)
    """Hosts, with their ports, that may be at such addresses, and no others: in the place of `allow_private`."""
    timeout: CallTimeout | None = None
    """Seconds that one call may take; None leaves it to the session."""
    annotations: Mapping[str, Hints] = setting({})
    """MCP hints by tool name that override those of the method."""
    trusted: Flag = False
    """Whether its answers count as written by the user."""


class OpenApiSpec(Struct, frozen=True, kw_only=True):
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
