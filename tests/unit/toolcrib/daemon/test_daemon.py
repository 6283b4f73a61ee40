"""The local daemon, met over real sockets."""

import fcntl
import os
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from rig import PATIENCE, eventually
from toolcrib.core.json import loads
from toolcrib.daemon.caller import ASK, Caller
from toolcrib.daemon.commands import Commands
from toolcrib.daemon.control import (
    DaemonServer,
    DaemonStatus,
    HungDaemon,
    Way,
    command_link,
    end,
    endpoints,
    status_of,
    statuses,
)
from toolcrib.daemon.listener import LocalServer, Rest
from toolcrib.daemon.rendezvous import DaemonEndpoint, Hello, Welcome, private_directory, sweep
from toolcrib.errors import UsageError
from toolcrib.server.stdio import Link

KEY = "00112233445566778899aabbccddeeff"
HELLO = Hello(key=KEY, version="1", profile="flat", mode="cautious", cwd="/", pid=1)


@dataclass
class Echo:
    """A daemon that sends back what it is sent, and remembers who came."""

    endpoint: DaemonEndpoint
    idle_seconds: float = 60.0
    met: list[Hello] = field(default_factory=list[Hello])
    came: anyio.Event = field(default_factory=anyio.Event)
    server: LocalServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = LocalServer(
            self.endpoint,
            serve=self.serve,
            greeting=lambda hello: "1 echo",
            version="1",
            idle_seconds=self.idle_seconds,
            control=self._control,
        )

    async def _control(self, way: Way, pid: int) -> DaemonStatus:
        if way == "stop":
            self.server.stop()
        return DaemonStatus(
            pid=os.getpid(), since=1.0, version="1", key=KEY, configuration=("a.yaml",), options={"guard": "off"},
            project="/", log="log", idle_seconds=self.idle_seconds, rest_seconds=0.0, rests=False, works=False,
            clients=tuple(self.server.clients),
            servers=(DaemonServer(name="echo", kind="python", state="ready", tools=1, detail=""),),
        )  # fmt: skip

    async def serve(self, hello: Hello, link: Link, received: bytes) -> None:
        self.met.append(hello)
        self.came.set()
        chunk = received or await link.receive()
        while chunk:
            await link.send(chunk)
            chunk = await link.receive()


@pytest.fixture
def endpoint(tmp_path: Path) -> DaemonEndpoint:
    return DaemonEndpoint(directory=private_directory(tmp_path / "run"), key=KEY)


@asynccontextmanager
async def running(echo: Echo) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        listening = anyio.Event()
        tasks.start_soon(echo.server.run, listening.set)
        await listening.wait()
        yield
        tasks.cancel_scope.cancel()


def connect(endpoint: DaemonEndpoint) -> Link:
    link = endpoint.connect()
    assert link is not None
    return Link(link)


async def greet(endpoint: DaemonEndpoint, hello: Hello = HELLO) -> tuple[Link, Welcome]:
    link = connect(endpoint)
    await link.send(hello.encode())
    return link, Welcome.decode(await link.receive())


async def test_a_client_in_a_folder_whose_name_is_not_utf8_is_served(endpoint: DaemonEndpoint) -> None:
    echo, hello = Echo(endpoint), HELLO._replace(cwd=os.fsdecode(b"/caf\xe9"))
    async with running(echo):
        link, welcome = await greet(endpoint, hello)
        async with link:
            pass

    assert (welcome.pid, echo.met) == (os.getpid(), [hello])


async def test_a_client_that_greets_is_served_and_seen_with_its_wishes(endpoint: DaemonEndpoint) -> None:
    echo = Echo(endpoint)
    async with running(echo):
        link, welcome = await greet(endpoint)
        async with link:
            await link.send(b"hello\n")
            answer = await link.receive()

    assert (welcome, answer, echo.met) == (Welcome(pid=os.getpid(), serves="1 echo"), b"hello\n", [HELLO])


async def test_what_comes_with_the_greeting_is_not_lost(endpoint: DaemonEndpoint) -> None:
    async with running(Echo(endpoint)), connect(endpoint) as link:
        await link.send(HELLO.encode() + b"first\n")
        received = b""
        while not received.endswith(b"first\n"):
            received += await link.receive()

    assert received.splitlines()[1:] == [b"first"]


