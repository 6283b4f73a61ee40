"""Confirmation of a project by the user: its configuration files, and the files behind their servers.

`toolcrib trust` shows what `confirmable_of` returns and records it with `confirm`; `loader.load` takes what
`trusted_files` yields, and gives each server of the project its pins (`with_pins`), which its process is compared with
at every start (`mcp.client.stdio.StdioLink.open`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from ..catalog.pins import read_lock
from ..core.awaited_files import AWAITED
from ..core.events import Problem
from ..errors import ConfigErrors, UsageError
from ..mcp.client.launch.awaited_pins import awaited_files
from ..mcp.client.launch.digests import MISSING
from ..mcp.client.launch.pins import launch_pins
from ..mcp.client.spec import ServerSpec
from . import files as disk
from .directories import OF_PROJECT, PROJECT_FOLDER, Directories, config_files
from .file_parts import read_part
from .profiles import named_profile, profile_files
from .servers import ConfiguredEntry, specs_of
from .sources import Confirmable, named_lock
from .trust import Trust, unconfirmed


def with_pins(
    specs: Iterable[ServerSpec], entries: Iterable[ConfiguredEntry], directories: Directories, cwd: Path
) -> list[ServerSpec]:
    """Return the servers, those of the project with what the user confirmed of the files behind them."""
    _, *project = config_files(directories, cwd)
    places = {entry.name: path for entry in entries for path in project if entry.file.startswith(f"{path}:")}
    trust, awaited = Trust(directories), str(directories.state / AWAITED)
    return [
        replace(spec, pinned=trust.pins(places[spec.name], spec.name), awaited=awaited) if spec.name in places else spec
        for spec in specs
    ]


def confirm(
    directories: Directories, files: Sequence[tuple[Path, bytes]], environ: Mapping[str, str], *, anew: bool = False
) -> None:
    """Remember that the user has agreed to these files of a project, and to the files behind their new servers.

    `anew`: to the files behind all of their servers, as they are now.
    """
    trust, awaited = Trust(directories), awaited_files(directories.state / AWAITED)
    pins: dict[tuple[Path, str], Mapping[str, str]] = {}
    missing: dict[Path, None] = {}
    for path, content in files:
        if path.parent.name == PROJECT_FOLDER and path.name in OF_PROJECT:
            part = read_part(path, str(path.parent.parent), environ, content)
            if part.errors:
                raise ConfigErrors.of(part.errors)
            specs, _ = specs_of(part.entries, environ)
            for spec in specs:
                known = trust.pins(path, spec.name)
                if anew or not known:
                    awaited.forget(_awaited_in(known))
                    known = launch_pins(spec, environ.get("PATH", os.defpath))
                    missing |= dict.fromkeys(_awaited_in(known))
                pins[path, spec.name] = known
    awaited.expect(missing)
    trust.confirm(files, pins)


def confirmable_of(directories: Directories, cwd: Path) -> list[Confirmable]:
    """Return the files of the project around `cwd` that the user confirms: configuration, profiles and lock.

    Raises `ConfigError` for a file that cannot be read.
    """
    _, *project = config_files(directories, cwd)
    present = [path for path in project if path.is_file()]
    profiles = profile_files(project[0].parent) if project else []
    named, locks = dict[Path, None](), dict[Path, None]()
    for path in present:
        values: Any = disk.parse(disk.read(path), str(path)).plain()
        if isinstance(values, Mapping):
            given = cast("Mapping[str, Any]", values)
            named |= dict.fromkeys(file for file in [named_profile(given, path.parent)] if file is not None)
            locks |= dict.fromkeys(file for file in [named_lock(given, path.parent)] if file is not None)
    texts = {path: disk.read(path) for path in (*present, *profiles, *named) if path.is_file()}
    found = [Confirmable(path, text, text) for path, text in texts.items()]
    for path in locks:
        if path.is_file():
            content = disk.read(path, limit=disk.LOCK_MAX_BYTES)
            found.append(Confirmable(path, _locked_text(content, path), content))
    return found


def _locked_text(content: bytes, path: Path) -> bytes:
    """Return the reviewed names of a lock, without the definitions: they can be megabytes."""
    lines = [
        f"{_printable(name)}: {', '.join(map(_printable, [*source.tools, *source.files]))}"
        for name, source in read_lock(content, str(path)).sources.items()
    ]
    return "\n".join(lines).encode()


def _printable(name: str) -> str:
    """Return the name, quoted where it could pass for a line of its own."""
    return name if name.isprintable() else repr(name)


def _awaited_in(pins: Mapping[str, str]) -> Iterable[Path]:
    return (Path(name) for name, pin in pins.items() if pin == MISSING and os.sep in name)


def own_file(directories: Directories, cwd: Path, *, project: bool) -> Path:
    """Return the file that commands change: the user's, or with `project` that of the project around `cwd`.

    Raises `UsageError` for a project's file that the user has not confirmed: to change it would confirm all of it.
    """
    own, *others = config_files(directories, cwd)
    if not project:
        return own
    file = others[0] if others else cwd / PROJECT_FOLDER / "config.yaml"
    if file.is_file() and not Trust(directories).covers(file, disk.read(file)):
        raise UsageError(
            f"{file} came with the project, or changed, and is not confirmed: look at it, `toolcrib trust`"
        )
    return file


def trusted_files(directories: Directories, cwd: Path, problems: list[Problem]) -> Iterable[tuple[Path, bytes]]:
    """Yield the files that exist and may be read, with what they say; an unconfirmed one of a project is a problem."""
    own, *project = config_files(directories, cwd)
    if disk.is_file(own):
        yield own, disk.read(own)
    trust = Trust(directories)
    for path in project:
        if not disk.is_file(path):
            continue
        content = disk.read(path)
        if trust.covers(path, content):
            yield path, content
        else:
            problems.append(unconfirmed(path))
