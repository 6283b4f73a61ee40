"""A plant that is killed at random under load: a gateway, workers, the servers behind them, and clients in front.

The clients repeat what was not answered under its idempotency key, as good clients do. When it is over, what they were
told is held against what the servers really did, and against what the gateway says in its own log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
import httpx2

from rig.process import free_port

_SERVER: Final = Path(__file__).with_name("chaos_server.py")
_TOOLCRIB: Final = Path(sys.executable).with_name("toolcrib")
_PATIENCE: Final = 180.0
"""Seconds that anything may take before the storm is given up; far above what a loaded machine needs."""
_PAUSE: Final = 0.05
_AIM_SECONDS: Final = 0.05
"""Within how long after an answer somebody is killed: twice what a call takes."""
_WAIT: Final = 5
"""Seconds that a client waits for a task in one call."""
_AGAIN: Final = ("unavailable", "overloaded", "conflict")
"""Codes that say of a call that it did not run, or still runs."""
_META: Final[Mapping[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "chaos", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The last word that a client got about one piece of work."""

    body: str
    """Tool and number, as the journal writes them."""
    code: str
    """`ok`, or the error's code."""
    text: str
    task: str = ""
    """The id under which the work was accepted; empty for a plain call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What is known when everything has come to rest."""

    seed: int
    told: tuple[Told, ...]
    begun: Counter[str]
    ended: Counter[str]
    """Body → how often the servers' journal has it."""
    rows: Mapping[str, tuple[str, ...]]
    """Body → outcomes in the gateway's log, of those of its calls that have their number."""
    kills: Counter[str]
    """Kind of process → how many were killed."""
    proof: str
    """What `toolcrib log verify` said, with its status."""
    orphans: tuple[str, ...]
    """Command lines of servers that outlived everybody who could use them."""

    @property
    def lost(self) -> list[Told]:
        """What was answered with success and never done, and tasks that were accepted and are not known any more."""
        gone = [told for told in self.told if told.task and told.code == "not_found"]
        return gone + [told for told in self.told if told.code == "ok" and self.ended[told.body] == 0]

    @property
    def doubled(self) -> dict[str, int]:
        """What must not run twice and did."""
        return {body: times for body, times in self.begun.items() if body.startswith("charge") and times > 1}

    @property
    def mislabelled(self) -> list[Told]:
        """What may have had an effect that must not be repeated, and is called anything but done or unknown."""
        begun = [told for told in self.told if told.body.startswith("charge") and self.begun[told.body]]
        return [told for told in begun if told.code not in ("ok", "outcome_unknown")]

    @property
    def unrecorded(self) -> list[str]:
        """What ran and changed something, and is not in the log as done or unknown."""
        wanted = {"ok", "outcome_unknown"}
        changed = [body for body in self.begun if not body.startswith("look")]
        return [body for body in changed if not wanted & set(self.rows.get(body, ()))]

    @property
    def outcomes(self) -> Counter[str]:
        """How often each code was told."""
        return Counter(told.code for told in self.told)


class _Process:
    """A process of ours that is started again, at once, whenever it is killed."""

    def __init__(self, kind: str, command: list[str], log: Path, env: Mapping[str, str]) -> None:
        self.kind = kind
        self._command = command
        self._log = log
        self._env = env
        self._running = self._start()

    def kill(self) -> None:
        self._running.kill()
        self._running.wait()
        self._running = self._start()

    def check(self) -> None:
        """Raise AssertionError, with the end of its log, when it ended although nobody killed it."""
        assert self._running.poll() is None, f"{self.kind} ended by itself:\n{self.tail()}"

    def stop(self) -> int:
        """End it in order, and return its status."""
        self._running.terminate()
        return self._running.wait(_PATIENCE)

    def end(self) -> None:
        """Leave nothing behind, whatever happened."""
        self._running.kill()
        self._running.wait()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self._env)
            )


