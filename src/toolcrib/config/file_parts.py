"""Parts of the configuration: files as they are read, with the servers that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ..core.documents.tree import MAX_BYTES, Node
from ..core.events import Problem
from ..core.exceptions import ErrorList
from ..errors import ConfigError
from . import files as disk
from .clients.entries import notices, translate
from .clients.table import CLIENT_FILES, inputs_of
from .directories import Directories
from .keys import check
from .secrets import kept_secrets
from .servers import ConfiguredEntry, file_line
from .sources import KEY, source_entries

SERVER_KEYS: Final = ("servers", "mcpServers")
_WRITTEN: Final = ("args", "command", "cwd", "env", "environment", "envs", "headers", "http_headers", "url")
"""Keys whose values keep their spelling: a version 1.10 stays "1.10"."""


class FilePart(Struct, frozen=True, kw_only=True):
    """The content of one file."""

    values: Mapping[str, Any]
    entries: tuple[ConfiguredEntry, ...]
    base: str
    """Working directory of the file's servers."""
    sources: tuple[ConfiguredEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Of single entries; the others are taken."""
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """`file:line` of each top-level key."""
    secrets: tuple[str, ...] = ()
    """Values of `${keyring:…}` and `${input:…}` in it."""
    errors: tuple[ConfigError, ...] = ()
    """Every error of the file, in its order; what they concern is in no other field."""


def read_all(
    paths: Sequence[Path], bases: Sequence[str], environ: Mapping[str, str], contents: Mapping[Path, bytes]
) -> list[FilePart]:
    """Read the files, but those whose content is given; a part has the errors of its file."""
    parts: list[FilePart] = []
    for path, base in zip(paths, bases, strict=True):
        try:
            parts.append(read_part(path, base, environ, contents.get(path)))
        except ConfigError as error:
            parts.append(FilePart(values={}, entries=(), base=base, errors=error.each))
    return parts


def read_part(path: Path, base: str, environ: Mapping[str, str], content: bytes | None) -> FilePart:
    """Read one file: ours, or the `mcpServers` JSON of another program, of which only the servers count.

    `content` is what it says, if that was read before: the confirmed content counts, not what came since.
    """
    foreign = is_foreign(path)
    limit = disk.FOREIGN_MAX_BYTES if foreign else MAX_BYTES
    content = disk.read(path, limit=limit) if content is None else content
    root = disk.parse(content, str(path))
    if root.kind != "mapping":
        raise ConfigError("a mapping of keys to values was expected", file=str(path))
    if not foreign:
        return part_of(root, path, base, environ)
    entries = tuple(_entries(root, path, base))
    if not any(root.member(key) for key in SERVER_KEYS):
        raise ConfigError("has no `mcpServers`", file=str(path))
    inputs = root.find(("inputs",))
    asked = inputs_of({"inputs": inputs.plain()} if inputs is not None else {})
    taken, problems = translated(entries, _client_of(path), environ, asked)
    secrets = kept_secrets([entry.value for entry in entries], environ)
    return FilePart(values={}, entries=tuple(taken), base=base, problems=tuple(problems), secrets=secrets)


def part_of(root: Node, path: Path | None, base: str, environ: Mapping[str, str]) -> FilePart:
    """Check a document with our keys: the file at `path`, or the keywords of a program, which have no file."""
    own = {member.key: member.node.plain() for member in root.members if member.key not in (*SERVER_KEYS, KEY)}
    errors = ErrorList()
    entries: tuple[ConfiguredEntry, ...] = ()
    sources: tuple[ConfiguredEntry, ...] = ()
    values = check(own, environ, errors, lambda steps: file_line(path, root.line_of(steps)))
    with errors.part():
        entries = tuple(_entries(root, path, base))
    with errors.part():
        sources = tuple(source_entries(root, path, str(path.parent) if path else base))
    texts = [] if errors.found else [own, *(entry.value for entry in (*entries, *sources))]
    return FilePart(
        values=values,
        entries=entries,
        sources=sources,
        base=base,
        places={member.key: file_line(path, member.line) for member in root.members},
        secrets=kept_secrets(texts, environ),
        errors=tuple(sorted(errors.found, key=lambda error: int(error.file.rpartition(":")[2] or 0))),
    )


def is_foreign(path: Path) -> bool:
    """Whether the file is another program's `mcpServers` JSON, not our YAML."""
    return path.suffix.lower() in (".json", ".jsonc")


def _client_of(path: Path) -> str:
    """Return the client whose file this is, by its path; empty for an unknown one."""
    whole = path.absolute().as_posix()
    for name, endings in CLIENT_FILES.items():
        if any(whole.endswith(f"/{ending}") for ending in endings):
            return name
    return ""


def translated(
    entries: Sequence[ConfiguredEntry], client: str, environ: Mapping[str, str], inputs: Mapping[str, str]
) -> tuple[list[ConfiguredEntry], list[Problem]]:
    """Return the entries of another program's file in our words, and what of them stops one or has no effect."""
    taken: list[ConfiguredEntry] = []
    unused: list[tuple[str, str]] = []
    home = str(Directories.of(environ).home)
    for entry in entries:
        raw: Any = entry.value
        if not isinstance(raw, Mapping):
            taken.append(entry)
            continue
        read = translate(client, cast("Mapping[str, Any]", raw), project=entry.base, home=home, inputs=inputs)
        errors = tuple(entry.error(message, *steps) for steps, message in read.errors)
        taken.append(replace(entry, value=read.value, written=read.written, errors=errors))
        unused += [] if errors else [(entry.name, key) for key in read.unused]
    file = entries[0].file.rpartition(":")[0] if entries else ""
    return taken, notices(file or "mcpServers", unused)


def _entries(root: Node, path: Path | None, base: str) -> Iterable[ConfiguredEntry]:
    for key in SERVER_KEYS:
        servers = root.find((key,))
        if servers is None or (servers.kind == "scalar" and servers.value is None):
            continue
        if servers.kind != "mapping":
            where = file_line(path, servers.line)
            raise ConfigError("a mapping from a server's name to its entry was expected", file=where, key=key)
        for member in servers.members:
            yield ConfiguredEntry.of(member, root, path, key=key, base=base, written=_WRITTEN)
