"""Sandbox interface: how tools run commands, independent of the implementation.

The implementation is bubblewrap, Landlock or Seatbelt where bubblewrap does not work, a container of an image that the
operator names, or none if the operator permits it. A command sees the workspace and the programs of this machine, or of
the image, without home, credentials and, by default, network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Literal, Protocol

from anyio.abc import SocketListener
from msgspec import Struct, field

from .patterns import regex

_GUIDES: Final = regex(
    r"PATH|IFS|ENV|BASH_(?:ENV|CMDS|ALIASES)|BASHOPTS|SHELLOPTS|SHELL|PS[0-4]|PROMPT_COMMAND|CDPATH|GLOBIGNORE|LD_\w+|DYLD_\w+|GIT_\w+"
    r"|PAGER|EDITOR|VISUAL|BROWSER|LESS\w*|MAN\w*|\w*PAGER|\w*EDITOR|PYTHON\w*|PERL\w*|RUBY\w*|NODE_\w*|JAVA_TOOL\w*"
    r"|(?:GNU)?MAKEFLAGS|MAKEFILES|GREP_OPTIONS|RIPGREP_CONFIG_PATH|RSYNC_RSH|CVS_RSH|TAR_OPTIONS|BASH_FUNC\w*"
    r"|HOME|XDG_CONFIG_\w+|ZDOTDIR|INPUTRC|IPYTHONDIR|\w*VIMINIT|EXINIT|MYVIMRC|LUA_(?:INIT|C?PATH)\w*|AWK(?:LIB)?PATH|TCLLIBPATH"
    r"|PHPRC|PHP_INI_SCAN_DIR|GCONV_PATH|OPENSSL_(?:CONF|ENGINES|MODULES)|JAVA_OPTS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|DOTNET_STARTUP_HOOKS"
    r"|CLASSPATH|PIP_CONFIG_FILE|ANSIBLE_CONFIG|CURL_HOME|CORECLR_\w+|COR_PROFILER\w*|\w*ASKPASS|PARALLEL_SHELL|FZF_DEFAULT_\w+|R_PROFILE\w*|R_ENVIRON\w*|GTK_(?:PATH|MODULES)"
    r"|QT_PLUGIN_PATH|GIO_EXTRA_MODULES|npm_config_\w*(?:shell|node_options)\w*"
)
"""Variables that decide what programs execute."""
_HARMLESS: Final = regex(
    r"NODE_ENV|NODE_NO_WARNINGS|NODE_TLS_REJECT_UNAUTHORIZED|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8"
    r"|FAULTHANDLER|DEVMODE|NODEBUGRANGES|TRACEMALLOC|MALLOC|ASYNCIODEBUG|SAFEPATH|NOUSERSITE)"
    r"|GIT_(?:AUTHOR|COMMITTER)_\w+|GIT_(?:TERMINAL_PROMPT|MERGE_AUTOEDIT|OPTIONAL_LOCKS|TRACE\w*|CURL_VERBOSE|ADVICE)|LESSCHARSET"
    r"|MANWIDTH"
)
"""Variables that are named as those are, and say nothing of the kind."""

KEEPS_SHELL: Final = "shell.keep"
"""Key of a session's runtime: its commands share a shell (`shell: {keep: true}`, in a profile or the configuration)."""


SHELL_FOLDER: Final = "shell.folder"
"""Key of a session's runtime: the folder in which the next command of that shell runs; None is the workspace's root."""


class Reach(Struct, frozen=True, kw_only=True):
    """Hosts that a command reaches, only through a proxy of ours."""

    hosts: tuple[str, ...] = ()
    """`name` (its ports 80 and 443), `name:port`, `*.name` (its subdomains), `*`: all of them at public addresses."""
    private: tuple[str, ...] = ()
    """`host:port` that are reached wherever they are, this machine included."""

    def __bool__(self) -> bool:
        """Whether it reaches anything."""
        return bool(self.hosts or self.private)


