"""Reading and writing configuration files: capped, strict about encoding, atomic, never wider open than before."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..core.document_tree import MAX_BYTES, Node
from ..core.yaml_document import parse_yaml
from ..errors import ConfigError
from .jsonc import parse_json

__all__ = ["FOREIGN_MAX_BYTES", "decode", "parse", "parse_toml", "read", "write"]

FOREIGN_MAX_BYTES: Final = 32 << 20
"""Largest file of another program that is read: `~/.claude.json` also holds histories."""

_BOM: Final = b"\xef\xbb\xbf"


def read(path: Path, *, limit: int = MAX_BYTES) -> bytes:
    """Return the content of `path`; raises `ConfigError` if it cannot be read as one version.

    A file of more than `limit` bytes is refused, and one that a program is still writing: half of a configuration may
    allow what the whole denies.
    """
    try:
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            content = file.read(limit + 1)
            after = os.fstat(file.fileno())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(content) > limit:
        raise ConfigError(f"is larger than {limit >> 10} KiB, no configuration is", file=str(path))
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ConfigError("changed while it was read: try again", file=str(path))
    return content


def decode(content: bytes, file: str) -> str:
    """Return the text of `content` without its byte order mark; raises `ConfigError` when it is not UTF-8."""
    try:
        return content.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=f"{file}:{line}") from error


def parse(content: bytes, file: str) -> Node:
    """Return the tree of a JSON, JSONC or YAML file; the name decides which, or else the content."""
    text = decode(content, file)
    suffix = Path(file).suffix.lower()
    if suffix in (".json", ".jsonc") or (suffix not in (".yaml", ".yml") and text.lstrip().startswith("{")):
        return parse_json(text, file)
    return parse_yaml(text, file)


def parse_toml(content: bytes, file: str) -> Mapping[str, Any]:
    """Return the data of a TOML file."""
    try:
        return tomllib.loads(decode(content, file))
    except RecursionError:
        raise ConfigError("is nested too deeply", file=file) from None
    except ValueError as error:  # of the syntax, or a number of thousands of digits
        raise ConfigError(f"is not TOML: {error}", file=file) from error


def write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace the content of `path` in one step, keeping its permissions; a new file gets `mode`.

    A symbolic link stays one: what it points to is replaced. Raises `ConfigError` when the disk refuses.
    """
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = target.stat().st_mode & 0o7777 if target.exists() else mode
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, kept)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.chmod(kept)
            _keep_owner(fresh, target)
            fresh.replace(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error


def _keep_owner(fresh: Path, target: Path) -> None:
    """Root may change a user's file; it stays the user's."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and target.exists():
        found = target.stat()
        os.chown(fresh, found.st_uid, found.st_gid)
