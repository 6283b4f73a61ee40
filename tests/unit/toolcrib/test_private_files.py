"""Caches are swept by age, with the folders that were made for them."""

import os
import time
from pathlib import Path

from toolcrib.system.private_files import remove_old_tree


def put(file: Path, *, days: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    written = time.time() - days * 24 * 3600
    os.utime(file, (written, written))


def left(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.name != ".swept"}


def test_byte_code_that_was_written_long_ago_goes_with_its_folders_at_most_once_a_day(tmp_path: Path) -> None:
    folder = tmp_path / "bytecode"
    remove_old_tree(folder)
    assert not folder.exists()
    put(folder / "old/deep/a.pyc", days=91)
    put(folder / "used/a.pyc", days=91)
    put(folder / "used/b.pyc", days=89)
    remove_old_tree(folder)
    assert left(folder) == {"used", "used/b.pyc"}
    put(folder / "old/a.pyc", days=91)
    remove_old_tree(folder)
    assert "old/a.pyc" in left(folder)
    put(folder / ".swept", days=2)
    remove_old_tree(folder)
    assert left(folder) == {"used", "used/b.pyc"}
