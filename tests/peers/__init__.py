"""Real MCP servers for tests: small scripts that do on purpose what servers in the wild do by accident."""

import sys
from collections.abc import Mapping
from pathlib import Path

from rig import PATIENCE
from toolcrib.mcp.client.spec import ServerSpec

__all__ = ["FASTMCP", "LEDGER", "SCRIPTED", "SDK", "script", "scripted"]

FASTMCP = str(Path(__file__).parent / "fastmcp_server.py")
LEDGER = str(Path(__file__).parent / "ledger_server.py")
SDK = str(Path(__file__).parent / "sdk_server.py")
SCRIPTED = str(Path(__file__).parent / "scripted.py")


def scripted(journal: Path, *modes: str, name: str = "peer", env: Mapping[str, str] | None = None) -> ServerSpec:
    """Return a stdio server that writes what happens to it to `journal` and misbehaves as `modes` say."""
    # Isolated and without `site`: a third of the time to start.
    return script("-IS", SCRIPTED, str(journal), *modes, name=name, env=env)


def script(*arguments: str, name: str = "peer", env: Mapping[str, str] | None = None) -> ServerSpec:
    """Return a stdio server that Python runs."""
    return ServerSpec(
        name=name, transport="stdio", command=sys.executable, args=arguments, env=env or {}, timeout=PATIENCE
    )
