"""`toolcrib approvals` answers from any terminal; `toolcrib call` asks at its own, which here is a real one."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rig import PATIENCE
from toolcrib.core.permission import Approval
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.errors import CODES
from toolcrib.store.store import Store
from unit.toolcrib.cli.conftest import User

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
ID = "approval_" + "ab" * 16
OTHER = "approval_" + "cd" * 16


def question(id: str = ID, **changes: Any) -> Approval:
    asked = Approval(
        id=id,
        call_id="call_1",
        principal="ada",
        session="k",
        tool="notes__delete_note",
        kind="destructive",
        source="notes",
        definition="d",
        hash="h" * 64,
        arguments='{\n "id": 7,\n "note": "\\u202eevil"\n}',
        rule="mode cautious: a destructive tool asks",
        diff="--- a/n\n+++ b/n\n",
        created=0.0,
        expires=0.0,
    )
    return replace(asked, **changes)


async def _store(user: User, *questions: Approval) -> list[Approval]:
    """Write questions down as a server does that waits for their answers, and return what is stored then."""
    async with Store.open(user.home / ".local" / "share" / "toolcrib" / "toolcrib.db") as store:
        rows = store.approvals
        for asked in questions:
            now = rows.now()
            session = SavedSession(key="k", principal=asked.principal)
            saved = SavedCall(id=asked.call_id, name=asked.tool, arguments={}, session=session, definition="d")
            await rows.put(replace(asked, created=now, expires=now + 600), saved, limit=100)
        return await rows.list()


def asked(user: User, *questions: Approval) -> list[Approval]:
    return anyio.run(_store, user, *questions)


def test_what_waits_is_listed_and_shown_whole(user: User) -> None:
    asked(user, question())

    listed, shown = user.types("approvals"), user.types("approvals", "show", ID)

    assert ID in listed.stdout
    assert "notes__delete_note" in listed.stdout
    for line in (
        "notes__delete_note (destructive) of notes, for ada",
        ' "note": "\\u202eevil"',
        "+++ b/n",
        "asked because of: mode cautious: a destructive tool asks",
        "h" * 64,
    ):
        assert line in shown.stdout
    assert [row["id"] for row in user.reads("approvals", "list")] == [ID]


def test_the_first_answer_counts_and_a_second_one_is_a_conflict(user: User) -> None:
    asked(user, question())

    yes, no = user.types("approvals", "yes", "abab"), user.types("approvals", "no", ID)

    assert (yes.exit_code, f"{ID} is approved by " in yes.stdout) == (0, True)
    assert (no.exit_code, "is approved by" in no.stderr, "this answer changes nothing" in no.stderr) == (6, True, True)
    (row,) = asked(user)
    assert (row.state, row.verdict, row.by.endswith("(command line)")) == ("approved", "yes", True)
    assert "nothing waits for an approval" in user.types("approvals").stderr
    assert [one["state"] for one in user.reads("approvals", "list", "--all")] == ["approved"]


def test_a_question_that_is_not_there_names_the_store_and_the_option_for_another_one(user: User) -> None:
    gateway = user.has("gateway.yaml", {"store": "gateway.db"})

    missing, elsewhere = user.types("approvals", "yes", ID), user.types("approvals", "yes", ID, "-c", str(gateway))

    assert (missing.exit_code, elsewhere.exit_code) == (CODES["not_found"].exit, CODES["not_found"].exit)
    assert [part in missing.stderr for part in ("toolcrib.db", "--config FILE")] == [True, True], missing.stderr
    assert [part in elsewhere.stderr for part in ("gateway.db", "--config FILE")] == [True, False], elsewhere.stderr


@pytest.mark.parametrize("words", [(), ("show", ID), ("yes", ID)])
def test_looking_for_an_approval_makes_no_store(user: User, words: tuple[str, ...]) -> None:
    shown = user.types("approvals", *words)

    assert (shown.exit_code, list(user.home.rglob("*.db"))) == (CODES["not_found"].exit if words else 0, [])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("comment", ID, "-m", "not on Fridays"), ("denied", "comment", "not on Fridays", "id")),
        (("never", ID), ("denied", "never", "", "id")),
        (("edit", ID, "--args", '{"number": 8}'), ("approved", "edit", "", "number")),
        (("all", ID, "--hash", "h" * 64), ("approved", "all", "", "id")),
    ],
    ids=["comment", "never", "edit", "all"],
)
def test_every_answer_can_be_given_here(
    user: User, words: tuple[str, ...], expected: tuple[str, str, str, str]
) -> None:
    asked(user, question())

    assert user.types("approvals", *words).exit_code == 0
    (row,) = asked(user)
    assert (row.state, row.verdict, row.comment, next(iter(json.loads(row.arguments)))) == expected


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("perhaps",), 2, "unknown action 'perhaps'; there are all, always, "),
        (("yes",), 2, "Missing argument 'ID'"),
        (("yes", "approval_0000"), 3, "'approval_0000'"),
        (("yes", "approval_a"), 2, "'approval_a' is too short"),
        (("comment", ID), 2, "approvals comment ID -m"),
        (("edit", ID), 2, "Missing option '--args'"),
        (("yes", ID, "--args", "{}"), 2, "No such option"),
        (("edit", ID, "--args", "{"), 2, "is not JSON"),
        (("edit", ID, "--args", "[]"), 2, "--args takes a JSON object"),
        (("yes", ID, "--hash", "0" * 64), 6, "another call than the one you were shown"),
    ],
)
def test_what_cannot_be_an_answer_changes_nothing_and_says_why(
    user: User, words: tuple[str, ...], status: int, told: str
) -> None:
    asked(user, question())

    refused = user.types("approvals", *words)

    assert (refused.exit_code, told in refused.stderr) == (status, True), refused.stderr
    assert [row.state for row in asked(user)] == ["pending"]


def test_a_beginning_that_two_ids_have_is_too_short(user: User) -> None:
    asked(user, question(), question(OTHER.replace("cdcd", "abab", 1), hash="other"))

    refused = user.types("approvals", "yes", "abab")

    assert (refused.exit_code, "the beginning of 2 ids" in refused.stderr) == (2, True)


# At a real terminal


class Typist:
    """Somebody who sits before a command and types."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self._terminal = terminal
        self._process = process
        self._heard = b""

    def sees(self, wanted: str) -> str:
        """Wait for `wanted`, and return everything up to it."""
        deadline = time.monotonic() + PATIENCE
        while wanted.encode() not in self._heard:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come after {self._heard!r}"
            try:
                self._heard += os.read(self._terminal, 65536)
            except OSError:  # the last one who had it open has closed it
                raise AssertionError(f"{wanted!r} did not come before the end: {self._heard!r}") from None
        before, _, self._heard = self._heard.partition(wanted.encode())
        return before.decode()

    def types(self, line: str) -> None:
        os.write(self._terminal, f"{line}\n".encode())

    def ends(self) -> int:
        return self._process.wait()


