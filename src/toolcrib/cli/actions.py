"""Commands with actions: `toolcrib results show` is a sub-command with arguments, options and help of its own.

The module of such a command has a group in the place of a function: `results = action_group("…", default="list")`, and
each action is a function under `@results.command("show")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ..core.similar import unknown_name

_SENTENCE: Final = 300
"""Characters of a command's first sentence in a list of commands."""


def action_group(help: str, *, default: str = "", takes_words: bool = False) -> typer.Typer:
    """Return a group of actions.

    `default` is the action of a command line without one; the group's help is shown if there is no default.
    `takes_words` gives it unknown words too, as its arguments: `toolcrib log TOOL`.
    """
    if default:
        help += f"\n\nWithout an action: `{default}`. `ACTION --help` shows the options of one."
    kind = type("Actions", (Actions,), {"default": default, "takes_words": takes_words})
    return typer.Typer(
        cls=kind,
        help=help,
        no_args_is_help=not default,
        subcommand_metavar="[ACTION] [ARGS]..." if default else "ACTION [ARGS]...",
        rich_markup_mode=None,
    )


class Command(TyperCommand):
    """A command whose help names arguments and values by words: `TOOL`, `[CLIENT …]`, `--mode TEXT`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _name_values(self.params)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: an argument that may be left out stands in brackets."""
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        words = [(_word_of(param), param.required) for param in arguments]
        return ["[OPTIONS]", *(word if required or word.startswith("[") else f"[{word}]" for word, required in words)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options with their explanations."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and param.param_type_name == "argument":
                sections["Arguments"].append((_word_of(param), record[1]))
            elif record is not None:
                sections["Options"].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _name_values(params: Iterable[Any]) -> None:
    """Give the arguments and options that have none a word for their value."""
    for param in params:
        if param.metavar is None and param.param_type_name == "argument":
            param.metavar = str(param.name).upper()
        elif param.metavar is None and not getattr(param, "is_flag", False):
            param.metavar = _value_of(param)


def _word_of(param: Any) -> str:
    return f"{param.metavar} …" if param.nargs != 1 and "…" not in param.metavar else str(param.metavar)


def _value_of(param: Any) -> str | None:
    """Return the word for the value of an option; None where its choices are shown."""
    kind = param.type_descriptor
    if kind.is_choice:
        return None
    return "PATH" if kind.is_path else "NUMBER" if kind.is_ranged or kind.annotation in (int, float) else "TEXT"


def styled(group: typer.Typer) -> typer.Typer:
    """Return a group, perhaps a guest's, whose help is like that of ours."""
    for info in group.registered_commands:
        info.cls = Command if info.cls in (None, TyperCommand) else info.cls
    kind: Any = group.info.cls
    if getattr(kind, "value", kind) in (None, TyperGroup):
        group.info.cls = WholeHelp
    return group


class WholeHelp(TyperGroup):
    """A group whose help shows the first sentence of each command whole; the base class cuts it to one line."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _name_values(self.params)

    def sections(self, ctx: Any) -> Mapping[str, Sequence[str]]:
        """Return the names of the commands by heading."""
        return {"Actions": self.list_commands(ctx)}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and first sentences of the commands, in lines of the terminal's width."""
        for heading, names in self.sections(ctx).items():
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, command.get_short_help_str(_SENTENCE)) for name, command in commands.items() if command]
                )


class Actions(WholeHelp):
    """A group whose action may stand behind its options, and may be left out if there is a default."""

    default: ClassVar[str] = ""
    takes_words: ClassVar[bool] = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the action first."""
        return super().parse_args(ctx, self._with_action(args, ctx.help_option_names))

    def _with_action(self, args: list[str], help_names: list[str]) -> list[str]:
        """Return `args` with the action first; unchanged where only an error or the help can come of them."""
        place = self._first_word(args)
        word = args[place] if place < len(args) else ""
        if word in self.commands:
            return [word, *args[:place], *args[place + 1 :]]
        if self.default and args[:1] not in ([name] for name in help_names):
            is_missing = not word or word.startswith("-") or self.takes_words
            return [self.default, *args] if is_missing else args[place:]
        return args

    def _first_word(self, args: list[str]) -> int:
        """Return the place of the first word that is neither an option of an action nor an option's value."""
        options = {
            name: not getattr(option, "is_flag", False)
            for action in self.commands.values()
            for option in action.params
            if option.param_type_name == "option"
            for name in (*option.opts, *option.secondary_opts)
        }
        place = 0
        while place < len(args):
            name, equals, _ = args[place].partition("=")
            if name not in options:
                break
            place += 2 if options[name] and not equals else 1
        return place

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the action. Raises typer's usage error, with the actions there are, for an unknown one."""
        if args[0] not in self.commands:
            ctx.fail(unknown_name("action", args[0], self.commands))
        return super().resolve_command(ctx, args)
