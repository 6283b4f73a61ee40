"""Writing and editing: what is not meant stays byte for byte, all or none, and failures that say what to do."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.plugin import Context, ToolFailure
from toolcrib.workspace.disk import DiskWorkspace
from toolcrib_tools._workspace.file_text import decoded
from toolcrib_tools.files import edit_file, find_and_replace, multi_edit, read_file, undo_edit, write_file


async def refused(coroutine: Any) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await coroutine
    return failure.value


# write_file


async def test_a_file_is_made_with_the_folders_that_it_lies_in(folder: Path, ctx: Context) -> None:
    told = await write_file("a/b/c.txt", "one\n", ctx)

    assert (folder / "a/b/c.txt").read_bytes() == b"one\n"
    assert told == {"path": "a/b/c.txt", "action": "created", "size": 4, "pending": False, "undo": True}


async def test_a_file_that_is_there_is_replaced_unless_that_is_unwanted(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("old")

    failure = await refused(write_file("a.txt", "new", ctx, if_exists="fail"))
    assert ((folder / "a.txt").read_text(), failure.message) == ("old", "'a.txt' is there already")
    assert (await write_file("a.txt", "new", ctx)).get("action") == "changed"
    assert (await write_file("./a.txt", "new", ctx)).get("action") == "unchanged"
    assert (folder / "a.txt").read_text() == "new"


async def test_a_file_that_is_not_there_is_made_unless_that_is_unwanted(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("old")

    failure = await refused(write_file("b.txt", "new", ctx, if_missing="fail"))
    assert (failure.message, failure.hint) == ("there is no 'b.txt'", "did you mean a.txt?")
    assert (await write_file("a.txt", "new", ctx, if_missing="fail")).get("action") == "changed"
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\n", b"eins\r\nzwei\r\n"),
        (codecs.BOM_UTF8 + b"one\n", codecs.BOM_UTF8 + b"eins\nzwei\n"),
        (codecs.BOM_UTF16_LE + "one\n".encode("utf-16-le"), codecs.BOM_UTF16_LE + "eins\nzwei\n".encode("utf-16-le")),
        (b"\x00\x01binary", b"eins\nzwei\n"),
        (b"one\r\ntwo\n", b"eins\nzwei\n"),
    ],
    ids=["crlf", "mark", "utf-16", "binary", "mixed"],
)
async def test_a_rewritten_file_keeps_its_encoding_and_its_line_ends(
    folder: Path, ctx: Context, before: bytes, after: bytes
) -> None:
    (folder / "a.txt").write_bytes(before)

    await write_file("a.txt", "eins\nzwei\n", ctx)

    assert (folder / "a.txt").read_bytes() == after


async def test_an_encoding_that_is_named_is_written(folder: Path, ctx: Context) -> None:
    await write_file("a.txt", "naïve\n", ctx, encoding="latin-1")
    await write_file("b.txt", "naïve\n", ctx, encoding="utf-16")
    failure = await refused(write_file("c.txt", "one\n→\n", ctx, encoding="cp1252"))

    assert (folder / "a.txt").read_bytes() == b"na\xefve\n"
    assert (folder / "b.txt").read_bytes() == codecs.BOM_UTF16_LE + "naïve\n".encode("utf-16-le")
    assert failure.message == "line 2 would hold '→', which cp1252 cannot write"
    assert not (folder / "c.txt").exists()


@pytest.mark.parametrize("path", ["../a", "/tmp/a", ".git/hooks/pre-commit", ".env", "link/a", "a/", "dir"])
async def test_what_must_not_be_written_is_not(folder: Path, ctx: Context, tmp_path: Path, path: str) -> None:
    (folder / "dir").mkdir()
    (folder / "link").symlink_to(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    await refused(write_file(path, "x", ctx)) if path != "a/" else await write_file(path, "x", ctx)

    assert [made for made in sorted(tmp_path.rglob("*")) if made not in before] == [folder / "a"] * (path == "a/")


# edit_file


async def test_one_place_is_replaced_and_shown_as_a_diff(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")

    told = await edit_file("a.py", "three\n", "3\n3b\n", ctx)

    assert (folder / "a.py").read_text() == "one\ntwo\n3\n3b\nfour\nfive\nsix\n"
    assert told == {
        "path": "a.py",
        "action": "changed",
        "size": 27,
        "replacements": 1,
        "lines": [3],
        "diff": "@@ -1,6 +1,7 @@\n one\n two\n-three\n+3\n+3b\n four\n five\n six",
        "pending": False,
        "undo": True,
    }


async def test_only_the_edited_bytes_change_whatever_the_encoding_and_line_ends(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_bytes(b"caf\xe9\r\nold\nend\r\n\x93quoted\x94")

    told = await edit_file("a.txt", "café\nold", "café\nnew\nnewer", ctx)

    assert (folder / "a.txt").read_bytes() == b"caf\xe9\r\nnew\r\nnewer\nend\r\n\x93quoted\x94"
    assert (told.get("encoding"), told.get("line_ends")) == ("cp1252", "mixed")


async def test_text_that_the_encoding_cannot_write_changes_nothing(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_bytes(b"caf\xe9\n")

    failure = await refused(edit_file("a.txt", "caf", "→", ctx))

    assert "cp1252 cannot write" in failure.message
    assert (folder / "a.txt").read_bytes() == b"caf\xe9\n"


async def test_text_that_occurs_several_times_is_told_with_its_lines(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_text("x = 1\ny = 2\nx = 1\n")

    failure = await refused(edit_file("a.py", "x = 1", "x = 2", ctx))
    assert failure.message == "the text occurs 2 times in 'a.py': at lines 1, 3"

    await edit_file("a.py", "y = 2\nx = 1", "y = 2\nx = 2", ctx)
    assert (folder / "a.py").read_text() == "x = 1\ny = 2\nx = 2\n"
    assert (await edit_file("a.py", "x", "z", ctx, replace_all=True)).get("replacements") == 2
    assert (folder / "a.py").read_text() == "z = 1\ny = 2\nz = 2\n"


async def test_what_stands_around_a_place_says_which_one_is_meant_and_stays(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_bytes(b"x = 1\r\ny = 1\r\nz = 1\r\n")

    await edit_file("a.py", "1", "2", ctx, before="y = ", after="\nz")
    assert (folder / "a.py").read_bytes() == b"x = 1\r\ny = 2\r\nz = 1\r\n"

    several = await refused(edit_file("a.py", "1", "3", ctx, before=" = "))
    assert several.message == "the text occurs 2 times in 'a.py': at lines 1, 3"
    nowhere = await refused(edit_file("a.py", "2", "3", ctx, before="z = "))
    assert nowhere.message == "the text occurs in 'a.py' at line 2, but not between before and after"
    await edit_file("a.py", "1", "4", ctx, replace_all=True, before="= ")
    assert (folder / "a.py").read_bytes() == b"x = 4\r\ny = 2\r\nz = 4\r\n"


@pytest.mark.parametrize(
    ("search", "first", "last", "hint"),
    [
        (
            "def add(a, b):\n  return a + b",
            5,
            6,
            "only blanks differ: take indentation and tabs as they are in the file",
        ),
        ("5\tdef add(a, b):\n6\t    return a + b", 5, 6, "leave out the line numbers: they are not in the file"),
        ("def add(x, y):\n    return x + y", 5, 6, "copy the lines as they stand there, without the numbers"),
        ("def ad(a, b):", 5, 5, "copy the lines as they stand there, without the numbers"),
    ],
)
async def test_text_that_occurs_nowhere_is_told_with_the_nearest_lines(
    folder: Path, ctx: Context, search: str, first: int, last: int, hint: str
) -> None:
    (folder / "a.py").write_text("import os\n\nLIMIT = 3\n\ndef add(a, b):\n    return a + b\n\nprint(add(1, 2))\n")

    failure = await refused(edit_file("a.py", search, "new", ctx))

    assert (failure.details, failure.hint) == ({"first": first, "last": last}, hint)
    assert "5\tdef add(a, b):" in failure.message


async def test_nothing_alike_and_nothing_to_do_are_told(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_text("import os\n")

    assert (await refused(edit_file("a.py", "zzzzzzzz qqqqqqq", "x", ctx))).message.endswith("nor anything like it")
    assert (await refused(edit_file("a.py", "os", "os", ctx))).code == "invalid_arguments"


@pytest.mark.slow
async def test_the_nearest_lines_of_a_large_file_are_found_in_no_time(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("".join(f"value number {number} is {number * 7}\n" for number in range(40_000)))

    failure = await refused(edit_file("a.txt", "value number 31000 was 217000", "x", ctx))

    assert "31000" in failure.message


@pytest.mark.slow
@given(
    pieces=st.lists(st.sampled_from(["a", "b", "ab", "\n", "\r\n", "\r", "é", "→", " "]), max_size=40),
    search=st.sampled_from(["a", "b\n", "\n", "ab", "é", "a\nb"]),
    replacement=st.sampled_from(["", "X", "X\nY", "\n"]),
)
def test_replacing_in_any_mixture_of_line_ends_is_replacing_in_the_plain_text(
    pieces: list[str], search: str, replacement: str
) -> None:
    text = decoded("".join(pieces).encode())
    spans: list[tuple[int, int, str]] = []
    at = text.plain.find(search)
    while at >= 0:
        spans.append((at, at + len(search), replacement))
        at = text.plain.find(search, at + len(search))

    new = text.replaced(spans)

    assert new.plain.replace("\r\n", "\n") == text.plain.replace(search, replacement).replace("\r\n", "\n")
    assert not spans or new.raw.replace("\r", "") == text.plain.replace(search, replacement).replace("\r", "")
    assert text.replaced([]).to_bytes() == "".join(pieces).encode()


async def test_edits_of_one_file_at_the_same_time_lose_nothing_whatever_it_is_called(
    folder: Path, ctx: Context
) -> None:
    (folder / "a.txt").write_text("".join(f"<{number}>\n" for number in range(30)))
    other = DiskWorkspace(folder)
    spellings = ["a.txt", "./a.txt", str(folder / "a.txt")]

    async def edit(number: int) -> None:
        mine = Context(
            call_id="c", session_key=str(number), principal="p", workspace=other if number % 2 else ctx.workspace
        )
        await edit_file(spellings[number % 3], f"<{number}>", f"[{number}]", mine)

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(edit, number)

    assert (folder / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(30))


# multi_edit


async def test_several_changes_are_made_together_and_later_ones_see_earlier_ones(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_text("old\n")
    (folder / "b.py").write_text("gone\n")

    told = await multi_edit(
        [
            {"path": "a.py", "search": "old", "replace": "mid"},
            {"path": "./a.py", "search": "mid", "replace": "new"},
            {"path": "a.py", "action": "move", "target": "lib/a.py"},
            {"path": "b.py", "action": "remove"},
            {"path": "a.py", "action": "write", "content": "moved\n"},
        ],
        ctx,
    )

    assert [(one.get("path"), one.get("action")) for one in told["changed"]] == [
        ("a.py", "changed"),
        ("a.py", "changed"),
        ("lib/a.py", "moved"),
        ("b.py", "removed"),
        ("a.py", "created"),
    ]
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
    assert files == {"lib/a.py": "new\n", "a.py": "moved\n"}

    await undo_edit(ctx)
    assert {path.name: path.read_text() for path in folder.rglob("*.py")} == {"a.py": "old\n", "b.py": "gone\n"}


async def test_one_change_that_cannot_be_made_stops_all_and_every_wrong_one_is_named(
    folder: Path, ctx: Context
) -> None:
    (folder / "a.py").write_text("old\n")

    failure = await refused(
        multi_edit(
            [
                {"path": "a.py", "search": "old", "replace": "new"},
                {"path": "a.py", "search": "nowhere at all", "replace": "x"},
                {"path": "missing.py", "action": "remove"},
                {"path": "a.py", "action": "move"},
                {"path": "a.py", "action": "write", "content": "x", "search": "y"},
            ],
            ctx,
        )
    )

    assert (folder / "a.py").read_text() == "old\n"
    assert failure.message.startswith("4 of 5 operations cannot be made, so none was:\noperations[1]: ")
    assert "operations[2]: there is no 'missing.py'" in failure.message
    assert "operations[3]: move needs target" in failure.message
    assert "operations[4]: write has no search" in failure.message


# find_and_replace


@pytest.mark.process
async def test_a_text_is_replaced_in_all_files_but_those_that_are_ignored_hidden_or_binary(
    folder: Path, ctx: Context, engine: str
) -> None:
    (folder / ".gitignore").write_text("*.log\n")
    for name in ("a.py", "sub/b.py", "c.md", "d.log", ".hidden"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("foo(1) FOO\n")
    (folder / "e.bin").write_bytes(b"foo\0")

    planned = await find_and_replace("foo(1)", "bar(2)", ctx, glob="*.py", dry_run=True)
    assert (planned["changed_files"], planned["replacements"], planned["dry_run"]) == (0, 2, True)
    assert planned["diff"].startswith("--- a.py\n+++ a.py\n@@ -1,1 +1,1 @@\n-foo(1) FOO\n+bar(2) FOO\n--- sub/b.py")
    assert (folder / "a.py").read_text() == "foo(1) FOO\n"

    told = await find_and_replace("foo", "bar", ctx, case_insensitive=True)
    assert [one["path"] for one in told["files"]] == ["a.py", "c.md", "sub/b.py"]
    assert (told["replacements"], told["searched_files"], told["not_searched"]) == (6, 3, 1)
    assert (folder / "sub/b.py").read_text() == "bar(1) bar\n"
    assert {(folder / name).read_text() for name in ("d.log", ".hidden")} == {"foo(1) FOO\n"}
    assert (folder / "e.bin").read_bytes() == b"foo\0"

    await undo_edit(ctx)
    assert (folder / "sub/b.py").read_text() == "foo(1) FOO\n"


@pytest.mark.process
async def test_groups_of_a_regular_expression_stand_in_the_replacement(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_bytes(b"log(one)\r\nlog(two)\r\n")

    await find_and_replace(r"^log\((?P<what>\w+)\)$", r"logger.info(\g<what>)", ctx, regex=True)

    assert (folder / "a.py").read_bytes() == b"logger.info(one)\r\nlogger.info(two)\r\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "(", "regex": True}, "the pattern is not a regular expression that is known here: missing ): ("),
        ({"pattern": "(?=x)", "regex": True}, "the pattern is not a regular expression that is known here: "),
        (
            {"pattern": "o", "replacement": r"\g<nobody>", "regex": True},
            "the replacement means nothing for this pattern",
        ),
        ({"pattern": "o", "paths": ["nowhere"]}, "there is no 'nowhere'"),
        ({"pattern": "o", "paths": ["b.bin"]}, "'b.bin' is not text"),
    ],
)
async def test_what_cannot_be_replaced_is_told(
    folder: Path, ctx: Context, arguments: dict[str, Any], message: str
) -> None:
    (folder / "a.txt").write_text("foo\n")
    (folder / "b.bin").write_bytes(b"o\0")

    given: dict[str, Any] = {"replacement": "x", "ctx": ctx, **arguments}
    failure = await refused(find_and_replace(**given))

    assert failure.message.startswith(message)
    assert (folder / "a.txt").read_text() == "foo\n"


@pytest.mark.process
async def test_a_replacement_without_a_regular_expression_means_itself(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("a.b axb\n")

    await find_and_replace("a.b", r"\1\n", ctx)

    assert (folder / "a.txt").read_text() == "\\1\\n axb\n"


@pytest.mark.process
async def test_more_than_one_call_may_change_changes_nothing(folder: Path, ctx: Context) -> None:
    for number in range(501):
        (folder / f"{number}.txt").write_text("foo\n")

    assert (await refused(find_and_replace("foo", "bar", ctx))).code == "too_large"
    assert {path.read_text() for path in folder.iterdir()} == {"foo\n"}


@pytest.mark.process
async def test_a_pattern_made_to_hurt_ends(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("a" * 200_000 + "\n")

    told = await find_and_replace("(a+)+$b", "x", ctx, regex=True)

    assert told["replacements"] == 0
    assert (await read_file("a.txt", ctx, limit=1)).startswith("aaa")


async def test_several_changes_make_new_files_only_where_there_is_none(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("1 1\n")
    edit: Any = {"path": "a.txt", "search": "1", "replace": "2", "before": " "}
    made: Any = {"path": "b.txt", "action": "create", "content": "new"}

    await multi_edit([edit, made], ctx)
    assert ((folder / "a.txt").read_text(), (folder / "b.txt").read_text()) == ("1 2\n", "new")

    failure = await refused(multi_edit([made], ctx))
    assert "operations[0]: 'b.txt' is there already" in failure.message
    wrong: Any = {**made, "path": "c.txt", "before": "x"}
    assert (await refused(multi_edit([wrong], ctx))).message.endswith("operations[0]: create has no before")
