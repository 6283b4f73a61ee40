"""Which model a chat finds, in which order, and what it says of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from pydantic_ai.models import KnownModelName

from rig import PATIENCE
from toolcrib.config import Settings, load
from toolcrib.config.settings import ChatSettings
from toolcrib_agent.chat.model_discovery import KEYS, Endpoint, ModelChoice, find_model, is_usable, local_models


def settings(tmp_path: Path, chat: str = "", **environ: str) -> Settings:
    loaded = load((), {}, {"HOME": str(tmp_path), **environ}, cwd=tmp_path)
    return loaded.with_values(chat=ChatSettings(model=chat) if chat else ChatSettings())


@asynccontextmanager
async def listening(answer: bytes) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Serve one answer to every request on a port of this machine; yield the port, and what was asked."""
    asked: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            asked.append(await stream.receive())
            if answer:
                await stream.send(answer)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port), asked
        group.cancel_scope.cancel()


def models(*names: str, status: str = "200 OK") -> bytes:
    listed = ",".join(f'{{"id": "{name}", "object": "model"}}' for name in names)
    body = f'{{"object": "list", "data": [{listed}]}}'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


async def test_what_is_named_comes_before_the_variable_the_configuration_and_the_keys(tmp_path: Path) -> None:
    all_of_it = settings(tmp_path, "c:d", TOOLCRIB_MODEL="e:f", ANTHROPIC_API_KEY="k")
    no_variable = settings(tmp_path, "c:d", ANTHROPIC_API_KEY="k")

    assert await find_model(all_of_it, "a:b") == ModelChoice(model="a:b", why="as you chose")
    assert await find_model(all_of_it) == ModelChoice(model="e:f", why="TOOLCRIB_MODEL is set")
    assert await find_model(no_variable) == ModelChoice(model="c:d", why="chat.model in the configuration")


@pytest.mark.parametrize("key", [key for key in KEYS if is_usable(key)], ids=lambda key: key.variable)
async def test_a_key_is_found_by_its_variable(tmp_path: Path, key: object) -> None:
    known = next(one for one in KEYS if one == key)

    assert await find_model(settings(tmp_path, **{known.variable: "k"})) == ModelChoice(
        model=known.model, why=f"{known.variable} is set"
    )


def test_every_model_that_is_taken_by_itself_exists() -> None:
    known = {name.removeprefix("gateway/") for name in get_args(KnownModelName.__value__)}
    providers = {name.partition(":")[0] for name in known}

    assert {key.model for key in KEYS if key.model.partition(":")[0] in providers} <= known


async def test_an_endpoint_on_this_machine_is_found_with_its_first_model_that_writes(tmp_path: Path) -> None:
    async with listening(models("nomic-embed-text", "qwen3:8b")) as (port, asked):
        (found,) = await local_models({}, [Endpoint(name="Ollama", port=port)], seconds=PATIENCE)

    assert found == ModelChoice(
        model=f"local:qwen3:8b@http://127.0.0.1:{port}/v1", why=f"Ollama answers on port {port}"
    )
    assert asked[0].startswith(b"GET /v1/models HTTP/1.0\r\n")


@pytest.mark.parametrize(
    "answer",
    [
        models("m", status="404 Not Found"),
        models(),
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"220 smtp ready\r\n",
        b'HTTP/1.1 200 OK\r\n\r\n{"data": "none"}',
        b"",
    ],
    ids=["refuses", "has none", "is a website", "is no web server", "says something else", "hangs up"],
)
async def test_what_serves_no_models_is_passed_over(answer: bytes) -> None:
    async with listening(answer) as (port, _):
        assert await local_models({}, [Endpoint(name="vLLM", port=port)], seconds=PATIENCE) == []


async def test_one_that_never_answers_costs_no_more_than_its_time() -> None:
    async with hanging() as port:
        with anyio.fail_after(PATIENCE):
            assert await local_models({}, [Endpoint(name="a", port=port)], seconds=0.1) == []


async def test_several_are_told_in_the_order_in_which_they_are_looked_for() -> None:
    async with listening(models("a")) as (first, _), listening(models("b")) as (second, _):
        places = [Endpoint(name="second", port=second), Endpoint(name="first", port=first)]
        found = await local_models({}, places, seconds=PATIENCE)

    assert [one.model.partition("@")[0] for one in found] == ["local:b", "local:a"]


@asynccontextmanager
async def hanging() -> AsyncGenerator[int]:
    """Take connections and say nothing."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


async def test_ollama_is_looked_for_where_its_variable_says(tmp_path: Path) -> None:
    async with listening(models("qwen3")) as (port, _):
        found = await local_models({"OLLAMA_HOST": f"0.0.0.0:{port}"}, [], seconds=PATIENCE)

    assert [one.model for one in found] == [f"local:qwen3@http://127.0.0.1:{port}/v1"]


async def test_another_machine_is_never_probed() -> None:
    assert await local_models({"OLLAMA_HOST": "http://192.0.2.1:11434"}, []) == []
