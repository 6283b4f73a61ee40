"""What a language server tells of the Python files: read with `ast`."""

from __future__ import annotations

import ast
import re

from toolcrib.errors import ToolFailure

from .files import below
from .state import WORLD, Record

__all__ = [
    "lsp_apply_code_action",
    "lsp_document_symbols",
    "lsp_find_references",
    "lsp_get_code_actions",
    "lsp_get_diagnostics",
    "lsp_goto_definition",
    "lsp_hover",
    "lsp_rename_symbol",
    "lsp_workspace_symbols",
]


def _symbols(path: str) -> list[Record]:
    tree = ast.parse(WORLD.text(path))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [{"name": node.name, "file": path, "line": node.lineno} for node in nodes]


def _all() -> list[Record]:
    return [symbol for path in below("/") if path.endswith(".py") for symbol in _symbols(path)]


def _definition(symbol: str) -> Record:
    for known in _all():
        if known["name"] == symbol:
            return known
    raise ToolFailure("tool_error", f"There is no symbol '{symbol}'")


def lsp_goto_definition(symbol: str) -> Record:
    return _definition(symbol)


def lsp_find_references(symbol: str) -> Record:
    word = re.compile(rf"\b{re.escape(symbol)}\b")
    lines = [(path, number, line) for path in below("/") for number, line in _lines(path)]
    return {"references": [{"file": path, "line": number} for path, number, line in lines if word.search(line)]}


def _lines(path: str) -> list[tuple[int, str]]:
    return list(enumerate(WORLD.files[path].splitlines(), start=1)) if path.endswith(".py") else []


def lsp_hover(symbol: str) -> Record:
    place = _definition(symbol)
    return {"symbol": symbol, "line": WORLD.text(place["file"]).splitlines()[place["line"] - 1]}


def lsp_get_diagnostics(file_path: str) -> Record:
    try:
        ast.parse(WORLD.text(file_path))
    except SyntaxError as error:
        return {"diagnostics": [{"line": error.lineno, "message": error.msg}]}
    return {"diagnostics": []}


def lsp_document_symbols(file_path: str) -> Record:
    return {"symbols": _symbols(file_path)}


def lsp_workspace_symbols(query: str) -> Record:
    return {"symbols": [symbol for symbol in _all() if query.lower() in symbol["name"].lower()]}


def lsp_rename_symbol(symbol: str, new_name: str, apply: bool = False) -> Record:
    _definition(symbol)
    places = lsp_find_references(symbol)["references"]
    for path in {place["file"] for place in places} if apply else ():
        WORLD.write(path, re.sub(rf"\b{re.escape(symbol)}\b", new_name, WORLD.text(path)))
    return {"changes": places, "applied": apply}


def lsp_get_code_actions(file_path: str, line: int) -> Record:
    text = WORLD.text(file_path).splitlines()[line - 1]
    actions = ["Remove trailing spaces"] if text != text.rstrip() else []
    return {"actions": [*actions, "Delete line"]}


def lsp_apply_code_action(file_path: str, line: int, action_title: str) -> Record:
    if action_title not in lsp_get_code_actions(file_path, line)["actions"]:
        raise ToolFailure("tool_error", f"There is no action '{action_title}' at line {line}")
    lines = WORLD.text(file_path).splitlines()
    lines[line - 1 : line] = [] if action_title == "Delete line" else [lines[line - 1].rstrip()]
    WORLD.write(file_path, "\n".join(lines) + "\n")
    return {"applied": action_title}
