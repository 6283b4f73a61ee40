"""Commands under Landlock, where bubblewrap does not work: what they see, change, reach and leave behind."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from rig import PATIENCE, eventually
from rig.sandbox import LANDLOCK, SECRET, Outcome, Run, needs_landlock, outcome_of, stands_still
from seeds.inventory import git
from toolcrib.core.sandbox import Command, Reach
from toolcrib.errors import ToolFailure
from toolcrib.sandbox.bubblewrap import Bounds
from toolcrib.sandbox.detection import find_sandbox
from toolcrib.sandbox.landlock import Landlock

pytestmark = needs_landlock


@pytest.fixture
def sandbox(home: Path) -> Landlock:
    """The sandbox of a process with secrets in its environment."""
    assert isinstance(LANDLOCK, Landlock)
    return replace(LANDLOCK, environ={**os.environ, "HOME": str(home), "API_TOKEN": SECRET})


@pytest.fixture
def run(sandbox: Landlock, folder: Path) -> Run:
    """Run a shell command in the workspace."""

    async def run(text: str, *, network: bool | Reach = False, bounds: Bounds | None = None) -> Outcome:
        command = Command(argv=("/bin/bash", "-c", text), cwd=folder, folders=(folder,), network=network)
        return await outcome_of(replace(sandbox, bounds=bounds or sandbox.bounds), command)

    return run


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of the same user."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={"NEIGHBOUR": SECRET}) as process:
        yield process
        process.kill()


def test_it_is_found_where_bubblewrap_is_not_and_the_operator_lets_it() -> None:
    environ = {**os.environ, "PATH": "/nonexistent"}
    found, why = find_sandbox(environ, landlock=True)

    assert (found and found.kind, why) == ("landlock", "bubblewrap (bwrap) is not installed")
    assert find_sandbox(environ) == (None, why)


async def test_it_works_in_the_workspace_with_the_programs_of_the_machine(run: Run, folder: Path) -> None:
    (folder / "in.txt").write_text("b\na\n")

    outcome = await run(
        "sort in.txt > out.txt; cat <(cat out.txt); git --version >/dev/null && echo git; chmod 755 out.txt;"
        ' echo x > "$TMPDIR/t"; cat "$TMPDIR/t"; touch ~/y && ls ~; exit 3'
    )

    assert (outcome.finished.status, outcome.text) == (3, "a\nb\ngit\nx\nt\ny\n")
    assert ((folder / "out.txt").read_text(), (folder / "out.txt").stat().st_mode & 0o777) == ("a\nb\n", 0o755)


@pytest.mark.parametrize(
    "attempt",
    [
        "env",
        "cat /proc/1/environ /proc/self/environ /proc/*/environ | tr '\\0' '\\n'",
        "cat ~/.ssh/* {home}/.ssh/id_ed25519 {home}/.aws/credentials; ls -laR {home}",
        "cat /proc/*/root{home}/.ssh/id_ed25519; cat /proc/*/cwd/home/.ssh/id_ed25519",
        "cat linked/.ssh/id_ed25519 linked-key; ls linked/",
        "ln -s {home}/.ssh/id_ed25519 made; cat made; ln {home}/.ssh/id_ed25519 hard; cat hard; mv {home}/.ssh .",
        "tar cf - {home} | cat; cp -r {home} copy; cat copy/.ssh/*",
    ],
    ids=["env", "proc-environ", "home", "proc-root", "links", "new-links", "copies"],
)
async def test_it_cannot_read_what_is_anybodys_own(
    run: Run, home: Path, folder: Path, neighbour: subprocess.Popen[bytes], attempt: str
) -> None:
    (folder / "linked").symlink_to(home)
    (folder / "linked-key").symlink_to(home / ".ssh" / "id_ed25519")

    outcome = await run(attempt.format(home=home))

    assert SECRET not in outcome.text


async def test_it_changes_nothing_but_in_the_workspace(run: Run, home: Path, tmp_path: Path, folder: Path) -> None:
    (folder / "out").symlink_to(tmp_path)
    key = home / ".ssh" / "id_ed25519"
    key.chmod(0o600)
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    await run(
        f"echo evil >> {home}/.bashrc; echo evil > {tmp_path}/evil; echo evil > ../evil; echo evil > out/evil;"
        f" echo evil > /tmp/evil; touch /usr/bin/evil /etc/evil /evil /dev/shm/evil; rm -rf {home}; mv {home} gone;"
        f" : > {home}/.bashrc; truncate -s 0 {home}/.bashrc; mkdir ../made; ln -s x ../made"
    )

    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert (home / ".bashrc").read_text() == "# as it was\n"
    assert not any(Path(place, "evil").exists() for place in ("/", "/etc", "/usr/bin", "/tmp", "/dev/shm"))


MODES = """
import ctypes, os, stat, sys
outside, inside = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
name, own = outside.encode(), inside.encode()
folder = os.open(os.path.dirname(outside), os.O_PATH)
there = os.open(outside, os.O_PATH)
base = os.path.basename(outside).encode()
os.symlink(outside, "link")
attempts = [
    lambda: libc.chmod(name, 0o777),
    lambda: libc.chmod(b"link", 0o777),
    lambda: libc.chmod(os.path.relpath(outside).encode(), 0o777),
    lambda: libc.fchmodat(folder, base, 0o777, 0),
    lambda: libc.syscall(452, folder, base, 0o777, 0),
    lambda: libc.syscall(452, there, b"", 0o777, 0x1000),
    lambda: libc.chmod(f"/proc/self/fd/{there}".encode(), 0o777),
    lambda: libc.chown(name, os.getuid(), os.getgid()),
    lambda: libc.lchown(name, os.getuid(), os.getgid()),
    lambda: libc.setxattr(name, b"user.evil", b"x", 1, 0),
]
print([attempt() for attempt in attempts])
print(libc.chmod(own, 0o700), libc.fchmod(os.open(inside, os.O_RDONLY), 0o750), libc.chmod(own + b"-gone", 0o700),
      ctypes.get_errno(), libc.chmod(b"x" * 5000, 0o700), ctypes.get_errno())
