"""The command `toolcrib`: a table of commands that are loaded when they run, and what every one of them shares.

`toolcrib --help` loads typer and this module only. An error is one paragraph on standard error, without a traceback;
its exit status comes from the one table in `errors.CODES`.
"""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeGuard

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_command_from_info, get_group
from typer.models import CommandInfo

from ..core.entry_points import COMMANDS as GROUP
from ..core.entry_points import installed, origin_of, summary_of
from ..core.exceptions import innermost, reason_of
from ..daemon.caller import LeftToCaller
from ..errors import CODES, ToolcribError, ToolFailure, UsageError
from ..system.memory import without_collection
from .actions import Command, WholeHelp, styled

SECTIONS: Final[Mapping[str, str]] = {
    "overview": "Start, and clients",
    "serve": "Gateway and servers",
    "tools": "Tools",
    "policy": "Permissions",
    "jobs": "Background, results and records",
}
"""The headings of `--help`, by the command that each stands above; guests have one of their own."""
_GUESTS: Final = "Agents and projects"
_DISTRIBUTION: Final = "toolcrib"

_EXIT_TEXT: Final = {
    0: "done",
    1: "the tool answered that it failed",
    2: "wrong usage or configuration",
    130: "interrupted",
}


class CommandModule(NamedTuple):
    """Module of a command in `cli.commands`, and the command's line in `--help`."""

    name: str
    summary: str

    def load(self) -> Any:
        """Return the module, imported."""
        return import_module(f"{__package__}.commands.{self.name}")


COMMANDS: Final[Mapping[str, CommandModule]] = {
    "overview": CommandModule("overview", "Show clients, servers, tokens a turn, and what there is to do."),
    "demo": CommandModule("demo", "Show the gateway at work on sample servers."),
    "import": CommandModule("import_servers", "Take over the servers that your clients are configured with."),
    "connect": CommandModule("connect", "Put Toolcrib into a client's configuration."),
    "disconnect": CommandModule("disconnect", "Put a client's configuration back as it was."),
    "uninstall": CommandModule("uninstall", "Disconnect every client and remove what Toolcrib keeps."),
    "doctor": CommandModule("doctor", "Check configuration, servers, store and machine."),
    "serve": CommandModule("serve", "Serve all tools to MCP clients, over stdio or HTTP."),
    "console": CommandModule("console", "Show servers, approvals, calls, tools and jobs in your browser."),
    "daemon": CommandModule("daemon", "Show, end or follow the local daemons that stdio clients share."),
    "add": CommandModule("servers", "Add a server or an API to your configuration and list its tools."),
    "remove": CommandModule("servers", "Remove a server or an API from your configuration."),
    "login": CommandModule("login", "Log in to a remote server with your browser."),
    "logout": CommandModule("login", "Forget the login to a remote server."),
    "secret": CommandModule("login", "List the secrets kept for your configuration; set or remove one."),
    "tools": CommandModule("catalog", "List every tool, where it comes from and what it costs."),
    "find": CommandModule("catalog", "Search the tools for what you want to do."),
    "show": CommandModule("catalog", "Show one tool: definition, signature, example, state."),
    "why": CommandModule("policy", "Say whether a tool can be called here and, if not, what stops it."),
    "compare": CommandModule("compare", "Compare the profiles on your own tools: what each costs a model."),
    "call": CommandModule("call", "Run one tool."),
    "profile": CommandModule("profile", "List, show or check profiles: how tools are shown."),
    "plugins": CommandModule("plugins", "List the plugins: what loaded, from where, and what did not."),
    "plugin": CommandModule("plugins", "Write a new plugin, with its tests."),
    "policy": CommandModule("policy", "Try the rules on a command or a call, list them, take over Claude Code's."),
    "guard": CommandModule(
        "guard",
        "Switch the strict checks behind connected clients on or off; show what asks, and marked files.",
    ),
    "accept": CommandModule("reviews", "Accept the definitions of servers as reviewed."),
    "lock": CommandModule("reviews", "Lock what is reviewed in a file, or check what there is against it."),
    "trust": CommandModule("reviews", "Confirm the configuration that a project brings."),
    "approvals": CommandModule("approvals", "List the calls that wait for a yes, and answer them."),
    "hook": CommandModule("hook", "Answer a hook of Claude Code: may this tool run?"),
    "pending": CommandModule(
        "pending_changes", "List the changes of files that wait for review; accept or reject them."
    ),
    "shadow": CommandModule("pending_changes", "List the worktrees of tasks; show, merge or discard one."),
    "jobs": CommandModule("jobs", "List what runs in the background; show one, its result, cancel it."),
    "schedule": CommandModule("schedule", "List the calls that are made later; add, pause, run or cancel one."),
    "worker": CommandModule("worker", "Carry out background jobs and fire schedules of a shared store."),
    "results": CommandModule("results", "List the long results that are kept; show one, search it, remove it."),
    "log": CommandModule("log", "Show the calls that were made."),
    "version": CommandModule("version", "Print the version."),
}
"""Every command of our own, in the order of `--help`; those of guests follow."""

