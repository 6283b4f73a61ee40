"""A guest's command, REST resource and service: one file and its entry points."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from openapi_pydantic import OpenAPI
from typer.testing import CliRunner

from rig import PATIENCE
from toolcrib import Toolcrib
from toolcrib.cli.main import app
from toolcrib.config import bare
from toolcrib.server.request_checks import Authority, RequestLimits
from toolcrib.server.rest import GuestResources
from toolcrib.sources.openapi.description import base_url_of

pytestmark = pytest.mark.anyio

CODE = '''
"""Weather, as a guest."""

import anyio
import typer

from toolcrib.plugin import Context, RestResource, RestRoute, ServiceHost, ToolFailure, tool
from toolcrib.sources.openapi.description import base_url_of

PLACES = {"oslo": 7}
SERVED = []
ENDED = anyio.Event()


@tool(kind="read", category="weather", op="weather.now.get")
def get_weather(place: str, days: int = 1) -> dict:
    """Return the weather of a place."""
    if place not in PLACES:
        raise ToolFailure("not_found", f"no place {place}")
    return {"place": place, "degrees": PLACES[place], "days": days}


@tool(kind="write", category="weather", op="weather.now.set")
def set_weather(place: str, degrees: int) -> dict:
    """Set the weather of a place."""
    PLACES[place] = degrees
    return {"place": place, "degrees": degrees}


def weather(context: typer.Context, place: str) -> None:
    """Print the weather of a place. It is always fine."""

    async def ask(tools):
        return await tools.call("weather.now.get", {"place": place})

    context.obj.json(context.obj.run(ask, categories=["weather"]))


RESOURCE = RestResource(
    routes=(
        RestRoute(method="GET", path="/{place}", tool="weather.now.get"),
        RestRoute(method="PUT", path="/{place}", tool="set_weather"),
        RestRoute(method="GET", path="/{place}/{degrees}", tool="set_weather"),
    )
)


async def follow(host: ServiceHost) -> None:
    SERVED.append(host.name)
    if len(SERVED) == 1:
        raise RuntimeError("the first time")
    await host.caller("ada").call("weather.now.get", {"place": "oslo"})
    SERVED.append("done")
    ENDED.set()
'''

POINTS = """
[toolcrib.tools]
weather = guest_weather

[toolcrib.commands]
weather = guest_weather:weather
broken = guest_missing:broken
call = guest_weather:weather

[toolcrib.resources]
weather = guest_weather:RESOURCE
instances = guest_weather:RESOURCE
nothing = guest_weather:PLACES

