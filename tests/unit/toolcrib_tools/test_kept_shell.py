"""A shell that stays: what one command leaves to the next, and what ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig.sandbox import needs_sandbox
from toolcrib.config.settings import ShellSpec
from toolcrib.core.permission import Effect
from toolcrib.crib.session import Session
from toolcrib.errors import ConfigError
from toolcrib.testing import RecordingApprover
from unit.toolcrib_tools.test_shell import crib_of, session_of

pytestmark = [needs_sandbox, pytest.mark.process]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    (made / "sub").mkdir(parents=True)
    return made


async def said(session: Session, command: str, **arguments: Any) -> str:
    return (await session.call("run_command", {"command": command, **arguments})).text


async def test_folder_and_exported_variables_of_a_command_are_those_of_the_next(folder: Path) -> None:
    async with session_of(folder) as session:
        await said(session, "cd sub; export WHO='ada\nb=1' KIND=x; PLAIN=1; helps() { echo hi; }; alias ll=ls; set -u")
        first = await said(
            session, 'echo "$WHO-${PLAIN-none}"; basename "$PWD"; type helps ll 2>/dev/null || echo gone'
        )
        await said(session, "unset KIND; export WHO=bob")
        assert first == "ada\nb=1-none\nsub\ngone"
        assert await said(session, "echo $WHO ${KIND-none}") == "bob none"
        assert await said(session, "pwd", working_dir=".") == str(folder)
        assert (await said(session, "exit 3")).startswith("[exit status 3 after ")


async def test_a_deny_means_the_files_in_the_folder_that_a_command_left(folder: Path) -> None:
    (folder / "sub" / "a.sh").write_text("#!/bin/sh\nrm -f b\n")
    (folder / "sub" / "key.pem").write_text("secret")
    rules: dict[Effect, list[str]] = {"allow": ["Bash"], "deny": ["Bash(rm:*)", "Read(./sub/*.pem)"]}
    async with crib_of(folder) as crib, crib.session(profile="flat", mode="autonomous", rules=rules) as session:
        await said(session, "cd sub")
        started = await session.call("run_command", {"command": "sh a.sh"})
        read = await session.call("run_command", {"command": "cat key.pem"})

    assert [one.error and one.error.code for one in (started, read)] == ["denied", "denied"]


async def test_where_it_is_not_kept_each_command_has_a_shell_of_its_own(folder: Path) -> None:
    async with session_of(folder, profile="introspection") as session:
        await said(session, "cd sub; export WHO=ada")
        assert await said(session, 'echo "${WHO-none}"; pwd') == f"none\n{folder}"


async def test_the_configuration_keeps_it_in_every_profile_and_a_profile_has_the_last_word(folder: Path) -> None:
    async with crib_of(folder, shell=ShellSpec(keep=True)) as crib:
        crib.profiles.add({"name": "mine", "extends": "flat", "shell": {"keep": False}})
        for profile, kept in (("introspection", "sub"), ("mine", "work")):
            async with crib.session(profile=profile, mode="autonomous") as session:
                await said(session, "cd sub")
                assert await said(session, 'basename "$PWD"') == kept
        with pytest.raises(ConfigError, match=r"shell\.keeps"):
            crib.profiles.add({"name": "other", "extends": "flat", "shell": {"keeps": True}})


async def test_variables_that_decide_what_programs_execute_are_not_kept(folder: Path) -> None:
    names = ("PATH", "BASH_ENV", "LD_PRELOAD", "GIT_EXTERNAL_DIFF", "HOME", "PAGER", "PYTHONSTARTUP")
    async with session_of(folder) as session:
        shown = "".join(f'echo "{name}=${{{name}-}}";' for name in names)
        before = await said(session, shown)
        await said(
            session, "".join(f"export {name}=/evil;" for name in names if name != "PATH") + "export PATH=/evil:$PATH"
        )
        assert await said(session, shown) == before


async def test_no_text_of_an_earlier_command_runs_in_a_later_one(folder: Path) -> None:
    poison = (
        "echo 'touch canary' > \"$__shell_left/before\"; export A='$(touch canary)' B='x;touch canary'; "
        "ls() { touch canary; }; export -f ls; printf() { touch canary; }; eval() { touch canary; }"
    )
    async with session_of(folder) as session:
        await said(session, poison)
        (folder / "canary").unlink(missing_ok=True)
        listed = await said(session, 'ls; printf "%s\\n" "$A"')
    assert (listed, (folder / "canary").exists()) == ("sub\n$(touch canary)", False)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("export A=1; exit 3", "the last command ended it"),
        ("export A=1; exec true", "the last command ended it"),
        ("export A=1; kill -9 $$", "the last one was killed (ended by SIGKILL)"),
        ("export A=1; cd sub; rmdir ../sub", "its folder was removed"),
        ("export A=$(head -c 10000000 /dev/zero | tr '\\0' x)", "the last one exported more than 128 KiB of variables"),
        ("export A=1; cd /tmp", "its folder is outside of the workspace"),
    ],
)
async def test_what_ends_it_gives_the_next_command_a_fresh_one_that_says_why(
    folder: Path, command: str, why: str
) -> None:
    async with session_of(folder) as session:
        await said(session, command)
        assert await said(session, 'echo "${A-none}"; pwd') == f"[a fresh shell: {why}]\nnone\n{folder}"
        assert await said(session, "echo again") == "again"


async def test_a_command_that_takes_too_long_ends_it_with_a_child_that_is_stuck(folder: Path) -> None:
    async with session_of(folder) as session:
        late = await session.call("run_command", {"command": "export A=1; sleep 600 & wait", "timeout": 0.5})
        assert late.error is not None
        assert late.error.code == "timeout"
        assert await said(session, "echo ${A-none}") == "[a fresh shell: the last command ran out of time]\nnone"
        await said(session, "export A=1; sleep 600 &")
        assert await said(session, "echo $A") == "1"


async def test_sessions_and_commands_in_the_background_have_shells_of_their_own(folder: Path) -> None:
    async with crib_of(folder) as crib:
        one, other = (crib.session(profile="flat", mode="autonomous", key=key) for key in ("one", "other"))
        async with one, other:
            await said(one, "cd sub; export WHO=ada")
            assert await said(other, 'echo "${WHO-none}"; pwd') == f"none\n{folder}"
            background = await said(one, 'echo "${WHO-none}"; pwd', background=True)
            assert background.startswith(f"none\n{folder}\n")
        assert not [path for path in folder.parent.rglob("after") if path.is_file()]


async def test_each_command_is_judged_by_its_own_text(folder: Path) -> None:
    approver = RecordingApprover("yes", "no")
    async with (
        crib_of(folder) as crib,
        crib.session(profile="flat", mode="cautious", approver=approver, rules={"deny": ["Bash(touch *)"]}) as session,
    ):
        await said(session, "export X=rmdir; cd sub")
        commands = ("$X ../sub", "rm -rf ../sub", "touch a")
        assert [(await session.call("run_command", {"command": one})).is_error for one in commands] == [True] * 3
    assert [path.name for path in folder.iterdir()] == ["sub"]
    asked = [question.arguments["command"] for question in approver.questions]
    assert asked == ["export X=rmdir; cd sub", "$X ../sub", "rm -rf ../sub"]
