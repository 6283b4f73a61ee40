"""Slash commands of a chat: the table of commands and the parser of a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from toolcrib.errors import ToolcribError, ToolFailure, UsageError

from . import commands_set, commands_show, manual_calls
from .chat_session import ChatSession

__all__ = ["COMMANDS", "Command", "complete", "is_command", "run_command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A slash command. `run` raises `ToolcribError` for a request that it refuses."""

    run: Callable[[ChatSession, str], Awaitable[None]]
    takes: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first line of what its function says."""
        return (self.run.__doc__ or "").partition("\n")[0].rstrip(".")


async def _help(chat: ChatSession, rest: str) -> None:
    """Show the commands and the keys."""
    table = Table.grid(padding=(0, 2))
    for name, command in COMMANDS.items():
        words = Text.assemble((f"/{name}", "bold cyan"), (f" {command.takes}" if command.takes else "", "dim"))
        table.add_row(words, command.summary)
    chat.screen.say(table)
    chat.screen.gap()
    keys = Table.grid(padding=(0, 2))
    for key, meaning in _KEYS.items():
        keys.add_row(Text(key, style="bold"), meaning)
    chat.screen.say(keys)


COMMANDS: Final[Mapping[str, Command]] = {
    "tools": Command(run=commands_show.tools, takes="[WORD]"),
    "find": Command(run=commands_show.find, takes="WHAT"),
    "describe": Command(run=commands_show.describe_tool, takes="TOOL"),
    "call": Command(run=manual_calls.call, takes="TOOL name=value …"),
    "why": Command(run=commands_show.why, takes="[TOOL name=value …]"),
    "show": Command(run=commands_show.show, takes="[NUMBER]"),
    "context": Command(run=commands_show.context, takes="[anthropic|openai|mcp]"),
    "mode": Command(run=commands_set.mode, takes="[MODE]"),
    "profile": Command(run=commands_set.profile, takes="[PROFILE]"),
    "model": Command(run=commands_set.model, takes="[PROVIDER:NAME]"),
    "approve": Command(run=commands_set.approve, takes="[ID ANSWER]"),
    "undo": Command(run=commands_set.undo, takes="[PATH]"),
    "pending": Command(run=commands_set.pending),
    "diff": Command(run=commands_show.diff, takes="[PATH]"),
    "accept": Command(run=commands_set.accept, takes="[PATH …]"),
    "reject": Command(run=commands_set.reject, takes="[PATH …]"),
    "cost": Command(run=commands_show.cost),
    "compact": Command(run=commands_set.compact),
    "history": Command(run=commands_show.history, takes="[all]"),
    "resume": Command(run=commands_set.resume, takes="ID"),
    "new": Command(run=commands_set.new, aliases=("clear",)),
    "help": Command(run=_help, aliases=("?",)),
    "quit": Command(run=commands_set.leave, aliases=("exit", "q")),
}
"""Commands by word, in the order of `/help`."""

_KEYS: Final[Mapping[str, str]] = {
    "Shift-Tab": "the next mode, also while the model works",
    "Alt-Enter": "a new line (also Ctrl-J, or \\ before Enter)",
    "Esc, Ctrl-C": "interrupt the model; Ctrl-C twice leaves",
    "Ctrl-R": "search what was typed before",
    "@": "names a file of this folder",
    "typing": "while the model works: sent when it is done",
}
_BY_WORD: Final = {word: one for name, one in COMMANDS.items() for word in (name, *one.aliases)}
_BARE: Final = ("call",)
"""Words that need no slash: with no model to talk to, `call TOOL …` is what one types all the time."""
_TAKE_TOOLS: Final = ("call", "describe", "why")
_FILES: Final = 50
"""Maximum number of files offered as completions."""


def is_command(line: str, *, has_model: bool) -> bool:
    """True if a line is for the chat and not for the model."""
    word = line.lstrip().partition(" ")[0]
    if word.startswith("/"):
        return "/" not in word[1:]  # a path is something to talk about
    return not has_model and word in (*_BARE, *COMMANDS)


async def run_command(chat: ChatSession, line: str) -> None:
    """Run the command of `line`; a failure is shown and the chat goes on."""
    word, _, rest = line.strip().removeprefix("/").partition(" ")
    command = _BY_WORD.get(word.lower())
    try:
        if command is None:
            near = get_close_matches(word, _BY_WORD, n=1)
            raise UsageError(f"there is no /{word}" + (f"; did you mean /{near[0]}?" if near else "; /help lists all"))
        await command.run(chat, rest.strip())
    except ToolFailure as failure:
        chat.screen.fail(f"{failure.code}: {failure.message}", failure.hint)
    except ToolcribError as error:
        chat.screen.fail(str(error))


def complete(chat: ChatSession, text: str) -> Iterator[tuple[str, str]]:
    """Yield what may stand in place of the last word of `text`, and what it means."""
    if text.startswith("/") and " " not in text:
        for name, command in COMMANDS.items():
            if f"/{name}".startswith(text):
                yield f"/{name}", command.summary
        return
    word = text.rpartition(" ")[2].rpartition("\n")[2]
    if word.startswith("@"):
        yield from _files(chat, word[1:])
        return
    command, _, rest = text.removeprefix("/").partition(" ")
    if command not in COMMANDS or not (text.startswith("/") or chat.choice is None) or " " in rest:
        return
    for name, meaning in _values(chat, command):
        if name.startswith(rest):
            yield name, meaning


def _files(chat: ChatSession, begun: str) -> Iterator[tuple[str, str]]:
    """Yield the files of the folder that a path may go on with; hidden ones where the dot is typed."""
    folder, _, name = begun.rpartition("/")
    try:
        found = sorted(Path(chat.saved.folder, folder).iterdir())
    except (OSError, ValueError):
        return
    fitting = (one for one in found if one.name.startswith(name) and (name or not one.name.startswith(".")))
    for one in list(fitting)[:_FILES]:
        is_folder = one.is_dir()
        path = f"{folder}/{one.name}" if folder else one.name
        yield f"@{path}/" if is_folder else f"@{path}", "folder" if is_folder else ""


def _values(chat_session: ChatSession, command: str) -> Iterable[tuple[str, str]]:
    if command in _TAKE_TOOLS:
        verbs = [tool for tool in chat_session.session.tools if chat_session.session.scene.find(tool.name) is None]
        return ((tool.name, tool.summary) for tool in (*chat_session.session.scene.offered(), *verbs))
    if command == "mode":
        return ((name, "") for name in chat_session.settings.policy.modes)
    if command == "profile":
        return ((name, one.description) for name, one in chat_session.crib.profiles.items())
    if command == "resume":
        return ((chat.id, chat.title) for chat in chat_session.chats.all(chat_session.saved.folder)[:20])
    return ()
