"""A resource and a prompt of a real server, read by real clients: the same through the gateway as without it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from clients.real import Target, gateway_command
from clients.running import output
from rig import free_port, node, node_env, npm_package_main, serving

TRANSPORTS = ("stdio", "http")
ERAS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
"""What the Inspector calls an era, and the revision that it means."""
RESOURCE = "demo://resource/static/document/features.md"
TEMPLATED = "demo://resource/dynamic/text/7"
PROMPT, GIVEN = "args-prompt", {"city": "Oslo", "state": "Viken"}
EVERYTHING = "@modelcontextprotocol/server-everything"


@dataclass(frozen=True, kw_only=True)
class Offers:
    """What a client reads of a server that offers more than tools."""

    resources: tuple[str, ...]
    prompts: tuple[str, ...]
    text: str
    """Of `RESOURCE`."""
    templated: str
    """The beginning of `TEMPLATED`; the rest is the time."""
    prompt: str


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("offers")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return node_env({**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(home)})


@pytest.fixture(scope="module")
def targets(env: dict[str, str]) -> Generator[Mapping[str, Target]]:
    home, port = Path(env["HOME"]), free_port()
    server = {"command": str(node()), "args": [str(npm_package_main(EVERYTHING)), "stdio"]}
    file = home / "everything.json"
    file.write_text(json.dumps({"mcpServers": {"everything": server}}))
    command = gateway_command(file, "--http", "--port", str(port))
    with serving(command, port=port, log=home / "gateway.log", env=env):
        yield {
            "http": Target(url=f"http://127.0.0.1:{port}/mcp", env=env),
            "stdio": Target(command=gateway_command(file, "--no-daemon"), env=env),
        }


@pytest.fixture(scope="module")
async def direct(env: dict[str, str]) -> AsyncGenerator[Offers]:
    """What the client reads from the server itself, with the prompts named as the gateway names them."""
    transport = StdioTransport(str(node()), [str(npm_package_main(EVERYTHING)), "stdio"], env=env)
    async with Client(transport) as client:
        yield await _offers(client, prefix="everything__", name=PROMPT)


async def _offers(client: Client[Any], *, prefix: str, name: str) -> Offers:
    resources = [str(resource.uri) for resource in await client.list_resources()]
    prompts = [prompt.name for prompt in await client.list_prompts()]
    prompt = await client.get_prompt(name, GIVEN)
    return Offers(
        resources=tuple(sorted(resources)),
        prompts=tuple(sorted(f"{prefix}{name}" for name in prompts)),
        text=_text(await client.read_resource(RESOURCE)),
        templated=_text(await client.read_resource(TEMPLATED)).partition(" created")[0],
        prompt="\n".join(_said(message.content) for message in prompt.messages),
    )


def _text(contents: Any) -> str:
    return "".join(str(content.text) for content in contents)


def _said(content: Any) -> str:
    return str(content.text)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", ERAS)
async def test_the_fastmcp_client_reads_the_same_with_and_without_the_gateway(
    era: str, transport: str, targets: Mapping[str, Target], direct: Offers
) -> None:
    target = targets[transport]
    command = target.command
    where: Any = target.url or StdioTransport(command[0], list(command[1:]), env=dict(target.env))
    async with Client(where, mode="legacy" if era == "legacy" else ERAS[era]) as client:
        assert client.protocol_version == ERAS[era]
        assert await _offers(client, prefix="", name=f"everything__{PROMPT}") == direct


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("era", "transport"),
    [
        ("legacy", "stdio"),
        ("modern", "http"),
        pytest.param("legacy", "http", marks=pytest.mark.full_size),
        pytest.param("modern", "stdio", marks=pytest.mark.full_size),
    ],
)
async def test_the_inspector_reads_the_same_as_the_fastmcp_client(
    era: str, transport: str, targets: Mapping[str, Target], direct: Offers
) -> None:
    inspector = Inspector(targets[transport], era)
    resources = await inspector.asks("resources/list")
    prompts = await inspector.asks("prompts/list")
    given = [f"{key}={value}" for key, value in GIVEN.items()]
    prompt = await inspector.asks("prompts/get", "--prompt-name", f"everything__{PROMPT}", "--prompt-args", *given)

    assert direct == Offers(
        resources=tuple(sorted(resource["uri"] for resource in resources["resources"])),
        prompts=tuple(sorted(prompt["name"] for prompt in prompts["prompts"])),
        text=await inspector.reads(RESOURCE),
        templated=(await inspector.reads(TEMPLATED)).partition(" created")[0],
        prompt="\n".join(message["content"]["text"] for message in prompt["messages"]),
    )


class Inspector:
    """The command line of the MCP Inspector, one process a request."""

    def __init__(self, target: Target, era: str) -> None:
        home = Path(target.env["HOME"])
        command = target.command or ("",)
        entry = {"type": "stdio", "command": command[0], "args": command[1:], "env": dict(target.env)}
        file = home / f"inspector-{era}.json"
        file.write_text(json.dumps({"mcpServers": {"crib": entry}}))
        where = [target.url, "--transport", "http"] if target.url else ["--config", str(file), "--server", "crib"]
        self._command = [node(), npm_package_main("@modelcontextprotocol/inspector"), "--cli", *where]
        self._era, self._home, self._env = era, home, target.env

    async def asks(self, method: str, *options: str) -> dict[str, Any]:
        """Make one request and return its result."""
        command = [*self._command, "--protocol-era", self._era, "--method", method, *options]
        said = await anyio.to_thread.run_sync(lambda: output(command, self._env, self._home, alone=True))
        return cast("dict[str, Any]", json.loads(said))

    async def reads(self, uri: str) -> str:
        """Return the text of a resource."""
        result = await self.asks("resources/read", "--uri", uri)
        return "".join(str(content["text"]) for content in result["contents"])
