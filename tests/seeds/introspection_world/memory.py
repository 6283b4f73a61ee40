"""Memories under tags, and templates."""

from __future__ import annotations

import re

from toolcrib.errors import ToolFailure

from .state import WORLD, Record

__all__ = [
    "create_template",
    "get_template",
    "list_memory_tags",
    "list_templates",
    "retrieve_memories",
    "store_memory",
    "writeFileFromTemplate",
]

_VARIABLE = re.compile(r"{{(\w+)}}")


def store_memory(content: str, description: str, tags: list[str], **given: object) -> Record:
    memory: Record = {
        "id": WORLD.number("memory"),
        "content": content,
        "description": description,
        "tags": tags,
        **given,
    }
    WORLD.memories.append(memory)
    return {"stored": memory["id"], "tags": tags}


def retrieve_memories(tags: list[str], limit: int = 5) -> Record:
    return {"memories": [memory for memory in WORLD.memories if set(tags) & set(memory["tags"])][:limit]}


def list_memory_tags() -> Record:
    return {"tags": sorted({tag for memory in WORLD.memories for tag in memory["tags"]})}


def _template(name: str) -> str:
    if name not in WORLD.templates:
        raise ToolFailure(
            "tool_error", f"There is no template '{name}'; there are: {', '.join(WORLD.templates) or 'none'}"
        )
    return WORLD.templates[name]


def writeFileFromTemplate(template: str, output_path: str, variables: dict[str, str]) -> Record:
    missing = [name for name in _VARIABLE.findall(_template(template)) if name not in variables]
    if missing:
        raise ToolFailure("tool_error", f"The template needs {', '.join(missing)}")
    text = _VARIABLE.sub(lambda hit: str(variables[hit[1]]), _template(template))
    return {"path": WORLD.write(output_path, text)}


def list_templates() -> Record:
    return {"templates": list(WORLD.templates)}


def get_template(name: str) -> Record:
    return {"name": name, "content": _template(name), "variables": sorted(set(_VARIABLE.findall(_template(name))))}


def create_template(name: str, content: str) -> Record:
    if content.count("{{") != len(_VARIABLE.findall(content)):
        raise ToolFailure("tool_error", "A variable is written {{name}}")
    WORLD.templates[name] = content
    return {"created": name, "variables": sorted(set(_VARIABLE.findall(content)))}
