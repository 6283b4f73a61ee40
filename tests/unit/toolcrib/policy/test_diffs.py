"""What a call would change in files, told from its arguments."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.tool import Annotations, Tool
from toolcrib.policy.call_diff import diff_of

WRITE = Tool(name="w", source="s", local_name="w")
FILES = {"a": "one\ntwo\none\n", "big": "x" * 300_000}


async def read(path: str) -> str | None:
    if path == "secret":
        raise ValueError("it is outside of the workspace")
    return FILES.get(path)


def change(path: str, body: str, *, size: str = "1,3 +1,3") -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -{size} @@\n{body}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "a", "content": "one\ntwo\nsix\n"}, change("a", " one\n two\n-one\n+six\n")),
        ({"file_path": "a", "content": "one\ntwo\none\n"}, ""),
        ({"path": "b", "content": "new\n"}, "--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+new\n"),
        ({"path": "a", "search": "one", "replace": "six"}, change("a", "-one\n+six\n two\n one\n")),
        (
            {"path": "a", "old_string": "one", "new_string": "six", "replace_all": True},
            change("a", "-one\n+six\n two\n-one\n+six\n"),
        ),
        ({"path": "a", "old": "three", "new": "six"}, "(a: the text to be replaced is not in it)\n"),
        ({"path": "secret", "content": "x"}, "(secret: it is outside of the workspace)\n"),
        ({"path": "big", "content": "x"}, "(big: too large to compare, 300000 characters before and 1 after)\n"),
        (
            {"path": "a", "edits": [{"oldText": "two", "newText": "2"}, {"oldText": "2\n", "newText": ""}]},
            change("a", " one\n-two\n one\n", size="1,3 +1,2"),
        ),
        (
            {"operations": [{"path": "b", "content": "x\n"}, {"path": "secret", "content": "y"}]},
            "(secret: it is outside of the workspace)\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+x\n",
        ),
        ({"path": "b\n+x", "content": "y\n"}, "--- /dev/null\n+++ b/b\\x0a+x\n@@ -0,0 +1 @@\n+y\n"),
        ({"path": "a", "old": "", "new": "x"}, "(a: the text to be replaced is not in it)\n"),
        ({"path": "c\n+x", "old": "a", "new": "b"}, "(c\\x0a+x: the text to be replaced is not in it)\n"),
        ({"path": "a"}, ""),
        ({"content": "x"}, ""),
        ({"path": 1, "content": "x"}, ""),
    ],
)
async def test_the_diff_of_every_shape_of_change(arguments: dict[str, Any], expected: str) -> None:
    assert await diff_of(WRITE, arguments, read) == expected


async def test_a_tool_that_only_reads_changes_nothing() -> None:
    reader = Tool(name="r", source="s", local_name="r", annotations=Annotations(read_only=True))

    assert await diff_of(reader, {"path": "a", "content": "x"}, read) == ""


async def test_more_files_than_anybody_reads_are_named_as_such() -> None:
    many = [{"path": f"f{number}", "content": "x\n"} for number in range(60)]

    diff = await diff_of(WRITE, {"edits": many}, read)

    assert (diff.count("--- /dev/null"), diff.partition("\n")[0]) == (
        50,
        "(more than 50 files: the arguments name the rest)",
    )
