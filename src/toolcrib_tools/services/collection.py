"""Services of a user: name, address and login."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, TypeVar, cast
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import Field

from toolcrib.plugin import (
    ApiPlace,
    Context,
    Described,
    Record,
    Records,
    ToolFailure,
    as_mapping,
    climbs,
    did_you_mean,
    tool,
)

from .._http import address
from .._records import names_of

Alias = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""Alias of a service."""
ServiceName = Annotated[str, Field(min_length=1, max_length=100)]

T = TypeVar("T")

_SERVICES: Final = "services"
_SCHEMAS: Final = "service_schemas"
_MOST: Final = 100
"""Services of one owner."""
_PORTS: Final = {"http": 80, "https": 443}

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")

_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("api_key",),
    "place": ("api_key",),
    "token_url": ("oauth2",),
    "scopes": ("oauth2",),
    "client_auth": ("oauth2",),
    "credential": ("bearer", "basic", "api_key", "oauth2"),
}


class Service(Struct, frozen=True, kw_only=True):
    """One service of one owner."""

    name: str
    base_url: str
    source: str
    """Origin of its description."""
    title: str = ""
    auth: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Login, the credential by its name; empty without one."""
    schemes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The logins that the description speaks of."""
    endpoints: int = 0
    """Number of endpoints in the description; those saved by hand are counted separately."""

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            "base_url": self.base_url,
            "source": self.source,
            "title": self.title,
            "auth": dict(self.auth),
            "schemes": dict(self.schemes),
            "endpoints": self.endpoints,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A secret of the operator's, and where it may go."""

    name: str
    secret: str = dataclasses.field(repr=False)
    username: str = ""
    urls: tuple[str, ...]

    def covers(self, url: str) -> bool:
        """True if the credential may be sent to an address."""
        return any(reaches(base, url) for base in self.urls)


def records_of(ctx: Context) -> Records:
    """Return the caller's services."""
    return ctx.records(_SERVICES)


def schemas_of(ctx: Context) -> Records:
    """Return the endpoints that the caller has described by hand."""
    return ctx.records(_SCHEMAS)


async def service_of(ctx: Context, name: str) -> Service:
    """Return a service. Raises `ToolFailure("not_found")` with the names that there are."""
    found = await records_of(ctx).get(name.strip())
    if found is None:
        names = sorted(record.id for record in await records_of(ctx).list())
        message = f"there is no service {name!r}{did_you_mean(name, names)}"
        raise ToolFailure("not_found", message, hint=f"{names_of(names)}; discover_service adds one")
    return _service(found)


async def keep(ctx: Context, service: Service, described: Described | None = None) -> Service:
    """Keep a service, with what its description says; a login stays while the service is where it was."""
    records = records_of(ctx)
    before = await records.get(service.name)
    if before is None and len(await records.list(limit=_MOST + 1)) >= _MOST:
        raise ToolFailure("too_large", f"there are {_MOST} services already", hint="remove_service forgets one")
    auth = service.auth
    if before is not None and described is not None and _service(before).base_url == service.base_url:
        auth = _service(before).auth
    kept = Service(
        name=service.name,
        base_url=service.base_url,
        source=service.source,
        title=service.title if described is None else described.title or service.title,
        auth=auth,
        schemes=service.schemes if described is None else _schemes(described),
        endpoints=service.endpoints if described is None else len(described.endpoints),
    )
    await records.put(kept.name, kept.to_json(), text=f"{kept.name} {kept.title}")
    return kept


async def forget(ctx: Context, service: Service) -> int:
    """Forget a service and its endpoints; return how many of those were saved by hand."""
    saved = await schemas_of(ctx).list(group=service.name)
    for record in saved:
        await schemas_of(ctx).remove(record.id)
    for part in (service.name, saved_of(service.name)):
        await ctx.lent.apis.remove(ctx.principal, part)
    await records_of(ctx).remove(service.name)
    return len(saved)


