"""Three MCP clients that nobody here wrote, behind one face: list the tools, call one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import anyio.to_thread
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from rig import node, node_env, npm_package_main

_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Target:
    """How a client reaches the gateway: a URL, or a command that it starts."""

    url: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str]


class RealClient(Protocol):
    """What the tests need of a client."""

    async def tools(self) -> list[str]:
        """Return the names of the tools that it is shown."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return its content as JSON text; raises when the client says that it failed."""
        ...


class FastMcpClient:
    """The FastMCP client, one connection a call."""

    def __init__(self, target: Target) -> None:
        command = target.command
        self._transport: Any = target.url or StdioTransport(command[0], list(command[1:]), env=dict(target.env))

    async def tools(self) -> list[str]:
        async with Client(self._transport) as client:
            return [tool.name for tool in await client.list_tools()]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        async with Client(self._transport) as client:
            result = await client.call_tool(name, dict(arguments))
        return json.dumps([block.model_dump(mode="json", exclude_none=True) for block in result.content])


class Inspector:
    """The command line of the MCP Inspector, one process a request."""

    def __init__(self, target: Target, folder: Path) -> None:
        file = folder / "inspector.json"
        file.write_text(json.dumps({"mcpServers": {"crib": _entry(target)}}))
        self._where = [target.url, "--transport", "http"] if target.url else ["--config", str(file), "--server", "crib"]
        self._env = node_env(target.env)

    async def tools(self) -> list[str]:
        listed = await self._run("--method", "tools/list")
        return [tool["name"] for tool in listed["tools"]]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        pairs = [part for key, value in arguments.items() for part in ("--tool-arg", f"{key}={_argument(value)}")]
        result = await self._run("--method", "tools/call", "--tool-name", name, *pairs)
        if result.get("isError"):
            raise RuntimeError(json.dumps(result["content"]))
        return json.dumps(result["content"])

    async def _run(self, *arguments: str) -> dict[str, Any]:
        main = npm_package_main("@modelcontextprotocol/inspector")
        command = [str(node()), str(main), "--cli", *self._where, *arguments]
        return cast("dict[str, Any]", json.loads(await _output(command, self._env)))


class Mcporter:
    """The command line of mcporter, one process a request."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._config = folder / "mcporter.json"
        self._config.write_text(json.dumps({"mcpServers": {"crib": _entry(target)}, "imports": []}))
        self._env = node_env(target.env)

    async def tools(self) -> list[str]:
        listed = json.loads(await self._run("list", "crib", "--json"))
        return [tool["name"] for tool in listed["tools"]]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        text = await self._run("call", f"crib.{name}", "--args", json.dumps(arguments), "--output", "raw")
        if "isError: true" in text:
            raise RuntimeError(text)
        return text

    async def _run(self, *arguments: str) -> str:
        command = [str(node()), str(npm_package_main("mcporter")), "--config", str(self._config), *arguments]
        return await _output(command, self._env)


CLIENTS = ("fastmcp", "inspector", "mcporter")


def make(name: str, target: Target, folder: Path) -> RealClient:
    """Return the client `name`."""
    if name == "fastmcp":
        return FastMcpClient(target)
    return Inspector(target, folder) if name == "inspector" else Mcporter(target, folder)


def gateway_command(config: Path, *options: str) -> tuple[str, ...]:
    """Return the command that starts a gateway in front of the servers in `config`."""
    toolcrib = Path(sys.executable).with_name("toolcrib")
    return (str(toolcrib), "serve", "--config", str(config), "--mode", "autonomous", "--accept", *options)


def _entry(target: Target) -> dict[str, Any]:
    """Return the target as an entry of `mcpServers`."""
    if target.url:
        return {"type": "streamable-http", "url": target.url}
    return {"type": "stdio", "command": target.command[0], "args": list(target.command[1:]), "env": dict(target.env)}


def _argument(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


async def _output(command: list[str], env: Mapping[str, str]) -> str:
    def run() -> str:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command[1]} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    return await anyio.to_thread.run_sync(run)
