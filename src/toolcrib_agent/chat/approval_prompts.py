"""Prompts in the middle of a turn: approval of a call, and questions that a tool has for the user.

What will run is shown whole. Only where a diff says the same better are the long texts in the arguments cut, and `d`
shows them. A destructive call is approved by its word, no single key. A missing answer is a no.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import anyio
from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from toolcrib import Answer, Clarification, Question, Verdict
from toolcrib.cli.prompts import word_of
from toolcrib.plugin import read_json

from .call_view import colored
from .keyboard import Keyboard
from .screen import Screen, plain

_BY: Final = "chat"
_KIND_STYLE: Final[Mapping[str, str]] = {"read": "green", "write": "yellow", "destructive": "red"}
_LONG: Final = 300
"""Characters of a line of arguments that is shown beside a diff; whole with `d`."""

ANSWERS: Final[Mapping[str, tuple[Verdict, str]]] = {
    "y": ("yes", "yes"),
    "n": ("no", "no"),
    "o": ("once", "only this once"),
    "a": ("always", "always this tool, in this chat"),
    "t": ("turn", "everything until you speak again"),
    "i": ("idle", "everything until the chat rests"),
    "l": ("all", "everything in this chat"),
    "v": ("never", "never this tool, in this chat"),
    "c": ("comment", "no, and tell the model why"),
    "e": ("edit", "run it with other arguments"),
}
"""Answer and its description, by key."""

_MORE: Final = "d"
"""The key that shows all of it."""
_SHORT: Final[Mapping[str, str]] = {"y": "yes", "n": "no", "a": "always", "t": "this turn", "c": "comment", "e": "edit"}
"""The keys that stand in the prompt; `?` explains all of them."""


class Asker:
    """Approver and elicitor of a chat's session: asks at the keyboard, one question at a time.

    Further questions wait for the one that is open. A question whose call is cancelled is withdrawn.
    """

    def __init__(self, screen: Screen, keyboard: Keyboard, interrupt: Callable[[], None]) -> None:
        """`interrupt` ends the turn: what Ctrl-C means at a question, besides no."""
        self._screen = screen
        self._keyboard = keyboard
        self._interrupt = interrupt
        self._turns = anyio.Lock()
        self._granted = ""

    def granting(self, tool: str) -> None:
        """Record an approval of calls of `tool`, because the user typed such a call; empty withdraws it.

        The caller withdraws it after its call: until then every call of the tool is approved.
        """
        self._granted = tool

    async def __call__(self, question: Question) -> Answer:
        """Show what would run, and return the answer."""
        if self._granted and question.tool.name == self._granted:
            return Answer(verdict="yes", by=_BY)
        async with self._turns:
            with self._screen.still():
                try:
                    answer = await self._decide(question)
                    summary = f"{answer.verdict}: {answer.comment}" if answer.comment else answer.verdict
                    self._screen.note(f"→ {summary}", "bold")
                    return answer
                except anyio.get_cancelled_exc_class():
                    self._screen.note("question withdrawn: it was answered elsewhere, or timed out")
                    raise

    async def clarify(self, asked: Clarification) -> str | None:
        """Put a tool's question to the user; None when it was dismissed."""
        async with self._turns:
            with self._screen.still():
                return await self._clarified(asked)

    async def _decide(self, question: Question) -> Answer:
        self._screen.gap()
        self._screen.say(_shown_question(question))
        word = word_of(question)
        keys = {} if word else {key: key for key in (*ANSWERS, _MORE, "?")}  # a word may begin with any of them
        while True:
            try:
                reply = await self._keyboard.answer(_prompt(question, word), keys=keys)
                key = _key_of(reply)
                if key == "?":
                    self._screen.say(_explained(word))
                elif key == _MORE:
                    self._screen.say(_shown_question(question, whole=True))
                elif word and reply.strip().lower() == word.lower():
                    return Answer(verdict="yes", by=_BY)
                elif key:
                    if answer := await self._answer_of(key, question, word):
                        return answer
                else:
                    self._screen.note(f"{reply!r} is not an answer; ? explains them")
            except EOFError:
                return Answer(verdict="no", by=_BY)
            except KeyboardInterrupt:
                self._interrupt()
                return Answer(verdict="no", by=_BY)

    async def _answer_of(self, key: str, question: Question, word: str) -> Answer | None:
        """Return the answer that a key begins; None goes back to the question."""
        if key == "c":
            return Answer(verdict="comment", by=_BY, comment=await self._keyboard.answer("message to the model:"))
        answer = await self._edited(question) if key == "e" else Answer(verdict=ANSWERS[key][0], by=_BY)
        if answer is None or not word or answer.verdict in ("no", "never"):
            return answer
        typed = await self._keyboard.answer(f"type {word} to confirm '{answer.verdict}':")
        if typed.strip().lower() == word.lower():
            return answer
        self._screen.note(f"not confirmed: {typed!r} is not {word}")
        return None

    async def _edited(self, question: Question) -> Answer | None:
        """Let the user change the arguments; empty input returns to the question."""
        text = question.shown
        while True:
            text = await self._keyboard.answer("arguments (Alt-Enter or Esc Enter sends):", default=text)
            if not text.strip():
                return None
            try:
                arguments: Any = read_json(text, strict=True)
            except ValueError as error:
                self._screen.note(f"that is not JSON: {error}")
                continue
            if isinstance(arguments, dict):
                return Answer(verdict="edit", by=_BY, arguments=cast("dict[str, Any]", arguments))
            self._screen.note('that is not a JSON object, such as {"path": "a.txt"}')

    async def _clarified(self, asked: Clarification) -> str | None:
        self._screen.gap()
        lines: list[RenderableType] = [plain(asked.question, "bold")]
        lines += [Text.assemble((f"{number} ", "cyan"), plain(text)) for number, text in enumerate(asked.options, 1)]
        self._screen.say(Panel(Group(*lines), title="a question for you", title_align="left", border_style="cyan"))
        prompt = "a number, or your own words:" if asked.options and asked.is_open else "your answer:"
        try:
            while reply := (await self._keyboard.answer(prompt)).strip():
                number = int(reply) if reply.isdigit() else 0
                answer = asked.options[number - 1] if 0 < number <= len(asked.options) else reply
                if asked.takes(answer):
                    return answer
                self._screen.note(f"one of 1 to {len(asked.options)}; nothing dismisses the question")
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._interrupt()
        return None