@contextmanager
def calling(owner: User, *words: str) -> Generator[Typist]:
    """Run `toolcrib` with a terminal of its own."""
    ours, theirs = pty.openpty()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's job ignores it, and so would what it starts
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environ = {**kept, "HOME": str(owner.home), "XDG_RUNTIME_DIR": str(owner.runtime)}
    with subprocess.Popen([TOOLCRIB, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        try:
            yield Typist(ours, process)
        finally:
            process.kill()
            os.close(ours)


DELETE = ("call", "notes__delete_note", "id=7")
DENIED = 5


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "prompt"), [(DELETE, "[e]dit:"), (("secret", "set", "KEY"), "KEY: "), (("uninstall",), "[y/N]: ")]
)
def test_the_end_of_the_input_interrupts_whatever_asks_and_answers_nothing(
    owner: User, words: tuple[str, ...], prompt: str
) -> None:
    with calling(owner, *words) as typist:
        typist.sees(prompt)
        typist.types("\x04")
        assert typist.ends() == 130

    assert [row["outcome"] for row in owner.reads("log")] == (["cancelled"] if words == DELETE else [])


ASKS, COMMENT, EDIT = "[e]dit:", "message to the model:", "(nothing is a no):"
CONFIRM = "(anything else is a no):"
REFUSED = "terminal refused notes__delete_note"


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "status", "deleted", "told"),
    [
        ([(ASKS, "delete_note")], 0, 7, '{"id": 7}'),
        ([(ASKS, "y"), (CONFIRM, "delete_note")], 0, 7, '{"id": 7}'),
        ([(ASKS, "y"), (CONFIRM, "y")], DENIED, None, REFUSED),
        ([(ASKS, "a"), (CONFIRM, "")], DENIED, None, REFUSED),
        ([(ASKS, "")], DENIED, None, REFUSED),
        ([(ASKS, "yess")], DENIED, None, REFUSED),
        ([(ASKS, "c"), (COMMENT, "it is still needed")], DENIED, None, f"{REFUSED}: it is still needed"),
        ([(ASKS, "e"), (EDIT, "{"), (EDIT, '{"id": 8}'), (CONFIRM, "Delete_Note")], 0, 8, '{"id": 8}'),
        ([(ASKS, "e"), (EDIT, '{"id": 8}'), (CONFIRM, "y")], DENIED, None, REFUSED),
        (
            [(ASKS, "e"), (EDIT, '{"id": "x"}'), (CONFIRM, "delete_note")],
            DENIED,
            None,
            "terminal changed the arguments",
        ),
        ([(ASKS, "e"), (EDIT, "")], DENIED, None, REFUSED),
    ],
    ids="word yes-word yes-yes always-nothing nothing unclear comment edit edit-yes wrong-edit no-edit".split(),
)
def test_a_destructive_call_asks_at_its_terminal_and_runs_only_when_its_word_is_typed(
    owner: User, typed: list[tuple[str, str]], status: int, deleted: int | None, told: str
) -> None:
    with calling(owner, *DELETE) as typist:
        before = ""
        for prompt, line in typed:
            before += typist.sees(prompt)
            typist.types(line)
        typist.sees(told)
        ended = typist.ends()

    assert "notes__delete_note (destructive) of notes wants to run with" in before
    assert '"id": 7' in before
    assert "type delete_note to run it" in before
    journal = owner.home / "journal"
    assert (ended, json.loads(journal.read_text())["id"] if journal.exists() else None) == (status, deleted)