[toolcrib.services]
follower = guest_weather:follow
lost = guest_missing:run
"""


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Any]:
    """Install the package in a temporary tree, as pip would; return its module."""
    (tmp_path / "guest_weather.py").write_text(CODE, encoding="utf-8")
    info = tmp_path / "guest_weather-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-weather\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    yield importlib.import_module("guest_weather")
    del sys.modules["guest_weather"]
    sys.path.remove(str(tmp_path))


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a command line in a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(home / name))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_a_command_of_a_guest_is_listed_with_its_summary_and_calls_tools(guest: Any, typed: Callable[..., Any]) -> None:
    text = " ".join(typed("--help").stdout.split())
    done = typed("weather", "oslo")
    failed = typed("weather", "rome")

    assert "weather Print the weather of a place." in text
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"place": "oslo", "degrees": 7, "days": 1})
    assert (failed.exit_code, failed.stdout) == (3, "")


def test_a_broken_command_names_its_package_and_hides_no_other(guest: Any, typed: Callable[..., Any]) -> None:
    broken = typed("broken")

    assert broken.exit_code == 2
    assert "guest-weather 1.0 (broken) cannot be loaded: ModuleNotFoundError" in " ".join(broken.stderr.split())
    assert typed("call", "--help").stdout.startswith("Usage: root call")
    assert "Did you mean 'weather'?" in typed("wether").stderr


@pytest.fixture
async def served(guest: Any) -> Any:
    """Yield a crib with the guest, and a client of its REST resources."""
    settings = bare().with_values(builtins=("weather",))
    async with Toolcrib(settings, memory=True) as crib:
        edge = RequestLimits(Authority("", host="127.0.0.1", admin_token=""), host="127.0.0.1")
        route = GuestResources(crib, edge, patience=5.0)
        transport = httpx2.ASGITransport(app=cast("Any", route))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield crib, route, client


async def test_a_rest_resource_calls_tools_through_the_one_door(served: Any) -> None:
    crib, route, client = served
    found = await client.get("/v1/weather/oslo?days=3")
    unknown = await client.get("/v1/weather/rome")
    encoded = await client.get("/v1/weather/%256fslo")
    wrong = await client.get("/v1/weather/oslo?days=three&x=1")
    twice = await client.get("/v1/weather/oslo?place=rome")
    unsafe = await client.get("/v1/weather/oslo/9")
    asked = await client.put("/v1/weather/oslo", json={"degrees": 9})
    lost = await client.get("/v1/weather")
    method = await client.delete("/v1/weather/oslo")

    assert (found.status_code, found.json()) == (200, {"place": "oslo", "degrees": 7, "days": 3})
    told = [
        (one.status_code, one.json()["code"]) for one in (unknown, encoded, wrong, twice, unsafe, asked, lost, method)
    ]
    assert told == [
        (404, "not_found"),
        (404, "not_found"),
        (400, "invalid_arguments"),
        (422, "invalid_arguments"),
        (403, "denied"),
        (403, "denied"),
        (404, "not_found"),
        (405, "refused"),
    ]
    assert {error["path"] for error in wrong.json()["errors"]} == {"days", "x"}
    assert method.headers["allow"] == "GET, PUT"
    problems = [(one.source, one.code) for one in crib.problems]
    assert problems.count(("plugins", "unavailable")) == 2, "a reserved name and a thing that is no resource"
    assert not route.serves("/v1/instances/x/tools")
    records = await crib.store.calls.list(limit=20)
    assert {one.origin for one in records} == {"resource"}


async def test_a_rest_resource_describes_itself_in_openapi(served: Any) -> None:
    _, _, client = served
    described = (await client.get("/v1/weather/openapi.json")).json()
    operation = described["paths"]["/v1/weather/{place}"]["get"]

    assert set(OpenAPI.model_validate(described).paths or ()) == {"/v1/weather/{place}"}, "GET does not write"
    assert set(described["paths"]["/v1/weather/{place}"]) == {"get", "put"}
    assert [(one["name"], one["in"], one["required"]) for one in operation["parameters"]] == [
        ("place", "path", True),
        ("days", "query", False),
    ]
    assert set(operation["responses"]) == {"200", "default"}
    place = "https://b.example/tools/v1/weather/openapi.json"  # behind a proxy with a prefix
    assert base_url_of([one["url"] for one in described["servers"]], place) == "https://b.example/tools/"


async def test_a_rest_resource_needs_the_token_of_the_server(guest: Any) -> None:
    async with Toolcrib(bare().with_values(builtins=("weather",)), memory=True) as crib:
        edge = RequestLimits(Authority("secret", host="127.0.0.1", admin_token=""), host="127.0.0.1")
        route: Any = GuestResources(crib, edge, patience=5.0)
        transport = httpx2.ASGITransport(app=route)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            refused = await client.get("/v1/weather/oslo")
            foreign = await client.get("/v1/weather/oslo", headers={"origin": "https://evil.example"})
            served = await client.get("/v1/weather/oslo", headers={"authorization": "Bearer secret"})

    assert [one.status_code for one in (refused, foreign, served)] == [401, 403, 200]


async def test_a_service_is_begun_again_after_an_error_and_runs_in_one_process_only(guest: Any, tmp_path: Path) -> None:
    settings = bare().with_values(builtins=("weather",), store={"path": str(tmp_path / "store.db")})
    async with Toolcrib(settings) as first, Toolcrib(settings) as second:
        assert await second.store.services.claim("follower")
        await first.start_background_work()
        assert not await first.store.services.claim("follower")
        await second.store.services.release("follower")
        await second.start_background_work()
        with anyio.fail_after(PATIENCE):
            await guest.ENDED.wait()
        problems = [one.message for one in second.problems]

    assert guest.SERVED == ["follower", "follower", "done"]
    assert any(message.startswith("guest-weather 1.0 (lost) cannot be loaded") for message in problems)
