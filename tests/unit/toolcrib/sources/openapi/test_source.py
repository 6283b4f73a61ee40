"""The source reads a description from wherever it is, keeps it, and sends nothing where the operator did not say."""

import os
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from peers.api import Handler, api, described, open_api
from toolcrib.core.json import dumps
from toolcrib.errors import ToolFailure
from toolcrib.policy.origin import origin_of
from toolcrib.sources.openapi.spec import ApiSettings, Bearer, OpenApiSpec

PATHS: dict[str, Any] = {"/x": {"get": {"operationId": "op", "summary": "Do it"}}}


def serving(description: Any) -> Handler:
    async def serve(request: Request) -> Response:
        return JSONResponse(description)

    return serve


async def test_a_description_is_read_from_json_and_yaml_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(dumps(described(PATHS)))
    text = "openapi: 3.0.1\ninfo: {title: T, version: '1'}\npaths:\n  /x:\n    get: {operationId: op}\n"
    (tmp_path / "b.yaml").write_text(text)
    for name in ("a.json", "b.yaml"):
        async with api() as running, open_api(tmp_path / name, base_url=running.origin) as opened:
            assert (list(opened.tools), opened.source.state.state) == (["op"], "ready")
            assert (await opened.sent("op"))["path"] == "/x"


async def test_a_url_is_fetched_and_relative_servers_are_where_it_came_from() -> None:
    description = described(PATHS, servers=[{"url": "../{version}", "variables": {"version": {"default": "v2"}}}])
    async with (
        api({"GET /docs/openapi.json": serving(description)}) as running,
        open_api(f"{running.origin}/docs/openapi.json") as opened,
    ):
        assert (await opened.sent("op"))["path"] == "/v2/x"


async def test_a_description_from_the_net_does_not_choose_where_calls_go() -> None:
    description = described(PATHS, servers=[{"url": "https://elsewhere.example/v1"}])
    async with (
        api({"GET /openapi.json": serving(description)}) as running,
        open_api(f"{running.origin}/openapi.json", auth=(Bearer(token="secret"),)) as opened,
    ):
        assert (opened.source.state.state, opened.tools) == ("failed", {})
        assert "`base_url: https://elsewhere.example/v1`" in opened.problems[0].message


async def test_a_file_of_the_operator_says_where_the_api_is(tmp_path: Path) -> None:
    async with api() as running:
        file = tmp_path / "a.json"
        file.write_bytes(dumps(described(PATHS, servers=[{"url": f"{running.origin}/v1"}])))
        async with open_api(file) as opened:
            assert (await opened.sent("op"))["path"] == "/v1/x"


async def test_a_call_does_not_follow_a_description_that_moves_the_api_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    async with api() as running, api() as other:
        file.write_bytes(dumps(described(PATHS, servers=[{"url": running.origin}])))
        async with open_api(file) as opened:
            before = opened.listings[-1]
            file.write_bytes(dumps(described(PATHS, servers=[{"url": f"{other.origin}/"}])))
            await opened.until(lambda listing: listing is not before)
            opened.listings.append(before)
            assert ((await opened.failing("op")).code, other.received) == ("definition_changed", [])


async def test_without_any_server_the_state_says_what_to_configure() -> None:
    async with open_api(described(PATHS)) as opened:
        assert (opened.source.state.state, "`base_url`" in opened.source.state.detail) == ("failed", True)


@pytest.mark.parametrize("where", ["description", "api"])
async def test_private_addresses_are_refused_unless_allowed(where: str) -> None:
    async with api({"GET /openapi.json": serving(described(PATHS))}) as running:
        given: Any = f"{running.origin}/openapi.json" if where == "description" else described(PATHS)
        async with open_api(given, base_url=running.origin, allow_private=False) as opened:
            if where == "description":
                assert "not a public address" in opened.problems[0].message
                assert "`allow_private: true`" in opened.source.state.detail
                assert "allow_private" not in opened.source.state.outage  # models read it
            else:
                failure = await opened.failing("op")
                assert (failure.code, "not a public address" in failure.message) == ("denied", True)
        assert running.received == []


async def test_a_description_that_is_redirected_to_a_private_address_is_not_read() -> None:
    async with api() as inside:

        async def moved(request: Request) -> Response:
            return RedirectResponse(f"{inside.origin}/secret.json")

        async with api({"GET /spec.json": moved}) as running, open_api(f"{running.origin}/spec.json") as opened:
            assert opened.source.state.state == "failed"
        assert inside.received == []


