"""Commands in a container of an image that the operator named: what they see, change, reach and leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import pytest

from rig import PATIENCE, eventually
from rig.containers import IMAGE, engine_environment, needs_engine
from rig.sandbox import SECRET, Outcome, Run, outcome_of
from seeds.inventory import git
from toolcrib.core.sandbox import Command, Reach, Sandbox
from toolcrib.errors import ToolFailure
from toolcrib.sandbox.bubblewrap import CommandLimits
from toolcrib.sandbox.container import Container
from toolcrib.sandbox.detection import find_sandbox

pytestmark = needs_engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Mapping[str, str]]:
    """The environment of an engine with the image."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-test-", ignore_cleanup_errors=True) as folder:
        yield engine_environment(Path(folder))


@pytest.fixture
def sandbox(engine: Mapping[str, str], home: Path) -> Container:
    """Containers, made by a process with secrets in its environment."""
    found, why = find_sandbox({**engine, "HOME": str(home), "API_TOKEN": SECRET}, container=IMAGE)
    assert isinstance(found, Container), why
    return found


@pytest.fixture
def run(sandbox: Sandbox, folder: Path) -> Run:
    """Run a shell command in the workspace."""

    async def run(text: str, environment: Mapping[str, str] | None = None) -> Outcome:
        command = Command(argv=("/bin/sh", "-c", text), cwd=folder, folders=(folder,), environment=environment or {})
        return await outcome_of(sandbox, command)

    return run


def names_of(engine: Mapping[str, str], sandbox: Container) -> list[str]:
    """Return the containers that there are, running or not."""
    argv = [sandbox.engine, "ps", "--all", "--format", "json"]
    found = json.loads(subprocess.run(argv, env=dict(engine), capture_output=True, check=True).stdout or b"[]")
    return [name for one in found for name in one["Names"]]


async def test_it_works_in_the_workspace_and_its_variables_with_the_programs_of_the_image(
    run: Run, folder: Path
) -> None:
    (folder / "in.txt").write_text("a\n")

    outcome = await run(
        'cat in.txt; echo "$GREETING$LINES"; echo b > out.txt; ls /; exit 3',
        environment={"GREETING": "hi", "LINES": "\n2"},
    )

    assert (outcome.finished.status, outcome.text.partition("bin\n")[0]) == (3, "a\nhi\n2\n")
    assert (folder / "out.txt").read_text() == "b\n"
    assert (folder / "out.txt").stat().st_uid == os.getuid()


async def test_it_sees_neither_home_nor_environment_nor_processes_of_the_machine(run: Run, home: Path) -> None:
    outcome = await run(f"env; cat {home}/.ssh/id_ed25519; cat /proc/*/environ; ls {home}; id")

    assert SECRET not in outcome.text
    assert f"uid={os.getuid()}" in outcome.text


