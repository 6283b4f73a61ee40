"""Programs of other people that are clients of MCP servers: native binaries from npm, and one from PyPI.

Each lies in a folder of its own below `.cache`, installed once a clone: the npm packages are large, and the pins of the
one from PyPI are not ours. npm runs no scripts of theirs, so the binaries are found where their platform packages put
them, not where a script of the package would have linked them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from rig.node import NPM_HOME, ensure_npm, locked

__all__ = ["CLAI_VERSION", "agent_binary", "agent_version", "clai"]

CLAI_VERSION: Final = "2.62.0"

_HOME: Final = NPM_HOME.with_name("agents")
_CLAI_HOME: Final = NPM_HOME.with_name("clai")
_MANIFEST: Final = Path(__file__).with_name("package.json")
_INSTALL_SECONDS: Final = 600

_BINARIES: Final = {
    "@aaif/goose": "@aaif/goose-binary-*/bin/goose",
    "@openai/codex": "@openai/codex-*/vendor/*/bin/codex",
    "opencode-ai": "opencode-*/bin/opencode",
}
"""Where the platform package has the program. Of several (OpenCode's `-baseline`) the one for the older processor."""


def agent_binary(package: str) -> Path:
    """Return the program of an npm package, installing all of them if needed (about a minute the first time)."""
    modules = ensure_npm(_MANIFEST, _HOME) / "node_modules"
    found = sorted(modules.glob(_BINARIES[package]))
    if not found:
        raise RuntimeError(f"{package} has no program for this platform in {modules}")
    return found[-1]


def agent_version(program: Path) -> str:
    """Return what a program says its version is."""
    command = [program, "--version"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()[-1]


def clai() -> Path:
    """Return the command line of Pydantic AI, installing it if needed (about a minute the first time).

    In a virtual environment of its own: it pins an older Pydantic AI than the one that we are tested with.
    """
    program, stamp = _CLAI_HOME / "bin" / "clai", _CLAI_HOME / "installed"
    _CLAI_HOME.mkdir(parents=True, exist_ok=True)
    with locked(_CLAI_HOME / "lock"):
        if not stamp.exists() or stamp.read_text() != CLAI_VERSION:
            stamp.unlink(missing_ok=True)
            _run(sys.executable, "-m", "venv", str(_CLAI_HOME))
            _run(str(program.with_name("python")), "-m", "pip", "install", "--quiet", f"clai=={CLAI_VERSION}")
            stamp.write_text(CLAI_VERSION)
    return program


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
