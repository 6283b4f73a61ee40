"""The program that an entry starts, and the environment that is made for it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.cli.clients.own_environment import (
    entry_program,
    installed_distributions,
    make_environment,
    needed_distributions,
    outdated_program,
    own_program,
)
from toolcrib.config.directories import Directories, Places
from toolcrib.errors import UsageError

from .conftest import TOOLCRIB, User


def places(home: Path, **environ: str) -> Places:
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], **environ}
    return Places(directories=Directories.of(environ), environ=environ, project=home)


def command_in(file: Path) -> str:
    return json.loads(file.read_text())["mcpServers"]["toolcrib"]["command"]


def distribution(site: Path, name: str, *requires: str, plugin: bool = False, extras: tuple[str, ...] = ()) -> None:
    """Write the metadata of a distribution as pip does."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {one}" for one in requires] + [f"Provides-Extra: {one}" for one in extras]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / "RECORD").write_text(f"{name}-1.0.dist-info/METADATA,,\n")
    if plugin:
        (folder / "entry_points.txt").write_text("[toolcrib.plugins]\nx = x\n")


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return an empty folder of distributions, which is all that this process sees."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    yield tmp_path / "site"


def test_a_program_that_is_named_is_what_the_entry_starts_by_its_whole_path(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})

    named = user.types("connect", "cursor", "--command", Path(sys.executable).name, "--dry-run", "--json")
    user.types("connect", "cursor")

    assert Path(json.loads(named.stdout)[0]["command"]).is_absolute()
    assert command_in(file) == TOOLCRIB


def test_a_program_that_cannot_be_started_is_refused_before_anything_is_written(user: User) -> None:
    file = user.has(".cursor/mcp.json", '{"mcpServers": {}}')

    refused = user.types("connect", "cursor", "--command", "/nonexistent/toolcrib")

    assert (refused.exit_code, file.read_text()) == (2, '{"mcpServers": {}}')
    assert "/nonexistent/toolcrib" in refused.stderr


def test_a_clone_is_no_place_for_an_entry(tmp_path: Path) -> None:
    assert entry_program(places(tmp_path)).kind == "clone"
    assert not entry_program(places(tmp_path)).is_lasting
    assert entry_program(places(tmp_path, TOOLCRIB_COMMAND=TOOLCRIB)).path == TOOLCRIB


def test_an_environment_in_a_cache_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "CACHEDIR.TAG").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "archive-v0" / "abc"))

    assert entry_program(places(tmp_path)).kind == "temporary"


def test_an_installed_environment_is_named_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Path
) -> None:
    distribution(moved, "toolcrib")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    assert entry_program(places(tmp_path)).kind == "installed"


def test_a_dry_run_says_what_would_be_copied_and_copies_nothing(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {"a": {"command": "/nonexistent"}}})
    before = file.read_text()
    user.environ["TOOLCRIB_COMMAND"] = ""

    rows = json.loads(user.types("connect", "cursor", "--replace", "--dry-run", "--json").stdout)

    own = user.home / ".local/share/toolcrib/environment/bin/toolcrib"
    assert rows == [
        {
            "client": "cursor",
            "file": str(file),
            "connected": True,
            "profile": "adaptive",
            "guard": "off",
            "moved": ["a"],
            "kept": [],
            "command": str(own),
            "copies_environment": True,
            "rules": {},
            "permissions": {},
            "rewritten": [],
            "notes": [],
        }
    ]
    assert (file.read_text(), own.exists(), user.config.exists()) == (before, False, False)


def test_what_is_copied_is_what_the_gateway_needs_with_the_extras_that_are_there(moved: Path) -> None:
    requires = ("base>=1", 'counter; extra == "tokens"', 'missing; extra == "web"', 'linter; extra == "dev"')
    distribution(moved, "toolcrib", *requires, 'winapi; sys_platform == "none"', extras=("tokens", "web", "dev"))
    distribution(moved, "Base", "deeper[extra] ; python_version > '3'")
    distribution(moved, "deeper", 'deepest; extra == "extra"', 'unwanted; extra == "other"')
    for name in ("counter", "deepest", "linter", "unwanted", "winapi", "bystander"):
        distribution(moved, name)
    distribution(moved, "our_plugin", "helper", plugin=True)
    distribution(moved, "helper")

    there = installed_distributions()
    needed = needed_distributions(there)

    assert list(needed) == ["base", "counter", "deeper", "deepest", "helper", "our-plugin", "toolcrib"]


def test_a_copy_of_another_state_than_the_one_that_runs_is_named(tmp_path: Path) -> None:
    with_copy, without = places(tmp_path / "with"), places(tmp_path / "without")
    data = with_copy.directories.data
    (data / "environments" / "older" / "bin").mkdir(parents=True)
    (data / "environments" / "older" / "bin" / "toolcrib").touch()
    (data / "environment").symlink_to(Path("environments", "older"))

    assert (outdated_program(with_copy), outdated_program(without)) == (own_program(with_copy), None)


def test_where_no_environment_can_be_made_the_reason_is_given_and_nothing_is_left(tmp_path: Path) -> None:
    data = tmp_path / ".local" / "share"
    data.mkdir(parents=True)
    (data / "toolcrib").write_text("a file, not a folder")

    with pytest.raises(UsageError, match="no environment can be made"):
        make_environment(places(tmp_path))
    assert [path.name for path in data.iterdir()] == ["toolcrib"]


def test_a_clone_that_cannot_be_copied_is_named_with_a_warning(user: User) -> None:
    file = user.has(".cursor/mcp.json", {"mcpServers": {}})
    user.has(".local/share/toolcrib/environments", "a file, not a folder")
    user.environ["TOOLCRIB_COMMAND"] = ""

    result = user.types("connect", "cursor")

    assert (result.exit_code, command_in(file)) == (0, TOOLCRIB)
    assert "no environment can be made" in result.stderr


def test_a_temporary_environment_that_cannot_be_copied_is_refused(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    file = user.has(".cursor/mcp.json", '{"mcpServers": {}}')
    user.has(".local/share/toolcrib/environments", "a file, not a folder")
    user.environ["TOOLCRIB_COMMAND"] = ""
    user.has("cache/CACHEDIR.TAG", "")
    monkeypatch.setattr(sys, "prefix", str(user.home / "cache" / "archive-v0" / "abc"))

    result = user.types("connect", "cursor")

    assert (result.exit_code, file.read_text()) == (2, '{"mcpServers": {}}')
    assert "uv tool" in result.stderr
