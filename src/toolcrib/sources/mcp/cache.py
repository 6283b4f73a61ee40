"""The last good list of a server, on disk, so that a catalog is known before any server answers.

One file a configuration, named by a hash of it, mode 0600 in a folder of mode 0700. A file that cannot be read, that
another version wrote or that is broken counts as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from ...core.events import Problem
from ...core.json import dumps, loads
from ...core.server_features import ServerFeatures
from ...core.tool import Annotations, Tool
from ...mcp.client.handshake import Hint
from ...mcp.client.spec import ServerSpec
from ...mcp.jsonrpc import mapping
from ...system.private_files import replace_private
from ..source import Listing

__all__ = ["Cached", "ListingCache"]

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """Cached listing of an earlier run."""

    listing: Listing
    era: Hint


class ListingCache:
    """The file of one server. Blocking: use it from a thread. `folder` None keeps nothing."""

    def __init__(self, folder: Path | None, spec: ServerSpec) -> None:
        self._spec = spec
        self._path = None if folder is None else folder / f"{spec.key()}.json"

    @property
    def path(self) -> Path | None:
        """The file, None where nothing is kept."""
        return self._path

    def read(self) -> Cached | None:
        """Return the cached listing; None if missing or unusable."""
        if self._path is None:
            return None
        try:
            kept = mapping(loads(self._path.read_bytes()))
            if kept.get("format") != _FORMAT:
                return None
            return Cached(listing=self._listing(kept), era="modern" if kept["era"] == "modern" else "legacy")
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, cached: Cached) -> None:
        """Keep `cached`; raises `OSError` when the folder cannot be written."""
        if self._path is None:
            return
        listing = cached.listing
        data = dumps(
            {
                "format": _FORMAT,
                "era": cached.era,
                "tools": [_entry(tool) for tool in listing.tools],
                "problems": [asdict(problem) for problem in listing.problems],
                "instructions": listing.instructions,
                "title": listing.title,
                "description": listing.description,
                "server": listing.server,
                "features": asdict(listing.features),
            }
        )
        replace_private(self._path, data)

    def _listing(self, kept: Mapping[str, Any]) -> Listing:
        return Listing(
            tools=tuple(self._tool(mapping(entry)) for entry in cast("list[Any]", kept["tools"])),
            problems=tuple(Problem(**mapping(one)) for one in cast("list[Any]", kept["problems"])),
            instructions=kept["instructions"],
            title=kept["title"],
            description=kept["description"],
            server=mapping(kept.get("server")),
            features=_features(mapping(kept.get("features"))),
        )

    def _tool(self, entry: Mapping[str, Any]) -> Tool:
        name = cast("str", entry["name"])
        hints = {**mapping(entry["annotations"]), **self._spec.annotations.get(name, {})}
        return Tool(
            origin="mcp",
            traits=self._spec.traits,
            name=name,
            source=self._spec.name,
            local_name=name,
            description=entry["description"],
            title=entry["title"],
            input_schema=entry["inputSchema"],
            output_schema=entry["outputSchema"],
            annotations=Annotations.from_mcp(
                hints,
                listed=mapping(entry["listed"]) if "listed" in entry else None,
                icons=tuple(mapping(icon) for icon in cast("list[Any]", entry.get("icons", ()))),
            ),
            meta=entry["meta"],
        )


def _features(kept: Mapping[str, Any]) -> ServerFeatures:
    lists = {
        name: tuple(mapping(entry) for entry in cast("list[Any]", kept.get(name, ())))
        for name in ("resources", "templates", "prompts")
    }
    return ServerFeatures(**lists, reads=kept.get("reads") is True)


def _entry(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.local_name,
        "description": tool.description,
        "title": tool.title,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations.to_mcp(),
        "meta": tool.meta,
        "icons": tool.annotations.icons,
        **({} if tool.annotations.listed is None else {"listed": tool.annotations.listed}),
    }
