"""Tools of Toolcrib for the program of an agent at work: served over MCP in the sandbox, in place of its own."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from anyio import create_task_group

from rig import eventually
from rig.sandbox import needs_sandbox
from seeds.inventory import git
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib_queue.runs.programs import Setup, program_of
from unit.toolcrib_queue.conftest import CATEGORIES, person

pytestmark = [needs_sandbox, pytest.mark.process, pytest.mark.long]

PROGRAM = """
    import json, pathlib, subprocess, sys, time

    words = sys.argv[1:]
    servers = json.loads(words[words.index("--mcp-config") + 1])["mcpServers"]
    seen = {"argv": words, "servers": servers, "answers": []}
    script = json.loads(words[-1].partition("SCRIPT")[2].splitlines()[0])
    if "toolcrib" in servers:
        command = [servers["toolcrib"]["command"], *servers["toolcrib"]["args"]]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def ask(number, method, params):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message).encode() + b"\\n")
            server.stdin.flush()
            return next(one for line in server.stdout if (one := json.loads(line)).get("id") == number)

        about = {"name": "scripted", "version": "1"}
        ask(0, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about})
        server.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\\n')
        for number, (method, params) in enumerate(script):
            seen["answers"].append(ask(number + 1, method, params))
            pathlib.Path("seen.json").write_text(json.dumps(seen))
        if "STAY" in words[-1]:
            time.sleep(600)
        server.stdin.close()
        seen["relay"] = server.wait(10)
    pathlib.Path("seen.json").write_text(json.dumps(seen))
    print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "Done."}))