@pytest.mark.parametrize("change", [{"key": "ff" * 16}, {"version": "2"}])
async def test_a_client_of_another_configuration_or_version_is_refused_with_the_reason(
    endpoint: DaemonEndpoint, change: dict[str, str]
) -> None:
    echo = Echo(endpoint)
    async with running(echo):
        link, welcome = await greet(endpoint, HELLO._replace(**change))
        link.socket.close()

    assert (welcome.error, echo.met) == ("it was started for another configuration or version", [])


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\n", b"{}\n", b'{"key": 1}\n', b"x" * 200_000])
async def test_a_connection_that_does_not_greet_is_closed_and_the_others_work(
    endpoint: DaemonEndpoint, greeting: bytes
) -> None:
    echo = Echo(endpoint)
    async with running(echo):
        async with connect(endpoint) as stranger:
            with suppress(ConnectionError):
                await stranger.send(greeting)
            assert await stranger.receive() == b""
        link, _ = await greet(endpoint)
        link.socket.close()

    assert echo.met == [HELLO]


async def test_the_server_ends_and_removes_its_socket_when_no_client_came_for_the_idle_time(
    endpoint: DaemonEndpoint,
) -> None:
    with anyio.fail_after(PATIENCE):
        await Echo(endpoint, idle_seconds=0.05).server.run(lambda: None)

    assert not endpoint.socket.exists()


@pytest.mark.slow
async def test_the_server_does_not_end_while_it_has_a_client(endpoint: DaemonEndpoint) -> None:
    echo = Echo(endpoint, idle_seconds=0.5)
    ended = anyio.Event()

    async def run() -> None:
        await echo.server.run(listening.set)
        ended.set()

    async with anyio.create_task_group() as tasks:
        listening = anyio.Event()
        tasks.start_soon(run)
        await listening.wait()
        link, _ = await greet(endpoint)
        with anyio.move_on_after(1) as waiting:
            await ended.wait()
        assert waiting.cancelled_caught
        link.socket.close()
        with anyio.fail_after(PATIENCE):
            await ended.wait()


async def test_the_status_of_a_daemon_names_its_clients_and_servers_whatever_its_configuration(
    endpoint: DaemonEndpoint,
) -> None:
    echo = Echo(endpoint)
    async with running(echo):
        link, _ = await greet(endpoint)
        async with link:
            with anyio.fail_after(PATIENCE):
                await echo.came.wait()
            (place,) = endpoints(endpoint.directory.glob("*.sock"))
            status = await run_sync(status_of, place)

    assert status is not None
    (client,) = status.clients
    assert (client.pid, client.cwd, client.profile, client.mode, client.way) == (1, "/", "flat", "cautious", "mcp")
    assert status._replace(clients=()) == DaemonStatus(
        pid=os.getpid(), since=1.0, version="1", key=KEY, configuration=("a.yaml",), options={"guard": "off"},
        project="/", log="log", idle_seconds=60.0, rest_seconds=0.0, rests=False, works=False, clients=(),
        servers=(DaemonServer(name="echo", kind="python", state="ready", tools=1, detail=""),),
    )  # fmt: skip
    assert echo.met == [HELLO]


@pytest.mark.slow
async def test_asking_for_the_status_does_not_keep_a_daemon_alive(endpoint: DaemonEndpoint) -> None:
    ended = anyio.Event()

    async def run() -> None:
        await Echo(endpoint, idle_seconds=0.3).server.run(listening.set)
        ended.set()

    async with anyio.create_task_group() as tasks:
        listening = anyio.Event()
        tasks.start_soon(run)
        await listening.wait()
        with anyio.fail_after(PATIENCE):
            while not ended.is_set():
                await run_sync(status_of, endpoint)

    assert status_of(endpoint) is None


async def test_a_daemon_that_is_ended_is_gone_when_its_end_is_reported(endpoint: DaemonEndpoint) -> None:
    echo = Echo(endpoint)
    held = endpoint.lock()
    assert held is not None

    async def run() -> None:
        await echo.server.run(listening.set)
        os.close(held)

    async with anyio.create_task_group() as tasks:
        listening = anyio.Event()
        tasks.start_soon(run)
        await listening.wait()
        status = await run_sync(end, endpoint, PATIENCE)
        freed = endpoint.lock()
        assert status is not None and status.clients == ()
        assert freed is not None
        os.close(freed)

    assert end(endpoint, PATIENCE) is None


async def test_a_daemon_that_does_not_end_in_time_is_an_error_with_its_log(endpoint: DaemonEndpoint) -> None:
    held = endpoint.lock()
    assert held is not None
    async with running(Echo(endpoint)):
        with pytest.raises(UsageError, match="its log is log"):
            await run_sync(end, endpoint, 0.05)
    os.close(held)


