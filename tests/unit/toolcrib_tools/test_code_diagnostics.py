"""What is wrong with code: told by the real ruff and pyright, by the grammars, and for changes that wait for review."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib_tools import code, files

from .conftest import PROGRAMS

GUESTS = (code, files)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A path on which there is nothing but ruff."""
    made = tmp_path / "programs"
    made.mkdir()
    (made / "ruff").symlink_to(PROGRAMS / "ruff")
    monkeypatch.setenv("PATH", str(made))
    return made


@pytest.fixture
def session(crib: Toolcrib, folder: Path) -> Session:
    (folder / "ruff.toml").write_text('[lint]\nselect = ["F"]\n')
    return crib.session(profile="flat", mode="autonomous", workspace=folder)


async def told(session: Session, **arguments: Any) -> list[str]:
    result = await session.call("get_diagnostics", arguments)
    assert result.error is None, result.text
    return result.text.splitlines()


@pytest.mark.process
async def test_ruff_tells_what_it_finds_by_the_settings_of_the_project(
    session: Session, folder: Path, programs: Path
) -> None:
    (folder / "a.py").write_text("import os\nx = 1 \n")
    (folder / "b.py").write_text("import sys\n")

    summary = "[1 errors, 0 warnings, 0 informations in 1 files; asked: ruff, syntax; pyright is not installed; "
    assert await told(session, path="a.py") == [
        "a.py:1:8: error [ruff F401] `os` imported but unused",
        f"{summary}narrow it with path and severity]",
    ]
    assert [line.partition(" ")[0] for line in await told(session)] == ["a.py:1:8:", "b.py:1:8:", "[2"]
    assert (await told(session, max_results=1))[-1].count("the first 1 of 2 are shown") == 1


@pytest.mark.long
@pytest.mark.process
async def test_pyright_tells_about_types(session: Session, folder: Path, programs: Path) -> None:
    (programs / "pyright").symlink_to(PROGRAMS / "pyright")
    (folder / "pyrightconfig.json").write_text('{"reportUnusedExpression": "warning"}')
    (folder / "a.py").write_text('x: int = "a"\nx\n')

    every = await told(session, path="a.py")
    worst = await told(session, path="a.py", severity="error")

    assert [line[:47] for line in every] == [
        "a.py:1:10: error [pyright reportAssignmentType] "[:47],
        "a.py:2:1: warning [pyright reportUnusedExpression] "[:47],
        "[1 errors, 1 warnings, 0 informations in 1 files; "[:47],
    ]
    assert worst == [every[0], every[2]]


async def test_a_broken_file_of_any_language_is_found_without_a_program(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    (folder / "a.py").write_text("def f(:\n    pass\n")
    (folder / "a.json").write_text('{"a": 1,, "b": 2}')
    (folder / "a.go").write_text("package p\n\nfunc f( {\n}\n")
    (folder / "good.ts").write_text("const a: number = 1\n")

    found = await told(session)

    assert [line.partition(":")[0] for line in found] == ["a.go", "a.json", "a.py", found[-1].partition(":")[0]]
    assert all(": error [syntax] " in line for line in found[:-1])
    assert "3 errors, 0 warnings, 0 informations in 5 files; asked: syntax; ruff is not installed" in found[-1]


@pytest.mark.process
async def test_what_waits_for_review_is_checked_as_it_will_be(crib: Toolcrib, folder: Path, programs: Path) -> None:
    (folder / "ruff.toml").write_text('[lint]\nselect = ["F"]\n')
    (folder / "old.py").write_text("import os\n")
    (folder / "gone.py").write_text("import os\n")
    review = crib.session(profile="flat", mode="review", workspace=folder)
    for name, content in (("old.py", "import os\nos.getcwd()\n"), ("new.py", "import sys\n")):
        assert (await review.call("write_file", {"path": name, "content": content})).error is None
    assert (await review.call("remove_file", {"path": "gone.py"})).error is None

    found = await told(review)

    assert found[:-1] == ["new.py:1:8: error [ruff F401] `sys` imported but unused"]


@pytest.mark.process
async def test_a_program_that_fails_hides_nothing_of_the_others(session: Session, folder: Path, programs: Path) -> None:
    (programs / "pyright").write_text("#!/bin/sh\necho no memory left >&2\nexit 3\n")
    (programs / "pyright").chmod(0o755)
    (folder / "a.py").write_text("import os\n")

    found = await told(session)

    assert found[0] == "a.py:1:8: error [ruff F401] `os` imported but unused"
    assert "pyright gave no answer: no memory left" in found[-1]


async def test_what_is_not_there_is_refused(session: Session) -> None:
    result = await session.call("get_diagnostics", {"path": "nowhere.py"})

    assert result.error is not None
    assert result.error.message == "there is no 'nowhere.py'"
