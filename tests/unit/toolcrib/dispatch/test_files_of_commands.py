"""Files that a command runs, read for a decision under a deny of a command."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from toolcrib import Toolcrib, tool
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.permission import Answer, Question

READERS: dict[str, set[int]] = {}
"""Makefile → threads that opened it."""


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str) and os.path.basename(arguments[0]) == "Makefile":
        READERS.setdefault(arguments[0], set()).add(threading.get_ident())


sys.addaudithook(_note)


@tool(kind="write", category="shell")
async def run(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


def crib_of(folder: Path) -> Toolcrib:
    rules = {"allow": ["Bash"], "deny": ["Bash(rm:*)"]}
    crib = Toolcrib(bare().with_values(rules=rules, workspace=WorkspaceSpec(roots=(folder,))), memory=True)
    crib.add(run)
    return crib


async def test_the_event_loop_does_not_read_what_a_command_runs(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n\techo done\n", encoding="utf-8")

    READERS.clear()

    async with crib_of(tmp_path) as crib:
        result = await crib.session(profile="flat").call("run", {"command": "make"})

    assert result.text == "ran make"
    readers = READERS[str(tmp_path / "Makefile")]
    assert readers and threading.get_ident() not in readers


@pytest.mark.parametrize(("recipe", "asked"), [("echo done", []), ("rm x", ["make"])])
async def test_a_call_is_asked_about_as_its_files_were_when_it_came(
    tmp_path: Path, recipe: str, asked: list[str]
) -> None:
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"all:\n\t{recipe}\n", encoding="utf-8")
    questions: list[str] = []

    async def answer(question: Question) -> Answer:
        questions.append(question.arguments["command"])
        makefile.write_text("all:\n\techo done\n", encoding="utf-8")
        return Answer(verdict="once")

    async with crib_of(tmp_path) as crib:
        session = crib.session(profile="flat", approver=answer)
        result = await session.call("run", {"command": "make"})
        again = await session.call("run", {"command": "make"})

    assert (result.text, again.text, questions) == ("ran make", "ran make", asked)


async def test_arguments_that_a_person_edits_are_held_against_the_files_that_they_run(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n\trm x\nlist:\n\tls\n", encoding="utf-8")
    questions: list[str] = []

    async def answer(question: Question) -> Answer:
        questions.append(question.arguments["command"])
        return Answer(verdict="edit", arguments={"command": "make list"})

    async with crib_of(tmp_path) as crib:
        result = await crib.session(profile="flat", approver=answer).call("run", {"command": "make"})

    assert (result.text.splitlines()[0], questions) == ("ran make list", ["make"])
