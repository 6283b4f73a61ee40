"""Secrets that the configuration names with `${keyring:NAME}`: in the system's keyring, else in private files.

Each has a file in the data directory that only its user may read: with its value, or with the mark that the keyring
has it. A secret that another program put into the keyring (service `toolcrib`, user NAME) is found too.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from ..core.json import dumps, loads
from ..errors import ConfigError
from ..system.private_files import replace_private
from .directories import Directories

__all__ = ["SECRETS", "is_secret_key", "read_secret", "remove_secret", "secret_names", "write_secret"]

SECRETS: Final = "secrets"
"""The folder in the data directory."""
_SERVICE: Final = "toolcrib"
_NAME: Final = re.compile(r"[A-Za-z0-9_][\w.@/ -]{0,99}", re.ASCII)

_log = logging.getLogger(__name__)


def is_secret_key(name: str) -> bool:
    """Whether a secret can have this name."""
    return _NAME.fullmatch(name) is not None


def read_secret(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the secret, or None when it is missing or unreadable."""
    kept = _read(_path(name, environ))
    if isinstance(kept.get("value"), str):
        return kept["value"]
    try:
        ring = _keyring()
        return ring.get_password(_SERVICE, name) if ring is not None else None
    except Exception as error:  # noqa: BLE001 - keyring backends raise exceptions of their system
        _log.warning("the keyring gives no secret %s (%s)", name, type(error).__name__)
        return None


def write_secret(name: str, value: str, environ: Mapping[str, str]) -> str:
    """Keep a secret and return where, for people. Raises `ConfigError`."""
    if not is_secret_key(name):
        raise ConfigError(f"{name!r} is not a name: 1 to 100 ASCII letters, digits, spaces and . _ - @ / were expected")
    if not value:
        raise ConfigError("the secret is empty")
    path, in_ring = _path(name, environ), False
    try:
        ring = _keyring()
        if ring is not None:
            ring.set_password(_SERVICE, name, value)
            in_ring = True
    except Exception as error:  # noqa: BLE001 - likewise; the file is there
        _log.warning("the keyring takes no secret (%s): it is kept in a file", type(error).__name__)
    content = {"name": name, "kept": "keyring"} if in_ring else {"name": name, "value": value}
    try:
        replace_private(path, dumps(content))
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error
    return "the system's keyring" if in_ring else str(path)


def remove_secret(name: str, environ: Mapping[str, str]) -> bool:
    """Forget a secret; return whether there was one."""
    path = _path(name, environ)
    found = read_secret(name, environ) is not None
    try:
        ring = _keyring()
        if ring is not None and ring.get_password(_SERVICE, name) is not None:
            ring.delete_password(_SERVICE, name)
    except Exception as error:  # noqa: BLE001 - likewise
        _log.warning("the keyring did not forget the secret (%s)", type(error).__name__)
    path.unlink(missing_ok=True)
    return found


def secret_names(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the secrets that `write_secret` kept."""
    folder = Directories.of(environ).data / SECRETS
    kept = [_read(path) for path in folder.glob("*.json")] if folder.is_dir() else []
    return sorted(str(entry["name"]) for entry in kept if "name" in entry)


def _read(path: Path) -> dict[str, Any]:
    try:
        kept: Any = loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", kept) if isinstance(kept, dict) else {}


def _path(name: str, environ: Mapping[str, str]) -> Path:
    return Directories.of(environ).data / SECRETS / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _keyring() -> Any:
    from ..mcp.auth.login_store import system_keyring

    return system_keyring()
