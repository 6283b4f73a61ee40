"""The page of the command line: the help of every command, in the order of `toolcrib --help`.

python docs/reference/commands.py    writes commands.md beside this file
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from typer.main import get_command
from typer.testing import CliRunner

from toolcrib.cli.main import Commands, app

__all__ = ["PAGE", "page"]

PAGE: Final = Path(__file__).with_suffix(".md")
_HEAD: Final = """# Command line

Every command with its help, as `toolcrib COMMAND --help` prints it. `toolcrib COMMAND ACTION --help` has the options
of an action.

<!-- made by `python docs/reference/commands.py` -->
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([_HEAD, *_parts()])


def _parts() -> Iterator[str]:
    group = get_command(app)
    assert isinstance(group, Commands)
    yield from _help()
    for heading, names in group.sections(None).items():
        yield f"## {heading}\n"
        for name in names:
            yield f"### {name}\n"
            yield from _help(name)


def _help(*command: str) -> Iterator[str]:
    """Yield what a command prints about itself in a terminal of 80 columns."""
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80"}, prog_name="toolcrib")
    assert shown.exit_code == 0, shown.output
    yield f"```text\n{shown.output.strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