def saved_of(name: str) -> str:
    """Return the name that the endpoints of a service which were saved by hand are kept under; no alias is like it."""
    return f"{name}/saved"


async def places_of(ctx: Context, service: Service) -> list[ApiPlace]:
    """Return the places of a service's parts: those saved by hand, then those of its description.

    Raises `ToolFailure` where its login cannot be had any more.
    """
    has_saved = bool(await schemas_of(ctx).list(group=service.name, limit=1))
    names = [saved_of(service.name)] if has_saved else []
    names += [service.name] if service.endpoints or not has_saved else []
    auth = [_login(ctx, service)] if service.auth else []
    return [ApiPlace(owner=ctx.principal, name=name, base_url=service.base_url, auth=auth) for name in names]


async def of_first(places: list[ApiPlace], ask: Callable[[ApiPlace], Awaitable[T]]) -> T:
    """Return the answer of the first part that knows the endpoint. Raises the error of the last one."""
    for place in places[:-1]:
        try:
            return await ask(place)
        except ToolFailure as failure:
            if failure.code != "not_found":
                raise
    return await ask(places[-1])


def base_of(given: str, servers: tuple[str, ...], source: str) -> str:
    """Return the address of a service: as given, else from its description. Raises `ToolFailure`."""
    if given.strip():
        return _base(given, "base_url")
    written = servers[0] if servers else ""
    if re.match(r"https?://", source, re.IGNORECASE):
        written = urljoin(source, written or "/")
    if not re.match(r"https?://", written, re.IGNORECASE) or "{" in written:
        hint = f" (it says {servers[0]!r})" if servers else ""
        raise ToolFailure(
            "invalid_arguments",
            f"base_url: the description does not say where the service is{hint}",
            hint="say it, such as https://api.example.org/v2",
        )
    return _base(written, "the address in the description")


def credential_of(ctx: Context, name: str) -> Credential:
    """Return a credential of the operator's. Raises `ToolFailure` with the names that there are."""
    known = as_mapping(as_mapping(ctx.lent.setting(_SERVICES)).get("credentials"))
    if name not in known:
        raise ToolFailure(
            "not_found",
            f"there is no credential {name!r}{did_you_mean(name, known)}",
            hint=f"{names_of(list(known))}; the operator names them under `tools: {{services: {{credentials: …}}}}`",
        )
    fields = as_mapping(known[name])
    urls: Any = fields.get("url")
    several = cast("list[Any]", urls) if isinstance(urls, list) else [urls]
    secret, username = fields.get("secret"), fields.get("username", "")
    texts: list[Any] = [secret, username, *several]
    if not secret or not several or not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ToolFailure(
            "unavailable", f"the setting tools.services.credentials.{name} needs the texts secret and url (or a list)"
        )
    where = f"tools.services.credentials.{name}.url"
    return Credential(
        name=name, secret=str(secret), username=str(username), urls=tuple(_base(str(url), where) for url in several)
    )


def reaches(base: str, url: str) -> bool:
    """True if `url` lies at or below `base`: same scheme, host and port, and a path that begins with its segments."""
    one, other = urlsplit(base), urlsplit(url)
    if (one.scheme, one.hostname, one.port or _PORTS.get(one.scheme)) != (
        other.scheme,
        other.hostname,
        other.port or _PORTS.get(other.scheme),
    ):
        return False
    wanted = [step for step in one.path.split("/") if step]
    steps = [unquote(step) for step in other.path.split("/") if step]
    return steps[: len(wanted)] == [unquote(step) for step in wanted] and not any(map(climbs, steps))


