"""Our folders are private to their user, whatever the umask is."""

import os
import stat
from pathlib import Path

from toolcrib.core.files import make_private_folder


def test_missing_parents_are_private_under_an_open_umask_and_what_exists_stays_as_it_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "home").mkdir(mode=0o755)
        make_private_folder(tmp_path / "home/.local/share/toolcrib")
    finally:
        os.umask(before)

    made = [tmp_path / "home", *sorted((tmp_path / "home").rglob("*"))]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o755, 0o700, 0o700, 0o700]
