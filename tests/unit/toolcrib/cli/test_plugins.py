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
            "error": f"ModuleNotFoundError: No module named 'no_such_module' ({folder}/bad.py:1)",
        },
        {"name": "good", "origin": f"{folder}/good.py", "state": "ready", "tools": 0, "error": ""},
    ]
    assert "No module named 'no_such_module'" in shown.stdout


def test_of_two_plugins_of_one_name_the_second_is_named_beside_the_list(tmp_path: Path) -> None:
    for folder in ("mine", "theirs"):
        (tmp_path / folder).mkdir()
        code = "from toolcrib.plugin import Plugin\nclass Good(Plugin): tools = lambda self: ()\n"
        (tmp_path / folder / "good.py").write_text(code)
    config = tmp_path / "toolcrib.yaml"
    config.write_text("plugins: {folders: [mine, theirs]}\nstore: toolcrib.db\n")

    listed = _RUN.invoke(app, ["plugins", "--config", str(config), "--json"])
    checked = json.loads(_RUN.invoke(app, ["doctor", "--config", str(config), "--json"]).stdout)

    message = f"{tmp_path}/theirs/good.py: not used, {tmp_path}/mine/good.py also has a plugin of this name and counts"
    assert [one["origin"] for one in json.loads(listed.stdout)] == [f"{tmp_path}/mine/good.py"]
    assert message in " ".join(listed.stderr.split())
    assert any(message in row["detail"] for row in checked)


def test_a_package_with_tools_and_no_plugin_is_listed_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "weather_tools-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-tools\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[toolcrib.tools]\nweather = weather_guest\n")
    tool = "from toolcrib.plugin import tool\n@tool(kind='read')\ndef forecast() -> str:\n    return 'sun'\n"
    (tmp_path / "weather_guest.py").write_text(tool)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    config = tmp_path / "toolcrib.yaml"

    def plugins(builtins: str) -> tuple[str, int]:
        config.write_text(f"builtins: {builtins}\nstore: toolcrib.db\n")
        listed = json.loads(_RUN.invoke(app, ["plugins", "--json", "--config", str(config)]).stdout)
        (weather,) = (one for one in listed if one["name"] == "weather-tools")
        return weather["state"], weather["tools"]

    assert (plugins("false"), plugins("true")) == (("found", 0), ("ready", 1))
    shown = json.loads(_RUN.invoke(app, ["tools", "weather-tools", "--json", "--config", str(config)]).stdout)
    assert [(one["name"], one["source"]) for one in shown] == [("forecast", "weather-tools")]
    for words in (["show", "forecast"], ["find", "forecast", "-k", "1"]):
        assert '"source": "weather-tools"' in _RUN.invoke(app, [*words, "--json", "--config", str(config)]).stdout
