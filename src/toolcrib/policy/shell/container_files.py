"""Commands in a Dockerfile: what a build runs, and what a container of the image starts."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from typing import Any, Final, cast

from ...core.json import read_json
from ...core.patterns import regex

_FIRST: Final = regex(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:FROM[ \t]+\S|ARG[ \t]+\w)", re.IGNORECASE)
_STARTS: Final = regex(
    r"[ \t]*(?:ONBUILD[ \t]+)?(?:HEALTHCHECK[ \t]+(?:--\S+[ \t]+)*)?"
    r"(RUN|CMD|ENTRYPOINT|SHELL)[ \t]+(?:--\S+[ \t]+)*(.*)",
    re.IGNORECASE,
)
_TIDIES: Final = regex(
    r"\brm (?:-[a-zA-Z]+ )?(?:(?:/var/(?:lib/apt/lists|cache|tmp|log)|/tmp|/root/\.cache)(?:/[^\s;&|$`]*)?(?: |$))+"
)
"""Deletion of what installing packages left in the image, at the end of most steps: nothing outside of it is there."""
_HERE: Final = regex(r"<<-?[ \t]*[\"']?(\w+)[\"']?")
_JOINED: Final = regex(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*")
_BLANKS: Final = regex(r"[ \t]{2,}")
_STEPS: Final = 200
_MOST: Final = 512 * 1024
"""Characters that are looked at."""


def is_container_file(text: str) -> bool:
    """Whether a text begins as a Dockerfile does, under any name."""
    return _FIRST.match(_BLANKS.sub(" ", text[:4_000])) is not None


def container_commands(text: str) -> list[str]:
    """Return the shell texts of a Dockerfile, one a step.

    Deletions of package caches in `RUN` are taken out: nearly every Dockerfile has them, and a deny of `rm` would ask
    about each build.
    """
    lines = iter(_BLANKS.sub(" ", _JOINED.sub(" ", text[:_MOST])).splitlines())
    found = list[str]()
    for line in lines:
        if (started := _STARTS.match(line)) is None:
            continue
        command = _words(started[2]) if started[2].startswith("[") else started[2]
        if here := _HERE.search(command):
            end = here[1]
            inner = takewhile(lambda inner, end=end: inner.strip() != end, lines)
            command = "\n".join((command[: here.start()], *inner))
        found.append(_TIDIES.sub("true ", command) if started[1].upper() == "RUN" else command)
    return found[:_STEPS]


def _words(command: str) -> str:
    try:
        words: Any = read_json(command.encode())
    except ValueError:
        return command
    return shlex.join(map(str, cast("list[Any]", words))) if isinstance(words, list) else command
