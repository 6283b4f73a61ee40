"""Toolcrib's entry in a client's file: the program that it starts, and how the client is connected by it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ...config.clients.table import words_of
from ...config.confirmation import own_file
from ...config.directories import Places
from ...config.own_file import read_servers
from ...core.json import dumps
from ...errors import UsageError
from ..output import note
from .own_environment import entry_program, make_environment, own_program

_GUARD_OFF: Final = ("--guard", "off")
"""Options of an entry behind a client that guards its user itself."""


def command_line(
    program: str, profile: str, *, guard: bool = False, desk: bool = False, mode: str = ""
) -> tuple[str, list[str]]:
    """Return the command and arguments that start us: by absolute path, for desktop programs have another PATH."""
    options = [*(() if guard else _GUARD_OFF), *(["--desk"] if desk else []), *(["--mode", mode] if mode else [])]
    return program, ["serve", "--profile", profile, *options]


class Way(Struct, frozen=True, kw_only=True):
    """Options by which a client is connected."""

    replace: bool
    profile: str
    guard: bool
    desk: bool
    project: bool
    shared: bool
    """The file is the project's, and tracked by git: it names no path of this machine, and neither does our file."""

    def own_file(self, places: Places) -> Path:
        """Return our configuration file that gets servers and rules. Raises `UsageError` for an unconfirmed one."""
        return own_file(places.directories, places.project, project=self.shared)

    def of_entry(self, entry: Mapping[str, Any]) -> Way:
        """Return the way in which the client is connected already, by our entry there."""
        words = words_of(entry)
        profile = words[words.index("--profile") + 1] if "--profile" in words[:-1] else self.profile
        return replace(self, profile=profile, guard="--guard" not in words, desk="--desk" in words)


class Program:
    """The program that the entries of one `connect` start. An environment is made when the first entry needs it."""

    def __init__(self, places: Places, command: str | None, *, dry_run: bool) -> None:
        self._places, self.dry_run = places, dry_run
        self.entry = entry_program(places, command)
        self.own = own_program(places)
        self.planned: dict[str, Any] = {}
        """In a dry run: what clients before this one would have moved into our configuration."""
        self.silent: dict[bytes, str] = {}
        """Reasons why servers of earlier clients have listed nothing, by the servers' identity."""
        self._made: str | None = None

    @property
    def path(self) -> str:
        """The absolute path. Raises `UsageError` where the environment that runs is temporary and cannot be copied."""
        if self._made is None:
            self._made = self._lasting()
        return self._made

    def refresh(self, entry: Mapping[str, Any]) -> None:
        """Bring the copy up to date that `entry` of a connected client starts."""
        if not self.entry.is_lasting and str(self.own) in words_of(entry):
            _ = self.path

    def _lasting(self) -> str:
        if self.entry.is_lasting:
            return self.entry.path
        if self.dry_run:
            return str(self.own)
        before = self.own.resolve()
        try:
            made = make_environment(self._places)
        except UsageError as error:
            install = "install Toolcrib with `uv tool`, `pipx` or `pip` (docs/how-to/install.md)"
            if self.entry.kind == "temporary":
                raise UsageError(f"{error}; this one is temporary, so an entry cannot name it: {install}") from error
            note(f"{error}; the entry works as long as {self.entry.path} stays where it is: {install}")
            return self.entry.path
        if made.resolve() != before:
            note(f"copied this environment: entries start {made}")
        return str(made)


def with_mode(entry: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
    """Return our entry in a client's file with the mode that was carried over."""
    if not mode or mode in words_of(entry):
        return entry
    key = "args" if "args" in entry else "command"
    return {**entry, key: [*entry[key], "--mode", mode]}


def with_program(entry: Mapping[str, Any], program: str) -> Mapping[str, Any]:
    """Return our entry in a client's file with another program."""
    key = "cmd" if "cmd" in entry else "command"
    given: Any = entry[key]
    return {**entry, key: [program, *given[1:]] if isinstance(given, list) else program}


def with_variables(entry: Mapping[str, Any], own: Path) -> Mapping[str, Any]:
    """Return our entry with the variables that our servers name, for a client that passes those of a list alone."""
    if "env_vars" not in entry:
        return entry
    named = re.findall(r"\$\{(\w+)(?:\}|:-)", dumps(read_servers(own)).decode())
    return {**entry, "env_vars": list(dict.fromkeys((*entry["env_vars"], *named)))}
