"""A container engine of this machine with an image of its own programs: where it cannot be had, tests say why."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from toolcrib.sandbox.container import ENGINES


def _runs(engine: str) -> bool:
    """Whether an engine has its service: the client alone runs nothing."""
    return subprocess.run([engine, "info"], capture_output=True, check=False).returncode == 0


_ENGINE: Final = next((name for name in ENGINES if shutil.which(name) and _runs(name)), "")
IMAGE: Final = "toolcrib-test:1"
_PROGRAMS: Final = ("bash", "sh", "cat", "env", "git", "id", "ls", "mkdir", "rm", "seq", "sleep", "touch")
_RUNTIME: Final = """
[engine]
cgroup_manager = "cgroupfs"
{runtime}
"""

needs_engine: Final = pytest.mark.skipif(not _ENGINE, reason=f"no container engine runs here: {' nor '.join(ENGINES)}")


def engine_environment(folder: Path) -> Mapping[str, str]:
    """Return an environment in which the engine keeps everything in `folder` and has the image of this machine.

    `folder` has a short path: with one of 47 bytes, such as pytest-xdist makes, podman waits 20 s after each command.
    """
    runtime = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin")
    config = folder / "containers.conf"
    config.write_text(_RUNTIME.format(runtime=f'runtime = "{runtime}"' if runtime else ""))
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n'
    )
    ours = {"CONTAINERS_CONF": str(config), "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}
    environ = {**os.environ, **ours}
    subprocess.run([_ENGINE, "import", "-", IMAGE], input=_archive(), env=environ, capture_output=True, check=True)
    return environ


def _archive() -> bytes:
    """Return an archive with some programs of this machine, and the libraries that they load."""
    files = dict[str, Path]()
    for program in map(shutil.which, _PROGRAMS):
        assert program is not None
        files[f"bin/{Path(program).name}"] = Path(program).resolve()
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        files |= {found.lstrip("/"): Path(found).resolve() for found in re.findall(r"(/\S+) \(0x", listed)}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("dev", "etc", "proc", "sys", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for name, path in files.items():
            archive.add(path, name)
    return made.getvalue()
