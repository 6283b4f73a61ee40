"""`toolcrib lock`: what is not as it was locked does not run, and is shown with how it differs."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner, Result

from toolcrib import Toolcrib
from toolcrib.cli.main import app
from toolcrib.config import load
from toolcrib.errors import ConfigError

from .conftest import User

pytestmark = pytest.mark.process

_SERVER = """
import json, sys

TOOL = {
    "name": "look",
    "description": "Look at a thing.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}
INFO = {"name": "s", "version": "1"}

for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
    elif message.get("method") == "tools/list":
        answer = {"tools": [TOOL]}
    elif message.get("method") == "tools/call":
        answer = {"content": [{"type": "text", "text": "seen"}]}
    else:
        continue
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"""
_CATALOG = """
capabilities:
  - name: add_numbers
    description: Add two numbers.
    kind: read
    implementation: {module: my_numbers, function: add}
    input_schema: {type: object, properties: {a: {type: integer}, b: {type: integer}}, required: [a, b]}
"""
_SKILL = "---\nname: greeting\ndescription: How to greet people.\n---\nSay hello.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stdio server, a YAML catalog and a skill, all locked."""
    (tmp_path / "skills" / "greeting").mkdir(parents=True)
    (tmp_path / "server.py").write_text(_SERVER)
    module = f"numbers_{tmp_path.name}"  # a process loads a module once
    (tmp_path / "my.yaml").write_text(_CATALOG.replace("my_numbers", module))
    (tmp_path / "numbers.link").symlink_to(f"{module}.py")
    (tmp_path / f"{module}.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "skills" / "greeting" / "SKILL.md").write_text(_SKILL)
    config: dict[str, Any] = {
        "lock": "toolcrib.lock",
        "catalogs": ["my.yaml"],
        "skills": ["skills"],
        "mcpServers": {"eyes": {"command": sys.executable, "args": ["-IS", str(tmp_path / "server.py")]}},
        "builtins": False,
        "store": {"path": str(tmp_path / "store.db")},
    }
    (tmp_path / "toolcrib.yaml").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    locked = _lock("--config", "toolcrib.yaml")
    assert locked.exit_code == 0, locked.output
    return tmp_path


def _lock(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lock", *arguments])


async def _works(file: Path) -> dict[str, str]:
    """Return what each of the three sources answers."""
    async with Toolcrib.open(file) as crib:
        await crib.tools.wait_ready(60)
        session = crib.session(profile="selection")
        calls = {"eyes__look": {}, "add_numbers": {"a": 1, "b": 2}, "greeting": {}}
        results = {name: await session.call(name, arguments) for name, arguments in calls.items()}
    return {name: result.error.code if result.error else "ok" for name, result in results.items()}


async def test_what_was_locked_counts_as_reviewed_without_a_further_question(project: Path) -> None:
    assert await _works(project / "toolcrib.yaml") == {"eyes__look": "ok", "add_numbers": "ok", "greeting": "ok"}


@pytest.mark.parametrize(
    ("file", "tool"),
    [
        ("server.py", "eyes__look"),
        ("my.yaml", "add_numbers"),
        ("numbers.link", "add_numbers"),
        ("skills/greeting/SKILL.md", "greeting"),
    ],
)
async def test_one_changed_byte_behind_a_source_keeps_it_from_running_and_nothing_else(
    project: Path, file: str, tool: str
) -> None:
    changed = project / file
    changed.write_text(changed.read_text() + "\n")

    works = await _works(project / "toolcrib.yaml")

    assert {name for name, outcome in works.items() if outcome != "ok"} == {tool}


async def test_a_changed_definition_is_withheld_and_the_check_shows_how_it_differs(project: Path) -> None:
    locked = json.loads((project / "toolcrib.lock").read_text())
    locked["sources"]["eyes"]["tools"]["look"]["description"] = "Look at a picture."
    (project / "toolcrib.lock").write_text(json.dumps(locked))

    works = await _works(project / "toolcrib.yaml")

    assert works == {"eyes__look": "definition_changed", "add_numbers": "ok", "greeting": "ok"}


def test_the_check_fails_with_a_diff_and_writes_nothing(project: Path) -> None:
    text = (project / "server.py").read_text().replace("Look at a thing.", "Look at a thing. Then send it away.")
    (project / "server.py").write_text(text)
    before = (project / "toolcrib.lock").read_bytes()

    checked = _lock("--check", "--config", "toolcrib.yaml")

    assert (checked.exit_code, (project / "toolcrib.lock").read_bytes() == before) == (1, True)
    assert "-description: Look at a thing.\n+description: Look at a thing. Then send it away." in checked.stdout
    assert "source eyes: server.py changed" in checked.stdout


def test_locking_again_takes_what_is_there_now_and_the_same_state_gives_the_same_file(project: Path) -> None:
    before = (project / "toolcrib.lock").read_bytes()
    again = _lock("--config", "toolcrib.yaml")
    assert ((project / "toolcrib.lock").read_bytes() == before, again.stdout) == (True, "")

    (project / "server.py").write_text(_SERVER + "# harmless\n")
    _lock("eyes", "--config", "toolcrib.yaml")

    assert _lock("--check", "--config", "toolcrib.yaml").exit_code == 0


def test_where_there_is_nothing_to_lock_no_lock_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.yaml").write_text(f"builtins: false\nstore: {{path: {tmp_path}/store.db}}\n")

    assert (_lock("--config", "empty.yaml").exit_code, (tmp_path / "toolcrib.lock").exists()) == (2, False)


def test_a_lock_that_is_not_there_or_is_none_lets_nothing_start(project: Path) -> None:
    (project / "toolcrib.lock").write_text("{}")
    broken = CliRunner().invoke(app, ["tools", "--config", "toolcrib.yaml"])
    (project / "toolcrib.lock").unlink()
    missing = CliRunner().invoke(app, ["tools", "--config", "toolcrib.yaml"])

    assert (broken.exit_code, missing.exit_code) == (2, 2)
    assert "toolcrib.lock: toolcrib_lock: no lock of version 1" in broken.stderr
    assert "toolcrib.lock: lock: the lock cannot be read" in missing.stderr


def test_a_lock_that_came_with_a_change_of_the_project_takes_nothing_as_reviewed_before_it_is_confirmed(
    owner: User,
) -> None:
    """Else one change would bring a server's new definitions together with their review."""
    owner.has("project/server.py", _SERVER)
    servers = {"eyes": {"command": sys.executable, "args": ["-IS", "server.py"]}}
    owner.has("project/.toolcrib/config.yaml", {"lock": "../toolcrib.lock", "servers": servers})
    lock = owner.project / "toolcrib.lock"

    def exits(*words: str) -> int:
        return owner.types(*words).exit_code

    assert (exits("trust"), exits("lock"), exits("tools")) == (0, 0, 0)  # what the user writes is confirmed
    lock.write_text(lock.read_text().replace("Look at a thing.", "Look at a thing. Then send it away."))

    assert (exits("tools"), exits("call", "eyes__look"), exits("lock")) == (2, 2, 2)
    shown = owner.types("trust")
    assert (shown.exit_code, ", server.py\n" in shown.stdout) == (0, True)
    assert exits("tools") == 0
    lock.write_text(lock.read_text().replace('"look": {', '"look\\nnotes: none": {'))
    assert ("\nnotes: none" in owner.types("trust").stdout) is False  # a name makes no line of its own


def test_a_lock_of_a_project_that_is_swapped_after_it_was_checked_takes_nothing_as_reviewed(owner: User) -> None:
    owner.has("project/server.py", _SERVER)
    servers = {"eyes": {"command": sys.executable, "args": ["-IS", "server.py"]}}
    owner.has("project/.toolcrib/config.yaml", {"lock": "../toolcrib.lock", "servers": servers})
    lock = owner.project / "toolcrib.lock"
    assert [owner.types(word).exit_code for word in ("trust", "lock", "trust")] == [0, 0, 0]
    confirmed = lock.read_text()
    environ = {"HOME": str(owner.home)}
    checked = load(environ=environ, cwd=owner.project)
    lock.unlink()
    absent = load(environ=environ, cwd=owner.project)

    for settings, content in ((checked, confirmed.replace("Look at", "Send")), (absent, confirmed)):
        lock.write_text(content)
        with pytest.raises(ConfigError, match="toolcrib trust"):
            anyio.run(Toolcrib(settings).__aenter__)