_OF_DISK: Final = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS)

_OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "overview": ("status", "servers", "clients", "config"),
    "connect": ("install", "init", "setup"),
    "disconnect": ("undo", "restore", "revert", "reset"),
    "doctor": ("check", "test", "diagnose"),
    "serve": ("start", "mcp", "gateway"),
    "console": ("ui", "web", "dashboard"),
    "daemon": ("stop", "restart", "ps"),
    "remove": ("rm", "delete"),
    "tools": ("list", "ls"),
    "find": ("search",),
    "show": ("info", "describe", "inspect"),
    "why": ("explain",),
    "compare": ("bench", "benchmark"),
    "call": ("run", "exec", "invoke"),
    "policy": ("permissions", "rules"),
    "approvals": ("approve", "deny"),
    "log": ("history", "audit", "calls"),
}
"""Words of other programs for our commands, beyond the misspellings that typer knows."""


def exit_status(error: BaseException) -> int:
    """Return the exit status that stands for `error`."""
    if isinstance(error, ToolFailure):
        return CODES[error.code].exit
    if _is_of_disk(error):
        return CODES["storage"].exit
    return 2 if isinstance(error, ToolcribError) else CODES["internal"].exit


class Commands(WholeHelp):
    """The table as a typer group. Helps and completions see stubs; the one command that runs is loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return [*COMMANDS, *_guests()]

    def sections(self, ctx: Any) -> Mapping[str, Sequence[str]]:
        """Return the commands by heading."""
        found: dict[str, list[str]] = {}
        heading = ""
        for name in COMMANDS:
            heading = SECTIONS.get(name, heading)
            found.setdefault(heading, []).append(name)
        guests = [name for name in self.list_commands(ctx) if name not in COMMANDS]
        return {**found, _GUESTS: guests} if guests else found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stub that knows its name and its summary."""
        if known := COMMANDS.get(cmd_name):
            return TyperCommand(cmd_name, help=known.summary)
        guest = _guests().get(cmd_name)
        return TyperCommand(cmd_name, help=summary_of(guest)) if guest else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that `args` name; raises typer's usage error with a suggestion for an unknown one."""
        meant = next((name for name, words in _OTHER_WORDS.items() if args[:1] and args[0] in words), "")
        if meant and args[0] not in self.list_commands(ctx):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        is_known = bool(args) and (args[0] in COMMANDS or args[0] in _guests())
        names = (
            args[:1] if is_known else self.list_commands(ctx)
        )  # all of them for a suggestion: guests' files are read
        self.commands = {name: self.get_command(ctx, name) for name in names}
        name, stub, rest = super().resolve_command(ctx, args)
        if name and name not in COMMANDS:
            from .guest_commands import Terminal  # opens a crib, which our own commands do by themselves

            ctx.obj = Terminal()
        return name, _load(name) if name and stub else None, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of ours becomes a paragraph and an exit status, anything else a short apology."""
        try:
            return super().invoke(ctx)
        except Exception as raised:  # the outermost edge: no caller will see it
            error = innermost(raised)
            if not _is_failure(error):
                raise error from None  # typer knows it without the group of a command that has tasks
            if ctx.params.get("debug"):
                raise
            _tell(error, ctx.meta)
            raise typer.Exit(exit_status(error)) from None


def _load(name: str) -> Any:
    """Build the command of the function or group `name` (`import_` for a word that Python keeps for itself)."""
    if known := COMMANDS.get(name):
        module = known.load()
        found = getattr(module, f"{name}_", None) or getattr(module, name)
    else:
        found = _load_guest(_guests()[name])
    return _build(name, found)


@cache
def _build(name: str, found: Any) -> Any:
    """Build the command of a function or group: ten milliseconds, once in a daemon that runs it again and again."""
    if isinstance(found, typer.Typer):
        return get_group(styled(found))
    info = CommandInfo(name=name, callback=found, cls=Command)
    return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)


def _guests() -> Mapping[str, EntryPoint]:
    """Return the commands of installed packages; one that has the name of a command of ours is left out."""
    return {point.name: point for point in reversed(installed(GROUP)) if point.name not in COMMANDS}


def is_of_another_package(name: str) -> bool:
    """Return whether a command is a guest's of another distribution than this one."""
    guest = _guests().get(name)
    return guest is not None and (guest.dist is None or guest.dist.name != _DISTRIBUTION)


