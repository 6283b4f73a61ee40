"""Files that programs open, as the kernel reports them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from rig.sandbox import needs_inotify
from toolcrib.workspace.opened_files import OpenedFiles

pytestmark = needs_inotify


def test_what_is_opened_is_reported_once(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    for file in files:
        file.write_text("text")
    opened = OpenedFiles([*files, tmp_path / "missing"])
    files[0].read_text()

    assert (opened.read(), opened.read()) == ({files[0]}, set())
    opened.close()


def test_a_file_that_cannot_be_watched_counts_as_opened(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    handle = os.open(tmp_path, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        opened = OpenedFiles([tmp_path])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(handle)

    assert opened.read() == {tmp_path}
