"""The table of tested clients is what a run found, and the run was of the clients that are pinned."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import rig
from clients.record import PAGE, load, replaced
from clients.runs import CLIENTS
from clients.script import ATTENDED, CASES, UNATTENDED
from clients.world import TRANSPORTS
from rig.agents import CLAI_VERSION

RECORD = load()


def pins() -> dict[str, str]:
    """Every version that the suite installs, by its package."""
    folder = Path(rig.__file__).parent
    manifests = [json.loads((folder / name).read_text("utf-8")) for name in ("package.json", "agents/package.json")]
    return {package: pinned for manifest in manifests for package, pinned in manifest["dependencies"].items()}


def test_the_page_shows_the_record() -> None:
    text = PAGE.read_text("utf-8")

    assert replaced(text, RECORD) == text


def test_the_record_has_every_client_with_every_case_over_every_transport() -> None:
    assert [client.title for client in RECORD.clients] == [client.title for client in CLIENTS.values()]
    for client in RECORD.clients:
        assert {case: tuple(cell) for case, cell in client.cells.items()} == dict.fromkeys(
            (*CASES, ATTENDED, UNATTENDED), TRANSPORTS
        )


def test_every_client_can_all_that_needs_nobody() -> None:
    failed = {
        (client.title, case): instead
        for client in RECORD.clients
        for case in CASES
        if (instead := [said for said in client.cells[case].values() if said])
    }

    assert failed == {}


def test_the_record_is_of_the_versions_that_are_pinned() -> None:
    npm = pins()

    assert {client.title: client.version for client in RECORD.clients} == {
        "Claude Code": npm["@anthropic-ai/claude-code"],
        "Codex": npm["@openai/codex"],
        "OpenCode": npm["opencode-ai"],
        "Goose": "1.34.0",  # the package 0.20.1 is the one that carries it
        "clai": CLAI_VERSION,
        "MCP Inspector": npm["@modelcontextprotocol/inspector"],
        "mcporter": npm["mcporter"],
        "FastMCP CLI": version("fastmcp"),
    }
