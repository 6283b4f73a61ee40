"""Questions at the terminal of a command: the whole call, and one line of answer.

A destructive call is approved by its word, which the prompt shows: a key may be a slip. What was typed before a prompt
is discarded.
"""

from __future__ import annotations

import sys
from typing import Any, Final, cast

import anyio

from ..core.json import read_json
from ..core.permission import Answer, Question, Verdict
from ..policy.asking.questions import confirmation_word
from ..policy.http_methods import kind_of
from .keyboard import Plain
from .output import note

__all__ = ["Terminal", "ask_person", "word_of"]

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
_PROMPT: Final = "run it? [y]es [N]o [a]lways ne[v]er [t]urn [i]dle a[l]l [c]omment [e]dit:"
_REFUSALS: Final = ("no", "never", "comment")
"""Answers that need no word: they let nothing run."""


class Terminal:
    """The approver of a session at a terminal. An unclear answer, and none, are a no."""

    def __init__(self) -> None:
        """Start without a question asked."""
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
            return await ask_person(word_of(question))
        except anyio.get_cancelled_exc_class():
            note("\nquestion withdrawn: it was answered elsewhere, or it expired")
            raise


def word_of(question: Question) -> str:
    """Return the word that approves this call at a terminal; empty where one key does."""
    kind = kind_of(question.tool, question.arguments)
    return confirmation_word(question.tool.name, kind, question.decision.rule, question.arguments)


async def ask_person(word: str = "") -> Answer:
    """Read an answer from standard input: a letter or the whole word, then what goes with it.

    With `word`, that of a destructive call, no answer lets the call run until `word` was typed.
    """
    prompt = f"this call can destroy: type {word} to run it, or {_PROMPT.removeprefix('run it? ')}" if word else _PROMPT
    typed = (await _read(prompt)).lower()
    is_confirmed = not word or typed == word.lower()
    verdict = "yes" if word and is_confirmed else _LETTERS.get(typed, typed if typed in _LETTERS.values() else "no")
    if verdict == "comment":
        return Answer(verdict="comment", by=_BY, comment=await _read("message to the model:"))
    answer = await _edited() if verdict == "edit" else Answer(verdict=cast("Verdict", verdict), by=_BY)
    if is_confirmed or answer.verdict in _REFUSALS:
        return answer
    confirmed = await _read(f"type {word} to confirm '{answer.verdict}' (anything else is a no):")
    return answer if confirmed.lower() == word.lower() else Answer(verdict="no", by=_BY)


async def _edited() -> Answer:
    """Read other arguments until they are a JSON object; an empty line is a no."""
    while text := await _read("all arguments, as JSON in one line (nothing is a no):"):
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
    """Return the line that is typed after `prompt` is shown, nothing at the end of the input."""
    try:
        return (await Plain(str, sys.stdin, sys.stderr).answer(prompt)).strip()
    except EOFError:
        return ""
