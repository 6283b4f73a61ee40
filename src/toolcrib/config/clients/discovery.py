"""Servers in the configuration files of MCP clients: where they are found, and each entry in our words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field

from ...core.documents.tree import Node
from ...core.documents.tree import Path as Steps
from ...core.events import Problem
from ...core.json import as_mapping, texts_in
from ...core.patterns import regex
from ...errors import ConfigError
from .. import files
from ..directories import Places
from ..servers import ConfiguredEntry
from .entries import COMMENTS, notices, translate
from .table import CLIENTS, Client, ConfigScope, inputs_of, is_ours

_RELATIVE: Final = regex(r"\.{1,2}(?:/.*)?|\S+=\.{1,2}(?:/\S*)?")
_WORKING_FOLDER: Final = regex(r"\$PWD\b|\$\{PWD\}")


class FoundServer(Struct, frozen=True, kw_only=True):
    """One server in one client's configuration."""

    name: str
    client: Client
    file: Path
    scope: ConfigScope
    """`project`: the file came with the project, possibly from another author. `local`: the user's, for here alone."""
    value: Mapping[str, Any]
    """The entry in our words, variables unexpanded; may hold secrets."""
    base: str
    written: Mapping[Steps, Steps] = field(default_factory=dict[Steps, Steps])
    """Path in the client's entry of what has another path in `value`."""
    line: int = 0
    """Line of the entry in the file; 0 where it is unknown."""

    names_project: bool = False
    """Whether a variable of the client in it stands for the folder that is open in the client."""

    @property
    def works_in_its_folder(self) -> bool:
        """Whether it is for every folder and names a path in the one where its client starts it: `.`, `${PWD}`.

        Here it would run in the home folder, for all clients alike, and such a path would be one there.
        """
        value = self.value
        if self.scope != "user" or "command" not in value:
            return False
        cwd, env = str(value.get("cwd", "")), value.get("env", {})
        is_relative = cwd and not cwd.startswith(("~", "$")) and not Path(cwd).is_absolute()
        if self.names_project or _WORKING_FOLDER.search(cwd) or is_relative:
            return True
        words = texts_in([value["command"], value.get("args", []), env])
        return any(_WORKING_FOLDER.search(word) or (not cwd and _RELATIVE.fullmatch(word)) for word in words)

    def entry(self, name: str) -> ConfiguredEntry:
        """Return it as an entry of ours, under the name that it has here."""
        return ConfiguredEntry(
            name=name,
            value=self.value,
            file=_place(self.file, self.line),
            key=".".join(self.client.path),
            name_in_file=self.name,
            base=self.base,
            written=self.written,
        )


class Discovery(Struct, frozen=True, kw_only=True):
    """Servers that were found, and files that could not be read."""

    servers: tuple[FoundServer, ...]
    problems: tuple[Problem, ...]
    files: tuple[Path, ...]
    """The files that exist."""


def discover(places: Places, clients: Iterable[Client] = tuple(CLIENTS.values())) -> Discovery:
    """Read the configuration files of `clients`; a file that cannot be read is a problem and hides no other."""
    servers: list[FoundServer] = []
    problems: list[Problem] = []
    seen: list[Path] = []
    for client in clients:
        for file, scope in _config_files(client, places):
            if not file.is_file() or file in seen:
                continue
            seen.append(file)
            try:
                found, notes = _servers_of(client, file, scope, places)
                servers += found
                problems += notes
            except ConfigError as error:
                problems.append(Problem(source=client.name, code="bad_config", message=str(error)))
    return Discovery(servers=tuple(servers), problems=tuple(problems), files=tuple(seen))


def _servers_of(
    client: Client, file: Path, scope: ConfigScope, places: Places
) -> tuple[list[FoundServer], list[Problem]]:
    """Return the servers in `file`, ours left out, and what of the file has no effect here or stops its entry.

    Raises `ConfigError` when the file cannot be read.
    """
    data, root = _config_data(client, file)
    base = str(places.project if scope == "project" else places.home)
    reading = _ServerReader(client, file, str(places.home), data, root)
    reading.read(client.path, scope, base)
    if client.name == "claude-code" and scope == "user":
        reading.read(("projects", str(places.project), "mcpServers"), "local", str(places.project))
    return reading.found, [*reading.problems, *notices(str(file), reading.unused)]


