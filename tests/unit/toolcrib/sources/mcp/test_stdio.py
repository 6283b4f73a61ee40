"""A call to a stdio server ends as it should, whatever the server sends, and the next one works."""

import json
import os
import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from peers import scripted
from peers.journal import Journal
from peers.opened import open_source
from rig import PATIENCE, eventually
from toolcrib.core.result import SpooledResult, ToolError, ToolResult
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.launch.awaited_pins import awaited_files
from toolcrib.mcp.client.launch.pins import launch_pins
from toolcrib.mcp.client.spec import McpLimits, ServerSpec
from toolcrib.sources.source import Listing

pytestmark = pytest.mark.process


async def test_a_call_is_answered(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        assert await peer.call("echo", text="grüße") == ToolResult.of_text("grüße")
        assert peer.source.state.state == "ready"
    assert peer.source.state.state == "closed"
    assert (await peer.failing("echo")).message == "server 'peer' is closed"


async def test_many_calls_share_one_process_and_finish_in_any_order(tmp_path: Path, journal: Journal) -> None:
    done: list[str] = []
    async with open_source(scripted(journal.path), tmp_path) as peer:

        async def call() -> None:
            done.append((await peer.call("backwards", of=3)).text)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(call)

    assert done == ["call 3", "call 2", "call 1"]
    assert len(journal.of("start")) == 1


@pytest.mark.parametrize(
    ("ending", "state", "detail"),
    [
        ("raise SystemExit(3)", "failed", "exited with status 3 (its stdout is not JSON-RPC: Listening on port 3000)"),
        (
            r"sys.stderr.write('Error: no zod\n    at x.js\n\nNode.js v20\n'); raise SystemExit(3)",
            "failed",
            "exited with status 3 (stderr: Error: no zod; its stdout is not JSON-RPC: Listening on port 3000)",
        ),
        ("sys.stdin.read()", "connecting", "its stdout is not JSON-RPC: Listening on port 3000"),
    ],
)
async def test_a_server_that_speaks_no_protocol_is_reported_with_what_it_wrote(
    tmp_path: Path, ending: str, state: str, detail: str
) -> None:
    code = f"import sys; print('Listening on port 3000', flush=True); {ending}"
    spec = ServerSpec(name="peer", transport="stdio", command=sys.executable, args=("-c", code))
    async with open_source(spec, tmp_path, waits=False) as peer:
        await eventually(lambda: (peer.source.state.state, peer.source.state.detail) == (state, detail))


@pytest.mark.parametrize(("tool", "text"), [("garbage", "after garbage"), ("twice", "one"), ("stderr", "flooded")])
async def test_noise_around_an_answer_is_tolerated(tmp_path: Path, journal: Journal, tool: str, text: str) -> None:
    async with open_source(scripted(journal.path, "noise"), tmp_path) as peer:
        assert (await peer.call(tool)).text == text
        assert (await peer.call("echo", text="next")).text == "next"
    assert len(journal.of("start")) == 1


async def test_what_a_server_prints_beside_its_answers_never_ends_it(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path, limits=McpLimits(bad_messages=10)) as peer:
        for _ in range(5):
            assert (await peer.call("gibberish", lines=8)).text == "after gibberish"
        lines = ["x" * 500_000, '{"jsonrpc":"2.0","id":<id>,"result":{"content":[]}}']
        assert (await peer.call("raw", lines=lines)).content == ()
    assert len(journal.of("start")) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ('{"jsonrpc":"2.0","id":"<id>","result":{"content":[{"type":"text","text":"fine"}]}}', "fine"),
        ('{"jsonrpc":"2.0","id":<id>.0,"result":{"content":[{"type":"text","text":"fine"}]}}', "fine"),
        ('{"jsonrpc":"2.0","id":<id>}', "tool_error: the server answered with a result that is not an object but null"),
        ('{"jsonrpc":"2.0","id":<id>,"error":"no disk"}', "tool_error: the server refused the call: no disk"),
    ],
)
async def test_an_answer_that_other_clients_understand_is_taken(
    tmp_path: Path, journal: Journal, answer: str, told: str
) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        try:
            text = (await peer.call("raw", lines=[answer])).text
        except ToolFailure as failure:
            text = f"{failure.code}: {failure.message}"
    assert text == told


