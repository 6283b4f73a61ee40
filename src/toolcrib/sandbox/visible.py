"""What a command in the sandbox sees of this machine: its programs, read-only, and nothing that is anybody's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["ETC", "LINKS", "SYSTEM", "clean", "toolchains"]

SYSTEM: Final = ("/usr", "/opt", "/nix/store", "/gnu/store")
"""Where programs are, bound as they are."""
LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into `/usr` on machines of today, folders on others."""
ETC: Final = (
    "alternatives", "bash.bashrc", "ca-certificates", "fonts", "group", "hosts", "inputrc", "java", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf", "passwd", "perl", "pki",
    "profile", "profile.d", "protocols", "python3", "resolv.conf", "services", "shells", "ssl", "terminfo", "timezone",
)  # fmt: skip
"""Of `/etc`: what programs need to start, to draw and to check certificates. No passwords, no keys."""
_TOOLCHAINS: Final = (
    ".asdf", ".bun/bin", ".cargo/bin", ".deno/bin", ".goenv", ".jenv", ".local/bin", ".local/pipx", ".local/share/mise",
    ".local/share/pnpm", ".local/share/uv", ".nodenv", ".nvm", ".pyenv", ".rbenv", ".rustup", ".sdkman", ".volta",
    "go/bin", "miniconda3", "miniforge3",
)  # fmt: skip
"""Below a home: programs that people install for themselves."""
_KEPT: Final = frozenset({"LANG", "LANGUAGE", "TERM", "TZ"})


def clean(environ: Mapping[str, str], home: Path, programs: Sequence[str]) -> dict[str, str]:
    """Return the environment of a command: the harmless part of `environ`, and `programs` as its path."""
    kept = {name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")}
    return {**kept, "HOME": str(home), "PATH": os.pathsep.join(programs), "TMPDIR": "/tmp", "SHELL": "/bin/sh"}


def toolchains(home: Path) -> tuple[Path, ...]:
    """Return the folders below `home` with programs, and that of the Python that runs us."""
    found = [home / name for name in _TOOLCHAINS if (home / name).exists()]
    own = Path(sys.base_prefix)
    return (*found, *(() if own.is_relative_to("/usr") or own == Path("/usr") else (own,)))