def _load_guest(point: EntryPoint) -> Any:
    """Return the function or group of a guest. Raises `UsageError` for one that cannot be loaded."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        reason = f"{reason_of(error)}; correct, update or uninstall the package"
        raise UsageError(f"{origin_of(point)} cannot be loaded: {reason}") from error


def _is_failure(error: BaseException) -> bool:
    """False for what typer or a daemon handles itself: usage errors, exits, a closed pipe, what is left to a caller."""
    passed = typer.Exit | typer.Abort | typer.TyperException | BrokenPipeError | EOFError | LeftToCaller
    return not isinstance(error, passed)


def _is_of_disk(error: BaseException) -> TypeGuard[OSError]:
    """Whether a disk is full, standard output included, or not this user's to read or to write."""
    return isinstance(error, OSError) and error.errno in _OF_DISK


def _tell(error: BaseException, meta: Mapping[str, Any] = MappingProxyType({})) -> None:
    if isinstance(error, ToolFailure):
        text = f"{error.code}: {error.whole}"
    elif isinstance(error, ToolcribError):
        text = str(error)
    elif _is_of_disk(error):
        text = f"storage: {error.filename or 'standard output'}: {error.strerror}"
    else:
        text = f"internal error ({type(error).__name__}: {error}); `toolcrib --debug …` shows where"
    from ..core.own_commands import FILES, file_options, with_files  # a command that works needs them no earlier
    from .output import note

    note(f"toolcrib: {with_files(text, file_options(meta.get(FILES, ())))}")


def _statuses() -> str:
    """The exit statuses for `--help`, made of the table of codes."""
    texts = {status: [text] for status, text in _EXIT_TEXT.items()}
    for code, info in CODES.items():
        if info.exit not in _EXIT_TEXT:
            texts.setdefault(info.exit, []).append(code)
    return "Exit status: " + "; ".join(f"{status} {', '.join(texts[status])}" for status in sorted(texts)) + "."


def _version(wanted: bool) -> None:
    """Alias of `toolcrib version`, as an option."""
    if wanted:
        COMMANDS["version"].load().version()
        raise typer.Exit


app = typer.Typer(cls=Commands, add_completion=True, rich_markup_mode=None, pretty_exceptions_enable=False)
"""The application: `typer.testing.CliRunner` runs it, `main` too."""


@app.callback(epilog=_statuses(), invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
def root(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_version),
) -> None:
    """Any number of tools, one small stable context, one safe way to run them.

    Without a command: one screen of your clients and servers, what they cost, and what there is to do.
    """
    if context.invoked_subcommand is None:
        COMMANDS["overview"].load().overview()


def main() -> None:
    """Run the command line; the console script."""
    if known := COMMANDS.get((*sys.argv[1:], "overview")[0]):
        with without_collection(), suppress(Exception):  # the command itself reports it
            known.load()
        gc.freeze()  # before code of the user's is loaded: the collections at the end took a fifth of a command's CPU
    if sys.argv[1:]:
        get_command(app)(prog_name="toolcrib")
        return
    try:  # without typer, which loads pydantic to run a command: that takes three times as long as the screen
        COMMANDS["overview"].load().overview()
    except BrokenPipeError:  # `toolcrib | head`
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:  # as `Commands.invoke` ends
        if not _is_failure(error):
            raise
        _tell(error)
        sys.exit(exit_status(error))
