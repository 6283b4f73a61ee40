"""Changes that language servers want: made as a whole or not at all, byte for byte, inside of the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rig.sandbox import needs_sandbox

from .test_lsp_faults import Peer, peer_at

pytestmark = [needs_sandbox, pytest.mark.process]

RENAME: dict[str, Any] = {"symbol": "x", "new_name": "y", "file_path": "a.py", "line": 1}


def span(line: int, start: int, stop: int, text: str) -> dict[str, Any]:
    place = {"start": {"line": line, "character": start}, "end": {"line": line, "character": stop}}
    return {"range": place, "newText": text}


def text_of(name: str, *edits: dict[str, Any], version: int | None = None) -> dict[str, Any]:
    return {"textDocument": {"uri": f"$ROOT/{name}", "version": version}, "edits": list(edits)}


async def renamed(peer: Peer, *, apply: bool = True) -> Any:
    result = await peer.session.call("lsp_rename_symbol", {**RENAME, "apply": apply})
    assert result.error is None, result.text
    return result.structured_content


async def test_files_are_edited_made_moved_and_removed_in_one_step_and_undone_in_one(folder: Path) -> None:
    (folder / "old.py").write_text("o = 1\n")
    (folder / "gone.py").write_text("g = 1\n")
    async with peer_at(folder) as peer:
        wanted = [
            text_of("a.py", span(0, 0, 1, "y"), version=1),
            {"kind": "create", "uri": "$ROOT/new/made.py"},
            text_of("new/made.py", span(0, 0, 0, "from a import y\n")),
            {"kind": "rename", "oldUri": "$ROOT/old.py", "newUri": "$ROOT/moved.py"},
            text_of("moved.py", span(0, 0, 1, "m")),
            {"kind": "delete", "uri": "$ROOT/gone.py"},
            {"kind": "delete", "uri": "$ROOT/never.py", "options": {"ignoreIfNotExists": True}},
            {"kind": "create", "uri": "$ROOT/a.py", "options": {"ignoreIfExists": True}},
        ]
        peer.say(textDocument__rename={"documentChanges": wanted})
        shown = await renamed(peer, apply=False)
        before = sorted(path.name for path in folder.glob("**/*.py"))
        made = await renamed(peer)
        after = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.glob("**/*.py")}
        await peer.told("undo_edit")
        undone = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.glob("**/*.py")}

    assert before == ["a.py", "gone.py", "old.py"]
    assert after == {"a.py": "y = 1\n", "new/made.py": "from a import y\n", "moved.py": "m = 1\n"}
    assert undone == {"a.py": "x = 1\n", "gone.py": "g = 1\n", "old.py": "o = 1\n"}
    assert {**made, "diff": ""} == {
        "files": [
            {"path": "a.py", "edits": 1, "lines": [1]},
            {"path": "new/made.py", "edits": 1, "lines": [1]},
            {"path": "moved.py", "edits": 1, "lines": [1]},
        ],
        "created": ["new/made.py", "moved.py"],
        "removed": ["old.py", "gone.py"],
        "diff": "",
        "applied": True,
        "pending": False,
        "undo": True,
        "notes": ["old.py moves to moved.py"],
    }
    assert shown == {**made, "applied": False, "undo": False}


async def test_utf_16_places_line_ends_marks_and_encodings_are_kept(folder: Path) -> None:
    before = "\ufeffa = '😀😀'; x\r\nlast x"
    async with peer_at(folder) as peer:
        (folder / "a.py").write_bytes(before.encode("utf-8"))
        edits = [span(1, 5, 6, "y\nz"), span(0, 12, 13, "y"), span(0, 0, 0, "one "), span(0, 0, 0, "two ")]
        peer.say(textDocument__rename={"changes": {"$ROOT/a.py": edits}})
        told = await renamed(peer)
        edited = (folder / "a.py").read_bytes()
        (folder / "a.py").write_text("x\n")
        (folder / "b.py").write_bytes("é = 1\n".encode("cp1252"))
        peer.say(textDocument__rename={"changes": {"$ROOT/b.py": [span(0, 4, 5, "2")]}})
        await renamed(peer)

    assert edited == "\ufeffone two a = '😀😀'; y\r\nlast y\r\nz".encode()
    assert (folder / "b.py").read_bytes() == "é = 2\n".encode("cp1252")
    assert told["diff"] == (
        "--- a.py\n+++ a.py\n@@ -1,2 +1,3 @@\n-a = '😀😀'; x\n-last x\n+one two a = '😀😀'; y\n+last y\n+z"
    )


async def test_one_that_replaces_a_whole_file_is_told_by_the_lines_that_change(folder: Path) -> None:
    async with peer_at(folder) as peer:
        (folder / "a.py").write_text("x = 1\nb = 2\nc = 3\n")
        whole = {
            "range": {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}},
            "newText": "x = 1\nb = 22\nc = 3\n",
        }
        peer.say(textDocument__rename={"changes": {"$ROOT/a.py": [whole]}})
        told = await renamed(peer)

    assert told["files"] == [{"path": "a.py", "edits": 1, "lines": [2]}]
    assert (folder / "a.py").read_text() == "x = 1\nb = 22\nc = 3\n"


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        ([text_of("../b.py", span(0, 0, 1, "y"))], "denied", "the language server wants to change file://"),
        ([text_of(".git/config", span(0, 0, 1, "y"))], "denied", ""),
        ([{"kind": "create", "uri": "$ROOT/../made.py"}], "denied", "the language server wants to change file://"),
        ([{"kind": "create", "uri": "untitled:one"}], "denied", "the language server wants to change untitled:one"),
        ([{"kind": "create", "uri": "file://["}], "denied", "the language server wants to change file://["),
        ([{"kind": "create", "uri": "$ROOT/a%00b"}], "denied", "the language server wants to change file://"),
        ([{"kind": "create", "uri": "$ROOT/%2e%2e/made.py"}], "denied", "the language server wants to change file://"),
        ([{"kind": "create", "uri": "$ROOT/.env"}], "denied", ""),
        ([text_of("nowhere.py", span(0, 0, 1, "y"))], "not_found", "there is no 'nowhere.py'"),
        ([text_of("a.py", span(0, 0, 1, "y"), version=7)], "conflict", "a.py was changed while the language server"),
        (
            [text_of("a.py", span(0, 0, 2, "y"), span(0, 1, 3, "y"))],
            "tool_error",
            "the language server wants changes in a.py that overlap",
        ),
        ([text_of("a.py", span(0, 3, 1, "y"))], "tool_error", "the language server wants a change in a.py that ends"),
        ([{"kind": "create", "uri": "$ROOT/a.py"}], "conflict", "the language server wants to make a.py, which is"),
        (
            [{"kind": "rename", "oldUri": "$ROOT/b.py", "newUri": "$ROOT/a.py"}],
            "conflict",
            "the language server wants to move b.py to a.py, which is there already",
        ),
        ([{"kind": "delete", "uri": "$ROOT/no.py"}], "conflict", "the language server wants to remove no.py, which is"),
        ([{"kind": "chmod", "uri": "$ROOT/a.py"}], "tool_error", "the language server wants 'chmod', which is no"),
        ([{"edits": 1}], "tool_error", "the language server answered how to rename in no known way"),
    ],
)
async def test_a_change_of_which_a_part_cannot_be_is_not_made_at_all(
    folder: Path, wanted: list[dict[str, Any]], code: str, message: str
) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]\n")
    (folder / "b.py").write_text("b = 1\n")
    async with peer_at(folder) as peer:
        peer.say(textDocument__rename={"documentChanges": [text_of("b.py", span(0, 0, 1, "y")), *wanted]})
        failure = await peer.refused("lsp_rename_symbol", **RENAME, apply=True)

    assert failure[0] == code
    assert failure[1].startswith(message)
    assert ((folder / "a.py").read_text(), (folder / "b.py").read_text()) == ("x = 1\n", "b = 1\n")
    assert (folder / ".git" / "config").read_text() == "[core]\n"
    assert not (folder.parent / "made.py").exists()


async def test_what_somebody_else_has_changed_meanwhile_is_not_written_over(folder: Path) -> None:
    (folder / "b.py").write_text("b = 1\n")
    async with peer_at(folder) as peer:
        (folder / "a.py").write_text("x = 1\n")
        slow = {"do": "late", "seconds": 0, "result": {"changes": {"$ROOT/b.py": [span(0, 0, 1, "y")]}}}
        peer.say(textDocument__rename={**slow, "write": [str(folder / "b.py"), "somebody = 'else'\n"]})
        failure = await peer.refused("lsp_rename_symbol", **RENAME, apply=True)

    assert failure[:2] == (
        "conflict",
        "b.py was changed while the language server was asked; nothing was changed",
    )
    assert (folder / "b.py").read_text() == "somebody = 'else'\n"


@pytest.mark.parametrize("answer", [None, {}, {"changes": {}}, {"changes": {"$ROOT/a.py": [span(0, 0, 1, "x")]}}])
async def test_a_rename_of_nothing_is_told(folder: Path, answer: Any) -> None:
    async with peer_at(folder) as peer:
        peer.say(textDocument__rename=answer)
        failure = await peer.refused("lsp_rename_symbol", **RENAME, apply=True)

    assert failure[:2] == ("tool_error", "the language server renames nothing at a.py:1")


# Code actions

EDIT = {"changes": {"$ROOT/a.py": [span(0, 4, 5, "2")]}}
AT = {"file_path": "a.py", "start_line": 1}


async def applied(peer: Peer, title: str) -> Any:
    result = await peer.session.call("lsp_apply_code_action", {**AT, "action_title": title})
    assert result.error is None, result.text
    return result.structured_content


async def test_actions_are_listed_with_what_is_known_of_them_and_of_one_kind(folder: Path) -> None:
    finding = {"range": span(0, 0, 1, "")["range"], "message": "wrong"}
    elsewhere = {"range": span(7, 0, 1, "")["range"], "message": "far"}
    async with peer_at(folder) as peer:
        actions: list[dict[str, Any]] = [
            {"title": "Mend", "kind": "quickfix", "isPreferred": True, "edit": EDIT},
            {"title": "Extract", "kind": "refactor.extract", "disabled": {"reason": "nothing selected"}},
            {"title": "Plain", "command": "change", "arguments": []},
        ]
        peer.say(textDocument__codeAction=actions, publish=[[finding, elsewhere]])
        every = await peer.told("lsp_get_code_actions", **AT)
        some = await peer.told("lsp_get_code_actions", **AT, start_column=3, end_column=5, kind="refactor")
        none = await peer.told("lsp_get_code_actions", **AT, end_line=1, kind="source")
        asked = peer.heard("textDocument/codeAction")

    hint = "lsp_apply_code_action applies one by its title]"
    assert every.splitlines()[:3] == [
        "Mend [quickfix; preferred; peer]",
        "Extract [refactor.extract; not now: nothing selected; peer]",
        "Plain [command; peer]",
    ]
    assert some.splitlines()[0] == "Extract [refactor.extract; not now: nothing selected; peer]"
    assert len(some.splitlines()) == 1 or some.endswith(hint)
    assert none == "[no action of the kind 'source' is offered there]"
    assert asked[0]["context"] == {"diagnostics": [finding], "triggerKind": 1}
    assert asked[0]["range"] == span(0, 0, 5, "")["range"]
    assert asked[1]["range"] == span(0, 2, 4, "")["range"]
    assert asked[1]["context"]["only"] == ["refactor"]


async def test_an_action_is_applied_whether_its_change_comes_with_it_is_asked_for_or_made_by_a_command(
    folder: Path,
) -> None:
    async with peer_at(folder) as peer:
        known = {"title": "With it", "edit": EDIT}
        asked = {"title": "Asked for", "data": 7}
        made = {"title": "By command", "command": {"title": "c", "command": "change", "arguments": [1]}}
        plain = {"title": "Plain", "command": "change", "arguments": [2]}
        third, fourth = ({"changes": {"$ROOT/a.py": [span(0, 4, 5, text)]}} for text in ("3", "4"))
        peer.say(
            textDocument__codeAction=[known, asked, made, plain],
            codeAction__resolve={**asked, "edit": third},
            publish=[[]],
        )
        texts: list[str] = []
        for title in ("With it", "Asked for", "By command"):
            if title == "By command":
                command = {"do": "change", "edit": fourth}
                peer.say(
                    textDocument__codeAction=[made, plain],
                    codeAction__resolve=made,
                    workspace__executeCommand=command,
                    publish=[[]],
                )
            told = await applied(peer, title)
            texts.append((folder / "a.py").read_text())
            assert (told["applied"], told["undo"]) == (True, True)
        (folder / "a.py").write_text("x = 1\n")
        await applied(peer, "Plain")
        texts.append((folder / "a.py").read_text())

    assert texts == ["x = 2\n", "x = 3\n", "x = 4\n", "x = 4\n"]
    assert peer.heard("workspace/executeCommand") == [
        {"command": "change", "arguments": [1]},
        {"command": "change", "arguments": [2]},
    ]


async def test_an_action_that_cannot_be_applied_is_told_with_those_that_there_are(folder: Path) -> None:
    async with peer_at(folder) as peer:
        peer.say(
            textDocument__codeAction=[
                {"title": "Mend it", "edit": {}},
                {"title": "Not now", "disabled": {"reason": "nothing selected"}},
            ],
            publish=[[]],
        )
        unknown = await peer.refused("lsp_apply_code_action", **AT, action_title="Mend")
        disabled = await peer.refused("lsp_apply_code_action", **AT, action_title="Not now")
        empty = await peer.refused("lsp_apply_code_action", **AT, action_title="Mend it")

    assert unknown == ("not_found", "no action 'Mend' is offered there", "those offered: Mend it")
    assert disabled[:2] == ("tool_error", "'Not now' cannot be applied: nothing selected")
    assert empty[:2] == ("tool_error", "peer changes no file for 'Mend it'")


async def test_a_command_is_not_run_twice_when_the_server_dies_of_it(folder: Path) -> None:
    async with peer_at(folder) as peer:
        action: dict[str, Any] = {"title": "Plain", "command": "change", "arguments": []}
        peer.say(textDocument__codeAction=[action], workspace__executeCommand={"do": "die"}, publish=[[]])
        failure = await peer.refused("lsp_apply_code_action", **AT, action_title="Plain")

    assert failure[0] == "unavailable"
    assert len(peer.heard("workspace/executeCommand")) == 1
