"""Sample MCP servers of the demonstration over stdio: `python -m` with this module and `time|folder [FOLDER]`.

They stand in where the reference servers of the extra `samples` are not installed, so that `toolcrib demo` needs
nothing but Toolcrib itself. Each is a crib of a few functions, served as any other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import anyio

from ...crib import Toolcrib
from ...disclosure.base import Profile
from ...errors import ToolFailure
from ...mcp.server.service import Service
from ...server.backend import CribBackend
from ...server.stdio import serve_stdio
from ...sources.python import tool

_PROFILE: Final = "sample"
"""Its own functions and nothing else: results are short, so that nothing need read artifacts."""
_MAX_MATCHES: Final = 50
_MAX_BYTES: Final = 100_000
"""Of one file that is read or searched."""


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolFailure(
            "invalid_arguments", f"unknown timezone {name!r}", hint="an IANA name: Europe/Paris"
        ) from None


def _moment(text: str, zone: ZoneInfo) -> datetime:
    """Return `HH:MM` of today in `zone`."""
    try:
        return datetime.combine(datetime.now(zone), time_of_day.fromisoformat(text), zone)
    except ValueError:
        raise ToolFailure("invalid_arguments", f"{text!r} is not a time", hint="24 hours, HH:MM: 07:30") from None


def _time_tools(folder: Path) -> Sequence[Callable[..., object]]:
    del folder

    @tool(kind="read", category="time")
    def get_current_time(timezone: str = "UTC") -> str:
        """Get the current time in a timezone.

        Args:
            timezone: IANA name, such as Europe/Paris.
        """
        return datetime.now(UTC).astimezone(_zone(timezone)).isoformat(timespec="seconds")

    @tool(kind="read", category="time")
    def convert_time(time: str, source_timezone: str, target_timezone: str) -> str:
        """Convert a time of today from one timezone to another.

        Args:
            time: 24-hour time, HH:MM.
            source_timezone: IANA name of the timezone that the time is in.
            target_timezone: IANA name of the timezone that is wanted.
        """
        return _moment(time, _zone(source_timezone)).astimezone(_zone(target_timezone)).isoformat(timespec="minutes")

    @tool(kind="read", category="time")
    def list_timezones(region: str = "") -> list[str]:
        """List the names of timezones.

        Args:
            region: Only those that begin so, such as Europe.
        """
        return sorted(name for name in available_timezones() if name.startswith(region))

    return get_current_time, convert_time, list_timezones


def _folder_tools(folder: Path) -> Sequence[Callable[..., object]]:
    root = folder.resolve()

    def inside(path: str) -> Path:
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise ToolFailure("denied", f"{path} is outside of {root}")
        if not found.exists():
            raise ToolFailure("not_found", f"{path} does not exist in {root}")
        return found

    @tool(kind="read", category="files")
    def list_folder(path: str = ".") -> list[str]:
        """List the files and folders in a folder.

        Args:
            path: Relative to the folder that is served.
        """
        found = inside(path)
        return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in found.iterdir())

    @tool(kind="read", category="files")
    def read_text(path: str) -> str:
        """Read a text file.

        Args:
            path: Relative to the folder that is served.
        """
        return inside(path).read_bytes()[:_MAX_BYTES].decode("utf-8", "replace")

    @tool(kind="read", category="files")
    def search_text(pattern: str, path: str = ".") -> list[str]:
        """Find the lines of the text files in a folder that hold a text.

        Args:
            pattern: The text, upper and lower case alike.
            path: The folder, relative to the folder that is served.
        """
        wanted = re.compile(re.escape(pattern), re.IGNORECASE)
        matches: list[str] = []
        for file in sorted(found for found in inside(path).iterdir() if found.is_file()):
            lines = file.read_bytes()[:_MAX_BYTES].decode("utf-8", "replace").splitlines()
            matches += [f"{file.name}:{at}: {line}" for at, line in enumerate(lines, 1) if wanted.search(line)]
        return matches[:_MAX_MATCHES]

    return list_folder, read_text, search_text


SERVERS: Final[Mapping[str, Callable[[Path], Sequence[Callable[..., object]]]]] = {
    "folder": _folder_tools,
    "time": _time_tools,
}
"""The functions of each sample server, for the folder that it works on."""


def main() -> None:
    """Serve the sample server that the first argument names until the client leaves."""
    name, *rest = sys.argv[1:] or [""]
    if name not in SERVERS:
        sys.exit(f"usage: python -m toolcrib.cli.processes.sample_server {'|'.join(SERVERS)} [FOLDER]")
    functions = SERVERS[name](Path(rest[0]) if rest else Path.cwd())
    anyio.run(_serve, functions)


async def _serve(functions: Sequence[Callable[..., object]]) -> None:
    async with Toolcrib() as crib:
        crib.add(*functions)
        crib.profiles.add(Profile(name=_PROFILE, strategy="flat"))
        async with Service(CribBackend(crib), profile=_PROFILE, mode="autonomous") as service:
            await serve_stdio(service, sys.stdin.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    main()
