"""Editors of our own files: servers, APIs and keys of the configuration, entries of a YAML catalog.

They edit text: every other line, comments included, stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from ..core.document_tree import MAX_BYTES, Node
from ..core.yaml_document import parse_yaml
from ..errors import ConfigError
from ..sources.yaml.document import ENTRIES, MAX_NODES
from . import files
from .edits import insert_yaml, remove_yaml, set_yaml
from .sources import PATH as APIS

__all__ = [
    "add_api",
    "add_entry",
    "add_servers",
    "entry_added",
    "entry_switched",
    "read_apis",
    "read_servers",
    "remove_api",
    "remove_server",
    "set_key",
    "switch_entry",
]


def read_servers(path: Path) -> Mapping[str, Any]:
    """Return the servers that `path` has, unexpanded; none when there is no such file."""
    if not path.is_file():
        return {}
    servers = _servers(parse_yaml(files.decode(files.read(path), str(path)), str(path)))
    return servers[1].plain() if servers[1] and servers[1].kind == "mapping" else {}


def add_servers(path: Path, servers: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Write `servers` into `path`, which is made (mode 0600) when it is missing; return its content.

    Raises `ConfigError` when one of them is there already, or the file cannot be changed as text.
    """
    text = _text(path)
    for name, value in servers.items():
        key = _servers(parse_yaml(text, str(path)))[0]
        text = insert_yaml(text, (key,), name, dict(value), str(path))
    return _write(path, text)


def remove_server(path: Path, name: str) -> bytes:
    """Take the server `name` out of `path`; return its content. Raises `ConfigError` when it is not there."""
    text = files.decode(files.read(path), str(path))
    key = _servers(parse_yaml(text, str(path)))[0]
    return _write(path, remove_yaml(text, (key,), name, str(path)))


def read_apis(path: Path) -> Mapping[str, Any]:
    """Return the APIs that `path` has, unexpanded; none when there is no such file."""
    if not path.is_file():
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
    return files.decode(files.read(path), str(path)) if path.is_file() else ""


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


_DASH: Final = re.compile(r"^( *)-( +)", re.MULTILINE)


def switch_entry(path: Path, name: str, *, enabled: bool) -> None:
    """Write `enabled` into the entry `name` of the catalog `path`. Raises `ConfigError`, and changes nothing then."""
    text = files.decode(files.read(path), str(path))
    files.write(path, entry_switched(text, name, enabled=enabled, file=str(path)).encode())


def add_entry(path: Path, entry: Mapping[str, Any]) -> None:
    """Write `entry` at the end of the catalog `path`, which is made (mode 0600) when it is missing.

    Raises `ConfigError` when one of its name is there already, or the file cannot be changed as text.
    """
    _write(path, entry_added(_text(path), entry, file=str(path)))


def entry_switched(text: str, name: str, *, enabled: bool, file: str = "") -> str:
    """Return `text` with the entry `name` on or off. Raises `ConfigError` when it is not there."""
    node = next((item for item in _entries(text, file) if _name(item) == name), None)
    if node is None:
        raise ConfigError(f"there is no entry {name}", file=file)
    word = "true" if enabled else "false"
    known, named = node.member("enabled"), node.member("name")
    if known is not None and known.node.end > known.node.start:
        changed = f"{text[: known.node.start]}{word}{text[known.node.end :]}"
    elif known is not None or named is None:
        raise ConfigError(f"{name} has an empty `enabled`: write it out", file=f"{file}:{node.line}")
    elif node.flow:
        changed = f"{text[: named.node.end]}, enabled: {word}{text[named.node.end :]}"
    else:
        line = text.find("\n", named.node.end)
        end = len(text) if line < 0 else line
        changed = f"{text[:end]}{_newline(text)}{' ' * named.column}enabled: {word}{text[end:]}"
    return _checked(text, changed, name, {"enabled": enabled}, file)


def entry_added(text: str, entry: Mapping[str, Any], *, file: str = "") -> str:
    """Return `text` with `entry` last. Raises `ConfigError` when one of its name is there."""
    name = str(entry.get("name", ""))
    items = _entries(text, file) if text.strip() else ()
    if not name or any(_name(item) == name for item in items):
        raise ConfigError(f"the entry {name!r} is there already" if name else "an entry needs a `name`", file=file)
    dumped = yaml.safe_dump(dict(entry), sort_keys=False, allow_unicode=True, width=1_000_000).splitlines()
    if items:
        indent = _indent(text, items[-1], file)
        end = text.find("\n", len(text[: items[-1].end].rstrip())) + 1 or len(text)
    else:
        text, indent, end = _with_list(text, file)
    block = "".join(f"{' ' * indent}{'- ' if not place else '  '}{line}\n" for place, line in enumerate(dumped))
    block = block.replace("\n", _newline(text))
    before = text[:end] if not end or text[:end].endswith("\n") else text[:end] + _newline(text)
    return _checked(text, before + block + text[end:], name, entry, file)


def _entries(text: str, file: str) -> tuple[Node, ...]:
    root = parse_yaml(text, file, max_nodes=MAX_NODES)
    if root.kind == "sequence":
        return root.items
    member = root.member(ENTRIES)
    return member.node.items if member else ()


def _with_list(text: str, file: str) -> tuple[str, int, int]:
    """Return `text` with the key of a list that has nothing in it, the indentation of its items and where they go."""
    member = parse_yaml(text, file).member(ENTRIES) if text.strip() else None
    if member is None:
        start = text if not text or text.endswith("\n") else f"{text}{_newline(text)}"
        opened = f"{start}{ENTRIES}:{_newline(text)}"
        return opened, 0, len(opened)
    if member.node.kind != "sequence" and member.node.value is not None:
        raise ConfigError("a list of entries was expected", file=f"{file}:{member.node.line}", key=ENTRIES)
    colon = text.index(":", member.start) + 1
    rest = text[max(member.node.end, colon) :]
    line, newline, below = rest.partition("\n")
    head = f"{text[:colon]}{line}{newline or _newline(text)}"
    return head + below, 0, len(head)


def _indent(text: str, item: Node, file: str) -> int:
    """Return the column of the dash before `item`."""
    begin = text.rfind("\n", 0, item.start) + 1
    match = _DASH.match(text[begin : item.start])
    if match is None:
        raise ConfigError("its list is written in `[…]`: add the entry by hand", file=f"{file}:{item.line}")
    return len(match[1])


def _checked(before: str, after: str, name: str, change: Mapping[str, Any], file: str) -> str:
    """Return `after` if it is `before` with the change and nothing else; raises `ConfigError` if not."""
    wanted = {_name(item): item.plain() for item in _entries(before, file)} if before.strip() else {}
    wanted[name] = {**wanted.get(name, {}), **change}
    try:
        found = {_name(item): item.plain() for item in _entries(after, file)}
    except ConfigError:
        found = {}
    if found != wanted:
        raise ConfigError(f"{name} cannot be changed without touching the rest: edit it by hand", file=file)
    return after


def _name(item: Node) -> str:
    member = item.member("name")
    return member.node.text if member else ""


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
