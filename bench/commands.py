"""What every command costs with 24 servers configured and a daemon that has them running: CPU above that of `--help`.

Claim (issue 14, item 7): at most 150 ms more than `toolcrib --help`. A figure is the least CPU of several runs, of the
command and of the programs that it starts and waits for; beside it stands what the daemon spends on it meanwhile, with
the programs that the daemon starts for it.
Prints one line a command and `held` or `missed`; ends with 1 where one is missed, and with 2 where a command of
`toolcrib --help` or one of its actions is neither measured nor left out with a reason (`LEFT_OUT`).

Words of a command line limit the run: `bench/commands.py call accept` measures these commands only. A command that
takes the id of a job, a result or a change looks in vain for one, which loads as much; its exit status is 3.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from typer.main import get_command

from toolcrib.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "tests" / "peers" / "plain_server.py"
TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
SERVERS, RUNS, LIMIT_MS, PATIENCE = 24, 3, 150, 60.0
ROLES = ("write", "fetch", "echo", "resource")


class Case(NamedTuple):
    """A command line; `{id}` in it stands for the id that the last of `before` prints, `{run}` for a number."""

    words: Sequence[str]
    before: Sequence[Sequence[str]] = ()
    """Command lines that run before each run, not measured."""
    stdin: str = ""
    folder: str = "project"
    asks: bool = False
    """Whether a call of the connected client waits for approval; `{id}` is that question's."""


def case(line: str, *before: str, **options: Any) -> Case:
    """Return a case of command lines as they are typed."""
    return Case(shlex.split(line), tuple(map(shlex.split, before)), **options)


NEW_SERVER = f"{shlex.quote(sys.executable)} {shlex.quote(str(SERVER))} echo"
ADD = "add extra --no-check -- true"
SCHEDULE = "schedule add {run} --at 2099-01-01 --message hello --json"
CHANGE = (ADD, "remove extra")
"""Changes the configuration file: what was kept of it counts no more."""
VERDICTS = ("yes", "once", "no", "never", "always")
BLANKET = ("turn", "idle", "all")
"""Answers after which no further call of the client asks."""
CASES: Sequence[Case] = (
    case(""),
    case("", *CHANGE),
    case("overview"),
    case("overview --json"),
    case("overview --json", *CHANGE),
    case("doctor"),
    case("doctor --json"),
    case("import --dry-run"),
    case("import", "remove imported"),
    case("connect cursor --anyway --dry-run"),
    case("connect cursor --anyway --no-start", "disconnect cursor"),
    case("disconnect cursor", "connect cursor --anyway --no-start"),
    case("disconnect --all"),
    case("uninstall --dry-run"),
    case("daemon status"),
    case("daemon stop 1"),
    case("daemon logs"),
    case(f"add extra -- {NEW_SERVER}", "remove extra"),
    case(ADD, "remove extra"),
    case("remove extra", ADD),
    case("logout server00"),
    case("secret"),
    case("secret list"),
    case("secret set token", stdin="value"),
    case("secret remove token", "secret set token"),
    case("tools"),
    case("tools --json"),
    case("find 'write a file'"),
    case("show server00__write_file"),
    case("why server00__write_file"),
    case("compare"),
    case("call server02__say text=x"),
    case("call server02__say text=x --yes"),
    case("call server02__say text=x --dry-run"),
    case("call server02__say --yes --args -", stdin='{"text": "x"}'),
    case("profile list"),
    case("profile show flat"),
    case("profile check flat"),
    case("plugins"),
    case("plugin new plugin{run}"),
    case("policy list"),
    case("policy test server00__write_file"),
    case("policy import"),
    case("guard on"),
    case("guard off"),
    case("guard status"),
    case("accept"),
    case("accept server02"),
    case("accept --show"),
    case("lock"),
    case("lock --check"),
    case("trust", folder="other"),
    case("approvals"),
    case("approvals list"),
    case("approvals show {id}", asks=True),
    case("approvals comment {id} -m later", asks=True),
    case('approvals edit {id} --args \'{"path": "x", "text": ""}\'', asks=True),
    *(case(f"approvals {verdict} {{id}}", asks=True) for verdict in VERDICTS),
    *(case(f"approvals {verdict} abcdef") for verdict in BLANKET),
    case("pending"),
    case("pending list"),
    case("pending diff"),
    case("pending accept --all"),
    case("pending reject --all"),
    case("shadow"),
    case("shadow list"),
    case("shadow diff task"),
    case("shadow merge task"),
    case("shadow discard task"),
    case("jobs"),
    case("jobs list"),
    case("jobs show abcdef"),
    case("jobs result abcdef"),
    case("jobs cancel abcdef"),
    case("jobs delete abcdef"),
    case("schedule"),
    case("schedule list"),
    case(SCHEDULE),
    case("schedule show {id}", SCHEDULE),
    case("schedule pause {id}", SCHEDULE),
    case("schedule resume {id}", SCHEDULE),
    case("schedule cancel {id}", SCHEDULE),
    case("schedule run {id}", SCHEDULE),
    case("results"),
    case("results list"),
    case("results show abcdef"),
    case("results search abcdef text"),
    case("results rm abcdef"),
    case("log"),
    case("log list"),
    case("log verify"),
    case("log export"),
    case("log export calls{run}.jsonl"),
    case("log head"),
    case("version"),
    case("work"),
    case("queue"),
    case("queue answer abcdef text"),
    case("queue approve abcdef"),
    case("queue decide abcdef done"),
    case("queue stop abcdef"),
    case("tools --help"),
    case("tools --no-such-option"),
)
LEFT_OUT: Mapping[str, str] = {
    "approvals watch": "goes on until it is interrupted",
    "chat": "goes on until its user leaves, and loads what a model needs",
    "demo": "starts servers and a gateway to show them",
    "hook": "started by a client, for which it has a short way of its own (`bench/startup.py`)",
    "login": "waits for its user in a browser",
    "queue follow": "goes on until it is interrupted",
    "queue work": "goes on until it is interrupted",
    "serve": "goes on until its client leaves",
    "uninstall": "ends the daemon and removes the home; `--dry-run` is measured",
    "worker": "goes on until it is interrupted",
}
"""Commands that are not measured, and why."""


