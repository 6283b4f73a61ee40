"""`toolcrib plugins` and `toolcrib plugin new`: loaded plugins, and the files of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from ...config.directories import here
from ...core.json import fields_of
from ...core.patterns import regex
from ...crib.plugins import PluginState, guest_packages
from ...errors import UsageError
from ..actions import action_group
from ..open_crib import opened
from ..options import AsJson, ConfigFiles, run, settings_of
from ..output import Column, emit_json, note, out, table

_PROJECT: Final = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "toolcrib-$name"
version = "0.1.0"
description = "The $name tools for Toolcrib."
requires-python = ">=3.11"
dependencies = ["toolcrib"]

[project.entry-points."toolcrib.plugins"]
$name = "$module:$kind"

[tool.hatch.build.targets.wheel]
packages = ["src/$module"]

[tool.pytest.ini_options]
anyio_mode = "auto"
pythonpath = ["src"]
"""

_README: Final = """\
# $name

A plugin for Toolcrib. `pip install --editable .`, then `toolcrib plugins` lists it, and this runs its tool:

    toolcrib call ${name}__greet '{"name": "Ada"}'

Its configuration stands in Toolcrib's own file:

    plugins:
      config:
        $name: {greeting: "Good day"}
"""

_CODE: Final = '''\
"""The $name tools."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from toolcrib.plugin import Context, Plugin, Services, ToolFailure, tool

__all__ = ["$kind"]


class $kind(Plugin):
    """Everything that the tools of this plugin share."""

    name = "$name"
    instructions = "Greet people by their names."

    def requirements(self, config: Mapping[str, Any]) -> Iterable[str]:
        """Return the requirements that are missing: a program, a key, a setting."""
        return [] if isinstance(config.get("greeting", ""), str) else ["config.greeting: a text"]

    def initialize(self, config: Mapping[str, Any], services: Services) -> Awaitable[None] | None:
        """Begin: connections, caches in `services.data`. May be `async`."""
        self._greeting = config.get("greeting", "Hello")
        services.log.debug("%s is ready", self.name)
        return None

    @tool(kind="read", examples=[{"name": "Ada"}])
    async def greet(self, name: str, ctx: Context) -> str:
        """Greet a person. `name` is the person's name."""
        if not name.strip():
            raise ToolFailure("invalid_arguments", "name is empty", hint="say who is to be greeted")
        await ctx.report(1, 1, "greeted")
        return f"{self._greeting}, {name}!"

    def shutdown(self) -> Awaitable[None] | None:
        """End: close what `initialize` opened. May be `async`."""
        return None
'''

_TESTS: Final = '''\
"""What the $name tools do."""

from collections.abc import AsyncIterator

import pytest

from toolcrib import Toolcrib
from $module import $kind


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def crib() -> AsyncIterator[Toolcrib]:
    async with Toolcrib() as crib:
        await crib.plugins.expose($kind())
        yield crib


async def test_a_person_is_greeted_by_name(crib: Toolcrib) -> None:
    result = await crib.session().call("${name}__greet", {"name": "Ada"})

    assert result.text == "Hello, Ada!"


async def test_an_empty_name_is_refused_with_a_hint(crib: Toolcrib) -> None:
    result = await crib.session().call("${name}__greet", {"name": " "})

    assert result.error is not None
    assert (result.error.code, result.error.message) == ("invalid_arguments", "name is empty")


async def test_the_greeting_is_that_of_the_configuration(crib: Toolcrib) -> None:
    await crib.plugins.expose($kind(), {"greeting": "Good day"})

    result = await crib.session().call("${name}__greet", {"name": "Ada"})

    assert result.text == "Good day, Ada!"


async def test_a_missing_requirement_is_named(crib: Toolcrib) -> None:
    state = await crib.plugins.expose($kind(), {"greeting": 1})

    assert (state.state, state.error) == ("failed", "it needs config.greeting: a text")
'''

_COLUMNS: Final[tuple[Column, ...]] = (
    ("PLUGIN", "<"),
    ("STATE", "<"),
    ("TOOLS", ">"),
    ("FROM", "<"),
    ("WHY", "<"),
)
_WAIT: Final = 35.0
"""Seconds: a little more than a plugin may take to begin."""
_NAME: Final = regex(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


def files_of(name: str) -> Mapping[str, str]:
    """Return the texts of a new plugin's files, by path below its folder."""
    module = f"toolcrib_{name.replace('-', '_')}"
    kind = "".join(part.title() for part in name.replace("_", "-").split("-"))
    texts = {
        "pyproject.toml": _PROJECT,
        "README.md": _README,
        f"src/{module}/__init__.py": _CODE,
        f"tests/test_{module}.py": _TESTS,
    }
    return {path: Template(text).substitute(name=name, module=module, kind=kind) for path, text in texts.items()}


def plugins(config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """List plugins in every state, by entry point and from folders, and other packages that bring tools."""
    settings = settings_of(config).with_values(servers=(), openapi=(), catalogs=(), skills=None)

    async def found() -> tuple[tuple[PluginState, ...], list[str]]:
        async with opened(settings, wait=_WAIT) as crib:
            unused = [one.message for one in crib.problems if one.source == "plugins" and one.code == "duplicate"]
            return (*crib.plugins.all, *(state for state, _ in guest_packages(crib.catalog).values())), unused

    listed, unused = run(found)
    for message in unused:
        note(message)
    if as_json:
        emit_json([fields_of(plugin) for plugin in listed])
    elif listed:
        table(_COLUMNS, ((p.name, p.state, str(p.tools), p.origin, p.error) for p in listed))
    else:
        note("no plugins; `toolcrib plugin new NAME` writes one")


plugin = action_group("Write a new plugin, with its tests.")


@plugin.command("new")
def new_plugin(
    name: Annotated[str, typer.Argument(help="Letters, digits and dashes: weather, my-tools.")],
    folder: Annotated[Path, typer.Option(help="Where its folder is made.")] = Path(),
) -> None:
    """Write a plugin that works and is tested: a package with an entry point, one tool, and its tests."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name for a plugin: small letters and digits, with single dashes between")
    target, place = folder / name, here().project / folder / name
    if place.exists():
        raise UsageError(f"{target} exists already; nothing was written")
    for path, text in files_of(name).items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    out(f"{target} is written. Next: pip install --editable {target}, then toolcrib plugins")
