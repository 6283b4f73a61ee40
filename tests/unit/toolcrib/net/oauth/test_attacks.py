"""A login against servers that want a token, a code or a secret that is not theirs: none of them gets any.

The servers are a table of answers on loopback. Each test changes one of them; what an honest one leads to is the first.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from peers.api import Api, api
from rig import PATIENCE
from toolcrib.errors import ToolFailure
from toolcrib.net.oauth.flow import Flow, Person, make_http
from toolcrib.net.oauth.login import Login
from toolcrib.net.oauth.metadata import Challenge
from toolcrib.net.oauth.spec import OAuthSpec


@dataclass
class Strangers:
    """A server and its authorization server at one loopback origin, and the browser that visits them."""

    running: Api
    resource: dict[str, Any] = field(default_factory=dict[str, Any])
    server: dict[str, Any] = field(default_factory=dict[str, Any])
    answer: dict[str, str] = field(default_factory=dict[str, str])
    """What the authorization server adds to its answer, or replaces in it; empty values are left out."""
    tokens: dict[str, Any] = field(default_factory=dict[str, Any])
    stray: list[str] = field(default_factory=list[str])
    """Queries that somebody else sends to the page that waits, before the answer comes."""

    @property
    def origin(self) -> str:
        return self.running.origin

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def asked(self, path: str) -> list[dict[str, Any]]:
        return [one for one in self.running.received if one["path"] == path]

    async def browse(self, url: str, issuer: str) -> None:
        assert issuer == self.server["issuer"]
        question = dict(parse_qsl(urlsplit(url).query))
        given = {"code": "the-code", "state": question["state"], **self.answer}
        found = urlencode({name: value for name, value in given.items() if value})
        with anyio.CancelScope(shield=True):
            async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE) as client:
                for stray in self.stray:
                    await client.get(f"{question['redirect_uri']}?{stray}")
                await client.get(f"{question['redirect_uri']}?{found}")

    async def log_in(
        self, spec: OAuthSpec | None = None, challenge: Challenge | None = None, seconds: float = PATIENCE
    ) -> Login:
        http = make_http(self.url, spec or OAuthSpec())
        try:
            flow = Flow(http, spec or OAuthSpec(), self.url)
            return await flow.with_person(Person(show=self.browse, seconds=seconds), challenge, None)
        finally:
            await http.aclose()

    async def fails(self, spec: OAuthSpec | None = None, **how: Any) -> ToolFailure:
        """Log in, which must fail before a token was asked for, and return how."""
        with pytest.raises(ToolFailure) as caught:
            await self.log_in(spec, **how)
        assert self.asked("/token") == []
        return caught.value


@asynccontextmanager
async def strangers() -> AsyncGenerator[Strangers]:
    async with api() as running:
        them = Strangers(running)
        them.resource = {"resource": them.url, "authorization_servers": [them.origin]}
        them.server = {
            "issuer": them.origin,
            "authorization_endpoint": f"{them.origin}/authorize",
            "token_endpoint": f"{them.origin}/token",
            "registration_endpoint": f"{them.origin}/register",
            "code_challenge_methods_supported": ["S256"],
        }
        them.tokens = {"access_token": "the-token", "token_type": "Bearer", "expires_in": 60}
        client = {"client_id": "us", "token_endpoint_auth_method": "none"}
        running.handlers["GET /.well-known/oauth-protected-resource/mcp"] = lambda _: replied(them.resource)
        running.handlers["GET /.well-known/oauth-authorization-server"] = lambda _: replied(them.server)
        running.handlers["POST /register"] = lambda _: replied(client, 201)
        running.handlers["POST /token"] = lambda _: replied(them.tokens)
        running.otherwise = lambda _: replied({}, 404)
        yield them


async def replied(document: Mapping[str, Any], status: int = 200) -> Response:
    return JSONResponse(dict(document), status)


async def test_an_honest_server_is_asked_with_pkce_state_and_the_resource_in_both_requests() -> None:
    async with strangers() as them:
        login = await them.log_in()
        form = dict(parse_qsl(them.asked("/token")[0]["body"]))

    assert (login.issuer, login.tokens.access, login.client.id) == (them.origin, "the-token", "us")
    assert {name: form[name] for name in ("grant_type", "code", "resource", "client_id")} == {
        "grant_type": "authorization_code",
        "code": "the-code",
        "resource": them.url,
        "client_id": "us",
    }
    assert len(form["code_verifier"]) >= 43


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"issuer": "https://attacker.example"}, "names another issuer"),
        ({"issuer": None}, "names another issuer"),
        ({"token_endpoint": "http://auth.example/token"}, "never sent in clear"),
        ({"token_endpoint": "https://evil.example\\.a.example/"}, "not a usable URL"),
        ({"authorization_endpoint": "http://auth.example/authorize"}, "never sent in clear"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not a usable URL"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "not a usable URL"),
        ({"authorization_endpoint": "https://a.example/ -e sh"}, "not a usable URL"),
        ({"authorization_endpoint": "https://a.example/`id`"}, "not a usable URL"),
        ({"authorization_endpoint": 'https://a.example/"\\'}, "not a usable URL"),
        ({"authorization_endpoint": "https://evil.example\\.a.example/"}, "not a usable URL"),
        ({"authorization_endpoint": "https://a.example/?redirect_uri=https://evil.example"}, "redirect_uri"),
        ({"registration_endpoint": "http://auth.example/register"}, "never sent in clear"),
        ({"token_endpoint": None}, "no token endpoint"),
        ({"code_challenge_methods_supported": None}, "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"registration_endpoint": None}, "does not register clients"),
    ],
    ids=str,
)
async def test_an_authorization_server_that_says_this_of_itself_gets_nothing(change: dict[str, Any], told: str) -> None:
    async with strangers() as them:
        them.server |= change

        failure = await them.fails()

    assert (failure.code, told in failure.message) == ("denied", True), failure.message


@pytest.mark.parametrize("resource", ["https://evil.example/mcp", "http://127.0.0.1:1/mcp", "{origin}/mcpother"])
async def test_a_server_that_describes_itself_as_another_one_gets_nothing(resource: str) -> None:
    async with strangers() as them:
        them.resource["resource"] = resource.format(origin=them.origin)

        failure = await them.fails()

    assert "describes itself as another one" in failure.message
    assert them.asked("/register") == []


@pytest.mark.parametrize(
    ("answer", "advertised", "told"),
    [
        ({"iss": "https://attacker.example"}, False, "another server"),
        ({"iss": "https://attacker.example"}, True, "another server"),
        ({}, True, "does not say that it comes from"),
        ({"iss": "https://attacker.example", "error": "access_denied", "error_description": "PAY"}, True, "another"),
    ],
)
async def test_an_answer_that_comes_from_elsewhere_never_gets_to_a_token_endpoint(
    answer: dict[str, str], advertised: bool, told: str
) -> None:
    async with strangers() as them:
        them.server["authorization_response_iss_parameter_supported"] = advertised
        them.answer = answer

        failure = await them.fails()

    assert told in failure.message
    assert "PAY" not in failure.message and "access_denied" not in failure.message


async def test_the_issuer_that_a_server_names_may_have_a_path() -> None:
    async with strangers() as them:
        them.server["issuer"] = issuer = f"{them.origin}/tenant"
        them.resource["authorization_servers"] = [issuer]
        place = "GET /.well-known/oauth-authorization-server"
        them.running.handlers[f"{place}/tenant"] = them.running.handlers.pop(place)

        assert (await them.log_in()).issuer == issuer


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_cannot_say_now_who_gives_its_tokens_is_not_guessed_at(status: int) -> None:
    async with strangers() as them:
        them.running.handlers["GET /.well-known/oauth-protected-resource/mcp"] = lambda _: replied({}, status)

        assert (await them.fails()).code == "unavailable"


async def test_an_issuer_that_differs_by_a_slash_is_another_one() -> None:
    async with strangers() as them:
        them.answer = {"iss": f"{them.origin}/"}

        failure = await them.fails()

    assert "another server" in failure.message


async def test_answers_to_other_questions_are_turned_away_and_change_nothing() -> None:
    async with strangers() as them:
        them.stray = ["code=stolen", "code=stolen&state=wrong", "error=access_denied&state=wrong", "state=a&state=b"]

        login = await them.log_in()
        form = dict(parse_qsl(them.asked("/token")[0]["body"]))

    assert (login.tokens.access, form["code"]) == ("the-token", "the-code")


@pytest.mark.slow
async def test_only_an_answer_with_the_wrong_state_is_no_answer_and_the_wait_ends() -> None:
    async with strangers() as them:
        them.answer = {"state": "somebody-else"}

        failure = await them.fails(seconds=1.0)

    assert failure.code == "timeout"


async def test_what_the_authorization_server_refuses_is_told_short_and_harmless() -> None:
    async with strangers() as them:
        them.answer = {"error": "access_denied", "error_description": "no\x1b[2J\u202e" + "x" * 500, "code": ""}

        failure = await them.fails()

    assert failure.message.startswith(f"{them.origin} refused: access_denied: no")
    assert "\x1b" not in failure.message and "\u202e" not in failure.message and len(failure.message) < 300


async def test_metadata_that_moved_to_another_origin_is_not_believed() -> None:
    async with strangers() as them, strangers() as others:
        others.server["issuer"] = them.origin
        path = "/.well-known/oauth-authorization-server"

        async def moved(_: Request) -> Response:
            return RedirectResponse(f"{others.origin}{path}", 302)

        them.running.handlers[f"GET {path}"] = moved
        failure = await them.fails()

    assert "does not say how to log in" in failure.message
    assert others.asked("/token") == []


@pytest.mark.parametrize("status", [302, 303, 307])
@pytest.mark.parametrize("path", ["/token", "/register"])
async def test_an_endpoint_that_redirects_elsewhere_takes_nothing_along_and_brings_nothing_back(
    path: str, status: int
) -> None:
    async with strangers() as them, strangers() as others:

        async def moved(_: Request) -> Response:
            return RedirectResponse(f"{others.origin}{path}", status)

        them.running.handlers[f"POST {path}"] = moved
        for document in (others.tokens, {"client_id": "theirs", "token_endpoint_auth_method": "none"}):
            others.running.handlers[f"GET {path}"] = lambda _, given=document: replied(given)
            with pytest.raises(ToolFailure) as caught:
                await them.log_in()
            assert caught.value.code == "denied"

    assert [one for one in others.running.received if one["body"] or one["query"]] == []


@pytest.mark.parametrize("place", ["http://169.254.169.254/meta", "https://10.0.0.1/meta", "https://192.168.1.1/meta"])
async def test_the_place_of_metadata_is_no_way_into_a_private_network(place: str) -> None:
    async with strangers() as them:
        failure = await them.fails(challenge=Challenge(resource_metadata=place))

    assert failure.code == "denied"


async def test_a_public_server_does_not_lead_to_this_machine() -> None:
    http = make_http("https://mcp.example/mcp", OAuthSpec())
    try:
        async with strangers() as them:
            with pytest.raises(ToolFailure, match="not a public address") as caught:
                flow = Flow(http, OAuthSpec(), "https://mcp.example/mcp")
                await flow.resource(Challenge(resource_metadata=f"{them.origin}/.well-known/oauth-protected-resource"))
            assert (caught.value.code, them.running.received) == ("denied", [])
    finally:
        await http.aclose()


async def test_a_server_over_plain_http_on_another_machine_gets_no_login() -> None:
    http = make_http("http://mcp.example/mcp", OAuthSpec())
    with pytest.raises(ToolFailure, match="never sent in clear"):
        Flow(http, OAuthSpec(), "http://mcp.example/mcp")
    await http.aclose()


async def test_metadata_without_an_end_is_not_read_to_the_end() -> None:
    async with strangers() as them:
        them.resource["padding"] = "x" * 300_000

        failure = await them.fails()

    assert failure.code == "too_large"


@pytest.mark.parametrize(
    "tokens",
    [
        {},
        {"access_token": "the-token"},
        {"access_token": "the-token", "token_type": "mac"},
        {"access_token": "a b", "token_type": "Bearer"},
        {"access_token": "a\r\nx-evil: 1", "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": 5, "token_type": "Bearer"},
    ],
    ids=json.dumps,
)
async def test_what_is_no_bearer_token_is_never_sent(tokens: dict[str, Any]) -> None:
    async with strangers() as them:
        them.tokens = tokens

        with pytest.raises(ToolFailure, match="no bearer token that can be used") as caught:
            await them.log_in()

    assert caught.value.code == "denied"


async def test_a_configured_issuer_is_the_only_one_that_counts() -> None:
    async with strangers() as them:
        failure = await them.fails(OAuthSpec(issuer="https://sso.example", client_id="ours"))

    assert "than is configured" in failure.message
    assert them.asked("/.well-known/oauth-authorization-server") == []


async def test_a_client_that_was_registered_elsewhere_is_not_shown_to_the_new_server() -> None:
    async with strangers() as them, strangers() as others:
        first = await others.log_in()
        spec, http = OAuthSpec(), make_http(them.url, OAuthSpec())
        try:
            person = Person(show=them.browse, seconds=PATIENCE)
            second = await Flow(http, spec, them.url).with_person(person, None, first)
            with pytest.raises(ToolFailure, match="sends us to"):
                configured = Flow(http, OAuthSpec(client_id="us"), them.url)
                await configured.with_person(person, None, first)
        finally:
            await http.aclose()

    assert second.issuer == them.origin
    assert len(them.asked("/register")) == 1
