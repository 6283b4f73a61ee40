"""`toolcrib schedule`: what is added at a terminal, seen, changed, and fired by a worker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from rig import PATIENCE, Hearing
from toolcrib.cli.commands.schedule import print_schedules
from toolcrib.core.services.schedules import Schedule
from toolcrib.errors import CODES

from .conftest import User

UNFIRED = "No process runs that would fire it"


def added(user: User, *words: str) -> str:
    return user.reads("schedule", "add", *words)["id"]


@pytest.mark.slow
def test_a_user_adds_lists_shows_and_cancels(user: User) -> None:
    water = added(user, "Water", "--cron", "0 18 29 2 *", "--timezone", "Europe/Berlin", "--message", "Water them.")
    clock = added(user, "--every", "15m", "--call", "current_time", "--args", '{"zone": "Asia/Tokyo"}')

    listed = user.types("schedule")
    shown = user.reads("schedule", "show", water.removeprefix("sched_")[:8])
    cancelled = user.reads("schedule", "cancel", clock)

    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["ID", clock, water]
    assert UNFIRED in listed.stderr
    assert (shown["title"], shown["zone"], shown["action"], shown["status"]) == (
        "Water",
        "Europe/Berlin",
        {"type": "send_message", "content": "Water them."},
        "active",
    )
    assert re.fullmatch(r".*T18:00:00\+0[12]:00", shown["next_run_at"])
    assert (cancelled["status"], cancelled["trigger_config"]) == ("cancelled", {"interval_seconds": 900.0})
    assert [one["id"] for one in user.reads("schedule")] == [water]
    assert {one["id"] for one in user.reads("schedule", "list", "--all")} == {water, clock}


def test_a_user_pauses_resumes_and_adds_nothing_twice(user: User) -> None:
    first = added(user, "--every", "60", "--message", "x")

    assert added(user, "--every", "60", "--message", "x") == first
    assert user.reads("schedule", "pause", first)["next_run_at"] is None
    assert user.types("schedule", "list").stderr == ""
    assert user.reads("schedule", "resume", first)["status"] == "active"
    assert user.reads("schedule", "run", first)["status"] == "active"


def test_the_stricter_one_of_an_option_and_the_identity_is_the_mode_of_a_run(user: User) -> None:
    user.has(".config/toolcrib/config.yaml", "identities: {local: {mode: cautious}}\n")
    every = ("--every", "60", "--message")

    ids = [
        added(user, *every, "x"),
        added(user, *every, "y", "--mode", "autonomous"),
        added(user, *every, "z", "--mode", "plan"),
    ]
    modes = [user.reads("schedule", "show", id)["mode"] for id in ids]

    assert modes == ["cautious", "cautious", "plan+cautious"]


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("--message", "x"), 2, "--at, --every or --cron"),
        (("--every", "5", "--cron", "* * * * *", "--message", "x"), 2, "--at, --every or --cron"),
        (("--every", "5"), 2, "--message, --task or --call"),
        (("--every", "soon", "--message", "x"), 2, "--every"),
        (("--at", "1h", "--message", "x"), CODES["invalid_arguments"].exit, "--at: '1h' is not"),
        (("--every", "5", "--call", "t", "--args", "[]"), 2, "--args"),
        (("--every", "5", "--message", "x", "--mode", "bold"), 2, "bold"),
        (("--every", "0.5", "--message", "x"), CODES["invalid_arguments"].exit, "--every: 0.5"),
        (("--at", "2020-01-01", "--message", "x"), CODES["invalid_arguments"].exit, "--at: 2020"),
        (("--cron", "0 0 30 2 *", "--message", "x"), CODES["invalid_arguments"].exit, "--cron: '0 0 30 2 *'"),
    ],
)
def test_what_cannot_be_added_is_refused_with_its_option(
    user: User, words: tuple[str, ...], status: int, told: str
) -> None:
    result = user.types("schedule", "add", *words)

    assert (result.exit_code, told in result.stderr) == (status, True)
    assert user.reads("schedule") == []


def test_a_schedule_whose_key_is_lost_is_listed_and_can_be_cancelled(user: User) -> None:
    lost = added(user, "--every", "60", "--message", "x")
    (key,) = user.home.rglob("toolcrib/key")
    key.unlink()

    (listed,) = user.reads("schedule")
    table = user.types("schedule")
    refused = [user.types("schedule", *words) for words in (("add", "--every", "60", "--message", "x"), ("run", lost))]
    checked = user.types("doctor")
    cancelled = user.reads("schedule", "cancel", lost)

    assert (listed["id"], listed["action"], listed["trigger_config"]) == (lost, {}, {"interval_seconds": 60.0})
    assert listed["problem"]
    assert (table.exit_code, "not readable" in table.stdout) == (0, True)
    assert [one.exit_code for one in refused] == [CODES["conflict"].exit, CODES["storage"].exit]
    assert "`toolcrib schedule cancel`" in checked.output
    assert cancelled["status"] == "cancelled"
    assert user.reads("schedule") == []


@pytest.mark.process
def test_a_call_of_a_tool_that_is_not_there_is_refused_with_the_nearest_names(user: User) -> None:
    file = user.has("mcp.json", {"mcpServers": {"away": {"command": "nosuch-program"}}})
    words = ("schedule", "add", "--every", "60", "--config", str(file), "--call")

    refused = user.types(*words, "here__list")
    near = user.types("schedule", "add", "--every", "60", "--call", "curent_time")
    taken = user.types(*words, "away__list", "--json")
    loose = user.types("why", "--config", str(file), "away_list", "--json")

    assert [one.exit_code for one in (refused, near, taken)] == [CODES["not_found"].exit] * 2 + [0]
    assert "current_time" in near.stderr
    assert json.loads(loose.stdout)["stopped_by"] == "source"
    assert "added without a look at away__list" in taken.stderr
    assert [one["id"] for one in user.reads("schedule")] == [json.loads(taken.stdout)["id"]]


def test_a_schedule_is_fired_by_processes_with_its_own_configuration(user: User) -> None:
    file = user.has("other.yaml", "mode: plan\n")
    other = added(user, "--every", "60", "--message", "x", "--config", str(file))
    own = added(user, "--every", "90", "--message", "x")

    warnings = user.types("schedule").stderr.splitlines()

    assert [one["place"] for one in user.reads("schedule")] == [str(file), ""]
    assert {line.partition(":")[0]: str(file) in line for line in warnings} == {other: True, own: False}


def test_what_is_not_there_is_said_in_words(user: User) -> None:
    assert user.types("schedule").stderr == "no schedules\n"
    assert user.types("schedule", "show", "sched_1234").exit_code == CODES["not_found"].exit
    one = added(user, "--every", "60", "--message", "x")
    assert user.types("schedule", "show", one[:7]).exit_code == 2, "too short"


def test_a_list_is_80_columns_wide_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    one = Schedule(
        id="sched_0123456789abcdef",
        principal="local",
        title="A long title " * 5,
        trigger_type="cron",
        trigger_config={"cron": "*/15 9-17 * * MON-FRI"},
        zone="UTC",
        action={"type": "send_message", "content": "A long message " * 20},
        status="active",
        next_run=1e9,
        next_run_at="2001-09-09T01:46:40+00:00",
    )

    print_schedules([one], width=80)

    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.long
@pytest.mark.process
def test_a_worker_fires_what_was_added_and_it_is_in_the_log(user: User) -> None:
    one = added(user, "--every", "1", "--call", "current_time", "--args", '{"zone": "Asia/Tokyo"}')
    command = [sys.executable, "-c", "from toolcrib.cli.main import main; main()", "worker"]
    environ = {**os.environ, **{name: value for name, value in user.environ.items() if value is not None}}
    deadline = time.monotonic() + PATIENCE
    with subprocess.Popen(command, cwd=user.project, env=environ, stderr=subprocess.PIPE) as worker:
        try:
            Hearing(worker.stderr).until(b"\n")
            shown = user.reads("schedule", "show", one)
            while shown["runs"] == 0 and time.monotonic() < deadline:
                shown = user.reads("schedule", "show", one)
            served = user.types("schedule")
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE)
        finally:
            worker.kill()

    assert (shown["status"], shown["outcome"]) == ("active", "ok")
    assert served.stderr == ""
    assert {(row["tool"], row["outcome"], row["origin"]) for row in user.reads("log")} == {
        ("current_time", "ok", "schedule")
    }
    assert UNFIRED in user.types("schedule").stderr
