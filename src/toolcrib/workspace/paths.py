"""Paths of tools: from a text, as a model wrote it, to one of the declared roots and the steps below it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import ToolFailure, UsageError

__all__ = ["Place", "Roots", "is_text"]

_MAX_PATH: Final = 4096
"""Bytes, PATH_MAX of Linux."""
_MAX_NAME: Final = 255
"""Bytes, NAME_MAX."""
_MAX_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Something below a root, whether it exists or not. No step is `..`, and no `/` or control character is in one."""

    root: Path
    steps: tuple[str, ...]
    shown: str
    """As tools name it: relative to where relative paths begin, else absolute."""

    @property
    def path(self) -> Path:
        """The absolute path; for display and for programs, never to open a file that could have been swapped."""
        return self.root.joinpath(*self.steps)


class Roots:
    """The declared folders. Immutable; links in their own paths are followed once, now."""

    def __init__(self, *folders: Path, begin: Path | None = None) -> None:
        """Relative paths begin at `begin`, which lies in the first folder, or at that folder.

        Raises `UsageError` for a path that is not a folder.
        """
        if not folders:
            raise UsageError("a workspace needs a folder")
        self._spellings = {_absolute(folder): _real(folder) for folder in folders}
        self.all = tuple(dict.fromkeys(self._spellings.values()))
        self._spellings |= {root: root for root in self.all}
        self.begin = _real(begin) if begin is not None else self.all[0]
        if not self.begin.is_relative_to(self.all[0]):
            raise UsageError(f"{self.begin} lies outside of the workspace {self.all[0]}")
        self._inner = self.begin.relative_to(self.all[0]).parts

    def place(self, path: str) -> Place:
        """Return the place that `path` means.

        Raises `ToolFailure`: `invalid_arguments` for an invalid path, `denied` for one that leads outside.
        """
        _check(path)
        steps = tuple(step for step in path.split("/") if step not in ("", "."))
        if ".." in steps:
            raise ToolFailure(
                "denied", f"{_shown(path)} goes up with `..`", hint="name the path from the workspace's root"
            )
        if not path.startswith("/"):
            if steps[:1] == ("~",):
                raise ToolFailure("denied", "`~` is outside of the workspace", hint=self._hint())
            return self.at(self.all[0], (*self._inner, *steps))
        absolute = Path("/", *steps)
        inside = [folder for folder in self._spellings if absolute.is_relative_to(folder)]
        if not inside:
            raise ToolFailure("denied", f"{_shown(path)} is outside of the workspace", hint=self._hint())
        folder = max(inside, key=lambda folder: len(folder.parts))
        return self.at(self._spellings[folder], absolute.relative_to(folder).parts)

    def at(self, root: Path, steps: tuple[str, ...]) -> Place:
        """Return the place of `steps` that are known to be below `root`."""
        depth = len(self._inner)
        if root == self.all[0] and steps[:depth] == self._inner:  # nearly every one: a path would take ten times longer
            return Place(root, steps, "/".join(steps[depth:]) or ".")
        path = root.joinpath(*steps)
        shown = path.relative_to(self.begin) if path.is_relative_to(self.begin) else path
        return Place(root, steps, str(shown))

    def _hint(self) -> str:
        return f"paths begin at {self.begin}; files can be reached in {', '.join(map(str, self.all))}"


def is_text(name: str) -> bool:
    """Whether a name can be expressed in JSON: Linux takes any bytes, and Python keeps them as halves of characters."""
    if name.isprintable():  # neither halves nor control characters are
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not any(unicodedata.category(character) == "Cc" for character in name)


def _check(path: str) -> None:
    """Refuse an invalid file name, before the disk is accessed."""
    if not path or not path.strip():
        raise ToolFailure("invalid_arguments", "a path was expected, not an empty text", hint="`.` is the root")
    if not is_text(path):
        raise ToolFailure("invalid_arguments", f"{_shown(path)} has control characters or broken Unicode in it")
    if "\\" in path:
        raise ToolFailure(
            "invalid_arguments", f"{_shown(path)} has a backslash in it", hint="folders are set apart by /"
        )
    if len(path.encode()) >= _MAX_PATH or any(len(step.encode()) > _MAX_NAME for step in path.split("/")):
        raise ToolFailure(
            "invalid_arguments", f"{_shown(path)} is too long: names have {_MAX_NAME} bytes, paths {_MAX_PATH}"
        )


def _shown(path: str) -> str:
    return repr(path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…")


def _absolute(folder: Path) -> Path:
    return folder.absolute()


def _real(folder: Path) -> Path:
    path = _absolute(folder).resolve()
    if not path.is_dir():
        raise UsageError(f"{folder} is not an existing folder: a workspace is made of folders that exist")
    return path
