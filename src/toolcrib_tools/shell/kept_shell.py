"""A shell that stays: the folder and the exported variables of one command are those of the next.

Each command has a process of its own. What a shell leaves behind is read as data and handed to the next as its folder
and its environment: no text of an earlier command runs in a later one. Functions, aliases and options are not kept, nor
variables that decide what programs execute. A command that ends its shell (`exit`, a signal, its time) leaves nothing;
the next one begins in a fresh shell, and says why.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from toolcrib.plugin import KEEPS_SHELL, Command, Context, Workspace, guides_programs

from .processes import CommandResult, status_of

_KEY: Final = "shell.kept"
_MOST: Final = 128 * 1024
"""Bytes of kept variables, as the system passes them to a program."""
_READ: Final = 4 * 1024 * 1024
"""Bytes of what a shell leaves that are looked at."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN: Final = re.compile(r"PWD|OLDPWD|SHLVL|_|HOME|TERM|TMPDIR|XDG_\w+|TOOLCRIB_\w+|\w*_proxy|\w*_PROXY|__shell_\w+")
"""Variables that each command gets from its sandbox."""
_SCRIPT: Final = r"""__shell_text=$1 __shell_left=$2; shift 2
__shell_tell() {
  builtin pwd -P; builtin printf '\0'
  builtin compgen -e | while IFS= builtin read -r __shell_name; do
    builtin printf '%s=%s\0' "$__shell_name" "${!__shell_name}"
  done
}
__shell_tell >|"$__shell_left/before" 2>/dev/null
eval "$__shell_text"
__shell_status=$?
__shell_tell >|"$__shell_left/after" 2>/dev/null
builtin exit "$__shell_status"
"""


class KeptShell(Struct, eq=False):
    """The shell of one session, between two commands."""

    folder: Path
    """Folder in which a command leaves its state."""
    cwd: Path | None = None
    """None is where the command says, else the workspace's root."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    lost: str = ""
    """Reason why the next command has a fresh shell; empty while nothing was lost."""
    turn: anyio.Lock = field(default_factory=anyio.Lock)

    async def prepare(self, command: Command, *, moves: bool) -> tuple[Command, str]:
        """Return the command in this shell, and a line for its result when the shell is a fresh one.

        `moves` is true for a command that names its folder.
        """
        if self.cwd is not None and not await to_thread.run_sync(self.cwd.is_dir):
            self._forget("its folder was removed")
        why, self.lost = self.lost, ""
        for name in ("before", "after"):
            (self.folder / name).unlink(missing_ok=True)
        shell, flag, text = command.argv
        prepared = replace(
            command,
            argv=(shell, flag, _SCRIPT, "bash", text, str(self.folder)),
            cwd=command.cwd if moves or self.cwd is None else self.cwd,
            folders=(*command.folders, self.folder),
            environment={**command.environment, **self.variables},
        )
        return prepared, f"[a fresh shell: {why}]" if why else ""

    def take(self, ended: CommandResult | None, workspace: Workspace) -> None:
        """Keep what the shell of a command left behind; None for one whose call was cancelled."""
        left = self._read() if ended is not None else None
        if left is None:
            finished = ended.finished if ended is not None else None
            if ended is None:
                why = "the last command was cancelled"
            elif finished is None:
                why = "the last command ran out of time"
            elif finished.stopped:
                why = f"the last command was ended: {finished.stopped}"
            elif finished.status < 0 or finished.status > 128:
                why = f"the last one was killed ({status_of(finished)})"
            else:
                why = "the last command ended it"
            self._forget(why)
            return
        before, (place, after) = left[0][1], left[1]
        changed = {name: value for name, value in after.items() if name in self.variables or before.get(name) != value}
        kept = {name: value for name, value in changed.items() if _is_kept(name)}
        if sum(len(name) + len(value.encode()) + 2 for name, value in kept.items()) > _MOST:
            self._forget(f"the last one exported more than {_MOST // 1024} KiB of variables")
            return
        cwd = Path(place)
        if not place or not any(cwd.is_relative_to(root) for root in workspace.roots):
            self._forget("its folder was removed" if not place else "its folder is outside of the workspace")
            return
        self.cwd, self.variables = cwd, kept

    async def aclose(self) -> None:
        """Remove what is left on the disk."""
        await to_thread.run_sync(lambda: shutil.rmtree(self.folder, ignore_errors=True))

    def _forget(self, why: str) -> None:
        self.cwd, self.variables, self.lost = None, {}, why

    def _read(self) -> tuple[tuple[str, Mapping[str, str]], tuple[str, Mapping[str, str]]] | None:
        """Return folder and variables before and after the command; None when it ended its shell."""
        found: list[tuple[str, Mapping[str, str]]] = []
        for name in ("before", "after"):
            path = self.folder / name
            if path.is_symlink() or not path.is_file():
                return None
            with path.open("rb") as file:
                content = file.read(_READ)
            place, *entries = content.decode("utf-8", "surrogateescape").split("\0")
            pairs = (entry.partition("=") for entry in entries)
            found.append((place.removesuffix("\n"), {key: value for key, equals, value in pairs if equals}))
        return found[0], found[1]


def _is_kept(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and _OWN.fullmatch(name) is None and not guides_programs(name)


def shell_of(ctx: Context) -> KeptShell | None:
    """Return the shell that stays of the session that makes this call; None where each command has its own."""
    if not ctx.runtime.get(KEEPS_SHELL):
        return None
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, KeptShell):
        folder = Path(tempfile.mkdtemp(dir=ctx.lent.folder("shell")))
        found = ctx.runtime[_KEY] = KeptShell(folder=folder)
    return found
