"""The keys `workspace` and `modes`: folders count from their file, modes extend one another over files."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from toolcrib.config import Settings
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.errors import ConfigError
from toolcrib.policy.modes import MODES
from unit.toolcrib.config.written import read


def settings(tmp_path: Path, *texts: str) -> Settings:
    return read(tmp_path, *texts, HOME=str(tmp_path))


def test_a_folder_alone_is_the_workspace(tmp_path: Path) -> None:
    assert settings(tmp_path, "workspace: .").workspace == WorkspaceSpec(roots=(tmp_path,))


def test_nothing_said_is_no_workspace(tmp_path: Path) -> None:
    assert settings(tmp_path, "accept: true").workspace == WorkspaceSpec()


def test_all_that_a_workspace_may_say(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    text = "workspace: {roots: [a, '~'], guarded: ['*.secret'], hard_links: [vendor]}"
    assert settings(tmp_path, text).workspace.guarded == ("*.secret",)
    assert settings(tmp_path, text).workspace.hard_links == ("vendor",)
    assert settings(tmp_path, text).workspace.roots[0] == tmp_path / "a"


def test_a_folder_that_is_not_there_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    found = settings(tmp_path, "workspace: {roots: [nowhere, .]}")
    assert found.workspace.roots == (tmp_path,)
    assert [(problem.source, "nowhere" in problem.message) for problem in found.problems] == [("workspace", True)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("workspace: {root: [.]}", "workspace.root: unknown key; did you mean 'roots'?"),
        ("workspace: [.]", "workspace: a string was expected"),
        ("workspace: {roots: .}", "workspace.roots: a list of strings was expected"),
        ("modes:\n  a: {files: both}", ":2: modes.a.files: one of direct, review, audit was expected"),
        ("modes: {a: {extends: b}, b: {extends: a}}", "modes.a.extends: these modes extend one another: a, b"),
        ("modes: {a: {extends: nobody}}", "modes.a.extends: unknown mode 'nobody'"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(tmp_path, text)
    assert reason in str(error.value)


def test_a_mode_extends_one_of_another_file(tmp_path: Path) -> None:
    found = settings(tmp_path, "modes: {b: {extends: a, write: deny}}", "modes: {a: {extends: review}}\nmode: b")
    assert (found.policy.mode, found.policy.modes["b"]) == ("b", replace(MODES["review"], name="b", write="deny"))


def test_another_workspace_is_another_daemon(tmp_path: Path) -> None:
    digests = {settings(tmp_path, text).digest() for text in ("accept: true", "accept: true\nworkspace: .")}
    assert len(digests) == 2
