"""Calls through the gateway to one warm stdio server: beside a direct connection and FastMCP's proxy, in one run.

Claims, with the whole pipeline for a tool that reads: at least 3.3 times FastMCP's proxy in its best configuration at 1
call in flight and 4 times at 8 and 64, p50 <= 2 ms and p99 <= 8 ms at 8, at most 0.25 ms of the gateway's CPU a call. A
tool that writes is recorded durably before and after: it takes at most 1.3 times two durable commits of SQLite alone,
of one row each, on the same disk in the same run.

The subjects take turns, several rounds; the median of the rounds counts. CPU is the gateway process's own. The load
comes from this process over connections that stay open, one a call in flight, on the wire of revision 2025-11-25.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

PEERS = Path(__file__).with_name("peers.py")
ARGUMENTS = {"text": "hello", "times": 3, "loud": False}
LEVELS = (1, 8, 64)
LEAST_TIMES = {1: 3.3, 8: 4, 64: 4}
ROUNDS, SECONDS = 3, 1.5
COMMITS, MOST_TIMES_COMMITS = 200, 1.3
START_SECONDS = 60.0
ANSWER_SECONDS = 20.0
TICK = os.sysconf("SC_CLK_TCK")

Ask = Callable[[], Awaitable[None]]
"""Makes one call and waits for its result; one of them for each call in flight."""


@dataclass(kw_only=True)
class Subject:
    """One way to the server."""

    name: str
    lanes: list[Ask]
    pid: int
    """The process whose CPU counts."""
    rates: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    waits: dict[int, list[list[float]]] = field(default_factory=dict[int, list[list[float]]])
    costs: dict[int, list[float]] = field(default_factory=dict[int, list[float]])

    async def measure(self, level: int, seconds: float) -> None:
        """Keep `level` calls in flight for `seconds`."""
        waits: list[float] = []
        before, start = cpu(self.pid), time.perf_counter()

        async def keep(ask: Ask) -> None:
            while (began := time.perf_counter()) - start < seconds:
                await ask()
                waits.append(time.perf_counter() - began)

        await asyncio.gather(*(keep(ask) for ask in self.lanes[:level]))
        self.rates.setdefault(level, []).append(len(waits) / (time.perf_counter() - start))
        self.costs.setdefault(level, []).append((cpu(self.pid) - before) / len(waits) * 1000)
        self.waits.setdefault(level, []).append(sorted(waits))

    def row(self) -> dict[str, Any]:
        """Return the medians of the rounds."""
        middle = statistics.median
        at = {"p50": 0.5, "p99": 0.99}
        return {
            "path": self.name,
            "calls_per_s": {level: round(middle(self.rates[level])) for level in LEVELS},
            **{
                f"{name}_ms": {
                    level: round(middle(waits[int((len(waits) - 1) * share)] for waits in self.waits[level]) * 1000, 2)
                    for level in LEVELS
                }
                for name, share in at.items()
            },
            "cpu_ms_a_call": {level: round(middle(self.costs[level]), 3) for level in LEVELS},
        }


def cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Wire(asyncio.Protocol):
    """One HTTP connection; at most one request at a time. Reads plain and chunked answers."""

    def __init__(self) -> None:
        self._buffer = b""
        self._waiting: asyncio.Future[bytes] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember what to write to."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand the answer over once it is whole."""
        self._buffer += data
        if self._waiting is not None and (end := _end_of_answer(self._buffer)):
            answer, self._buffer = self._buffer[:end], self._buffer[end:]
            waiting, self._waiting = self._waiting, None
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits."""
        self.transport = None
        if self._waiting is not None:
            self._waiting.set_exception(exc or ConnectionError("the gateway closed the connection"))

    async def exchange(self, request: bytes) -> bytes:
        """Send a whole request and return the whole answer."""
        assert self.transport is not None
        self._waiting = waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await waiting


@dataclass(kw_only=True)
class Lane:
    """One call in flight after the other, over a connection that is made again when the gateway closed it idle."""

    port: int
    wire: Wire = field(default_factory=Wire)

    async def exchange(self, request: bytes) -> bytes:
        """Send a whole request and return the whole answer; raises `RuntimeError` when it does not come."""
        if self.wire.transport is None:
            loop = asyncio.get_running_loop()
            _, self.wire = await loop.create_connection(Wire, "127.0.0.1", self.port)
        try:
            return await asyncio.wait_for(self.wire.exchange(request), ANSWER_SECONDS)
        except TimeoutError:
            raise RuntimeError(f"no answer in {ANSWER_SECONDS:.0f} s to {request[:200]!r}") from None


def _end_of_answer(buffer: bytes) -> int:
    """Return where the first answer in `buffer` ends, 0 while it is not whole."""
    head, gap, _ = buffer.partition(b"\r\n\r\n")
    if not gap:
        return 0
    lower = head.lower()
    at = lower.find(b"content-length:")
    if at >= 0:
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0])
        end = len(head) + 4 + length
        return end if len(buffer) >= end else 0
    if b"transfer-encoding: chunked" in lower:
        end = buffer.find(b"\r\n0\r\n\r\n", len(head))
        return end + 7 if end >= 0 else 0
    return len(head) + 4


def _http(port: int, message: dict[str, Any], session: str) -> bytes:
    body = json.dumps(message).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2025-11-25",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"Mcp-Session-Id: {session}"] if session else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _open_http(port: int, tool: str, lanes: int) -> list[Ask]:
    """Shake hands once and return a way to call `tool` for each lane."""
    opened = [Lane(port=port) for _ in range(lanes)]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    first = await opened[0].exchange(_http(port, _message("initialize", hello), ""))
    headers = dict(line.split(": ", 1) for line in first.decode().partition("\r\n\r\n")[0].split("\r\n")[1:])
    session = {name.lower(): value for name, value in headers.items()}.get("mcp-session-id", "")
    await opened[0].exchange(_http(port, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session))
    listed = await opened[0].exchange(_http(port, _message("tools/list", {}), session))
    name = next(
        name for name in (f"mcp_raw_{tool}", f"raw__{tool}", f"raw_{tool}", tool) if f'"{name}"'.encode() in listed
    )

    def way(lane: Lane, number: int) -> Ask:
        message = {**_message("tools/call", {"name": name, "arguments": ARGUMENTS}), "id": number}
        request = _http(port, message, session)

        async def ask() -> None:
            answer = await lane.exchange(request)
            if b'"hello"' not in answer:
                raise RuntimeError(f"not what was asked for: {answer[:600]!r}")

        return ask

    return [way(lane, number) for number, lane in enumerate(opened, start=2)]


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@asynccontextmanager
async def direct() -> AsyncGenerator[Subject]:
    """The server itself, over its pipes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PEERS), "raw", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    writer, reader = process.stdin, process.stdout
    waiting: dict[int, asyncio.Future[None]] = {}

    async def read() -> None:
        async for line in reader:
            waiting.pop(json.loads(line)["id"]).set_result(None)

    def way(number: int) -> Ask:
        message = {**_message("tools/call", {"name": "echo", "arguments": ARGUMENTS}), "id": number}
        line = json.dumps(message).encode() + b"\n"

        async def ask() -> None:
            waiting[number] = future = asyncio.get_running_loop().create_future()
            writer.write(line)
            await future

        return ask

    reading = asyncio.create_task(read())
    yield Subject(name="direct, stdio", lanes=[way(number) for number in range(max(LEVELS))], pid=process.pid)
    process.terminate()
    await process.wait()
    reading.cancel()