async def test_a_daemon_of_a_version_without_status_is_an_error_with_its_process(endpoint: DaemonEndpoint) -> None:
    echo = Echo(endpoint)
    echo.server = LocalServer(endpoint, serve=echo.serve, greeting=lambda hello: "", version="0", idle_seconds=60.0)
    async with running(echo):
        with pytest.raises(UsageError, match=f"process {os.getpid()}"):
            await run_sync(status_of, endpoint)


def test_daemons_that_hang_are_waited_for_together_and_one_that_took_no_command_hardly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.daemon.control._ANSWER_SECONDS", 2.0)
    paths = [tmp_path / f"{name}.sock" for name in ("a", "b", "c")]
    with ExitStack() as open_now:
        for path in paths:
            listener = open_now.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
        began = time.monotonic()
        together = statuses(paths)
        both = time.monotonic() - began
        link = command_link(endpoints(paths)[0], b"\n", 0.1)
        assert link is not None
        with link:
            assert not [*link] and link.hung is not None
        known = statuses(paths[:1])
        one = time.monotonic() - began - both

    errors = [status for _, status in (*together, *known) if isinstance(status, HungDaemon)]
    assert [(error.pid, error.is_known) for error in errors] == [(os.getpid(), known) for known in (0, 0, 0, 1)]
    assert 2 <= both < 4 and one < 2


def test_a_daemon_whose_queue_is_full_hangs_and_is_known_by_its_lock(
    endpoint: DaemonEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.daemon.rendezvous._QUEUE_TIME", struct.pack("ll", 0, 10_000))
    lock = endpoint.lock()
    assert lock is not None
    with ExitStack() as open_now:
        listener = open_now.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(endpoint.socket))
        listener.listen(0)
        link = endpoint.connect()
        assert link is not None
        open_now.enter_context(link)

        with pytest.raises(HungDaemon) as raised:
            status_of(endpoint)

    os.close(lock)
    assert raised.value.pid == (os.getpid() if sys.platform == "linux" else 0)  # others do not show who has a file open


async def test_the_socket_and_its_directory_are_for_this_user_only(endpoint: DaemonEndpoint) -> None:
    async with running(Echo(endpoint)):
        modes = (stat.S_IMODE(endpoint.socket.stat().st_mode), stat.S_IMODE(endpoint.directory.stat().st_mode))

    assert modes == (0o600, 0o700)


@pytest.mark.slow
async def test_a_server_whose_socket_was_removed_can_be_found_again(endpoint: DaemonEndpoint) -> None:
    async with running(Echo(endpoint)):
        endpoint.socket.unlink()
        await eventually(endpoint.socket.exists)
        link, welcome = await greet(endpoint)
        link.socket.close()

    assert (welcome.serves, endpoint.socket.exists()) == ("1 echo", False)


async def test_a_directory_path_too_long_for_a_socket_address_works(tmp_path: Path) -> None:
    endpoint = DaemonEndpoint(directory=private_directory(tmp_path / ("d" * 90) / ("e" * 90)), key=KEY)
    async with running(Echo(endpoint)):
        link, welcome = await greet(endpoint)
        link.socket.close()
    with endpoint.address():
        within = Path.cwd()

    assert welcome.serves == "1 echo"
    assert sys.platform != "linux" or within == Path.cwd(), "its threads would see another directory"


def test_a_directory_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)

    assert stat.S_IMODE(private_directory(tmp_path / "run").stat().st_mode) == 0o700


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError, match="not a directory"):
        private_directory(tmp_path / "run")


def test_the_lock_is_held_by_one_and_free_again_when_it_is_closed(endpoint: DaemonEndpoint) -> None:
    first = endpoint.lock()
    assert first is not None
    assert endpoint.lock() is None
    os.close(first)
    again = endpoint.lock()
    assert again is not None
    os.close(again)


def test_nobody_listening_is_told_apart_from_a_stale_socket(endpoint: DaemonEndpoint) -> None:
    with socket.socket(socket.AF_UNIX) as stale, endpoint.address() as address:
        stale.bind(address)

    assert endpoint.socket.exists()
    assert endpoint.connect() is None


def test_a_lock_that_is_released_leaves_no_file_and_one_that_is_closed_can_be_taken_again(
    endpoint: DaemonEndpoint,
) -> None:
    lock = endpoint.lock()
    assert lock is not None
    assert endpoint.lock() is None
    os.close(lock)
    again = endpoint.lock()
    assert again is not None
    endpoint.release(again)

    assert list(endpoint.directory.iterdir()) == []


