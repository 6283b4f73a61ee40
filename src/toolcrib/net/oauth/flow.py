"""Authorization flow: from a server's refusal to a token that it takes, with a person and without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from ...errors import ToolFailure
from ..client import WebClient
from .authorization import Receiver, ask, receiving
from .metadata import (
    LIMITS,
    AuthorizationServer,
    Challenge,
    Resource,
    find_resource,
    find_server,
    guard_for,
    origin,
    safe_url,
)
from .spec import OAuthSpec
from .stored_login import Client, Login
from .tokens import configured, get_tokens, register

__all__ = ["Flow", "Person", "make_http", "wanted_scopes"]

_OFFLINE: Final = "offline_access"
_SOON: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Interface to the person who can log in."""

    show: Callable[[str], Coroutine[Any, Any, None]]
    """Shows them an address, in a browser if possible; returns without their answer and never raises."""
    seconds: float = 300.0
    """How long they may take."""


def make_http(url: str, spec: OAuthSpec) -> WebClient:
    """Return a client that reaches the addresses allowed for the server at `url`; the caller closes it."""
    return WebClient(guard_for(url, spec.issuer), LIMITS)


def wanted_scopes(
    spec: OAuthSpec, resource: Resource, server: AuthorizationServer, challenge: Challenge | None
) -> tuple[str, ...]:
    """Return what to ask for: what is configured, else what the refusal names, else what the server names."""
    named = challenge.scopes if challenge is not None and challenge.scopes else resource.scopes
    scopes = spec.scopes or named
    if scopes and _OFFLINE in server.scopes and _OFFLINE not in scopes and spec.grant == "authorization_code":
        return (*scopes, _OFFLINE)  # without it some servers give no refresh token
    return scopes


class Flow:
    """Logs in to one server. Keeps nothing: what comes of it is returned."""

    def __init__(self, http: WebClient, spec: OAuthSpec, url: str) -> None:
        """`url` is the server's."""
        self._http = http
        self._spec = spec
        self._url = safe_url(url, "the server")

    async def resource(self, challenge: Challenge | None) -> Resource:
        """Return what the server says of itself, with the issuers that count. Raises `ToolFailure`."""
        found = await find_resource(self._http, self._url, challenge)
        only = self._spec.issuer
        if not only:
            return found
        issuers = tuple(one for one in found.issuers if one.rstrip("/") == only.rstrip("/"))
        if not issuers:
            raise ToolFailure(
                "denied",
                f"the server names another authorization server ({', '.join(found.issuers)[:200]}) than is configured",
                hint="Check `issuer` under `auth` of the server: the credentials there are for that issuer only.",
            )
        return replace(found, issuers=issuers)

    async def with_person(
        self, person: Person, challenge: Challenge | None, known: Login | None, extra: tuple[str, ...] = ()
    ) -> Login:
        """Log in with a browser. `known` is an earlier login, whose client is used again where that may be.

        `extra` scopes are asked for as well. Raises `ToolFailure` or `UsageError`.
        """
        resource = await self.resource(challenge)
        server, known = await self._server(resource, known)
        scopes = tuple(dict.fromkeys((*wanted_scopes(self._spec, resource, server, challenge), *extra)))
        port = self._spec.redirect_port or _port_of(known)
        async with receiving(port, exactly=bool(self._spec.redirect_port)) as receiver:
            client = await self._client(server, known, receiver, scopes)
            return await self._asked(person, receiver, _begun(resource, server, client), server, scopes)

    async def without_person(
        self, challenge: Challenge | None, known: Login | None, extra: tuple[str, ...] = ()
    ) -> Login:
        """Log in with our own credentials. Raises `ToolFailure`."""
        resource = await self.resource(challenge)
        server, _ = await self._server(resource, known)
        client = configured(self._spec, server)
        if client is None or client.auth == "none":
            raise ToolFailure(
                "denied", "auth: client_credentials needs `client_id` with `client_secret` or `private_key`"
            )
        scopes = tuple(dict.fromkeys((*wanted_scopes(self._spec, resource, server, challenge), *extra)))
        form = {"grant_type": "client_credentials"} | ({"scope": " ".join(scopes)} if scopes else {})
        login = _begun(resource, server, client)
        return replace(login, tokens=await get_tokens(self._http, self._spec, login, form, scopes))

    async def _server(self, resource: Resource, known: Login | None) -> tuple[AuthorizationServer, Login | None]:
        """Return the authorization server to use, and `known` where it is of that server."""
        issuer = resource.issuers[0]
        if known is not None and known.issuer in resource.issuers:
            issuer = known.issuer
        server = await find_server(self._http, issuer)
        if known is None or known.issuer == server.issuer:
            return server, known
        if self._spec.is_registered:
            raise ToolFailure(
                "denied",
                f"the server sends us to {origin(server.issuer)} now; its `client_id` is of {origin(known.issuer)}",
                hint="If that is right, log out first; `issuer` under `auth` of the server says which one is meant.",
            )
        return server, None

    async def _client(
        self, server: AuthorizationServer, known: Login | None, receiver: Receiver, scopes: tuple[str, ...]
    ) -> Client:
        found = configured(self._spec, server)
        if found is not None:
            return found
        if known is not None and _is_good(known.client, receiver.redirect_uri, scopes):
            return known.client
        return await register(self._http, server, receiver.redirect_uri, scopes)

    async def _asked(
        self, person: Person, receiver: Receiver, login: Login, server: AuthorizationServer, scopes: tuple[str, ...]
    ) -> Login:
        """Ask the person, wait, and turn the code into tokens."""
        question = ask(server, login.client.id, receiver.redirect_uri, scopes, login.resource)
        answer: Mapping[str, str] | None = None
        with anyio.move_on_after(person.seconds):
            async with anyio.create_task_group() as group:
                group.start_soon(person.show, question.url)
                answer = await receiver.answer(question.is_answered_by)
                group.cancel_scope.cancel()
        if answer is None:
            raise ToolFailure("timeout", f"no login within {person.seconds:.0f} s", hint="Try again.")
        form = {
            "grant_type": "authorization_code",
            "code": question.code(answer),
            "redirect_uri": question.redirect_uri,
            "code_verifier": question.verifier,
        }
        return replace(login, tokens=await get_tokens(self._http, self._spec, login, form, scopes))


def _begun(resource: Resource, server: AuthorizationServer, client: Client) -> Login:
    return Login(
        resource=resource.identifier,
        issuer=server.issuer,
        token_endpoint=server.token_endpoint,
        revocation_endpoint=server.revocation_endpoint,
        client=client,
    )


def _is_good(client: Client, redirect_uri: str, scopes: tuple[str, ...]) -> bool:
    """Whether a client that was registered before may ask this question."""
    lives = not client.expires or client.expires > time.time() + _SOON
    return bool(client.id) and lives and client.redirect_uri == redirect_uri and set(scopes) <= set(client.scopes)


def _port_of(known: Login | None) -> int:
    """The port that the earlier client was registered with: the same again needs no other client."""
    if known is None or not known.client.redirect_uri:
        return 0
    return urlsplit(known.client.redirect_uri).port or 0
