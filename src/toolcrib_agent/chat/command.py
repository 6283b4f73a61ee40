"""`toolcrib chat`: an agent in the terminal, on the current folder."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer

from toolcrib.cli.keyboard import typing_ahead
from toolcrib.cli.options import ConfigFiles, settings_of
from toolcrib.config import Settings
from toolcrib.errors import UsageError
from toolcrib.results.redact import Redactor

from .print_mode import Format, run_script, with_context
from .saved_chats import Chats
from .screen import console_for
from .setup import ChatOptions, converse, for_folder, has_keys, open_chat, with_signals
from .welcome import without_model

__all__ = ["chat"]

_PIPED: Final = 4 << 20
"""Characters of standard input that go along with a prompt."""
_INTERRUPTED: Final = 130


def chat(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORDS …]", help="What to say first; after --resume, the ID first.")
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", metavar="TEXT", help="Answer this prompt and exit, without questions.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="PROVIDER:NAME", help="Or local:NAME@URL; else one is looked for.")
    ] = "",
    mode: Annotated[str, typer.Option("--mode", help="cautious, autonomous, plan, review … or your own.")] = "",
    profile: Annotated[str, typer.Option("--profile", help="How the tools are shown to the model.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a conversation: ID, or one of a list.")] = False,
    goes_on: Annotated[bool, typer.Option("--continue", help="Go on with the newest one of this folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With -p: print one JSON object.")] = False,
    events: Annotated[bool, typer.Option("--events", help="With -p: print a JSON line for every event.")] = False,
    config: ConfigFiles = None,
) -> None:
    """Talk to a model that works with all your tools on the current folder. /help lists what you can type there.

    With -p it ends with 0 for an answer, 6 at a limit, 7 when the model cannot be reached; standard input goes along.
    """
    if (as_json or events) and not prompt:
        raise UsageError("--json and --events are for -p TEXT")
    settings = for_folder(settings_of(config), Path.cwd(), asks=not prompt)
    arguments = list(words or ())
    if resume and not arguments:
        raise UsageError(f"which? toolcrib chat --resume ID{_newest(settings)}")
    id = arguments.pop(0) if resume else ""
    wanted = ChatOptions(model=model, mode=mode, profile=profile, goes_on=goes_on, resume=id)
    if not prompt:
        with typing_ahead() if has_keys(settings) else nullcontext():
            anyio.run(_chat, settings, wanted, " ".join(arguments))
        return
    if arguments:
        raise UsageError(f"-p has the prompt: {arguments[0]!r} has no place beside it")
    format: Format = "events" if events else "json" if as_json else "text"
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read(_PIPED)
    status = anyio.run(_script, settings, wanted, with_context(prompt, piped), format)
    if status:
        raise typer.Exit(status)


async def _chat(settings: Settings, wanted: ChatOptions, first: str) -> None:
    async with open_chat(settings, wanted, console_for()) as chat:
        await converse(chat, first)


async def _script(settings: Settings, wanted: ChatOptions, prompt: str, format: Format) -> int:
    """Answer one prompt; return the exit status."""
    status = [_INTERRUPTED]
    async with open_chat(settings, wanted, console_for(sys.stderr), asks=False) as chat:
        if chat.choice is None:
            raise UsageError(without_model())
        await chat.crib.tools.wait_ready(settings.sources.ready_timeout)

        async def main() -> None:
            status[0] = await run_script(chat, prompt, format)

        await with_signals(lambda: chat.interrupt(), main)
    return status[0]


def _newest(settings: Settings) -> str:
    """List the saved conversations, for `--resume` without an id."""
    newest = Chats(settings, Redactor(())).all()[:10]
    lines = (f"\n  {chat.id}  {chat.title}  ({chat.folder})" for chat in newest)
    return f"; the newest are{''.join(lines)}" if newest else "; none was saved yet"