"""


async def test_it_changes_modes_owners_and_attributes_of_its_own_files_only(run: Run, home: Path, folder: Path) -> None:
    (folder / "modes.py").write_text(MODES)
    mine, key = folder / "mine", home / ".ssh" / "id_ed25519"
    mine.touch()
    key.chmod(0o600)

    outcome = await run(f"python3 modes.py {key} {mine}")

    assert outcome.text.splitlines() == [str([-1] * 10), f"0 0 -1 {errno.ENOENT} -1 {errno.ENAMETOOLONG}"]
    assert (key.stat().st_mode & 0o777, mine.stat().st_mode & 0o777) == (0o600, 0o750)
    assert os.listxattr(key) == []


async def test_it_signals_and_traces_no_process_but_its_own(
    run: Run, folder: Path, neighbour: subprocess.Popen[bytes]
) -> None:
    (folder / "trace.py").write_text(
        textwrap.dedent(f"""
        import ctypes, os, resource
        libc = ctypes.CDLL(None, use_errno=True)
        print([libc.ptrace(16, pid, 0, 0) for pid in ({neighbour.pid}, {os.getpid()})])
        for act in (lambda pid: os.kill(pid, 9), lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0))):
            try:
                act({neighbour.pid})
                print("done")
            except OSError as error:
                print("no", error.errno)
        """)
    )

    outcome = await run(f"python3 trace.py; kill -9 {neighbour.pid} {os.getpid()}; sleep 9 & kill $! && echo own")

    assert [line for line in outcome.text.splitlines() if "kill" not in line] == [
        "[-1, -1]",
        *[f"no {errno.EPERM}"] * 2,
        "own",
    ]
    assert neighbour.poll() is None


REACH = """
import socket, sys
for family, place in ((socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))), (socket.AF_UNIX, sys.argv[2]),
                      (socket.AF_UNIX, "\\0" + sys.argv[3])):
    try:
        socket.socket(family, socket.SOCK_STREAM).connect(place)
        print("reached")
    except OSError:
        print("no")
