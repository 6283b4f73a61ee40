"""Language servers that die, hang, write garbage, answer late or are not there; and what servers are told of files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rig import eventually
from rig.sandbox import needs_sandbox
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.crib.session import Session
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib_tools.lsp.server import Fleet, Server
from toolcrib_tools.lsp.settings import read_settings

pytestmark = [needs_sandbox, pytest.mark.process]

PEER = Path(__file__).parents[2] / "peers" / "language_server.py"
HOVER = {"file_path": "a.py", "line": 1, "column": 1}
RANGE: dict[str, Any] = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
NOTHING: dict[str, Any] = {"contents": "all is well"}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A scripted server and the folder that it works in."""

    folder: Path
    session: Session

    def say(self, **script: Any) -> None:
        """Let it answer like this from now on, by method, with `_` for `/`."""
        spoken = {name.replace("__", "/"): value for name, value in script.items()}
        (self.folder / ".script.json").write_text(json.dumps(spoken))

    def heard(self, method: str) -> list[Any]:
        """What it was told by a method."""
        lines = (self.folder / ".heard").read_text().splitlines()
        messages = [json.loads(line) for line in lines]
        return [message.get("params") for message in messages if message.get("method") == method]

    async def told(self, name: str, /, **arguments: Any) -> str:
        result = await self.session.call(name, arguments)
        assert result.error is None, result.text
        return result.text

    async def refused(self, name: str, /, **arguments: Any) -> tuple[str, str, str]:
        result = await self.session.call(name, arguments)
        assert result.error is not None, result.text
        return result.error.code, result.error.message, result.error.hint


@asynccontextmanager
async def peer_at(folder: Path, *, mode: str = "autonomous", servers: Any = None, **said: Any) -> AsyncGenerator[Peer]:
    (folder / ".script.json").write_text("{}")
    (folder / "a.py").write_text("x = 1\n")
    # It writes down what it hears: what a real server only does when the operator says so.
    own: Mapping[str, Any] = {
        "command": [sys.executable, "-IS", str(PEER), str(folder / ".script.json"), str(folder / ".heard")],
        "files": ["*.py"],
        "readable": [str(PEER.parent)],
        "writes": True,
        **said,
    }
    settings = bare().with_values(
        builtins=True,
        workspace=WorkspaceSpec(roots=(folder,)),
        tools={"lsp": {"servers": servers or {"peer": own}}},
    )
    async with Toolcrib(settings, memory=True) as crib, crib.session(profile="flat", mode=mode) as session:
        yield Peer(folder=folder, session=session)


# Faults


async def test_a_server_that_dies_is_started_anew_and_asked_again(folder: Path) -> None:
    async with peer_at(folder) as peer:
        peer.say(textDocument__hover={"do": "die", "once": True})
        said = await peer.told("lsp_hover", **HOVER)

    assert said == "a.py:1:\nversion 1 at 0:0: x = 1"
    assert len(peer.heard("initialize")) == 2


async def test_one_that_dies_again_is_given_up_with_its_last_words_and_tried_at_the_next_call(folder: Path) -> None:
    async with peer_at(folder) as peer:
        peer.say(textDocument__hover={"do": "die"})
        failure = await peer.refused("lsp_hover", **HOVER)
        starts = len(peer.heard("initialize"))
        peer.say(textDocument__hover=NOTHING)
        after = await peer.told("lsp_hover", **HOVER)

    assert failure[:2] == (
        "unavailable",
        "the language server 'peer' does not run: it ended with exit status 3; its last output: no memory left",
    )
    assert (starts, after) == (2, "a.py:1:\nall is well")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Welcome to the server!\n", "its stdout is not JSON-RPC: 'Welcome to the server!\\n'"),
        ("Content-Length: 4\r\n\r\nabcd", "it sent a message that is not JSON: 'abcd'"),
        ("Content-Length: 99999999\r\n\r\n", "it sent a message of 99,999,999 bytes, and 32 MiB are the most"),
    ],
)
@pytest.mark.parametrize("method", ["initialize", "textDocument__hover"])
async def test_one_that_writes_what_is_no_message_is_ended(folder: Path, said: str, why: str, method: str) -> None:
    async with peer_at(folder) as peer:
        peer.say(**{method: {"do": "say", "text": said}})
        failure = await peer.refused("lsp_hover", **HOVER)

    assert failure[:2] == ("unavailable", f"the language server 'peer' does not run: {why}")


