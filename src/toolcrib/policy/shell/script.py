"""Parsed shell text, as values: its commands, the commands that they run, and parts undecidable before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .words import HOLE, Word

__all__ = ["Command", "Script"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A parsed shell text. Nothing is dropped: each part that was not understood is a doubt."""

    commands: tuple[Command, ...] = ()
    """Every command that the text itself names, in substitutions, functions and branches, too."""
    doubts: tuple[str, ...] = ()
    """Reasons why other commands than these could run."""
    effects: tuple[str, ...] = ()
    """Effects of the text besides running commands: it writes a file, sets a variable, defines a function."""
    files: tuple[Word, ...] = ()
    """Files of its redirections."""

    def every(self) -> Iterator[Command]:
        """Yield every command and everything that each is known to run."""
        for command in self.commands:
            yield from command.every()

    def words(self) -> Iterator[Word]:
        """Yield every word of every command, and every file of a redirection."""
        yield from self.files
        for command in self.every():
            yield from command.words
            yield from command.files

    def every_doubt(self) -> Iterator[str]:
        """Yield the doubts of the text and of everything that it runs."""
        yield from self.doubts
        for command in self.every():
            yield from command.doubts


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command with its arguments, as the shell would run it."""

    words: tuple[Word, ...]
    source: str = ""
    """Source text; empty for a command built from words."""
    stdin: str = ""
    """The here-document or here-string that it reads."""
    runs: tuple[Command, ...] = ()
    """Commands that it runs in turn: behind `sudo`, in `bash -c`, for `find -exec`.

    In doubt, more rather than fewer.
    """
    doubts: tuple[str, ...] = ()
    """Reasons why it could run other commands than these."""
    files: tuple[Word, ...] = ()
    """Files of the redirections in the texts that it runs."""
    same_as: Command | None = None
    """The command that it is but for a harmless wrapper such as `timeout 5`."""

    @property
    def name(self) -> str:
        """The program without its folder; empty when only the shell will know."""
        first = self.words[0] if self.words else None
        return first.text.rpartition("/")[2] if first is not None and first.known else ""

    def every(self) -> Iterator[Command]:
        """Yield the command and everything that it is known to run."""
        yield self
        for command in self.runs:
            yield from command.every()

    def text(self) -> str:
        """The words with one blank between: how people write rules about it. Holes are in it."""
        return " ".join(word.text for word in self.words)

    def shown(self) -> str:
        """The words for people: a hole is `…`."""
        return self.text().replace(HOLE, "…")
