"""A user with a home directory, an empty project and the command line."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from toolcrib.cli.main import app

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
"""What entries start: `connect` from a clone copies its whole environment otherwise."""
NOTES_SERVER = str(Path(__file__).with_name("notes_server.py"))


class User:
    """Somebody who types commands in a project folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.config = home / ".config" / "toolcrib" / "config.yaml"
        self.runtime = home / ("run" * 40)  # longer than the address of a socket
        own = {"HOME": str(home), "TOOLCRIB_COMMAND": TOOLCRIB, "XDG_RUNTIME_DIR": str(self.runtime)}
        self.environ = {**dict.fromkeys(_UNSET), **own}
        self._runner = CliRunner(env=self.environ)

    def types(self, *words: str, stdin: str | None = None) -> Result:
        """Run one command to its end. `connect` starts no daemon, which would outlive the test."""
        quiet = ["--no-start"] if words[:1] == ("connect",) and "--start" not in words else []
        return self._runner.invoke(app, [*words, *quiet], input=stdin)

    def reads(self, *words: str) -> Any:
        """Run one command that succeeds and return the JSON that it prints."""
        result = self.types(words[0], "--json", *words[1:])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def has(self, name: str, content: str | dict[str, Any]) -> Path:
        """Write a file into the home directory."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


_UNSET: Sequence[str] = (
    "CLAUDE_CONFIG_DIR",
    "CLINE_MCP_SETTINGS_PATH",
    "CODEX_HOME",
    "COPILOT_HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
)


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home in which the server of notes was added and its tools accepted, to be copied."""
    somebody = User(tmp_path_factory.mktemp("furnished"))
    added = somebody.types("add", "notes", "--", sys.executable, NOTES_SERVER, "journal")
    assert added.exit_code == 0, added.output
    return somebody.home


@pytest.fixture
def owner(user: User, furnished: Path) -> User:
    """Return a user who has added the server of notes."""
    shutil.copytree(furnished, user.home, dirs_exist_ok=True)
    return user


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    """Return a user whose shell is in an empty project."""
    somebody = User(tmp_path)
    somebody.project.mkdir()
    monkeypatch.chdir(somebody.project)
    return somebody
