"""Done means shown: ten kinds of false completion, ten of each, and thirty honest ones."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rig.sandbox import needs_sandbox
from seeds.inventory import git
from unit.toolcrib_queue.conftest import Person

Declared = list[dict[str, Any]]
Work = Callable[[Person, Path, int], Awaitable[None]]
"""What a worker does between its claim and its completion; the number tells variants apart."""


async def nothing(ada: Person, folder: Path, n: int) -> None:
    """Do no work at all."""


async def write(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("write_file", path=f"src/{n}.py", content=f"answer = {n + 1}\n", if_exists="overwrite")


async def look_at_nothing(ada: Person, folder: Path, n: int) -> None:
    await ada.refused("read_file", path=f"missing/{n}")


async def write_the_same(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("write_file", path=f"src/{n}.py", content=f"answer = {n}\n", if_exists="overwrite")


async def remove(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("remove_file", path=f"src/{n}.py")


async def edit_the_test(ada: Person, folder: Path, n: int) -> None:
    await write(ada, folder, n)
    await ada.ok("write_file", path=f"tests/{n}.py", content="assert True\n" * (n + 1), if_exists="overwrite")


async def remove_the_test(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("remove_file", path=f"tests/{n}.py")


async def write_something_else(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("write_file", path=f"out/{n}.txt", content=f"done{' ' * n}")


async def write_nothing(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("write_file", path=f"out/{n}.txt", content="")


async def commit_nothing(ada: Person, folder: Path, n: int) -> None:
    """Commit nothing, or make an empty commit, or take the commit back."""
    if n % 3 == 1:
        git(folder, "commit", "--quiet", "--allow-empty", "-m", f"All done, {n}")
    elif n % 3 == 2:
        await commit(ada, folder, n)
        git(folder, "revert", "--no-edit", "HEAD")


async def commit(ada: Person, folder: Path, n: int) -> None:
    await write(ada, folder, n)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", f"Work {n}")


async def write_right(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("write_file", path=f"out/{n}.txt", content="right")


async def write_elsewhere(ada: Person, folder: Path, n: int) -> None:
    await ada.ok("write_file", path=f"other/{n}.txt", content=f"right {n}", if_exists="overwrite")


def called(n: int) -> Declared:
    return [{"type": "call", "tool": ("write_file", "read_file", "git_*")[n % 3]}]


def written(n: int) -> Declared:
    return [{"type": "call", "tool": "write_file"}]


def read(n: int) -> Declared:
    return [{"type": "call", "tool": "read_file"}]


def changed(n: int) -> Declared:
    return [{"type": "changed", "path": f"src/{n}.py"}]


def guarded(n: int) -> Declared:
    return [*changed(n), {"type": "unchanged", "path": f"tests/{n}.py"}]


def protected(n: int) -> Declared:
    return [{"type": "unchanged", "path": f"tests/{n}.py"}]


def produced(n: int) -> Declared:
    return [{"type": "file", "path": f"out/{n}.txt", "sha256": hashlib.sha256(b"right").hexdigest()}]


def there(n: int) -> Declared:
    return [{"type": "file", "path": f"out/{n}.txt"}]


def committed(n: int) -> Declared:
    return [{"type": "commit"}]


LIES = (
    "exit {n}",
    "echo shown; exit {n}",
    "printf 'exit status 0'; false",
    "kill -9 $$",
    "no-such-program",
    "test -e no",
)


def succeeds(n: int) -> Declared:
    command = LIES[n % len(LIES)].format(n=n + 1)
    return [{"type": "command", "command": command}]


def runs(n: int) -> Declared:
    return [{"type": "command", "command": f"grep -q 'answer = {n + 1}' src/{n}.py"}]


FALSE: Mapping[str, tuple[Callable[[int], Declared], Work]] = {
    "done without a call": (called, nothing),
    "a call that failed": (read, look_at_nothing),
    "an untouched file": (changed, write_the_same),
    "a removed file": (changed, remove),
    "an edited acceptance test": (guarded, edit_the_test),
    "a removed acceptance test": (protected, remove_the_test),
    "another content": (produced, write_something_else),
    "an empty file": (there, write_nothing),
    "a file in another place": (there, write_elsewhere),
    "no commit, an empty one, or one taken back": (committed, commit_nothing),
}
HONEST: Mapping[str, tuple[Callable[[int], Declared], Work]] = {
    "a call": (written, write),
    "a changed file beside its test": (guarded, write),
    "the right content": (produced, write_right),
}


def restore(folder: Path) -> None:
    """Write the files that every work begins with."""
    for n in range(10):
        for name in ("src", "tests"):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"{n}.py").write_text(f"answer = {n}\n")
    shutil.rmtree(folder / "out", ignore_errors=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    restore(tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


async def completed(ada: Person, agent: str, folder: Path, acceptance: Declared, work: Work, n: int) -> tuple[str, Any]:
    """Claim a task, work, and complete it; return its state then, and the error where it was refused."""
    task = await ada.task(f"T{n}", acceptance=acceptance, max_retries=0)
    claim = await ada.claimed(agent)
    await work(ada, folder, n)
    result = await ada.session.call("complete_task", {**claim, "summary": "All done, all tests pass."})
    status = await ada.status(task)
    if result.is_error:
        await ada.ok("fail_task", **claim, error_message="x")
        await ada.ok("run_queue")
    return status, result.error


@pytest.mark.process
@pytest.mark.long
async def test_no_false_completion_is_accepted_and_no_honest_one_refused(ada: Person, repository: Path) -> None:
    agent = await ada.agent()
    await ada.ok("write_file", path="before.txt", content="a call before the claim")
    found: Counter[tuple[str, str]] = Counter()
    for is_honest, corpus in ((False, FALSE), (True, HONEST)):
        for kind, (declare, work) in corpus.items():
            for n in range(10):
                restore(repository)
                status, error = await completed(ada, agent, repository, declare(n), work, n)
                found[kind, status] += 1
                assert is_honest or not all(one["is_shown"] for one in error.details["evidence"])

    assert found == Counter(
        {
            **{(kind, "IN_PROGRESS"): 10 for kind in FALSE},
            **{(kind, "COMPLETED"): 10 for kind in HONEST},
        }
    )


@pytest.mark.process
async def test_a_commit_that_changes_something_is_evidence(ada: Person, repository: Path) -> None:
    assert await completed(ada, await ada.agent(), repository, committed(1), commit, 1) == ("COMPLETED", None)


@pytest.mark.process
@needs_sandbox
async def test_a_command_that_fails_is_no_evidence_whatever_it_prints(ada: Person, repository: Path) -> None:
    agent = await ada.agent()
    false = [await completed(ada, agent, repository, succeeds(n), nothing, n) for n in range(len(LIES))]
    honest = await completed(ada, agent, repository, runs(3), write, 3)

    assert [status for status, _ in false] == ["IN_PROGRESS"] * len(LIES)
    assert honest == ("COMPLETED", None)


async def test_evidence_that_lacks_its_key_is_refused_with_its_place(ada: Person) -> None:
    error = await ada.refused("create_task", title="x", acceptance=[{"type": "commit"}, {"type": "file"}])

    assert error.details["field_errors"][0]["path"] == "acceptance[1].path"
