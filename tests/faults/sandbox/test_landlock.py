"""Commands under Landlock, where bubblewrap does not work: what they see, change, reach and leave behind."""

from __future__ import annotations

import ctypes
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
from toolcrib.sandbox.bubblewrap import CommandLimits
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

    async def run(text: str, *, network: bool | Reach = False, bounds: CommandLimits | None = None) -> Outcome:
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
    lambda: libc.syscall(469, -100, name, (ctypes.c_uint64 * 3)(0x80), 24, 0),
    lambda: libc.utimensat(-100, name, (ctypes.c_long * 4)(1, 0, 1, 0), 0),
    lambda: libc.utimensat(there, b"", (ctypes.c_long * 4)(1, 0, 1, 0), 0x1000),
    lambda: libc.utimes(name, (ctypes.c_long * 4)(1, 0, 1, 0)),
    lambda: libc.inotify_add_watch(libc.inotify_init(), os.path.dirname(outside).encode(), 0xFFF),
    lambda: libc.fanotify_init(0x200, 0),
    lambda: libc.ioctl(os.open("/usr/bin/env", os.O_RDONLY), 0x40086602, (ctypes.c_long * 1)(0x40)),
    lambda: libc.fcntl(os.open("/usr/bin/env", os.O_RDONLY), 1024, 1),
]
print([attempt() for attempt in attempts])
print(libc.chmod(own, 0o700), libc.fchmod(os.open(inside, os.O_RDONLY), 0o750), libc.chmod(own + b"-gone", 0o700),
      ctypes.get_errno(), libc.chmod(b"x" * 5000, 0o700), ctypes.get_errno())
libc.chmod.argtypes = (ctypes.c_void_p, ctypes.c_int)
print([(libc.chmod(address, 0o700), ctypes.get_errno()) for address in (1, 2**47 - 4096, 2**64 - 1)])
os.utime(inside, (5, 5))
print(libc.chmod(f"/proc/self/fd/{os.open(inside, os.O_PATH)}".encode() + bytes(1), 0o750),
      libc.chown(own, os.getuid(), -1), libc.fchmodat(-1, os.path.abspath(inside).encode(), 0o750, 0),
      libc.inotify_add_watch(libc.inotify_init(), b".", 0xFFF), os.stat(inside).st_mtime)
"""


async def test_it_changes_modes_owners_and_attributes_of_its_own_files_only(run: Run, home: Path, folder: Path) -> None:
    (folder / "modes.py").write_text(MODES)
    mine, key = folder / "mine", home / ".ssh" / "id_ed25519"
    mine.touch()
    key.chmod(0o600)

    outcome = await run(f"python3 modes.py {key} {mine}")

    assert outcome.text.splitlines() == [
        str([-1] * 18),
        f"0 0 -1 {errno.ENOENT} -1 {errno.ENAMETOOLONG}",
        str([(-1, errno.EFAULT)] * 3),
        "0 0 0 1 5.0",
    ]
    assert key.stat().st_mtime > 5
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


OTHERS = """
import ctypes, os, sys
pid, queue = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
message = ctypes.create_string_buffer(bytes([1] + [0] * 7) + b"evil")
attempts = {
    "priority": lambda: libc.setpriority(0, pid, 5),
    "priority of a user": lambda: libc.setpriority(2, 0, 19),
    "processors": lambda: libc.sched_setaffinity(pid, 8, ctypes.byref(ctypes.c_ulong(1))),
    "scheduler": lambda: libc.sched_setscheduler(pid, 3, ctypes.byref(ctypes.c_int(0))),
    "disk": lambda: libc.syscall(int(sys.argv[3]), 1, pid, 3 << 13),
    "queue": lambda: libc.msgsnd(queue, message, 4, 0o4000),
    "memory": lambda: libc.shmctl(0, 0, 0),
    "semaphore": lambda: libc.semctl(0, 0, 0),
    "queue by name": lambda: libc.mq_unlink(b"/evil"),
}
print([name for name, attempt in attempts.items() if attempt() != -1 or ctypes.get_errno() not in (1, 13)])
print(libc.setpriority(0, 0, 5), os.sched_setaffinity(0, os.sched_getaffinity(0)))
"""


async def test_it_changes_no_other_process_and_no_queue_of_its_user(
    run: Run, folder: Path, neighbour: subprocess.Popen[bytes]
) -> None:
    (folder / "others.py").write_text(OTHERS)
    libc = ctypes.CDLL(None)
    queue = libc.msgget(0, 0o1600)  # IPC_PRIVATE, IPC_CREAT
    number = {"x86_64": 251, "aarch64": 30}[os.uname().machine]
    try:
        outcome = await run(f"python3 others.py {neighbour.pid} {queue} {number}")
    finally:
        libc.msgctl(queue, 0, None)

    assert outcome.text.splitlines() == ["[]", "0 None"]


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
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    try:
        print(socket.socketpair(type=kind)[0].sendto(b"evil", sys.argv[2]))
    except OSError:
        print("no")
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

    assert without.text.split() == ["no", "no", "no", "pair", "no", "no"]
    assert given.text.split() == ["reached", "no", "no", "pair", "no", "no"]


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
    assert outcome.text.splitlines()[-1] == f"1 {bounding}", (
        "no new privileges, and the bounding set has no CAP_SYS_ADMIN"
    )
    assert not (folder / "disk").exists()


KILLED = """
import os, threading, time
def change():
    while True:
        os.chmod("file", 0o600)
