"""`toolcrib log verify`, `export` and `head`: the proof of the records, on a file and on PostgreSQL."""

import io
import json
import random
import sqlite3
import stat
from pathlib import Path

import pytest

from toolcrib.cli.commands.log import folded, one_line
from toolcrib.errors import CODES
from toolcrib.store.calls import CallRow, verify_lines
from toolcrib.store.chain import Head

from .conftest import User

STORE = ".local/share/toolcrib/toolcrib.db"


def test_a_followed_call_is_a_line_that_names_its_caller_and_moves_no_cursor() -> None:
    call = CallRow(
        seq=1, id="1", session="s1", principal="ada", origin="mcp", client="x\x1b[2J/1", tool="notes__read",
        requested="notes__read", decision="", rule="", arguments='{"id":"7"}', arguments_hash="", definition="",
        outcome="ok", started=0.0, finished=1.0, latency_ms=1.25, result_bytes=1, result_hash="",
    )  # fmt: skip

    line = one_line(call).split("  ", 1)[1]

    assert line == ('notes__read  ok  1.2  from mcp  client x\\x1b[2J/1  principal ada  session s1  {"id":"7"}')


def test_a_session_of_rest_is_shown_by_the_name_that_its_caller_gave() -> None:
    call = CallRow(
        seq=1, id="1", session="(catalog)/cautious/work/a", principal="ada", origin="rest", client="", tool="t",
        requested="t", decision="", rule="", arguments="", arguments_hash="", definition="", outcome="ok",
        started=0.0, finished=1.0, latency_ms=1.0, result_bytes=1, result_hash="",
    )  # fmt: skip

    assert one_line(call).endswith("from rest  principal ada  session work/a")


