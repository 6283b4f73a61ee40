"""Commands with actions: `toolcrib results show` is a sub-command with arguments, options and help of its own.

The module of such a command has a group in the place of a function: `results = action_group("…", default="list")`, and
each action is a function under `@results.command("show")`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperGroup

__all__ = ["Actions", "WholeHelp", "action_group"]

_SENTENCE: Final = 300
"""Characters of a command's first sentence in a list of commands."""


def action_group(help: str, *, default: str = "", takes_words: bool = False) -> typer.Typer:
    """Return a group of actions.

    `default` is the action of a command line without one; the group's help is shown where there is no default.
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


class WholeHelp(TyperGroup):
    """A group whose help shows the first sentence of each command whole; the base class cuts it to one line."""

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
    """A group whose action may stand behind its options, and may be left out where there is a default."""

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
            close = get_close_matches(args[0], self.commands)
            hint = f"Did you mean {close[0]!r}?" if close else f"Actions: {', '.join(self.commands)}."
            ctx.fail(f"No such action {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)
