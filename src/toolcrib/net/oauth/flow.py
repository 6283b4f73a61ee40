"""Authorization flow: from a server's refusal to a token that it accepts, with a person and without one.

    refusal: 401, `WWW-Authenticate`
      `find_resource`   who issues tokens for the server, and its scopes             RFC 9728
      `find_server`     endpoints of that issuer                                     RFC 8414, OpenID Connect Discovery
      `Flow._client`    configured, or registered before, or `register`              RFC 7591
      `ask`             address for the browser, with state, PKCE and the resource   RFC 7636, 8707
      `Receiver`        the answer, at a page on 127.0.0.1                           RFC 8252
      `get_tokens`      its code for tokens                                          RFC 6749

Without a person (`client_credentials`) the last step follows the first two.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import anyio.abc
from msgspec import Struct
from msgspec.structs import replace

from ...errors import ToolFailure, UsageError
from ..client import NetLimits, WebClient
from ..urls import origin
from .login import Login, RegisteredClient
from .metadata import (
    AuthorizationServer,
    Challenge,
    Resource,
    find_resource,
    find_server,
    guard_for,
    safe_url,
)
from .spec import OAuthSpec
from .tokens import configured, get_tokens, refusal_in, register

_OFFLINE_SCOPE: Final = "offline_access"

CALLBACK_PATH: Final = "/callback"
_CALLBACK_HOST: Final = "127.0.0.1"
_MAX_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a request's head."""
_REQUEST_SECONDS: Final = 10.0
"""Seconds that a browser has for its request."""
_MAX_CONNECTIONS: Final = 16
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Toolcrib</title>
<style>body{{font:1.1rem/1.5 system-ui,sans-serif;margin:20vh auto;max-width:32rem;text-align:center}}</style>
<h1>{title}</h1><p>{text}</p></html>"""
_DONE_PAGE: Final = ("Thank you", "Toolcrib has the answer. You can close this window and go back to the terminal.")
_UNKNOWN_ANSWER_PAGE: Final = (
    "Not this one",
    "This does not answer the login that Toolcrib waits for. Nothing was changed.",
)
_HEADERS: Final = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "x-content-type-options: nosniff\r\nconnection: close\r\n"
)

_EXPIRY_MARGIN_SECONDS: Final = 60.0

_LIMITS: Final = NetLimits(body_bytes=256 * 1024, seconds=20.0, idle_seconds=10.0)
"""Of a client for OAuth: no document of it is a tenth as long, and a person waits."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """One request for authorization, until its answer comes. Used once."""

    url: str = dataclasses.field(repr=False)
    """For the browser."""
    issuer: str
    """Issuer of the authorization server that was asked."""
    redirect_uri: str
    state: str = dataclasses.field(repr=False)
    verifier: str = dataclasses.field(repr=False)
    needs_issuer: bool
    """Whether an answer without its issuer is invalid."""

    def is_answered_by(self, answer: Mapping[str, str]) -> bool:
        """Whether `answer` is to this question and to no other; what is not is ignored."""
        return hmac.compare_digest(answer.get("state", "").encode(), self.state.encode())

    def code(self, answer: Mapping[str, str]) -> str:
        """Return the authorization code of an answer to this question. Raises `ToolFailure` `denied`."""
        issuer = answer.get("iss")
        if issuer is None and self.needs_issuer:
            raise ToolFailure(
                "denied", f"the answer does not say that it comes from {self.issuer[:200]}; it is not used"
            )
        if issuer is not None and issuer != self.issuer:
            raise ToolFailure(
                "denied", f"the answer comes from another server than {self.issuer[:200]}; it is not used"
            )
        if "error" in answer:
            raise refusal_in(answer, 400, self.issuer)
        code = answer.get("code", "")
        if not code:
            raise ToolFailure("denied", f"the answer of {self.issuer[:200]} holds no code")
        return code


def ask(
    server: AuthorizationServer, client_id: str, redirect_uri: str, scopes: tuple[str, ...], resource: str
) -> AuthorizationRequest:
    """Return the question. Raises `ToolFailure` `denied` for a server that does not say that it takes PKCE (S256)."""
    if not server.authorization_endpoint:
        raise ToolFailure("denied", f"{server.issuer[:200]} asks no people: it names no authorization endpoint")
    if "S256" not in server.challenge_methods:
        raise ToolFailure(
            "denied",
            f"{server.issuer[:200]} does not say that it takes PKCE with S256: who overhears the answer could use it",
        )
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    if _OFFLINE_SCOPE in scopes:
        asked["prompt"] = "consent"  # OpenID Connect Core, section 11
    query = urlsplit(server.authorization_endpoint).query
    if twice := asked.keys() & dict(parse_qsl(query, keep_blank_values=True)).keys():  # RFC 6749, section 3.1
        names = ", ".join(sorted(twice))
        raise ToolFailure("denied", f"the authorization endpoint of {server.issuer[:200]} sets {names}, which is ours")
    mark = "&" if "?" in server.authorization_endpoint else "?"
    return AuthorizationRequest(
        url=f"{server.authorization_endpoint}{mark}{urlencode(asked)}",
        issuer=server.issuer,
        redirect_uri=redirect_uri,
        state=state,
        verifier=verifier,
        needs_issuer=server.names_itself,
    )


class Receiver:
    """Listens for one answer. Lives in `receiving`.

    Every program and web page of this machine can reach the port. Only a request for our page with the `state` of the
    question ends the wait; any other gets a 404 and changes nothing.
    """

    def __init__(self, listener: anyio.abc.Listener[anyio.abc.SocketStream], port: int) -> None:
        self.port = port
        self.redirect_uri = f"http://{_CALLBACK_HOST}:{port}{CALLBACK_PATH}"
        self._listener = listener
        self._hosts = (f"{_CALLBACK_HOST}:{port}", f"localhost:{port}")
        self._limiter = anyio.CapacityLimiter(_MAX_CONNECTIONS)

    async def answer(self, is_ours: Callable[[Mapping[str, str]], bool]) -> Mapping[str, str]:
        """Return the parameters of the first request that `is_ours`; the caller sets the limit."""
        found: list[Mapping[str, str]] = []
        async with anyio.create_task_group() as group:

            async def handle(stream: anyio.abc.SocketStream) -> None:
                async with stream, self._limiter:
                    given = await self._read(stream)
                    good = given is not None and not found and is_ours(given)
                    if given is not None and good:
                        found.append(given)
                    with anyio.move_on_after(_REQUEST_SECONDS):
                        await _reply(stream, good=good)
                if found:
                    group.cancel_scope.cancel()

            group.start_soon(self._listener.serve, handle)
        return found[0]

    async def _read(self, stream: anyio.abc.SocketStream) -> Mapping[str, str] | None:
        """Return the query of a request for our page; None for any other request."""
        head = b""
        with anyio.move_on_after(_REQUEST_SECONDS):
            try:
                while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD_BYTES:
                    head += await stream.receive(_MAX_HEAD_BYTES)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
        line, *rest = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
        words = line.split(" ")
        if len(words) != 3 or words[0] != "GET" or headers.get("host", "").lower() not in self._hosts:
            return None
        path, _, query = words[1].partition("?")
        if path != CALLBACK_PATH:
            return None
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
        except ValueError:
            return None
        given = dict(pairs)
        return given if len(given) == len(pairs) else None  # a repeated parameter makes it invalid (RFC 6749, 3.1)


@asynccontextmanager
async def receiving(port: int, *, exactly: bool) -> AsyncGenerator[Receiver]:
    """Listen on `port` of 127.0.0.1, or on any where it is 0 or taken; `exactly` raises `UsageError` instead."""
    try:
        listeners = await anyio.create_tcp_listener(local_host=_CALLBACK_HOST, local_port=port)
    except OSError as error:
        if exactly:
            raise UsageError(f"auth: `redirect_port` {port} on this machine cannot be listened on: {error}") from error
        listeners = await anyio.create_tcp_listener(local_host=_CALLBACK_HOST)
    async with listeners:
        yield Receiver(listeners, listeners.extra(anyio.abc.SocketAttribute.local_port))


async def _reply(stream: anyio.abc.SocketStream, *, good: bool) -> None:
    title, text = _DONE_PAGE if good else _UNKNOWN_ANSWER_PAGE
    body = _PAGE.format(title=title, text=text).encode()
    status = "200 OK" if good else "404 Not Found"
    try:
        await stream.send(f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n".encode() + body)
        await stream.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


class Person(Struct, frozen=True, kw_only=True):
    """Interface to the person who can log in."""

    show: Callable[[str, str], Coroutine[Any, Any, None]]
    """Shows them an address, in a browser if possible; returns without their answer and never raises.

    The second argument is the issuer that gets the answer. A page elsewhere may ask for what they do not mean to give
    to that one (a mix-up), and only they can tell.
    """
    seconds: float = 300.0
    """Longest time for the login, in seconds."""


def make_http(url: str, spec: OAuthSpec) -> WebClient:
    """Return a client that reaches the addresses allowed for the server at `url`; the caller closes it."""
    return WebClient(guard_for(url, spec.issuer), _LIMITS)


def _wanted_scopes(
    spec: OAuthSpec, resource: Resource, server: AuthorizationServer, challenge: Challenge | None
) -> tuple[str, ...]:
    """Return the scopes to ask for: the configured ones, else those of the refusal, else those of the server."""
    named = challenge.scopes if challenge is not None and challenge.scopes else resource.scopes
    scopes = spec.scopes or named
    if (
        scopes
        and _OFFLINE_SCOPE in server.scopes
        and _OFFLINE_SCOPE not in scopes
        and spec.grant == "authorization_code"
    ):
        return (*scopes, _OFFLINE_SCOPE)  # without it some servers give no refresh token
    return scopes


class Flow:
    """Logs in to one server. Keeps nothing: what comes of it is returned."""

    def __init__(self, http: WebClient, spec: OAuthSpec, url: str) -> None:
        """`url` is the server's."""
        self._http = http
        self._spec = spec
        self._url = safe_url(url, "the server")

    async def resource(self, challenge: Challenge | None) -> Resource:
        """Return the server's metadata, with the issuers that count. Raises `ToolFailure`."""
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
        scopes = tuple(dict.fromkeys((*_wanted_scopes(self._spec, resource, server, challenge), *extra)))
        port = self._spec.redirect_port or _port_of(known)
        async with receiving(port, exactly=bool(self._spec.redirect_port)) as receiver:
            client = await self._client(server, known, receiver, scopes)
            return await self._ask_person(person, receiver, _begin_login(resource, server, client), server, scopes)

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
        scopes = tuple(dict.fromkeys((*_wanted_scopes(self._spec, resource, server, challenge), *extra)))
        form = {"grant_type": "client_credentials"} | ({"scope": " ".join(scopes)} if scopes else {})
        login = _begin_login(resource, server, client)
        return dataclasses.replace(login, tokens=await get_tokens(self._http, self._spec, login, form, scopes))

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
    ) -> RegisteredClient:
        found = configured(self._spec, server)
        if found is not None:
            return found
        if known is not None and _is_good(known.client, receiver.redirect_uri, scopes):
            return known.client
        return await register(self._http, server, receiver.redirect_uri, scopes)

    async def _ask_person(
        self, person: Person, receiver: Receiver, login: Login, server: AuthorizationServer, scopes: tuple[str, ...]
    ) -> Login:
        """Ask the person, wait, and turn the code into tokens."""
        question = ask(server, login.client.id, receiver.redirect_uri, scopes, login.resource)
        answer: Mapping[str, str] | None = None
        with anyio.move_on_after(person.seconds):
            async with anyio.create_task_group() as group:
                group.start_soon(person.show, question.url, question.issuer)
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
        return dataclasses.replace(login, tokens=await get_tokens(self._http, self._spec, login, form, scopes))


def _begin_login(resource: Resource, server: AuthorizationServer, client: RegisteredClient) -> Login:
    return Login(
        resource=resource.identifier,
        issuer=server.issuer,
        token_endpoint=server.token_endpoint,
        revocation_endpoint=server.revocation_endpoint,
        client=client,
    )


def _is_good(client: RegisteredClient, redirect_uri: str, scopes: tuple[str, ...]) -> bool:
    """Whether a client that was registered before may ask this question."""
    lives = not client.expires or client.expires > time.time() + _EXPIRY_MARGIN_SECONDS
    return bool(client.id) and lives and client.redirect_uri == redirect_uri and set(scopes) <= set(client.scopes)


def _port_of(known: Login | None) -> int:
    """The port that the earlier client was registered with: the same again needs no other client."""
    if known is None or not known.client.redirect_uri:
        return 0
    return urlsplit(known.client.redirect_uri).port or 0