def commands() -> Generator[str]:
    """Yield every command and action that `toolcrib` has."""
    table: Any = get_command(app)
    with table.make_context("toolcrib", [], resilient_parsing=True) as context:
        for name in table.list_commands(context):
            actions: Mapping[str, Any] = getattr(table.resolve_command(context, [name])[1], "commands", {})
            yield from (f"{name} {action}" for action in actions) if actions else (name,)


def unmeasured() -> Sequence[str]:
    """Return the commands and actions that are neither measured nor left out."""
    measured = {" ".join(one.words[:words]) for one in CASES for words in (1, 2)}
    return [name for name in commands() if name not in measured and name not in LEFT_OUT]


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def spent_by(pid: int) -> float:
    """Return the CPU seconds of a process so far, and of those that it started and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """A home with 24 servers and a client that is connected to the daemon of them."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """Measure nothing yet."""
        self.home = home
        self.environment = environment
        self.client: IO[bytes] | None = None
        self.daemon = 0
        """The daemon's process."""
        self._runs = 0

    def run(self, words: Sequence[str], stdin: str = "", folder: str = "project") -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            [TOOLCRIB, *words],
            env=self.environment,
            cwd=self.home / folder,
            input=stdin,
            capture_output=True,
            check=False,
            text=True,
        )

    def prepare(self, one: Case) -> Sequence[str]:
        """Run what goes before, and return the words of the command line."""
        self._runs += 1
        id = self._asked() if one.asks else ""
        for words in one.before:
            done = self.run([word.format(run=self._runs) for word in words], "value", one.folder)
            id = json.loads(done.stdout)["id"] if words[-1] == "--json" else id
        return [word.replace("{id}", id).replace("{run}", str(self._runs)) for word in one.words]

    def _asked(self) -> str:
        """Let the client make a call that waits for approval; return the question's id."""
        assert self.client is not None
        tool = f"server{self._runs * len(ROLES) % SERVERS:02}__write_file"  # an answer may be for all calls of a tool
        call = {"name": "call_tool", "arguments": {"name": tool, "arguments": {"path": "x", "text": str(self._runs)}}}
        message = {"jsonrpc": "2.0", "id": f"call{self._runs}", "method": "tools/call", "params": call}
        self.client.write(json.dumps(message).encode() + b"\n")
        self.client.flush()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for question in json.loads(self.run(["approvals", "--json"]).stdout):
                if json.loads(question["arguments"])["text"] == str(self._runs):
                    return question["id"]
        raise TimeoutError("the call of the client does not ask")

    def cost_ms(self, one: Case) -> tuple[float, float, int]:
        """Return the least CPU of a command and that of the daemon, in milliseconds, and the exit status."""
        spent: list[float] = []
        by_daemon: list[float] = []
        status = 0
        for _ in range(RUNS):
            words = self.prepare(one)
            daemon_before = spent_by(self.daemon)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            status = self.run(words, one.stdin, one.folder).returncode
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            by_daemon.append(spent_by(self.daemon) - daemon_before)
        return min(spent) * 1000, min(by_daemon) * 1000, status


