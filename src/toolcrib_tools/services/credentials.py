"""Login of services, with a configured credential by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, tool

from .collection import Credential, Service, ServiceName, credential_of, keep, service_of

__all__ = ["Auth", "configure_service_auth"]

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")


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


_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("api_key",),
    "place": ("api_key",),
    "token_url": ("oauth2",),
    "scopes": ("oauth2",),
    "client_auth": ("oauth2",),
    "credential": ("bearer", "basic", "api_key", "oauth2"),
}


@tool(
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
    """Return what is kept of a login, completed by the description. Raises `ToolFailure`."""
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
        for scheme in map(_mapping, service.schemes.values()):
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
        flows = (_mapping(_mapping(scheme).get("flows")) for scheme in service.schemes.values())
        urls = (_mapping(flow.get("clientCredentials")).get("tokenUrl") for flow in flows)
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


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
