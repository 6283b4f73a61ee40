"""The shell tools in sessions: what a command did, seen on the disk; how it ended; and who has to be asked before."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from peers.api import api
from rig import eventually
from rig.sandbox import needs_landlock, needs_sandbox, stands_still
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import ShellSpec, WorkspaceSpec
from toolcrib.core.context import Output, Progress
from toolcrib.core.permission import Answer, Question
from toolcrib.crib.session import Session
from unit.toolcrib_tools.telling import error_of, text_of

pytestmark = pytest.mark.process

NAMES = {
    *("run_command", "run_tests", "shell_close", "shell_control", "shell_input", "shell_list"),
    *("shell_read", "shell_spawn"),
}


@asynccontextmanager
async def crib_of(folder: Path, **settings: Any) -> AsyncGenerator[Toolcrib]:
    spec = WorkspaceSpec(roots=(folder,))
    async with Toolcrib(bare().with_values(builtins=True, workspace=spec, **settings), memory=True) as crib:
        yield crib


@asynccontextmanager
async def session_of(
    folder: Path, *, mode: str = "autonomous", rules: Any = None, profile: str = "flat", **settings: Any
) -> AsyncGenerator[Session]:
    async with (
        crib_of(folder, **settings) as crib,
        crib.session(profile=profile, mode=mode, rules=rules or {}) as session,
    ):
        yield session


# run_command


@needs_sandbox
async def test_a_command_does_its_work_and_tells_what_it_said_and_how_it_ended(folder: Path) -> None:
    (folder / "sub").mkdir()
    async with session_of(folder) as session:
        said = await text_of(session, "run_command", command="echo one | tee made.txt; echo two >&2")
        quiet = await text_of(session, "run_command", command="pwd > here.txt", working_dir="sub")
        failed = await text_of(session, "run_command", command="echo no; exit 3")
        killed = await text_of(session, "run_command", command="kill -9 $$")

    assert said == "one\n[stderr]\ntwo"
    assert (folder / "made.txt").read_text() == "one\n"
    assert quiet == "[no output, exit status 0]"
    assert (folder / "sub" / "here.txt").read_text() == f"{folder / 'sub'}\n"
    assert failed.startswith("no\n[exit status 3 after ")
    assert "\n[ended by SIGKILL after " in killed


@needs_sandbox
async def test_a_command_leaves_no_alias_and_no_file_outside_of_the_workspace(folder: Path) -> None:
    async with session_of(folder) as session:
        await text_of(session, "run_command", command="cd /tmp; export X=1; alias ls=false; echo left > /tmp/left")

        assert await text_of(session, "run_command", command="pwd; echo ${X-none}; ls -d .; cat /tmp/left || true") == (
            "[a fresh shell: its folder is outside of the workspace]\n"
            f"{folder}\nnone\n.\n[stderr]\ncat: /tmp/left: No such file or directory"
        )


@needs_sandbox
async def test_a_command_that_takes_too_long_is_ended_with_everything_it_has_started(folder: Path) -> None:
    text = "(trap '' TERM; while :; do date +%s.%N > alive; sleep 0.05; done) & echo started; wait"
    async with session_of(folder) as session:
        code, message = await error_of(session, "run_command", command=text, timeout=2)

        assert (code, message.endswith("; its last output:\nstarted")) == ("timeout", True)
        await stands_still(folder / "alive")


@needs_sandbox
async def test_output_is_told_while_the_command_runs_and_a_long_one_is_readable_in_full(folder: Path) -> None:
    heard: list[str] = []
    waits = folder / "goes-on"

    def hear(update: Progress | Output) -> None:
        if isinstance(update, Output):
            heard.append(update.chunk)
            waits.touch()

    text = "echo first; until test -e goes-on; do sleep 0.05; done; seq 100000"
    async with session_of(folder) as session:
        result = await session.call("run_command", {"command": text}, listener=hear)
        ref = str(result.meta["artifact"])
        whole = await session.recover(ref)

    assert heard[0] == "first\n"
    assert len(result.text) < 20_000
    assert whole.split("\n") == ["first", *map(str, range(1, 100_001))]


@needs_sandbox
async def test_secrets_of_the_configuration_are_masked_while_it_runs_and_after(folder: Path) -> None:
    heard: list[str] = []

    def hear(update: Progress | Output) -> None:
        heard.append(str(update.chunk) if isinstance(update, Output) else "")

    async with session_of(folder, secrets=("correct-horse-battery",)) as session:
        text = "printf correct-; sleep 0.2; echo horse-battery"
        result = await session.call("run_command", {"command": text}, listener=hear)

    assert "horse-battery" not in result.text + "".join(heard)


@needs_sandbox
async def test_what_a_command_may_not_make_is_put_aside_and_told(folder: Path) -> None:
    async with session_of(folder) as session:
        said = await text_of(session, "run_command", command="echo evil > .envrc; echo done")

    assert said.startswith(f"done\n[put aside, for commands may not make it: {folder}/.envrc.aside]\n[")
    assert sorted(path.name for path in folder.iterdir()) == [".envrc.aside"]


@needs_sandbox
async def test_instructions_stay_when_a_file_tool_writes_them_or_git_brings_them(folder: Path) -> None:
    async with session_of(folder) as session:
        await text_of(session, "run_command", command="git init -q -b main; sleep 60", background=True)
        await eventually(lambda: (folder / ".git" / "HEAD").exists())
        await text_of(session, "write_file", path="AGENTS.md", content="ours\n")
        await text_of(session, "shell_close", session_id="command_1")
        by_tool = (folder / "AGENTS.md").read_text()
        await text_of(
            session, "run_command", command="git add -A; git -c user.name=a -c user.email=a@b commit -qm first"
        )
        brought = await text_of(session, "run_command", command="rm AGENTS.md; git checkout AGENTS.md; cat AGENTS.md")
        changed = await text_of(session, "run_command", command="echo evil >> AGENTS.md; git status --porcelain")
        again = await text_of(
            session, "run_command", command="git status --porcelain --untracked-files=no; cat AGENTS.md"
        )

    assert (by_tool, again) == ("ours\n", "ours")
    assert brought.startswith("ours\n")
    assert "AGENTS.md.aside" not in brought
    assert f"{folder}/AGENTS.md.aside" in changed


@needs_sandbox
async def test_a_command_that_takes_too_much_is_ended_and_says_why(folder: Path) -> None:
    async with session_of(folder, shell=ShellSpec(memory_mb=64)) as session:
        hungry = "python3 -c 'import time; x = [b\"x\" * (1 << 20) for _ in range(40)]; time.sleep(60)' & "
        code, message = await error_of(session, "run_command", command=hungry * 4 + "wait", timeout=60)

    why = "it was ended: more than 64 MiB of memory (setting `shell.memory_mb`); it printed no output"
    assert (code, message) == ("tool_error", why)


LIMITED = {
    "head -c 2m /dev/zero > big": "shell.file_mb",
    "python3 -c \"open('big', 'wb').write(bytes(2 << 20))\"": "shell.file_mb",
    "python3 -c 'bytearray(100 << 20)'": "shell.memory_mb",
    "echo MemoryError; exit 0": "",
    "cat missing": "",
}


@needs_sandbox
@pytest.mark.parametrize(("command", "setting"), LIMITED.items())
async def test_a_command_that_fails_at_a_limit_of_the_sandbox_is_told_its_setting(
    folder: Path, command: str, setting: str
) -> None:
    async with session_of(folder, shell=ShellSpec(memory_mb=64, file_mb=1)) as session:
        text = await text_of(session, "run_command", command=command)

    assert [line for line in text.splitlines() if "shell." in line] == (
        [f"[it may have reached a limit of the sandbox, which the operator sets: {setting}]"] if setting else []
    )


@needs_sandbox
async def test_a_command_reaches_the_hosts_that_were_named_and_is_told_of_the_others(folder: Path) -> None:
    async with api() as server:
        host = server.origin.removeprefix("http://")
        spec = ShellSpec(network=("pypi.example",), private_hosts=(host,))
        async with session_of(folder, shell=spec) as session:
            reached = await text_of(session, "run_command", command=f"curl -sS {server.origin}/page")
            not_named = await text_of(session, "run_command", command="curl -sS -o /dev/null https://other.example/")
            text = "curl -sS http://other.example/ >/dev/null; echo over"
            ended = await text_of(session, "run_command", command=text, background=True)
            while "has ended" not in ended:
                ended = await text_of(session, "run_command", command_id="command_1", timeout=60)
            curl = ["curl", "-sSf", "http://other.example/"]
            node = json.loads(await text_of(session, "nodes", action="run", command=curl))
            told_of = json.loads(await text_of(session, "nodes", action="describe"))["network"]

    assert (json.loads(reached)["path"], len(server.received)) == ("/page", 1)
    assert "[refused: other.example:443: it is not among the hosts that this command may reach]" in not_named
    assert "`shell: {network: [HOST]}` in the configuration" in not_named
    assert "refused: other.example:80: " in ended
    assert (node["exit_code"] != 0, node["refused"]) == (
        True,
        ["other.example:80: it is not among the hosts that this command may reach"],
    )
    assert told_of == ["pypi.example", host]


@needs_sandbox
async def test_a_command_in_the_background_goes_on_and_can_be_asked_for(folder: Path) -> None:
    text = "echo begun; until test -e stop; do sleep 0.05; done; echo ended; exit 4"
    async with session_of(folder) as session:
        begun = await text_of(session, "run_command", command=text, background=True)
        listed = json.loads(await text_of(session, "shell_list"))
        (folder / "stop").touch()
        ended = await text_of(session, "run_command", command_id="command_1", timeout=60)
        again = await text_of(session, "run_command", command_id="command_1")
        unknown = await error_of(session, "run_command", command_id="command_9")
        typed = await error_of(session, "shell_input", session_id="command_1", input="x")

    assert begun.startswith("begun\n[command_1 is running, for ")
    assert [(one["session_id"], one["name"], one["running"]) for one in listed] == [("command_1", text, True)]
    assert ended == "ended\n[command_1 has ended: exit status 4]"
    assert again == "[command_1 has ended: exit status 4]"
    assert unknown == ("not_found", "this session has no process 'command_9'")
    assert typed[1] == "command_1 runs in the background and takes no input"


@needs_sandbox
async def test_a_command_in_the_background_ends_by_its_time_by_request_and_with_its_session(folder: Path) -> None:
    def text(name: str) -> str:
        return f"trap '' TERM HUP; while :; do date +%s.%N > {name}; sleep 0.05; done"

    async with session_of(folder) as session:
        await text_of(session, "run_command", command=text("a"), background=True, timeout=1.5)
        await text_of(session, "run_command", command=text("b"), background=True)
        await text_of(session, "run_command", command=text("c"), background=True)
        late = await text_of(session, "run_command", command_id="command_1", timeout=60)
        closed = await text_of(session, "shell_close", session_id="command_2")
        await stands_still(folder / "b")
    await stands_still(folder / "c")

    assert late == "[command_1 was ended: its time was up]"
    assert closed == "[command_2 was ended]"


@needs_sandbox
async def test_another_session_does_not_see_the_processes_of_this_one(folder: Path) -> None:
    async with session_of(folder) as session:
        await text_of(session, "run_command", command="sleep 600", background=True)
        other = session.sibling(profile="flat", mode="autonomous")

        assert await text_of(other, "shell_list") == "[]"
        assert (await error_of(other, "shell_read", session_id="command_1"))[0] == "not_found"


@needs_sandbox
async def test_a_session_runs_a_few_processes_at_a_time(folder: Path) -> None:
    async with session_of(folder) as session:
        await session.call_many([("run_command", {"command": "sleep 600", "background": True})] * 8)
        full = await error_of(session, "run_command", command="sleep 600", background=True)
        await text_of(session, "shell_close", session_id="command_3")
        await text_of(session, "run_command", command="sleep 600", background=True)

    assert full[0] == "overloaded"


@needs_sandbox
async def test_what_cannot_be_run_is_refused(folder: Path) -> None:
    (folder / "file").touch()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "give either a command to run, or the command_id of one that runs"),
        ({"command": "ls", "command_id": "command_1"}, "give either a command to run"),
        ({"command": "ls \0"}, "command: a command has no NUL character"),
        ({"command": "ls", "working_dir": "nowhere"}, "there is no 'nowhere'"),
        ({"command": "ls", "working_dir": "file"}, "'file' is not a folder"),
        ({"command": "ls", "working_dir": "/etc"}, "outside"),
        ({"command": "ls", "timeout": 0}, "timeout"),
        ({"command": "ls", "timeout": 601}, "timeout"),
    ]
    async with session_of(folder) as session:
        for arguments, message in wrong:
            assert message in str(await error_of(session, "run_command", **arguments))


@needs_sandbox
async def test_a_command_sees_the_disk_and_says_so_when_changes_wait_for_review(folder: Path) -> None:
    async def yes(question: Question) -> Answer:
        return Answer(verdict="yes")

    (folder / "a.txt").write_text("old\n")
    async with session_of(folder, mode="review") as session:
        session.state.approvals.approver = yes
        await text_of(session, "write_file", path="a.txt", content="new\n")
        said = await text_of(session, "run_command", command="cat a.txt; touch b.txt")

    assert said == "old\n[changes that wait for review are not on the disk: the command did not see them]"
    assert (folder / "b.txt").exists()


# Terminals


@needs_sandbox
async def test_a_terminal_keeps_its_folder_and_variables_and_takes_keys(folder: Path) -> None:
    (folder / "sub").mkdir()
    async with session_of(folder) as session:
        await text_of(session, "shell_spawn", session_name="work", rows=30, cols=90)
        await text_of(
            session, "shell_input", session_id="shell_1", input="cd sub; NAME=kept; stty size > size", timeout=30
        )
        await text_of(session, "shell_input", session_id="shell_1", input="pwd > where; echo $NAME-$((6*7)) > name")
        await eventually(lambda: (folder / "sub" / "name").exists() and (folder / "sub" / "name").stat().st_size > 0)
        # The process itself makes the file: a key that reached a shell that waits for a child would be discarded.
        await text_of(session, "shell_input", session_id="shell_1", input="sleep 600 > started; touch interrupted")
        await eventually((folder / "sub" / "started").exists)
        await text_of(session, "shell_control", session_id="shell_1", key="ctrl-c")
        await text_of(session, "shell_input", session_id="shell_1", input="touch after")
        await eventually((folder / "sub" / "after").exists)
        (listed,) = json.loads(await text_of(session, "shell_list"))
        await text_of(session, "shell_control", session_id="shell_1", key="ctrl-d")
        closed = await text_of(session, "shell_close", session_id="shell_1")

    assert (folder / "sub" / "where").read_text() == f"{folder}/sub\n"
    assert (folder / "sub" / "name").read_text() == "kept-42\n"
    assert (folder / "sub" / "size").read_text() == "30 90\n"
    assert not (folder / "sub" / "interrupted").exists()
    assert (listed["name"], listed["running"]) == ("work", True)
    assert "[shell_1 " in closed


@needs_sandbox
async def test_a_program_that_asks_is_answered_and_its_colours_are_left_out(folder: Path) -> None:
    (folder / "ask.sh").write_text("printf '\\033[31mName? \\033[0m'; read -r name; echo \"Hello, $name\"; sleep 600\n")
    async with session_of(folder) as session:
        asked = await text_of(session, "shell_spawn", command="sh ask.sh")
        heard = await text_of(session, "shell_input", session_id="shell_1", input="An", enter=False, timeout=1)
        heard += await text_of(session, "shell_input", session_id="shell_1", input="n", timeout=30)
        if "Hello" not in heard:
            heard += await text_of(session, "shell_read", session_id="shell_1", timeout=30)

    assert asked.startswith("Name? ")
    assert "\x1b" not in asked + heard
    assert "Hello, Ann" in heard


@needs_sandbox
async def test_a_terminal_is_waited_for_as_long_as_is_said(folder: Path) -> None:
    """What is said comes later than a read waits for that names no time."""
    (folder / "late.sh").write_text("until [ -e go ]; do sleep 0.05; done; sleep 6; echo $((6*7)); sleep 600\n")
    async with session_of(folder) as session:
        await text_of(session, "shell_spawn", command="sh late.sh")
        before = await text_of(session, "shell_read", session_id="shell_1", timeout=0)
        (folder / "go").touch()
        after = await text_of(session, "shell_read", session_id="shell_1", timeout=55)

    assert ("42" in before, "42" in after) == (False, True)


# run_tests


@needs_sandbox
async def test_the_tests_of_a_project_are_found_and_run(folder: Path) -> None:
    (folder / "Makefile").write_text("test:\n\t@echo made > made; echo all good\n")
    async with session_of(folder) as session:
        assert await text_of(session, "run_tests") == "$ make test\nall good"
        assert (await text_of(session, "run_tests", command="sh -c 'exit 2'")).startswith(
            "$ sh -c 'exit 2'\n[exit status 2"
        )
        slow = await error_of(session, "run_tests", command="sleep 600", timeout=1)
    assert (folder / "made").read_text() == "made\n"
    assert slow[0] == "timeout"


PROJECTS: tuple[tuple[dict[str, str], str, str], ...] = (
    ({"pyproject.toml": "", "tests/test_a.py": ""}, "tests/test_a.py", "python3 -m pytest -q tests/test_a.py"),
    ({"pytest.ini": "", ".venv/x": ""}, "", ".venv/bin/python -m pytest -q"),
    ({"package.json": '{"scripts": {"test": "x"}}', "a b.js": ""}, "a b.js", "npm test -- 'a b.js'"),
    ({"package.json": '{"scripts": {"test": "x"}}', "pnpm-lock.yaml": ""}, "", "pnpm test"),
    ({"package.json": '{"scripts": {"test": "x"}}', "yarn.lock": "", "a.js": ""}, "a.js", "yarn test a.js"),
    ({"package.json": "{}", "Makefile": "test:\n"}, "", "make test"),
    ({"go.mod": "", "pkg/a_test.go": ""}, "pkg/a_test.go", "go test ./pkg/"),
    ({"go.mod": ""}, "", "go test ./..."),
    ({"Cargo.toml": "", "tests/it.rs": ""}, "tests/it.rs", "cargo test --offline --test it"),
    ({"pom.xml": "", "src/ATest.java": ""}, "src/ATest.java", "mvn -q -o test -Dtest=ATest"),
    ({"build.gradle.kts": "", "gradlew": ""}, "", "./gradlew --offline test"),
    ({"App.sln": ""}, "", "dotnet test"),
    ({"mix.exs": ""}, "", "mix test"),
    ({"deno.json": ""}, "", "deno test"),
)
"""What is in a folder, which file is named, and what is run then."""


@needs_sandbox
async def test_each_kind_of_project_has_its_command(folder: Path) -> None:
    calls: list[tuple[str, Any]] = []
    for number, (files, file, _) in enumerate(PROJECTS):
        for name, content in files.items():
            place = folder / str(number) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
        named = {"file": f"{number}/{file}"} if file else {}
        calls.append(("run_tests", {"working_dir": str(number), "timeout": 20, **named}))
    async with session_of(folder) as session:
        asked = [await session.call(name, arguments) for name, arguments in calls]

    assert [result.text.partition("\n")[0] for result in asked] == [f"$ {command}" for _, _, command in PROJECTS]


@needs_sandbox
async def test_a_folder_without_tests_says_so(folder: Path) -> None:
    async with session_of(folder) as session:
        assert await error_of(session, "run_tests") == ("tool_error", "the test runner of '.' is unknown")
        assert (await error_of(session, "run_tests", file="nowhere.py"))[1] == "there is no 'nowhere.py'"


# Who is asked


async def effect_of(session: Session, name: str, arguments: dict[str, Any]) -> str:
    """Return what dispatch decides, having made sure that the policy itself decides so on the same arguments."""
    decision = session.parts.policy.decide(session.visible.catalog.tools[name], arguments, session.state)
    result = await session.call(name, arguments, dry_run=True)
    if result.error is not None:
        assert (result.error.code, result.error.details) == ("denied", {"rule": decision.rule}), (name, arguments)
        return decision.effect
    assert result.structured_content is not None
    described = result.structured_content
    assert (described["decision"], described["rule"]) == (decision.effect, decision.rule), (name, arguments)
    return decision.effect


DECIDED: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("cautious", "run_command", {"command": "make"}, "ask"),
    ("cautious", "run_command", {"command": "ls src"}, "allow"),
    ("cautious", "run_command", {"command_id": "command_1"}, "allow"),
    ("cautious", "run_command", {"command": "make", "command_id": "command_1"}, "ask"),
    ("cautious", "run_tests", {}, "ask"),
    ("cautious", "shell_spawn", {}, "ask"),
    ("cautious", "shell_input", {"session_id": "shell_1", "input": "ls"}, "ask"),
    ("cautious", "shell_read", {"session_id": "shell_1"}, "allow"),
    ("cautious", "shell_close", {"session_id": "shell_1"}, "allow"),
    ("review", "run_command", {"command": "touch a"}, "ask"),
    ("audit", "run_command", {"command": "touch a"}, "ask"),
    ("plan", "run_command", {"command": "touch a"}, "deny"),
    ("autonomous", "run_command", {"command": "make"}, "allow"),
    ("autonomous", "run_command", {"command": "rm -rf build"}, "ask"),
    ("autonomous", "shell_input", {"session_id": "shell_1", "input": "git push --force"}, "ask"),
    ("autonomous", "run_tests", {"command": "git clean -fdx && make test"}, "ask"),
)


@needs_sandbox
async def test_the_mode_decides_by_what_a_command_does(folder: Path) -> None:
    async with session_of(folder, profile="adaptive") as session:  # in `flat` each command asks in cautious
        for mode, name, arguments, effect in DECIDED:
            session.mode = mode

            assert await effect_of(session, name, arguments) == effect, (mode, name, arguments)


RULED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("run_command", {"command": "git push origin main"}, "deny"),
    ("run_command", {"command": "cd x && git push"}, "deny"),
    ("run_command", {"command": "make check"}, "allow"),
    ("run_command", {"command_id": "command_1"}, "allow"),
    ("run_command", {"command": "cat keys/id", "working_dir": "."}, "ask"),
    ("run_command", {"command": "cat id", "working_dir": "keys"}, "ask"),
    ("shell_input", {"session_id": "shell_1", "input": "git push"}, "deny"),
    ("shell_list", {}, "allow"),
    ("run_tests", {}, "ask"),
)


@needs_sandbox
async def test_rules_for_bash_mean_the_shell_tools(folder: Path) -> None:
    rules = {"deny": ["Bash(git push:*)", "Read(keys/**)"], "allow": ["Bash(make:*)"]}
    async with session_of(folder, rules=rules) as session:
        for name, arguments, effect in RULED:
            assert await effect_of(session, name, arguments) == effect, (name, arguments)


@needs_sandbox
async def test_a_command_that_only_reads_runs_in_the_careful_mode_without_a_question(folder: Path) -> None:
    async with session_of(folder, mode="cautious", rules={"deny": ["Bash(rm:*)"]}, profile="adaptive") as session:
        said = await text_of(session, "run_command", command="echo hi")
        spelled_out = await text_of(
            session, "run_command", command="echo hi", args=None, timeout=None, background=False
        )
        denied = await session.call("run_command", {"command": "rm a.txt"})

    assert (said, spelled_out) == ("hi", "hi")
    assert denied.error is not None
    assert (denied.error.code, denied.error.details) == ("denied", {"rule": "deny Bash(rm:*) (session)"})


@needs_sandbox
async def test_an_allowed_command_runs_and_words_in_args_belong_to_it(folder: Path) -> None:
    async with session_of(folder, mode="cautious", rules={"allow": ["Bash(touch:*)"]}) as session:
        await text_of(session, "run_command", command="touch one.txt")
        await text_of(session, "run_command", command="touch", args=["two.txt"])
        refusals = [
            await error_of(session, "run_command", command="touch", args=["three.txt"], background="no"),
            await error_of(session, "run_command", command="mkdir", args=["touch"]),
        ]

    assert sorted(path.name for path in folder.glob("*.txt")) == ["one.txt", "two.txt"]
    assert [code for code, _ in refusals] == ["invalid_arguments", "denied"]


@needs_sandbox
async def test_the_question_and_the_record_of_a_command_leave_out_what_is_null_by_default(folder: Path) -> None:
    questions: list[Question] = []

    async def approve(question: Question) -> Answer:
        questions.append(question)
        return Answer(verdict="yes")

    async with crib_of(folder) as crib, crib.session(profile="flat", mode="cautious", approver=approve) as session:
        await text_of(session, "run_command", command="touch", args=["one.txt"])
        await text_of(session, "run_command", command="touch two.txt")
        rows = await crib.store.calls.list()

    chosen = {"background": False, "command_id": "", "working_dir": ""}
    shown = [{"command": "touch", "args": ["one.txt"], **chosen}, {"command": "touch two.txt", **chosen}]
    assert [json.loads(question.shown) for question in questions] == shown
    assert [json.loads(row.arguments) for row in rows] == shown[::-1]
    assert dict(questions[1].arguments) == {**shown[1], "args": None, "timeout": None}, "what runs is whole"


# Without a sandbox


def _without(tmp_path: Path) -> dict[str, str]:
    """An environment whose path has everything but bubblewrap."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "bash", "cat", "sleep", "env"):
        (programs / name).symlink_to(f"/bin/{name}" if name != "env" else "/usr/bin/env")
    return {**bare().environment, "PATH": str(programs)}


