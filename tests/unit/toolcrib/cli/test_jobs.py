"""`toolcrib jobs` and `toolcrib worker`: what runs in the background, seen and stopped from another process."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import Result

from rig import PATIENCE, Hearing
from toolcrib import Toolcrib, run, tool
from toolcrib.config import load
from toolcrib.errors import CODES, ToolFailure

from .conftest import User

pytestmark = pytest.mark.process


@tool(kind="write")
async def greet(name: str) -> str:
    """Greet somebody."""
    if name == "nobody":
        raise ToolFailure("tool_error", "there is nobody")
    return f"Hello {name}"


def accept(user: User, *names: str, work: bool) -> list[str]:
    """Be a process of that user that accepts jobs, and carries them where it works; return their ids."""
    config = user.has(".config/toolcrib/config.yaml", f"jobs: {{engine: durable, work: {str(work).lower()}}}\n")

    async def main() -> list[str]:
        async with Toolcrib(load([config], environ={"HOME": str(user.home)})) as crib:
            crib.add(greet)
            session = crib.session(mode="autonomous")
            told = [await session.call("greet", {"name": name}, background=True) for name in names]
            ids = [result.structured_content["task_id"] for result in told]
            for id in ids if work else ():
                await crib.jobs.result(id, "local", PATIENCE)
            return ids

    return run(main())


def test_a_user_lists_shows_and_forgets_what_has_ended(user: User) -> None:
    ada, nobody = accept(user, "Ada", "nobody", work=True)

    listed, newest = user.types("jobs"), user.types("jobs", "-n", "1")
    shown = user.reads("jobs", "show", ada[:12])
    result = user.types("jobs", "result", ada.removeprefix("task_")[:8])
    failed = user.types("jobs", "result", nobody)
    deleted = user.types("jobs", "delete", ada)

    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["ID", nobody, ada]
    assert [line.split()[0] for line in newest.stdout.splitlines()] == ["ID", nobody]
    assert newest.stderr.split()[0] == "1", "of those that have ended is not shown"
    assert (shown["task_id"], shown["tool_name"], shown["status"], shown["principal"]) == (
        ada,
        "greet",
        "completed",
        "local",
    )
    assert (result.stdout, failed.exit_code, failed.stderr) == ("Hello Ada\n", CODES["tool_error"].exit, _NOBODY)
    assert (deleted.exit_code, [job["task_id"] for job in user.reads("jobs")]) == (0, [nobody])


def test_a_user_cancels_what_nobody_has_begun_and_it_is_in_the_log(user: User) -> None:
    (id,) = accept(user, "Ada", work=False)

    early = user.types("jobs", "result", id)
    cancelled = user.reads("jobs", "cancel", id)

    assert (early.exit_code, cancelled["status"]) == (CODES["timeout"].exit, "cancelled")
    assert [job["status"] for job in user.reads("jobs", "--status", "cancelled")] == ["cancelled"]
    assert "'working', 'input_required', 'completed'" in user.types("jobs", "--status", "canceled").stderr
    assert [(row["tool"], row["outcome"]) for row in user.reads("log")] == [("greet", "cancelled")]


def test_doctor_tells_of_jobs_whose_key_is_gone(user: User) -> None:
    accept(user, "Ada", work=False)
    (key,) = user.home.rglob("toolcrib/key")
    well = user.types("doctor", "--json")
    key.unlink()
    missing = user.types("doctor", "--json")
    key.write_bytes(base64.b64encode(bytes(32)))
    other = user.types("doctor", "--json")

    def store(found: Result) -> tuple[int, str]:
        (check,) = [one for one in json.loads(found.stdout) if one["check"] == "store"]
        return found.exit_code, check["detail"].split(": ", 1)[1]

    then = "put the key that was beside the store then (a backup has it) back in its place, and restart Toolcrib"
    tail = f"{then}; or give up by `toolcrib jobs cancel`"
    failed = CODES["storage"].exit
    assert store(well)[0] == 0
    assert store(missing) == (failed, f"1 waiting job cannot go on: the file of the key, {key}, is missing; {tail}")
    assert store(other) == (
        failed,
        f"1 waiting job cannot go on: sealed with another key than that in {key}; {tail}",
    )


def test_what_is_not_there_is_said_in_words(user: User) -> None:
    assert (user.types("jobs").stderr, user.reads("jobs")) == ("no jobs\n", [])
    accept(user, "Ada", "Bob", work=False)

    unknown = user.types("jobs", "show", "0000000")
    ambiguous = user.types("jobs", "show", "task_")
    nothing = user.types("jobs", "stop")
    which = user.types("jobs", "cancel")

    assert (unknown.exit_code, ambiguous.exit_code) == (CODES["not_found"].exit, 2)
    assert "there are cancel, delete, list, result, show" in nothing.stderr
    assert (which.exit_code, "Missing argument 'ID'" in which.stderr) == (2, True)


@pytest.mark.long
def test_looking_for_a_job_makes_no_store(user: User) -> None:
    shown = user.types("jobs", "show", "task_1")
    assert (shown.exit_code, list(user.home.rglob("*.db"))) == (CODES["not_found"].exit, [])


def test_a_worker_says_what_it_works_on_and_ends_when_it_is_asked_to(user: User) -> None:
    environ = {**os.environ, "HOME": str(user.home), "XDG_DATA_HOME": str(user.home / "data")}
    command = [sys.executable, "-c", "from toolcrib.cli.main import main; main()", "worker"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE) as worker:
        try:
            heard = Hearing(worker.stderr)
            said = heard.until(b"\n").decode()
            worker.send_signal(signal.SIGTERM)
            assert "stopped by SIGTERM: jobs that run have 20 s" in heard.until(b"\n").decode()
            status = worker.wait(PATIENCE)
        finally:
            worker.kill()
    place = user.home / "data" / "toolcrib" / "toolcrib.db"
    assert (json.loads(said)["message"], status) == (f"toolcrib works on the jobs of {place}", 0)


_NOBODY = "tool_error: there is nobody\n"
