"""Questions at the terminal, and the reader of their answers.

A destructive call is approved by its word, which the prompt shows: a key may be a slip. What was typed before a prompt
is discarded. `toolcrib_agent.chat.keyboard` adds the commands of a chat.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import anyio
import anyio.to_thread

from ..core.json import fields_of, read_json
from ..core.permission import Answer, Question, Verdict
from ..daemon.caller import Caller, current_caller
from ..policy.modes import kind_of
from ..policy.questions import confirmation_word
from .output import fitted, note, width_of

_BLOCK: Final = 65536
_BY: Final = "terminal"
_APPROVAL: Final = "approval"
"""Kind of the message by which a command in a daemon asks whether a call may run (`approval_for`)."""
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


def discard_typed(descriptor: int) -> None:
    """Empty the input queue of a terminal. What is not a terminal, such as a pipe with a script, keeps its input."""
    with suppress(termios.error):
        termios.tcflush(descriptor, termios.TCIFLUSH)


class LineReader:
    """Lines from standard input, as the terminal edits them.

    No thread waits for a line: one that never comes would keep the process from ending.
    """

    def __init__(self, source: TextIO | None = None, target: TextIO | None = None) -> None:
        """Standard input and output are the default."""
        self._source = source or sys.stdin
        self._target = target or sys.stdout
        self._typed = bytearray()
        self._echoes = not self._source.isatty()
        """Whether answers are shown: those from a pipe are, so that the whole reads like a conversation."""

    async def answer(self, prompt: str, *, default: str = "", keys: Mapping[str, str] | None = None) -> str:
        """Return the next line, or what the key that it consists of stands for.

        A terminal's input queue is emptied first; the lines of a pipe are a script and stay.
        """
        if self._source.isatty():
            self._typed.clear()
            discard_typed(self._source.fileno())
        line = (await self.read_line(f"{prompt} ", default)).strip()
        return (keys or {}).get(line.lower(), line)

    async def read_line(self, prompt: str, default: str) -> str:
        """Return the next line, which may have been typed ahead."""
        self._target.write(prompt + (f"[{default}] " if default else ""))
        self._target.flush()
        while b"\n" not in self._typed:
            piece = await self._piece()
            if not piece and not self._typed:
                self._target.write("\n")
                raise EOFError
            if not piece:
                break
            self._typed.extend(piece)
        line, _, rest = bytes(self._typed).partition(b"\n")
        self._typed[:] = rest
        text = line.decode(errors="replace").rstrip("\r") or default
        if self._echoes:
            self._target.write(f"{text}\n")
            self._target.flush()
        return text

    async def _piece(self) -> bytes:
        try:
            await anyio.wait_readable(self._source)
        except PermissionError:  # a file, or /dev/null, always has something to say
            await anyio.lowlevel.checkpoint()
        return os.read(self._source.fileno(), _BLOCK)


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
            note("\nquestion withdrawn: it was answered elsewhere, expired or was interrupted")
            raise


def word_of(question: Question) -> str:
    """Return the word that approves this call at a terminal; empty where one key does."""
    kind = kind_of(question.tool, question.arguments)
    return confirmation_word(question.tool.name, kind, question.decision.rule, question.arguments)


async def ask_person(word: str) -> Answer:
    """Read an answer from standard input: a letter or the whole word, then what goes with it.

    With `word`, that of a destructive call, no answer lets the call run until `word` was typed. In a daemon the process
    that asked for the command reads it.
    """
    if (caller := current_caller()) is not None:
        return await _ask_at(caller, word)
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


async def _ask_at(caller: Caller, word: str) -> Answer:
    """Return the answer of the person at the terminal of `caller`; withdraw the question when cancelled."""
    try:
        given = await anyio.to_thread.run_sync(caller.ask, _APPROVAL, word, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        with suppress(ConnectionError):
            caller.withdraw()
        raise
    return Answer(**given) if given else Answer(verdict="no", by=_BY)


def approval_for(link: socket.socket, word: str) -> dict[str, Any] | None:
    """Ask the person here for a command that a daemon carries out; None when it withdraws the question over `link`."""
    return anyio.run(_approval_for, link, word)


async def _approval_for(link: socket.socket, word: str) -> dict[str, Any] | None:
    """Return the answer. A daemon that waits for it sends nothing but the withdrawal of its question."""
    answer: Answer | None = None

    async def withdraw() -> None:
        await anyio.wait_readable(link)
        asking.cancel_scope.cancel()

    async with anyio.create_task_group() as asking:
        asking.start_soon(withdraw)
        answer = await ask_person(word)
        asking.cancel_scope.cancel()
    return fields_of(answer) if answer else None


async def _edited() -> Answer:
    """Read other arguments until they are a JSON object; an empty line is a no."""
    while text := await _read("all arguments, as JSON in one line (nothing is a no):"):
        try:
            arguments: Any = read_json(text, strict=True)
        except ValueError as error:
            note(f"that is not JSON: {error}")
            continue
        if isinstance(arguments, dict):
            return Answer(verdict="edit", by=_BY, arguments=cast("dict[str, Any]", arguments))
        note('that is not a JSON object, such as {"path": "a.txt"}')
    return Answer(verdict="no", by=_BY)


async def _read(prompt: str) -> str:
    """Return the line that is typed after `prompt`, folded to the terminal.

    The end of the input interrupts at a terminal, as Ctrl-C does: it answers nothing. Elsewhere it is an empty line.
    """
    try:
        return (await LineReader(sys.stdin, sys.stderr).answer(fitted(prompt, width_of(sys.stderr)))).strip()
    except EOFError:
        if sys.stdin.isatty():
            if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a job in the background of a script, say
                raise KeyboardInterrupt from None
            signal.raise_signal(signal.SIGINT)
            await anyio.sleep_forever()
        return ""
