"""`toolcrib plugin new` writes a plugin that works, and `toolcrib plugins` tells what was loaded from where."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolcrib.cli.main import app

_RUN = CliRunner()


@pytest.mark.long
@pytest.mark.process
def test_a_new_plugin_passes_its_own_tests(tmp_path: Path) -> None:
    written = _RUN.invoke(app, ["plugin", "new", "my-weather", "--folder", str(tmp_path)])
    target = tmp_path / "my-weather"

    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(target)],
        cwd=target,
        capture_output=True,
        text=True,
        check=False,
    )

    assert written.exit_code == 0, written.output
    assert (tested.returncode, tested.stdout.splitlines()[-1].split(" in ")[0]) == (0, "4 passed"), tested.stdout


def test_nothing_is_written_over_a_folder_that_is_there_or_under_a_name_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "weather").mkdir()

    there = _RUN.invoke(app, ["plugin", "new", "weather", "--folder", str(tmp_path)])
    odd = _RUN.invoke(app, ["plugin", "new", "../weather", "--folder", str(tmp_path)])

    assert (there.exit_code, odd.exit_code, [path.name for path in tmp_path.rglob("*")]) == (2, 2, ["weather"])
    assert "exists already; nothing was written" in there.stderr
    assert "is not a name for a plugin" in odd.stderr


@pytest.mark.process
def test_what_a_plugin_wrote_to_an_open_file_is_on_disk_when_the_command_has_ended(tmp_path: Path) -> None:
    config, log, folder = tmp_path / "toolcrib.yaml", tmp_path / "log.txt", tmp_path / "mine"
    folder.mkdir()
    (folder / "noted.py").write_text(f"log = open({str(log)!r}, 'w')\nlog.write('loaded')\ndef get(): return log\n")
    config.write_text("plugins: {folders: [mine]}\nstore: toolcrib.db\n")

    command = [sys.executable, "-m", "toolcrib", "find", "anything", "--config", str(config)]
    subprocess.run(command, capture_output=True, check=False, timeout=60)

    assert log.read_text() == "loaded"


def test_plugins_are_listed_with_where_they_came_from_and_why_they_failed(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "good.py").write_text("from toolcrib.plugin import Plugin\nclass Good(Plugin): tools = lambda self: ()\n")
    (folder / "bad.py").write_text("import no_such_module\n")
    config = tmp_path / "toolcrib.yaml"
    config.write_text("plugins: {folders: [mine]}\nstore: toolcrib.db\n")

    listed = _RUN.invoke(app, ["plugins", "--config", str(config), "--json"])
    shown = _RUN.invoke(app, ["plugins", "--config", str(config)])

    assert json.loads(listed.stdout) == [
        {
            "name": "bad",
            "origin": f"{folder}/bad.py",
            "state": "failed",
            "tools": 0,
            "error": "ModuleNotFoundError: No module named 'no_such_module'",
        },
        {"name": "good", "origin": f"{folder}/good.py", "state": "ready", "tools": 0, "error": ""},
    ]
    assert "No module named 'no_such_module'" in shown.stdout
