"""`toolcrib serve`: all tools behind one MCP server, over stdio or HTTP.

Over stdio this process is only a shim in front of the local daemon and must be relaying in a few milliseconds: what
serves, and all that it imports, is loaded where it is needed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ...config.directories import here
from ...config.loader import load_gateway
from ...errors import UsageError
from ...server.pipes import take_stdio
from ..processes.serve_options import desk_overrides, http_token

app = typer.Typer(add_completion=False)
"""Holds the one command; `cli.main` puts it among the others."""

LogLevel = Literal["debug", "info", "warning", "error"]


@app.command()
def serve(
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", metavar="FILE", help="mcpServers JSON or our YAML; repeatable."),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve streamable HTTP instead of stdio.")] = False,
    host: Annotated[str | None, typer.Option("--host", help="With --http: address; off loopback with --token.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="With --http: port; 0 takes a free one.")
    ] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="How tools are shown: adaptive, flat …")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="What runs unasked: cautious, autonomous, plan …")] = None,
    guard: Annotated[
        Literal["on", "off"] | None,
        typer.Option("--guard", help="off: the client guards its user; calls run unasked, nothing is withheld."),
    ] = None,
    token: Annotated[str | None, typer.Option("--token", help="With --http: bearer token that clients send.")] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="The same, in a file; or in TOOLCRIB_TOKEN.")
    ] = None,
    no_prefix: Annotated[bool, typer.Option("--no-prefix", help="A single server's tools keep their names.")] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Take these servers' definitions as reviewed.")] = False,
    no_daemon: Annotated[
        bool, typer.Option("--no-daemon", help="Over stdio: serve in this process, for this client only.")
    ] = False,
    desk: Annotated[
        bool, typer.Option("--desk", help="Over stdio: also show the tool by which Claude Code asks for permission.")
    ] = False,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="From which level on to log.")] = "info",
    daemon_idle: Annotated[float | None, typer.Option(min=0, hidden=True)] = None,
) -> None:
    """Serve all tools to MCP clients, over stdio or HTTP.

    Over stdio all clients of one configuration share one local daemon, and so one set of servers.
    """
    if not http and (host, port, token, token_file) != (None, None, None, None):
        raise UsageError("--host, --port and --token are for --http; over stdio the client starts this process")
    if http and desk:
        raise UsageError("--desk is for stdio: Claude Code starts this process in the project that it works in")
    overrides: dict[str, Any] = {
        "profile": profile,
        "mode": mode,
        "guard": guard,
        "no_prefix": no_prefix or None,
        "accept": accept or None,
        **({"host": host, "port": port, "token": http_token(token, token_file, here().environ)} if http else {}),
    }
    if http:
        from ..processes.server import over_http  # loads the whole server, which the shim does not need

        over_http(load_gateway(config or (), overrides, is_local=False), log_level)
    elif no_daemon or sys.platform == "win32":
        settings = load_gateway(config or (), desk_overrides(overrides) if desk else overrides)
        from ..processes.server import over_stdio  # as above

        over_stdio(settings, log_level, *take_stdio(), desk=desk)
    else:
        files = [str(file) for file in config or ()]
        from ..processes.stdio_server import join  # only for clients of the local daemon

        status = join(files, overrides, idle_seconds=daemon_idle, log_level=log_level, desk=desk)
        sys.stderr.flush()
        # The relay's other thread still waits for the client, and nothing here is worth waiting for it.
        os._exit(status)
