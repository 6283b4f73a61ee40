"""Calls that the user types: `call TOOL name=value …`, decided and logged like the model's."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping
from io import StringIO
from typing import Any, Final

from toolcrib.cli.call import parse_arguments
from toolcrib.core.result import ToolResult
from toolcrib.errors import UsageError

from .call_view import CallRecord, result_block
from .chat_session import ChatSession

__all__ = ["call", "read_call", "run_call"]

_BEFORE_JSON: Final = re.compile(r"""\s*([^\s='"]+=)(?=[\[{])""")
_JSON: Final = json.JSONDecoder()


def read_call(chat: ChatSession, text: str) -> tuple[str, Mapping[str, Any]]:
    """Return the tool and the arguments of `TOOL name=value name:=JSON …`, or of `TOOL {JSON}`.

    A value is read by what the tool's schema admits; an object or a list needs no quotes. Raises `UsageError` for what
    cannot be read.
    """
    name, _, rest = text.strip().partition(" ")
    if not name:
        raise UsageError("which tool? call TOOL name=value …")
    tool = next((one for one in chat.session.tools if one.name == name), None) or chat.session.scene.find(name)
    if rest.lstrip().startswith("{"):
        return name, parse_arguments((), rest, tool)
    try:
        words = _words(rest)
    except ValueError as error:
        raise UsageError(f"the arguments cannot be read: {error}; quote a value as in a shell") from error
    return name, parse_arguments(words, None, tool)


async def call(chat: ChatSession, rest: str) -> None:
    """Run a tool yourself: TOOL name=value name:=JSON …, or TOOL {JSON}."""
    name, arguments = read_call(chat, rest)
    await run_call(chat, name, arguments)


async def run_call(chat: ChatSession, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Run one call of the session and show what came of it; what must be asked is asked."""
    begun = time.monotonic()
    result = await chat.session.call(name, dict(arguments), origin="chat")
    took = time.monotonic() - begun
    shown = chat.remember(CallRecord(name=name, arguments=arguments, result=result, seconds=took))
    chat.screen.say(result_block(shown))
    return result


def _words(text: str) -> list[str]:
    """Split as a shell does, but leave the quotes within `name={JSON}` and `name=[JSON]`. Raises `ValueError`."""
    words: list[str] = []
    at = 0
    while at < len(text):
        found = _BEFORE_JSON.match(text, at)
        end = _end_of_json(text, found.end()) if found else 0
        if found and end:
            words.append(found[1] + text[found.end() : end])
            at = end
            continue
        stream = StringIO(text[at:])
        lexer = shlex.shlex(stream, posix=True, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, ""
        word = lexer.get_token()
        if word is None:
            break
        words.append(word)
        at += stream.tell()
    return words


def _end_of_json(text: str, begin: int) -> int:
    """Return where the JSON that begins there ends; 0 where it is none, or where more of the word follows."""
    try:
        _, end = _JSON.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return 0
    return end if not text[end : end + 1].strip() else 0