def test_a_lock_whose_file_was_removed_in_between_is_taken_on_the_new_file(
    endpoint: DaemonEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, first = fcntl.flock, endpoint.lock()
    assert first is not None

    def late(lock: int, operation: int) -> None:
        """The owner lets go between the opening of the file and the lock."""
        monkeypatch.setattr(fcntl, "flock", flock)
        endpoint.release(first)
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    lock = endpoint.lock()

    assert lock is not None
    assert endpoint.lock() is None
    endpoint.release(lock)


async def test_what_killed_daemons_left_is_swept_and_a_living_one_stays(endpoint: DaemonEndpoint) -> None:
    lock, killed = endpoint.lock(), DaemonEndpoint(directory=endpoint.directory, key="ff" * 16)
    left = killed.lock()
    assert lock is not None and left is not None
    os.close(left)
    killed.socket.touch()
    async with running(Echo(endpoint)):
        sweep(endpoint.directory)
        assert sorted(path.suffix for path in endpoint.directory.iterdir()) == [".lock", ".sock"]
    os.close(lock)
    sweep(endpoint.directory)

    assert list(endpoint.directory.iterdir()) == []


async def _nobody(hello: Hello, link: Link, received: bytes) -> None:
    """Serve a client that never comes."""


async def test_a_daemon_stays_as_long_as_something_works_for_clients_that_have_left(endpoint: DaemonEndpoint) -> None:
    looks = list[bool]()

    def works() -> bool:
        looks.append(len(looks) < 3)
        return looks[-1]

    echo = Echo(endpoint)
    echo.server = LocalServer(
        endpoint, serve=_nobody, greeting=lambda hello: "", version="1", idle_seconds=0.01, works=works
    )
    with anyio.fail_after(PATIENCE):
        await echo.server.run(lambda: None)

    assert looks == [True, True, True, False]


async def test_a_daemon_whose_socket_is_gone_ends_although_something_works(endpoint: DaemonEndpoint) -> None:
    server = LocalServer(
        endpoint, serve=_nobody, greeting=lambda hello: "", version="1", idle_seconds=0.01, works=lambda: True
    )
    with anyio.fail_after(PATIENCE):
        await server.run(endpoint.socket.unlink)

    assert not endpoint.socket.exists()


@dataclass
class Resting:
    """A daemon that rests as soon as it has no client; it remembers each opening and each close."""

    endpoint: DaemonEndpoint
    rest_seconds: float = 60.0
    look_seconds: float = 0.01
    is_current: bool = True
    told: list[str] = field(default_factory=list[str])
    closed: anyio.Event = field(default_factory=anyio.Event)
    echo: Echo = field(init=False)

    def __post_init__(self) -> None:
        self.echo = Echo(self.endpoint)
        self.echo.server = LocalServer(
            self.endpoint, serve=self.echo.serve, greeting=lambda hello: "1 echo", version="1", idle_seconds=0.01,
            rest=Rest(
                opened=self._opened, seconds=self.rest_seconds, look_seconds=self.look_seconds,
                is_current=lambda: self.is_current,
            ),
        )  # fmt: skip

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        self.told.append("opened")
        try:
            yield
        finally:
            self.told.append("closed")
            self.closed.set()

    async def run(self, ended: anyio.Event) -> None:
        await self.echo.server.run(lambda: self.told.append("listens"))
        ended.set()


@asynccontextmanager
async def resting(daemon: Resting) -> AsyncGenerator[anyio.Event]:
    """Run it until it rests; the event says that it has ended."""
    ended = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemon.run, ended)
        with anyio.fail_after(PATIENCE):
            await daemon.closed.wait()
        yield ended
        tasks.cancel_scope.cancel()


async def test_a_resting_daemon_opens_again_for_the_next_client_and_rests_after_it(endpoint: DaemonEndpoint) -> None:
    daemon = Resting(endpoint)
    async with resting(daemon):
        daemon.closed = anyio.Event()
        link, welcome = await greet(endpoint)
        second, _ = await greet(endpoint)  # while it is awake
        second.socket.close()
        async with link:
            await link.send(b"hello")
            answer = await link.receive()
        with anyio.fail_after(PATIENCE):
            await daemon.closed.wait()

    assert (welcome.serves, answer) == ("1 echo", b"hello")
    assert daemon.told == ["opened", "listens", "closed", "opened", "closed"]


@pytest.mark.parametrize("version", ["1", "2"], ids=["the same version, changed files", "another version"])
async def test_a_client_whose_program_a_resting_daemon_does_not_have_ends_it_and_starts_its_own(
    endpoint: DaemonEndpoint, version: str
) -> None:
    daemon = Resting(endpoint, look_seconds=60.0)
    async with resting(daemon) as ended:
        daemon.is_current = version != "1"
        async with connect(endpoint) as link:
            await link.send(HELLO._replace(version=version).encode())
            answer = await link.receive()
        with anyio.fail_after(PATIENCE):
            await ended.wait()

    assert (answer, daemon.told, endpoint.socket.exists()) == (b"", ["opened", "listens", "closed"], False)


