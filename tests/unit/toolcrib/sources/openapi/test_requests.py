"""Arguments reach a real server as the description says, and no argument becomes anything but itself."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import pytest

from peers.api import api, described, open_api
from toolcrib.core.json import loads


async def arrived(
    path: str, operation: Mapping[str, Any], arguments: Mapping[str, Any], method: str = "get", **more: Any
) -> dict[str, Any]:
    """The request that a call becomes."""
    paths = {path: {method: {"operationId": "op", **operation}}}
    async with api() as running, open_api(described(paths, **more), base_url=running.origin) as opened:
        assert opened.problems == ()
        if method == "head":
            await opened.call("op", **arguments)
            return running.received[0]
        return await opened.sent("op", **arguments)


def one(name: str, place: str, **more: Any) -> dict[str, Any]:
    return {"parameters": [{"name": name, "in": place, "required": place == "path", "schema": {}, **more}]}


LIST = ["a", "b c", "d,e"]
OBJECT = {"r": 100, "g": "x y"}


@pytest.mark.parametrize(
    ("style", "explode", "value", "path"),
    [
        ("simple", False, "a/b ?#%ü", "/x/a%2Fb%20%3F%23%25%C3%BC"),
        ("simple", False, LIST, "/x/a,b%20c,d%2Ce"),
        ("simple", False, OBJECT, "/x/r,100,g,x%20y"),
        ("simple", True, OBJECT, "/x/r=100,g=x%20y"),
        ("label", False, "v", "/x/.v"),
        ("label", True, LIST, "/x/.a.b%20c.d%2Ce"),
        ("label", False, LIST, "/x/.a,b%20c,d%2Ce"),
        ("label", True, OBJECT, "/x/.r=100.g=x%20y"),
        ("matrix", False, "v", "/x/;id=v"),
        ("matrix", False, LIST, "/x/;id=a,b%20c,d%2Ce"),
        ("matrix", True, LIST, "/x/;id=a;id=b%20c;id=d%2Ce"),
        ("matrix", False, OBJECT, "/x/;id=r,100,g,x%20y"),
        ("matrix", True, OBJECT, "/x/;r=100;g=x%20y"),
        ("simple", False, 5, "/x/5"),
        ("simple", False, True, "/x/true"),
    ],
)
async def test_path_parameters(style: str, explode: bool, value: Any, path: str) -> None:
    seen = await arrived("/x/{id}", one("id", "path", style=style, explode=explode), {"id": value})

    assert seen["path"] == path


@pytest.mark.parametrize(
    ("more", "value", "query"),
    [
        ({}, "a b&c=d#e+f%", "q=a%20b%26c%3Dd%23e%2Bf%25"),
        ({}, LIST, "q=a&q=b%20c&q=d%2Ce"),
        ({}, OBJECT, "r=100&g=x%20y"),
        ({"explode": False}, LIST, "q=a,b%20c,d%2Ce"),
        ({"explode": False}, OBJECT, "q=r,100,g,x%20y"),
        ({"style": "spaceDelimited", "explode": False}, LIST, "q=a%20b%20c%20d%2Ce"),
        ({"style": "pipeDelimited", "explode": False}, LIST, "q=a%7Cb%20c%7Cd%2Ce"),
        ({"style": "deepObject"}, OBJECT, "q%5Br%5D=100&q%5Bg%5D=x%20y"),
        (
            {"style": "deepObject"},
            {"a": {"b": ["c", {"d": 1}]}},
            "q%5Ba%5D%5Bb%5D%5B0%5D=c&q%5Ba%5D%5Bb%5D%5B1%5D%5Bd%5D=1",
        ),
        ({"allowReserved": True}, "a/b?c&d=e#f+g", "q=a/b?c%26d%3De%23f%2Bg"),
        ({"content": {"application/json": {"schema": {}}}}, {"a": [1]}, "q=%7B%22a%22%3A%5B1%5D%7D"),
        ({}, [], ""),
        ({}, None, ""),
        ({}, "", "q="),
        ({}, False, "q=false"),
        ({}, 1.5, "q=1.5"),
    ],
)
async def test_query_parameters(more: dict[str, Any], value: Any, query: str) -> None:
    seen = await arrived("/x", one("q", "query", **more), {"q": value})

    assert seen["query"] == query


async def test_names_on_the_wire_are_the_descriptions() -> None:
    seen = await arrived("/x", one("filter[a b]", "query"), {"filter_a_b": "1"})

    assert parse_qsl(seen["query"]) == [("filter[a b]", "1")]


async def test_header_and_cookie_parameters() -> None:
    parameters: list[Any] = [
        {"name": "X-List", "in": "header", "schema": {}},
        {"name": "X-Object", "in": "header", "explode": True, "schema": {}},
        {"name": "session", "in": "cookie", "schema": {}},
        {"name": "flags", "in": "cookie", "explode": False, "schema": {}},
    ]
    arguments = {"X-List": [1, "b"], "X-Object": OBJECT, "session": "a;b c", "flags": [1, 2]}
    seen = await arrived("/x", {"parameters": parameters}, arguments)

    headers = seen["headers"]
    assert (headers["x-list"], headers["x-object"]) == ("1,b", "r=100,g=x y")
    assert headers["cookie"] == "session=a%3Bb%20c; flags=1,2"


def body(media_type: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    content = {media_type: {"schema": {"type": "object", "properties": schema} if schema else {}, **more}}
    return {"requestBody": {"required": True, "content": content}}


async def test_a_json_body_is_made_of_its_arguments_only() -> None:
    operation = {**one("id", "query"), **body("application/json", {"id": {}, "list": {}, "gone": {}})}
    seen = await arrived("/x", operation, {"id": "q", "id__body": None, "list": [{"a": "ü"}]}, "post")

    assert (seen["query"], seen["headers"]["content-type"]) == ("id=q", "application/json")
    assert loads(seen["body"].encode("latin-1")) == {"id": None, "list": [{"a": "ü"}]}


async def test_a_required_body_without_arguments_is_an_empty_object_and_an_optional_one_is_none() -> None:
    operation = body("application/json", {"a": {}})
    required = await arrived("/x", operation, {}, "post")
    operation["requestBody"]["required"] = False
    optional = await arrived("/x", operation, {}, "post")

    assert (required["body"], optional["body"]) == ("{}", "")
    assert "content-type" not in optional["headers"]


async def test_json_of_other_names_keeps_its_name_and_is_preferred() -> None:
    operation = body("application/vnd.x+json", {"a": {}})
    operation["requestBody"]["content"] = {"text/plain": {}, "multipart/form-data": {}} | operation["requestBody"][
        "content"
    ]
    seen = await arrived("/x", operation, {"a": 1}, "patch")

    assert (seen["headers"]["content-type"], seen["body"]) == ("application/vnd.x+json", '{"a":1}')


async def test_a_form_body() -> None:
    encoding = {"tags": {"style": "pipeDelimited", "explode": False}, "deep": {"style": "deepObject"}}
    properties: dict[str, Any] = {name: {} for name in ("a", "list", "tags", "deep", "nested", "nothing")}
    arguments = {
        "a": "x&y=z",
        "list": [1, 2],
        "tags": ["p", "q"],
        "deep": {"k": "v"},
        "nested": {"k": [{"l": 1}]},
        "nothing": None,
    }
    operation = body("application/x-www-form-urlencoded", properties, encoding=encoding)
    seen = await arrived("/x", operation, arguments, "post")

    assert seen["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert seen["body"] == ("a=x%26y%3Dz&list=1&list=2&tags=p%7Cq&deep%5Bk%5D=v&nested%5Bk%5D%5B0%5D%5Bl%5D=1")


async def test_a_multipart_body() -> None:
    schema = {"note": {"type": "string"}, "info": {"type": "object"}, "file": {"type": "string", "format": "binary"}}
    arguments = {
        "note": "hi\r\nthere",
        "info": {"a": 1},
        "file": {"base64": "AAH/", "filename": 'a"b\r\n.bin', "media_type": "image/png"},
    }
    seen = await arrived("/x", body("multipart/form-data", schema), arguments, "post", version="3.0.3")
    kind, _, boundary = seen["headers"]["content-type"].partition("; boundary=")
    parts = seen["body"].split(f"--{boundary}")

    file = '\r\ncontent-disposition: form-data; name="file"; filename="a%22b%0D%0A.bin"\r\n'
    file += "content-type: image/png\r\n\r\n\x00\x01\xff\r\n"
    assert kind == "multipart/form-data"
    assert parts == [
        "",
        '\r\ncontent-disposition: form-data; name="note"\r\n\r\nhi\r\nthere\r\n',
        '\r\ncontent-disposition: form-data; name="info"\r\ncontent-type: application/json\r\n\r\n{"a":1}\r\n',
        file,
        "--\r\n",
    ]


@pytest.mark.parametrize(
    ("media_type", "value", "sent", "kind"),
    [
        ("text/plain", "grüße", "grüße", "text/plain; charset=utf-8"),
        ("application/xml", "<a/>", "<a/>", "application/xml; charset=utf-8"),
        ("application/octet-stream", {"base64": "/w=="}, "\xff", "application/octet-stream"),
        ("image/png", {"base64": "/w==", "media_type": "image/webp"}, "\xff", "image/webp"),
        ("application/pdf", {"text": "x"}, "x", "text/plain"),
    ],
)
async def test_bodies_that_are_no_object(media_type: str, value: Any, sent: str, kind: str) -> None:
    seen = await arrived("/x", body(media_type), {"body": value}, "post")
    content = seen["body"] if sent == "\xff" else seen["body"].encode("latin-1").decode()

    assert (content, seen["headers"]["content-type"]) == (sent, kind)


@pytest.mark.parametrize(
    "file", [{}, {"text": "a", "base64": "YQ=="}, {"base64": "!"}, {"text": "a", "media_type": "x\r\ny"}]
)
async def test_a_file_that_is_none_is_refused(file: Any) -> None:
    paths = {"/x": {"post": {"operationId": "op", **body("image/png")}}}
    async with api() as running, open_api(described(paths), base_url=running.origin) as opened:
        failure = await opened.failing("op", body=file)

        assert (failure.code, failure.details, running.received) == ("invalid_arguments", {"argument": "body"}, [])


@pytest.mark.parametrize("value", ["", ".", "..", None, [], {}, "..;x=1", "..\0"])
async def test_a_path_value_that_would_name_another_resource_is_refused(value: Any) -> None:
    """`DELETE /users/{id}` with an empty id is `DELETE /users/`."""
    paths = {"/users/{id}": {"delete": {"operationId": "op", **one("id", "path")}}}
    async with api() as running, open_api(described(paths), base_url=running.origin) as opened:
        failure = await opened.failing("op", id=value)

        assert (failure.code, failure.details, running.received) == ("invalid_arguments", {"argument": "id"}, [])


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("../admin", "/users/..%2Fadmin"),
        ("%2e%2e", "/users/%252e%252e"),
        ("..%2f..", "/users/..%252f.."),
        ("a\\..\\b", "/users/a%5C..%5Cb"),
        ("x?admin=1", "/users/x%3Fadmin%3D1"),
        ("x#frag", "/users/x%23frag"),
        ("//evil.example/", "/users/%2F%2Fevil.example%2F"),
        ("@evil.example", "/users/%40evil.example"),
        ("a\r\nX-Evil: 1", "/users/a%0D%0AX-Evil%3A%201"),
        ("a\x00b", "/users/a%00b"),
        ("a;b=c", "/users/a%3Bb%3Dc"),
    ],
)
async def test_a_path_value_stays_one_segment_of_the_same_path(value: str, path: str) -> None:
    seen = await arrived("/users/{id}", one("id", "path"), {"id": value})

    assert (seen["path"], seen["query"], "x-evil" in seen["headers"]) == (path, "", False)


async def test_a_label_style_value_does_not_climb() -> None:
    paths = {"/users/{id}": {"get": {"operationId": "op", **one("id", "path", style="label")}}}
    async with api() as running, open_api(described(paths), base_url=running.origin) as opened:
        assert (await opened.failing("op", id=".")).code == "invalid_arguments"
        assert running.received == []


async def test_a_value_of_several_segments_is_possible_where_the_description_says_so() -> None:
    operation = one("path", "path", **{"x-multi-segment": True})
    paths = {"/files/{path}/raw": {"get": {"operationId": "op", **operation}}}
    async with api() as running, open_api(described(paths), base_url=running.origin) as opened:
        seen = await opened.sent("op", path="src/a b/main.py")
        refused = [await opened.failing("op", path=path) for path in ("a/../b", "a//b", "/a", "a/.", "..", "a/..;/b")]

    assert seen["path"] == "/files/src/a%20b/main.py/raw"
    assert {failure.code for failure in refused} == {"invalid_arguments"}
    assert len(running.received) == 1


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", "ü", "\u2028"])
async def test_a_header_value_that_is_more_than_one_is_refused(value: str) -> None:
    paths = {"/x": {"get": {"operationId": "op", **one("X-Id", "header")}}}
    async with api() as running, open_api(described(paths), base_url=running.origin) as opened:
        arguments: dict[str, Any] = {"X-Id": value}
        failure = await opened.failing("op", **arguments)

        assert (failure.code, running.received) == ("invalid_arguments", [])


@pytest.mark.parametrize("base", ["", "/", "/api/v3", "/api/v3/"])
async def test_the_path_of_the_base_url_is_kept(base: str) -> None:
    paths = {"/x": {"get": {"operationId": "op"}}}
    async with api() as running, open_api(described(paths), base_url=f"{running.origin}{base}") as opened:
        assert (await opened.sent("op"))["path"] == f"{base.rstrip('/')}/x"


async def test_what_is_accepted_is_what_the_answers_can_be() -> None:
    def answers(*media_types: str) -> dict[str, Any]:
        return {"responses": {"200": {"description": "", "content": {name: {} for name in media_types}}}}

    seen = [
        (await arrived("/x", operation, {}))["headers"]["accept"]
        for operation in (
            {},
            answers("text/csv", "application/json"),
            answers("text/csv", "image/png"),
            answers("a/b+json"),
        )
    ]

    assert seen == ["application/json", "application/json", "text/csv, image/png, */*;q=0.1", "a/b+json"]


@pytest.mark.parametrize(
    "path", ["/../admin", "/a/%2e%2E/{id}", "/a/./b", "/..;x=1/admin", "/a\\..\\..\\admin", "/a/.%2e", "/a/..%2fadmin"]
)
async def test_a_path_that_climbs_out_of_where_the_api_is_is_not_offered(path: str) -> None:
    """Credentials are for what lies below an address: whoever writes the description must not lead them away."""
    paths = {path: {"get": {"operationId": "bad"}}, "/a/..b/{id}.": {"get": {"operationId": "good"}}}
    async with api() as running, open_api(described(paths), base_url=running.origin) as opened:
        offered = list(opened.tools)
        problems = [problem.message for problem in opened.problems]

    assert (offered, problems) == (["good"], ["not offered: its path climbs out of where the API is"])