@pytest.mark.parametrize(
    ("tool", "code"),
    [
        ("truncated", "tool_error"),
        ("wrong_type", "tool_error"),
        ("fail", "tool_error"),
        ("die", "outcome_unknown"),
        ("flood", "outcome_unknown"),
        ("gibberish", "outcome_unknown"),
    ],
)
async def test_a_broken_answer_ends_its_call_at_once_and_the_next_one_works(
    tmp_path: Path, journal: Journal, tool: str, code: str
) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        with anyio.fail_after(PATIENCE):
            failure = await peer.failing(tool)
        assert failure.code == code
        assert (await peer.call("echo", text="next")).text == "next"


@pytest.mark.parametrize("tool", ["hang", "wrong_id"])
async def test_a_call_without_an_answer_ends_at_its_deadline_and_the_server_is_told(
    tmp_path: Path, journal: Journal, tool: str
) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        with anyio.fail_after(PATIENCE):
            failure = await peer.failing(tool, 1)
        assert failure.code == "timeout"
        await journal.until("cancelled")
        assert (await peer.call("echo", text="next")).text == "next"
    assert len(journal.of("start")) == 1


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        async with anyio.create_task_group() as group:
            group.start_soon(peer.call, "hang")
            await journal.until("hanging")
            group.cancel_scope.cancel()
        await journal.until("cancelled")