@pytest.mark.process
def test_what_is_typed_before_a_question_is_shown_answers_neither_it_nor_the_next_one(owner: User) -> None:
    with calling(owner, *DELETE) as typist:
        typist.types("delete_note\ndelete_note\ndelete")  # no end of the line: it must not begin the answer either
        typist.sees(ASKS)
        typist.types("_note")
        typist.sees(REFUSED)
        ended = typist.ends()

    assert (ended, (owner.home / "journal").exists()) == (DENIED, False)


@pytest.mark.process
def test_an_answer_from_another_terminal_counts_while_this_one_is_asked(owner: User) -> None:
    with calling(owner, *DELETE) as typist:
        typist.sees(ASKS)
        (waiting,) = owner.reads("approvals", "list")
        assert owner.types("approvals", "yes", waiting["id"]).exit_code == 0
        typist.sees("it was answered elsewhere")
        typist.sees('{"id": 7}')
        assert typist.ends() == 0

    assert json.loads((owner.home / "journal").read_text()) == {"id": 7}


@pytest.mark.process
def test_watching_asks_about_every_question_as_it_comes(owner: User) -> None:
    with calling(owner, "approvals", "watch") as watcher:
        asked(owner, question())
        watcher.sees(ASKS)
        watcher.types("c")
        watcher.sees(COMMENT)
        watcher.types("later")
        watcher.sees(f"{ID} denied by terminal")

    assert [(row.state, row.comment) for row in asked(owner)] == [("denied", "later")]
