"""Commands in a Dockerfile: what a build runs, and what a container of the image starts."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from typing import Any, Final, cast

from ...core.json import read_json
from ...core.patterns import regex

_FIRST_INSTRUCTION: Final = regex(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:FROM[ \t]+\S|ARG[ \t]+\w)", re.IGNORECASE)
_RUN_INSTRUCTION: Final = regex(
    r"[ \t]*(?:ONBUILD[ \t]+)?(?:HEALTHCHECK[ \t]+(?:--\S+[ \t]+)*)?"
    r"(RUN|CMD|ENTRYPOINT|SHELL)[ \t]+(?:--\S+[ \t]+)*(.*)",
    re.IGNORECASE,
)
_PACKAGE_CLEANUP: Final = regex(
    r"\brm (?:-[a-zA-Z]+ )?(?:(?:/var/(?:lib/apt/lists|cache|tmp|log)|/tmp|/root/\.cache)(?:/[^\s;&|$`]*)?(?: |$))+"
)
"""Deletion of what installing packages left in the image, at the end of most steps: nothing outside of it is there."""
_HERE_DOCUMENT: Final = regex(r"<<-?[ \t]*[\"']?(\w+)[\"']?")
_CONTINUED_LINE: Final = regex(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*")
_BLANKS: Final = regex(r"[ \t]{2,}")
_MAX_STEPS: Final = 200
_MAX_TEXT_LENGTH: Final = 512 * 1024
"""Characters that are looked at."""


def is_container_file(text: str) -> bool:
    """Whether a text begins as a Dockerfile does, under any name."""
    return _FIRST_INSTRUCTION.match(_BLANKS.sub(" ", text[:4_000])) is not None


def container_commands(text: str) -> list[str]:
    """Return the shell texts of a Dockerfile, one a step.

    Deletions of package caches in `RUN` are taken out: nearly every Dockerfile has them, and a deny of `rm` would ask
    about each build.
    """
    lines = iter(_BLANKS.sub(" ", _CONTINUED_LINE.sub(" ", text[:_MAX_TEXT_LENGTH])).splitlines())
    found = list[str]()
    for line in lines:
        if (started := _RUN_INSTRUCTION.match(line)) is None:
            continue
        command = _words(started[2]) if started[2].startswith("[") else started[2]
        if here := _HERE_DOCUMENT.search(command):
            end = here[1]
            inner = takewhile(lambda inner, end=end: inner.strip() != end, lines)
            command = "\n".join((command[: here.start()], *inner))
        found.append(_PACKAGE_CLEANUP.sub("true ", command) if started[1].upper() == "RUN" else command)
    return found[:_MAX_STEPS]


def _words(command: str) -> str:
    try:
        words: Any = read_json(command.encode())
    except ValueError:
        return command
    return shlex.join(map(str, cast("list[Any]", words))) if isinstance(words, list) else command
