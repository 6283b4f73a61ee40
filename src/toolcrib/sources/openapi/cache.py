"""Cache of converted descriptions on disk: a large one is read again in a tenth of the time.

One file a configured API, mode 0600 in a folder of mode 0700, with a hash of the description and of every other input
of the conversion. A file that is unreadable, broken or of another version counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ...core.events import Problem
from ...core.json import dumps, loads
from ...core.tool import Annotations, Guidance, Tool
from ...system.private_files import replace_private
from .convert import Api
from .description import mapping
from .request import Operation

__all__ = ["ApiCache"]

_FORMAT: Final = f"1 {version('toolcrib')}"


class ApiCache:
    """The file of one API. Blocking: use it from a thread. `folder` None keeps nothing."""

    def __init__(self, folder: Path | None, key: str, source: str) -> None:
        """`key` names the configuration; `source` is put into the tools."""
        self._path = None if folder is None else folder / f"openapi-{key}.json"
        self._source = source

    def read(self) -> tuple[str, Api] | None:
        """Return the hash of the converted description, and the result; None if missing."""
        if self._path is None:
            return None
        try:
            kept = mapping(loads(self._path.read_bytes()))
            return (str(kept["digest"]), self._api(kept)) if kept.get("format") == _FORMAT else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, digest: str, api: Api) -> None:
        """Keep `api`; raises `OSError` when the folder cannot be written."""
        if self._path is None:
            return
        data = dumps(
            {
                "format": _FORMAT,
                "digest": digest,
                "tools": [_entry(tool, api.operations[tool.local_name]) for tool in api.tools],
                "problems": [asdict(problem) for problem in api.problems],
                "title": api.title,
                "description": api.description,
                "servers": api.servers,
                "schemes": api.schemes,
                "guarded": api.is_guarded,
            }
        )
        replace_private(self._path, data)

    def _api(self, kept: Mapping[str, Any]) -> Api:
        entries: list[Mapping[str, Any]] = kept["tools"]
        return Api(
            tools=tuple(self._tool(entry) for entry in entries),
            operations={entry["name"]: Operation.from_json(entry["operation"]) for entry in entries},
            problems=tuple(Problem(**one) for one in kept["problems"]),
            title=kept["title"],
            description=kept["description"],
            servers=tuple(kept["servers"]),
            schemes=kept["schemes"],
            is_guarded=bool(kept["guarded"]),
        )

    def _tool(self, entry: Mapping[str, Any]) -> Tool:
        return Tool(
            name=entry["name"],
            local_name=entry["name"],
            source=self._source,
            title=entry["title"],
            description=entry["description"],
            input_schema=entry["inputSchema"],
            annotations=Annotations(**entry["annotations"]),
            category=entry["category"],
            tags=tuple(entry["tags"]),
            guidance=Guidance(examples=tuple(entry["examples"])),
            origin="openapi",
        )


def _entry(tool: Tool, operation: Operation) -> dict[str, Any]:
    return {
        "name": tool.local_name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": {key: value for key, value in asdict(tool.annotations).items() if key != "icons"},
        "category": tool.category,
        "tags": tool.tags,
        "examples": list(tool.guidance.examples),
        "operation": operation.to_json(),
    }