for pair in (socket.socketpair(),):
    print("pair")
"""


async def test_it_reaches_no_service_of_the_machine_unless_it_has_the_network(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    (folder / "reach.py").write_text(REACH)
    abstract = f"toolcrib-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        socket.socket(socket.AF_UNIX) as nameless,
    ):
        for one, place in ((local, str(tmp_path / "s")), (nameless, f"\0{abstract}")):
            one.bind(place)
            one.listen()
        text = f"python3 reach.py {server.getsockname()[1]} {tmp_path / 's'} {abstract}"

        without, given = await run(text), await run(text, network=True)

    assert without.text.split() == ["no", "no", "no", "pair"]
    assert given.text.split() == ["reached", "no", "no", "pair"]


async def test_named_hosts_cannot_be_held_and_are_reached_by_programs_of_the_machine_alone(
    sandbox: Landlock, run: Run, folder: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        reach = Reach(private=(place,))
        text = f"echo > /dev/tcp/{place.replace(':', '/')} && echo reached"
        with pytest.raises(ToolFailure) as caught:
            await run(text, network=reach)
        argv = ("/bin/bash", "-c", text)
        command = Command(argv=argv, cwd=folder, folders=(folder,), network=reach, trusted=True)
        outcome = await outcome_of(sandbox, command)

    assert (caught.value.code, outcome.text) == ("unavailable", "reached\n")


async def test_it_gains_nothing_by_setuid_programs_mounts_devices_or_namespaces(run: Run, folder: Path) -> None:
    (folder / "status.py").write_text(
        "import ctypes\nlibc = ctypes.CDLL(None)\nprint(libc.prctl(39, 0, 0, 0, 0), libc.prctl(23, 21, 0, 0, 0))"
    )

    outcome = await run(
        "mount -t tmpfs none . && echo mounted; mknod disk b 8 0 && echo made; unshare -Ur true && echo unshared;"
        " unshare -m true && echo unshared; chroot / true && echo chrooted; hostname evil && echo named;"
        " cat /dev/mem /dev/sda; python3 status.py"
    )

    assert {"mounted", "made", "unshared", "chrooted", "named"}.isdisjoint(outcome.text.splitlines())
    bounding = 0 if os.geteuid() == 0 else 1  # who has no capabilities cannot give up those that others have
    assert outcome.text.splitlines()[-1] == f"1 {bounding}", "no new privileges, and the bounding set has no CAP_SYS_ADMIN"
    assert not (folder / "disk").exists()


async def test_what_starts_programs_is_put_back_or_aside(run: Run, folder: Path) -> None:
    git(folder, "init", "--quiet")
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text("{}")
    config = (folder / ".git" / "config").read_bytes()

    outcome = await run(
        "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil; echo evil > .claude/settings.json;"
        " echo evil > .mcp.json; git init -q sub; git -C sub config core.fsmonitor evil; echo fine > fine"
    )

    assert (folder / ".git" / "config").read_bytes() == config
    assert (folder / ".claude" / "settings.json").read_text() == "{}"
    names = (".claude/settings.json", ".git/config", ".git/hooks/pre-commit", ".mcp.json", "sub/.git/config")
    assert outcome.aside == tuple(str(folder / f"{name}.aside") for name in names)
    assert (folder / "fine").exists()


@pytest.mark.parametrize("end", ["its end", "a limit of time", "our death"])
async def test_everything_that_it_started_ends_with_it(
    sandbox: Landlock, run: Run, folder: Path, tmp_path: Path, end: str
) -> None:
    leave = "(setsid bash -c 'trap \"\" TERM HUP; while :; do echo $RANDOM > alive; sleep 0.02; done' >&- 2>&- &)"
    alive = folder / "alive"
    if end == "its end":
        await run(f"{leave}; until [ -s alive ]; do sleep 0.01; done")
    elif end == "a limit of time":
        command = Command(argv=("/bin/bash", "-c", f"{leave}; sleep 99"), cwd=folder, folders=(folder,))
        with anyio.fail_after(PATIENCE):
            async with sandbox.open(command):
                await eventually(lambda: alive.exists() and alive.stat().st_size > 0)
    else:
        (tmp_path / "owner.py").write_text(OWNER.format(folder=str(folder), text=f"{leave}; sleep 99"))
        owner = await anyio.open_process([sys.executable, str(tmp_path / "owner.py")])
        await eventually(lambda: alive.exists() and alive.stat().st_size > 0)
        owner.send_signal(signal.SIGKILL)
        await owner.wait()

    await stands_still(alive)


OWNER = """
import anyio, os
from pathlib import Path
from toolcrib.core.sandbox import Command
from toolcrib.sandbox.detection import find_sandbox
folder = Path({folder!r})
sandbox, _ = find_sandbox({{"PATH": "/nonexistent"}}, landlock=True)
async def main():
    async with sandbox.open(Command(argv=("/bin/bash", "-c", {text!r}), cwd=folder, folders=(folder,))) as running:
        await running.wait()
