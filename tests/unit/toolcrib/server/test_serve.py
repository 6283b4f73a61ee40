"""`toolcrib serve` as clients start it: processes, their pipes, and the daemon that they share."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from rig import PATIENCE, ROOT, Hearing, eventually
from rig.sandbox import needs_prlimit
from toolcrib.cli.main import app
from toolcrib.cli.processes.serve_options import Options, read_options
from toolcrib.cli.processes.server import snippet, unguarded
from toolcrib.config import Directories, Settings
from toolcrib.errors import CODES
from unit.toolcrib.server.wire_client import call, initialize

pytestmark = pytest.mark.process

PEERCRED = struct.Struct("3i")
"""Linux `struct ucred`: pid, uid, gid."""
ENDED = (ConnectionError, FileNotFoundError, ProcessLookupError)
"""What whoever reaches for a daemon gets that ends by itself at that moment."""
VERSION = version("toolcrib")
SCRIPTED = ROOT / "tests" / "peers" / "scripted.py"


@dataclass(kw_only=True)
class Home:
    """A user's home with one configured server that notes every start."""

    folder: Path
    options: tuple[str, ...] = ("--profile", "flat", "--mode", "autonomous", "--accept")

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def environment(self) -> dict[str, str]:
        kept = {f"XDG_{kind}_HOME": str(self.folder / kind) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        return {**os.environ, **kept, "XDG_RUNTIME_DIR": str(self.folder), "HOME": str(self.folder)}

    @property
    def config(self) -> Path:
        path = self.folder / "mcp.json"
        server = {"command": sys.executable, "args": [str(SCRIPTED), str(self.journal)]}
        path.write_text(json.dumps({"mcpServers": {"s": server}}))
        return path

    def started(self) -> set[int]:
        """The processes of the server that were started."""
        return {note["pid"] for note in self.notes("start")}

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """What the server noted of one kind."""
        if not self.journal.exists():
            return []
        notes = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return [note for note in notes if note["kind"] == kind]

    def log(self) -> str:
        return "".join(path.read_text() for path in (self.folder / "STATE" / "toolcrib").glob("*.log"))

    @contextmanager
    def client(self, *options: str) -> Generator[Client]:
        """Run `toolcrib serve` as a client does."""
        command = [str(Path(sys.executable).with_name("toolcrib")), "serve", "--config", str(self.config)]
        with subprocess.Popen(
            [*command, *self.options, *options],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
        ) as process:
            try:
                yield Client(process)
            finally:
                process.kill()

    @contextmanager
    def client_over_http(self, port: int) -> Generator[subprocess.Popen[bytes]]:
        """Run `toolcrib serve --http`."""
        command = [str(Path(sys.executable).with_name("toolcrib")), "serve", "--http", "--config", str(self.config)]
        with subprocess.Popen(
            [*command, "--port", str(port), "--profile", "flat", "--accept"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def wait_until_gone(self, pid: int) -> None:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        ended, _, _ = select.select([process], [], [], PATIENCE)
        os.close(process)
        assert ended, f"process {pid} is still there:\n{self.log()}"

    def stop_daemons(self) -> None:
        """Leave no process behind."""
        for path in (self.folder / "toolcrib").glob("*.sock"):
            with socket.socket(socket.AF_UNIX) as link, chdir(path.parent), suppress(*ENDED):
                link.connect(path.name)
                pid, _, _ = PEERCRED.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEERCRED.size))
                link.close()  # else the daemon waits for a greeting
                os.kill(pid, signal.SIGTERM)
                self.wait_until_gone(pid)


class Client:
    """One client with its own `toolcrib serve`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._answers = Hearing(process.stdout)
        self._errors = Hearing(process.stderr)

    def send(self, *sent: Mapping[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in sent))
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        try:
            line = self._answers.line()
        except TimeoutError as silence:
            raise AssertionError(f"no answer: {silence}; standard error: {self.told()}") from None
        assert line, f"it ended; standard error: {self.told()}"
        return json.loads(line)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self.send(message)
        while True:
            heard = self.hear()
            if heard.get("id") == message["id"]:
                return heard

    def hear_all(self, *ids: str) -> dict[str, dict[str, Any]]:
        """The answers to these requests."""
        answers: dict[str, dict[str, Any]] = {}
        while set(ids) - answers.keys():
            heard = self.hear()
            answers[str(heard.get("id"))] = heard
        return {id: answers[id] for id in ids}

    def text(self, tool: str, **arguments: Any) -> str:
        return self.ask(call(tool, arguments))["result"]["content"][0]["text"]

    def greet(self) -> dict[str, Any]:
        hello = self.ask(initialize())
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return hello["result"]

    def joined(self) -> int:
        """The process of the daemon, from what the shim said first."""
        line = self._errors.line().decode()
        assert "joined the local daemon (process " in line
        return int(line.partition("(process ")[2].partition(")")[0])

    def leave(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def told(self) -> str:
        self.process.kill()
        return self._errors.rest().decode()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(folder=tmp_path)
    yield home
    home.stop_daemons()


def test_many_clients_started_at_once_share_one_daemon_and_one_process_a_server(home: Home) -> None:
    briefly = ("--daemon-idle", "3")
    with (
        home.client(*briefly) as first,
        home.client(*briefly) as second,
        home.client(*briefly, "--profile", "adaptive") as third,
    ):
        clients = (first, second, third)
        for client in clients:
            client.send(initialize())
        names = {client.hear()["result"]["serverInfo"]["name"] for client in clients}
        daemons = {client.joined() for client in clients}
        assert [client.text("s__echo", text="hi") for client in (first, second)] == ["hi", "hi"]
        assert [client.leave() for client in clients] == [0, 0, 0]

    assert (names, len(daemons), len(home.started())) == ({"toolcrib"}, 1, 1)
    home.wait_until_gone(daemons.pop())
    home.wait_until_gone(home.started().pop())
    assert list((home.folder / "toolcrib").iterdir()) == []


def test_another_configuration_gets_another_daemon(home: Home) -> None:
    with home.client() as one, home.client("--no-prefix") as other:
        one.greet()
        other.greet()
        assert one.joined() != other.joined()


def test_a_daemon_told_to_stop_ends_with_its_servers_and_the_session_goes_on_at_the_next_one(home: Home) -> None:
    with home.client() as client:
        client.greet()
        client.text("s__echo", text="hi")
        daemon = client.joined()
        os.kill(daemon, signal.SIGTERM)
        home.wait_until_gone(daemon)
        home.wait_until_gone(home.started().pop())
        assert list((home.folder / "toolcrib").glob("*.sock")) == []  # nobody needs one
        assert client.text("s__echo", text="again") == "again"
        assert client.joined() != daemon
        assert client.leave() == 0


def test_the_daemon_commands_show_it_print_its_log_and_end_it_with_its_servers(home: Home) -> None:
    shell = CliRunner(env=home.environment)
    with home.client() as client:
        client.greet()
        client.text("s__echo", text="hi")
        daemon = client.joined()
        (status,) = json.loads(shell.invoke(app, ["daemon", "--json"]).stdout)
        text = shell.invoke(app, ["daemon", "status", str(daemon)]).stdout
        command = [str(Path(sys.executable).with_name("toolcrib")), "version"]
        shown = subprocess.run(command, env=home.environment, capture_output=True, check=True)
        logged = [json.loads(line) for line in shell.invoke(app, ["daemon", "logs"]).stdout.splitlines()]
        home.config.write_text(home.config.read_text() + "\nno_prefix: true\n")
        edited = shell.invoke(app, ["daemon", "status", str(daemon)]).stdout
        stopped = shell.invoke(app, ["daemon", "stop"])
        assert client.leave() == 0
    home.wait_until_gone(daemon)
    home.wait_until_gone(home.started().pop())
    again = shell.invoke(app, ["daemon", "stop"])

    assert ["program has changed" in one for one in (text, edited)] == [False, True]
    assert (status["pid"], status["version"], status["configuration"]) == (daemon, VERSION, [str(home.config)])
    assert [(one["pid"], one["cwd"], one["profile"]) for one in status["clients"]] == [
        (client.process.pid, str(home.folder), "flat")
    ]
    assert ("s", "mcp", "ready", "") in [
        (one["name"], one["kind"], one["state"], one["detail"]) for one in status["servers"]
    ]
    for fact in (
        str(daemon),
        VERSION,
        str(home.config),
        status["key"],
        status["log"],
        str(client.process.pid),
        "ready",
    ):
        assert fact in text
    assert f"process {client.process.pid} joined from {home.folder}" in [line["message"] for line in logged]
    assert (shown.stdout.startswith(f"toolcrib {VERSION} ".encode()), shown.stderr) == (True, b"")
    assert logged[-1]["message"].endswith(" asks for a command")
    assert stopped.stdout == (
        f"ended daemon {daemon}; clients: process {client.process.pid} ({home.folder}); "
        f"servers: {', '.join(one['name'] for one in status['servers'])}\n"
    )
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "no daemon runs\n")


def test_a_daemon_killed_in_the_middle_of_calls_ends_no_session_and_no_effect_happens_twice(home: Home) -> None:
    with home.client() as one, home.client() as other:
        clients = (one, other)
        for client in clients:
            client.greet()
            client.ask({"jsonrpc": "2.0", "id": "list", "method": "tools/list"})
        (daemon,) = {client.joined() for client in clients}
        one.send(call("s__hang", {}, id="begun"))
        anyio.run(eventually, lambda: home.notes("hanging"))
        os.kill(daemon, signal.SIGSTOP)  # so that the others are on their way when it is killed
        for client in clients:
            client.send(call("s__echo", {"text": "hi"}, id="read"), call("s__effect", {"id": 1}, id="write"))
        os.kill(daemon, signal.SIGKILL)
        answers = one.hear_all("begun", "read", "write") | other.hear_all("read", "write")
        assert len({client.joined() for client in clients}) == 1
        begun = answers.pop("begun")["result"]["_meta"]["io.toolcrib/error"]
        shown = subprocess.run(
            [sys.executable, "-m", "toolcrib", "log", begun["details"]["call_id"], "--config", home.config, "--json"],
            env=home.environment, capture_output=True, check=True,
        )  # fmt: skip
        assert [client.leave() for client in clients] == [0, 0]

    assert {id: answer["result"]["content"][0]["text"] for id, answer in answers.items()} == {
        "read": "hi",
        "write": "done 1",
    }
    assert begun["code"] == "outcome_unknown"
    assert [(row["tool"], row["outcome"]) for row in json.loads(shown.stdout)] == [("s__hang", "outcome_unknown")]
    assert (len(home.notes("hanging")), len(home.notes("effect"))) == (1, 2)


def test_a_daemon_that_hangs_is_replaced_for_the_next_client_and_those_that_it_has(home: Home) -> None:
    with home.client() as first:
        first.greet()
        hung = first.joined()
        os.kill(hung, signal.SIGSTOP)
        first.send(call("s__effect", {"id": 1}, id="write"))
        with home.client() as client:
            client.greet()
            assert client.text("s__echo", text="hi") == "hi"
        assert first.hear_all("write")["write"]["result"]["content"][0]["text"] == "done 1"
        home.wait_until_gone(hung)

    assert len(home.notes("effect")) == 1


def test_a_daemon_that_cannot_serve_says_why(home: Home) -> None:
    (home.folder / "broken.yaml").write_text("profiles: {flat: {extends: no_such_profile}}\n")
    with home.client("--config", str(home.folder / "broken.yaml")) as client:
        assert client.process.wait(PATIENCE) != 0
        assert "no_such_profile" in client.told()


def test_where_a_daemon_has_no_place_the_client_is_served_all_the_same(home: Home) -> None:
    (home.folder / "toolcrib").write_text("in the way")
    with home.client() as client:
        client.greet()
        assert client.text("s__echo", text="hi") == "hi"
        assert client.leave() == 0
        assert "there is no place for a local daemon" in client.told()


def test_a_daemon_whose_log_cannot_be_opened_says_so_and_its_client_is_served(home: Home) -> None:
    with home.client() as client:
        client.greet()
        daemon = client.joined()
        assert client.leave() == 0
    os.kill(daemon, signal.SIGKILL)
    home.wait_until_gone(daemon)
    (log,) = home.folder.rglob("daemon-*.log")
    log.unlink()
    log.mkdir()

    with home.client() as client:
        client.greet()
        assert client.text("s__echo", text="hi") == "hi"
        assert client.leave() == 0
        assert f"the local daemon cannot serve: {log}: Is a directory" in client.told()


def test_serving_in_process_starts_no_daemon_and_ends_with_its_client(home: Home) -> None:
    with home.client("--no-daemon") as client:
        client.greet()
        assert client.text("s__echo", text="hi") == "hi"
        assert client.leave() == 0
        home.wait_until_gone(home.started().pop())

    assert not (home.folder / "toolcrib").exists()


@needs_prlimit
@pytest.mark.parametrize(
    ("options", "code", "done"),
    [(("--guard", "off"), None, "0123"), (("--accept", "--mode", "autonomous"), "storage", "03")],
)
def test_on_a_full_disk_effects_are_refused_unless_the_client_guards_and_room_needs_no_restart(
    home: Home, options: tuple[str, ...], code: str | None, done: str
) -> None:
    effects = [call("s__effect", {"id": str(number)}) for number in range(4)]
    with home.client("--no-daemon", *options) as client:
        client.greet()
        before = client.ask(effects[0])["result"]
        _, most = resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, (4096, most))
        full = [client.ask(effect)["result"] for effect in effects[1:3]]
        read = client.text("s__echo", text="hi")
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, (most, most))
        after = client.ask(effects[3])["result"]
        client.leave()

    codes = [result["_meta"].get("io.toolcrib/error", {}).get("code") for result in (before, *full, after)]
    assert (codes, read) == ([None, code, code, None], "hi")
    assert [note["id"] for note in home.notes("effect")] == list(done)


SHORT: list[tuple[str, Options | None]] = [
    ("", Options()),
    (
        "--config a.json -c b.yaml --profile=flat --mode manual --accept --no-prefix",
        Options(("a.json", "b.yaml"), {"profile": "flat", "mode": "manual", "accept": True, "no_prefix": True}),
    ),
    ("--log-level debug --daemon-idle 1.5", Options(log_level="debug", idle_seconds=1.5)),
    ("--profile adaptive --guard off", Options(overrides={"profile": "adaptive", "guard": "off"})),
    ("--http --host ::1 --port 0", Options(overrides={"host": "::1", "port": 0}, http=True)),
    ("--http --port 70000", None),
    ("--http --port many", None),
    ("--port 1", None),
    ("--help", None),
    ("--no-daemon", None),
    ("--profile", None),
    ("--profile --accept", None),
    ("--accept=yes", None),
    ("--daemon-idle soon", None),
    ("--log-level loud", None),
    ("--config a.json stray", None),
]


@pytest.mark.parametrize(("arguments", "expected"), SHORT)
def test_the_short_way_takes_plain_options_and_leaves_the_rest_to_the_whole_command_line(
    arguments: str, expected: Options | None
) -> None:
    assert read_options(arguments.split()) == expected


def test_a_port_that_is_taken_is_told_in_a_sentence(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with home.client_over_http(taken.getsockname()[1]) as process:
            told = Hearing(process.stderr).rest().decode()
            assert process.wait(PATIENCE) == 2

    assert told.startswith("toolcrib: cannot listen on 127.0.0.1 port ")
    assert "`--port 0` takes a free one" in told
    assert "Traceback" not in told


def test_a_store_that_cannot_be_read_ends_the_server_with_its_own_status_for_a_service_manager(home: Home) -> None:
    store = home.folder / "DATA" / "toolcrib" / "toolcrib.db"
    store.parent.mkdir(parents=True)
    store.write_bytes(bytes(range(256)) * 32)

    with home.client_over_http(0) as process:
        told = Hearing(process.stderr).rest().decode()
        assert process.wait(PATIENCE) == CODES["storage"].exit

    last = told.splitlines()[-1]
    assert last.startswith("toolcrib: storage: the store cannot be read: "), last
    assert "`toolcrib doctor" in last


def test_over_http_every_line_from_the_url_to_the_end_is_a_json_object_and_sigterm_ends_it_all(home: Home) -> None:
    with home.client_over_http(0) as process:
        hearing = Hearing(process.stderr)
        log = hearing.until(b"s is ready, with ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        home.wait_until_gone(home.started().pop())
        log += hearing.rest()

    url, *messages, end = [json.loads(line)["message"] for line in log.splitlines()]
    assert re.fullmatch(r"toolcrib serves MCP at http://127\.0\.0\.1:\d+/mcp", url)
    assert "stopped by SIGTERM: 0 sessions, 0 running calls" in messages
    assert end == "toolcrib ends, and with it its servers: s"


def test_a_server_over_http_whose_log_has_lost_its_reader_serves_to_its_end(home: Home) -> None:
    with home.client_over_http(0) as process:
        assert process.stderr is not None
        Hearing(process.stderr).until(b"toolcrib serves MCP at ")
        process.stderr.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("given", "who"),
    [
        ({}, ""),
        ({"guard": False}, "every program"),
        ({"guard": False, "token": "a-token-0001"}, "everyone with a token"),
    ],
)
def test_a_server_over_http_with_its_guard_off_says_who_runs_calls_unasked(given: dict[str, Any], who: str) -> None:
    warning = unguarded(Settings.of(Directories.of({}), **given))

    assert (who in warning, bool(warning)) == (True, bool(who))


@pytest.mark.parametrize(("bound", "reached"), [("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]"), ("host", "host")])
def test_a_snippet_names_an_address_that_a_client_can_connect_to(bound: str, reached: str) -> None:
    text = snippet(f"http://{bound}:8737/mcp")

    assert (text.count(f"http://{reached}:8737/mcp"), f"//{bound}:" in text) == (2, bound == reached)


def test_serve_at_a_terminal_tells_what_it_is_and_sigterm_tells_what_it_ended(home: Home) -> None:
    ours, theirs = os.openpty()
    command = [str(Path(sys.executable).with_name("toolcrib")), "serve", "--config", str(home.config), *home.options]
    with subprocess.Popen(
        command, env=home.environment, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=home.folder
    ) as process:
        hearing = Hearing(process.stderr)
        told = hearing.until(b"joined the local daemon (process ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == -signal.SIGTERM
        end = hearing.rest()
    os.close(ours)
    os.close(theirs)

    assert b"standard input is a terminal" in told
    assert b"1 source, " in told + end
    assert b"ended by SIGTERM: this session; the local daemon goes on" in end


def test_each_error_of_a_configuration_is_a_line_of_its_own(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("mode: [\\x1b]\ntoken: 1\n")
    with home.client("--config", str(file)) as client:
        assert client.process.wait(PATIENCE) == 2
        places = [line.rpartition("wrong.yaml:")[2].partition(":")[0] for line in client.told().splitlines()]
        assert places == ["1", "2"]


def test_http_options_without_http_are_refused_with_the_reason(home: Home) -> None:
    with home.client("--port", "1") as client:
        assert client.process.wait(PATIENCE) == 2
        assert "--http" in client.told()


@pytest.mark.parametrize(
    ("mode", "options", "decided"),
    [
        ("plan", (), "mode plan"),
        ("plan", ("--mode", "autonomous"), "mode plan"),
        ("plan", ("--guard", "off"), "mode plan"),
        ("plan", ("--no-daemon",), "mode plan"),
        ("manual", ("--mode", "cautious"), "mode manual"),
        ("cautious", ("--mode", "manual"), "mode manual"),
        ("autonomous", ("--mode", "plan"), "mode plan"),
        ("manual", ("--mode", "plan"), "mode plan+manual"),
        ("autonomous", (), ""),
    ],
)
def test_the_identity_local_holds_for_clients_over_stdio_and_an_option_can_only_be_stricter(
    home: Home, mode: str, options: tuple[str, ...], decided: str
) -> None:
    own = home.folder / "own.yaml"
    own.write_text(f"mode: cautious\napproval_wait: 0.1\nidentities: {{local: {{mode: {mode}, profile: flat}}}}\n")
    home.options = ("--accept", "--config", str(own), *options)
    with home.client() as client:
        client.greet()
        text = client.text("s__effect", path=str(home.folder / "effect"))
    assert decided in text
    assert [note["name"] for note in home.notes("call")] == ([] if decided else ["effect"])
