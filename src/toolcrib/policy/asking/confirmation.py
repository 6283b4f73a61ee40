"""The word that a person types at a terminal to approve a destructive call: one key could be a slip."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from ...core.hidden_characters import is_hidden
from ...core.permission import Verdict
from ..shell.grammar import read_script

__all__ = ["confirmation_word"]

_IRRECOVERABLE: Final = re.compile(r"irrecoverable: (\w+)(?:[ -].*)? asks in every mode")
"""The rule that `policy.decision` names for such a command; the affected data begins with the command word."""
_UNREADABLE: Final = frozenset({"a", "commands"})
"""First words of an irrecoverable command that could not be read: it has no command word."""
_COMMANDS: Final = ("command", "cmd")
_SEPARATOR: Final = re.compile(r"__|[./:]")
_WORD: Final = re.compile(r"[\w+-]{2,40}")
_ANSWERS: Final = frozenset({*get_args(Verdict), "details"})
"""Words that are answers themselves."""
_FALLBACK: Final = "confirm"


def confirmation_word(tool: str, kind: str, rule: str, arguments: Mapping[str, Any]) -> str:
    """Return the word that approves a call, or nothing where one key does.

    A call of the kind `destructive` and an irrecoverable command need a word: the command word of a shell command
    (`rm`), else the last segment of the tool's name (`delete_note` of `notes__delete_note`). A command that the model
    chose cannot make the word a single key or another answer.
    """
    irrecoverable = rule.startswith("irrecoverable: ")
    if kind != "destructive" and not irrecoverable:
        return ""
    lost = _IRRECOVERABLE.fullmatch(rule)
    words = [lost[1].lower()] if lost is not None and lost[1] not in _UNREADABLE else []
    if not irrecoverable:
        texts = (arguments.get(name) for name in _COMMANDS)
        words += [_command_word(text) for text in texts if isinstance(text, str)]
    words += [_SEPARATOR.split(tool)[-1], tool]
    return next((word for word in words if _can_be_typed(word)), _FALLBACK)


def _command_word(text: str) -> str:
    """Return the program of the first command; empty when only the shell will know it."""
    return next((command.name for command in read_script(text).commands), "")


def _can_be_typed(word: str) -> bool:
    plain = word.isascii() and _WORD.fullmatch(word) is not None and not any(map(is_hidden, word))
    return plain and word.lower() not in _ANSWERS