open("file", "w").close()
for number in range(150):
    child = os.fork()
    if not child:
        for _ in range(7):
            threading.Thread(target=change, daemon=True).start()
        change()
    time.sleep(0.003 + number % 7 * 0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
os.chmod("file", 0o640)
"""


async def test_a_process_killed_in_a_call_that_others_make_for_it_holds_up_nothing(run: Run, folder: Path) -> None:
    (folder / "killed.py").write_text(KILLED)

    outcome = await run("python3 killed.py")

    assert (outcome.finished.status, outcome.text) == (0, "")
    assert (folder / "file").stat().st_mode & 0o777 == 0o640


async def test_no_descriptor_of_ours_reaches_it(run: Run, folder: Path) -> None:
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(300)]
    try:
        outcome = await run(
            "python3 -c \"import os; print([n for n in range(2000) if os.path.lexists(f'/proc/self/fd/{n}')])\""
        )
    finally:
        for one in held:
            os.close(one)

    assert outcome.text == "[0, 1, 2]\n"


@pytest.mark.parametrize("closed", ["chmod 555 .git .git/hooks .", "chmod 000 .git/hooks; chmod 000 .git"])
async def test_what_starts_programs_is_put_back_in_folders_that_it_closed(run: Run, folder: Path, closed: str) -> None:
    git(folder, "init", "--quiet")
    (folder / ".git" / "hooks" / "pre-push").write_text("check")
    config = (folder / ".git" / "config").read_bytes()

    outcome = await run(
        "git init -q sub; git -C sub config core.fsmonitor evil; chmod 000 sub/.git sub; rm .git/hooks/pre-push;"
        " cp /bin/true .git/hooks/pre-commit; chmod 111 .git/hooks/pre-commit; git config core.fsmonitor evil;"
        f" {closed}"
    )

    assert (folder / ".git" / "config").read_bytes() == config
    assert (folder / ".git" / "hooks" / "pre-push").read_text() == "check"
    names = (".git/config", ".git/hooks/pre-commit", "sub/.git/config")
    assert outcome.aside == tuple(str(folder / f"{name}.aside") for name in names)
    places = (".git", ".git/hooks", "sub/.git")
    assert [(folder / place).stat().st_mode & 0o700 for place in places] == [0o700] * 3


async def test_nothing_behind_a_link_is_put_aside_written_or_opened(run: Run, folder: Path, tmp_path: Path) -> None:
    git(folder, "init", "--quiet", "sub/x")
    (folder / "sub/x/.git/hooks/pre-push").write_text("check")
    other = tmp_path / "elsewhere" / "x"
    git(tmp_path, "init", "--quiet", "elsewhere/x")
    (other / ".git" / "hooks" / "pre-commit").write_text("own")
    (other / ".git").chmod(0o500)
    before = sorted(str(path) for path in (tmp_path / "elsewhere").rglob("*"))

    outcome = await run(f"mv sub moved && ln -s {tmp_path}/elsewhere sub")

    assert outcome.finished.status == 0
    assert sorted(str(path) for path in (tmp_path / "elsewhere").rglob("*")) == before
    assert (other / ".git").stat().st_mode & 0o777 == 0o500


async def test_what_is_put_back_in_a_folder_may_be_far_below_it(run: Run, folder: Path) -> None:
    outcome = await run("git init -q a/b/c; git -C a/b/c config core.fsmonitor evil; chmod 000 a/b/c a/b a")

    assert outcome.aside == (str(folder / "a/b/c/.git/config.aside"),)


async def test_copies_and_archives_keep_modes_owners_and_times(run: Run, folder: Path) -> None:
    tar = "tar cf t.tar a && mkdir t && tar xf t.tar -C t && test -L t/a/l && cp -a a b && touch -r a b/f"
    outcome = await run(f"mkdir a && echo x > a/f && ln -s f a/l && chmod 750 a && {tar} && install -m 700 a/f c")

    assert (outcome.finished.status, outcome.text) == (0, "")
    assert [(folder / name).stat().st_mode & 0o777 for name in ("t/a", "b", "c")] == [0o750, 0o750, 0o700]


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


ESCAPES = {
    "forks for ever": """
for _ in range(8):
    if not os.fork():
        os.setsid()
        for count in itertools.count():
            if os.fork():
                os._exit(0)
            if count % 50 == 0:
                note()
""",
    "another signal at its end": """
if libc.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0, 0, 0, 0, 0) == 0:
    os.setsid()
    go_on()
