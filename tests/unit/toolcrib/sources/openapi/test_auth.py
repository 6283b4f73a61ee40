"""Credentials reach the API and nobody else: not the model, not another origin, not a dry run."""

from typing import Any
from urllib.parse import parse_qs

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from peers.api import Api, OpenedApi, api, described, open_api
from toolcrib.errors import UsageError
from toolcrib.sources.openapi.auth import completed
from toolcrib.sources.openapi.spec import ApiKey, ApiSettings, Auth, Basic, Bearer, ClientCredentials

SECRET = "s3cret-value-1"
PATHS: dict[str, Any] = {
    "/x": {"get": {"operationId": "read"}, "post": {"operationId": "write"}},
    "/public": {"get": {"operationId": "public", "security": []}},
}


@pytest.mark.parametrize(
    ("auth", "where", "value"),
    [
        (Bearer(token=SECRET), "authorization", f"Bearer {SECRET}"),
        (Basic(username="me", password=SECRET), "authorization", "Basic bWU6czNjcmV0LXZhbHVlLTE="),
        (ApiKey(value=SECRET, name="X-Key", place="header"), "x-key", SECRET),
        (ApiKey(value=SECRET, name="key", place="query"), "query", f"key={SECRET}"),
        (ApiKey(value=SECRET, name="key", place="cookie"), "cookie", f"key={SECRET}"),
    ],
)
async def test_every_scheme_puts_the_credential_where_it_belongs(auth: Auth, where: str, value: str) -> None:
    async with api() as running, open_api(described(PATHS), base_url=running.origin, auth=(auth,)) as opened:
        await opened.call("read")
        await opened.call("public")

        sent, public = ({**seen["headers"], "query": seen["query"]} for seen in running.received)
        assert sent[where] == value
        assert SECRET not in str(public)
        assert "authorization" not in public


async def test_an_api_key_goes_where_the_description_says_and_is_no_argument() -> None:
    schemes = {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}
    parameter = {"name": "api_key", "in": "query", "required": True, "schema": {"type": "string"}}
    description = described(
        {"/x": {"get": {"operationId": "read", "parameters": [parameter]}}}, components={"securitySchemes": schemes}
    )
    async with (
        api() as running,
        open_api(description, base_url=running.origin, auth=(ApiKey(value="k e&y"),)) as opened,
    ):
        assert opened.tools["read"].input_schema["properties"] == {}
        await opened.call("read")
        assert running.received[0]["query"] == "api_key=k%20e%26y"


async def test_configured_headers_are_sent_and_win_over_arguments() -> None:
    parameter = {"name": "X-Tenant", "in": "header", "schema": {"type": "string"}}
    description = described({"/x": {"get": {"operationId": "read", "parameters": [parameter]}}})
    headers = {"X-Tenant": "ours", "Accept": "application/vnd.x+json"}
    async with api() as running, open_api(description, base_url=running.origin, headers=headers) as opened:
        seen = await opened.sent("read")

        assert (seen["headers"]["x-tenant"], seen["headers"]["accept"]) == ("ours", "application/vnd.x+json")
        assert opened.tools["read"].input_schema["properties"] == {}


async def test_an_api_that_repeats_a_secret_does_not_tell_it_to_the_model() -> None:
    async with (
        api() as running,
        open_api(described(PATHS), base_url=running.origin, auth=(Bearer(token=SECRET),)) as opened,
    ):
        result = await opened.call("read")

    assert running.received[0]["headers"]["authorization"] == f"Bearer {SECRET}"
    assert result.structured_content["headers"]["authorization"] == "Bearer ***"
    assert SECRET not in result.text


async def test_a_secret_in_a_redirect_that_is_told_is_masked() -> None:
    async def moved(request: Request) -> Response:
        return RedirectResponse(f"/login?from={request.url.query}", 302)

    auth = (ApiKey(value="k e&y-secret", name="key", place="query"),)
    async with (
        api({"POST /x": moved}) as running,
        open_api(described(PATHS), base_url=running.origin, auth=auth) as opened,
    ):
        failure = await opened.failing("write")

    assert "redirects to /login?from=key=***" in failure.message


async def test_a_dry_run_shows_the_request_and_no_secret() -> None:
    auth = (ApiKey(value=SECRET, name="key", place="query"), Basic(username="me", password=SECRET))
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    description = described({"/x/{id}": {"post": {"operationId": "op", **body}}})
    async with (
        api() as running,
        open_api(description, base_url=running.origin, auth=auth, headers={"X-Own": SECRET}) as opened,
    ):
        line = opened.source.describe(opened.tools["op"], {"id": "a b", "title": "it's"})

        assert running.received == []
    assert line == (
        f"curl -X POST '{running.origin}/x/a%20b?key=***' -H 'accept: application/json' "
        "-H 'content-type: application/json' -H 'x-own: ***' -H 'authorization: Basic ***' "
        """--data-binary '{"title":"it'"'"'s"}'"""
    )


async def test_a_credential_is_not_sent_along_a_redirect_to_another_origin() -> None:
    async with api() as other:

        async def moved(request: Request) -> Response:
            return RedirectResponse(f"{other.origin}/y", 302)

        auth = (Bearer(token=SECRET), ApiKey(value=SECRET, name="X-Key", place="header"))
        async with (
            api({"GET /x": moved}) as running,
            open_api(described(PATHS), base_url=running.origin, auth=auth) as opened,
        ):
            failure = await opened.failing("read")

    assert (failure.code, "not a public address" in failure.message) == ("denied", True)
    assert other.received == []