async def test_it_writes_in_the_workspace_and_in_a_tmp_of_its_own_alone(run: Run, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()

    outcome = await run(f"touch /tmp/mine /bin/x {other}/x /etc/x; touch here; ls /tmp")

    assert (outcome.text.count("Read-only"), "mine" in outcome.text.splitlines()) == (2, True)
    assert ([*other.iterdir()], (folder / "here").exists()) == ([], True)


async def test_it_reaches_no_network(run: Run) -> None:
    outcome = await run("ls /sys/class/net; cat /proc/net/dev")

    assert "eth0" not in outcome.text


async def test_hooks_of_git_are_read_only_and_what_others_believe_is_put_aside(run: Run, folder: Path) -> None:
    git(folder, "init", "--quiet")

    outcome = await run("touch .git/hooks/post-checkout; echo x >> .git/config; echo evil > .envrc; echo ok > fine")

    assert outcome.text.count("Read-only") == 2
    assert [Path(name).name for name in outcome.aside] == [".envrc.aside"]
    assert (folder / "fine").exists()


async def test_no_more_processes_and_no_larger_files_than_the_bounds(
    engine: Mapping[str, str], home: Path, folder: Path
) -> None:
    bounds = CommandLimits(processes=20, file=1 << 20)
    sandbox, why = find_sandbox({**engine, "HOME": str(home)}, container=IMAGE, bounds=bounds)
    assert sandbox is not None, why
    text = "for i in $(seq 60); do sleep 60 & done; seq 1000000 > large"
    async with sandbox.open(Command(argv=("/bin/sh", "-c", text), cwd=folder, folders=(folder,))) as running:
        with anyio.fail_after(PATIENCE):
            finished = await running.wait()

    assert finished.status != 0
    assert not (folder / "large").exists() or (folder / "large").stat().st_size <= 1 << 20


async def test_nothing_of_a_command_lives_on_when_it_is_left(
    engine: Mapping[str, str], sandbox: Container, folder: Path
) -> None:
    text = "while true; do echo x >> alive; sleep 0.05; done"
    async with sandbox.open(Command(argv=("/bin/sh", "-c", text), cwd=folder, folders=(folder,))):
        await eventually((folder / "alive").exists)

    assert names_of(engine, sandbox) == []


async def test_what_a_killed_process_left_running_is_removed_by_the_next_one(
    engine: Mapping[str, str], sandbox: Container, home: Path
) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    name = f"toolcrib-{gone.pid}-0a0a0a"
    options = (
        "--ulimit",
        "nofile=64:64",
        "--ulimit",
        "nproc=64:64",
        "--network",
        "none",
        "--stop-timeout",
        "0",
        "--detach",
    )
    argv = (sandbox.engine, "run", "--name", name, *options, IMAGE, "/bin/sleep", "600")
    subprocess.run(argv, env=dict(engine), capture_output=True, check=True)

    find_sandbox({**engine, "HOME": str(home)}, container=IMAGE)

    assert names_of(engine, sandbox) == []


async def test_a_program_of_the_machine_is_the_one_of_its_name_in_the_image(sandbox: Container, folder: Path) -> None:
    command = Command(argv=("/opt/elsewhere/bin/git", "--version"), cwd=folder, folders=(folder,))
    async with sandbox.open(command) as running:
        with anyio.fail_after(PATIENCE):
            said = await running.read()

    assert said is not None
    assert said[1].startswith(b"git version")


async def test_a_command_in_a_terminal_has_one(sandbox: Container, folder: Path) -> None:
    command = Command(argv=("/bin/sh", "-c", "test -t 0 && echo yes"), cwd=folder, folders=(folder,), terminal=(24, 80))
    async with sandbox.open(command) as running:
        with anyio.fail_after(PATIENCE):
            said = await running.read()

    assert said == ("stdout", b"yes\r\n")


@pytest.mark.parametrize(
    ("image", "network", "reason"),
    [("toolcrib-missing:1", False, "toolcrib-missing:1"), (IMAGE, Reach(hosts=("example.org",)), "shell.network")],
)
def test_an_image_that_cannot_be_used_and_hosts_that_cannot_be_named_are_reasons(
    engine: Mapping[str, str], image: str, network: bool | Reach, reason: str
) -> None:
    sandbox, why = find_sandbox(engine, container=image, network=network)

    assert (sandbox, reason in why) == (None, True)


async def test_a_program_that_is_to_reach_named_hosts_is_not_run(sandbox: Container, folder: Path) -> None:
    command = Command(argv=("/bin/sh",), cwd=folder, folders=(folder,), network=Reach(hosts=("example.org",)))
    with pytest.raises(ToolFailure) as refused:
        async with sandbox.open(command):
            pass

    assert refused.value.code == "unavailable"


def test_without_an_engine_the_reason_says_which_there_are() -> None:
    sandbox, why = find_sandbox({"PATH": "/nonexistent"}, container=IMAGE)

    assert (sandbox, "docker or podman" in why) == (None, True)