def test_calls_that_a_schedule_makes_again_and_again_are_one_line_each_time_in_a_row() -> None:
    def call(seq: int, origin: str, tool: str = "look") -> tuple[CallRow, str]:
        row = CallRow(
            seq=seq, id=f"{seq}", session="s", principal="ada", origin=origin, client="", tool=tool, requested=tool,
            decision="allow", rule="", arguments="{}", arguments_hash="", definition="", outcome="ok", started=seq,
            finished=seq, latency_ms=1.0, result_bytes=1, result_hash="",
        )  # fmt: skip
        return row, ""

    rows = [call(9, "schedule"), call(8, "schedule"), call(7, "cli"), call(6, "cli"), call(5, "schedule")]
    lines = folded([*rows, call(4, "schedule", "other"), call(3, "schedule", "other")])

    assert [(row.seq, times) for row, _, times in lines] == [(9, 2), (7, 1), (6, 1), (5, 1), (4, 2)]


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.long)])
def keeper(request: pytest.FixtureRequest, owner: User) -> User:
    """Return a user with two calls in the store: a success and a refusal."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        owner.config.write_text(f"{owner.config.read_text()}store: {url}\n")
        assert owner.types("accept", "notes").exit_code == 0
    owner.types("call", "notes__search_notes", "query=a")
    owner.types("call", "notes__delete_note", "id=7")
    return owner


@pytest.mark.long
@pytest.mark.process
def test_the_records_are_proven_exported_and_proven_by_the_export_alone(keeper: User) -> None:
    head = keeper.types("log", "head").stdout.strip()
    verified = keeper.types("log", "verify", "--head", head)
    exported = keeper.types("log", "export", "calls.jsonl")
    alone = keeper.types("log", "verify", "calls.jsonl", "--head", head)

    rows = [json.loads(line) for line in Path("calls.jsonl").read_text().splitlines()]
    assert [(row["seq"], row["tool"], row["outcome"]) for row in rows] == [
        (1, "notes__search_notes", "ok"),
        (2, "notes__delete_note", "denied"),
    ]
    assert f"2:{rows[1]['hash']}" == head
    assert (verified.exit_code, verified.stderr) == (0, f"the chain of 2 records is whole; its head is {head}\n")
    assert exported.stderr == f"2 records, from row 1 to {head}\n"
    assert (alone.exit_code, alone.stderr) == (0, verified.stderr)
    assert stat.S_IMODE(Path("calls.jsonl").stat().st_mode) == 0o600
    assert keeper.types("log", "export").stdout == Path("calls.jsonl").read_text()
    assert keeper.types("log", "export", "-").stdout == Path("calls.jsonl").read_text()
    assert keeper.reads("log", "verify") == {
        "rows": 2,
        "head": {"seq": 2, "hash": rows[1]["hash"]},
        "problem": "",
        "seq": 0,
        "dropped": 0,
    }


@pytest.mark.process
def test_calls_are_listed_with_what_their_session_is_about(owner: User) -> None:
    owner.types("call", "notes__search_notes", "query=a")
    plain = owner.types("log").stdout
    owner.types("call", "session_describe", "description=Look for notes")
    listed, rows = owner.types("log").stdout, owner.reads("log")

    assert "ABOUT" not in plain
    assert "ABOUT" in listed
    assert [(row["tool"], row.get("session_description")) for row in rows] == [
        ("session_describe", "Look for notes"),
        ("notes__search_notes", None),
    ]


@pytest.mark.process
def test_the_list_shows_and_filters_principal_and_session_in_text_as_in_json(owner: User) -> None:
    owner.types("call", "notes__search_notes", "query=a")
    owner.types("call", "notes__search_notes", "query=b")
    first = owner.reads("log")[-1]

    assert [row["seq"] for row in owner.reads("log", "--session", first["session"])] == [1]
    assert [len(owner.reads("log", "--principal", name)) for name in (first["principal"], "ada")] == [2, 0]
    header, line = owner.types("log", "--session", first["session"]).stdout.splitlines()
    assert header.split() == [
        *("TIME", "TOOL", "OUTCOME", "MS", "DECISION", "FROM", "CLIENT", "PRINCIPAL", "SESSION", "ARGUMENTS"),
    ]
    assert line.split()[2:] == [
        *("notes__search_notes", "ok", f"{first['latency_ms']:.1f}", "allow", "cli", "local", first["session"]),
        '{"query":"a"}',
    ]


@pytest.mark.parametrize("command", ["log", "results"])
def test_the_store_of_a_configuration_that_is_named_is_looked_at(user: User, command: str) -> None:
    user.project.joinpath("broken.yaml").write_text("store: nonsense://db\n")
    result = user.types(command, "--config", "broken.yaml")

    assert result.exit_code == 2
    assert "broken.yaml:1: store" in result.stderr


@pytest.mark.process
def test_every_changed_byte_of_an_export_is_found(owner: User) -> None:
    """T26 on the file that an auditor gets: 200 flipped bytes, and every line dropped, swapped and cut."""
    for number in range(6):
        owner.types("call", "notes__search_notes", f"query={number}")
    head = owner.types("log", "head").stdout.strip()
    owner.types("log", "export", "calls.jsonl")
    whole = Path("calls.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    random_ = random.Random(26)
    damaged = [
        whole[:at] + bytes([whole[at] ^ 1 << random_.randrange(8)]) + whole[at + 1 :]
        for at in random_.sample(range(len(whole)), 200)
    ]
    damaged += [b"".join(lines[:at] + lines[at + 1 :]) for at in range(6)]
    damaged += [b"".join([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]) for at in range(5)]
    damaged += [b"".join(lines[:at]) for at in range(6)]
    seq, _, digest = head.partition(":")
    known = Head(seq=int(seq), hash=digest)
    missed = [number for number, content in enumerate(damaged) if not verify_lines(io.BytesIO(content), known).problem]

    # A first line that is missing is an export that begins later, which the chain itself cannot tell.
    assert missed == [200]
    assert owner.reads("log", "verify", "calls.jsonl")["rows"] == 6


@pytest.mark.process
def test_a_broken_record_ends_with_the_status_of_the_store_and_says_where(owner: User) -> None:
    owner.types("call", "notes__search_notes", "query=a")
    connection = sqlite3.connect(owner.home / STORE, isolation_level=None)
    connection.execute("UPDATE calls SET arguments = '{}' WHERE seq = 1")
    connection.close()

    result = owner.types("log", "verify")
    listed = owner.types("log", "--verify")
    told = owner.types("log", "verify", "--json")

    assert (result.exit_code, listed.exit_code, told.exit_code) == (CODES["storage"].exit,) * 3
    assert "the record is broken at row 1: row 1 was changed after it was recorded" in result.stderr
    assert json.loads(told.stdout)["problem"] == "row 1 was changed after it was recorded"


def test_where_nothing_was_recorded_the_proof_is_empty_and_no_file_is_made(user: User) -> None:
    verified, head = user.types("log", "verify"), user.types("log", "head")
    exported = user.types("log", "export", "none.jsonl")

    assert verified.stderr == f"the chain of 0 records is whole; its head is 0:{'0' * 64}\n"
    assert head.stdout == f"0:{'0' * 64}\n"
    assert (exported.stderr, Path("none.jsonl").read_text()) == ("0 records\n", "")
    assert not (user.home / STORE).exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("log", "notes__*", "x.jsonl"), "(x.jsonl)"),
        (("log", "--head", "1:ab"), "No such option: --head"),
        (("log", "verify", "--head", "1:ab"), "--head takes what `toolcrib log head` printed"),
        (("log", "export", "--outcome", "ok"), "No such option: --outcome"),
        (("log", "verify", "missing.jsonl"), "missing.jsonl cannot be read: No such file"),
        (("log", "export", "no/such/folder.jsonl"), "cannot be written: No such file"),
    ],
)
def test_a_mistake_is_told(user: User, words: tuple[str, ...], reason: str) -> None:
    result = user.types(*words)

    assert result.exit_code == 2
    assert reason in result.stderr


@pytest.mark.process
def test_doctor_tells_where_the_store_is_and_that_it_can_be_written(keeper: User) -> None:
    checks = {check["check"]: check for check in json.loads(keeper.types("doctor", "--json").stdout)}

    assert checks["store"]["state"] == "ok"
    assert ": writable, schema " in checks["store"]["detail"]
    assert checks["store"]["detail"].endswith("2 calls, the chain is whole")


def test_doctor_tells_of_a_server_that_is_not_there_without_its_password(user: User) -> None:
    user.has(".config/toolcrib/config.yaml", "store: postgresql://ada:hunter22@127.0.0.1:1/crib\n")

    result = user.types("doctor", "--json")

    check = next(check for check in json.loads(result.stdout) if check["check"] == "store")
    assert (check["state"], result.exit_code) == ("failed", CODES["storage"].exit)
    assert "connection" in check["detail"]
    assert "hunter22" not in result.output
