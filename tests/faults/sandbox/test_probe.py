"""What a command tries that should not get out of the sandbox: R17 of the security goals, one test a kind of attempt.

Each attempt is checked from outside where it would show there, and each has a control: what a command may do works.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rig import eventually
from rig.sandbox import SECRET, Run, needs_filter, needs_root, needs_sandbox
from toolcrib.core.sandbox import Command
from toolcrib.sandbox.detection import find_sandbox

pytestmark = needs_sandbox


async def test_it_works_in_the_workspace_with_the_programs_of_the_machine(run: Run, folder: Path) -> None:
    (folder / "in.txt").write_text("b\na\n")

    outcome = await run("sort in.txt > out.txt; cat out.txt; git --version >/dev/null && echo git")

    assert (outcome.finished.status, outcome.text) == (0, "a\nb\ngit\n")
    assert (folder / "out.txt").read_text() == "a\nb\n"


# What it must not see


@pytest.mark.parametrize(
    "attempt",
    [
        "env",
        "cat /proc/1/environ /proc/self/environ /proc/*/environ | tr '\\0' '\\n'",
        "cat ~/.ssh/* ~/.aws/credentials {home}/.ssh/id_ed25519 {home}/.aws/credentials; ls -laR {home}",
        "cat /proc/*/root{home}/.ssh/id_ed25519; cat /proc/1/cwd/.ssh/id_ed25519",
        "find / -xdev -name id_ed25519 -exec cat {{}} +",
        "cat .env .env.local",
        "cat linked/.ssh/id_ed25519 linked-key; ls linked/",
        "ln -s {home}/.ssh/id_ed25519 made; cat made; ln {home}/.ssh/id_ed25519 hard; cat hard",
        "tar cf - {home} | cat; cp -r {home} copy; cat copy/.ssh/*",
    ],
    ids=["env", "proc-environ", "home", "proc-root", "find", "dotenv", "links", "new-links", "copies"],
)
async def test_it_cannot_read_what_is_anybodys_own(run: Run, home: Path, folder: Path, attempt: str) -> None:
    for name in (".env", ".env.local"):
        (folder / name).write_text(f"TOKEN={SECRET}")
    (folder / "linked").symlink_to(home)
    (folder / "linked-key").symlink_to(home / ".ssh" / "id_ed25519")

    outcome = await run(attempt.format(home=home))

    assert SECRET not in outcome.text


async def test_a_link_in_place_of_a_guarded_folder_shows_nothing(run: Run, home: Path, folder: Path) -> None:
    (folder / ".vscode").symlink_to(home / ".ssh")
    (folder / ".envrc").symlink_to(home / ".ssh" / "id_ed25519")

    outcome = await run("cat .vscode/id_ed25519 .envrc")

    assert SECRET not in outcome.text


@needs_root
async def test_it_is_not_root_where_root_runs_us_and_its_files_are_roots_outside(run: Run, folder: Path) -> None:
    (folder / "mine.txt").write_text("old")
    (folder / "theirs.txt").write_text("old")
    os.chown(folder / "theirs.txt", 4711, 4711)
    program = "import os, pwd; print(os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_dir == os.environ['HOME'])"

    outcome = await run(
        f'python3 -c "{program}"; echo new > mine.txt; echo new > made.txt; touch archived; chmod u-w archived;'
        " tar cf a.tar --owner=4711 --group=4711 archived && rm -f archived && tar xf a.tar && stat -c %u archived;"
        " chown 4711 made.txt 2>/dev/null || echo no; git init -q r && git -C r status --short && echo git"
    )
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in folder.iterdir()}

    assert outcome.text == "1000 1000 True\n1000\nno\ngit\n"
    assert owners == {
        "a.tar": (0, 0),
        "archived": (0, 0),
        "made.txt": (0, 0),
        "mine.txt": (0, 0),
        "r": (0, 0),
        "theirs.txt": (4711, 4711),
    }


async def test_it_cannot_read_the_password_hashes(run: Run) -> None:
    outcome = await run("cat /etc/shadow /etc/gshadow /etc/sudoers; ls /etc/ssh ~root/.ssh /var/run/docker.sock")

    assert outcome.finished.status != 0
    assert "root:" not in outcome.text


async def test_it_sees_no_process_but_its_own(run: Run) -> None:
    outcome = await run(f"for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done; kill -9 {os.getpid()}")

    assert "/bin/sh -c" in outcome.text
    assert sys.executable not in outcome.text


async def test_it_traces_no_process_of_the_machine(run: Run, folder: Path) -> None:
    (folder / "trace.py").write_text(
        textwrap.dedent(f"""
        import ctypes, ctypes.util
        libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
        print([libc.ptrace(16, pid, 0, 0) for pid in ({os.getpid()}, {os.getppid()})])
        """)
    )

    outcome = await run("python3 trace.py")

    assert outcome.text == "[-1, -1]\n"


async def test_it_reaches_no_service_of_the_machine_and_no_network(run: Run, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (folder / "reach.py").write_text(
            textwrap.dedent(f"""
            import socket
            for place in (("127.0.0.1", {port}), ("localhost", {port}), ("1.1.1.1", 443), ("169.254.169.254", 80)):
                try:
                    socket.create_connection(place, timeout=2).close()
                    print("reached", place)
                except OSError as error:
                    print("no")
            """)
        )

        without = await run("python3 reach.py; ls /run /var/run 2>/dev/null")
        given = await run("python3 reach.py", network=True)

    assert without.text == "no\n" * 4
    assert f"reached ('127.0.0.1', {port})" in given.text, "the network is there for who has it"


async def test_it_finds_no_socket_of_docker_or_of_a_session(run: Run) -> None:
    outcome = await run(
        "find / -xdev -type s 2>/dev/null;"
        " ls -d /run/docker.sock /var/run/docker.sock /run/user /tmp/.X11-unix 2>/dev/null"
    )

    assert outcome.text == ""


CALLS = """
import ctypes, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (248, 250, 425), "aarch64": (217, 219, 425)}[platform.machine()]
def call(*words):
    ctypes.set_errno(0)
    return libc.syscall(*words), ctypes.get_errno()