async def test_what_cannot_be_read_is_a_failed_source_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"openapi": ')
    expected = {
        str(tmp_path / "missing.json"): "cannot be read: No such file or directory",
        str(tmp_path / "broken.json"): "broken.json: ",
        str(tmp_path): "cannot be read: Is a directory",
    }
    for given, reason in expected.items():
        async with open_api(given, base_url="https://api.example") as opened:
            state = opened.source.state
            assert (state.state, state.tools, reason in state.detail) == ("failed", 0, True)
            assert [problem.code for problem in opened.problems] == ["unavailable"]


async def test_a_conversion_is_kept_and_a_changed_description_is_converted_again(tmp_path: Path) -> None:
    file, cache = tmp_path / "a.json", tmp_path / "cache"
    file.write_bytes(dumps(described(PATHS)))
    async with open_api(file, base_url="https://api.example", cache_dir=cache) as opened:
        first = opened.listings[-1]
    (kept,) = cache.iterdir()
    assert (kept.stat().st_mode & 0o777, cache.stat().st_mode & 0o777) == (0o600, 0o700)
    os.utime(kept, (1, 1))
    async with open_api(file, base_url="https://api.example", cache_dir=cache) as opened:
        assert (opened.listings[-1], kept.stat().st_mtime) == (first, 1)
    file.write_bytes(dumps(described({**PATHS, "/y": {"get": {"operationId": "more"}}})))
    async with open_api(file, base_url="https://api.example", cache_dir=cache) as opened:
        assert list(opened.tools) == ["op", "more"]


async def test_what_was_kept_calls_as_before(tmp_path: Path) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "string", "format": "binary"}, "b": {"type": "array", "items": {}}},
    }
    content: dict[str, Any] = {
        "multipart/form-data": {"schema": schema, "encoding": {"b": {"contentType": "application/json"}}}
    }
    operation: dict[str, Any] = {"operationId": "op", "requestBody": {"content": content}, "security": []}
    description = described({"/x/{id}": {"post": operation}}, version="3.0.0")
    seen: list[Any] = []
    async with api() as running:
        for _ in range(2):
            async with open_api(description, base_url=running.origin, cache_dir=tmp_path) as opened:
                sent = await opened.sent("op", id="1", a={"text": "x"}, b=[1, 2])
                boundary = sent["headers"]["content-type"].partition("boundary=")[2]
                seen.append((sent["path"], sent["body"].replace(boundary, "-")))

    assert seen[0] == seen[1]


async def test_a_broken_cache_counts_as_none(tmp_path: Path) -> None:
    for damage in (b"", b"{", b"[]", b'{"format": "0"}'):
        async with open_api(described(PATHS), base_url="https://api.example", cache_dir=tmp_path) as opened:
            assert list(opened.tools) == ["op"]
        (kept,) = tmp_path.iterdir()
        kept.write_bytes(damage)


async def test_a_description_that_went_away_is_served_from_what_was_kept(tmp_path: Path) -> None:
    handlers = {"GET /openapi.json": serving(described(PATHS))}
    async with api(handlers) as running:
        url = f"{running.origin}/openapi.json"
        async with open_api(url, cache_dir=tmp_path):
            pass

        async def gone(request: Request) -> Response:
            return Response(status_code=500)

        running.handlers["GET /openapi.json"] = gone
        async with open_api(url, cache_dir=tmp_path) as opened:
            assert (opened.source.state.state, list(opened.tools)) == ("stale", ["op"])
            assert "answers HTTP 500" in opened.source.state.detail
            assert (await opened.sent("op"))["path"] == "/x"


async def test_configured_hints_and_times_replace_what_the_method_says() -> None:
    paths = {"/search": {"post": {"operationId": "search"}}, **PATHS}
    hints = {"search": {"readOnlyHint": True}}
    async with open_api(described(paths), base_url="https://api.example", annotations=hints, timeout=7.0) as opened:
        assert (opened.tools["search"].kind, opened.tools["search"].execution.timeout) == ("read", 7.0)


@pytest.mark.parametrize(("given", "trust"), [({}, "untrusted"), ({"trusted": True}, "reviewed")])
async def test_the_answers_of_an_api_are_a_strangers_unless_its_entry_vouches_for_it(
    given: dict[str, Any], trust: str
) -> None:
    async with open_api(described(PATHS), base_url="https://api.example", **given) as opened:
        assert {origin_of(tool).trust for tool in opened.tools.values()} == {trust}