@contextmanager
def started(command: list[str], port: int, folder: Path) -> Generator[int]:
    """Run a gateway until the block ends; give its process id once it takes connections."""
    kept = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    with (folder / f"{port}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **kept})
        try:
            _wait(process, port, folder / f"{port}.log")
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
        except OSError:
            time.sleep(0.05)
            continue
        return
    raise RuntimeError(f"the gateway did not come up:\n{log.read_text()[-2000:]}")


def commit_ms(folder: Path) -> float:
    """Return the median milliseconds of a durable commit of SQLite alone."""
    took: list[float] = []
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE IF NOT EXISTS bare (a)"):
            connection.execute(statement)
        for _ in range(COMMITS):
            start = time.perf_counter()
            connection.execute("INSERT INTO bare VALUES (?)", ("x" * 300,))
            took.append(time.perf_counter() - start)
    return statistics.median(took) * 1000


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def subjects(stack: AsyncExitStack, folder: Path) -> list[Subject]:
    """Start everything that is compared."""
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"raw": {"command": sys.executable, "args": [str(PEERS), "raw"]}}}))
    ours = str(Path(sys.executable).with_name("toolcrib"))
    found = [await stack.enter_async_context(direct())]
    port = free_port()
    command = [ours, "serve", "--http", "--port", str(port), "--config", str(config), "--profile", "flat"]
    pid = stack.enter_context(started([*command, "--mode", "autonomous", "--accept"], port, folder))
    found.append(Subject(name="toolcrib, a read", lanes=await _open_http(port, "echo", max(LEVELS)), pid=pid))
    found.append(Subject(name="toolcrib, a write", lanes=await _open_http(port, "note", max(LEVELS)), pid=pid))
    for manner in ("reused", "reused-json"):
        port = free_port()
        pid = stack.enter_context(
            started([sys.executable, str(PEERS), "fastmcp", str(config), str(port), manner], port, folder)
        )
        lanes = await _open_http(port, "echo", max(LEVELS))
        found.append(Subject(name=f"fastmcp proxy, {manner}", lanes=lanes, pid=pid))
    return found


