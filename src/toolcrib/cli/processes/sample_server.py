"""Sample MCP servers of the demonstration over stdio: `python -m` with this module and `time|folder [FOLDER]`.

They stand in where the reference servers of the extra `samples` are not installed, so that `toolcrib demo` needs
nothing but Toolcrib itself. Each is a crib with a few of the built-in tools, served as any other.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import anyio

from ...crib import Toolcrib
from ...disclosure.base import Profile
from ...mcp.server.service import Service
from ...server.backend import CribBackend
from ...server.stdio import serve_stdio

SERVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "folder": ("glob_files", "list_directory", "read_file"),
    "time": ("convert_time", "current_time"),
}
"""The built-in tools of each sample server; all of them read."""

_PROFILE: Final = "sample"
"""Those tools and nothing else, none to read artifacts."""


def main() -> None:
    """Serve the sample server that the first argument names until the client leaves."""
    name, *rest = sys.argv[1:] or [""]
    if name not in SERVERS:
        sys.exit(f"usage: python -m toolcrib.cli.processes.sample_server {'|'.join(SERVERS)} [FOLDER]")
    anyio.run(_serve, SERVERS[name], rest[0] if rest else ".")


async def _serve(tools: tuple[str, ...], folder: str) -> None:
    async with Toolcrib(builtins=tools, workspace={"roots": [folder]}) as crib:
        crib.profiles.add(Profile(name=_PROFILE, strategy="flat"))
        async with Service(CribBackend(crib), profile=_PROFILE, mode="autonomous") as service:
            await serve_stdio(service, sys.stdin.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    main()
