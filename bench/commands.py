"""What every command costs with 24 servers configured and a daemon that has them running: CPU above that of `--help`.

Claim (issue 14, item 7): at most 150 ms more than `toolcrib --help`. A figure is the least CPU of several runs, of the
command and of the programs that it starts and waits for; beside it stands what the daemon spends on it meanwhile.
Prints one line a command and `held` or `missed`; ends with 1 where one is missed. Commands that start one server on
purpose (`call`, `doctor`, `add`, `import`) are left out.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "tests" / "peers" / "plain_server.py"
TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))
SERVERS, RUNS, LIMIT_MS, PATIENCE = 24, 3, 150, 60.0
ROLES = ("write", "fetch", "echo", "resource")
COMMANDS: Sequence[Sequence[str]] = (
    (),
    ("overview", "--json"),
    ("tools",),
    ("tools", "--json"),
    ("find", "write a file"),
    ("show", "server00__write_file"),
    ("why", "server00__write_file"),
    ("policy", "list"),
    ("policy", "test", "server00__write_file"),
    ("guard", "status"),
    ("profile", "list"),
    ("profile", "show", "flat"),
    ("plugins",),
    ("approvals",),
    ("jobs",),
    ("results",),
    ("pending",),
    ("shadow",),
    ("secret",),
    ("log",),
    ("lock", "--check"),
    ("daemon", "status"),
    ("connect", "cursor", "--dry-run"),
    ("disconnect", "--all"),
    ("uninstall", "--dry-run"),
    ("version",),
)
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def spent_by(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost_ms(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, daemon: int
) -> tuple[float, float, int]:
    """Return the least CPU of a command and that of the process `daemon`, in milliseconds, and the exit status."""
    spent: list[float] = []
    by_daemon: list[float] = []
    status = 0
    for _ in range(RUNS):
        daemon_before = spent_by(daemon)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [TOOLCRIB, *words], env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        after, status = resource.getrusage(resource.RUSAGE_CHILDREN), done.returncode
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        by_daemon.append(spent_by(daemon) - daemon_before)
    return min(spent) * 1000, min(by_daemon) * 1000, status


@contextmanager
def daemon(environment: Mapping[str, str], folder: Path) -> Generator[None]:
    """Keep a client connected to the daemon, whose servers have all listed their tools."""
    with subprocess.Popen(
        [TOOLCRIB, "serve", "--accept", "--daemon-idle", "1"],
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as client:
        assert client.stdin is not None and client.stdout is not None
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


def main() -> int:
    """Measure every command; return 1 where one costs too much."""
    folder = Path(tempfile.mkdtemp(prefix="toolcrib-bench-"))
    project = folder / "project"
    config = folder / ".config" / "toolcrib" / "config.yaml"
    config.parent.mkdir(parents=True)
    project.mkdir()
    (folder / ".cursor").mkdir()
    (folder / ".cursor" / "mcp.json").write_text('{"mcpServers": {}}')
    entry = {"command": sys.executable}
    servers = {
        f"server{number:02}": {**entry, "args": [str(SERVER), ROLES[number % len(ROLES)]]} for number in range(SERVERS)
    }
    config.write_text(json.dumps({"servers": servers}))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TOOLCRIB_", "PYTHON"))}
    environment = {**kept, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"), "TOOLCRIB_COMMAND": TOOLCRIB}
    (folder / "run").mkdir(mode=0o700)
    missed = 0
    try:
        with daemon(environment, project):
            subprocess.run([TOOLCRIB, "accept"], env=environment, cwd=project, capture_output=True, check=False)
            asked = subprocess.run([TOOLCRIB, "daemon", "--json"], env=environment, capture_output=True, check=True)
            serving = json.loads(asked.stdout)[0]["pid"]
            least, _, _ = cost_ms(("--help",), environment, project, serving)
            print(f"{'--help':44} {least:7.0f} ms")
            for words in COMMANDS:
                cost, by_daemon, status = cost_ms(words, environment, project, serving)
                verdict = "held" if cost - least <= LIMIT_MS else "missed"
                missed += verdict == "missed"
                print(
                    f"{' '.join(words) or '(alone)':44} {cost - least:+7.0f} ms  {verdict}  (exit {status}; "
                    f"daemon {by_daemon:.0f} ms)",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(COMMANDS) - missed} of {len(COMMANDS)} commands within {LIMIT_MS} ms of CPU above --help")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
