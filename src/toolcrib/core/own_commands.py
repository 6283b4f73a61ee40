"""Commands of ours in hints: with the configuration files of the process that gives the hint.

A gateway that was started with `--config FILE` has servers, reviews and records that the user's own files do not name:
a command without that option would act on others.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from .events import Problem, SourceState
from .patterns import regex

TAKE_FILES: Final = (
    *("accept", "approvals", "console", "doctor", "find", "jobs", "lock", "log", "login", "logout", "pending"),
    *("plugins", "profile", "queue", "results", "schedule", "show", "tools", "why", "work", "worker"),
)
"""Commands, all actions of theirs included, with the option `--config`."""

FILES: Final = "toolcrib.files"
"""The key of the files of a command's `--config` in the `meta` of its context: its error names them."""

_COMMAND: Final = regex(rf"`(toolcrib (?:{'|'.join(TAKE_FILES)})(?: [^`\n]*)?)`")

_Notice = TypeVar("_Notice", Problem, SourceState)


def file_options(files: Iterable[Path | str]) -> str:
    """Return the options that name `files` to a command, for a shell; empty without files."""
    return " ".join(f"-c {shlex.quote(str(file))}" for file in files)


def with_files(text: str, options: str) -> str:
    """Return a text of ours whose commands, in backquotes, name the files of `options` once; itself without options."""
    if not options or "`toolcrib " not in text:
        return text
    return _COMMAND.sub(lambda found: found[0] if found[1].endswith(options) else f"`{found[1]} {options}`", text)


def notice_with_files(notice: _Notice, options: str) -> _Notice:
    """Return a problem or the state of a source with the files in the commands of its texts."""
    if not options:
        return notice
    text = {"hint": with_files(notice.hint, options)}
    if isinstance(notice, SourceState):
        text["detail"] = with_files(notice.detail, options)
    else:
        text["message"] = with_files(notice.message, options)
    return replace(notice, **text)
