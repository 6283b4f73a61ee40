"""The tools of selection.yaml: a memory, documents and a computer that say something, and others that do nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.plugin import ToolFailure
from toolcrib.sources.yaml.run_code import ToolContext

_MEMORIES: Final = ("prefers tea to coffee", "lives in Graz", "writes reports in German")
_DOCUMENTS: Final = {f"note-{number}.md": f"Note {number} about herons. {'x' * 300}" for number in range(20)}


class MemoryRecallTool:
    """The document's own example of a capability: a class with `execute`."""

    async def execute(self, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        words = params["query"].lower().split()
        found = [text for text in _MEMORIES if params["mode"] == "full" or any(word in text.lower() for word in words)]
        return {"success": True, "memories": found[: params["limit"]], "user": context.user_id}


class AskTool:
    """Asks whoever the session has for it, one question after the other."""

    async def execute(self, params: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        answers = {question: await context.call.clarify(question) for question in params["questions"]}
        return {"success": True, "title": params["title"], "answers": answers}


def knowledge_search(query: str, limit: int, file_type: str = "") -> dict[str, Any]:
    hits = [
        {"file": name, "text": text}
        for name, text in _DOCUMENTS.items()
        if query.lower() in text.lower() and name.endswith(file_type)
    ]
    return {"success": True, "results": hits[:limit], "_compression_hint": "search"}


def nodes(action: str, command: list[str] | None = None, **given: Any) -> dict[str, Any]:
    """Run `seq N`, the only program that there is."""
    if action != "run":
        return {"success": True}
    program, *words = command or [""]
    if program != "seq":
        raise ToolFailure("tool_error", f"{program}: it did not work")
    output = "\n".join(f"line {number}" for number in range(int(words[0])))
    hint = "skip" if given.get("output_handling") == "full" else "normal"
    return {"success": True, "output": output, "_compression_hint": hint}


def succeed(**_: Any) -> dict[str, Any]:
    return {"success": True}
