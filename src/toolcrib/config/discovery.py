"""Every server that the clients of one user are configured with, read from their own files, connected to none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from ..core.events import Problem
from ..errors import ConfigError
from . import files
from .clients import CLIENTS, Client, Places
from .servers import Entry
from .shapes import notices, translate

__all__ = ["Discovery", "Found", "Scope", "discover", "inputs_of", "is_ours", "servers_of"]

Scope = Literal["user", "local", "project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One server in one client's configuration."""

    name: str
    client: Client
    file: Path
    scope: Scope
    """`project`: the file came with the project, possibly from another author. `local`: the user's, for here."""
    value: Mapping[str, Any]
    """The entry in our words, variables unexpanded; may hold secrets."""
    base: str

    def entry(self, name: str) -> Entry:
        """Return it as an entry of ours, under the name that it has here."""
        key = ".".join(self.client.path)
        return Entry(name=name, value=self.value, file=str(self.file), key=key, base=self.base)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found, and which files could not be read."""

    servers: tuple[Found, ...]
    problems: tuple[Problem, ...]
    files: tuple[Path, ...]
    """The files that exist."""


def discover(places: Places, clients: Iterable[Client] = tuple(CLIENTS.values())) -> Discovery:
    """Read the configuration files of `clients`; a file that cannot be read is a problem and hides no other."""
    servers: list[Found] = []
    problems: list[Problem] = []
    seen: list[Path] = []
    for client in clients:
        for file, scope in _files(client, places):
            if not file.is_file() or file in seen:
                continue
            seen.append(file)
            try:
                found, notes = servers_of(client, file, scope, places)
                servers += found
                problems += notes
            except ConfigError as error:
                problems.append(Problem(source=client.name, code="bad_config", message=str(error)))
    return Discovery(servers=tuple(servers), problems=tuple(problems), files=tuple(seen))


def servers_of(client: Client, file: Path, scope: Scope, places: Places) -> tuple[list[Found], list[Problem]]:
    """Return the servers in `file`, ours left out, and what of the file has no effect here or stops its entry.

    Raises `ConfigError` when the file cannot be read.
    """
    data = _data(client, file)
    base = str(places.project if scope == "project" else places.home)
    reading = _Reading(client, file, str(places.home), inputs_of(data))
    reading.read(_at(data, client.path), scope, base)
    if client.name == "claude-code" and scope == "user":
        here = _at(data, ("projects", str(places.project), "mcpServers"))
        reading.read(here, "local", str(places.project))
    return reading.found, [*reading.problems, *notices(str(file), reading.unused)]


def inputs_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return what a file of VS Code asks a person for: the description of each input, by its id."""
    listed: Any = data.get("inputs")
    items = cast("list[Any]", listed) if isinstance(listed, list) else []
    asked = [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]
    return {str(item["id"]): str(item.get("description") or "") for item in asked if "id" in item}


def is_ours(value: Mapping[str, Any]) -> bool:
    """Whether an entry starts Toolcrib itself."""
    words: list[Any] = []
    for key in ("command", "args"):
        given: Any = value.get(key)
        words += cast("list[Any]", given) if isinstance(given, list) else [given]
    names = [Path(str(word)).stem for word in words]
    return "toolcrib" in names and "serve" in names


def _files(client: Client, places: Places) -> Iterator[tuple[Path, Scope]]:
    yield client.user_file(places), "user"
    if project := client.project_file(places):
        yield project, "project"


def _data(client: Client, file: Path) -> Mapping[str, Any]:
    content = files.read(file, limit=files.FOREIGN_MAX_BYTES)
    if not content.strip():
        return {}
    data: Any = (
        files.parse_toml(content, str(file)) if client.format == "toml" else files.parse(content, str(file)).plain()
    )
    if not isinstance(data, Mapping):
        raise ConfigError("a mapping was expected", file=str(file))
    return cast("Mapping[str, Any]", data)


def _at(data: Any, path: Iterable[str]) -> Mapping[str, Any]:
    for step in path:
        data = cast("Mapping[str, Any]", data).get(step) if isinstance(data, Mapping) else None
    return cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}


class _Reading:
    """The servers of one file as they are read: an entry that cannot be taken hides no other."""

    def __init__(self, client: Client, file: Path, home: str, inputs: Mapping[str, str]) -> None:
        self._client, self._file, self._home, self._inputs = client, file, home, inputs
        self.found: list[Found] = []
        self.problems: list[Problem] = []
        self.unused: list[tuple[str, str]] = []

    def read(self, servers: Mapping[str, Any], scope: Scope, base: str) -> None:
        """Read the entries of one mapping."""
        for name, entry in servers.items():
            if not isinstance(entry, Mapping) or is_ours(cast("Mapping[str, Any]", entry)):
                continue
            raw = cast("Mapping[str, Any]", entry)
            read = translate(self._client.name, raw, project=base, home=self._home, inputs=self._inputs)
            if read.errors:
                where = Entry(name=name, value=raw, file=str(self._file), key=".".join(self._client.path))
                messages = [str(where.error(message, *steps)) for steps, message in read.errors]
                self.problems += [Problem(source=name, code="bad_config", message=message) for message in messages]
                continue
            value = dict(read.value)
            if not value or is_ours(value):
                continue
            self.unused += [(name, key) for key in read.unused]
            if "command" in value and scope != "user":
                value.setdefault("cwd", base)
            self.found.append(
                Found(name=name, client=self._client, file=self._file, scope=scope, value=value, base=base)
            )