class Command(Struct, frozen=True, kw_only=True):
    """A command to run."""

    argv: tuple[str, ...]
    """The program and its arguments; no shell reads them, unless the program is one."""
    cwd: Path
    """Inside `folders`."""
    folders: tuple[Path, ...]
    """Writable folders; guarded files in them (`.git/hooks`, `.git/config`) stay read-only."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables beside the harmless part of our environment, which every command gets."""
    readable: tuple[Path, ...] = ()
    """Readable paths beside the programs of the machine."""
    read_only: bool = False
    """It only reads in `folders`."""
    network: bool | Reach = False
    """Reachable network; True is the whole network, with the services of this machine."""
    trusted: bool = False
    """Whether it is a program of this machine that runs no workspace code, so that guarded files need no protection."""
    terminal: tuple[int, int] | None = None
    """Rows and columns of a terminal of its own (a pty); None gives it pipes."""


class Finished(Struct, frozen=True, kw_only=True):
    """End of a process."""

    status: int
    """Its exit status; -N where signal N ended it."""
    stopped: str = ""
    """Exceeded limit that ended it, in words; empty without one."""


class Running(Protocol):
    """One process and its children. All of them end with the context that it was opened in."""

    @property
    def pid(self) -> int:
        """The process id, on this machine, of the process that holds the command."""
        ...

    @property
    def aside(self) -> Sequence[str]:
        """Forbidden files that it created, under their new names; known after the context exits."""
        ...

    @property
    def programs(self) -> Sequence[str]:
        """Folders of programs that it changed and that run only when called; known after the context exits."""
        ...

    @property
    def unseen(self) -> Sequence[str]:
        """Folders with more in them than is compared for what it left; known after the context exits."""
        ...

    @property
    def refused(self) -> Sequence[str]:
        """Refused destinations, each with the reason; in the order of the attempts."""
        ...

    async def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | None:
        """Return the next output once available; None at the end. A terminal has stdout only."""
        ...

    async def write(self, data: bytes) -> None:
        """Send input. Raises `ToolFailure("tool_error")` when it takes none any more."""
        ...

    async def close_input(self) -> None:
        """Close the standard input. A terminal gets its end-of-file character."""
        ...

    async def wait(self) -> Finished:
        """Return once it ended."""
        ...

    async def compare(self) -> Sequence[str]:
        """Put aside, before the end, what the command has left behind so far; return the new names."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the command and everything that it started; nothing happens when it has ended."""
        ...


def guides_programs(name: str) -> bool:
    """Whether a variable of the environment decides what programs execute: `BASH_ENV`, `GIT_PAGER` …"""
    return _GUIDES.fullmatch(name) is not None and _HARMLESS.fullmatch(name) is None


class Sandbox(Protocol):
    """Runs commands apart from everything else."""

    @property
    def kind(self) -> Literal["bubblewrap", "container", "landlock", "none", "seatbelt"]:
        """Kind of isolation; `none`: commands run with our rights, and each needs approval.

        Under `landlock` and `seatbelt` a command shares the network of the machine, or has no sockets at all.
        """
        ...

    @property
    def network(self) -> bool | Reach:
        """Network access that the operator permits to the model's commands: the value for `Command.network`."""
        ...

    def open(self, command: Command) -> AbstractAsyncContextManager[Running]:
        """Run a command until the context is left; processes that remain then are killed.

        Raises `ToolFailure`: `tool_error` for a missing program, `unavailable` when the sandbox fails.
        """
        ...


class Outlet(Protocol):
    """Egress service: it connects commands with permitted destinations."""

    async def serve(self, listener: SocketListener, reach: Reach, refused: Callable[[str], None]) -> None:
        """Serve connections to `listener`, a socket inside of a sandbox, until it is cancelled.

        Only destinations in `reach` can be connected to; each refusal is reported, in words for the model.
        """
        ...