def _login(ctx: Context, service: Service) -> dict[str, Any]:
    """Return the login of a service with its secret: again after every change of the configuration."""
    auth = service.auth
    credential = credential_of(ctx, str(auth["credential"]))
    for url in (service.base_url, *([str(auth["token_url"])] if auth.get("token_url") else [])):
        if not credential.covers(url):
            raise ToolFailure(
                "denied",
                f"the credential {credential.name} is not for {url}: it goes to {', '.join(credential.urls)} only",
                hint="the operator's setting is tools.services.credentials",
            )
    match auth["type"]:
        case "bearer":
            return {"type": "bearer", "token": credential.secret}
        case "basic":
            return {"type": "basic", "username": credential.username, "password": credential.secret}
        case "api_key":
            return {"type": "api_key", "value": credential.secret, "name": auth["name"], "in": auth["in"]}
        case _:
            return {
                "type": "oauth2",
                "client_id": credential.username,
                "client_secret": credential.secret,
                "token_url": auth["token_url"],
                "scopes": auth.get("scopes", []),
                "in_body": auth.get("client_auth") == "body",
            }


def _service(record: Record) -> Service:
    value = record.value
    return Service(
        name=record.id,
        base_url=str(value["base_url"]),
        source=str(value["source"]),
        title=str(value.get("title", "")),
        auth=cast("Mapping[str, Any]", value.get("auth") or {}),
        schemes=cast("Mapping[str, Any]", value.get("schemes") or {}),
        endpoints=int(value.get("endpoints", 0)),
    )


def _schemes(described: Described) -> dict[str, Any]:
    """Return the stored part of a description's logins: kinds and places, without the prose."""
    kept = ("type", "scheme", "in", "name", "flows")
    schemes = cast("Mapping[str, Mapping[str, Any]]", described.schemes)
    return {name: {key: scheme[key] for key in kept if key in scheme} for name, scheme in list(schemes.items())[:20]}


def _base(url: str, where: str) -> str:
    try:
        written = address(url).rstrip("/")
    except ToolFailure as failure:
        raise ToolFailure(failure.code, f"{where}: {failure.message.removeprefix('url: ')}") from failure
    parts = urlsplit(written)
    try:
        _ = parts.port  # raises for one that is not a number
    except ValueError as error:
        raise ToolFailure("invalid_arguments", f"{where}: {url!r} is not a URL: {error}") from None
    if parts.query or "@" in parts.netloc:
        raise ToolFailure("invalid_arguments", f"{where}: an address without `?` and without a login is needed")
    return written


class Auth(TypedDict):
    """A login."""

    type: Annotated[
        Literal["none", "bearer", "basic", "api_key", "oauth2"],
        Field(description="none takes the login away; oauth2 means client credentials."),
    ]
    credential: NotRequired[
        Annotated[str, Field(max_length=100, description="Name of a credential that the operator has set up.")]
    ]
    name: NotRequired[
        Annotated[str, Field(max_length=100, description="api_key: header, query parameter or cookie it goes in.")]
    ]
    place: NotRequired[
        Annotated[Literal["header", "query", "cookie"], Field(description="api_key: where it goes; header.")]
    ]
    token_url: NotRequired[Annotated[str, Field(max_length=2_000, description="oauth2: where tokens are fetched.")]]
    scopes: NotRequired[
        Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=50, description="oauth2: what for.")]
    ]
    client_auth: NotRequired[
        Annotated[Literal["header", "body"], Field(description="oauth2: how the client names itself; header.")]
    ]


async def _check_auth(arguments: Mapping[str, Any], ctx: Context) -> None:
    """Raise the failure of an unknown service, and of a login that does not fit it, before the user is asked."""
    _check_login(ctx, await service_of(ctx, arguments["service"]), arguments["auth"])


