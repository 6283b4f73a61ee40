"""Code found by its shape: pieces of code with holes in every language, queries, and what is neither."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.core.call_guards import Signal
from toolcrib.crib.session import Session
from toolcrib.plugin import Context, ToolFailure
from toolcrib_tools import code, files
from toolcrib_tools.code import ast_search

pytestmark = pytest.mark.process

PYTHON = """\
open("a", mode="r")
x == x
x == y
open(
    b,  # what
)
def f(a, b=1):
    return open
def g() -> int:
    return None
# open(c)
"""


@pytest.fixture
async def session(folder: Path) -> AsyncGenerator[Session]:
    async with Toolcrib(memory=True) as crib:
        crib.add(code, files)
        yield crib.session(profile="flat", mode="autonomous", workspace=folder)


async def told(session: Session, **arguments: Any) -> list[str]:
    result = await session.call("ast_search", arguments)
    assert result.error is None, result.text
    return result.text.splitlines()


async def error_of(session: Session, **arguments: Any) -> str:
    result = await session.call("ast_search", arguments)
    assert result.error is not None, result.text
    assert result.error.code == "invalid_arguments"
    return result.error.message


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("open($P, $$$)", ['1:open("a", mode="r")', 'P = "a"', "4:open(", "5:    b,  # what", "6:)", "P = b"]),
        ("open($P, mode=$M)", ['1:open("a", mode="r")', 'P = "a"', 'M = "r"']),
        ("open(b)", ["4:open(", "5:    b,  # what", "6:)"]),
        ("$A == $A", ["2:x == x", "A = x"]),
        ("$A == $_", ["2:x == x", "A = x", "3:x == y", "A = x"]),
        ("def $F($$$ARGS): $$$", ["7:def f(a, b=1):", "8:    return open", "F = f", "ARGS = a, b=1"]),
        ("def g($$$A) -> $R: $$$", ["9:def g() -> int:", "10:    return None", "A = ", "R = int"]),
        ("return None", ["10:    return None"]),
        ("(return_statement (identifier) @what) @all", ["8:    return open", "what = open"]),
        ('((identifier) @it (#match? @it "^[fg]$"))', ["7:def f(a, b=1):", "9:def g() -> int:"]),
        ('((identifier) @it (#any-of? @it "f" "y"))', ["3:x == y", "7:def f(a, b=1):"]),
        ("((comparison_operator (identifier) @l (identifier) @r) (#eq? @l @r))", ["2:x == x", "r = x"]),
        ("((comparison_operator (identifier) @l (identifier) @r) (#not-eq? @l @r))", ["3:x == y", "r = y"]),
    ],
)
async def test_code_is_found_by_its_shape(session: Session, folder: Path, pattern: str, found: list[str]) -> None:
    (folder / "a.py").write_text(PYTHON)

    lines = await told(session, pattern=pattern, language="python")

    assert [line.removeprefix("a.py:").removeprefix("  ") if line[0] == " " else line[5:] for line in lines] == found


@pytest.mark.parametrize(
    ("path", "source", "pattern"),
    [
        ("a.js", "if (a.b===a.b) { x() }", "if ($A === $A) { $$$ }"),
        ("a.ts", "function f(a: number): string { return '' }", "function $F($$$A): $R { $$$ }"),
        ("a.tsx", "const A = () => <b>{x}</b>", "<b>$$$</b>"),
        ("a.go", "package p\nfunc m() { fmt.Println(1, 2) }", "fmt.Println($$$)"),
        ("a.go", "package p\nfunc m() { if err != nil { return err } }", "if err != nil { return $E }"),
        ("a.go", "package p\nfunc m(a int) int { return 1 }", "func $F($$$) $R { $$$ }"),
        ("a.rs", "fn f() { let a = b().unwrap(); }", "$X.unwrap()"),
        ("A.java", "class A { void m() { System.out.println(1); } }", "System.out.println($X)"),
        ("A.java", "class A { int m() { return 1; } }", "int $M() { $$$ }"),
        ("a.c", "void f() { strcpy(a, b); }", "strcpy($A, $B)"),
        ("a.cpp", "void f() { delete p; }", "delete $P;"),
        ("a.rb", "puts 1", "puts $X"),
        ("a.sh", "rm -rf /x\n", "rm -rf $X"),
        ("a.json", '{"a": {"b": 1}}', '(pair key: (string (string_content) @k (#eq? @k "b")))'),
    ],
)
async def test_every_language_is_searched_and_the_file_says_which_it_is(
    session: Session, folder: Path, path: str, source: str, pattern: str
) -> None:
    (folder / path).write_text(source)

    assert (await told(session, pattern=pattern, path=path))[0].startswith(f"{path}:")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("$X", "this pattern fits everything"),
        ("$$$", "this pattern fits everything"),
        ("def (", "this is not a single piece of code of this language: 'def ('"),
        ("a = 1\nb = 2", "this is not a single piece of code of this language: 'a = 1\\nb = 2'"),
        ("(nope) @x", "this is not a query: Invalid node type at row 0, column 1: nope"),
        ('((identifier) @x (#foo? @x "a"))', "there is no predicate #foo?"),
        ("((identifier) @x (#set! a b))", "there is no predicate #set!"),
        (
            '((identifier) @x (#match? @x "(a"))',
            "the pattern is not a regular expression that is known here: missing ): (a",
        ),
        ("((identifier) @x (#match? @x))", "#match? takes a capture and what to compare it with"),
    ],
)
async def test_what_is_neither_code_nor_a_query_is_refused(
    session: Session, folder: Path, pattern: str, reason: str
) -> None:
    (folder / "a.py").write_text(PYTHON)

    assert await error_of(session, pattern=pattern, language="python") == reason


async def test_a_search_needs_a_language_that_there_is(session: Session, folder: Path) -> None:
    assert await error_of(session, pattern="f()") == "say in which language to search"
    assert await error_of(session, pattern="f()", language="cobol") == "there is no language 'cobol'"


async def test_a_search_can_be_narrowed_and_shows_what_is_around(session: Session, folder: Path, engine: str) -> None:
    (folder / "src").mkdir()
    (folder / ".gitignore").write_text("made.py\n")
    for name in ("src/a.py", "src/a_test.py", "b.py", "made.py"):
        (folder / name).write_text("one = 1\nopen(one)\ntwo = 2\n")
    (folder / "c.js").write_text("open(one)\n")

    every = await told(session, pattern="open($_)", language="py")
    some = await told(session, pattern="open($_)", language="py", path="src", file_pattern="*_test.py", context_lines=1)
    first = await told(session, pattern="open($_)", language="py", max_results=1)
    none = await told(session, pattern="open($A, $B)", language="py", path="src")

    assert every == ["b.py:2:open(one)", "src/a.py:2:open(one)", "src/a_test.py:2:open(one)"]
    assert some == ["src/a_test.py-1-one = 1", "src/a_test.py:2:open(one)", "src/a_test.py-3-two = 2"]
    assert first == ["b.py:2:open(one)", "[1 matches are shown, there are more: narrow it with path or file_pattern]"]
    assert none == ["[nothing in 'src' has the shape 'open($A, $B)'; 2 files were parsed]"]


async def test_a_long_match_and_a_long_answer_are_cut_and_said_to_be(ctx: Context, folder: Path) -> None:
    (folder / "a.py").write_text("def f():\n" + "    g()\n" * 40 + "def h(): pass\n" * 4_000)

    answer = (await ast_search("def $F(): $$$", ctx, language="python", max_results=500)).splitlines()

    assert answer[12] == "  … to line 41"
    assert len("\n".join(answer).encode()) <= ctx.result_bytes
    assert answer[-1].endswith("there are more: narrow it with path or file_pattern]")


@pytest.mark.long
async def test_a_pattern_that_fits_in_too_many_ways_is_given_up(session: Session, folder: Path) -> None:
    (folder / "a.py").write_text(f"f({', '.join(['a'] * 400)})\n")

    result = await session.call("ast_search", {"pattern": "f($$$A, $X, $$$B, $Y, $$$C, b, $$$D)", "language": "python"})

    assert result.error is not None
    assert (result.error.code, result.error.message) == ("too_large", "the pattern fits in too many ways")


async def test_what_waits_for_review_is_searched(session: Session, folder: Path) -> None:
    async with Toolcrib(memory=True) as crib:
        crib.add(code, files)
        review = crib.session(profile="flat", mode="review", workspace=folder)
        await review.call("write_file", {"path": "new.py", "content": "open(one)\n"})

        assert await told(review, pattern="open($X)", language="python") == ["new.py:1:open(one)", "  X = one"]
    assert not (folder / "new.py").exists()


async def test_a_search_that_nobody_waits_for_ends(ctx: Context, folder: Path) -> None:
    (folder / "a.py").write_text(PYTHON)
    signal = Signal()
    signal.abort("nobody waits")
    ended = Context(call_id="c", session_key="s", principal="p", workspace=ctx.workspace, signal=signal)

    with pytest.raises(ToolFailure, match="the search took too long"):
        await ast_search("open($X)", ended, language="python")
