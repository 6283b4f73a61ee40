"""A collection of Bruno becomes a service: its requests are endpoints, its examples are told, its secrets are not."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from rig.bruno import read_by_bruno
from toolcrib_tools import services
from toolcrib_tools.services.bruno_format import Bru, Pair, read_bru
from unit.toolcrib_tools.bruno_collection import FILES, write_collection
from unit.toolcrib_tools.online import Online, online

LOCAL = {"path": "collection", "service_name": "shop", "environment": "Local"}


@pytest.fixture
async def at(tmp_path: Path) -> AsyncGenerator[Online]:
    """A session with the collection in its workspace."""
    async with online(services, workspace=tmp_path) as opened:
        write_collection(tmp_path, opened.server.origin.removeprefix("http://"))
        yield opened


async def told(at: Online, name: str, /, **arguments: Any) -> Any:
    return json.loads(await at.said(name, **arguments))


# The language


LONG = 200_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        f"headers {{\n{' ' * LONG}x\n}}\n",
        f"headers {{\na: x{' ' * LONG}x\n}}\n",
        f"headers {{\n~{' ' * LONG}x\n}}\n",
        f"vars:secret [{'@a(' * LONG}]",
        f"vars:secret [{chr(10) * LONG}]",
        f"get {{\n  url: {{{{{' ' * LONG}\n}}\n",
        f"get {{\n  url: {{{{a{' ' * LONG}}}\n}}\n",
    ],
    ids=["blanks", "inside", "off", "remarks", "lines", "variable", "open-variable"],
)
async def test_a_file_that_was_written_to_take_forever_takes_no_longer_than_others(tmp_path: Path, text: str) -> None:
    """Each of these takes minutes to days where a pattern tries the same blanks in every combination."""
    async with online(services, workspace=tmp_path) as at:
        write_collection(tmp_path, "http://127.0.0.1")
        (tmp_path / "collection" / "slow.bru").write_text(text)
        made = await told(at, "import_bruno_collection", **LOCAL)

    assert made["endpoints"] > 0


async def test_variables_that_stand_for_more_and_more_of_themselves_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Filled in, the body of this request has 4 TB."""
    variables = "".join(f"  v{place}: {f'{{{{v{place + 1}}}}}' * 20_000}\n" for place in range(3))
    bomb = (
        f"vars:pre-request {{\n{variables}  v3: {'x' * 500}\n}}\nget {{\n  url: {{{{host}}}}/bomb\n  body: text\n}}\n"
    )
    async with online(services, workspace=tmp_path) as at:
        write_collection(tmp_path, "http://127.0.0.1")
        (tmp_path / "collection" / "bomb.bru").write_text(f"{bomb}\nheaders {{\n  X-Big: {{{{v0}}}}\n}}\n")
        made = await told(at, "import_bruno_collection", **LOCAL)

    assert made["endpoints"] > 0


def pairs(made: list[Pair]) -> list[dict[str, Any]]:
    return [{"name": pair.key, "value": pair.value, "enabled": pair.enabled} for pair in made]


def bare(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: one[key] for key in ("name", "value", "enabled")} for one in found]


