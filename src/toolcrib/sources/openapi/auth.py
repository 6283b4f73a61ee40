"""Authentication at an API: credentials added to requests, tokens fetched and stored; none of it is ever shown."""

from __future__ import annotations

import base64
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import anyio
from msgspec.structs import replace

from ...core.json import as_mapping, read_json
from ...core.patterns import regex
from ...core.services.host import Page
from ...core.settings import check_headers
from ...errors import ToolFailure, UsageError
from ...net.client import MASK, WebClient, WebRequest
from ...net.urls import same_origin
from .parameters import Sent
from .request import Draft
from .spec import ApiKey, ApiSettings, Auth, Basic, Bearer, ClientCredentials

_LEEWAY: Final = 30.0
"""Seconds before its end at which a token counts as run out."""
_UNSAID: Final = 300.0
"""Seconds that a token of unknown life is kept."""
_REMEMBERED: Final = 16
"""Tokens that were dropped and are still masked: the answer that refused one may repeat it."""
_SECRET: Final = regex(r"auth|cookie|key|secret|token", re.IGNORECASE)
_SHORTEST: Final = 6
"""Characters; masking a shorter secret would mask ordinary words."""


class Credentials:
    """Credentials of one API, added to each request. Lives as long as its source."""

    def __init__(self, settings: ApiSettings, client: WebClient) -> None:
        """`settings.auth` must be complete (`completed`). `client` fetches tokens."""
        self._settings = settings
        self._client = client
        self._tokens: dict[int, tuple[str, float]] = {}
        self._refused: deque[str] = deque(maxlen=_REMEMBERED)
        self._lock = anyio.Lock()

    async def request(self, draft: Draft, *, anonymous: bool = False) -> WebRequest:
        """Return the whole request. Raises `ToolFailure` when a token cannot be had."""
        headers = {name.lower(): value for name, value in self._settings.headers.items()}
        auth = () if anonymous else self._settings.auth
        values = [await self._value(place, one) for place, one in enumerate(auth)]
        return _signed(draft, headers, zip(auth, values, strict=True))

    def masked(self, draft: Draft, *, anonymous: bool = False) -> WebRequest:
        """Return the request with `***` for every secret; nothing is fetched."""
        headers = {name.lower(): MASK for name in self._settings.headers}
        auth = () if anonymous else self._settings.auth
        return _signed(draft, headers, ((one, MASK) for one in auth))

    def forget(self) -> bool:
        """Drop fetched tokens because one was refused; return whether there were any."""
        had = bool(self._tokens)
        self._refused += [token for token, _ in self._tokens.values()]
        self._tokens.clear()
        return had

    def hidden(self, answer: Page) -> Page:
        """Return `answer` with our secrets masked: some APIs echo the request."""
        body, headers = answer.body, dict(answer.headers)
        for secret in self._secrets():
            body = body.replace(secret.encode(), MASK.encode())
            headers = {name: value.replace(secret, MASK) for name, value in headers.items()}
        return replace(answer, body=body, headers=headers)

    def _secrets(self) -> set[str]:
        """Our secrets, as they are and in URL encoding."""
        known = [*self._refused, *(token for token, _ in self._tokens.values())]
        known += [value for name, value in self._settings.headers.items() if _SECRET.search(name)]
        for one in self._settings.auth:
            if isinstance(one, Bearer):
                known.append(one.token)
            elif isinstance(one, Basic):
                known += [one.password, _basic(one.username, one.password)]
            elif isinstance(one, ApiKey):
                known.append(one.value)
            else:
                known.append(one.client_secret)
        known += [quote(secret, safe="") for secret in known]
        return {secret for secret in known if len(secret) >= _SHORTEST}

    async def _value(self, place: int, auth: Auth) -> str:
        if isinstance(auth, Bearer):
            return auth.token
        if isinstance(auth, Basic):
            return _basic(auth.username, auth.password)
        if isinstance(auth, ApiKey):
            return auth.value
        async with self._lock:
            kept = self._tokens.get(place)
            if kept is None or kept[1] <= time.monotonic():
                kept = self._tokens[place] = await self._fetch(auth)
        return kept[0]

    async def _fetch(self, auth: ClientCredentials) -> tuple[str, float]:
        """Return a fresh token, and when it runs out on the clock of `time.monotonic`."""
        form = {"grant_type": "client_credentials"}
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        if auth.scopes:
            form["scope"] = " ".join(auth.scopes)
        if auth.client_auth == "body":
            form |= {"client_id": auth.client_id, "client_secret": auth.client_secret}
        else:
            named = _basic(quote(auth.client_id, safe=""), quote(auth.client_secret, safe=""))
            headers["authorization"] = f"Basic {named}"
        asked = WebRequest(method="POST", url=auth.token_url, headers=headers, content=urlencode(form).encode())
        answer = await self._client.send(asked)
        try:
            given: Mapping[str, Any] = as_mapping(read_json(answer.body))
        except ValueError:
            given = {}
        token, seconds = given.get("access_token"), given.get("expires_in")
        if not 200 <= answer.status < 300 or not isinstance(token, str) or not token:
            reason = str(given.get("error_description") or given.get("error") or f"HTTP {answer.status}")[:200]
            raise ToolFailure(
                "denied",
                f"{urlsplit(auth.token_url).hostname} gave us no access token: {reason}",
                hint="The operator must check client id, secret and scopes of this API.",
            )
        life = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else _UNSAID
        return token, time.monotonic() + max(life - _LEEWAY, life / 2)


