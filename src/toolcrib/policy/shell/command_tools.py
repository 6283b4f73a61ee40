"""Tools that run shell commands, and their arguments that are commands; notebook cells as commands.

A cell is the command `python3 -c CODE`, together with every command that it passes to a shell: `!command`, `%sx
command`, a `%%bash` cell, the aliases that IPython accepts without a sign (`rm x`), and the texts passed to `os.system`
and `subprocess`. False positives are accepted; text that a program builds at run time is not seen.

`CallArguments` wrap the arguments while rules look at them. What is read from files for one rule is there for the next,
and the event loop finds what a thread has read before.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ...core.patterns import regex
from ...core.tool import Tool
from .script import Script

if TYPE_CHECKING:  # loaded with the first command, as the grammar is
    from .started_file import StartedFile

_NOTEBOOK_CATEGORY: Final = "notebook"
_CODE_ARGUMENT: Final = "code"
_IPYTHON_ALIASES: Final = frozenset({"cp", "mkdir", "mv", "rm", "rmdir"})
"""Commands that IPython runs without a sign, and that change something."""
_LINE_MAGIC: Final = regex(r"(?:^|=)\s*%(?:sx|system)\b(.*)")
_RUN_MAGIC: Final = regex(r"%run\b(?:[ \t]+-\w+)*[ \t]+(\S.*)|magic\(\s{0,9}[\"']run[\"'],\s{0,9}[\"']([^\"'\n]+)")
"""A file of code that IPython runs."""
_CELL_MAGIC: Final = regex(r"\s*%%(?:!|(?:bash|cmd|ksh|script|sh|sx|system|zsh)\b)(.*)")
_PROGRAM_CALL: Final = regex(
    r"\b(?:Popen|call|check_call|check_output|create_subprocess_(?:exec|shell)|getoutput|getstatusoutput|popen|run|system)"
    r"\(\s{0,40}(?:args\s{0,4}=\s{0,4})?"
    r"(\[[^\]]{0,4000}\]|[bfruBFRU]{0,2}(?:\"{3}.{0,4000}?\"{3}|'{3}.{0,4000}?'{3}"
    r"|'[^'\n]{0,4000}'|\"[^\"\n]{0,4000}\"))",
    re.DOTALL,
)
"""A function that runs a program, with its first argument: a text, or a list of them."""
_PYTHON_STRING: Final = regex(r"\"{3}(.*?)\"{3}|'{3}(.*?)'{3}|'([^'\n]*)'|\"([^\"\n]*)\"", re.DOTALL)

_SHELL_TAGS: Final = frozenset({"shell", "bash", "terminal"})
"""Tags and categories of tools whose arguments are commands."""
_BASH: Final = "Bash"
_TEXT_ARGUMENTS: Final = frozenset({"cmd", "command", "code", "input", "script"})
_COMMAND_ARGUMENTS: Final = _TEXT_ARGUMENTS | {"args", "argv", "commands"}
_CONTEXT_ARGUMENTS: Final = frozenset({"env", "environment", "executable", "shell", "stdin"})
"""Arguments that change the meaning of a command."""
_HANDLE_ARGUMENTS: Final = frozenset({"command_id", "session_id"})
"""Arguments that name a process which runs already, as every call that started it was decided on."""
_ARGUMENTS_BESIDE_HANDLES: Final = frozenset({"background", "key", "timeout", "working_dir"})
_SHELL_CHARACTER: Final = regex(r"[\s;&|<>()$`'\"\\]")


class CallArguments(dict[str, Any]):
    """Arguments of one call while rules look at them, with the files that its commands run and what rules found there.

    Both are kept: a decision in the event loop reads no file that was read for it in a thread.

    Made for one decision; `Policy.read` makes it in advance where files are to be read in a thread.
    """

    def __init__(self, arguments: Mapping[str, Any], shell_folder: Path | None = None) -> None:
        """`arguments` are those of the tool, `shell_folder` is the folder of a shell that stays."""
        super().__init__(arguments)
        self.shell_folder = shell_folder
        self.answers: dict[tuple[str, Path], bool | None] = {}
        """Pattern and folder → whether it matches."""
        self.started: dict[Path, Sequence[StartedFile]] = {}
        """Folder → files that the commands run from there."""

    def started_in(self, cwd: Path) -> Sequence[StartedFile]:
        """Return the files of the workspace that the commands run; `cwd` is the base of relative folders."""
        if cwd not in self.started:
            from .workspace_scripts import started_files  # many tables of programs: of calls with a command alone

            self.started[cwd] = tuple(started_files(scripts_of(self), folders_of(self, cwd)))
        return self.started[cwd]


class CellArguments(CallArguments):
    """Arguments of a call that runs a cell: the original ones, and the shell commands in them."""

    def __init__(self, arguments: Mapping[str, Any], commands: tuple[str, ...]) -> None:
        """`commands` are shell texts."""
        super().__init__(arguments)
        self.commands = commands


def is_cell(tool: Tool) -> bool:
    """Whether a tool of this machine runs cells."""
    return (
        tool.origin == "python"
        and tool.category == _NOTEBOOK_CATEGORY
        and _CODE_ARGUMENT in tool.input_schema.get("properties", {})
    )


def as_cell(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call as rules for commands are to see them; those of other tools as they are."""
    code = arguments.get(_CODE_ARGUMENT)
    if not isinstance(code, str) or isinstance(arguments, CellArguments) or not is_cell(tool):
        return arguments
    return CellArguments(arguments, (shlex.join(["python3", "-c", code]), *dict.fromkeys(_commands_of_cell(code))))


