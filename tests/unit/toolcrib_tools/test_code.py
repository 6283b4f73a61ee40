"""Symbols and references: by syntax in every language, of the files as they are now, and of what waits for review."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolcrib import Toolcrib
from toolcrib.core.call_guards import Signal
from toolcrib.crib.session import Session
from toolcrib.plugin import Context, ToolFailure
from toolcrib_tools import code, files
from toolcrib_tools.code.analysis import occurrences, source_of, symbols_of
from unit.toolcrib_tools.telling import error_of, lines_of

CART = '''\
"""The cart."""

from price import gross

LIMIT = 50


class Cart:
    """What a customer is about to buy."""

    def total(self, items):
        """Add up the prices."""
        # gross of gross
        return sum(gross(item) for item in items)


def is_full(cart):
    print("gross")
    return len(cart.items) >= LIMIT
'''
PRICE = """\
def gross(price):
    return price * 1.19


def net(price):
    gross = price / 1.19
    return gross
"""


UNPARSED = "files that hold the word and are in no language that is parsed here"


async def hurried(ctx: Context) -> str:
    """Ask the index when the time is up already."""
    signal = Signal()
    signal.abort("the time is up")
    return await code.symbols(replace(ctx, signal=signal), query="net")


def index_folder(ctx: Context) -> str:
    """Where the index is."""
    return str(ctx.lent.folder("code"))


GUESTS = (code, files, hurried, index_folder)


@pytest.fixture
def session(crib: Toolcrib, folder: Path) -> Session:
    (folder / "src").mkdir()
    (folder / "src" / "cart.py").write_text(CART)
    (folder / "src" / "price.py").write_text(PRICE)
    (folder / "notes.md").write_text("# Notes\n\ngross is with tax\n")
    return crib.session(profile="flat", mode="autonomous", workspace=folder)


# What a file declares

SOURCES = [
    (
        "a.py",
        b"import total\nclass A(B):\n    size: int = 1\n    def total(self):\n        return total() # total\n",
        ["class A", "constant A.size", "method A.total"],
        ["1 import ", "4 definition A", "5 call A.total"],
    ),
    (
        "a.ts",
        b"import { total } from 'x'\ninterface I { total(): void }\nenum E { X }\nclass K { m() { this.total() } }\n",
        ["interface I", "method I.total", "enum E", "class K", "method K.m"],
        ["1 import ", "2 definition I", "4 call K.m"],
    ),
    (
        "a.tsx",
        b"const total = () => <b>total</b>\nfunction App() { return <p>{total}</p> }\n",
        ["function total", "function App"],
        ["1 definition ", "2 use App"],
    ),
    (
        "a.js",
        b"function total() {}\nconst o = { total }\no.total = total\n",
        ["function total", "constant o"],
        ["1 definition ", "2 use o", "3 write ", "3 use "],
    ),
    (
        "a.go",
        b"package p\ntype S struct{}\nfunc (s *S) total() {}\nfunc f(s S) { s.total() }\n",
        ["class S", "method S.total", "function f"],
        ["3 definition ", "4 call f"],
    ),
    (
        "a.rs",
        b"use a::total;\nstruct S;\nimpl S { fn total(&self) { self.total() } }\n",
        ["class S", "method S.total"],
        ["1 import ", "3 definition S", "3 call S.total"],
    ),
    (
        "A.java",
        b"class A {\n  int total() { return other.total(); }\n  A() {}\n}\n",
        ["class A", "method A.total", "method A.A"],
        ["2 definition A", "2 call A.total"],
    ),
    (
        "a.c",
        b"#define X 1\nstruct s { int total; };\nint *total(int a)\n{\n  return total(a);\n}\n",
        ["constant X", "class s", "function total"],
        ["2 use s", "3 definition ", "5 call total"],
    ),
    (
        "a.cpp",
        b"class A { void total(); };\nvoid A::total() { this->total(); }\n",
        ["class A", "method A.total", "method A.total"],
        ["1 definition A", "2 definition ", "2 call A.total"],
    ),
    (
        "a.rb",
        b"module M\n  class A\n    def total\n      b.total(1)\n    end\n  end\nend\n",
        ["module M", "class M.A", "method M.A.total"],
        ["3 definition M.A", "4 call M.A.total"],
    ),
    ("a.sh", b"total() { echo total; }\ntotal 1\n", ["function total"], ["1 definition ", "1 use total", "2 call "]),
    ("a.json", b'{"total": {"in": 1}}', ["constant total"], ["1 definition "]),
]


@pytest.mark.parametrize(("path", "content", "declared", "places"), SOURCES, ids=[one[0] for one in SOURCES])
def test_declarations_and_places_of_a_name_are_told_apart_by_syntax(
    path: str, content: bytes, declared: Sequence[str], places: Sequence[str]
) -> None:
    found = [f"{one.kind} {one.whole}" for one in symbols_of(path, content)]
    there = [f"{one.line} {one.kind} {one.inside}" for one in occurrences(path, content, "total")]

    assert (found, there) == (declared, places)


def test_a_symbol_knows_its_lines_what_is_said_of_it_and_what_it_uses() -> None:
    total = next(one for one in symbols_of("cart.py", CART.encode()) if one.name == "total")

    assert (total.line, total.last_line, total.doc, total.uses) == (
        11,
        14,
        "Add up the prices.",
        ("self", "items", "sum", "gross", "item"),
    )
    assert [one.doc for one in symbols_of("a.go", b"package p\n\n// F does\n// it.\nfunc F() {}\n")] == ["F does it."]


def test_a_document_declares_its_sections_and_what_stands_in_a_block_of_code_is_none() -> None:
    text = "intro\n\n# One\n\n```\n# no\n```\n\nTwo\n===\nmore\n"

    found = [(one.name, one.line, one.last_line) for one in symbols_of("a.md", text.encode())]

    assert found == [("a.md", 1, 2), ("One", 3, 8), ("Two", 9, 12)]


@pytest.mark.parametrize("content", [b"\x00\x01\x02" * 9, b"def (((\n  class", b"(" * 5_000, b""])
def test_a_file_that_is_broken_or_no_text_declares_nothing_and_breaks_nothing(content: bytes) -> None:
    assert [one.name for one in symbols_of("a.py", content)] == []


# References


@pytest.mark.parametrize("name", ["a.json", "a.js", "a.c", "a.rs", "a.py"])
def test_brackets_that_nobody_wrote_by_hand_declare_nothing(name: str) -> None:
    deep = b'{"a":' * 3_000

    assert symbols_of(name, deep) == symbols_of(name, deep + b"1" + b"}" * 3_000) == []
    with pytest.raises(ToolFailure):
        source_of(deep, name)
    assert source_of(b"{}" * 3_000, name) == b"{}" * 3_000


def test_names_of_what_is_nested_deeply_do_not_grow_with_the_square_of_its_depth() -> None:
    found = symbols_of(
        "a.py", b"".join(b" " * depth + b"class Abcdefghi:\n" for depth in range(400)) + b" " * 400 + b"x\n"
    )

    assert len(found) > 300
    assert max(len(one.container) for one in found) <= 1_000


def test_a_file_of_very_many_places_is_left_when_the_time_is_up_and_each_is_in_what_is_around_it() -> None:
    source = b"class A:\n" + b"    def f(self): f()\n" * 2_000 + b"f()\n" * 2_000
    left = iter([True] * 3)

    found = occurrences("a.py", source, "f")
    assert (len(found), {one.inside for one in found}) == (6_000, {"A", "A.f", ""})
    assert {one.kind for one in symbols_of("a.py", source)} == {"class", "method"}
    assert occurrences("a.py", source, "f", lambda: next(left, False)) == found[:3]


@pytest.mark.process
async def test_references_are_the_places_in_code_definitions_first(session: Session, engine: str) -> None:
    assert await lines_of(session, "find_references", symbol="gross") == [
        "src/price.py:1: [definition] def gross(price):",
        "src/cart.py:3: [import] from price import gross",
        "src/cart.py:14: [call in Cart.total] return sum(gross(item) for item in items)",
        "src/price.py:6: [write in net] gross = price / 1.19",
        "src/price.py:7: [use in net] return gross",
        f"[1 definition, 1 import, 1 write, 1 call, 1 use; {UNPARSED}: 1; grep searches every text]",
    ]


@pytest.mark.process
async def test_references_can_be_narrowed_to_a_file_a_kind_a_class_and_a_number(session: Session, folder: Path) -> None:
    (folder / "src" / "other.py").write_text("class Bill:\n    def total(self): ...\n")

    in_file = await lines_of(session, "find_references", symbol="gross", file="src/cart.py")
    calls = await lines_of(session, "find_references", symbol="gross", kind="call")
    of_class = await lines_of(session, "find_references", symbol="Cart.total")
    first = await lines_of(session, "find_references", symbol="gross", file="src", max_results=1)

    assert [line.partition(" ")[0] for line in in_file[:-1]] == ["src/cart.py:3:", "src/cart.py:14:"]
    assert [line.partition(" ")[0] for line in calls[:-1]] == ["src/cart.py:14:"]
    assert [line.partition(" ")[0] for line in of_class[:-1]] == ["src/cart.py:11:"]
    assert (len(first), "the first 1 of 5 are shown" in first[-1]) == (2, True)


@pytest.mark.process
async def test_references_leave_out_what_is_ignored_unless_it_is_asked_for(session: Session, folder: Path) -> None:
    (folder / ".gitignore").write_text("build\n")
    (folder / "build").mkdir()
    (folder / "build" / "made.py").write_text("gross(1)\n")

    usual = await lines_of(session, "find_references", symbol="gross", kind="call")
    every = await lines_of(session, "find_references", symbol="gross", kind="call", ignored=True)

    assert [line for line in every if line not in usual and "made" in line] == ["build/made.py:1: [call] gross(1)"]


@pytest.mark.process
async def test_what_is_no_symbol_or_in_no_language_is_refused(session: Session) -> None:
    assert await error_of(session, "find_references", symbol="a b") == (
        "invalid_arguments",
        "'a b' is not a symbol name",
    )
    assert (await error_of(session, "find_references", symbol="gross", file="notes.md"))[1].startswith(
        "'notes.md' is in"
    )
    assert (await error_of(session, "find_references", symbol="gross", file="sr"))[1] == "there is no 'sr'"
    assert await lines_of(session, "find_references", symbol="nowhere") == [
        "[no reference of 'nowhere' in the code below '.']"
    ]


# The project index


@pytest.mark.process
async def test_symbols_are_found_by_a_part_of_their_name_equal_names_first(session: Session, folder: Path) -> None:
    (folder / "src" / "more.py").write_text("def gross_total(): ...\ndef total(): ...\n")

    assert await lines_of(session, "symbols", query="TOTAL") == [
        "src/cart.py:11: [method] Cart.total: def total(self, items):",
        "src/more.py:2: [function] total: def total(): ...",
        "src/more.py:1: [function] gross_total: def gross_total(): ...",
    ]
    assert await lines_of(session, "symbols", query="cart.tot") == [
        "src/cart.py:11: [method] Cart.total: def total(self, items):"
    ]
    assert await lines_of(session, "symbols", query="o", kinds=["section"]) == ["notes.md:1: [section] Notes"]
    assert await lines_of(session, "symbols", query="%") == ["[no symbol like '%' in '.']"]


async def test_symbols_of_a_file_are_listed_without_a_query(session: Session) -> None:
    assert await lines_of(session, "symbols", path="src/cart.py") == [
        "src/cart.py:5: [constant] LIMIT: LIMIT = 50",
        "src/cart.py:8: [class] Cart: class Cart:",
        "src/cart.py:11: [method] Cart.total: def total(self, items):",
        "src/cart.py:17: [function] is_full: def is_full(cart):",
    ]
    assert await lines_of(session, "symbols", path="src/cart.py", kinds=["class", "constant"], max_results=1) == [
        "src/cart.py:5: [constant] LIMIT: LIMIT = 50",
        "[the first 1 of 2 are shown; give a longer query, or a smaller folder]",
    ]
    assert await error_of(session, "symbols") == ("invalid_arguments", "give a query, or one file")


@pytest.mark.process
async def test_the_index_keeps_up_with_the_files(session: Session, folder: Path) -> None:
    assert len(await lines_of(session, "symbols", query="net")) == 1
    (folder / "src" / "price.py").write_text("def netto(): ...\n")
    (folder / "src" / "new.py").write_text("def net_of(): ...\n")
    (folder / "src" / "cart.py").unlink()

    assert await lines_of(session, "symbols", query="net") == [
        "src/price.py:1: [function] netto: def netto(): ...",
        "src/new.py:1: [function] net_of: def net_of(): ...",
    ]
    assert await lines_of(session, "symbols", query="Cart") == ["[no symbol like 'Cart' in '.']"]


@pytest.mark.process
async def test_a_file_that_has_not_changed_is_not_read_again(session: Session, folder: Path) -> None:
    price = folder / "src" / "price.py"
    await lines_of(session, "symbols", query="net")
    stamp = price.stat()
    price.write_text(PRICE.replace("def net", "def fat"))
    os.utime(price, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    assert await lines_of(session, "symbols", query="fat") == ["[no symbol like 'fat' in '.']"]
    os.utime(price, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    assert len(await lines_of(session, "symbols", query="fat")) == 1


@pytest.mark.process
async def test_what_waits_for_review_is_seen_and_does_not_get_into_the_index(crib: Toolcrib, folder: Path) -> None:
    (folder / "price.py").write_text(PRICE)
    (folder / "old.py").write_text("def nett(): ...\n")
    review = crib.session(profile="flat", mode="review", workspace=folder)
    await lines_of(review, "write_file", path="new.py", content="def net_new():\n    return gross(1)\n")
    await lines_of(review, "remove_file", path="old.py")

    seen = await lines_of(review, "symbols", query="net")
    called = await lines_of(review, "find_references", symbol="gross", kind="call")
    other = await lines_of(crib.session(profile="flat", workspace=folder), "symbols", query="net")

    assert [line.partition(" ")[0] for line in seen] == ["price.py:5:", "new.py:1:"]
    assert called[0] == "new.py:1: [call in net_new] return gross(1)".replace(":1:", ":2:")
    assert [line.partition(" ")[0] for line in other] == ["price.py:5:", "old.py:1:"]


@pytest.mark.process
async def test_files_that_are_not_for_tools_are_not_in_the_index(session: Session, folder: Path) -> None:
    (folder / ".gitignore").write_text("build\n")
    for name in ("build", ".ssh"):
        (folder / name).mkdir()
        (folder / name / "secret.py").write_text("def net_secret(): ...\n")
    (folder / "outside.py").symlink_to(folder.parent / "outside.py")
    (folder.parent / "outside.py").write_text("def net_outside(): ...\n")

    assert [line.partition(" ")[0] for line in await lines_of(session, "symbols", query="net")] == ["src/price.py:5:"]


@pytest.mark.process
async def test_a_question_that_runs_out_of_time_says_how_much_is_left_and_the_next_one_goes_on(
    session: Session,
) -> None:
    assert await error_of(session, "hurried") == (
        "timeout",
        "the project has 3 new or changed files, and the time was up after 0",
    )
    assert len(await lines_of(session, "symbols", query="net")) == 1


@pytest.mark.process
async def test_an_index_that_is_broken_is_made_anew(session: Session) -> None:
    before = await lines_of(session, "symbols", query="net")
    index = next(Path((await lines_of(session, "index_folder"))[0]).glob("*.sqlite"))
    for aside in index.parent.glob("*.sqlite-*"):
        aside.unlink()
    index.write_bytes(b"this is no database, but long enough to be looked at as one " * 99)

    assert await lines_of(session, "symbols", query="net") == before
    with sqlite3.connect(index) as connection:
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (3,)
    connection.close()
