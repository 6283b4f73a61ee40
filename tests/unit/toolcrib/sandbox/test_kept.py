"""Contents that are given back: their limit counts what is kept now, not what was ever read."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.sandbox import leftovers
from toolcrib.sandbox.leftovers import Kept, Stamp, stamp_of


def test_a_file_that_often_changes_is_still_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_MAX_KEPT", 1000)
    file, kept = tmp_path / "AGENTS.md", Kept()

    def written(number: int) -> Stamp:
        file.write_text(f"{number:03}" * (100 + number), encoding="utf-8")
        stamp = stamp_of(file)
        assert stamp is not None
        kept.take({str(file): stamp})
        return stamp

    *_, last = map(written, range(20))
    file.rename(tmp_path / "AGENTS.md.aside")
    kept.give_back(file, last)
    assert file.read_text(encoding="utf-8") == "019" * 119