add, keyctl, io_uring = numbers
print("add", *call(add, b"user", b"canary-inside", b"x", 1, -3))
print("search", *call(keyctl, 10, -3, b"user", b"canary-of-the-tests", 0))
print("io_uring", *call(io_uring, 1, 0))
for family in (socket.AF_VSOCK, 38, 31):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print("socket", family)
    except OSError as error:
        print("no socket", error.errno)
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    socket.socket(family, socket.SOCK_STREAM).close()
"""


@needs_filter
async def test_keys_of_the_session_and_sockets_past_the_network_are_out_of_reach(run: Run, folder: Path) -> None:
    (folder / "calls.py").write_text(CALLS)

    outcome = await run("python3 calls.py")

    assert outcome.text.splitlines() == [
        f"add -1 {errno.EPERM}",
        f"search -1 {errno.EPERM}",
        f"io_uring -1 {errno.ENOSYS}",
        *[f"no socket {errno.EAFNOSUPPORT}"] * 3,
    ]


# What it must not change


async def test_it_cannot_leave_a_hook_or_configuration_of_git(run: Run, folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    config = (folder / ".git" / "config").read_bytes()
    hooks = sorted(path.name for path in (folder / ".git" / "hooks").iterdir())

    await run(
        "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil; echo evil >> .git/config;"
        " mv .git/hooks .git/h; rm -rf .git/hooks; mv .git .git2; rm -rf .git; mkdir -p .git/hooks;"
        " echo evil > .git/hooks/post-checkout; ln -sf /tmp .git/hooks/x; echo '* filter=evil' > .git/info/attributes;"
        " umount .git/hooks; mount -o remount,rw .git/hooks; chmod -R 777 .git/hooks; echo evil > .git/config.worktree"
    )

    assert (folder / ".git" / "config").read_bytes() == config
    assert sorted(path.name for path in (folder / ".git" / "hooks").iterdir()) == hooks
    assert not (folder / ".git2").exists()
    assert not (folder / ".git" / "config.worktree").exists()


async def test_a_repository_without_hooks_gets_none(run: Run, folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", "--template=", str(folder)], check=True)

    await run("mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit")

    assert list((folder / ".git" / "hooks").iterdir()) == []


def state(repository: Path) -> tuple[bytes, list[str]]:
    """What of a repository runs or says what runs."""
    return (repository / "config").read_bytes(), sorted(path.name for path in (repository / "hooks").iterdir())


@pytest.mark.parametrize("place", ["sub", "a/b/c", "origin.git"], ids=["below", "deep", "bare"])
async def test_a_repository_below_the_root_is_guarded_like_the_one_in_it(run: Run, folder: Path, place: str) -> None:
    bare = ["--bare"] if place.endswith(".git") else []
    subprocess.run(["git", "init", "--quiet", *bare, str(folder / place)], check=True)
    repository = folder / place if bare else folder / place / ".git"
    (folder / place / ".vscode").mkdir()
    (folder / place / ".env").write_text(SECRET if not bare else "")
    before = state(repository)
    at = repository.relative_to(folder)

    outcome = await run(
        f"echo evil > {at}/hooks/pre-commit; git -C {place} config core.fsmonitor evil; echo evil >> {at}/config;"
        f" mv {at}/hooks {at}/h; rm -rf {at}/hooks; rm -rf {at}; mv {at} gone; chmod -R 777 {at}/hooks;"
        f" echo evil > {at}/config.worktree; echo evil > {place}/.vscode/tasks.json; echo done;"
        f" cat {place}/.env gone/.env"
    )

    assert "done" in outcome.text
    assert SECRET not in outcome.text
    assert state(repository) == before
    assert not (repository / "config.worktree").exists()
    assert bare or list((folder / place / ".vscode").iterdir()) == []


async def test_a_repository_that_takes_the_place_of_one_that_was_moved_is_put_aside(run: Run, folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(folder / "a" / "sub")], check=True)
    before = state(folder / "a" / "sub" / ".git")

    outcome = await run("mv a gone; mkdir -p a/sub; git init -q a/sub; git -C a/sub config core.fsmonitor evil")

    assert state(folder / "gone" / "sub" / ".git") == before
    aside = folder / "a" / "sub" / ".git.aside"
    assert outcome.aside == (str(aside), str(aside / "config.aside"))  # a repository by any name is one to git
    assert not (folder / "a" / "sub" / ".git").exists()


async def test_a_repository_of_a_worktree_below_keeps_naming_the_same(run: Run, folder: Path) -> None:
    """`.git` is a file there, as in a submodule: another one would name another configuration."""
    main = folder / "main"
    subprocess.run(["git", "init", "--quiet", str(main)], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(main), *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run(["git", "-C", str(main), "worktree", "add", "-q", str(folder / "tree")], check=True)
    says = (folder / "tree" / ".git").read_text()

    outcome = await run("echo gitdir: evil > tree/.git; rm -f tree/.git; mv tree/.git x; git -C tree status -sb")

    assert (folder / "tree" / ".git").read_text() == says
    assert "## tree" in outcome.text


def made(place: Path) -> Path:
    """A repository with one commit."""
    subprocess.run(["git", "init", "--quiet", str(place)], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(place), *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return place


def runs_something(place: Path) -> bool:
    """Whether git, as a person calls it there later, runs what `POISON` has left."""
    subprocess.run(["git", "-C", str(place), "status"], check=False, capture_output=True)
    return (place / "owned").exists()


POISON = (
    "mkdir -p evil; cp -r {git}/objects {git}/refs {git}/HEAD evil/;"
    ' printf \'[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = "touch %s/owned; false"\\n\' "$PWD"'
    " > evil/config;"
    " {leave}; true"
)
"""Makes a configuration that runs a program, and has git find it."""


@pytest.mark.parametrize("place", ["", "sub"], ids=["root", "below"])
async def test_git_cannot_be_told_to_look_for_its_configuration_elsewhere(run: Run, folder: Path, place: str) -> None:
    made(folder / place)

    outcome = await run(f"cd ./{place}; " + POISON.format(git=".git", leave='echo "$PWD/evil" > .git/commondir'))

    assert not runs_something(folder / place)
    names = (".git/commondir.aside", "evil/config.aside")
    assert outcome.aside == tuple(str(folder / place / name) for name in names)


@pytest.mark.parametrize("at", ["tree", "main"], ids=["in-the-worktree", "beside-it"])
async def test_a_worktree_cannot_be_given_another_repository(tmp_path: Path, at: str) -> None:
    main, tree = made(tmp_path / "main"), tmp_path / "tree"
    subprocess.run(["git", "-C", str(main), "worktree", "add", "-q", str(tree)], check=True)
    own = main / ".git" / "worktrees" / "tree"
    sandbox, why = find_sandbox(os.environ)
    assert sandbox is not None, why
    before = (own / "commondir").read_bytes(), (own / "gitdir").read_bytes()

    leave = f'echo "$PWD/evil" > {own}/commondir; rm -f {own}/commondir; mv {own}/gitdir x; touch {own}/config.worktree'
    text = POISON.format(git=main / ".git", leave=leave)
    command = Command(argv=("/bin/sh", "-c", text), cwd=tmp_path / at, folders=(tmp_path / at,))
    async with sandbox.open(command) as running:
        await running.wait()

    assert ((own / "commondir").read_bytes(), (own / "gitdir").read_bytes()) == before
    assert sorted(running.aside) == sorted([f"{own}/config.worktree.aside", f"{tmp_path}/{at}/evil/config.aside"])
    assert not runs_something(tree)


async def test_a_repository_stays_guarded_however_many_others_are_made(folder: Path) -> None:
    deep = made(folder / "a" / "b" / "deep")
    before = state(deep / ".git")
    texts = ["for i in $(seq 60); do mkdir -p d$i/objects d$i/refs; echo > d$i/HEAD; done"]
    texts += ["git -C a/b/deep config core.fsmonitor evil; echo evil > a/b/deep/.git/hooks/pre-commit"]

    for text in texts:
        sandbox, why = find_sandbox(os.environ)  # anew, as after a restart
        assert sandbox is not None, why
        async with sandbox.open(Command(argv=("/bin/sh", "-c", text), cwd=folder, folders=(folder,))) as running:
            await running.wait()

    assert (folder / "d60").exists()
    assert state(deep / ".git") == before


async def test_another_place_for_the_configuration_of_git_does_not_last_while_a_command_runs(folder: Path) -> None:
    made(folder)
    sandbox, why = find_sandbox(os.environ)
    assert sandbox is not None, why
    command = Command(
        argv=(
            "/bin/sh",
            "-c",
            "mkdir .claude; echo z > .claude/x; echo x > .envrc; echo y > .git/commondir; echo made; cat",
        ),
        cwd=folder,
        folders=(folder,),
    )

    async with sandbox.open(command) as running:
        assert await running.read() == ("stdout", b"made\n")
        await eventually(lambda: not (folder / ".git" / "commondir").exists())
        theirs = [(folder / name).exists() for name in (".claude", ".envrc")]

    assert theirs == [True, True], "these may be the user's, until the command has ended"
    names = (".claude/x", ".envrc", ".git/commondir")
    assert running.aside == tuple(sorted(str(folder / f"{name}.aside") for name in names))


async def test_a_repository_that_came_between_two_commands_is_found(folder: Path) -> None:
    sandbox, why = find_sandbox(os.environ)
    assert sandbox is not None, why
    texts = ("true", "echo evil > x/sub/.git/hooks/pre-commit", "echo evil > x/y/z/.git/hooks/pre-commit")
    for text, made in zip(texts, ("x/sub", "x/y/z", ""), strict=True):
        command = Command(argv=("/bin/sh", "-c", text), cwd=folder, folders=(folder,))
        async with sandbox.open(command) as running:
            await running.wait()
        if made:
            subprocess.run(["git", "init", "--quiet", str(folder / made)], check=True)

    assert not list(folder.rglob("hooks/pre-commit"))


async def test_git_works_in_a_repository_below(run: Run, folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(folder / "sub")], check=True)

    outcome = await run(
        "cd sub; echo a > a; git add a; git -c user.name=a -c user.email=a@b commit -qm first; git switch -qc topic;"
        " git log --format=%s; git status --porcelain; mv a ../a; mv ../a b; ls"
    )

    assert outcome.text == "first\nb\n"


async def test_git_itself_works_there_all_the_same(run: Run, folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)

    outcome = await run(
        "echo a > a; git add a; git -c user.name=a -c user.email=a@b commit -qm first; git switch -qc topic;"
        " git log --format=%s; git status --porcelain"
    )

    assert outcome.text == "first\n"


async def test_what_editors_and_agents_believe_stays_as_it_is(run: Run, folder: Path) -> None:
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text("{}")
    (folder / ".envrc").write_text("# ours\n")

    outcome = await run(
        "echo evil > .claude/settings.json; echo evil > .claude/new; rm -rf .claude; mv .claude c; echo evil > .envrc;"
        " rm -f .envrc; mkdir .vscode && echo evil > .vscode/tasks.json; echo evil > .mcp.json"
    )

    assert [path.name for path in (folder / ".claude").iterdir()] == ["settings.json"]
    assert (folder / ".claude" / "settings.json").read_text() == "{}"
    assert (folder / ".envrc").read_text() == "# ours\n"
    assert outcome.aside == (str(folder / ".mcp.json.aside"),)
    assert (folder / ".vscode" / "tasks.json").read_text() == "evil\n"  # it runs nothing when the folder is opened
    assert sorted(path.name for path in folder.iterdir()) == [".claude", ".envrc", ".mcp.json.aside", ".vscode"]


async def test_it_writes_nowhere_but_in_the_workspace(run: Run, home: Path, tmp_path: Path, folder: Path) -> None:
    (folder / "out").symlink_to(tmp_path)
    (folder / "home").symlink_to(home)
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    await run(
        f"echo evil >> ~/.bashrc; echo evil >> {home}/.bashrc; echo evil > ~/.profile; echo evil > {tmp_path}/evil;"
        " echo evil > ../evil; echo evil > out/evil; echo evil >> home/.bashrc; touch /usr/bin/evil /etc/evil /evil;"
        " echo evil > /etc/ld.so.preload; touch /opt/evil"
    )

    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert (home / ".bashrc").read_text() == "# as it was\n"
    assert not any(Path(place, "evil").exists() for place in ("/", "/etc", "/usr/bin", "/opt"))


# What it must not become


async def test_it_gains_nothing_by_setuid_programs_mounts_devices_or_namespaces(run: Run, folder: Path) -> None:
    outcome = await run(
        "grep -E 'CapEff|CapPrm|CapBnd|NoNewPrivs' /proc/self/status; mount -t tmpfs none /tmp && echo mounted;"
        " mknod disk b 8 0 && echo made; unshare -Ur true && echo unshared; unshare -m true && echo unshared;"
        " chroot / true && echo chrooted; ls /dev; cat /dev/mem /dev/sda 2>/dev/null | head -c 1;"
        " cat /proc/sys/user/max_user_namespaces; sysctl -w kernel.hostname=x && echo set; hostname evil && echo named"
    )

    said = outcome.text
    for word in ("mounted", "made", "unshared", "chrooted", "named"):
        assert f"\n{word}\n" not in said
    fields = dict(line.split(":\t") for line in said.splitlines() if line.startswith(("Cap", "NoNew")))
    assert fields == {"CapPrm": "0" * 16, "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}
    assert "sda" not in said
    assert not (folder / "disk").exists()


async def test_it_types_nothing_into_a_terminal_of_ours(run: Run, folder: Path) -> None:
    (folder / "type.py").write_text(
        textwrap.dedent("""
        import fcntl, os, termios
        for place in (0, 1, 2, "/dev/tty"):
            try:
                fd = place if isinstance(place, int) else os.open(place, os.O_RDWR)
                fcntl.ioctl(fd, termios.TIOCSTI, b"x")
                print("typed")
            except OSError:
                print("no")
        """)
    )

    assert (await run("python3 type.py")).text == "no\n" * 4
