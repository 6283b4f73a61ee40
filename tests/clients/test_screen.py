"""The terminal that the clients are shown on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rig.screen import on_screen

ASKS = "print('\\x1b[2J\\x1b[1;1Hone   \\x1b[31mtwo', flush=True); print('heard', input('what? ')); input()"


def test_what_stands_there_is_read_as_a_person_sees_it_and_what_is_typed_is_heard(tmp_path: Path) -> None:
    with on_screen([sys.executable, "-c", ASKS], env=os.environ, cwd=tmp_path) as screen:
        screen.until("what?")
        assert screen.text == "one two\nwhat?"
        screen.type("this\r", "heard this")


def test_the_end_of_a_program_is_told_with_what_it_showed(tmp_path: Path) -> None:
    with (
        on_screen([sys.executable, "-c", "print('last words')"], env=os.environ, cwd=tmp_path) as screen,
        pytest.raises(EOFError, match="ended without 'more':\nlast words"),
    ):
        screen.until("more")