async def test_without_a_sandbox_there_are_no_shell_tools_and_why_says_how_to_get_them(
    folder: Path, tmp_path: Path
) -> None:
    shell = ShellSpec(landlock=False)
    async with (
        crib_of(folder, shell=shell, environment=_without(tmp_path)) as crib,
        crib.session(profile="flat") as session,
    ):
        names = {tool.name for tool in session.tools}
        why = crib.explainer.why("run_command", session)
        told_of = "no sandbox" in session.instructions

    assert (names.isdisjoint(NAMES), told_of) == (True, True)
    assert (why.verdict, why.stopped_by, why.reason) == (
        "refused",
        "need",
        "it needs a shell, and this session has none",
    )
    assert "apt install bubblewrap" in why.hint


async def test_without_a_sandbox_a_person_is_asked_before_each_command_and_told_why(
    folder: Path, tmp_path: Path
) -> None:
    asked: list[tuple[str, str]] = []

    async def approve(question: Question) -> Answer:
        asked.append((question.tool.name, question.decision.rule))
        return Answer(verdict="always")

    async with (
        crib_of(folder, shell=ShellSpec(landlock=False), environment=_without(tmp_path)) as crib,
        crib.session(profile="flat", mode="autonomous", approver=approve) as session,
        crib.session(profile="flat", mode="autonomous") as alone,
    ):
        listed = {tool.name for tool in session.tools} & NAMES
        said = [await text_of(session, "run_command", command=f"echo {word}") for word in ("one", "two")]
        refusal = await error_of(alone, "run_command", command="echo three")

    assert (listed, said, refusal[0]) == (NAMES, ["one", "two"], "not_in_scope")
    assert asked == [("run_command", "no sandbox: run_command asks in every mode")] * 2
    assert "no sandbox" not in session.instructions


