"""Profile of a command under Seatbelt, read as macOS reads one: of several rules the last that fits decides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from toolcrib.core.sandbox import Command
from toolcrib.sandbox.protected_paths import GuardedPaths, Repositories, guarded_in
from toolcrib.sandbox.seatbelt import profile

_WORD = re.compile(r'#?"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+')
_NAMED = {
    "file-read*": ("file-read-data", "file-read-metadata"),
    "file-write*": ("file-write-data", "file-write-unlink"),
}


def _parsed(words: Iterator[str]) -> list[Any]:
    found: list[Any] = []
    for word in words:
        if word == ")":
            return found
        found.append(_parsed(words) if word == "(" else word)
    return found


def _fits(filters: Sequence[Any], path: str) -> bool:
    for one in filters:
        kind, *values = one
        value = re.sub(r"\\(.)", r"\1", str(values[0]).strip('"'))
        if (kind == "literal" and path == value) or (kind == "subpath" and f"{path}/".startswith(f"{value}/")):
            return True
    return not filters


def allows(text: str, operation: str, path: Path) -> bool:
    """Whether a profile allows an operation on a path."""
    is_allowed = False
    for rule in _parsed(iter(_WORD.findall(text))):
        effect, *rest = rule
        names = [str(one) for one in rest if isinstance(one, str)]
        covered = {name for one in names for name in _NAMED.get(one, (one,))}
        if {operation, "default"} & covered and _fits([one for one in rest if isinstance(one, list)], str(path)):
            is_allowed = effect == "allow"
    return is_allowed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a repository and a file of secrets; its name has what a profile has to quote."""
    made = tmp_path / 'a "b" \\ c'
    (made / ".git" / "hooks").mkdir(parents=True)
    (made / ".git" / "config").touch()
    (made / ".env").touch()
    return made


def _profile(folder: Path, *, read_only: bool = False, network: bool = False) -> str:
    command = Command(argv=("true",), cwd=folder, folders=(folder,), read_only=read_only, network=network)
    return profile(command, guarded_in((folder,), Repositories()), folder.parent / "own", ())


def test_a_command_writes_in_its_folders_and_reads_the_programs_of_the_machine(folder: Path) -> None:
    text = _profile(folder)
    own, outside = folder.parent / "own", folder.parent / "other"

    assert [allows(text, "file-write-data", path) for path in (folder / "x", own / "x", outside, Path("/usr/x"))] == [
        True,
        True,
        False,
        False,
    ]
    assert [allows(text, "file-read-data", path) for path in (folder / "x", Path("/usr/bin/git"), outside)] == [
        True,
        True,
        False,
    ]
    assert not allows(_profile(folder, read_only=True), "file-write-data", folder / "x")


def test_guarded_files_are_read_only_and_secrets_unreadable(folder: Path) -> None:
    text = _profile(folder)
    git = folder / ".git"
    kept = (git / "config", git / "hooks" / "pre-commit", git / "config.worktree")

    assert [allows(text, "file-write-data", path) for path in (*kept, git / "index")] == [False, False, False, True]
    assert [allows(text, "file-write-unlink", path) for path in (git, git / "index")] == [False, True]
    assert [allows(text, "file-read-data", path) for path in (folder / ".env", git / "config")] == [False, True]


def test_the_network_is_closed_unless_it_is_given(folder: Path) -> None:
    operations = ("network-outbound", "network-bind", "system-socket")

    assert [operation in _profile(folder) for operation in operations] == [False] * 3
    assert [operation in _profile(folder, network=True) for operation in operations] == [True] * 3


def test_a_command_without_guarded_paths_has_a_profile_without_rules_for_them(tmp_path: Path) -> None:
    command = Command(argv=("true",), cwd=tmp_path, folders=(tmp_path,))

    assert "(deny file" not in profile(command, GuardedPaths(), tmp_path, ())