"""

OWN = {"Bash", "Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Read", "Write"}


def call(tool: str, **arguments: Any) -> tuple[str, Mapping[str, Any]]:
    return "tools/call", {"name": tool, "arguments": arguments}


WRITTEN = call("write_file", path="answer.py", content="answer = 42\n", if_exists="overwrite")


class Desk:
    """A person whose agent runs the scripted program, in a folder."""

    def __init__(self, crib: Toolcrib, shop: Path) -> None:
        self.crib = crib
        self.ada = person(crib, "ada", shop)
        self.shop = shop

    async def task(self, *script: tuple[str, Mapping[str, Any]], title: str = "Answer", **more: Any) -> str:
        return await self.ada.task(title, description=f"SCRIPT{json.dumps(script)}", **more)

    async def run(self, *script: tuple[str, Mapping[str, Any]], **more: Any) -> tuple[Any, list[Any]]:
        """Let the agent do one task; return its result, and the answers that the program got."""
        agent = await self.ada.agent()
        await self.task(*script, **more)
        ran = await self.ada.ok("work_task", agent_id=agent)
        return ran, self.seen["answers"]

    @property
    def seen(self) -> Any:
        return json.loads((self.shop / "seen.json").read_text())

    async def calls(self) -> list[Any]:
        """Return the calls of the sessions of programs."""
        rows = await self.crib.store.calls.list(limit=100)
        return [row for row in reversed(rows) if row.session.startswith("ada/")]


Open = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
def open_desk(tmp_path: Path) -> Open:
    program, shop = tmp_path / "programs" / "agent.py", tmp_path / "shop"
    program.parent.mkdir()
    program.write_text(dedent(PROGRAM))
    shop.mkdir()
    (shop / "answer.py").write_text("answer = 41\n")
    (shop / ".gitignore").write_text("seen.json\n")
    git(shop, "init", "--quiet", "--initial-branch=main")
    git(shop, "add", ".")
    git(shop, "commit", "--quiet", "-m", "Begin")

    @asynccontextmanager
    async def opened(
        builtins: Sequence[str] = CATEGORIES, claude: Mapping[str, Any] | None = None, **values: Any
    ) -> AsyncGenerator[Desk]:
        agents = {"claude": {"program": [sys.executable, str(program)], **(claude or {})}}
        settings = bare().with_values(builtins=tuple(builtins), tools={"queue": {"agents": agents}}, **values)
        async with Toolcrib(settings, memory=True) as crib:
            yield Desk(crib, shop)

    return opened


@pytest.fixture
async def desk(open_desk: Open) -> AsyncGenerator[Desk]:
    async with open_desk() as opened:
        yield opened


def text_of(answer: Any) -> str:
    return "\n".join(block.get("text", "") for block in answer["result"]["content"])


async def test_a_call_of_a_program_is_recorded_for_its_callers_principal_in_the_session_that_its_task_names(
    desk: Desk,
) -> None:
    ran, answers = await desk.run(WRITTEN, call("run_command", command="cat answer.py"))

    assert (ran["status"], [answer["result"].get("isError", False) for answer in answers]) == ("COMPLETED", [False] * 2)
    assert "answer = 42" in text_of(answers[1])
    calls = await desk.calls()
    notes = (await desk.ada.ok("get_task", task_id=ran["task_id"]))["notes"]
    assert [(row.tool, row.outcome, row.principal, row.client) for row in calls] == [
        ("write_file", "ok", "ada", "scripted/1"),
        ("run_command", "ok", "ada", "scripted/1"),
    ]
    assert [one["content"].endswith(f", session {calls[0].session}") for one in notes if one["type"] == "run"] == [True]
    assert git(desk.shop, "show", "main:answer.py") == "answer = 42\n"


async def test_the_file_and_shell_tools_of_the_client_are_off_and_its_task_says_so(desk: Desk) -> None:
    ran, answers = await desk.run(("tools/list", {}))

    argv = desk.seen["argv"]
    options = dict(word.partition("=")[::2] for word in argv if word.startswith(("--tools=", "--allowedTools=")))
    notes = (await desk.ada.ok("get_task", task_id=ran["task_id"]))["notes"]
    count = len(answers[0]["result"]["tools"])
    assert options == {"--tools": "TodoWrite", "--allowedTools": "TodoWrite,mcp__toolcrib"}
    assert ran["tools"] == f"own tools off: {count} tools of Toolcrib over MCP"
    assert [one["content"].rpartition(", ")[0] for one in notes if one["type"] == "run"] == [
        f"Ann (claude), {ran['tools']}"
    ]


async def test_a_program_is_shown_tools_for_work_in_its_folder_and_none_of_the_queue(desk: Desk) -> None:
    _, answers = await desk.run(
        ("tools/list", {}), call("list_tasks"), call("git_commit", message="mine"), call("git_log")
    )

    shown = {tool["name"] for tool in answers[0]["result"]["tools"]}
    catalog = desk.crib.catalog.tools
    assert {catalog[name].category for name in shown - {"read_artifact"}} == {"files", "git", "shell"}
    assert {name for name in shown if name.startswith("git_")} == {
        "git_changed_files",
        "git_diff",
        "git_log",
        "git_status",
    }
    assert [answer["result"].get("isError", False) for answer in answers[1:]] == [True, True, False]
    assert "Begin" in text_of(answers[3])
    assert git(desk.shop, "log", "--format=%s", "--all", "--grep=mine") == ""


async def test_a_command_that_a_rule_denies_is_refused_and_so_is_one_that_would_ask(open_desk: Open) -> None:
    rules = {"deny": ["Bash(rm:*)"], "ask": ["Bash(touch:*)"]}
    async with open_desk(rules=rules) as desk:
        _, answers = await desk.run(
            call("run_command", command="rm answer.py"), call("run_command", command="touch more.txt")
        )

        assert [answer["result"]["isError"] for answer in answers] == [True] * 2
        assert [row.outcome for row in await desk.calls()] == ["denied"] * 2
    assert ((desk.shop / "answer.py").exists(), (desk.shop / "more.txt").exists()) == (True, False)


async def test_a_rule_of_the_callers_session_holds_for_its_program(desk: Desk) -> None:
    desk.ada.session.sibling(key="ada", principal="ada", rules={"deny": ["write_file"]})

    _, answers = await desk.run(WRITTEN)

    assert answers[0]["result"]["isError"]


async def test_a_program_reads_nothing_outside_of_the_folder_of_its_task(desk: Desk) -> None:
    (desk.shop.parent / "secret.txt").write_text("s3cret")

    _, answers = await desk.run(
        call("read_file", path=str(desk.shop.parent / "secret.txt")),
        call("run_command", command=f"cat {desk.shop.parent}/secret.txt; ls -A /tmp"),
        call("run_command", command=f"touch {desk.shop.parent}/mine.txt"),
    )

    assert "s3cret" not in json.dumps(answers)
    assert "toolcrib-mcp-" not in text_of(answers[1])  # the socket is in the sandbox of the program alone
    assert not (desk.shop.parent / "mine.txt").exists()


async def test_a_program_works_though_its_caller_has_read_what_strangers_wrote(desk: Desk) -> None:
    desk.ada.session.state.taint.source = "web_fetch"

    ran, answers = await desk.run(WRITTEN)

    assert (ran["status"], answers[0]["result"].get("isError", False)) == ("COMPLETED", False)


async def test_a_program_of_such_a_caller_keeps_its_own_tools_where_commands_have_a_network(open_desk: Open) -> None:
    async with open_desk(shell={"network": True}) as desk:
        ran, _ = await desk.run(call("run_command", command="ls"))
        desk.ada.session.state.taint.source = "web_fetch"

        tainted, _ = await desk.run()

    assert ran["tools"].startswith("own tools off")
    assert tainted["tools"] == "own tools, bounded by the sandbox"


async def test_the_socket_is_in_a_private_folder_that_is_gone_after_the_run(desk: Desk) -> None:
    agent, task = await desk.ada.agent(), await desk.task(("ping", {}), title="STAY")
    place, modes = Path(), list[tuple[int, int]]()
    async with create_task_group() as group:
        group.start_soon(partial(desk.ada.session.call, "work_task", {"agent_id": agent}))
        await eventually(lambda: (desk.shop / "seen.json").exists() and desk.seen["answers"])
        place = Path(desk.seen["servers"]["toolcrib"]["args"][-1])
        modes.append((stat.S_IMODE(place.parent.stat().st_mode), place.parent.stat().st_uid))
        await desk.ada.ok("stop_task", task_id=task)

    relays = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline") if one.exists()]
    assert modes == [(0o700, os.getuid())]
    assert place.parent.parent == Path(tempfile.gettempdir())
    assert not place.parent.exists()
    assert [one for one in relays if str(place).encode() in one] == []


async def test_the_relay_ends_when_its_client_closes_it(desk: Desk) -> None:
    await desk.run(("ping", {}))

    assert desk.seen["relay"] == 0


async def test_a_program_sees_no_jobs_of_its_principal_and_starts_none(desk: Desk) -> None:
    job = (await desk.ada.session.call("run_command", {"command": "sleep 60"}, background=True)).meta["job"]
    command = {"name": "run_command", "arguments": {"command": "echo done"}, "task": {"ttl": 60000}}

    _, answers = await desk.run(("tasks/list", {}), ("tasks/cancel", {"taskId": job}), ("tools/call", command))

    await desk.crib.jobs.cancel(job, "ada")
    assert answers[0]["result"]["tasks"] == []
    assert "error" in answers[1]
    assert "done" in text_of(answers[2])


@pytest.mark.parametrize(
    ("profile", "tools"),
    [
        ({"allowed_tools": ["Bash", "Edit"]}, "Bash,Edit"),
        ({"allowed_tools": ["Read", "mcp__toolcrib__read_file"]}, "Read"),
        ({"allowed_tools": ["mcp__boats"]}, ""),
    ],
    ids=["own", "both", "a server"],
)
async def test_a_profile_that_names_tools_of_the_client_keeps_them(
    desk: Desk, profile: Mapping[str, Any], tools: str
) -> None:
    await desk.ada.ok("create_profile", id="p", name="P", **profile)

    ran, _ = await desk.run(profile_id="p")

    assert (f"--tools={tools}" in desk.seen["argv"], desk.seen["servers"]) == (True, {})
    assert ran["tools"] == "own tools, bounded by the sandbox"


@pytest.mark.parametrize(("config", "takes"), [('{"model": "a/b"}', True), ("{} // mine", False)])
async def test_a_configuration_of_opencode_that_cannot_be_added_to_is_left_as_it_is(config: str, takes: bool) -> None:
    agent = {"program": sys.executable, "environment": {"OPENCODE_CONFIG_CONTENT": config}}

    program = program_of("opencode", {"agents": {"opencode": agent}})

    assert program.takes_ours(Setup(prompt="Answer")) is takes


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "ours"])
def test_no_field_of_a_profile_or_task_is_taken_for_an_option(agent: str) -> None:
    program = program_of(agent, {"agents": {agent: {"program": sys.executable}}})
    setup = Setup(prompt="--prompt-of", model="--model-of", instructions="--instructions-of")

    words = program.command_line(setup)
    options = words[: words.index("--")] if "--" in words else words
    assert [word for word in options if word.startswith(("--prompt-of", "--model-of", "--instructions-of"))] == []


async def test_a_profile_that_names_tools_of_ours_gets_them(desk: Desk) -> None:
    await desk.ada.ok("create_profile", id="p", name="P", allowed_tools=["mcp__toolcrib__read_file"])

    await desk.run(profile_id="p")

    argv = desk.seen["argv"]
    assert ("--tools=" in argv, "--allowedTools=mcp__toolcrib__read_file" in argv) == (True, True)
    assert list(desk.seen["servers"]) == ["toolcrib"]


async def test_an_agent_that_plans_reads_and_writes_nothing(desk: Desk) -> None:
    await desk.ada.ok("create_profile", id="p", name="P", permission_mode="plan")

    _, answers = await desk.run(call("read_file", path="answer.py"), WRITTEN, profile_id="p")

    assert ("answer = 41" in text_of(answers[0]), answers[1]["result"]["isError"]) == (True, True)


@pytest.mark.parametrize(
    ("builtins", "claude"),
    [([name for name in CATEGORIES if name != "shell"], {}), (CATEGORIES, {"own_tools": True})],
    ids=["without a shell", "by the operator"],
)
async def test_a_program_keeps_its_own_tools_where_ours_are_not_enough_or_not_wanted(
    open_desk: Open, builtins: Sequence[str], claude: Mapping[str, Any]
) -> None:
    async with open_desk(builtins, claude) as desk:
        ran, _ = await desk.run()

    allowed = next(word for word in desk.seen["argv"] if word.startswith("--allowedTools="))
    assert ran["tools"] == "own tools, bounded by the sandbox"
    assert OWN.issubset(allowed.partition("=")[2].split(","))
    assert desk.seen["servers"] == {}
