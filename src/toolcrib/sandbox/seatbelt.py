"""Commands under Seatbelt, the sandbox of macOS (`sandbox-exec`). Untested: we had no macOS.

A command reads the programs of the machine, its folders and a folder of its own for home and temporary files, and
writes in the latter two; it has no network and no sockets, and asks few services of the system. Guarded files in its
folders are read-only, secrets in them unreadable. Weaker than bubblewrap: it sees names and sizes of files everywhere,
and a process that leaves the command's process group outlives it. Only where the operator wants it, and where a trial
showed that the profile lets a program run and keeps it from a file outside.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio import to_thread

from ..core.sandbox import Command, Reach, Running
from ..errors import ToolFailure
from .bubblewrap import CommandLimits, CommandLine, clean, programs_in, toolchains, within_bounds
from .comparison import Comparison, check
from .own_folder import made_folder, remove_folder
from .process import HeldResources, start
from .protected_paths import GuardedPaths

_PROGRAM: Final = Path("/usr/bin/sandbox-exec")
_SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/System", "/Library", "/Applications/Xcode.app", "/opt", "/nix/store", "/private/etc/ssl",
    "/private/etc/services", "/private/etc/protocols", "/private/etc/hosts", "/private/etc/localtime",
    "/private/etc/paths", "/private/etc/paths.d", "/private/etc/shells", "/private/etc/passwd", "/private/etc/group",
    "/private/var/db/timezone", "/private/var/db/dyld", "/private/var/select",
)  # fmt: skip
"""Programs of the machine, and what they need."""
_DEVICES: Final = ("null", "zero", "random", "urandom", "tty", "ptmx", "dtracehelper")
_SERVICES: Final = (
    "com.apple.system.opendirectoryd.libinfo",  # names of users
    "com.apple.system.opendirectoryd.membership",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.bsd.dirhelper",  # folders for temporary files
)
_NETWORK_SERVICES: Final = (
    "com.apple.dnssd.service",
    "com.apple.SystemConfiguration.configd",
    "com.apple.SystemConfiguration.DNSConfiguration",
    "com.apple.trustd.agent",  # certificates
    "com.apple.SecurityServer",
)
_COMMON_RULES: Final = (
    "(version 1)",
    "(deny default)",
    "(allow process-fork process-exec)",
    "(allow process-info* signal (target same-sandbox))",
    "(allow sysctl-read ipc-posix-sem file-read-metadata)",
    '(allow file-read* (literal "/"))',
    "(allow pseudo-tty)",
    r'(allow file-read* file-write* file-ioctl (regex #"^/dev/(ttys[0-9]+|fd/.*)$"))',
)
_TRIAL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seatbelt:
    """Commands that Seatbelt restricts."""

    environ: Mapping[str, str] = field(repr=False)
    """Environment of this process."""
    bounds: CommandLimits = field(default_factory=CommandLimits)
    network: bool | Reach = False
    """Network that the operator permits to the model's commands; named hosts cannot be reached."""
    comparison: Comparison = field(default_factory=Comparison, repr=False)
    kind: Literal["seatbelt"] = "seatbelt"

    @asynccontextmanager
    async def open(self, command: Command) -> AsyncGenerator[Running]:
        """Run a command until the context is left. See `Sandbox`.

        Raises `ToolFailure("unavailable")` for one that is to reach named hosts, unless it is a trusted program.
        """
        check(command)
        if isinstance(command.network, Reach) and command.network and not command.trusted:
            raise ToolFailure("unavailable", "a command under Seatbelt reaches the whole network or none")
        compared = await self.comparison.begin(command)
        own = await to_thread.run_sync(made_folder)
        try:
            held = HeldResources(tidy=compared.tidy)
            line = self.line(command, compared.guarded, own)
            async with start(line, command.cwd, terminal=command.terminal, held=held) as running:
                compared.attach(running)
                yield running
        finally:
            await compared.finish()
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(remove_folder, own)

    def line(self, command: Command, guarded: GuardedPaths, own: Path) -> CommandLine:
        """Return the line for a command. `own` is its home."""
        chains = toolchains(Path(self.environ.get("HOME") or "/nonexistent"))
        programs = programs_in(self.environ, (*chains, *command.folders))
        environment = {**clean(self.environ, own, programs), "TMPDIR": str(own), **command.environment}
        words = (str(_PROGRAM), "-p", profile(command, guarded, own, chains))
        return CommandLine(argv=(*within_bounds(self.bounds, ""), *words, *command.argv), environment=environment)