async def test_a_large_result_goes_to_disk_as_text(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(inline_bytes=500_000, memory_bytes=100_000)
    async with open_source(scripted(journal.path), tmp_path, limits=limits) as peer:
        result = await peer.call("big", blocks=16, unit='"quoted"\n' + "x" * 55)

    text = ('"quoted"\n' + "x" * 55) * 1024 * 16
    assert result.spooled is not None
    assert result.spooled.path.read_text() == text
    path = result.spooled.path
    spooled = SpooledResult(path=path, size=len(text), mime_type="text/plain", head=text[:2000], tail=text[-2000:])
    assert result == ToolResult(spooled=spooled)


async def test_a_result_that_went_to_disk_while_it_arrived_is_parsed_by_its_call_and_leaves_no_file(
    tmp_path: Path, journal: Journal
) -> None:
    async with open_source(scripted(journal.path), tmp_path, limits=McpLimits(memory_bytes=100_000)) as peer:
        result = await peer.call("big", blocks=4)
        assert list((tmp_path / "spooled").iterdir()) == []
    assert (result.spooled, len(result.text)) == (None, 4 * 64 * 1024)


async def test_a_result_above_the_largest_size_ends_the_connection(tmp_path: Path, journal: Journal) -> None:
    limits = McpLimits(inline_bytes=100_000, memory_bytes=50_000, spool_bytes=500_000)
    async with open_source(scripted(journal.path), tmp_path, limits=limits) as peer:
        failure = await peer.failing("big", blocks=16)
        assert (failure.code, "above 500000 bytes" in failure.message) == ("outcome_unknown", True)
        assert (await peer.call("echo", text="next")).text == "next"
    assert list((tmp_path / "spooled").iterdir()) == []


async def test_output_is_checked_against_the_schema_that_was_promised(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        good = await peer.call("structured", n=3)
        failure = await peer.failing("structured", n="three")

    assert good == ToolResult.of_text("s", structured_content={"n": 3})
    assert (failure.code, "n: must be integer" in failure.message) == ("tool_error", True)


async def test_an_error_of_the_server_keeps_its_code_and_text(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        failure = await peer.failing("fail")

    error = ToolResult.of_failure(failure).error
    message = "the server refused the call: no way"
    assert error == ToolError(code="tool_error", message=message, details={"rpc_code": -32603})


async def test_a_server_sees_nothing_of_our_environment_but_what_it_needs(tmp_path: Path, journal: Journal) -> None:
    spec = scripted(journal.path, env={"THEIR_TOKEN": "theirs"})
    async with open_source(spec, tmp_path) as peer:
        environment = json.loads((await peer.call("environment")).text)

    assert environment["THEIR_TOKEN"] == "theirs"
    assert environment["PATH"] == os.environ["PATH"]
    assert "OUR_TOKEN" not in environment


async def test_a_server_that_inherits_sees_our_environment_unless_a_project_brought_it(
    tmp_path: Path, journal: Journal
) -> None:
    spec = scripted(journal.path, env={"PATH": "/bin:/usr/bin"})
    inherits = replace(spec, inherit_env=True, cwd=str(tmp_path))  # else the packages of our own project are its pins
    seen = list[tuple[bool, bool]]()
    for spec in (inherits, replace(inherits, pinned=launch_pins(inherits, os.environ["PATH"]))):
        async with open_source(spec, tmp_path) as peer:
            environment = json.loads((await peer.call("environment")).text)
        seen.append(("OUR_TOKEN" in environment, environment["PATH"] == "/bin:/usr/bin"))

    assert seen == [(True, True), (False, True)]


async def test_a_server_behind_which_a_file_changed_is_not_started_nor_started_again(
    tmp_path: Path, journal: Journal
) -> None:
    spec = scripted(journal.path)
    script = tmp_path / "data.txt"
    script.write_text("one")
    spec = replace(spec, args=(*spec.args, f"--unused={script}"), cwd=str(tmp_path))
    pinned = replace(spec, pinned=launch_pins(spec, os.environ["PATH"]))
    async with open_source(pinned, tmp_path) as peer:
        script.write_text("two")
        assert (await peer.failing("die")).code == "outcome_unknown"
        await eventually(lambda: peer.source.state.state == "stale")
        assert str(script) in peer.source.state.detail

    assert len(journal.of("start")) == 1


async def test_a_server_whose_packages_came_while_a_command_of_an_agent_ran_is_not_started(
    tmp_path: Path, journal: Journal
) -> None:
    project, awaited = tmp_path / "project", tmp_path / "awaited"
    (project / ".toolcrib").mkdir(parents=True)
    spec = scripted(journal.path)
    spec = replace(spec, args=(*spec.args, "node_modules/.bin/x"), cwd=str(project), awaited=str(awaited))
    pinned = replace(spec, pinned=launch_pins(spec, os.environ["PATH"]))
    record = awaited_files(awaited)
    record.expect([project / "node_modules", project / "node_modules/.bin/x"])
    record.begin([project])
    (project / "node_modules" / ".bin").mkdir(parents=True)
    (project / "node_modules" / ".bin" / "x").write_text("x")
    async with open_source(pinned, tmp_path) as peer:
        assert "came while a command of an agent ran" in peer.source.state.detail

    assert journal.of("start") == []


async def test_a_confirmed_server_does_not_run_byte_code_of_its_project(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = scripted(journal.path)
    loaded, forged = tmp_path / "loaded.py", tmp_path / "forged.py"
    loaded.write_text("")
    forged.write_text("import os; os.environ['THEIR_TOKEN'] = 'forged'")
    py_compile.compile(
        str(forged), cache_from_source(str(loaded)), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    code = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); import loaded; del sys.argv[0]"
    runs = f"{code}; runpy.run_path(sys.argv[0], run_name='__main__')"
    spec = replace(spec, args=("-Sc", runs, *spec.args[1:]), cwd=str(tmp_path))
    pinned = replace(spec, pinned=launch_pins(spec, os.environ["PATH"]))
    old = tmp_path / "cache" / "toolcrib" / "bytecode" / "gone" / "a.pyc"
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (0, 0))
    seen: list[bool] = []
    for one in (spec, pinned):
        async with open_source(one, tmp_path) as peer:
            seen.append("THEIR_TOKEN" in json.loads((await peer.call("environment")).text))
            await eventually(lambda is_pinned=one is pinned: old.exists() is not is_pinned)

    assert seen == [True, False]


@pytest.mark.parametrize(("content", "is_used"), [("two", False), ("one", True)])
async def test_a_server_whose_files_change_between_the_check_and_its_first_answer_is_stopped(
    tmp_path: Path, journal: Journal, content: str, is_used: bool
) -> None:
    spec = scripted(journal.path)
    loaded = tmp_path / "data.txt"
    loaded.write_text("one")
    # The shell stands for whoever swaps the file after the check and before the server reads it.
    swap = f'printf {content} > {loaded}; exec {sys.executable} "$@"'
    spec = replace(spec, command="sh", args=("-c", swap, "sh", *spec.args, f"--unused={loaded}"), cwd=str(tmp_path))
    pinned = replace(spec, pinned=launch_pins(spec, os.environ["PATH"]))
    async with open_source(pinned, tmp_path) as peer:
        assert (peer.source.state.state == "ready") is is_used
        assert (str(loaded) in peer.source.state.detail) is not is_used


async def test_a_tool_that_changed_since_it_was_looked_up_is_not_called(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        echo = peer.tools["echo"]
        words = replace(echo, name="words", description="Other.")
        schema = replace(echo, name="schema", input_schema={"type": "object", "required": ["x"]})
        absent = replace(echo, name="absent", local_name="absent")
        peer.publish(Listing(tools=(words, schema, absent)))
        codes = [(await peer.failing(name)).code for name in ("words", "schema", "absent")]

        assert codes == ["definition_changed"] * 3
        assert journal.of("call") == []


async def test_the_metadata_of_the_caller_reaches_the_server(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        await peer.call("progress")

    assert journal.of("meta")[0]["meta"] == {"traceparent": "00-abc-def-01", "com.example/tab": 7}
