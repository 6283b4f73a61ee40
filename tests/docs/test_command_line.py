"""The page of the command line has the help of every command."""

import runpy

from rig import ROOT


def test_the_page_is_the_help_that_the_commands_print() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "reference" / "commands.py"))

    assert script["PAGE"].read_text("utf-8") == script["page"](), "run `python docs/reference/commands.py`"