def completed(settings: ApiSettings, schemes: Mapping[str, Any], base_url: str) -> ApiSettings:
    """Return `settings` completed by the description's keys and token URLs. Raises `UsageError` with the key."""
    return settings.model_copy(update={"auth": tuple(_completed(one, schemes, base_url) for one in settings.auth)})


def sent_by(settings: ApiSettings, schemes: Mapping[str, Any]) -> Sent:
    """Return the parameters that every request carries, so that they are not arguments."""
    keys = [_key_of(one, schemes) for one in settings.auth if isinstance(one, ApiKey)]
    headers = {name.lower() for name in settings.headers} | {name.lower() for name, place in keys if place == "header"}
    return Sent(
        headers=frozenset(headers),
        query=frozenset(name for name, place in keys if place == "query"),
        cookies=frozenset(name for name, place in keys if place == "cookie"),
    )


def _completed(auth: Auth, schemes: Mapping[str, Any], base_url: str) -> Auth:
    if isinstance(auth, ApiKey):
        name, place = _key_of(auth, schemes)
        if not name or place not in ("header", "query", "cookie"):
            hint = "set `name` and `in`: header, query or cookie"
            raise UsageError(f"auth: the description does not define the place of the API key; {hint}")
        if place == "header":
            try:
                check_headers({name: auth.value})
            except ValueError as error:
                raise UsageError(f"auth: {error}") from None
        return auth.model_copy(update={"name": name, "place": place})
    if isinstance(auth, ClientCredentials) and not auth.token_url:
        for scheme in map(as_mapping, schemes.values()):
            url = as_mapping(as_mapping(scheme.get("flows")).get("clientCredentials")).get("tokenUrl")
            if isinstance(url, str) and same_origin(url, base_url):
                return auth.model_copy(update={"token_url": url})
        raise UsageError("auth: set `token_url`; the description names none at the API's own origin")
    return auth


def _key_of(auth: ApiKey, schemes: Mapping[str, Any]) -> tuple[str, str]:
    if auth.name:
        return auth.name, auth.place or "header"
    for scheme in map(as_mapping, schemes.values()):
        if scheme.get("type") == "apiKey" and (not auth.place or scheme.get("in") == auth.place):
            return str(scheme.get("name", "")), str(scheme.get("in", ""))
    return "", auth.place


def _signed(draft: Draft, headers: Mapping[str, str], credentials: Iterable[tuple[Auth, str]]) -> WebRequest:
    """Assemble the request; the operator's values override the model's."""
    made = {**draft.headers, **headers}
    query, cookies = list(draft.query), list(draft.cookies)
    for auth, value in credentials:
        if isinstance(auth, Basic):
            made["authorization"] = f"Basic {value}"
        elif not isinstance(auth, ApiKey):
            made["authorization"] = f"Bearer {value}"
        elif auth.place == "header":
            made[auth.name.lower()] = value
        else:
            shown = value if value == MASK else quote(value, safe="")
            (query if auth.place == "query" else cookies).append(f"{quote(auth.name, safe='')}={shown}")
    if cookies:
        made["cookie"] = "; ".join([*([made["cookie"]] if "cookie" in made else []), *cookies])
    url = draft.url + ("?" + "&".join(query) if query else "")
    return WebRequest(method=draft.method, url=url, headers=made, content=draft.content)


def _basic(username: str, password: str) -> str:
    return base64.b64encode(f"{username}:{password}".encode()).decode()
