"""GitHub's own OpenAPI description, out of the npm package that its SDK is made of: 13 MB, some 1,200 operations.

It is not ours to copy: it is fetched once a clone (28 MB) into `.cache/github`.
"""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Final

from rig.node import ROOT, locked, node, node_env

_PACKAGE: Final = "@octokit/openapi@23.0.2"
_MEMBER: Final = "package/generated/api.github.com.json"
_HOME: Final = ROOT / ".cache" / "github"
_SECONDS: Final = 600


def github_description() -> Path:
    """Return the file, fetched if it is not there (about a minute)."""
    _HOME.mkdir(parents=True, exist_ok=True)
    file = _HOME / _PACKAGE.rpartition("@")[2] / "api.github.com.json"
    with locked(_HOME / "lock"):
        if not file.exists():
            npm = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            command = [node(), npm, "pack", "--silent", _PACKAGE]
            subprocess.run(command, cwd=_HOME, env=node_env(), capture_output=True, timeout=_SECONDS, check=True)
            (archive,) = _HOME.glob("*.tgz")
            with tarfile.open(archive) as packed:
                packed.extract(_MEMBER, _HOME, filter="data")
            archive.unlink()
            file.parent.mkdir(exist_ok=True)
            (_HOME / _MEMBER).rename(file)
    return file
