"""The page of session options has every option."""

import re

from rig import ROOT
from toolcrib import SessionOptions

PAGE = ROOT / "docs" / "reference" / "sessions.md"


def test_the_tables_have_every_option_of_a_session_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), flags=re.MULTILINE)

    assert sorted(rows) == sorted(SessionOptions.__annotations__)
