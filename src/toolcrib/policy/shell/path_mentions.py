"""Path mentions: whether a command refers to a file that a rule names, such as `cat .env` and a deny of `Read(.env)`.

A name in a command is not yet its use, so the answer is never a plain yes but undecidable, which asks. A name
that only the shell will know (a glob, a variable), and one that a program makes up itself, is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final

from ..argument_conditions import HERE
from ..path_patterns import PathPattern
from .command_tools import scripts_of

__all__ = ["Mentions"]

_MAX_NAMES: Final = 500
"""Names of one command that are examined; more are undecidable."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """A pattern of files, held against the words of commands."""

    pattern: PathPattern

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = HERE) -> bool | None:
        """Return None if a matching file is named, else False."""
        folder = PurePath(str(arguments.get("working_dir") or ""))
        names = list(islice(_names(arguments), _MAX_NAMES + 1))
        if len(names) > _MAX_NAMES:
            return None
        paths = dict.fromkeys(str(folder / name) for name in names)
        meant = (self.pattern.matches({"path": path}, every=False, cwd=cwd) is True for path in paths)
        return None if any(meant) else False


def _names(arguments: Mapping[str, Any]) -> Iterator[str]:
    """Yield every word that may be a path, also behind `=` and `@`: `if=FILE`, `--file=FILE`, `-d @FILE`."""
    for script in scripts_of(arguments):
        for word in script.words():
            if word.known and word.text:
                yield word.text
                _, sign, value = word.text.partition("=")
                rest = value if sign else word.text
                if sign or rest.startswith("@"):
                    yield rest.removeprefix("@")
