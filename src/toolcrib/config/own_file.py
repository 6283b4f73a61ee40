"""Editors of our own configuration file: servers, APIs and keys.

They edit text: every other line, comments included, stays as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..core.documents.tree import MAX_BYTES, Node
from ..core.documents.yaml import parse_yaml
from ..core.json import as_mapping
from ..errors import ConfigError
from . import files
from .edits import insert_yaml, remove_yaml, set_yaml
from .sources import PATH as APIS


def read_servers(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the servers that `path` has, unexpanded; none when there is no such file.

    An entry that is not a mapping has its name here, and no keys.
    """
    if not files.is_file(path):
        return {}
    servers = _servers(parse_yaml(files.decode(files.read(path), str(path)), str(path)))
    return {name: as_mapping(value) for name, value in as_mapping(servers[1] and servers[1].plain()).items()}


def add_servers(path: Path, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Write `servers` into `path`, which is made (mode 0600) when it is missing; return its content.

    Raises `ConfigError` when one of them is there already, or the file cannot be changed as text.
    """
    text = _text(path)
    for name, value in servers.items():
        key = _servers(parse_yaml(text, str(path)))[0]
        text = insert_yaml(text, (key,), name, dict(value), str(path))
    return _write(path, text)


def let_inherit(path: Path, names: Iterable[str]) -> None:
    """Give the servers `names` of `path` the key `inherit_env`. Raises `ConfigError` as `add_servers` does."""
    text = _text(path)
    for name in names:
        key = _servers(parse_yaml(text, str(path)))[0]
        text = set_yaml(text, (key, name), "inherit_env", True, str(path))
    _write(path, text)


def remove_server(path: Path, name: str) -> bytes:
    """Take the server `name` out of `path`; return its content. Raises `ConfigError` when it is not there."""
    text = files.decode(files.read(path), str(path))
    key = _servers(parse_yaml(text, str(path)))[0]
    return _write(path, remove_yaml(text, (key,), name, str(path)))


def read_apis(path: Path) -> Mapping[str, Any]:
    """Return the APIs that `path` has, unexpanded; none when there is no such file."""
    if not files.is_file(path):
        return {}
    found = parse_yaml(files.decode(files.read(path), str(path)), str(path)).find(APIS)
    return found.plain() if found is not None and found.kind == "mapping" else {}


def add_api(path: Path, name: str, value: Mapping[str, Any]) -> bytes:
    """Write an API into `path`, which is made (mode 0600) when it is missing; return its content.

    Raises `ConfigError` when it is there already, or the file cannot be changed as text.
    """
    return _write(path, insert_yaml(_text(path), APIS, name, dict(value), str(path)))


def remove_api(path: Path, name: str) -> bytes:
    """Take the API `name` out of `path`; return its content. Raises `ConfigError` when it is not there."""
    return _write(path, remove_yaml(files.decode(files.read(path), str(path)), APIS, name, str(path)))


def set_key(path: Path, steps: tuple[str, ...], value: Any) -> bytes:
    """Return the content of `path` with another value at `steps`; nothing is written.

    Raises `ConfigError` when the file cannot be read, or cannot be changed as text.
    """
    return set_yaml(_text(path), steps[:-1], steps[-1], value, str(path)).encode()


def _text(path: Path) -> str:
    return files.decode(files.read(path), str(path)) if files.is_file(path) else ""


def _write(path: Path, text: str) -> bytes:
    content = text.encode()
    if len(content) > MAX_BYTES:
        raise ConfigError(f"would be larger than {MAX_BYTES >> 10} KiB", file=str(path))
    files.write(path, content)
    return content


def _servers(root: Node) -> tuple[str, Node | None]:
    """The key that the servers stand under, and what stands there."""
    for key in ("servers", "mcpServers"):
        if (member := root.member(key)) is not None:
            return key, member.node
    return "servers", None