async def test_one_that_hangs_is_given_up_in_time_and_ended_when_it_stays_mute(folder: Path) -> None:
    async with peer_at(folder, seconds=4) as peer:
        peer.say(textDocument__hover={"do": "hang"})
        first = await peer.refused("lsp_hover", **HOVER)
        second = await peer.refused("lsp_hover", **HOVER)
        peer.say(textDocument__hover=NOTHING)
        after = await peer.told("lsp_hover", **HOVER)

    assert first[:2] == ("timeout", "the language server 'peer' gave no answer to textDocument/hover within 4 s")
    assert "tools.lsp.servers.peer.seconds" in first[2]
    assert second[0] == "timeout"
    assert after == "a.py:1:\nall is well"
    assert len(peer.heard("initialize")) == 2


async def test_one_that_hangs_at_its_start_is_ended(folder: Path) -> None:
    async with peer_at(folder, seconds=4) as peer:
        peer.say(initialize={"do": "hang"})
        failure = await peer.refused("lsp_hover", **HOVER)

    assert failure[:2] == ("timeout", "the language server 'peer' gave no answer to initialize within 4 s")


async def test_a_late_answer_is_not_taken_for_that_to_another_question(folder: Path) -> None:
    async with peer_at(folder, seconds=5) as peer:
        late = {"do": "late", "seconds": 6, "result": {"contents": "too late"}, "once": True}
        peer.say(textDocument__hover=late)
        first = await peer.refused("lsp_hover", **HOVER)
        said = await peer.told("lsp_hover", **HOVER)

    assert first[0] == "timeout"
    assert said == "a.py:1:\nversion 1 at 0:0: x = 1"
    assert len(peer.heard("initialize")) == 1
    assert peer.heard("$/cancelRequest")


async def test_endless_logs_hurt_nobody(folder: Path) -> None:
    async with peer_at(folder, seconds=60) as peer:
        peer.say(textDocument__hover={"do": "chatter", "result": NOTHING})

        assert await peer.told("lsp_hover", **HOVER) == "a.py:1:\nall is well"


async def test_a_busy_server_is_asked_again_and_a_refusal_is_told(folder: Path) -> None:
    async with peer_at(folder) as peer:
        peer.say(textDocument__hover={"do": "refuse", "code": -32801, "message": "modified", "once": True})
        busy = await peer.told("lsp_hover", **HOVER)
        peer.say(textDocument__hover={"do": "refuse", "message": "no\nidea"})
        refused = await peer.refused("lsp_hover", **HOVER)

    assert busy == "a.py:1:\nversion 1 at 0:0: x = 1"
    assert refused[:2] == ("tool_error", "the language server 'peer' refuses: no idea")


async def test_an_answer_of_no_known_shape_is_told_and_not_taken_for_nothing(folder: Path) -> None:
    async with peer_at(folder) as peer:
        peer.say(textDocument__definition=[{"uri": 3}])
        failure = await peer.refused("lsp_goto_definition", **HOVER)

    assert failure[:2] == ("tool_error", "the language server answered textDocument/definition in no known way: uri")


async def test_one_that_is_not_installed_is_told_with_what_to_do(folder: Path) -> None:
    servers = {"go": {"command": ["gopls-of-nowhere"], "files": ["*.py"]}}
    async with peer_at(folder, servers=servers) as peer:
        failure = await peer.refused("lsp_hover", **HOVER)

    assert failure == (
        "unavailable",
        "the language server 'go' is not installed: there is no program 'gopls-of-nowhere'",
        "install it, or name another one under tools.lsp.servers.go.command",
    )


async def test_one_that_fails_leaves_it_to_the_next_and_is_told(folder: Path) -> None:
    async with peer_at(folder) as peer:
        pass
    working = {
        "command": [sys.executable, "-IS", str(PEER), str(folder / ".script.json")],
        "files": ["*.py"],
        "readable": [str(PEER.parent)],
    }
    servers = {"go": {"command": ["gopls-of-nowhere"], "files": ["*.py"]}, "bad": {}, "peer": working}
    async with peer_at(folder, servers=servers) as peer:
        peer.say(publish=[[]])
        of_one = await peer.told("lsp_get_diagnostics", file_path="a.py")
        said = await peer.told("lsp_hover", **HOVER)
        peer.say(textDocument__diagnostic=None)
        wrong = await peer.told("get_diagnostics", path="a.py")

    note = "the language server 'go' is not installed: there is no program 'gopls-of-nowhere'"
    assert said == f"a.py:1:\nversion 1 at 0:0: x = 1\n[{note}]"
    assert note in wrong
    assert "tools.lsp.servers.bad.command: a list of texts is needed" in wrong
    assert "tools.lsp.servers.bad.command: a list of texts is needed" in of_one


