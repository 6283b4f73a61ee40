"""The language server tools with real servers: pyright, ruff and jedi, each in the sandbox, on one small project."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rig import PATIENCE, eventually
from rig.sandbox import needs_sandbox
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.crib.session import Session
from unit.toolcrib_tools.telling import text_of

from .conftest import PROGRAMS

pytestmark = [needs_sandbox, pytest.mark.process]

COMMANDS: Mapping[str, Sequence[str]] = {
    "pyright": (str(PROGRAMS / "pyright-langserver"), "--stdio"),
    "ruff": (str(PROGRAMS / "ruff"), "server"),
    "jedi": (str(PROGRAMS / "jedi-language-server"),),
}
PRICE = '''\
"""Prices."""

TAX = 0.19


def gross(price: float) -> float:
    """What a customer pays."""
    return round(price * (1 + TAX), 2)
'''
CART = """\
import os
from price import gross


class Cart:
    def total(self, items: list[float]) -> float:
        label = "😀😀"; return sum(gross(one) for one in items)


Cart().total(["a"])
"""
TOLD = "read_file shows what is around a line]"


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "price.py").write_text(PRICE)
    (folder / "cart.py").write_text(CART)
    (folder / "other.py").write_text("def gross_weight() -> None: ...\n")
    (folder / "ruff.toml").write_text('[lint]\nselect = ["F"]\n')
    return folder


def plain(folder: Path) -> str:
    """Leave the emoji out: jedi-language-server counts characters and not UTF-16, whatever was agreed."""
    text = CART.replace("😀😀", "xx")
    (folder / "cart.py").write_text(text)
    return text


@asynccontextmanager
async def session_of(folder: Path, *names: str, mode: str = "autonomous", **more: Any) -> AsyncGenerator[Session]:
    servers = {name: {"command": list(COMMANDS[name]), "files": ["*.py"], "seconds": 120, **more} for name in names}
    settings = bare().with_values(
        builtins=True,
        workspace=WorkspaceSpec(roots=(folder,)),
        tools={"lsp": {"servers": servers}},
    )
    async with (
        Toolcrib(settings, memory=True) as crib,
        crib.session(profile="flat", mode=mode) as session,
    ):
        yield session


async def changed(session: Session, name: str, /, **arguments: Any) -> Any:
    result = await session.call(name, arguments)
    assert result.error is None, result.text
    return result.structured_content


async def refused(session: Session, name: str, /, **arguments: Any) -> tuple[str, str, str]:
    result = await session.call(name, arguments)
    assert result.error is not None, result.text
    return result.error.code, result.error.message, result.error.hint


# What is known of a symbol


@pytest.mark.parametrize("server", ["pyright", "jedi"])
async def test_a_name_leads_to_its_definition_its_uses_and_what_it_is(project: Path, server: str) -> None:
    label = "😀😀" if server == "pyright" else "xx"
    if server == "jedi":
        plain(project)
    async with session_of(project, server) as session:
        by_name = await text_of(session, "lsp_goto_definition", symbol="gross")
        by_line = await text_of(session, "lsp_goto_definition", symbol="gross", file_path="cart.py", line=7)
        by_column = await text_of(session, "lsp_goto_definition", file_path="cart.py", line=7, column=36)
        uses = await text_of(session, "lsp_find_references", symbol="gross")
        others = await text_of(session, "lsp_find_references", symbol="gross", include_declaration=False, max_results=1)
        what = await text_of(session, "lsp_hover", symbol="gross")

    assert by_name == by_line == by_column == "price.py:6:5: def gross(price: float) -> float:"
    assert uses.splitlines() == [
        "cart.py:2:19: from price import gross",
        f'cart.py:7:34: label = "{label}"; return sum(gross(one) for one in items)',
        "price.py:6:5: def gross(price: float) -> float:",
        f"[3 places in 2 files; {TOLD}",
    ]
    assert others.splitlines()[0] == "cart.py:2:19: from price import gross"
    assert others.splitlines()[1:] == [f"[2 places in 1 files; the first 1 are shown; {TOLD}"]
    assert what.startswith("price.py:6:\n")
    assert "gross(price: float) -> float" in what
    assert "What a customer pays." in what


@pytest.mark.parametrize("server", ["pyright", "jedi"])
async def test_symbols_are_listed_of_a_file_and_found_in_the_project(project: Path, server: str) -> None:
    async with session_of(project, server) as session:
        listed = await text_of(session, "lsp_document_symbols", file_path="cart.py")
        first = await text_of(session, "lsp_document_symbols", file_path="cart.py", max_results=1)
        found = await text_of(session, "lsp_workspace_symbols", query="gross")
        nothing = await text_of(session, "lsp_workspace_symbols", query="nowhere_at_all")

    assert {"5: [class] Cart", "  6: [method] total"} <= set(listed.splitlines())
    assert first.splitlines()[0] == listed.splitlines()[0]
    assert first.splitlines()[1].startswith("[the first 1 of ")
    assert {line.partition(" in ")[0] for line in found.splitlines()} == {
        "price.py:6: [function] gross",
        "other.py:1: [function] gross_weight",
    }
    assert nothing == "[no symbol like 'nowhere_at_all']"


async def test_a_name_in_a_class_and_one_that_stands_in_several_places_are_told_apart(project: Path) -> None:
    (project / "till.py").write_text("class Till:\n    def total(self) -> int:\n        return 1\n")
    async with session_of(project, "pyright") as session:
        both = await text_of(session, "lsp_goto_definition", symbol="total")
        one = await text_of(session, "lsp_goto_definition", symbol="Till.total")
        in_file = await text_of(session, "lsp_goto_definition", symbol="total", file_path="cart.py")
        unclear = await refused(session, "lsp_rename_symbol", symbol="total", new_name="sum_up")

    assert sorted(both.splitlines()[:2]) == [
        "cart.py:6:9: def total(self, items: list[float]) -> float:",
        "till.py:2:9: def total(self) -> int:",
    ]
    assert "the name is declared in several places: " in both.splitlines()[2]
    assert one == "till.py:2:9: def total(self) -> int:"
    assert in_file == "cart.py:6:9: def total(self, items: list[float]) -> float:"
    assert unclear[0] == "invalid_arguments"
    assert unclear[1].startswith("symbol: 'total' is declared in 2 places: ")
    assert unclear[2] == "say which one is meant with file_path, or with file_path and line"


async def test_what_is_defined_in_a_library_is_told_without_reading_it(project: Path) -> None:
    (project / "when.py").write_text("import json\n\njson.dumps(1)\n")
    async with session_of(project, "pyright") as session:
        place = await text_of(session, "lsp_goto_definition", symbol="dumps", file_path="when.py", line=3)

    assert place.startswith("…/")
    assert place.endswith(": (no text of the workspace)")
    assert "json/__init__.pyi:" in place


async def test_a_symbol_that_only_our_index_knows_is_resolved_by_it(project: Path) -> None:
    async with session_of(project, "ruff", "jedi") as session:
        answer = await text_of(session, "lsp_goto_definition", symbol="Cart.total")

    assert answer.splitlines()[0] == "cart.py:6:9: def total(self, items: list[float]) -> float:"


# What is wrong


async def test_findings_follow_the_file_and_what_it_imports(project: Path) -> None:
    async with session_of(project, "pyright") as session:
        before = await text_of(session, "lsp_get_diagnostics", file_path="cart.py")
        (project / "cart.py").write_text(CART.replace('["a"]', "[1.0]"))
        mended = await text_of(session, "lsp_get_diagnostics", file_path="cart.py")
        (project / "price.py").write_text(PRICE.replace("def gross", "def net"))
        broken = await text_of(session, "lsp_get_diagnostics", file_path="cart.py")

    assert before.splitlines()[0].startswith("cart.py:10:15: error [pyright reportArgumentType] Argument of type ")
    assert before.splitlines()[1].startswith("[1 errors, 0 warnings, 0 informations; asked: pyright; ")
    assert mended.startswith("[0 errors, ")
    assert broken.splitlines()[0].startswith("cart.py:2:19: error [pyright reportAttributeAccessIssue] ")


async def test_every_server_of_a_file_is_asked_and_the_least_severity_counts(project: Path) -> None:
    async with session_of(project, "pyright", "ruff") as session:
        every = await text_of(session, "lsp_get_diagnostics", file_path="cart.py")
        worst = await text_of(session, "lsp_get_diagnostics", file_path="cart.py", severity="error")
        first = await text_of(session, "lsp_get_diagnostics", file_path="cart.py", max_results=1)

    assert [line.partition("]")[0] for line in every.splitlines()[:-1]] == [
        "cart.py:1:8: warning [ruff F401",
        "cart.py:7:9: warning [ruff F841",
        "cart.py:10:15: error [pyright reportArgumentType",
    ]
    assert every.splitlines()[-1].startswith("[1 errors, 2 warnings, 0 informations; asked: pyright, ruff; ")
    assert [line.partition("]")[0] for line in worst.splitlines()[:-1]] == [
        "cart.py:10:15: error [pyright reportArgumentType"
    ]
    assert "the first 1 of 3 are shown" in first


async def test_get_diagnostics_asks_configured_servers_once_and_with_what_waits_for_review(project: Path) -> None:
    async with session_of(project, "pyright", "ruff", mode="review") as session:
        await text_of(session, "write_file", path="cart.py", content=CART.replace('["a"]', "[1.0, None]"))
        whole = await text_of(session, "get_diagnostics")

    assert [line.partition("]")[0] for line in whole.splitlines()[:-1]] == [
        "cart.py:1:8: warning [ruff F401",
        "cart.py:7:9: warning [ruff F841",
        "cart.py:10:20: error [pyright reportArgumentType",
    ]
    assert (project / "cart.py").read_text() == CART
    assert whole.splitlines()[-1].startswith(
        "[1 errors, 2 warnings, 0 informations in 4 files; asked: pyright, ruff, syntax; narrow"
    )


# Changes


@pytest.mark.parametrize("server", ["pyright", "jedi"])
async def test_a_rename_is_shown_made_in_every_file_and_undone_as_one(project: Path, server: str) -> None:
    cart = plain(project) if server == "jedi" else CART
    line = next(line for line in cart.splitlines() if "label" in line)
    async with session_of(project, server) as session:
        shown = await changed(session, "lsp_rename_symbol", symbol="gross", new_name="brutto")
        untouched = (project / "cart.py").read_text()
        made = await changed(session, "lsp_rename_symbol", symbol="gross", new_name="brutto", apply=True)
        after = (project / "cart.py").read_text(), (project / "price.py").read_text()
        again = await text_of(session, "lsp_goto_definition", symbol="brutto")
        await text_of(session, "undo_edit")

    assert (shown["applied"], made["applied"], made["undo"], made["pending"]) == (False, True, True, False)
    assert shown["diff"] == made["diff"]
    assert {one["path"]: one["lines"] for one in made["files"]} == {"cart.py": [2, 7], "price.py": [6]}
    assert f"-{line}\n+{line.replace('gross', 'brutto')}\n" in shown["diff"]
    assert untouched == cart
    assert after == (cart.replace("gross", "brutto"), PRICE.replace("gross", "brutto"))
    assert again == "price.py:6:5: def brutto(price: float) -> float:"
    assert ((project / "cart.py").read_text(), (project / "price.py").read_text()) == (cart, PRICE)


async def test_a_rename_in_review_waits_and_the_server_sees_what_waits(project: Path) -> None:
    async with session_of(project, "pyright", mode="review") as session:
        made = await changed(session, "lsp_rename_symbol", symbol="gross", new_name="brutto", apply=True)
        found = await text_of(session, "lsp_goto_definition", symbol="brutto", file_path="cart.py", line=7)
        wrong = await text_of(session, "lsp_get_diagnostics", file_path="cart.py")

    assert (made["applied"], made["pending"]) == (True, True)
    assert found == "price.py:6:5: def brutto(price: float) -> float:"
    assert wrong.splitlines()[0].startswith("cart.py:10:15: error [pyright reportArgumentType]")
    assert ((project / "cart.py").read_text(), (project / "price.py").read_text()) == (CART, PRICE)


async def test_a_quick_fix_is_offered_and_applied_by_its_title(project: Path) -> None:
    async with session_of(project, "ruff") as session:
        offered = await text_of(session, "lsp_get_code_actions", file_path="cart.py", start_line=1)
        of_kind = await text_of(
            session, "lsp_get_code_actions", file_path="cart.py", start_line=1, kind="source.fixAll"
        )
        title = "Ruff (F401): Remove unused import: `os`"
        made = await changed(session, "lsp_apply_code_action", file_path="cart.py", start_line=1, action_title=title)
        gone = await refused(session, "lsp_apply_code_action", file_path="cart.py", start_line=1, action_title=title)

    assert f"{title} [quickfix; preferred; ruff]" in offered.splitlines()
    assert [line.partition(" [")[2].partition(";")[0] for line in of_kind.splitlines()[:-1]] in (
        ["source.fixAll.ruff"],
        [],
    )
    assert made["files"] == [{"path": "cart.py", "edits": 1, "lines": [1]}]
    assert (project / "cart.py").read_text() == CART.removeprefix("import os\n")
    assert gone[:2] == ("not_found", f"no action {title!r} is offered there")


# What cannot be


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "message"),
    [
        ("lsp_goto_definition", {}, "invalid_arguments", "say which place is meant"),
        (
            "lsp_goto_definition",
            {"file_path": "cart.py", "line": 7},
            "invalid_arguments",
            "say which place is meant",
        ),
        ("lsp_goto_definition", {"symbol": "x", "line": 7}, "invalid_arguments", "file_path: say which file"),
        (
            "lsp_hover",
            {"symbol": "x", "file_path": "cart.py", "column": 7},
            "invalid_arguments",
            "line: say which line",
        ),
        ("lsp_hover", {"symbol": "Cart."}, "invalid_arguments", "symbol: 'Cart.' is not a name"),
        (
            "lsp_hover",
            {"file_path": "cart.py", "line": 99, "column": 1},
            "invalid_arguments",
            "line: 'cart.py' has 11 lines, not 99",
        ),
        (
            "lsp_hover",
            {"file_path": "cart.py", "line": 1, "column": 99},
            "invalid_arguments",
            "column: line 1 of 'cart.py' has 9 characters",
        ),
        (
            "lsp_hover",
            {"file_path": "cart.py", "line": 1, "symbol": "gross"},
            "not_found",
            "'gross' does not stand in line 1 of 'cart.py'",
        ),
        ("lsp_hover", {"symbol": "nowhere_at_all"}, "not_found", "no symbol 'nowhere_at_all' is declared in the"),
        ("lsp_get_diagnostics", {"file_path": "card.py"}, "not_found", "there is no 'card.py'"),
        ("lsp_get_diagnostics", {"file_path": "../x.py"}, "denied", ""),
        ("lsp_document_symbols", {"file_path": "ruff.toml"}, "tool_error", "no language server is configured for"),
        ("lsp_rename_symbol", {"symbol": "gross", "new_name": "1 2"}, "tool_error", ""),
        (
            "lsp_get_code_actions",
            {"file_path": "cart.py", "start_line": 99},
            "invalid_arguments",
            "start_line, end_line: 'cart.py' has 11 lines",
        ),
        (
            "lsp_get_code_actions",
            {"file_path": "cart.py", "start_line": 3, "end_line": 2},
            "invalid_arguments",
            "the end of the range comes before its start",
        ),
    ],
)
async def test_what_means_nothing_is_refused_with_the_argument(
    project: Path, tool: str, arguments: dict[str, Any], code: str, message: str
) -> None:
    async with session_of(project, "jedi") as session:
        failure = await refused(session, tool, **arguments)

    assert failure[0] == code
    assert failure[1].startswith(message)


async def test_a_server_that_cannot_tell_says_so(project: Path) -> None:
    async with session_of(project, "ruff") as session:
        failure = await refused(session, "lsp_goto_definition", symbol="gross")

    assert failure[:2] == ("tool_error", "no language server of this file (ruff) answers textDocument/definition")


async def test_a_server_reads_the_workspace_in_the_sandbox_and_ends_with_its_session(project: Path) -> None:
    alive = f"{project}"

    def running() -> list[str]:
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes().decode() if entry.name.isdigit() else ""
            except OSError:
                continue
            if "jedi-language-server" in line and alive in line:
                found.append(line)
        return found

    async with session_of(project, "jedi") as session:
        await text_of(session, "lsp_document_symbols", file_path="cart.py")
        lines = running()

    assert lines
    await eventually(lambda: not running(), within=PATIENCE)
    assert sorted(path.name for path in project.iterdir()) == ["cart.py", "other.py", "price.py", "ruff.toml"]
