"""Words of a server's command, and what each may name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from ....core.patterns import regex
from ..spec import ServerSpec

RUNNERS: Final = regex(
    r"(?:python|pypy|perl|ruby|php|lua|java|node|bun|deno|pip|pipx|uv|uvx|npm|npx|pnpm|pnpx|yarn|bunx|poetry|hatch|pdm"
    r"|cargo|go|dotnet|gem|bundle|composer|docker|podman|env|sh|bash|dash|zsh|fish|make|just|nix|tsx|ts-node|mvn"
    r"|gradle|sbt|mix|rake|task|nox|tox|pipenv|rye|pixi|devbox|conda|mamba)[\d.]*"
)
"""Names of interpreters and package runners."""
MARKS: Final = regex(r"[\s;&|()`{}\"'<>]+")
"""Characters between the words of a command."""
_QUOTES: Final = str.maketrans("", "", "\"'")
_FILE: Final = regex(r"file:(?://(?:localhost)?(?=/)|/*(?=\.)|//)?")
MODULE: Final = regex(r"(?:-[A-Za-z]*m)?([A-Za-z_]\w*(?:\.\w+)+)", re.ASCII)
"""The dotted name of a module, also behind `-m`."""


def words_of(spec: ServerSpec) -> list[str]:
    """Return the words of a command, those inside of commands for a shell, too."""
    return [text for word in (spec.command, *spec.args) for text in (word, *split_words(word))]


def split_words(word: str) -> list[str]:
    """Return the words of a text that a shell, or another program, takes apart."""
    return MARKS.sub(" ", word.translate(_QUOTES)).split() if MARKS.search(word) else []


def spellings(word: str) -> Iterator[str]:
    """Yield `word` and what it may name: the value of an option, the file of `file.py:object`."""
    if "\0" in word or len(word) > os.pathconf("/", "PC_PATH_MAX"):
        return
    texts = [word, *([word.partition("=")[2]] if "=" in word else []), *([word[2:]] if word[:1] == "-" else [])]
    texts += [text.rpartition(":")[0] for text in texts if ":" in text]
    texts += [unquote(_FILE.sub("", text)) for text in texts if text.startswith("file:")]
    texts += [text.partition("[")[0] for text in texts if text.endswith("]")]  # the extras of a package
    if found := MODULE.fullmatch(word):
        texts.append(found[1])
    yield from (os.path.expanduser(text) for text in texts if text and not text.startswith("-"))