""",
    "a sibling": """
if libc.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x8000 | 17, 0, 0, 0, 0) == 0:
    os.setsid()
    go_on()
""",
    "a thread without its first": """
if not os.fork():
    os.setsid()
    threading.Thread(target=go_on).start()
    libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
""",
    "adopts itself": """
libc.prctl(36, 1, 0, 0, 0)
if not os.fork() and not os.fork():
    os.setsid()
    go_on()
""",
    "signals to all": """
if not os.fork():
    os.setsid()
    for number in range(1, 65):
        if libc.kill(int(sys.argv[1]), number) == 0:
            os.write(2, b"sent")
    go_on()
""",
}
ESCAPE = """
import ctypes, itertools, os, sys, threading, time
libc = ctypes.CDLL(None)
def note():
    new = f"alive.{os.getpid()}"
    with open(new, "w") as file:
        file.write(str(time.time()))
    os.replace(new, "alive")
def go_on():
    while True:
        note()
        time.sleep(0.02)
"""


@pytest.mark.parametrize("way", ESCAPES)
async def test_nothing_outlives_it_by_its_own_doing(run: Run, folder: Path, way: str) -> None:
    wait = "\nif os.getpid() == first:\n    while not os.path.exists('alive'):\n        time.sleep(0.01)\n"
    (folder / "escape.py").write_text(f"{ESCAPE}\nfirst = os.getpid()\n{ESCAPES[way]}{wait}")

    outcome = await run("exec python3 escape.py $PPID")

    assert outcome.text == ""
    await stands_still(folder / "alive")


async def test_it_ends_where_its_supervisor_is_killed(sandbox: Landlock, folder: Path) -> None:
    text = "(setsid bash -c 'while :; do echo $RANDOM > alive; sleep 0.02; done' &); echo $PPID; sleep 99"
    command = Command(argv=("/bin/bash", "-c", text), cwd=folder, folders=(folder,))

    with anyio.fail_after(PATIENCE):
        async with sandbox.open(command) as running:
            told = await running.read()
            assert told is not None
            await eventually(lambda: (folder / "alive").exists() and (folder / "alive").stat().st_size > 0)
            os.kill(int(told[1]), signal.SIGKILL)
            finished = await running.wait()

    assert finished.status == 128 + signal.SIGKILL
    await stands_still(folder / "alive")


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
        argv=("/bin/bash", "-c", "trap 'echo caught; exit 7' INT; echo ready; while :; do :; done"),
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


async def test_it_ignores_no_signal_that_our_own_start_ignored(run: Run) -> None:
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a script's `toolcrib serve &` starts with
    try:
        outcome = await run("trap 'echo caught' INT; kill -INT $$; :")
    finally:
        signal.signal(signal.SIGINT, earlier)

    assert outcome.text == "caught\n"


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
    bounds = CommandLimits(memory=256 << 20, file=1 << 20, processes=40, open_files=64)

    large = await run("head -c 2000000 /dev/zero > large; wc -c < large", bounds=bounds)
    hungry = await run("python3 -c 'x = bytearray(600 << 20)'", bounds=bounds)
    many = await run("for i in $(seq 200); do sleep 30 & done; wait", bounds=bounds)

    assert large.text.split()[-1] == str(1 << 20)
    assert "MemoryError" in hungry.text
    assert many.finished.stopped.startswith("more than 40 processes at a time") or "fork" in many.text


DEEP = 'cd ~ && python3 -c \'import os; [(os.mkdir("d"), os.chdir("d")) for _ in range(1500)]\''


async def test_nothing_of_a_command_stays_in_the_temporary_folder(
    sandbox: Landlock, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = Command(
        argv=("/bin/bash", "-c", f'mkdir "$TMPDIR/a" && touch "$TMPDIR/a/b" && chmod 000 "$TMPDIR/a" && {DEEP}'),
        cwd=folder,
        folders=(folder,),
    )
    with suppress(ToolFailure):
        assert (await outcome_of(sandbox, command)).finished.status == 0

    assert not list(tmp_path.glob("toolcrib-command-*"))
