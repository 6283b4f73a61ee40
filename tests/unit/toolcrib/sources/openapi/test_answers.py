"""What an API answers becomes a result that a model can use, and its errors say what to do."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from peers.api import api, described, open_api
from toolcrib.core.result import ToolResult
from toolcrib.errors import ToolFailure
from toolcrib.sources.openapi.request import Operation, Parameter
from toolcrib.sources.openapi.response import next_arguments

Reply = Callable[[], Response]


def paths(method: str) -> dict[str, Any]:
    parameters: list[Any] = [{"name": name, "in": "query", "schema": {}} for name in ("page", "per_page", "cursor")]
    return {"/x": {method: {"operationId": "op", "parameters": parameters}}}


async def outcome(reply: Reply, method: str = "get", **arguments: Any) -> ToolResult | ToolFailure:
    async def handle(request: Request) -> Response:
        return reply()

    async with (
        api({f"{method.upper()} /x": handle}) as running,
        open_api(described(paths(method)), base_url=running.origin) as opened,
    ):
        try:
            return await opened.call("op", **arguments)
        except ToolFailure as failure:
            return failure


async def result(reply: Reply, **arguments: Any) -> ToolResult:
    got = await outcome(reply, **arguments)
    assert isinstance(got, ToolResult)
    return got


async def failure(reply: Reply, method: str = "get") -> ToolFailure:
    got = await outcome(reply, method)
    assert isinstance(got, ToolFailure)
    return got


async def test_json_is_structured_content_and_the_same_as_text() -> None:
    got = await result(lambda: Response('{"a": [1, "ü"]}', 201, media_type="application/vnd.x+json"))

    assert (got.structured_content, got.text) == ({"a": [1, "ü"]}, '{"a":[1,"ü"]}')
    assert got.meta == {"http_status": 201}


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"a,b\n1,2", "text/csv", "a,b\n1,2"),
        ("grüße".encode("latin-1"), "text/plain; charset=latin-1", "grüße"),
        (b"<a/>", "application/xml", "<a/>"),
        (b'"word"', "application/json", '"word"'),
        (b"5", "application/json", "5"),
        (b"{broken", "application/json", "{broken"),
        (b'{"a":1}', "", '{"a":1}'),
        (b"plain", "", "plain"),
        (b"x", "text/plain; charset=nonsense", "x"),
        (b"", "application/json", "HTTP 200 OK: done, nothing to show"),
    ],
)
async def test_text_is_text(body: bytes, kind: str, text: str) -> None:
    got = await result(lambda: Response(body, headers={"content-type": kind} if kind else None))

    assert got.text == text


async def test_nothing_is_told_in_words() -> None:
    assert (await result(lambda: Response(status_code=204))).text == "HTTP 204 No Content: done, nothing to show"


async def test_bytes_are_content_of_their_kind() -> None:
    data = b"\x89PNG\x00"
    picture = await result(lambda: Response(data, media_type="image/png"))
    archive = await result(lambda: Response(data, media_type="application/zip"))

    encoded = base64.b64encode(data).decode()
    assert picture.content == ({"type": "image", "data": encoded, "mimeType": "image/png"},)
    (block,) = archive.content
    resource = block["resource"]
    assert (block["type"], resource["mimeType"], resource["blob"]) == ("resource", "application/zip", encoded)
    assert resource["uri"].endswith("/x")


@pytest.mark.parametrize(
    ("status", "method", "code"),
    [
        (400, "get", "tool_error"),
        (401, "get", "denied"),
        (403, "post", "denied"),
        (404, "get", "tool_error"),
        (409, "put", "tool_error"),
        (418, "get", "tool_error"),
        (422, "post", "tool_error"),
        (429, "post", "unavailable"),
        (500, "get", "tool_error"),
        (502, "get", "unavailable"),
        (502, "post", "outcome_unknown"),
        (503, "post", "unavailable"),
        (504, "delete", "outcome_unknown"),
        (304, "get", "tool_error"),
        (599, "get", "tool_error"),
    ],
)
async def test_every_error_status_has_its_code(status: int, method: str, code: str) -> None:
    got = await failure(lambda: Response(status_code=status), method)

    assert (got.code, got.details["status"]) == (code, status)
    assert got.message.startswith(f"HTTP {status} ")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"message": "Validation Failed", "errors": [{"field": "title"}]}, 'Validation Failed; [{"field":"title"}]'),
        ({"error": {"message": "No such model", "type": "x"}}, "No such model"),
        ({"title": "Bad", "detail": "Because"}, "Because; Bad"),
        ({"error": "invalid", "error_description": "Wrong."}, "Wrong.; invalid"),
        (["odd"], '["odd"]'),
    ],
)
async def test_an_error_is_told_in_the_apis_own_words_and_handed_on(body: Any, words: str) -> None:
    got = await failure(lambda: JSONResponse(body, 422))

    assert got.message == f"HTTP 422 Unprocessable Content: {words}" or got.message.endswith(f"Entity: {words}")
    assert got.details == {"status": 422, "body": body}


async def test_a_page_of_markup_is_cut_to_its_words() -> None:
    page = "<html><style>a{}</style><script>evil()</script><h1>Oops</h1><p>Try later</p></html>" + "x" * 5000
    got = await failure(lambda: Response(page, 500, media_type="text/html"))

    assert "Oops Try later" in got.message
    assert "evil" not in got.message
    assert len(got.message) < 600


async def test_when_to_come_back_is_told_in_seconds() -> None:
    soon = await failure(lambda: Response(status_code=429, headers={"retry-after": "7"}))
    dated = await failure(lambda: Response(status_code=503, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}))
    limited = await failure(lambda: Response(status_code=403, headers={"x-ratelimit-remaining": "0"}))

    assert (soon.details["retry_after"], soon.hint) == (7.0, "Try again in 7 s.")
    assert dated.details["retry_after"] == 0.0
    assert limited.code == "unavailable"


async def test_a_redirect_of_a_write_is_told_and_not_followed() -> None:
    got = await failure(lambda: Response(status_code=302, headers={"location": "/elsewhere"}), "post")

    assert (got.code, "redirects to /elsewhere, which is not followed" in got.message) == ("tool_error", True)


async def test_the_next_page_is_told_as_arguments() -> None:
    link = '<https://api.example/x?per_page=2&page=3>; rel="next", <https://api.example/x?page=9>; rel="last"'
    got = await result(lambda: JSONResponse([1, 2], headers={"link": link}), per_page=2, page=2)

    assert (got.structured_content, got.meta["next"]) == ([1, 2], {"page": 3})
    assert got.content[0]["text"] == "[1,2]"
    assert got.content[1]["text"] == '[toolcrib: there are more. The next page: the same call with {"page":3}]'


@pytest.mark.parametrize(
    ("link", "body", "following"),
    [
        ('</x?page=2>; rel="prev"', {}, None),
        ("</x?page=2>; title=x; rel=next", {}, {"page": 2}),
        ('</x?page=2>; rel="start next"', {}, {"page": 2}),
        ('</x?other=2>; rel="next"', {}, None),
        ("", {"next": "https://api.example/x?page=5&per_page=1"}, {"page": 5}),
        ("", {"next": None}, None),
        ("", {"next": 5}, None),
        ("", {"response_metadata": {"next_cursor": "abc"}}, {"cursor": "abc"}),
        ("", {"next_cursor": ""}, None),
        ("<" * 10_000, {}, None),
    ],
)
def test_the_next_page_is_found_in_the_usual_places(
    link: str, body: Mapping[str, Any], following: Mapping[str, Any] | None
) -> None:
    parameters = tuple(
        Parameter(argument=name, name=name, place="query", style="form", explode=True)
        for name in ("page", "per_page", "cursor")
    )
    operation = Operation(method="GET", path="/x", parameters=parameters)

    assert next_arguments(operation, {"per_page": 1, "page": 4}, "https://api.example/x", link, body) == following


async def test_a_write_whose_connection_breaks_has_an_unknown_outcome_and_is_not_repeated() -> None:
    arrived: list[str] = []

    async def breaks(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            arrived.append((await stream.receive()).decode().partition(" ")[0])

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    origin = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
    both = {"/x": {"get": {"operationId": "read"}, "post": {"operationId": "write"}}}
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, breaks)
        async with open_api(described(both), base_url=origin) as opened:
            write = await opened.failing("write")
            read = await opened.failing("read")
            assert (write.code, write.details) == ("outcome_unknown", {"outcome": "unknown"})
            assert read.code == "unavailable"
        group.cancel_scope.cancel()

    assert arrived == ["POST", "GET", "GET"]


async def test_an_api_that_is_not_there_was_not_reached() -> None:
    async with api() as running:
        pass
    async with open_api(described(paths("post")), base_url=running.origin) as opened:
        got = await opened.failing("op")

    assert (got.code, "cannot be reached" in got.message, "outcome" in got.details) == ("unavailable", True, False)


async def hang(request: Request) -> Response:
    """Answer when the client has gone."""
    while not await request.is_disconnected():
        await anyio.sleep(0.02)
    return PlainTextResponse("")


async def test_a_write_that_takes_too_long_is_a_timeout_and_says_that_it_may_have_run() -> None:
    async with api({"POST /x": hang}) as running, open_api(described(paths("post")), base_url=running.origin) as opened:
        got = await opened.failing("op", within=0.3)

    assert (got.code, got.details) == ("timeout", {"outcome": "unknown"})
