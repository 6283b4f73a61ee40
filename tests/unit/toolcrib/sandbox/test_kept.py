"""Contents that are given back: their limit counts what is kept now, not what was ever read."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.sandbox import leftovers
from toolcrib.sandbox.leftovers import KeptContents, Stamp, stamp_of


def test_a_file_that_often_changes_is_still_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_MAX_KEPT_BYTES", 1000)
    file, kept = tmp_path / "AGENTS.md", KeptContents()

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


def test_files_that_are_gone_make_room_for_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "_MAX_KEPT_BYTES", 1000)
    kept = KeptContents()

    def written_and_removed(file: Path) -> Stamp:
        file.write_text("x" * 500, encoding="utf-8")
        stamp = stamp_of(file)
        assert stamp is not None
        kept.take({str(file): stamp})
        file.unlink()
        return stamp

    *_, last = map(written_and_removed, (tmp_path / str(number) for number in range(20)))
    kept.give_back(tmp_path / "19", last)
    assert (tmp_path / "19").read_text(encoding="utf-8") == "x" * 500