@pytest.mark.long
@pytest.mark.process
def test_files_are_read_as_bruno_itself_reads_them() -> None:
    files = {name: text for name, text in FILES.items() if name.endswith(".bru")}
    theirs = read_by_bruno(files)

    for name, text in files.items():
        ours, bruno = read_bru(text), theirs[name]
        assert pairs(ours.pairs.get("headers", [])) == bare(bruno.get("headers", [])), name
        assert ours.texts.get("docs", "") == bruno.get("docs", ""), name
        assert ours.texts.get("tests", "") == bruno.get("tests", ""), name
        assert ours.get("meta", "name") == bruno.get("meta", {}).get("name", ""), name
        for mode, given in bruno.get("auth", {}).items():
            if mode == "mode":
                assert ours.get("auth", "mode") == given, name
            elif mode != "oauth2":
                assert dict(ours.mapping(f"auth:{mode}")) == given, name
        if "variables" in bruno:
            plain = [one for one in bruno["variables"] if not one["secret"]]
            assert pairs(ours.pairs["vars"]) == bare(plain), name
            assert ours.names["vars:secret"] == [one["name"] for one in bruno["variables"] if one["secret"]], name
        if "vars" in bruno:
            assert pairs(ours.pairs["vars:pre-request"]) == bare(bruno["vars"]["req"]), name
        if "http" in bruno:
            assert ours.mapping(bruno["http"]["method"]) == {
                key: value for key, value in bruno["http"].items() if key != "method"
            }, name
        for place in ("query", "path"):
            listed = [one for one in bruno.get("params", []) if one["type"] == place]
            assert pairs(ours.pairs.get(f"params:{place}", [])) == bare(listed), name
        body = bruno.get("body", {})
        assert ours.texts.get("body:json", "") == body.get("json", ""), name
        assert ours.texts.get("body:graphql", "") == body.get("graphql", {}).get("query", ""), name
        assert pairs(ours.pairs.get("body:form-urlencoded", [])) == bare(body.get("formUrlEncoded", [])), name
        for one, given in zip(ours.pairs.get("body:multipart-form", []), body.get("multipartForm", []), strict=True):
            value = f"@file({'|'.join(given['value'])})" if given["type"] == "file" else given["value"]
            assert (one.key, one.value) == (given["name"], value), name


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("\ufeffget {\r\n  url: x\r\n}\r\n", Bru(pairs={"get": [Pair(key="url", value="x")]})),
        ('headers {\n  ~"a \\"b\\"": c\n}', Bru(pairs={"headers": [Pair(key='a "b"', value="c", enabled=False)]})),
        ("headers {\n  @description('the\n  ')\n}", None),
        (
            "vars {\n  @secret\n  a: {b}\n  c:\n}",
            Bru(pairs={"vars": [Pair(key="a", value="{b}"), Pair(key="c", value="")]}),
        ),
        ("vars {\n  a: '''\n    }\n    b: c\n  '''\n}", Bru(pairs={"vars": [Pair(key="a", value="}\nb: c")]})),
        ("vars:secret [a, ~b]", Bru(names={"vars:secret": ["a", "b"]})),
        ("docs {\n}\n", Bru(texts={"docs": ""})),
        ("", Bru()),
    ],
)
def test_the_corners_of_the_language_are_read(text: str, made: Bru | None) -> None:
    if made is None:
        with pytest.raises(ValueError, match="line "):
            read_bru(text)
    else:
        assert read_bru(text) == made


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("get {\n  url: x\n", "line 1: the block get is not closed"),
        ("vars:secret [\n  a\n", "line 1: the list is not closed"),
        ("\nurl: x\n", "line 2: 'url: x' begins no block"),
        ("get { url: x }", "line 1: nothing may follow the bracket of get"),
    ],
)
def test_a_file_that_is_broken_says_where(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="line") as failure:
        read_bru(text)

    assert str(failure.value) == reason


# The service


async def test_requests_become_endpoints_and_what_is_left_out_is_told(at: Online) -> None:
    made = await told(at, "import_bruno_collection", **LOCAL)
    listed = await told(at, "list_endpoints", service="shop")

    assert (made["title"], made["base_url"], made["endpoints"]) == ("Shop", at.server.origin, 5)
    assert [(one["method"], one["path"], one["name"], one.get("tags")) for one in listed["endpoints"]] == [
        ("POST", "/login", "log_in", None),
        ("POST", "/graphql", "birds", None),
        ("POST", "/v1/orders", "place_order", ["orders"]),
        ("GET", "/v1/orders/{id}", "show_order", ["orders"]),
        ("PUT", "/v1/orders/{id}/file", "upload", ["orders"]),
    ]
    assert made["logins"] == {
        "oauth2": "oauth2: clientCredentials",
        "basic": "basic",
        "bearer": "bearer",
        "apikey": "api_key, header X-Key",
    }
    assert made["left_out"] == [
        "broken.bru: not read: line 1: the block meta is not closed",
        "unknown host.bru: not offered: its address needs the variable nowhere: name an environment, or give base_url",
        "stream.bru: not offered: it is a request of grpc",
        f"elsewhere.bru: not offered: it goes to https://other.example, not to {at.server.origin}",
        "orders/show.bru: 'colon:header' is not a header name: it is left out",
        "orders/place again.bru: the same endpoint as 'Place order', which is offered",
    ]