async def main() -> None:
    """Print one JSON line and a table."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        async with AsyncExitStack() as stack:
            compared = await subjects(stack, Path(place))
            for subject in compared:
                await subject.measure(8, 0.5)
                for kept in (subject.rates, subject.waits, subject.costs):
                    kept.clear()
            commits: list[float] = []
            for _ in range(ROUNDS):
                commits.append(commit_ms(Path(place)))
                for level in LEVELS:
                    for subject in compared:
                        await subject.measure(level, SECONDS)
            rows = [subject.row() for subject in compared]
    peers = [row for row in rows if row["path"].startswith("fastmcp")]
    mine = next(row for row in rows if row["path"] == "toolcrib, a read")
    ratios = {
        level: round(mine["calls_per_s"][level] / max(row["calls_per_s"][level] for row in peers), 1)
        for level in LEVELS
    }
    print(json.dumps({"bench": "gateway", "rows": rows, "times_fastmcp_best": ratios}))
    print(f"\n{'path':28}{'calls/s at 1 / 8 / 64':>24}{'p50 / p99 ms at 8':>22}{'CPU ms a call at 1 / 8 / 64':>30}")
    for row in rows:
        rates = " / ".join(str(row["calls_per_s"][level]) for level in LEVELS)
        waits = f"{row['p50_ms'][8]} / {row['p99_ms'][8]}"
        costs = " / ".join(str(row["cpu_ms_a_call"][level]) for level in LEVELS)
        print(f"{row['path']:28}{rates:>24}{waits:>22}{costs:>30}")
    shown = " / ".join(str(ratios[level]) for level in LEVELS)
    print(f"\ntoolcrib makes {shown} times the calls of FastMCP's best at 1 / 8 / 64 in flight")
    for level in LEVELS:
        _report(f"times FastMCP's best at {level} in flight", ratios[level], least=LEAST_TIMES[level])
    _report("p50 at 8 in flight, ms", mine["p50_ms"][8], most=2)
    _report("p99 at 8 in flight, ms", mine["p99_ms"][8], most=8)
    for level in (1, 8):
        _report(f"CPU at {level} in flight, ms a call", mine["cpu_ms_a_call"][level], most=0.25)
    write = next(row for row in rows if row["path"] == "toolcrib, a write")
    two = 2 * statistics.median(commits)
    _report(f"a write, times two commits ({two:.2f} ms)", write["p50_ms"][1] / two, most=MOST_TIMES_COMMITS)


def _report(name: str, figure: float, *, least: float = 0, most: float = math.inf) -> None:
    """Print a figure and its goal, `least` or `most`."""
    goal = f"at least {least:g}" if least else f"at most {most:g}"
    print(f"{name:36} {figure:8.2f}   goal {goal}: {'held' if least <= figure <= most else 'missed'}")


if __name__ == "__main__":
    asyncio.run(main())
