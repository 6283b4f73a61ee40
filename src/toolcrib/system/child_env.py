"""Environment of a child process: the part of ours that it may see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

__all__ = ["clean_environment"]

_INHERITED: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "NODE_EXTRA_CA_CERTS"}
    | {"SSL_CERT_DIR", "SSL_CERT_FILE", "SYSTEMROOT", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
)
"""What a child may see of our environment; everything else, tokens above all, stays here."""


def clean_environment(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: the harmless part of `ours`, and what its configuration says."""
    kept = {key: value for key, value in ours.items() if key in _INHERITED or key.startswith("LC_")}
    kept.setdefault("PATH", os.defpath)
    return {**kept, **theirs}