def _commands_of_cell(code: str) -> Iterator[str]:
    """Yield the shell commands of the cell."""
    lines = code.replace("\\\n", " ").splitlines()
    for place, line in enumerate(lines):
        yield from _commands_of_line(line)
        if whole := _CELL_MAGIC.match(line):
            yield whole[1]
            yield "\n".join(lines[place + 1 :])
            break
    for called in _PROGRAM_CALL.finditer(code):
        words = ["".join(parts) for parts in _PYTHON_STRING.findall(called[1])]
        yield shlex.join(words) if called[1].startswith("[") else words[0]


def _commands_of_line(line: str) -> Iterator[str]:
    before, sign, command = line.partition("!")
    if sign and (not before.strip() or before.rstrip().endswith("=") or before.lstrip().startswith("%")):
        yield command.lstrip("!")
    if magic := _LINE_MAGIC.search(line):
        yield magic[1]
    if run := _RUN_MAGIC.search(line):
        yield f"python3 {run[1] or run[2]}"
    words = line.split(maxsplit=1)
    if len(words) > 1 and words[0].removeprefix("%") in _IPYTHON_ALIASES:
        yield line.strip().removeprefix("%")


@lru_cache(maxsize=4096)
def runs_shell(tool: Tool) -> bool:
    """Whether rules for `Bash` cover this tool: by name, alias, category or tag.

    A built-in tool that takes only the name of a running process, or lists processes, starts none.

    Kept by definition. It decides which tools the rules `Bash(…)`, the check of destructive commands and the reading of
    files concern at all.
    """
    taken = tool.input_schema.get("properties", {}).keys()
    is_after = "session_id" in taken or (not taken and tool.kind == "read")
    if tool.origin == "python" and is_after and taken <= _HANDLE_ARGUMENTS | {"timeout"}:
        return False
    if tool.category.lower() in _SHELL_TAGS or any(tag.lower() in _SHELL_TAGS for tag in tool.tags):
        return True
    return is_cell(tool) or _BASH in (tool.name, tool.local_name, *tool.aliases)


def folders_of(arguments: Mapping[str, Any], cwd: Path) -> tuple[Path, ...]:
    """Return the folders in which the command of a call may run: the one that it names, else `cwd` and the shell's."""
    named = str(arguments.get("working_dir") or arguments.get("cwd") or "")
    kept = arguments.shell_folder if isinstance(arguments, CallArguments) else None
    return (cwd / named,) if named or kept is None else (cwd, kept)


def scripts_of(arguments: Mapping[str, Any]) -> tuple[Script, ...]:
    """Return every reading of the commands that these arguments run; empty without a text among them.

    A null or empty argument counts as missing. If no argument is known to be the command, each text may be it.

    All readings count: a deny holds if it holds for one of them, an allow must cover every command of all.
    """
    from .grammar import read_script  # as above

    if isinstance(arguments, CellArguments):
        return tuple(map(read_script, arguments.commands))
    if is_handle(arguments):
        return (Script(),)
    found: list[Script] = []
    command, rest = arguments.get("command"), _words(arguments.get("args"))
    for name, value in arguments.items():
        known = name.lower()
        if value is None or value == "":
            continue
        if known in _CONTEXT_ARGUMENTS and value not in ({}, []):
            found.append(Script(doubts=(f"the argument {name}, which changes the command's effect",)))
        elif known not in _COMMAND_ARGUMENTS or (known == "args" and isinstance(command, str) and rest is not None):
            continue
        elif isinstance(value, str):
            text = f"{value} {shlex.join(rest)}" if rest is not None and name == "command" else value
            found.append(read_script(text))
        else:
            found += _scripts_of_list(value, several=known == "commands")
    if not found:
        found = [read_script(value) for value in arguments.values() if isinstance(value, str)]
        found += [Script(doubts=("no argument is known to be the command",))] if found else []
    return tuple(found)


def texts_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the shell texts among the arguments as they were given; notebook cells excluded."""
    if isinstance(arguments, CellArguments):
        return ()
    return tuple(
        value.strip() for name, value in arguments.items() if name.lower() in _TEXT_ARGUMENTS and isinstance(value, str)
    )


def is_handle(arguments: Mapping[str, Any]) -> bool:
    """Whether these arguments of a shell tool name a process that runs already, and nothing to run."""
    present = {name for name, value in arguments.items() if value not in (None, "", False)}
    return not present.isdisjoint(_HANDLE_ARGUMENTS) and present <= _HANDLE_ARGUMENTS | _ARGUMENTS_BESIDE_HANDLES


def _words(value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    return tuple(str(item) for item in cast("Sequence[object]", value))


def _scripts_of_list(value: Any, *, several: bool) -> Iterator[Script]:
    """Read a list: the words of one command, or several commands if the argument is declared so."""
    from .grammar import read_argv, read_script  # as above

    words = _words(value)
    if words is None:
        yield Script(doubts=("a command that is neither a text nor a list of words",))
    elif several:
        yield from (read_script(word) for word in words)
    else:
        yield read_argv(words)
        if words and _SHELL_CHARACTER.search(words[0]):
            yield read_script(words[0])
