"""Clients without a model: command lines on which somebody types every call."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast

from clients.running import Command, output
from clients.script import ATTENDED, UNATTENDED, Said, Step, approval, tour, verbs_in
from clients.world import World
from rig import ensure_npm, node, npm_package_main


class Typed(ABC):
    """One such client: a process a request, in the home of its world."""

    name: str
    title: str
    package: str
    prefix = ""
    """What it puts before the name of a verb."""
    asks = False
    """Whether it has a prompt at which its user could answer the gateway."""

    def version(self) -> str:
        """Return the version of its package."""
        return str(_manifest(self.package)["version"])

    def configure(self, world: World) -> None:
        """Write the gateway down where it is looked for."""
        self.file(world).write_text(json.dumps(world.servers()))

    def file(self, world: World) -> Path:
        """Return its configuration file."""
        return world.home / f"{self.name}.json"

    @abstractmethod
    def lists(self, world: World) -> Command:
        """Return the command that lists tools as JSON, in `tools` or at the top."""

    @abstractmethod
    def calls(self, world: World, verb: str, arguments: Mapping[str, Any]) -> Command:
        """Return the command that makes a call."""

    def tour(self, world: World) -> Said:
        """List the tools, and type every step of the tour."""
        listed = output(self.lists(world), world.env, world.project, alone=True)
        told = {step.key: self._typed(world, step) for step in tour(world.artifact)}
        return Said(names=verbs_in(_names(listed)), told=told, output=listed)

    def unattended(self, world: World) -> Said:
        """Make the call that asks, with nobody at the keyboard."""
        return self._asks(world, f"{UNATTENDED} {self.name}")

    def attended(self, world: World) -> Said:
        """Make the call that asks, and answer every line of the question: yes, and nothing else."""
        return self._asks(world, f"{ATTENDED} {self.name}", typed="yes\n\n\n")

    def _asks(self, world: World, path: str, typed: str = "") -> Said:
        told = {step.key: self._typed(world, step, typed) for step in approval(path)}
        return Said(told=told, output="\n".join(told.values()))

    def _typed(self, world: World, step: Step, typed: str = "") -> str:
        return output(self.calls(world, step.verb, step.arguments), world.env, world.project, typed=typed)


class Inspector(Typed):
    """The command line of the MCP Inspector."""

    name, title, package = "inspector", "MCP Inspector", "@modelcontextprotocol/inspector"

    def lists(self, world: World) -> Command:
        return self.asks_for(world, "tools/list")

    def calls(self, world: World, verb: str, arguments: Mapping[str, Any]) -> Command:
        given = ("--tool-name", verb, "--tool-args-json", json.dumps(arguments))
        return self.asks_for(world, "tools/call", *given)

    def asks_for(self, world: World, method: str, *options: str) -> Command:
        """Return the command that makes one request."""
        where = (
            [world.url, "--transport", "http"] if world.url else ["--config", self.file(world), "--server", "toolcrib"]
        )
        return [node(), npm_package_main(self.package), "--cli", *where, "--method", method, *options]


class Mcporter(Typed):
    """mcporter, with the configuration that `toolcrib connect` wrote where clients start the gateway."""

    name, title, package = "mcporter", "mcporter", "mcporter"

    def file(self, world: World) -> Path:
        return world.home / ".mcporter" / "mcporter.json"

    def configure(self, world: World) -> None:
        if world.url:
            self.file(world).parent.mkdir()
            super().configure(world)

    def lists(self, world: World) -> Command:
        return self._runs(world, "list", "toolcrib", "--json")

    def calls(self, world: World, verb: str, arguments: Mapping[str, Any]) -> Command:
        return self._runs(world, "call", f"toolcrib.{verb}", "--args", json.dumps(arguments), "--output", "json")

    def _runs(self, world: World, *words: str) -> Command:
        return [node(), npm_package_main(self.package), "--config", self.file(world), *words]


class FastMcp(Typed):
    """The command line of FastMCP, which asks its user line by line."""

    name, title, package, asks = "fastmcp", "FastMCP CLI", "fastmcp", True

    def version(self) -> str:
        return version(self.package)

    def lists(self, world: World) -> Command:
        return [self._program, "list", self.where(world), "--json"]

    def calls(self, world: World, verb: str, arguments: Mapping[str, Any]) -> Command:
        return [self._program, "call", self.where(world), verb, "--input-json", json.dumps(arguments)]

    def where(self, world: World) -> str:
        """Return how the gateway is named to it."""
        return world.url or str(self.file(world))

    @property
    def _program(self) -> Path:
        return Path(sys.executable).with_name("fastmcp")


TYPED: Final = (Inspector(), Mcporter(), FastMcp())


def _names(listed: str) -> list[str]:
    """Return the names in a listing; a command line may say something before it."""
    try:
        found: Any = json.loads(listed[min(listed.find(mark) for mark in "[{" if mark in listed) :])
    except ValueError:
        return []
    tools = cast("list[dict[str, Any]]", found["tools"] if isinstance(found, dict) else found)
    return [str(tool["name"]) for tool in tools]


def _manifest(package: str) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((ensure_npm() / "node_modules" / package / "package.json").read_text()))
