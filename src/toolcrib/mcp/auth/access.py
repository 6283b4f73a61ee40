"""Access to one server over HTTP: the token of every request, and the handling of refusals.

No request waits for a person unless one was given: a gateway without a screen names the command to run, and goes on
with its other servers. Tokens are renewed before they run out and after they were refused, by one process at a time.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from ...errors import ToolcribError, ToolFailure
from ...net.client import WebClient
from ...net.oauth.flow import Flow, Person, make_http
from ...net.oauth.login import NO_TOKENS, Login, RegisteredClient
from ...net.oauth.metadata import Challenge, bearer_challenge
from ...net.oauth.spec import OAuthSpec
from ...net.oauth.tokens import OAuthRefusal, renewed, revoke
from .login_store import Logins, NeedsLogin, login_key

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_LEEWAY: Final = 30.0
"""Seconds before its end at which a token is renewed."""
_GRACE: Final = 2.0
"""Seconds that a renewal has left once no request waits for it: a close must not take longer (security.md R10)."""
_FORGOTTEN: Final = ("invalid_client", "unauthorized_client")
"""The authorization server knows our client no longer: the next login has another one made."""


class Access:
    """The login of one server, as long as its source. Used from one event loop, shared with other processes.

    The transport (`client.http_exchange`) sends each request with `header`, and hands a refusal to `refused`, which
    returns when the request may be sent again. In this order, one refusal at a time (`_lock`):

    1. another request or process has another token by now: that one
    2. 403 that names further scopes: a login for these, too (`_widen`)
    3. a token that was issued just now: refused for good
    4. a refresh token: renewed, under the lock that all processes share (`Logins.held`), because many authorization
       servers take a refresh token once
    5. the person, if there is one; else `NeedsLogin`, which names the command
    """

    def __init__(
        self,
        server: str,
        url: str,
        spec: OAuthSpec,
        logins: Logins,
        *,
        person: Person | None = None,
        learn: Callable[[Iterable[str]], None] | None = None,
        configured: Callable[[], OAuthSpec | None] | None = None,
    ) -> None:
        """`person` logs in when asked; None disables that. `learn` receives every secret at once.

        `configured` reads what the configuration says by now, once our client credentials are refused: they may have
        been rotated. It is called in a thread.
        """
        self._configured = configured
        self._server = server
        self._url = url
        self._spec = spec
        self._logins = logins
        self._person = person
        self._learn = learn
        self._key = login_key(url, spec)
        self._login: Login | None = None
        self._stamp: object = None
        """Of the stored login when it was read last; None has the next request read it."""
        self._lock = anyio.Lock()
        self._http: WebClient | None = None
        self._ended: ToolFailure | None = None
        """Outcome of the only attempt with a person; every later refusal gets it."""
        self._unproven = ""
        """The header of a token that was just issued: refused at its first use, it will be refused again."""
        self._asked: set[str] = set()
        """Scopes that were asked for because something was not allowed."""

    @property
    def current(self) -> str:
        """The `Authorization` that was sent last; empty before the first. Nothing is renewed."""
        token = self._login.tokens.access if self._login is not None else ""
        return f"Bearer {token}" if token else ""

    async def header(self) -> str:
        """Return the `Authorization` of a request; empty if there is no login. Renews a token that runs out."""
        if self._person is not None:
            async with self._lock:  # a login may be in progress: a request sent meanwhile would be refused, or end it
                pass
        if self._stamp is None:
            await self._read()
        if self._runs_out():
            async with self._lock:
                if self._runs_out():
                    await self._renew_early()
        return self.current

    def worked(self) -> None:
        """Note that a request was not refused."""
        self._unproven = ""

    def concerns(self, status: int, header: str) -> bool:
        """Whether a refusal is about who we are: the rest of `refused` is worth the wait."""
        if status == 401:
            return True
        challenge = bearer_challenge(header) if status == 403 else None
        return challenge is not None and challenge.wants_more

    async def refused(self, status: int, header: str, used: str) -> None:
        """Get another token than the one `used`, which was refused; returns when the request may be sent again.

        Raises `NeedsLogin`, or `ToolFailure` for what no login of this kind brings.
        """
        challenge = bearer_challenge(header)
        async with self._lock:
            if self._ended is not None:
                raise self._ended
            if await self._is_another(used):
                return
            try:
                if status == 403:
                    await self._widen(challenge)
                elif used and used == self._unproven:
                    raise ToolFailure(
                        "denied", f"server {self._server!r} refuses the token that was issued for it just now"
                    )
                else:
                    await self._replace(challenge)
                    self._unproven = self.current
            except ToolFailure as failure:
                if self._person is not None:
                    self._ended = failure  # the person is asked once only
                raise

    async def log_in(self, challenge: Challenge | None, scopes: tuple[str, ...] = ()) -> Login:
        """Have the person log in, even with a login in place; `scopes` are asked for as well. Raises `ToolFailure`."""
        if self._spec.grant == "client_credentials":
            await self._keep(await self._flow().without_person(challenge, None, scopes))
        elif self._person is None:
            raise NeedsLogin(self._server, "no person can be asked to log in here")
        else:
            known = await self._read()
            await self._keep(await self._flow().with_person(self._person, challenge, known, scopes))
        if self._login is None:
            raise ToolFailure("internal", "a login was not kept")
        return self._login

    async def log_out(self) -> bool:
        """Forget the login, and revoke it where the authorization server takes that; return whether there was one."""
        known = await self._read()
        if known is not None and known.tokens.secrets():
            try:
                is_revoked = await revoke(self._client(), self._spec, known)
            except ToolFailure as failure:
                _logger.info("server %s: %s", self._server, failure.message)
                is_revoked = False
            if not is_revoked:
                _logger.warning(
                    "server %s: the tokens are forgotten, but may stay good until they run out", self._server
                )
        was_there = await _aside(partial(self._logins.remove, self._key))
        self._login, self._stamp = None, None
        return was_there

    async def changed(self) -> bool:
        """Whether the login differs from the one that was read last, after a login or a logout elsewhere."""
        return await _aside(partial(self._logins.stamp, self._key)) != self._stamp

    def forget(self) -> None:
        """Read the login again before it is used the next time."""
        self._stamp = None

    async def aclose(self) -> None:
        """End what was opened. Safe to call twice."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def _runs_out(self) -> bool:
        tokens = self._login.tokens if self._login is not None else NO_TOKENS
        ends = bool(tokens.expires) and tokens.expires - _LEEWAY <= time.time()
        return ends and (bool(tokens.refresh) or self._spec.grant == "client_credentials")

    async def _renew_early(self) -> None:
        """Renew a token that is about to run out. Where that fails the server decides on it: the clock may be wrong."""
        try:
            async with self._logins.held(self._key):
                known = await self._read()
                if known is None or not self._runs_out():
                    return
                if self._spec.grant == "client_credentials":
                    await self._keep(
                        await self._as_client(lambda: self._flow().without_person(None, known, known.tokens.scopes))
                    )
                else:
                    await self._refresh(known)
        except ToolFailure as failure:
            _logger.info("server %s: %s", self._server, failure.message)

    async def _is_another(self, used: str) -> bool:
        """Whether there is another token by now: a refused request, here or in another process, renewed it."""
        await self._read()
        return self.current not in ("", used)

    async def _replace(self, challenge: Challenge | None) -> None:
        """Replace a token that is not taken (any more), or get the first one."""
        if self._spec.grant == "client_credentials":
            async with self._logins.held(self._key):
                held = await self._read()
                await self._keep(await self._as_client(lambda: self._flow().without_person(challenge, held)))
            return
        known = self._login
        if known is not None and known.tokens.refresh:
            resource = await self._flow().resource(challenge)
            if any(known.issuer.rstrip("/") == issuer.rstrip("/") for issuer in resource.issuers):
                async with self._logins.held(self._key):
                    fresh = await self._read()
                    if fresh is not None and fresh.tokens.access != known.tokens.access:
                        return
                    if await self._refreshed(fresh or known):
                        return
        if self._person is None:
            reason = "it has no login yet" if known is None else "its login is no longer valid"
            raise NeedsLogin(self._server, reason)
        await self._keep(await self._flow().with_person(self._person, challenge, known))

    async def _widen(self, challenge: Challenge | None) -> None:
        """Get a token for more than the one there is; one that was asked for the same before is not asked for again."""
        scopes = challenge.scopes if challenge is not None else ()
        known = self._login
        has = known.tokens.scopes if known is not None else ()
        if not set(scopes) - set(has) - self._asked:
            raise ToolFailure("denied", f"server {self._server!r} does not allow this with our login")
        if self._spec.grant == "client_credentials":
            self._asked.update(scopes)
            await self._keep(await self._flow().without_person(challenge, known, (*has, *scopes)))
        elif self._person is not None:
            self._asked.update(scopes)
            await self._keep(await self._flow().with_person(self._person, challenge, known, (*has, *scopes)))
        else:
            more = " ".join(scopes)
            raise ToolFailure(
                "denied",
                f"server {self._server!r} allows this only with more rights ({more[:200]}) than our login has",
                hint=f"The user runs `toolcrib login {shlex.quote(self._server)} --scope {shlex.quote(more[:500])}`.",
            )

    async def _refreshed(self, known: Login) -> bool:
        """Whether there are new tokens; False when the authorization server wants a person."""
        try:
            await self._refresh(known)
        except OAuthRefusal:
            return False
        return True

    async def _refresh(self, known: Login) -> None:
        """Renew the tokens, to the end even where the caller is cancelled: new ones that are not kept end the login."""
        await _finished(partial(self._renew, known), _GRACE)

    async def _renew(self, known: Login) -> None:
        try:
            tokens = await self._as_client(lambda: renewed(self._client(), self._spec, self._as_configured(known)))
            await self._keep(replace(self._as_configured(known), tokens=tokens))
        except OAuthRefusal as refusal:
            _logger.warning("server %s: the login could not be renewed (%s)", self._server, refusal.error or "refused")
            client = RegisteredClient(id="", redirect_uri="") if refusal.error in _FORGOTTEN else known.client
            await self._keep(replace(known, client=client, tokens=replace(NO_TOKENS, scopes=known.tokens.scopes)))
            raise

    async def _as_client(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return `ask()`; where our configured client is refused, once more with the credentials that it has by now.

        Raises `ToolFailure` with what to do where those are refused too: no login would help.
        """
        try:
            return await ask()
        except OAuthRefusal as refusal:
            if not self._spec.is_registered or refusal.error not in _FORGOTTEN:
                raise
            if await self._reconfigured():
                return await self._as_client(ask)
            raise ToolFailure(
                "denied",
                f"server {self._server!r}: the authorization server does not take our client credentials (any more):"
                f" {refusal.message}",
                hint="The operator puts the present ones where `auth` of the server takes them from; the next call"
                " reads them there. Only those in an environment variable need a restart.",
            ) from refusal

    async def _reconfigured(self) -> bool:
        """Whether the configuration has other credentials by now; they count from here on."""
        now = None if self._configured is None else await _aside(self._configured)
        if now is None or now == self._spec or login_key(self._url, now) != self._key:
            return False
        if self._learn is not None:
            self._learn(secret for secret in (now.client_secret, now.private_key) if secret)
        self._spec = now
        return True

    def _as_configured(self, login: Login) -> Login:
        """Return a login with the secret that the configuration has for its client: it may be newer than the login."""
        spec = self._spec
        if not spec.is_registered or login.client.id != spec.client_id or login.client.auth == "private_key_jwt":
            return login
        return replace(login, client=replace(login.client, secret=spec.client_secret))

    async def _read(self) -> Login | None:
        """Read the login. What is written while it is read is noticed later: the stamp is older then."""
        self._stamp = await _aside(partial(self._logins.stamp, self._key))
        self._take(await _aside(partial(self._logins.read, self._key)))
        return self._login

    async def _keep(self, login: Login) -> None:
        self._take(login)
        try:
            await _aside(partial(self._logins.write, self._key, login))
        except OSError as error:
            raise ToolFailure("storage", f"the login cannot be kept: {error.strerror}") from error
        self._stamp = await _aside(partial(self._logins.stamp, self._key))

    def _take(self, login: Login | None) -> None:
        if login is not None and login != self._login and self._learn is not None:
            self._learn((*login.tokens.secrets(), *([login.client.secret] if login.client.secret else [])))
        self._login = login

    def _flow(self) -> Flow:
        return Flow(self._client(), self._spec, self._url)

    def _client(self) -> WebClient:
        if self._http is None:
            self._http = make_http(self._url, self._spec)
        return self._http


async def _aside(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


async def _finished(work: Callable[[], Awaitable[None]], grace: float) -> None:
    """Run `work`. Where the caller is cancelled meanwhile, `work` goes on for `grace` seconds at most."""
    failures = list[ToolcribError]()
    scope, ended = anyio.CancelScope(shield=True), anyio.Event()

    async def run() -> None:
        with scope:
            try:
                await work()
            except ToolcribError as failure:
                failures.append(failure)  # raised in the group, it would come out as another type
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        try:
            await ended.wait()
        except anyio.get_cancelled_exc_class():
            scope.deadline = anyio.current_time() + grace
            raise
    if failures:
        raise failures[0]