def profile(command: Command, guarded: GuardedPaths, own: Path, chains: Iterable[Path]) -> str:
    """Return the profile of a command, in the language of Seatbelt: of several rules the last that fits decides.

    So what is forbidden comes last, behind the folders that are allowed.
    """
    return "\n".join(_rules(command, guarded, own, chains))


def _rules(command: Command, guarded: GuardedPaths, own: Path, chains: Iterable[Path]) -> Iterator[str]:
    yield from _COMMON_RULES
    services = (*_SERVICES, *(_NETWORK_SERVICES if command.network else ()))
    yield f"(allow mach-lookup{_all('global-name', services)})"
    yield f"(allow file-read* file-write* file-ioctl{_all('literal', (f'/dev/{name}' for name in _DEVICES))})"
    yield f"(allow file-read*{_all('subpath', (*_SYSTEM, *_real((*chains, *command.readable, *guarded.shown))))})"
    yield f"(allow file-read* file-write*{_all('subpath', _real((own,)))})"
    rights = "file-read*" if command.read_only else "file-read* file-write*"
    yield f"(allow {rights}{_all('subpath', _real((*command.folders, *guarded.fixed)))})"
    if command.network:
        yield "(allow system-socket)"
        yield "(allow network-outbound (remote ip))"
        yield "(allow network-bind network-inbound (local ip))"
    if guarded.fixed:
        yield f"(deny file-write-unlink{_all('literal', _real(guarded.fixed))})"
    if closed := (*guarded.kept, *guarded.absent):
        yield f"(deny file-write*{_all('subpath', _real(closed))})"
    if guarded.hidden:
        yield f"(deny file-read-data file-write*{_all('literal', _real(guarded.hidden))})"


def _real(paths: Iterable[Path]) -> list[str]:
    """Return the paths as the kernel compares them, with links followed (`/tmp` is one on macOS)."""
    return [str(path.resolve()) for path in paths]


def _all(kind: str, values: Iterable[str]) -> str:
    return "".join(f" ({kind} {_quoted(value)})" for value in values)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def find_seatbelt(
    environ: Mapping[str, str],
    *,
    network: bool | Reach,
    bounds: CommandLimits,
    comparison: Comparison,
) -> tuple[Seatbelt | None, str]:
    """Return the Seatbelt sandbox, or None and the reason. Runs commands: for a thread."""
    if sys.platform != "darwin" or not _PROGRAM.exists():
        return None, "Seatbelt is there on macOS alone"
    if isinstance(network, Reach) and network:
        return None, "commands under Seatbelt reach the whole network or none (`shell.network` is true or false)"
    seatbelt = Seatbelt(environ=environ, bounds=bounds, network=network, comparison=comparison)
    try:
        problem = _problem(seatbelt)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    return (None, f"Seatbelt does not work here: {problem}") if problem else (seatbelt, "")


def _problem(seatbelt: Seatbelt) -> str:
    """Return why no command runs under Seatbelt here, or what one may do that it must not; else empty."""
    with tempfile.TemporaryDirectory() as folder:
        inside, outside = Path(folder, "inside").resolve(), Path(folder, "outside").resolve()
        inside.mkdir()
        outside.write_text("outside", encoding="utf-8")
        for text, is_allowed in (("echo x > y && cat y", True), (f"cat '{outside}'", False)):
            command = Command(argv=("/bin/bash", "-c", text), cwd=inside, folders=(inside,))
            line = seatbelt.line(command, GuardedPaths(), inside)
            done = subprocess.run(
                line.argv,
                env=dict(line.environment),
                cwd=inside,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TRIAL_SECONDS,
                check=False,
            )
            if (done.returncode == 0) != is_allowed:
                return done.stderr.decode("utf-8", "replace").strip()[:500] or f"a trial ends with {done.returncode}"
    return ""
