"""The world behind selection.yaml: one user's memory, documents, computer and plans, in memory, one world a session.

Every function is a tool of the catalog. What it does lasts: a task that was scheduled is in the list afterwards.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolcrib.plugin import ToolFailure
from toolcrib.sources.yaml.run_code import ToolContext

__all__ = [
    "CALLS",
    "AskTool",
    "MemoryRecallTool",
    "World",
    "api_calling",
    "browser",
    "code_execution",
    "knowledge_search",
    "nodes",
    "observe_screen",
    "open_system_preferences",
    "plan",
    "scheduled_task",
    "world_of",
]

_MEMORIES: Final = ("prefers tea to coffee", "lives in Graz", "writes reports in German")
_PAGES: Final = {"https://example.com/herons": "Herons stand still for a long time."}
_APIS: Final = {"weather": {"/today": {"sky": "clear", "degrees": 7}}}
_OPERATORS: Final[Mapping[type[ast.AST], Callable[[float, float], float]]] = {
    ast.Add: float.__add__,
    ast.Sub: float.__sub__,
    ast.Mult: float.__mul__,
    ast.Div: float.__truediv__,
}

CALLS: Final[list[tuple[str, ToolContext]]] = []
"""Who was called with which context, for tests that look; cleared by them."""


class World:
    """What one session has done."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.documents = {f"note-{number}.md": f"Note {number} about herons. {'x' * 300}" for number in range(20)}
        self.files = {"readme.txt": "hello"}
        self.todos: dict[str, dict[str, str]] = {}
        self.scheduled: dict[str, dict[str, Any]] = {}
        self.settings_opened: list[str] = []
        self.page = ""


_WORLDS: Final[dict[str, World]] = {}


def world_of(session: str) -> World:
    """Return the world of one session; it is made when it is first asked for."""
    return _WORLDS.setdefault(session, World())


class MemoryRecallTool:
    """The document's own example of a capability: a class with `execute`."""

    async def execute(self, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        CALLS.append(("memory_recall", context))
        words = params["query"].lower().split()
        found = [text for text in _MEMORIES if params["mode"] == "full" or any(word in text.lower() for word in words)]
        return {"success": True, "memories": found[: params["limit"]], "user": context.user_id}


class AskTool:
    """Asks whoever the session has for it, one question after the other."""

    async def execute(self, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        answers = {question: await context.call.clarify(question) for question in params["questions"]}
        return {"success": True, "title": params["title"], "answers": answers}


def api_calling(context: ToolContext, api_name: str = "", path: str = "/", method: str = "GET", **_: Any) -> Any:
    CALLS.append(("api_calling", context))
    api = _APIS.get(api_name)
    if api is None:
        return {"success": False, "error": f"there is no API {api_name!r}", "status": 401, "error_type": "auth_expired"}
    if path not in api:
        raise ToolFailure("tool_error", f"{method} {path}: not found", details={"status": 404})
    return {"success": True, "data": api[path]}


def knowledge_search(context: ToolContext, query: str, limit: int, file_type: str = "") -> dict[str, Any]:
    documents = world_of(context.session_id).documents
    hits = [
        {"file": name, "text": text}
        for name, text in documents.items()
        if query.lower() in text.lower() and name.endswith(file_type)
    ]
    return {"success": True, "results": hits[:limit], "_compression_hint": "search"}


def plan(context: ToolContext, action: str, **given: Any) -> dict[str, Any]:
    world = world_of(context.session_id)
    if action in ("create", "rewrite"):
        titles = given.get("todos", [])
        world.todos = {f"t{n}": {"title": title, "status": "pending"} for n, title in enumerate(titles, start=1)}
    else:
        todo = world.todos.get(given.get("todo_id", ""))
        if todo is None:
            raise ToolFailure("tool_error", "there is no such todo", hint=f"there are {', '.join(world.todos)}")
        todo |= {key: given[key] for key in ("status", "result") if key in given}
    return {"success": True, "todos": world.todos}


def nodes(context: ToolContext, action: str, command: list[str] | None = None, **given: Any) -> dict[str, Any]:
    world = world_of(context.session_id)
    if action == "run":
        output = _run(world, command or [])
        hint = "skip" if given.get("output_handling") == "full" else "normal"
        return {"success": True, "output": output, "_compression_hint": hint}
    if action == "which":
        return {"success": True, "path": f"/bin/{(command or [''])[0]}"}
    return {"success": True, "node": given.get("node"), "files": sorted(world.files)}


def _run(world: World, command: list[str]) -> str:
    match command:
        case ["cat", name] if name in world.files:
            return world.files[name]
        case ["write", name, text]:
            world.files[name] = text
            return ""
        case ["seq", last]:
            return "\n".join(f"line {number}" for number in range(int(last)))
        case _:
            raise ToolFailure("tool_error", f"{' '.join(command)}: it did not work")


def observe_screen(context: ToolContext, app: str = "", **_: Any) -> dict[str, Any]:
    return {"success": True, "app": app or "Desktop", "text": world_of(context.session_id).page}


def open_system_preferences(context: ToolContext, permission: str) -> dict[str, Any]:
    opened = world_of(context.session_id).settings_opened
    opened.append(permission)
    return {"success": True, "opened": list(opened)}


def scheduled_task(context: ToolContext, operation: str, task_id: str = "", **given: Any) -> dict[str, Any]:
    world = world_of(context.session_id)
    if operation == "create":
        task_id = f"s{next(world.numbers)}"
        world.scheduled[task_id] = given
    elif operation == "cancel":
        world.scheduled.pop(task_id, None)
    elif operation == "update" and task_id in world.scheduled:
        world.scheduled[task_id] |= given
    return {"success": True, "tasks": world.scheduled}


def browser(context: ToolContext, action: str, url: str = "", **_: Any) -> dict[str, Any]:
    world = world_of(context.session_id)
    if action == "open":
        if url not in _PAGES:
            raise ToolFailure("timeout", f"{url} did not answer")
        world.page = _PAGES[url]
    return {"success": True, "text": world.page}


def code_execution(expression: str = "1 + 1") -> dict[str, Any]:
    return {"success": True, "value": _value(ast.parse(expression, mode="eval").body)}


def _value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ToolFailure("invalid_arguments", "only numbers and + - * / can be computed")