async def test_a_resting_daemon_ends_when_its_time_is_over(endpoint: DaemonEndpoint) -> None:
    with anyio.fail_after(PATIENCE):
        await Resting(endpoint, rest_seconds=0.05).echo.server.run(lambda: None)

    assert not endpoint.socket.exists()


async def test_a_resting_daemon_ends_when_it_is_stopped(endpoint: DaemonEndpoint) -> None:
    daemon = Resting(endpoint)
    async with resting(daemon) as ended:
        daemon.echo.server.stop()
        with anyio.fail_after(PATIENCE):
            await ended.wait()

    assert not endpoint.socket.exists()


async def test_a_resting_daemon_ends_once_its_configuration_or_program_has_changed(endpoint: DaemonEndpoint) -> None:
    daemon = Resting(endpoint)
    async with resting(daemon) as ended:
        daemon.is_current = False
        with anyio.fail_after(PATIENCE):
            await ended.wait()

    assert not endpoint.socket.exists()


async def test_a_resting_daemon_ends_without_its_socket_and_leaves_that_of_its_successor(
    endpoint: DaemonEndpoint,
) -> None:
    daemon = Resting(endpoint)
    async with resting(daemon) as ended:
        kept = endpoint.socket.rename(endpoint.directory / "kept")  # so that the inode is not used again
        endpoint.socket.touch()
        with anyio.fail_after(PATIENCE):
            await ended.wait()

    assert (kept.exists(), endpoint.socket.exists()) == (True, True)


def lines_of(endpoint: DaemonEndpoint, request: bytes, answers: Mapping[str, Any] | None = None) -> list[Any]:
    """Return what a daemon answers to the request of a command, whose questions get `answers`; nothing without one."""
    link = command_link(endpoint, request + b"\n", PATIENCE)
    lines: list[Any] = []
    if link is not None:
        with link:
            for line in link:
                lines.append(line)
                if line[0] == ASK:
                    link.answer(line[1], (answers or {})[line[2]])
    return lines


async def test_a_command_runs_in_a_thread_and_sends_its_lines_while_clients_are_served(
    endpoint: DaemonEndpoint,
) -> None:
    is_served = threading.Event()

    def run_command(request: bytes, caller: Caller) -> None:
        caller.put(["asked", loads(request)])
        assert is_served.wait(PATIENCE)
        caller.put(["end", caller.ask("word", 1)])

    echo = Echo(endpoint)
    echo.server = LocalServer(
        endpoint,
        serve=echo.serve,
        greeting=lambda hello: "",
        version="1",
        idle_seconds=60,
        commands=Commands(run_command, lambda: None),
    )
    lines: list[Any] = []
    async with running(echo), anyio.create_task_group() as tasks:
        tasks.start_soon(run_sync, lambda: lines.extend(lines_of(endpoint, b'{"words": ["tools"]}', {"word": [2]})))
        link, _ = await greet(endpoint)
        async with link:
            await link.send(b"hello")
            assert await link.receive() == b"hello"
        is_served.set()
    assert lines == [["asked", {"words": ["tools"]}], [ASK, 0, "word", 1], ["end", [2]]]
    assert lines_of(endpoint, b"{}") == []


@pytest.mark.parametrize("way", ["leaves", "stops"])
async def test_a_command_is_interrupted_when_its_process_leaves_and_when_the_daemon_stops(
    endpoint: DaemonEndpoint, way: str
) -> None:
    is_interrupted = threading.Event()

    def run_command(request: bytes, caller: Caller) -> None:
        with caller.interrupting(is_interrupted.set):
            caller.put(["taken"])
            assert is_interrupted.wait(PATIENCE)

    echo = Echo(endpoint)
    echo.server = LocalServer(
        endpoint,
        serve=echo.serve,
        greeting=lambda hello: "",
        version="1",
        idle_seconds=60,
        commands=Commands(run_command, lambda: None, seconds=0.0),
    )
    async with running(echo):
        link = command_link(endpoint, b"{}\n", PATIENCE)
        assert link is not None
        with link:
            assert await run_sync(lambda: next(iter(link))) == ["taken"]
            if way == "stops":
                echo.server.stop()
                assert await run_sync(is_interrupted.wait, PATIENCE)
        assert await run_sync(is_interrupted.wait, PATIENCE)


async def test_a_daemon_that_takes_no_commands_answers_nothing(endpoint: DaemonEndpoint) -> None:
    async with running(Echo(endpoint)):
        assert await run_sync(lines_of, endpoint, b"{}") == []
