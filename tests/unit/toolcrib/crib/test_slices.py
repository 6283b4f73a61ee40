"""Slices stand above the root: absent where nothing asks for them, one object a crib, closed with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.config import Directories, Settings, load
from toolcrib.crib import Toolcrib
from toolcrib.crib.assembly import Slice
from toolcrib.registration import Registrations

STEPS = {"look": {"steps": {"all": {"tool": "list_notes"}}}}
DEFINITION = {
    "name": "find_order",
    "description": "Find an order.",
    "kind": "read",
    "implementation": {"endpoint": {"url": "http://127.0.0.1:9", "allow_private": True}},
}
OPTIONAL = {
    "toolcrib.catalog.index",
    "toolcrib.catalog.ranking.terms",
    "toolcrib.config.own_file",
    "toolcrib.mcp.client.connection",
    "toolcrib.sandbox.bubblewrap",
    "toolcrib.sources.mcp.source",
    "toolcrib.sources.yaml.document",
    "Stemmer",
    "httpx",
}
"""Parts that only some programs use, and what they bring."""
LIBRARIES = {"jsonschema_rs", "msgspec", "opentelemetry", "pydantic", "re2", "sqlite3", "yaml"}
"""What the first crib of a process loads, and the class does not."""
IMPORTS = """
import json, sys
from toolcrib import Toolcrib

imported = list(sys.modules)
Toolcrib()
print(json.dumps([imported, list(sys.modules)]))
"""
PROBE = """
import sys, anyio
from toolcrib import Toolcrib

async def main():
    async with Toolcrib() as crib:
        async with crib.session() as session:
            session.tools

anyio.run(main)
print(sorted({"toolcrib.workflows", "toolcrib.registration"} & sys.modules.keys()))
"""


class Tally(Slice):
    """A slice that counts how often it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_slice_is_one_object_of_a_crib_and_is_closed_with_it() -> None:
    async with Toolcrib() as crib, Toolcrib() as other:
        tally = crib.slice(Tally)
        assert (tally.parts is crib.parts, crib.slice(Tally) is tally, other.slice(Tally) is tally) == (
            True,
            True,
            False,
        )
        assert tally.closed == 0
    assert tally.closed == 1


async def test_the_workflows_of_a_configuration_are_there_in_a_library() -> None:
    settings = load(overrides={"workflows": STEPS, "builtins": False})
    async with Toolcrib(settings, memory=True) as crib:
        assert [tool.name for tool in crib.catalog.tools.values() if tool.source == "workflows"] == ["look"]


async def test_registrations_of_the_store_are_there_after_a_restart(tmp_path: Path) -> None:
    settings = Settings.of(Directories.of({"HOME": str(tmp_path)}), builtins=False)
    async with Toolcrib(settings) as crib:
        await crib.slice(Registrations).register("shop", DEFINITION, persist=True)
    async with Toolcrib(settings) as crib:
        names = [tool.name for tool in crib.session(instance="shop").visible.catalog.tools.values()]
        assert "find_order" in names


@pytest.mark.process
def test_a_crib_that_needs_no_slice_loads_none() -> None:
    told = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"


@pytest.mark.process
def test_the_class_loads_no_library_and_a_crib_no_optional_part() -> None:
    probe = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True, timeout=60)
    imported, made = map(set, json.loads(probe.stdout))
    assert ("toolcrib.crib.toolcrib" in imported, imported & (LIBRARIES | {"toolcrib.crib.assembly"})) == (True, set())
    assert ("toolcrib.crib.assembly" in made, made & OPTIONAL) == (True, set())