def _shown_question(question: Question, *, whole: bool = False) -> RenderableType:
    """Return the question for an approver: the real tool, its arguments, the changes, and the rule that asks."""
    tool = question.tool
    style = _KIND_STYLE[tool.kind]
    title = Text.assemble((f" {tool.name} ", f"bold {style}"), (f"{tool.kind} · {tool.source} ", "dim"))
    cut = bool(question.diff) and not whole
    parts: list[RenderableType] = [_arguments(question.shown, cut=cut)]
    if question.diff:
        parts += [Text(), colored(question.diff, limit=0 if whole else 60)]
    return Panel(
        Group(*parts),
        box=ROUNDED,
        title=title,
        title_align="left",
        subtitle=plain(f" {question.decision.rule} ", "dim"),
        subtitle_align="right",
        border_style=style,
    )


def _arguments(shown: str, *, cut: bool) -> Text:
    """Format the arguments as JSON (already escaped), without the outer braces."""
    lines = shown.split("\n")
    if lines[0] == "{" and lines[-1] == "}":
        lines = [line.removeprefix(" ") for line in lines[1:-1]]
    if not lines or shown == "{}":
        return Text("no arguments", style="dim")
    if cut:
        lines = [f"{line[:_LONG]}… ({len(line) - _LONG:,} more)" if len(line) > _LONG else line for line in lines]
    return plain("\n".join(lines))


def _prompt(question: Question, word: str) -> str:
    keys = " · ".join(f"{key} {_SHORT[key]}" for key in _SHORT if not word or key != "y")
    ask = f"this call can destroy: type {word} to run it, or" if word else "run it? "
    return f"{ask} {keys}{' · d all of it' if question.diff else ''} · ? more:"


def _key_of(reply: str) -> str:
    """Return the key of an answer that was typed as a key or as its word; empty for neither."""
    word = reply.strip().lower()
    if word in (*ANSWERS, _MORE, "?"):
        return word
    return next((key for key, (verdict, _) in ANSWERS.items() if verdict == word), "")


def _explained(word: str) -> Text:
    meanings = {key: (verdict, meaning) for key, (verdict, meaning) in ANSWERS.items()}
    meanings[_MORE] = ("details", "show all arguments and all of the diff")
    lines = [
        Text.assemble((f" {key} ", "bold cyan"), (f"{word:<8}", "bold"), meaning)
        for key, (word, meaning) in meanings.items()
    ]
    if word:
        lines.append(Text(f" Nothing lets this call run before {word} was typed, whole and with Enter.", style="dim"))
    lines.append(Text(" What always asks, or cannot be taken back, is asked about every time.", style="dim"))
    return Text("\n").join(lines)
