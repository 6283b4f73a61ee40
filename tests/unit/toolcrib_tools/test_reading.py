"""Reading files: every encoding and size, in pages that fit, in short, and what is known of them."""

from __future__ import annotations

import codecs
import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolcrib.plugin import Context, ToolFailure
from toolcrib_tools.files import file_info, read_file

SOURCE = '''\
"""A module."""
import os

# A comment.
LIMIT = 3
TEXT = """
# no comment
"""


class Shop(Base, metaclass=Meta):
    """Sells."""

    name: str = "x"  # kept with its line

    async def sell(self, item: str, *, count: int = 1) -> bool:
        def inner(): ...
        return True
'''


async def error_of(path: str, ctx: Context, **arguments: object) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await read_file(path, ctx, **arguments)  # pyright: ignore[reportArgumentType]
    return failure.value


async def test_a_text_comes_back_as_it_is(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_text("one\ntwo\n\nfour")

    assert await read_file("a.txt", ctx) == "one\ntwo\n\nfour"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (codecs.BOM_UTF8 + "naïve\n".encode(), "encoding utf-8 with a byte order mark"),
        (codecs.BOM_UTF16_LE + "naïve\n".encode("utf-16-le"), "encoding utf-16-le with a byte order mark"),
        (codecs.BOM_UTF16_BE + "naïve\n".encode("utf-16-be"), "encoding utf-16-be with a byte order mark"),
        (codecs.BOM_UTF32_LE + "naïve\n".encode("utf-32-le"), "encoding utf-32-le with a byte order mark"),
        ("naïve\n".encode("utf-16-le"), "encoding utf-16-le"),
        ("naïve\n".encode("utf-16-be"), "encoding utf-16-be"),
        ("naïve\n".encode("cp1252"), "encoding cp1252"),
        (b"na\xefve\x81\n", "encoding latin-1"),
        ("naïve\n".encode(), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_encoding_is_found_and_told_where_it_is_not_utf_8(
    folder: Path, ctx: Context, content: bytes, told: str
) -> None:
    (folder / "a.txt").write_bytes(content)

    text, _, note = (await read_file("a.txt", ctx)).partition("\n")

    assert text.rstrip("\x81") == "naïve"
    assert note == (f"[{told}]" if told else "")


async def test_an_encoding_that_is_named_counts(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").write_bytes("日本語\n".encode("shift_jis"))

    assert (await read_file("a.txt", ctx, encoding="shift_jis")).startswith("日本語\n")
    assert (await error_of("a.txt", ctx, encoding="utf-8")).message == "'a.txt' is not in utf-8: byte 0 does not fit"
    assert (await error_of("a.txt", ctx, encoding="klingon")).code == "invalid_arguments"
    assert (await error_of("a.txt", ctx, encoding="zlib")).message == "there is no encoding 'zlib'"


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
        bytes(range(256)) * 40,
        b"text\n" * 20_000 + b"\0tail",
        b"\xff\x01\x02\x03ab",
    ],
    ids=["png", "all bytes", "zero far behind", "controls"],
)
async def test_what_is_no_text_is_refused(folder: Path, ctx: Context, content: bytes) -> None:
    (folder / "a.bin").write_bytes(content)

    failure = await error_of("a.bin", ctx)

    assert failure.code == "tool_error"
    assert failure.message.startswith("'a.bin'")


async def test_line_ends_are_shown_as_one_and_told(folder: Path, ctx: Context) -> None:
    (folder / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "both.txt").write_bytes(b"one\r\ntwo\n")

    assert await read_file("dos.txt", ctx) == "one\ntwo\n[CRLF line ends]"
    assert await read_file("both.txt", ctx) == "one\ntwo\n[mixed line ends, LF and CRLF]"


async def test_a_file_is_read_in_pages_that_say_how_to_go_on(folder: Path, ctx: Context) -> None:
    lines = [f"line {number}" for number in range(1, 11)]
    (folder / "a.txt").write_text("\n".join(lines) + "\n")

    assert await read_file("a.txt", ctx, limit=3) == "line 1\nline 2\nline 3\n[lines 1 to 3 of 10; go on with offset=4]"
    assert await read_file("a.txt", ctx, offset=9, limit=3) == "line 9\nline 10\n[lines 9 to 10 of 10]"
    assert await read_file("a.txt", ctx, offset=-2) == "line 9\nline 10\n[lines 9 to 10 of 10]"
    assert await read_file("a.txt", ctx, offset=-99, limit=1, line_numbers=True) == (
        "1\tline 1\n[lines 1 to 1 of 10; go on with offset=2]"
    )
    assert (await error_of("a.txt", ctx, offset=11)).message == "'a.txt' has 10 lines, so there is no line 11"


async def test_the_pages_of_a_long_file_fit_the_result_and_together_are_the_file(folder: Path, ctx: Context) -> None:
    content = "".join(f"{number} {'é' * (number % 90)}\n" for number in range(1, 2_000))
    (folder / "a.txt").write_text(content)
    small = replace(ctx, result_bytes=5_000)
    pages: list[str] = []
    offset = 1

    while offset:
        page = await read_file("a.txt", small, offset=offset)
        assert len(page.encode()) <= 5_000
        text, _, note = page.rpartition("\n")
        pages.append(text)
        offset = int(note.partition("offset=")[2].rstrip("]") or 0)

    assert "\n".join(pages) + "\n" == content


async def test_a_line_longer_than_a_page_is_cut_and_the_next_line_can_be_read(folder: Path, ctx: Context) -> None:
    (folder / "a.js").write_text("x" * 5_000_000 + "\nend\n")

    page = await read_file("a.js", ctx)

    assert len(page) < 16_000
    assert page.endswith("[lines 1 to 1 of 2; line 1 has 5000000 characters and is cut; grep finds what is in it;"
                         " go on with offset=2]")  # fmt: skip
    assert await read_file("a.js", ctx, offset=2) == "end\n[lines 2 to 2 of 2]"


@pytest.mark.long
async def test_a_hundred_megabytes_are_read_from_any_place(folder: Path, ctx: Context) -> None:
    line = b"0123456789" * 9 + b"\n"
    count = 100_000_000 // len(line)
    (folder / "big.log").write_bytes(line * count)

    assert (await read_file("big.log", ctx, limit=1)).endswith(f"[lines 1 to 1 of {count}; go on with offset=2]")
    assert (await read_file("big.log", ctx, offset=-1)).startswith("0123456789")
    with (folder / "big.log").open("ab") as file:
        file.truncate(200_000_000)
    assert (await error_of("big.log", ctx)).code == "too_large"


async def test_an_empty_file_says_so(folder: Path, ctx: Context) -> None:
    (folder / "a.txt").touch()

    assert await read_file("a.txt", ctx) == "[the file is empty]"


async def test_compact_leaves_out_comments_and_blank_lines_only(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_text(SOURCE)

    shown = await read_file("a.py", ctx, mode="compact")

    assert shown.splitlines() == [
        *('1\t"""A module."""', "2\timport os", "5\tLIMIT = 3", '6\tTEXT = """', "7\t# no comment", '8\t"""'),
        *("11\tclass Shop(Base, metaclass=Meta):", '12\t    """Sells."""'),
        *('14\t    name: str = "x"  # kept with its line',),
        *("16\t    async def sell(self, item: str, *, count: int = 1) -> bool:", "17\t        def inner(): ..."),
        *("18\t        return True", "[compact of 18 lines: 12 hold something]"),
    ]


async def test_the_outline_of_python_is_parsed(folder: Path, ctx: Context) -> None:
    (folder / "a.py").write_text(SOURCE)

    shown = await read_file("a.py", ctx, mode="outline")

    assert shown.splitlines() == [
        *("5\tLIMIT =", "6\tTEXT =", "11\tclass Shop(Base, metaclass=Meta)", "14\t    name: str"),
        *("16\t    async def sell(self, item: str, *, count: int=1) -> bool", "[outline of 18 lines: 5 are listed]"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.md", "# One\n```\n# no\n```\nTwo\n===\ntext\n", ["1\t# One", "5\tTwo"]),
        ("a.ts", "export class A {\n  run(x): void {\n    if (x) {\n", ["1\texport class A", "2\t  run(x): void"]),
        ("a.go", "func (s *S) Run() {\n\treturn\n}\n", ["1\tfunc (s *S) Run()"]),
        ("a.rs", "pub(crate) fn run<T>(x: T) {\n let fn_ = 1;\n", ["1\tpub(crate) fn run<T>(x: T)"]),
        ("a.yaml", "one: 1\n  two: 2\n# three: 3\n", ["1\tone: 1"]),
        ("a.toml", "[tool.x]\ny = 1\n", ["1\t[tool.x]", "2\ty = 1"]),
        ("broken.py", "def f(:\n  class A:\n", ["1\tdef f(:", "2\t  class A:"]),
    ],
)  # fmt: skip
async def test_the_outline_of_anything_else_says_that_it_goes_by_patterns(
    folder: Path, ctx: Context, name: str, text: str, lines: list[str]
) -> None:
    (folder / name).write_text(text)

    *shown, note = (await read_file(name, ctx, mode="outline")).splitlines()

    assert shown == lines
    assert note.endswith("; found by pattern, not parsed: something may be missing]")


async def test_there_is_no_outline_of_what_nobody_knows(folder: Path, ctx: Context) -> None:
    (folder / "a.xyz").write_text("text\n")

    assert (await error_of("a.xyz", ctx, mode="outline")).hint == "read it in full or compact"


async def test_source_made_to_hurt_has_an_outline_all_the_same(folder: Path, ctx: Context) -> None:
    (folder / "deep.py").write_text("(" * 100_000 + "\nclass A:\n")

    assert (await read_file("deep.py", ctx, mode="outline")).startswith("2\tclass A:\n")


async def test_what_is_not_there_is_refused_with_the_nearest_names(folder: Path, ctx: Context) -> None:
    (folder / "src" / "shop").mkdir(parents=True)
    (folder / "src" / "shop" / "Settings.py").touch()

    assert (await error_of("src/shop/setings.py", ctx)).hint == "did you mean src/shop/Settings.py?"
    assert (await error_of("source/x.py", ctx)).hint == "did you mean src/x.py?"
    assert (await error_of("qqqq/x.py", ctx)).hint.endswith("in '.', the nearest folder that is there")
    assert (await error_of("src", ctx)).hint == "list_directory shows what is in it"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a\0b", "", "link/x", ".env", "a\nb"])
async def test_paths_that_lead_elsewhere_are_refused(folder: Path, ctx: Context, path: str) -> None:
    (folder / "link").symlink_to("/etc")
    (folder / ".env").write_text("SECRET=1")

    assert (await error_of(path, ctx)).code in ("denied", "invalid_arguments", "not_found", "tool_error")
    assert "SECRET" not in str(await error_of(path, ctx))


async def test_a_session_without_a_workspace_is_told_how_to_get_one(ctx: Context) -> None:
    failure = await error_of("a", replace(ctx, workspace=None))

    assert (failure.code, failure.hint) == (
        "unavailable",
        "declare one: `workspace: .` in the config, or session(workspace=…)",
    )


async def test_the_facts_of_a_file_are_told(folder: Path, ctx: Context) -> None:
    (folder / "a.csv").write_bytes(b"a,b\r\n1,2\r\n")
    (folder / "b.bin").write_bytes(b"\0\1\2")

    told = await file_info("a.csv", ctx)
    modified = told.pop("modified", "")

    assert modified.endswith("+00:00")
    assert told == {
        "path": "a.csv",
        "kind": "file",
        "size": 10,
        "pending": False,
        "mime_type": "text/csv",
        "sha256": hashlib.sha256(b"a,b\r\n1,2\r\n").hexdigest(),
        "encoding": "utf-8",
        "line_ends": "CRLF",
        "lines": 2,
    }
    assert (await file_info("b.bin", ctx)).get("encoding") == "binary"
    assert (await file_info(".", ctx)).get("size") == 2