async def test_an_api_that_wants_credentials_and_gets_none_is_a_problem() -> None:
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    open_to_all = described(PATHS, components={"securitySchemes": schemes})
    description: dict[str, Any] = {**open_to_all, "security": [{"token": []}]}
    async with open_api(description, base_url="https://api.example") as opened:
        (problem,) = opened.problems
        assert (problem.code, problem.message) == (
            "no_credentials",
            "calls go without credentials; the description wants token",
        )
    optional: dict[str, Any] = {**description, "security": [{"token": []}, {}]}
    for other in (open_to_all, optional):
        async with open_api(other, base_url="https://api.example") as opened:
            assert opened.problems == ()
    async with open_api(description, base_url="https://api.example", auth=(Bearer(token="x"),)) as opened:
        assert opened.problems == ()


async def test_credentials_that_travel_in_clear_are_a_problem() -> None:
    for url, codes in (("http://api.example", ["in_clear"]), ("https://api.example", [])):
        auth = (Bearer(token="secret"),)
        async with open_api(described(PATHS), base_url=url, auth=auth, allow_private=False) as opened:
            assert [problem.code for problem in opened.problems] == codes


async def test_a_file_that_changes_is_read_again_and_one_that_breaks_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(dumps(described(PATHS)))
    async with api() as running, open_api(file, base_url=running.origin) as opened:
        before = opened.source.describe(opened.tools["op"], {})
        file.write_bytes(dumps(described({**PATHS, "/y": {"get": {"operationId": "more"}}})))
        await opened.until(lambda listing: len(listing.tools) == 2)
        assert opened.source.describe(opened.tools["op"], {}) == before

        file.write_text("{broken")
        listing = await opened.until(lambda listing: bool(listing.problems))
        assert (opened.source.state.state, len(listing.tools)) == ("stale", 2)
        assert (await opened.sent("more"))["path"] == "/y"

        file.write_bytes(dumps(described(PATHS)))
        listing = await opened.until(lambda listing: len(listing.tools) == 1)
        assert (opened.source.state.state, listing.problems) == ("ready", ())


async def test_after_close_nothing_is_called() -> None:
    async with api() as running, open_api(described(PATHS), base_url=running.origin) as opened:
        tool = opened.tools["op"]
        await opened.source.close()

        assert (await opened.failing("op")).code == "unavailable"
        assert opened.source.describe(tool, {}) is None
        assert opened.source.state.state == "closed"


async def test_a_dry_run_of_what_cannot_be_sent_says_so() -> None:
    description = described({"/x/{id}": {"get": {"operationId": "op"}}})
    async with open_api(description, base_url="https://api.example") as opened:
        with pytest.raises(ToolFailure, match="would make the path another one"):
            opened.source.describe(opened.tools["op"], {"id": ".."})


def test_no_secret_is_in_what_a_specification_shows() -> None:
    settings = ApiSettings(auth=(Bearer(token="hidden-1"),), headers={"x": "hidden-2"})
    spec = OpenApiSpec(name="api", spec="https://example.org/spec.json", settings=settings)
    other = OpenApiSpec(name="api", spec="https://example.org/spec.json")

    assert "hidden" not in repr(spec)
    assert spec.identity == other.identity


async def test_what_was_kept_and_does_not_fit_does_not_stand_in_the_way_of_a_better_description(tmp_path: Path) -> None:
    elsewhere = described(PATHS, servers=[{"url": "https://elsewhere.example/v1"}])
    async with api({"GET /openapi.json": serving(elsewhere)}) as running:
        where = f"{running.origin}/openapi.json"
        async with open_api(where, cache_dir=tmp_path) as opened:
            assert opened.source.state.state == "failed"
        running.handlers["GET /openapi.json"] = serving(described(PATHS, servers=[{"url": "/v2"}]))
        async with open_api(where, cache_dir=tmp_path) as opened:
            assert opened.source.state.state == "ready"
            assert (await opened.sent("op"))["path"] == "/v2/x"


async def test_a_description_that_cannot_be_had_yet_is_asked_for_again() -> None:
    async with (
        api({"GET /openapi.json": serving("not a description")}) as running,
        open_api(f"{running.origin}/openapi.json") as opened,
    ):
        assert opened.source.state.state == "failed"
        running.handlers["GET /openapi.json"] = serving(described(PATHS))

        await opened.until(lambda listing: bool(listing.tools))
        assert (opened.source.state.state, opened.problems) == ("ready", ())
        assert (await opened.sent("op"))["path"] == "/x"
