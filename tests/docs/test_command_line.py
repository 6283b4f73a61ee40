"""The page of the command line has the help of every command, and every page names commands that there are."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from typing import Any

from typer import Exit
from typer._click.exceptions import MissingParameter, UsageError
from typer.main import get_command

from docs.documents import DOCUMENTS, blocks
from rig import ROOT
from toolcrib.cli.main import app

PAGE = ROOT / "docs" / "reference" / "commands.md"


def test_the_page_is_the_help_that_the_commands_print() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "reference" / "commands.py"))

    assert PAGE.read_text("utf-8") == script["page"](), "run `python docs/reference/commands.py`"


def test_every_command_that_a_page_names_or_shows_is_there_with_its_options() -> None:
    named = set(_named())
    wrong = {command: error for command in named if (error := _error_of(shlex.split(command)[1:]))}

    assert wrong == {}
    assert len(named) > 150


def _named() -> Iterator[str]:
    """Yield the commands of ours in the prose of the pages, and at the beginning of lines of their blocks."""
    for page in DOCUMENTS:
        if page != PAGE:
            prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
            for quoted in re.findall(r"`(toolcrib [^`]+)`", prose):
                yield from " ".join(quoted.split()).split(" && ")
    for block in blocks("text"):
        for line in re.findall(r"^(?:\$ )?(toolcrib [^:].*)", block.text, re.MULTILINE):
            yield re.split(r" {2,}| #", line)[0]


def _error_of(words: list[str]) -> str:
    """Return the error of the parser, as of an unknown option; prose may leave arguments out."""
    try:
        _parse(get_command(app), "toolcrib", words)
    except (MissingParameter, Exit):  # `--help` exits
        return ""
    except UsageError as error:
        return error.format_message()
    return ""


def _parse(command: Any, name: str, words: list[str], parent: Any = None) -> None:
    context = command.make_context(name, words, parent=parent)
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    if rest and hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        _parse(command, name, rest, context)