async def test_one_that_says_nothing_of_a_file_is_not_taken_for_praise(folder: Path) -> None:
    async with peer_at(folder, seconds=4) as peer:
        said = await peer.told("lsp_get_diagnostics", file_path="a.py")

    assert said.startswith("[0 errors, 0 warnings, 0 informations; ") and "a.py" in said


async def test_without_a_server_the_tools_are_not_offered_and_why_says_what_to_do(folder: Path) -> None:
    settings = bare().with_values(builtins=True, workspace=WorkspaceSpec(roots=(folder,)))
    async with Toolcrib(settings, memory=True) as crib, crib.session(profile="flat", mode="autonomous") as session:
        result = await session.call("lsp_hover", {"symbol": "x"})
        why = crib.explainer.why("lsp_hover", session)

    assert result.error is not None
    assert "lsp_hover" not in [tool.name for tool in session.tools]
    assert (why.verdict, why.stopped_by) == ("refused", "need")
    assert "it needs a language_server, and this session has none" in why.reason
    assert "tools: {lsp: {servers:" in why.hint


async def test_a_configuration_without_a_server_that_can_be_used_says_so_at_the_call(folder: Path) -> None:
    async with peer_at(folder, servers={"bad": {"command": ["x"]}}) as peer:
        failure = await peer.refused("lsp_hover", **HOVER)

    assert failure[:2] == ("unavailable", 'tools.lsp.servers.bad.files: a list of texts is needed, such as ["*.py"]')
    assert "pip install pyright" in failure[2]
    assert "npm install -g typescript" in failure[2]


async def test_one_that_nobody_asks_is_ended_and_started_when_it_is_asked(folder: Path) -> None:
    async with peer_at(folder) as peer:
        own = {
            "command": [sys.executable, "-IS", str(PEER), str(folder / ".script.json"), str(folder / ".heard")],
            "files": ["*.py"],
            "readable": [str(PEER.parent)],
            "writes": True,
        }
        server = Server(read_settings({"servers": {"peer": own}}).servers[0], idle=0.5)
        peer.session.state.runtime["lsp.servers"] = Fleet([server])
        await peer.told("lsp_hover", **HOVER)
        pid = server.pid
        assert pid is not None
        await eventually(lambda: not Path(f"/proc/{pid}").exists())

        assert await peer.told("lsp_hover", **HOVER) == "a.py:1:\nversion 1 at 0:0: x = 1"
    assert len(peer.heard("initialize")) == 2


@pytest.mark.parametrize("writes", [False, True])
async def test_one_writes_in_the_workspace_only_where_the_operator_says_so(folder: Path, writes: bool) -> None:
    async with peer_at(folder, writes=writes) as peer:
        result = await peer.session.call("lsp_hover", HOVER)

    assert (folder / ".heard").exists() == writes
    assert (result.error is None) == writes
    assert writes or "Read-only file system" in result.text


# What a server is told


async def test_it_is_told_its_options_and_its_configuration_when_it_asks(folder: Path) -> None:
    settings = {"peer": {"strict": True, "level": {"deep": 1}}}
    asked = {"items": [{"section": "peer.level"}, {"section": "none"}, {}]}
    async with peer_at(folder, options={"fast": 1}, settings=settings, environment={"LEVEL": "7"}) as peer:
        peer.say(textDocument__hover={"do": "ask", "method": "workspace/configuration", "params": asked})
        said = await peer.told("lsp_hover", **HOVER)
        peer.say(textDocument__hover={"do": "ask", "method": "workspace/applyEdit", "params": {"edit": {}}})
        edit = await peer.told("lsp_hover", **HOVER)
        peer.say(textDocument__hover={"do": "ask", "method": "unheard/of", "params": {}})
        unknown = await peer.told("lsp_hover", **HOVER)

    assert json.loads(said.partition("\n")[2]) == {"result": [{"deep": 1}, None, settings]}
    assert json.loads(edit.partition("\n")[2]) == {
        "result": {"applied": False, "failureReason": "no change was requested"}
    }
    assert json.loads(unknown.partition("\n")[2])["error"]["code"] == -32601
    assert peer.heard("initialize")[0]["initializationOptions"] == {"fast": 1}
    assert peer.heard("initialize")[0]["rootUri"] == folder.as_uri()
    assert peer.heard("workspace/didChangeConfiguration") == [{"settings": settings}]