@tool(
    check=_check_auth,
    op="x.service.configure_auth",
    category="api",
    kind="write",
    approval="always",
    open_world=False,
    idempotent=True,
    tags=["login", "token", "api key", "oauth", "credential", "service"],
    examples=[
        {"service": "github", "auth": {"type": "bearer", "credential": "github"}},
        {"service": "shop", "auth": {"type": "api_key", "credential": "shop", "name": "X-Api-Key"}},
        {"service": "shop", "auth": {"type": "none"}},
    ],
    policy={
        "do": ["Ask the user which credential is meant where several could be."],
        "dont": ["Do not ask the user for a key or a password: the operator sets it up, and you give its name."],
        "edge_cases": [
            "The user is asked in every mode.",
            "A credential goes to the addresses that the operator named for it, and nowhere else.",
        ],
    },
)
async def configure_service_auth(service: ServiceName, auth: Auth, ctx: Context) -> dict[str, Any]:
    """Set up how to log in to a service: bearer token, basic, API key or OAuth 2 client credentials.

    Args:
        service: Alias of the service.
        auth: The login. What the description says of it need not be repeated.
    """
    found = await service_of(ctx, service)
    made = _check_login(ctx, found, auth)
    kept = await keep(ctx, replace(found, auth=made))
    answer: dict[str, Any] = {"service": kept.name, "login": made or "none", "goes_to": kept.base_url if made else ""}
    if made and kept.base_url.startswith("http://"):
        answer["note"] = "the login travels in clear: the service has no https address"
    return {key: value for key, value in answer.items() if value}


def _check_login(ctx: Context, service: Service, auth: Auth) -> dict[str, Any]:
    """Return the stored part of a login, completed by the description. Raises `ToolFailure`."""
    given = cast("Mapping[str, Any]", auth)
    kind = auth["type"]
    for key in given:
        if key in _FOR and kind not in _FOR[key]:
            raise ToolFailure("invalid_arguments", f"auth.{key}: it is not for the type {kind}")
    if kind == "none":
        return {}
    if not given.get("credential"):
        raise ToolFailure("invalid_arguments", "auth.credential: the name of a credential is needed")
    credential = credential_of(ctx, str(given["credential"]))
    made: dict[str, Any] = {"type": kind, "credential": credential.name}
    if kind in ("basic", "oauth2") and not credential.username:
        what = "username" if kind == "basic" else "username (the client's id)"
        raise ToolFailure("unavailable", f"the setting tools.services.credentials.{credential.name} has no {what}")
    if kind == "api_key":
        made |= _key(service, given)
    if kind == "oauth2":
        made |= _client(service, given)
    _allowed(credential, service.base_url, "the service's address")
    if "token_url" in made:
        _allowed(credential, made["token_url"], "auth.token_url")
    return made


def _key(service: Service, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the place of an API key: as given, else from the description."""
    name, place = given.get("name", ""), given.get("place", "")
    if not name:
        for scheme in map(as_mapping, service.schemes.values()):
            if scheme.get("type") == "apiKey" and (not place or scheme.get("in") == place):
                name, place = str(scheme.get("name", "")), str(scheme.get("in", ""))
                break
    if not _TOKEN.fullmatch(name):
        reason = "the description does not say where the key goes" if not name else f"{name!r} is not a header name"
        raise ToolFailure("invalid_arguments", f"auth.name: {reason}")
    return {"name": name, "in": place or "header"}


def _client(service: Service, given: Mapping[str, Any]) -> dict[str, Any]:
    url = str(given.get("token_url", ""))
    if not url:
        flows = (as_mapping(as_mapping(scheme).get("flows")) for scheme in service.schemes.values())
        urls = (as_mapping(flow.get("clientCredentials")).get("tokenUrl") for flow in flows)
        url = next((one for one in urls if isinstance(one, str) and one.startswith(("https://", "http://"))), "")
    if not url:
        raise ToolFailure("invalid_arguments", "auth.token_url: the description does not say where tokens are fetched")
    made: dict[str, Any] = {"token_url": url, "client_auth": given.get("client_auth", "header")}
    return made | ({"scopes": list(given["scopes"])} if given.get("scopes") else {})


def _allowed(credential: Credential, url: str, where: str) -> None:
    if not credential.covers(url):
        raise ToolFailure(
            "denied",
            f"{where} is {url}, and the credential {credential.name} goes to {', '.join(credential.urls)} only",
            hint=f"the operator's setting is tools.services.credentials.{credential.name}.url",
        )
