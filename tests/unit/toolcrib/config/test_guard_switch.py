"""The file of the guard switch: what cannot be told apart from a switch that is on counts as on."""

from __future__ import annotations

from pathlib import Path

from toolcrib.config import Directories
from toolcrib.config.guard_switch import GuardSwitch


def test_the_guard_is_on_where_its_file_is_a_link_to_nothing(tmp_path: Path) -> None:
    switch = GuardSwitch(Directories.of({"HOME": str(tmp_path)}))
    switch.file.parent.mkdir(parents=True)
    switch.file.symlink_to(tmp_path / "gone")

    assert switch.is_on()
    switch.turn(False)
    assert not switch.is_on()