def servers_elsewhere(client: Client, file: Path, places: Places) -> Mapping[Path, Sequence[str]]:
    """Return the names of Claude Code's servers beside those of `file` that are for all or for this one.

    They are those of other projects in its file of the user, by folder, and those that came with this project. Raises
    `ConfigError` when a file cannot be read.
    """
    if client.name != "claude-code" or file != client.user_file(places):
        return {}
    projects: Mapping[str, Any] = _mapping_at(_config_data(client, file)[0], ("projects",)) if file.is_file() else {}
    found = {Path(path): tuple(_mapping_at(value, ("mcpServers",))) for path, value in projects.items()}
    shared = client.project_file(places)
    found[places.project] = (
        tuple(_mapping_at(_config_data(client, shared)[0], client.path))
        if shared is not None and shared.is_file()
        else ()
    )
    return {folder: names for folder, names in found.items() if names}


def _config_files(client: Client, places: Places) -> Iterator[tuple[Path, ConfigScope]]:
    yield client.user_file(places), "user"
    if project := client.project_file(places):
        yield project, "project"


def _config_data(client: Client, file: Path) -> tuple[Mapping[str, Any], Node | None]:
    """Return the data of a file, and its tree where the format has one, for the lines."""
    content = files.read(file, limit=files.FOREIGN_MAX_BYTES)
    if not content.strip():
        return {}, None
    if client.format == "toml":
        return files.parse_toml(content, str(file)), None
    root = files.parse(content, str(file))
    if root.kind != "mapping":
        raise ConfigError("a mapping was expected", file=str(file))
    return root.plain(), root


def _value_at(data: Any, path: Iterable[str]) -> Any:
    for step in path:
        data = as_mapping(data).get(step)
    return data


def _mapping_at(data: Any, path: Iterable[str]) -> Mapping[str, Any]:
    return as_mapping(_value_at(data, path))


def _place(file: Path, line: int) -> str:
    return f"{file}:{line}" if line else str(file)


class _ServerReader:
    """The servers of one file as they are read: an entry that cannot be taken hides no other."""

    def __init__(self, client: Client, file: Path, home: str, data: Mapping[str, Any], root: Node | None) -> None:
        self._client, self._file, self._home, self._data, self._root = client, file, home, data, root
        self._inputs = inputs_of(data)
        self.found: list[FoundServer] = []
        self.problems: list[Problem] = []
        self.unused: list[tuple[str, str]] = []

    def read(self, path: tuple[str, ...], scope: ConfigScope, base: str) -> None:
        """Read the entries of the mapping at `path`."""
        servers = _value_at(self._data, path)
        if servers is not None and not isinstance(servers, Mapping):
            message = "a mapping from a server's name to its entry was expected"
            place = _place(self._file, self._line(path))
            self._refuse(self._client.name, ConfigError(message, file=place, key=path[-1]))
        for name, entry in as_mapping(servers).items():
            line = self._line((*path, name))
            if isinstance(entry, Mapping):
                self._read_entry(name, cast("Mapping[str, Any]", entry), line, scope, base)
            elif not name.startswith(COMMENTS):
                message = "a mapping with `command` or `url` was expected"
                self._refuse(name, self._entry(name, line).error(message))

    def _read_entry(self, name: str, raw: Mapping[str, Any], line: int, scope: ConfigScope, base: str) -> None:
        if is_ours(raw):
            return
        read = translate(self._client.name, raw, project=base, home=self._home, inputs=self._inputs)
        if read.errors:
            for steps, message in read.errors:
                self._refuse(name, self._entry(name, line).error(message, *steps))
            return
        value = dict(read.value)
        if not value or is_ours(value):
            return
        self.unused += [(name, key) for key in read.unused]
        if scope in ("local", "project"):
            value["projects"] = [base]
        if "command" in value and scope == "project":
            value.setdefault("cwd", base)
        if "command" in value and scope != "project" and self._client.passes_environment:
            value["inherit_env"] = True
        self.found.append(
            FoundServer(
                name=name,
                client=self._client,
                file=self._file,
                scope=scope,
                value=value,
                base=base,
                written=read.written,
                line=line,
                names_project=read.names_project,
            )
        )

    def _line(self, path: Steps) -> int:
        return self._root.line_of(path) if self._root else 0

    def _entry(self, name: str, line: int) -> ConfiguredEntry:
        return ConfiguredEntry(name=name, value=None, file=_place(self._file, line), key=".".join(self._client.path))

    def _refuse(self, source: str, error: ConfigError) -> None:
        self.problems.append(Problem(source=source, code="bad_config", message=str(error)))
