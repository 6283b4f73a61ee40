"""Input line with history, completion, several lines, and keys while the model works (`prompt_toolkit`).

Enter sends; Alt-Enter, Ctrl-J, or a backslash before Enter begins a new line. Loaded only where the extra `chat` is.
"""

from __future__ import annotations

import asyncio
import os
import select
import textwrap
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style

from toolcrib.cli.prompts import discard_typed

from .keyboard import Pressed

_ESCAPE_SECONDS: Final = 0.1
"""Seconds that a lone Escape waits for the rest of a key sequence."""
_REFRESH_SECONDS: Final = 0.5
_NARROW: Final = 20
_TYPED: Final = 8
"""Columns that stay free for an answer behind the last line of its question."""
_NAMES: Final[Mapping[str, str]] = {
    Keys.ControlC: "c-c",
    Keys.Escape: "escape",
    Keys.BackTab: "s-tab",
    Keys.ControlM: "enter",
    Keys.ControlJ: "enter",
    Keys.ControlH: "backspace",
    Keys.Backspace: "backspace",
}
_STYLE: Final = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "noreverse",
        "completion-menu": "bg:default",
        "completion-menu.completion": "bg:default fg:ansibrightblack",
        "completion-menu.completion.current": "bg:default fg:ansicyan bold noreverse",
        "completion-menu.meta.completion": "bg:default fg:ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default fg:ansicyan noreverse",
    }
)


class PromptContext(Struct, frozen=True, kw_only=True):
    """Content of the prompt and its completions. Read again at every drawing."""

    prompt: Callable[[], StyleAndTextTuples]
    toolbar: Callable[[], StyleAndTextTuples]
    complete: Callable[[str], Iterable[tuple[str, str]]]
    """Returns what may stand in place of the last word of a text, and what it means."""
    next_mode: Callable[[], None]
    """Action of Shift-Tab."""


class PromptInput:
    """One terminal. Lives as long as its chat."""

    def __init__(
        self,
        around: PromptContext,
        history: History | None = None,
        *,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        """`input` and `output` are the terminal's own unless a test gives others."""
        self._around = around
        self._input = input or create_input()
        self._output = output
        self._pressed: Pressed | None = None
        self._session: PromptSession[str] = PromptSession(
            history=history or InMemoryHistory(),
            auto_suggest=AutoSuggestFromHistory(),
            completer=_Completer(around.complete),
            complete_while_typing=True,
            enable_history_search=False,
            multiline=True,
            prompt_continuation=[("class:dim fg:ansibrightblack", "  ")],
            key_bindings=self._bindings(),
            bottom_toolbar=around.toolbar,
            refresh_interval=_REFRESH_SECONDS,
            style=_STYLE,
            input=self._input,
            output=output,
        )

    @property
    def has_keys(self) -> bool:
        """They do."""
        return True

    async def command(self, default: str = "") -> str:
        """Return the text that was typed until Enter."""
        return await self._session.prompt_async(
            self._around.prompt, default=default, handle_sigint=False, set_exception_handler=False
        )

    async def answer(self, prompt: str, *, default: str = "", keys: Mapping[str, str] | None = None) -> str:
        """Ask a question and return the answer; a key of `keys` needs no Enter.

        Keys that are typed before the prompt is drawn go to the key watcher, else they are dropped.
        """
        session: PromptSession[str] = PromptSession(
            key_bindings=_answers(keys or {}),
            multiline="\n" in default,
            prompt_continuation=[("", "  ")],
            style=_STYLE,
            input=self._input,
            output=self._output,
            erase_when_done=True,
        )
        columns = session.app.output.get_size().columns  # prompt_toolkit breaks a line inside a word
        lines = textwrap.wrap(prompt, max(_NARROW, columns - _TYPED), break_on_hyphens=False)
        shown: StyleAndTextTuples = [("bold", "\n".join(lines)), ("", " ")]
        return await session.prompt_async(
            shown,
            default=default,
            handle_sigint=False,
            set_exception_handler=False,
            pre_run=self._drain,
        )

    def _drain(self) -> None:
        """Take everything typed so far out of `prompt_toolkit`'s buffers and of the terminal's queue.

        A key that was meant for the next prompt would otherwise answer a question that was not on the screen yet, and
        could approve a call.
        """
        clear_typeahead(self._input)
        descriptor = self._input.fileno()
        presses: list[Any] = []
        while select.select([descriptor], [], [], 0)[0] and (read := self._input.read_keys()):
            presses += read
        self._heard([*presses, *self._input.flush_keys()])
        discard_typed(descriptor)

    @contextmanager
    def watching(self, pressed: Pressed) -> Generator[None]:
        """Take the terminal's keys as they come; what they mean is up to `pressed`."""
        loop = asyncio.get_running_loop()

        def ready() -> None:
            self._heard(self._input.read_keys())
            # A lone Escape is held back as the beginning of a sequence until it is flushed.
            loop.call_later(_ESCAPE_SECONDS, lambda: self._heard(self._input.flush_keys()))

        self._pressed = pressed
        try:
            with self._input.raw_mode(), self._input.attach(ready):
                yield
        finally:
            self._pressed = None

    def _heard(self, presses: Sequence[Any]) -> None:
        """Call the function that watches keys, if there is one."""
        pressed = self._pressed
        if pressed is None:
            return
        for press in presses:
            name = _NAMES.get(press.key, "")
            if name or press.key == Keys.BracketedPaste or not isinstance(press.key, Keys):
                pressed(name or press.data)

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
                buffer.apply_completion(buffer.complete_state.current_completion)
            elif buffer.document.char_before_cursor == "\\":
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("s-tab")
        def _(event: KeyPressEvent) -> None:
            self._around.next_mode()
            get_app().invalidate()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt())

        return keys


class _Completer(Completer):
    """Completes the last word."""

    def __init__(self, complete: Callable[[str], Iterable[tuple[str, str]]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may stand there."""
        text = document.text_before_cursor
        word = text.rpartition(" ")[2].rpartition("\n")[2]
        for whole, meaning in self._complete(text):
            yield Completion(whole, start_position=-len(word), display_meta=meaning)


class _PrivateHistory(FileHistory):
    """A file of the user's own (0600), without secrets."""

    def __init__(self, path: Path, clean: Callable[[str], str]) -> None:
        super().__init__(str(path))
        self._path = path
        self._clean = clean

    def store_string(self, string: str) -> None:
        """Write an entry down; a disk that refuses costs the history, not the chat."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            super().store_string(self._clean(string))
        except OSError:
            return


def history_at(path: Path, clean: Callable[[str], str]) -> History:
    """Return the history that is kept at `path`; `clean` takes secrets out of what is written."""
    return _PrivateHistory(path, clean)


def _answers(keys: Mapping[str, str]) -> KeyBindings:
    """Return key bindings that answer with one key, as long as the line is empty."""
    bindings = KeyBindings()

    def bind(key: str, value: str) -> None:
        @bindings.add(key)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.insert_text(key)
            else:
                event.current_buffer.insert_text(value)
                event.current_buffer.validate_and_handle()

    for key, value in keys.items():
        bind(key, value)

    @bindings.add("c-c")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    return bindings
