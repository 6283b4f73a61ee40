"""Asking whoever sits in front of the terminal: the whole question, one line of answer."""

from __future__ import annotations

import os
import sys
from typing import Any, Final, cast

import anyio

from ..core.json import read_json
from ..core.permission import Answer, Question, Verdict
from .output import note

__all__ = ["Terminal", "ask_person"]

_BY: Final = "terminal"
_LETTERS: Final[dict[str, Verdict]] = {
    "y": "yes",
    "n": "no",
    "o": "once",
    "a": "always",
    "v": "never",
    "t": "turn",
    "i": "idle",
    "l": "all",
    "c": "comment",
    "e": "edit",
}
_typed: Final = bytearray()
"""What was typed ahead of its question."""
_PROMPT: Final = "run it? [y]es [N]o [a]lways ne[v]er [t]urn [i]dle a[l]l [c]omment [e]dit: "


class Terminal:
    """The approver of a session at a terminal. An unclear answer, and none, are a no."""

    def __init__(self) -> None:
        """Nobody was asked yet."""
        self.asked = False

    async def __call__(self, question: Question) -> Answer:
        """Show the real tool and the arguments that will run, all of them, and return the answer."""
        self.asked = True
        note(
            f"{question.tool.name} ({question.tool.kind}) of {question.tool.source} wants to run with\n{question.shown}"
        )
        if question.diff:
            note(f"it would change\n{question.diff.rstrip()}")
        note(f"asked because of: {question.decision.rule}\ncall {question.call_id}, {question.approval}")
        try:
            return await ask_person()
        except anyio.get_cancelled_exc_class():
            note("\nnot asked any more: it was answered elsewhere, or in nobody's time")
            raise


async def ask_person() -> Answer:
    """Read an answer from standard input: a letter or the word, then what goes with it."""
    word = (await _read(_PROMPT)).lower()
    verdict = _LETTERS.get(word, word if word in _LETTERS.values() else "no")
    if verdict == "comment":
        return Answer(verdict="comment", by=_BY, comment=await _read("what is the model told? "))
    if verdict == "edit":
        return await _edited()
    return Answer(verdict=cast("Verdict", verdict), by=_BY)


async def _edited() -> Answer:
    """Read other arguments until they are a JSON object; an empty line is a no."""
    while text := await _read("all arguments, as JSON in one line (nothing is a no): "):
        try:
            arguments: Any = read_json(text, strict=True)
        except ValueError as error:
            note(f"that is no JSON: {error}")
            continue
        if isinstance(arguments, dict):
            return Answer(verdict="edit", by=_BY, arguments=cast("dict[str, Any]", arguments))
        note('that is no JSON object, such as {"path": "a.txt"}')
    return Answer(verdict="no", by=_BY)


async def _read(prompt: str) -> str:
    """Return the next line that is typed, nothing at the end.

    No thread waits for it: one that nobody answers any more would keep the process from ending.
    """
    sys.stderr.write(prompt)
    sys.stderr.flush()
    while b"\n" not in _typed:
        await anyio.wait_readable(sys.stdin)
        piece = os.read(sys.stdin.fileno(), 65536)
        if not piece:
            break
        _typed.extend(piece)
    line, _, rest = bytes(_typed).partition(b"\n")
    _typed[:] = rest
    return line.decode(errors="replace").strip()
