"""Tables: one line a row for programs, nothing wider than the terminal for people."""

import re
import sys

import pytest

from toolcrib.cli.output import Column, note, out, table

from .conftest import User

COLUMNS: tuple[Column, ...] = (("TIME", "<"), ("TOOL", "<"), ("MS", ">"), ("SESSION", "<"), ("ARGUMENTS", "<"))
ROWS = [
    ("2026-11-22 14:00:03", "github__create_issue", "12.3", "5f3a" * 8, '{"title": "' + "a long title " * 9 + '"}'),
    ("2026-11-22 14:00:04", "git__log", "1,212.3", "", "{}"),
]


def printed(capsys: pytest.CaptureFixture[str], columns: tuple[Column, ...], *rows: tuple[str, ...], **how: int) -> str:
    table(columns, rows, **how)
    return capsys.readouterr().out


def test_elsewhere_than_on_a_terminal_a_row_is_one_line_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, COLUMNS, *ROWS).splitlines()

    assert len(lines) == 3
    assert lines[1].endswith('"}')
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_no_line_is_wider_and_no_text_is_lost(capsys: pytest.CaptureFixture[str], width: int) -> None:
    text = printed(capsys, COLUMNS, *ROWS, width=width)

    assert [line for line in text.splitlines() if len(line) > width] == []
    assert "\x1b" not in text
    squeezed = re.sub(r"\s", "", text)
    for cell in (cell for row in ROWS for cell in row):
        assert re.sub(r"\s", "", cell) in squeezed


def test_the_last_column_folds_in_its_place_where_it_has_room(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, COLUMNS[1:3] + COLUMNS[4:], ("git__log", "12", "one two three four five six"), width=40)

    assert text == "TOOL      MS  ARGUMENTS\ngit__log  12  one two three four five\n              six\n"


def test_columns_that_do_not_fit_follow_with_their_headings_and_without_empty_cells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(capsys, COLUMNS, *ROWS, width=60).splitlines()

    assert lines[0].split() == ["TIME", "TOOL", "MS"]
    assert lines[2] == f"    SESSION {'5f3a' * 8}  ARGUMENTS"
    assert lines[-1] == "    ARGUMENTS {}"


def test_characters_that_take_two_places_count_twice(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, (("A", "<"), ("B", "<")), ("日本", "x"), ("ab", "日本語" * 20), width=40)

    assert text.splitlines()[:2] == ["A     B", "日本  x"]
    assert max(map(len, text.splitlines()[2:])) <= 6 + (40 - 6) // 2


def test_prose_fits_the_columns_with_a_tilde_for_the_home_and_content_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = "/no-such-home"
    monkeypatch.setenv("HOME", home)
    text = (
        f"  client: {home}/.cursor/mcp.json has it, not /mnt{home}/x, " + "instead of one-server, another-server " * 4
    )

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    out(text)
    note(text)
    out(text, verbatim=True)
    table((("FILE", "<"),), [(f"{home}/config.yaml",)])
    folded = capsys.readouterr()
    monkeypatch.undo()
    out(text)
    whole = capsys.readouterr()

    *prose, verbatim, _, row = folded.out.splitlines()
    assert prose == folded.err.splitlines()
    assert prose[0] == "  client: ~/.cursor/mcp.json has it, not"
    assert max(map(len, prose)) <= 40
    assert " ".join(" ".join(prose).split()) == " ".join(text.replace(f" {home}", " ~").split())
    assert (verbatim, row, whole.out) == (text, "~/config.yaml", f"{text}\n")


@pytest.mark.parametrize(
    "words",
    ["approvals", "jobs", "log", "pending", "plugins", "queue", "results", "schedule", "secret", "shadow", "work"],
)
def test_a_listing_of_nothing_says_so_without_headings(user: User, words: str) -> None:
    shown = user.types(*words.split())

    assert shown.exit_code == 0
    assert shown.output.strip() != ""
    assert [line for line in shown.output.splitlines() if "  " in line.strip()] == []