async def test_a_session_that_goes_on_in_another_folder_has_a_server_of_that_folder(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    (other / "a.py").write_text("x = 'other'\n")
    own = {"command": [sys.executable, "-IS", str(PEER), str(folder / ".script.json")], "files": ["*.py"]}
    servers = {"peer": {**own, "readable": [str(PEER.parent), str(folder)]}}
    async with peer_at(folder, servers=servers) as peer:
        here = await peer.told("lsp_hover", **HOVER)
        peer.session.state.files.workspace = DiskWorkspace(other)
        there = await peer.told("lsp_hover", **HOVER)
        peer.say(textDocument__definition=[{"uri": "$ROOT/a.py", "range": RANGE}])
        place = await peer.told("lsp_goto_definition", **HOVER)

    assert here == "a.py:1:\nversion 1 at 0:0: x = 1"
    assert there == "a.py:1:\nversion 1 at 0:0: x = 'other'"
    assert place == "a.py:1:1: x = 'other'"


async def test_it_is_told_of_every_change_on_the_disk_by_name(folder: Path) -> None:
    (folder / "gone.py").write_text("")
    async with peer_at(folder) as peer:
        await peer.told("lsp_hover", **HOVER)
        (folder / "gone.py").unlink()
        (folder / "né w.py").write_text("y = 1\n")
        (folder / "a.py").write_text("x = 22\n")
        os.utime(folder / "a.py", (1, 1))
        changed = await peer.told("lsp_hover", **HOVER)
        await peer.told("lsp_hover", **HOVER)

    root = folder.as_uri()
    assert changed == "a.py:1:\nversion 2 at 0:0: x = 22"
    assert peer.heard("workspace/didChangeWatchedFiles") == [
        {
            "changes": [
                {"uri": f"{root}/a.py", "type": 2},
                {"uri": f"{root}/gone.py", "type": 3},
                {"uri": f"{root}/n%C3%A9%20w.py", "type": 1},
            ]
        }
    ]


async def test_it_sees_what_waits_for_review_in_every_file_and_the_disk_again_when_that_is_rejected(
    folder: Path,
) -> None:
    (folder / "b.py").write_text("b = 1\n")
    (folder / "c.py").write_text("c = 1\n")
    (folder / "note.txt").write_text("n\n")
    async with peer_at(folder, mode="review") as peer:
        await peer.told("write_file", path="a.py", content="x = 'waits'\n")
        await peer.told("write_file", path="note.txt", content="waits, and is none of its files\n")
        await peer.told("remove_file", path="c.py")
        seen = await peer.told("lsp_hover", file_path="b.py", line=1, column=1)
        opened = {one["textDocument"]["uri"]: one["textDocument"]["text"] for one in peer.heard("textDocument/didOpen")}
        await peer.told("undo_edit")
        await peer.told("lsp_hover", file_path="b.py", line=1, column=1)
        closed = [one["textDocument"]["uri"] for one in peer.heard("textDocument/didClose")]

    root = folder.as_uri()
    assert seen == "b.py:1:\nversion 1 at 0:0: b = 1"
    assert opened == {f"{root}/a.py": "x = 'waits'\n", f"{root}/b.py": "b = 1\n", f"{root}/c.py": ""}
    assert closed in ([], [f"{root}/c.py"])
    assert (folder / "a.py").read_text() == "x = 1\n"


async def test_text_of_another_encoding_and_line_end_arrives_as_text(folder: Path) -> None:
    async with peer_at(folder) as peer:
        (folder / "a.py").write_bytes("x = 'é😀'\r\ny\r\n".encode("utf-16"))
        said = await peer.told("lsp_hover", file_path="a.py", line=1, column=8)
        (folder / "a.py").write_bytes(b"\0\1\2")
        binary = await peer.refused("lsp_hover", **HOVER)

    assert said == "a.py:1:\nversion 1 at 0:8: x = 'é😀'\r\ny"
    assert binary[0] == "tool_error"
    assert binary[1].startswith("'a.py'")


async def test_findings_that_come_in_parts_are_waited_for_and_those_of_an_older_text_are_not_taken(
    folder: Path,
) -> None:
    def finding(line: int, message: str) -> dict[str, Any]:
        place = {"line": line, "character": 0}
        return {"range": {"start": place, "end": place}, "message": message, "code": 7}

    async with peer_at(folder, seconds=30) as peer:
        peer.say(publish=[[finding(0, "first")], [finding(0, "first"), finding(0, "second\n  part")]])
        said = await peer.told("lsp_get_diagnostics", file_path="a.py")
        again = await peer.told("lsp_get_diagnostics", file_path="a.py")
        peer.say(publish=[[]])
        (folder / "a.py").write_text("x = 2\n")
        mended = await peer.told("lsp_get_diagnostics", file_path="a.py")

    assert said.splitlines()[:-1] == ["a.py:1:1: error [peer 7] first", "a.py:1:1: error [peer 7] second part"]
    assert again == said
    assert mended == "[0 errors, 0 warnings, 0 informations; asked: peer]"
