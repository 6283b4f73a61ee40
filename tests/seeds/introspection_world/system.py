"""A shell of four commands, terminals, arithmetic, a notebook of assignments."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.errors import ToolFailure

from .files import below
from .state import WORLD, Record, found

__all__ = [
    "add",
    "calculate",
    "dismiss_stream",
    "divide",
    "get_environment",
    "multiply",
    "notebook_backends",
    "notebook_create",
    "notebook_execute",
    "notebook_list",
    "notebook_reset",
    "notebook_variables",
    "run",
    "session_describe",
    "shell_close",
    "shell_control",
    "shell_input",
    "shell_list",
    "shell_read",
    "shell_spawn",
    "subtract",
    "viewImage",
]

_ENVIRONMENT = {"os": "linux", "shell": "sh", "cwd": "/"}
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
}


def run(command: str, args: list[str] | None = None) -> Record:
    words = [*command.split(), *(args or [])]
    program, rest = (words[0], words[1:]) if words else ("", [])
    out = {"echo": " ".join(rest), "ls": "\n".join(below("/")), "pwd": "/"}.get(program)
    if program == "cat":
        out = "".join(WORLD.text(name) for name in rest)
    if out is None:
        return {"returncode": 127, "stdout": "", "stderr": f"{program}: command not found"}
    return {"returncode": 0, "stdout": out, "stderr": ""}


def get_environment(aspect: str = "") -> Record:
    if aspect and aspect not in _ENVIRONMENT:
        raise ToolFailure("tool_error", f"There is no aspect '{aspect}'; there are: {', '.join(_ENVIRONMENT)}")
    return {aspect: _ENVIRONMENT[aspect]} if aspect else dict(_ENVIRONMENT)


def shell_spawn(command: str, session_name: str = "", rows: int = 24, cols: int = 80) -> Record:
    session_id = session_name or WORLD.number("shell")
    WORLD.terminals[session_id] = {"command": command, "screen": [run(command)["stdout"]], "size": [rows, cols]}
    return {"session_id": session_id}


def shell_input(session_id: str, input: str) -> Record:
    found(WORLD.terminals, session_id, "terminal")["screen"].append(run(input)["stdout"])
    return {"session_id": session_id, "typed": input}


def shell_read(session_id: str, timeout: float = 1.0) -> Record:
    screen = found(WORLD.terminals, session_id, "terminal")["screen"]
    return {"output": "\n".join(screen), "waited_at_most": timeout}


def shell_control(session_id: str, key: str) -> Record:
    terminal = found(WORLD.terminals, session_id, "terminal")
    if key == "c-l":
        terminal["screen"] = []
    return {"session_id": session_id, "pressed": key}


def shell_close(session_id: str) -> Record:
    found(WORLD.terminals, session_id, "terminal")
    del WORLD.terminals[session_id]
    return {"closed": session_id}


def shell_list() -> Record:
    return {"sessions": [{"session_id": name, "command": one["command"]} for name, one in WORLD.terminals.items()]}


def add(a: float, b: float) -> Record:
    return {"result": a + b}


def subtract(a: float, b: float) -> Record:
    return {"result": a - b}


def multiply(a: float, b: float) -> Record:
    return {"result": a * b}


def divide(a: float, b: float) -> Record:
    if b == 0:
        raise ToolFailure("tool_error", "Division by zero")
    return {"result": a / b}


def calculate(expression: str) -> Record:
    return {"result": _value(expression, {})}


def _value(text: str, names: Mapping[str, Any]) -> Any:
    try:
        return _evaluated(ast.parse(text, mode="eval").body, names)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ToolFailure("tool_error", f"{text!r} has no value: {error}") from error


def _evaluated(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluated(node.left, names), _evaluated(node.right, names))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluated(node.operand, names)
    raise ToolFailure("tool_error", f"{ast.unparse(node)} is not understood")


def _variables() -> dict[str, Any]:
    return WORLD.notebooks[WORLD.notebook]["variables"]


def notebook_execute(code: str) -> Record:
    last: Any = None
    for line in filter(None, map(str.strip, code.splitlines())):
        name, is_set, text = line.partition(" = ")
        last = _value(text if is_set else line, _variables())
        if is_set:
            _variables()[name] = last
    return {"output": last}


def notebook_create(name: str, gpu: bool = False) -> Record:
    WORLD.notebooks[name] = {"variables": {}, "gpu": gpu}
    WORLD.notebook = name
    return {"created": name, "gpu": gpu}


def notebook_variables() -> Record:
    return {"variables": dict(_variables())}


def notebook_reset() -> Record:
    count = len(_variables())
    _variables().clear()
    return {"forgotten": count}


def notebook_list() -> Record:
    return {"notebooks": list(WORLD.notebooks), "current": WORLD.notebook}


def notebook_backends() -> Record:
    return {"backends": ["local"]}


def viewImage(path: str) -> Record:
    return {"path": path, "bytes": len(WORLD.text(path))}


def session_describe(description: str) -> Record:
    before, WORLD.described = WORLD.described, description
    return {"description": description, "before": before}


def dismiss_stream(stream_id: str) -> Record:
    was_open = stream_id in WORLD.streams
    WORLD.streams.discard(stream_id)
    return {"dismissed": was_open}