anyio.run(main)
"""


async def test_a_signal_reaches_the_command_and_its_status_is_told(sandbox: Landlock, folder: Path) -> None:
    command = Command(
        argv=("/bin/bash", "-c", "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.01; done"),
        cwd=folder,
        folders=(folder,),
    )

    with anyio.fail_after(PATIENCE):
        async with sandbox.open(command) as running:
            assert await running.read() == ("stdout", b"ready\n")
            running.signal(signal.SIGINT)
            assert await running.read() == ("stdout", b"caught\n")
            finished = await running.wait()

    assert finished.status == 7


async def test_it_has_a_terminal_of_its_own(sandbox: Landlock, folder: Path) -> None:
    command = Command(
        argv=("/bin/bash", "-c", "tty >/dev/null && echo terminal; set -m; true & wait; set +m; stty size; exec cat"),
        cwd=folder,
        folders=(folder,),
        terminal=(30, 90),
    )
    text = b""
    with anyio.fail_after(PATIENCE):
        async with sandbox.open(command) as running:
            await running.write(b"said\n")
            while text.count(b"said") < 2:  # the terminal echoes it, and then `cat`
                piece = await running.read()
                assert piece is not None
                text += piece[1]
            await running.write(b"\x03")
            status = (await running.wait()).status

    assert (b"terminal" in text, b"30 90" in text, b"job control" in text) == (True, True, False)
    assert status == 128 + signal.SIGINT


async def test_its_limits_hold(run: Run, folder: Path) -> None:
    bounds = Bounds(memory=256 << 20, file=1 << 20, processes=40, open_files=64)

    large = await run("head -c 2000000 /dev/zero > large; wc -c < large", bounds=bounds)
    hungry = await run("python3 -c 'x = bytearray(600 << 20)'", bounds=bounds)
    many = await run("for i in $(seq 200); do sleep 30 & done; wait", bounds=bounds)

    assert large.text.split()[-1] == str(1 << 20)
    assert "MemoryError" in hungry.text
    assert many.finished.stopped == "more than 40 processes at a time" or "fork" in many.text


async def test_nothing_of_a_command_stays_in_the_temporary_folder(
    sandbox: Landlock, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = Command(
        argv=("/bin/bash", "-c", 'mkdir "$TMPDIR/a" && touch "$TMPDIR/a/b" && chmod 000 "$TMPDIR/a"'),
        cwd=folder,
        folders=(folder,),
    )
    with suppress(ToolFailure):
        assert (await outcome_of(sandbox, command)).finished.status == 0

    assert not list(tmp_path.glob("toolcrib-command-*"))
