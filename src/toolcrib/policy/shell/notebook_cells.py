"""Cells of a notebook as the shell commands that they run, so that rules for commands cover them, too.

A cell is the command `python3 -c CODE`, together with every command that it passes to a shell: `!command`, `%sx
command`, a `%%bash` cell, the aliases that IPython accepts without a sign (`rm x`), and the texts passed to `os.system`
and `subprocess`. False positives are accepted; text that a program builds at run time is not seen.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...core.tool import Tool

__all__ = ["CellArguments", "as_cell", "is_cell"]

_CATEGORY: Final = "notebook"
_CODE: Final = "code"
_ALIASES: Final = frozenset({"cp", "mkdir", "mv", "rm", "rmdir"})
"""Commands that IPython runs without a sign, and that change something."""
_MAGIC: Final = re.compile(r"(?:^|=)\s*%(?:sx|system)\b(.*)")
_WHOLE: Final = re.compile(r"\s*%%(?:!|(?:bash|cmd|ksh|script|sh|sx|system|zsh)\b)(.*)")
_CALLED: Final = re.compile(
    r"\b(?:Popen|call|check_call|check_output|create_subprocess_(?:exec|shell)|getoutput|getstatusoutput|popen|run|system)"
    r"\(\s{0,40}(?:args\s{0,4}=\s{0,4})?"
    r"(\[[^\]]{0,4000}\]|[bfruBFRU]{0,2}(?:\"{3}.{0,4000}?\"{3}|'{3}.{0,4000}?'{3}"
    r"|'[^'\n]{0,4000}'|\"[^\"\n]{0,4000}\"))",
    re.DOTALL,
)
"""A function that runs a program, with its first argument: a text, or a list of them."""
_TEXT: Final = re.compile(r"\"{3}(.*?)\"{3}|'{3}(.*?)'{3}|'([^'\n]*)'|\"([^\"\n]*)\"", re.DOTALL)


class CellArguments(dict[str, Any]):
    """Arguments of a call that runs a cell: the original ones, and the shell commands in them."""

    def __init__(self, arguments: Mapping[str, Any], commands: tuple[str, ...]) -> None:
        """`commands` are shell texts."""
        super().__init__(arguments)
        self.commands = commands


def is_cell(tool: Tool) -> bool:
    """Whether a tool of this machine runs cells."""
    return tool.origin == "python" and tool.category == _CATEGORY and _CODE in tool.input_schema.get("properties", {})


def as_cell(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call as rules for commands are to see them; those of other tools as they are."""
    code = arguments.get(_CODE)
    if not isinstance(code, str) or isinstance(arguments, CellArguments) or not is_cell(tool):
        return arguments
    return CellArguments(arguments, (shlex.join(["python3", "-c", code]), *dict.fromkeys(_commands(code))))


def _commands(code: str) -> Iterator[str]:
    """Yield the shell commands of the cell."""
    lines = code.replace("\\\n", " ").splitlines()
    for place, line in enumerate(lines):
        yield from _in_line(line)
        if whole := _WHOLE.match(line):
            yield whole[1]
            yield "\n".join(lines[place + 1 :])
            break
    for called in _CALLED.finditer(code):
        words = ["".join(parts) for parts in _TEXT.findall(called[1])]
        yield shlex.join(words) if called[1].startswith("[") else words[0]


def _in_line(line: str) -> Iterator[str]:
    before, sign, command = line.partition("!")
    if sign and (not before.strip() or before.rstrip().endswith("=") or before.lstrip().startswith("%")):
        yield command.lstrip("!")
    if magic := _MAGIC.search(line):
        yield magic[1]
    words = line.split(maxsplit=1)
    if len(words) > 1 and words[0].removeprefix("%") in _ALIASES:
        yield line.strip().removeprefix("%")