@contextmanager
def connected(bench: Bench) -> Generator[None]:
    """Keep a client connected to the daemon, whose servers have all listed their tools."""
    with subprocess.Popen(
        [TOOLCRIB, "serve", "--accept", "--daemon-idle", "1"],
        env=bench.environment,
        cwd=bench.home / "project",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        bench.client = client.stdin
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        for message in (HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}, listing):
            client.stdin.write(json.dumps(message).encode() + b"\n")
        client.stdin.flush()
        while json.loads(client.stdout.readline()).get("id") != 2:
            pass
        try:
            yield
        finally:
            client.stdin.close()
            client.wait(PATIENCE)


def furnish(home: Path) -> Mapping[str, str]:
    """Write the files of a user with 24 servers into `home`; return the environment of the user's processes."""
    for folder in (".config/toolcrib", ".cursor", ".claude", "project", "other/.toolcrib"):
        (home / folder).mkdir(parents=True)
    entry = {"command": sys.executable}
    servers = {
        f"server{place:02}": {**entry, "args": [str(SERVER), ROLES[place % len(ROLES)]]} for place in range(SERVERS)
    }
    (home / ".config/toolcrib/config.yaml").write_text(json.dumps({"servers": servers}))
    (home / ".claude/settings.json").write_text('{"permissions": {"deny": ["Bash(rm:*)"]}}')
    (home / "other/.toolcrib/config.yaml").write_text("rules: {deny: ['Bash(rm:*)']}")
    imported = {"mcpServers": {"imported": {**entry, "args": [str(SERVER), "echo", "changed"]}}}
    (home / ".cursor/mcp.json").write_text(json.dumps(imported))
    (home / "run").mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TOOLCRIB_", "PYTHON"))}
    return {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "TOOLCRIB_COMMAND": TOOLCRIB}


def main(wanted: Sequence[str]) -> int:
    """Measure every command, or those that are `wanted`; return 1 where one costs too much, 2 where one is unknown."""
    if missing := unmeasured():
        print(f"neither measured nor left out: {', '.join(missing)}")
        return 2
    cases = [one for one in CASES if not wanted or (one.words and one.words[0] in wanted)]
    home = Path(tempfile.mkdtemp(prefix="toolcrib-bench-"))
    bench = Bench(home, furnish(home))
    missed = 0
    try:
        with connected(bench):
            bench.run(["accept"])
            bench.daemon = json.loads(bench.run(["daemon", "--json"]).stdout)[0]["pid"]
            least, _, _ = bench.cost_ms(case("--help"))
            print(f"{'--help':44} {least:7.0f} ms")
            for one in cases:
                cost, by_daemon, status = bench.cost_ms(one)
                verdict = "held" if cost - least <= LIMIT_MS else "missed"
                missed += verdict == "missed"
                line = shlex.join(one.words).replace(NEW_SERVER, "SERVER") or "(alone)"
                line += " (after a change)" if one.before == tuple(map(shlex.split, CHANGE)) else ""
                print(
                    f"{line:44} {cost - least:+7.0f} ms  {verdict}  (exit {status}; daemon {by_daemon:.0f} ms)",
                    flush=True,
                )
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{len(cases) - missed} of {len(cases)} command lines within {LIMIT_MS} ms of CPU above --help; left out:")
    for name, reason in LEFT_OUT.items():
        print(f"  {name}: {reason}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