async def test_an_imported_request_goes_out_as_it_was_saved(at: Online) -> None:
    await told(at, "import_bruno_collection", **LOCAL)
    schema = await told(at, "get_endpoint_schema", service="shop", method="POST", path="/v1/orders")
    shown = await told(at, "get_endpoint_schema", service="shop", method="GET", path="show_order")
    query = {"id": "7", "page": "3"}
    await at.session.call("call_service", {"service": "shop", "method": "GET", "path": "show_order", "query": query})
    birds = {"query": "{ birds { name } }", "variables": {"kind": "owl"}}
    await at.session.call("call_service", {"service": "shop", "method": "POST", "path": "/graphql", "body": birds})
    form = {"user": "ann"}
    await at.session.call("call_service", {"service": "shop", "method": "POST", "path": "/login", "body": form})
    part = {"note": "n", "scan": {"text": "hello", "filename": "a.txt"}}
    await at.session.call(
        "call_service", {"service": "shop", "method": "PUT", "path": "/v1/orders/8/file", "body": part}
    )

    get, graphql, login, upload = at.server.received
    assert (get["path"], get["query"], get["headers"]["x-area"]) == ("/v1/orders/7", "page=3", "one order")
    assert "x-client" not in get["headers"]
    assert json.loads(graphql["body"]) == birds
    assert (login["body"], login["headers"]["x-client"]) == ("user=ann", "toolcrib")
    assert 'name="scan"; filename="a.txt"' in upload["body"]
    assert schema["examples"][0]["body"] == {"item": "rope", "count": None, "password": "***", "when": {"day": 1}}
    assert schema["examples"][1]["body"] == {"item": "sail", "count": 2}
    assert shown["examples"] == [{"query": {"id": "7", "full": "true", "page": "3"}}]
    assert "Shows *one* order." in shown["description"]


async def test_no_secret_of_the_files_is_told(at: Online) -> None:
    texts = [await at.said("import_bruno_collection", **LOCAL)]
    for one in (await told(at, "list_endpoints", service="shop"))["endpoints"]:
        request = {"service": "shop", "method": one["method"], "path": one["name"]}
        texts.append(await at.said("get_endpoint_schema", **request))

    for secret in ("local-secret", "collection-secret", "hunter2"):
        assert not [text for text in texts if secret in text], secret


async def test_an_address_stands_for_the_variable_that_addresses_begin_with(at: Online) -> None:
    base = f"{at.server.origin}/proxy"
    made = await told(at, "import_bruno_collection", path="collection/bruno.json", service_name="p", base_url=base)
    await at.session.call("call_service", {"service": "p", "method": "POST", "path": "log_in", "body": {"user": "bo"}})

    assert (made["base_url"], made["endpoints"]) == (base, 6)
    assert at.server.received[-1]["path"] == "/proxy/login"


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        ({"environment": "Locl"}, "not_found", "environment: there is no 'Locl'", "there are Local, Prod"),
        ({"path": "."}, "invalid_arguments", "path: '.' has no bruno.json", "collections below it: collection"),
        ({"path": "colection"}, "not_found", "there is no 'colection'", "did you mean collection?"),
        ({"path": "open"}, "invalid_arguments", "path: 'open' is an OpenCollection (YAML), which is not read", ""),
        ({"path": "empty"}, "invalid_arguments", "path: 'empty' has no request to import; ", ""),
        ({"path": "odd"}, "invalid_arguments", "path: its bruno.json is not JSON: ", ""),
    ],
)
async def test_what_cannot_be_imported_is_refused_with_what_to_do(
    at: Online, tmp_path: Path, arguments: dict[str, str], code: str, message: str, hint: str
) -> None:
    for name, file, text in (
        ("open", "opencollection.yml", "opencollection: 1.0.0\n"),
        ("empty", "bruno.json", '{"name": "Empty"}'),
        ("odd", "bruno.json", "{"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)

    refused = await at.refused("import_bruno_collection", **{"path": "collection", "service_name": "x", **arguments})

    assert (refused.code, refused.message[: len(message)]) == (code, message)
    assert hint in refused.hint


async def test_nothing_outside_of_the_workspace_is_read(at: Online, tmp_path: Path) -> None:
    outside = write_collection(tmp_path.parent / f"{tmp_path.name}-outside", "x.example")

    refused = await at.refused("import_bruno_collection", path=str(outside), service_name="out")

    assert refused.code == "denied"