@needs_landlock
async def test_without_bubblewrap_commands_run_under_landlock_and_what_needs_sockets_is_not_there(
    folder: Path, tmp_path: Path
) -> None:
    async with (
        crib_of(folder, environment=_without(tmp_path)) as crib,
        crib.session(profile="flat", mode="autonomous") as session,
    ):
        names = {tool.name for tool in session.tools}
        said = await text_of(
            session, "run_command", command="{ echo one > ../out; } 2>&1; echo two > in.txt; cat in.txt"
        )
        why = crib.explainer.why("notebook_execute", session)

    assert (names >= NAMES, "notebook_execute" in names, said.splitlines()[-1]) == (True, False, "two")
    assert (why.stopped_by, (folder.parent / "out").exists()) == ("need", False)


async def test_an_operator_takes_commands_without_a_sandbox_from_every_session(folder: Path, tmp_path: Path) -> None:
    async def approve(question: Question) -> Answer:
        return Answer(verdict="yes")

    shell = ShellSpec(unsandboxed=False, landlock=False)
    async with (
        crib_of(folder, shell=shell, environment=_without(tmp_path)) as crib,
        crib.session(profile="flat", approver=approve) as session,
    ):
        assert {tool.name for tool in session.tools}.isdisjoint(NAMES)


async def test_without_a_sandbox_but_accepted_every_command_asks_in_every_mode(folder: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    async def approve(question: Question) -> Answer:
        asked.append(question.tool.name)
        return Answer(verdict="yes")

    environment = _without(tmp_path)
    async with session_of(folder, shell=ShellSpec(unsandboxed=True), environment=environment) as session:
        refusal = await error_of(session, "run_command", command="cat a.txt")
        session.state.approvals.approver = approve
        said = await text_of(session, "run_command", command="echo here > a.txt; cat a.txt; env")

    assert (refusal[0], asked) == ("denied", ["run_command"])
    assert said.splitlines()[0] == "here"
    assert set(bare().environment.values()).isdisjoint(
        line.partition("=")[2] for line in said.splitlines()[1:] if line.startswith(("SSH_", "API_"))
    )