class Plant:
    """A gateway, its workers and their servers, in a folder of their own."""

    def __init__(self, home: Path, *, servers: int, workers: int = 0, url: str = "") -> None:
        """`url` is a store in PostgreSQL, which workers need; without it the gateway carries its jobs itself."""
        self.home, self._url, self._workers = home, url, workers
        self.servers = [f"s{number}" for number in range(servers)]
        self._journal = home / "journal"
        self._journal.touch()
        folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA", "STATE")}
        self._env = {**os.environ, **folders, "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
        self._config("gateway", work=not workers)
        self._config("worker", work=True)
        self._port = free_port()
        self.kills = Counter[str]()
        self._processes: list[_Process] = []

    @property
    def address(self) -> str:
        """Where the gateway is, whenever it is there."""
        return f"http://127.0.0.1:{self._port}/mcp"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run it until the block ends; nothing of it is left then."""
        try:
            serve = ["serve", "--http", "--port", str(self._port), "--profile", "flat", "--mode", "autonomous"]
            self._add("gateway", "gateway", [*serve, "--accept", "--config", str(self.home / "gateway.yaml")])
            for number in range(self._workers):
                self._add("worker", f"worker{number}", ["worker", "--config", str(self.home / "worker.yaml")])
            yield
        finally:
            for process in self._processes:
                process.end()
            for pid in self._server_pids():
                os.kill(pid, signal.SIGKILL)

    def kill(self, choice: random.Random) -> bool:
        """Kill -9 the gateway, a worker or a server, who is started again; tells whether there was one to kill."""
        kinds = ["server"] * 5 + ["gateway"] * 2 + ["worker"] * (3 if self._workers else 0)
        kind = choice.choice(kinds)
        if kind != "server":
            choice.choice([process for process in self._processes if process.kind == kind]).kill()
        elif pids := self._server_pids():  # none: all of them are being started
            os.kill(choice.choice(pids), signal.SIGKILL)
        else:
            return False
        self.kills[kind] += 1
        return True

    def check(self) -> None:
        """Raise AssertionError when a process ended that nobody killed."""
        for process in self._processes:
            process.check()

    async def stop(self) -> tuple[str, ...]:
        """End everything in order; return what is still there long after that."""
        for process in self._processes:
            status = await anyio.to_thread.run_sync(process.stop)
            # One that was killed a moment ago, and started again, has not yet learned to end in order.
            assert status in (0, -signal.SIGTERM), f"{process.kind} ended with status {status}:\n{process.tail()}"
        deadline = time.monotonic() + _PATIENCE / 3
        while self._server_pids() and time.monotonic() < deadline:
            await anyio.sleep(_PAUSE)
        return tuple(_command_of(pid) for pid in self._server_pids())

    def journal(self, word: str) -> Counter[str]:
        """Return how often each body began (`begin`) or ended (`end`)."""
        lines = (line.partition(" ") for line in self._journal.read_text().splitlines())
        return Counter(body for kind, _, body in lines if kind == word)

    def types(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours on the same store."""
        folder = Path(self._env["XDG_CONFIG_HOME"]) / "toolcrib"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(json.dumps(self._store()))
        return subprocess.run(
            [_TOOLCRIB, *arguments],
            env=self._env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )

    def _add(self, kind: str, name: str, arguments: list[str]) -> None:
        command = [str(_TOOLCRIB), *arguments]
        self._processes.append(_Process(kind, command, self.home / f"{name}.log", self._env))

    def _config(self, name: str, *, work: bool) -> None:
        server = {"command": sys.executable, "args": [str(_SERVER), str(self._journal)]}
        flow = {"description": "Look.", "background_after": 60, "steps": {"look": _step(self.servers[0])}}
        settings = {
            "servers": dict.fromkeys(self.servers, server),
            "workflows": {"look_later": flow},  # with a tool that may become a job, the tools for jobs are there
            "jobs": {"engine": "durable", "work": work},
            "untrusted": {"ask": False},  # the servers are strangers, and nobody is there to be asked because of it
            **self._store(),
        }
        (self.home / f"{name}.yaml").write_text(json.dumps(settings))

    def _store(self) -> dict[str, str]:
        return {"store": self._url} if self._url else {}

    def _server_pids(self) -> list[int]:
        """Return the servers of this plant that live, whoever started them, in the order of their ids."""
        pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if f"{_SERVER}\0{self._journal}\0" in _command_of(pid)]


def _step(server: str) -> dict[str, Any]:
    return {"tool": f"{server}__look", "arguments": {"number": 0}}


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