class Tokens:
    """A token endpoint that counts, and an API that believes the newest token only."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def token(self, request: Request) -> Response:
        form = {key: values[0] for key, values in parse_qs((await request.body()).decode()).items()}
        self.asked.append({**form, "authorization": request.headers.get("authorization", "")})
        if "error" in self.answer:
            return JSONResponse(self.answer, 401)
        return JSONResponse({"access_token": f"token-{len(self.asked)}", "token_type": "Bearer", **self.answer})

    async def guarded(self, request: Request) -> Response:
        expected = f"Bearer token-{len(self.asked)}"
        seen = request.headers.get("authorization", "")
        return PlainTextResponse(seen) if seen == expected else JSONResponse({"message": "expired"}, 401)


def with_tokens(tokens: Tokens) -> dict[str, Any]:
    return {"POST /token": tokens.token, "GET /x": tokens.guarded, "POST /x": tokens.guarded}


def client(running: Api, **more: Any) -> ClientCredentials:
    given: dict[str, Any] = {"token_url": f"{running.origin}/token", **more}
    return ClientCredentials(client_id="id", client_secret=SECRET, **given)


async def call_twice(opened: OpenedApi) -> list[str]:
    return [(await opened.call("read")).text for _ in range(2)]


async def test_a_client_credentials_token_is_fetched_once_and_kept() -> None:
    tokens = Tokens(expires_in=3600)
    async with (
        api(with_tokens(tokens)) as running,
        open_api(described(PATHS), base_url=running.origin, auth=(client(running, scopes=("a", "b")),)) as opened,
    ):
        assert await call_twice(opened) == ["Bearer ***", "Bearer ***"]

    assert tokens.asked == [
        {"grant_type": "client_credentials", "scope": "a b", "authorization": "Basic aWQ6czNjcmV0LXZhbHVlLTE="}
    ]


async def test_id_and_secret_may_go_in_the_form() -> None:
    tokens = Tokens()
    async with (
        api(with_tokens(tokens)) as running,
        open_api(described(PATHS), base_url=running.origin, auth=(client(running, client_auth="body"),)) as opened,
    ):
        await opened.call("read")

    assert tokens.asked == [
        {"grant_type": "client_credentials", "client_id": "id", "client_secret": SECRET, "authorization": ""}
    ]


async def test_a_token_that_is_refused_is_fetched_again_for_a_read_and_for_the_next_write() -> None:
    tokens = Tokens(expires_in=3600)
    async with (
        api(with_tokens(tokens)) as running,
        open_api(described(PATHS), base_url=running.origin, auth=(client(running),)) as opened,
    ):
        await opened.call("read")
        tokens.asked.append({})  # somebody else got a newer one
        assert (await opened.call("read")).text == "Bearer ***"
        tokens.asked.append({})
        assert (await opened.failing("write")).code == "denied"
        assert (await opened.call("write")).text == "Bearer ***"

    writes = [seen for seen in running.received if seen["method"] == "POST" and seen["path"] == "/x"]
    assert len(writes) == 2


async def test_a_token_that_cannot_be_had_says_why_without_the_secret() -> None:
    tokens = Tokens(error="invalid_client", error_description="unknown client")
    async with (
        api(with_tokens(tokens)) as running,
        open_api(described(PATHS), base_url=running.origin, auth=(client(running),)) as opened,
    ):
        failure = await opened.failing("read")

    assert (failure.code, failure.message) == ("denied", "127.0.0.1 gave us no access token: unknown client")


async def test_the_token_url_of_a_description_counts_only_at_the_apis_own_origin() -> None:
    """Else whoever writes the description would be sent our client secret."""

    def described_with(url: str) -> dict[str, Any]:
        flow: dict[str, Any] = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": url, "scopes": {}}}}
        return described(PATHS, components={"securitySchemes": {"o": flow}})

    tokens = Tokens()
    async with api(with_tokens(tokens)) as running:
        auth = (client(running, token_url=""),)
        async with open_api(described_with(f"{running.origin}/token"), base_url=running.origin, auth=auth) as opened:
            assert (await opened.call("read")).text == "Bearer ***"
        async with open_api(described_with("https://evil.example/t"), base_url=running.origin, auth=auth) as opened:
            assert (opened.source.state.state, opened.tools) == ("failed", {})
            assert "`token_url`" in opened.problems[0].message


async def test_a_token_that_is_refused_and_repeated_is_not_told() -> None:
    tokens = Tokens(expires_in=3600)

    async def refuse(request: Request) -> Response:
        return JSONResponse({"message": f"no longer valid: {request.headers['authorization']}"}, 401)

    async with (
        api({**with_tokens(tokens), "POST /x": refuse}) as running,
        open_api(described(PATHS), base_url=running.origin, auth=(client(running),)) as opened,
    ):
        failure = await opened.failing("write")

    assert (failure.code, failure.message) == ("denied", "HTTP 401 Unauthorized: no longer valid: Bearer ***")
    assert "token-1" not in str(failure.details)


@pytest.mark.parametrize("name", ["X Key", "Key\r\nX-Admin", ""])
def test_a_description_cannot_name_a_header_that_is_none(name: str) -> None:
    schemes = {"key": {"type": "apiKey", "in": "header", "name": name}}
    settings = ApiSettings(auth=(ApiKey(value=SECRET),))

    with pytest.raises(UsageError, match="auth: "):
        completed(settings, schemes, "https://api.example")