@dataclass(kw_only=True)
class _Client:
    """One client: it sends what it was given until it has an answer, whatever is killed meanwhile."""

    plant: Plant
    choice: random.Random
    heard: Callable[[], None]
    """Called with every answer."""
    http: httpx2.AsyncClient
    told: list[Told] = field(default_factory=list[Told])

    async def work(self, numbers: list[int]) -> None:
        """Make a call, or have a task accepted, for every number."""
        for number in numbers:
            tool = self.choice.choice(("charge", "charge", "put", "look"))
            name = f"mcp_{self.choice.choice(self.plant.servers)}_{tool}"
            arguments: dict[str, Any] = {"number": number}
            is_task = self.choice.random() < 0.4
            if is_task:
                name, arguments = "start_background_task", {"tool_name": name, "arguments": arguments}
            result = await self.call(name, arguments, key=f"n{number}")
            code, text = _outcome(result)
            if is_task and code == "ok":
                self.told.append(Told(body=f"{tool} {number}", code="accepted", text=text, task=_task_of(result)))
            else:
                self.told.append(Told(body=f"{tool} {number}", code=code, text=text))

    async def follow(self) -> None:
        """Wait for the end of every task that was accepted."""
        for index, told in enumerate(self.told):
            while self.told[index].code == "accepted":
                asked = {"task_id": told.task, "wait_seconds": _WAIT}
                result = await self.call("get_background_task", asked)
                if _task_of(result) and not result["isError"]:  # it still works
                    continue
                code, text = _outcome(result)
                self.told[index] = Told(body=told.body, code=code, text=text, task=told.task)

    async def call(self, name: str, arguments: Mapping[str, Any], *, key: str = "") -> dict[str, Any]:
        """Return the result; what was not answered, and what says that it did not run, is sent again."""
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
        headers["Accept"] = "application/json, text/event-stream"
        meta = {**_META, "io.toolcrib/idempotencyKey": key} if key else dict(_META)
        params = {"name": name, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        with anyio.fail_after(_PATIENCE):
            while True:
                self.plant.check()
                result = await self._sent(message, headers)
                code = _outcome(result)[0] if result is not None else "unavailable"
                if key and code == "not_found":  # its server was killed before it had listed for the first time
                    meta["io.toolcrib/idempotencyKey"] += "+"  # the old key stands for that answer now
                elif result is not None and (code not in _AGAIN or _is_of_task(result)):
                    self.heard()
                    return result
                await anyio.sleep(_PAUSE)

    async def _sent(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any] | None:
        """Return what came back; None when nobody answered to the end."""
        try:
            response = await self.http.post(self.plant.address, json=message, headers=dict(headers))
        except httpx2.TransportError:
            return None
        if response.status_code == 503:  # it has just been started, or is about to end
            return None
        return _read(response)


def _read(response: httpx2.Response) -> dict[str, Any] | None:
    """Return the result of an answer, as one object or at the end of a stream; None for a stream that was cut off."""
    text = response.text
    if "text/event-stream" in response.headers.get("content-type", ""):
        data = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
        messages = [json.loads(line) for line in data]
    else:
        messages = [json.loads(text)]
    for message in messages:
        assert "error" not in message, message
        if "result" in message:
            return message["result"]
    return None


def _task_of(result: Mapping[str, Any]) -> str:
    """Return the task that the answer tells of: one that goes on."""
    shown: Any = result.get("structuredContent")
    return str(cast("dict[str, Any]", shown).get("task_id", "")) if isinstance(shown, dict) else ""


def _is_of_task(result: Mapping[str, Any]) -> bool:
    """Whether it is what a task came to: it says so, and asking again gives the same."""
    return "io.toolcrib/task" in result.get("_meta", {})


def _outcome(result: Mapping[str, Any]) -> tuple[str, str]:
    text = " ".join(part.get("text", "") for part in result["content"])
    if not result["isError"]:
        return "ok", text
    return result.get("_meta", {}).get("io.toolcrib/error", {}).get("code", "?"), text


@dataclass(kw_only=True)
class _Killer:
    """Kills somebody after every few answers, so that a slow machine sees as many kills as a quick one."""

    plant: Plant
    choice: random.Random
    every: int
    left: int
    answers: int = 0
    stir: anyio.Event = field(default_factory=anyio.Event)

    def heard(self) -> None:
        """Take note of an answer."""
        self.answers += 1
        self.stir.set()

    async def work(self) -> None:
        """Kill until all is killed that was to be; never just when an answer came."""
        while self.left:
            due = self.answers + self.choice.randint(1, 2 * self.every - 1)
            while self.answers < due:
                self.stir = anyio.Event()
                await self.stir.wait()
            await anyio.sleep(self.choice.uniform(0, _AIM_SECONDS))
            self.left -= self.plant.kill(self.choice)


async def storm(plant: Plant, *, calls: int, clients: int, kills: int, seed: int) -> Account:
    """Send `calls` pieces of work through a running plant while it is killed, and return what came of it all."""
    killer = _Killer(plant=plant, choice=random.Random(seed), every=max(1, calls // kills), left=kills)
    http = httpx2.AsyncClient(timeout=_PATIENCE, verify=False)
    crowd = [
        _Client(plant=plant, choice=random.Random(f"{seed}/{n}"), heard=killer.heard, http=http) for n in range(clients)
    ]
    async with http, anyio.create_task_group() as deaths:
        deaths.start_soon(killer.work)
        async with anyio.create_task_group() as work:
            for n, client in enumerate(crowd):
                work.start_soon(client.work, list(range(n, calls, clients)))
        async with anyio.create_task_group() as work:
            for client in crowd:
                work.start_soon(client.follow)
        deaths.cancel_scope.cancel()
    told = tuple(told for client in crowd for told in client.told)
    orphans = await plant.stop()
    return await anyio.to_thread.run_sync(_account, plant, seed, told, orphans)


def _account(plant: Plant, seed: int, told: tuple[Told, ...], orphans: tuple[str, ...]) -> Account:
    proof = plant.types("log", "verify")
    listed = plant.types("log", "--json", "-n", "1000000")
    assert listed.returncode == 0, listed.stderr
    rows: dict[str, list[str]] = {}
    for row in json.loads(listed.stdout):
        arguments = json.loads(row["arguments"]) if isinstance(row["arguments"], str) else row["arguments"]
        if "number" in arguments:
            body = f"{row['tool'].rpartition('__')[2]} {arguments['number']}"
            rows.setdefault(body, []).append(row["outcome"])
    return Account(
        seed=seed,
        told=told,
        begun=plant.journal("begin"),
        ended=plant.journal("end"),
        rows={body: tuple(outcomes) for body, outcomes in rows.items()},
        kills=plant.kills,
        proof=f"{proof.returncode} {proof.stdout}{proof.stderr}".strip(),
        orphans=orphans,
    )
