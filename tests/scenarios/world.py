"""The world of the cases behind one crib: guests with a workspace, an office, a shop, a wiki, and 200 more tools."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from peers.api import api
from rig import PATIENCE
from scenarios import filler, wiki_server
from scenarios.case import Case
from scenarios.office import FILES, Office
from scenarios.shop import DESCRIPTION, answering
from toolcrib.config import bare
from toolcrib.core.elicitation import Clarification
from toolcrib.crib import Toolcrib
from toolcrib.plugin import load_entry_points
from toolcrib.sources.openapi.source import OpenApiSource
from toolcrib.sources.openapi.spec import ApiSettings
from toolcrib.sources.python import PythonSource
from toolcrib.sources.python.declaration import NEEDS

TODAY: Final = "2026-11-20"
"""The day of every case: a Friday."""
_PROGRAMS: Final = Path(sys.executable).parent
_SERVERS: Final = {
    "jedi": {"command": [str(_PROGRAMS / "jedi-language-server")], "files": ["*.py"]},
    "ruff": {"command": [str(_PROGRAMS / "ruff"), "server"], "files": ["*.py"]},
}
"""The language servers of the workspace."""
_TOOLS: Final = {
    "lsp": {"servers": _SERVERS},
    "web": {"search": {"searxng_url": "http://search.invalid"}},
    "git": {"tokens": {"git.example": "unused"}},
    "messaging": {"channels": {"harbour": "json://harbour.invalid"}},
}
"""What tools need to be offered; none of it is reached."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A crib and what stands behind it. One case at a time."""

    crib: Toolcrib
    office: Office
    folder: Path
    """The workspace."""
    pages: Path
    """The wiki's file."""
    missing: frozenset[str]
    """Built-in tools that this machine cannot have: without a sandbox those that start programs."""

    def has(self, case: Case) -> bool:
        """Whether this machine has the tools of a case."""
        return not case.tools & self.missing

    def prepare(self, case: Case) -> None:
        """Put everything there as it is before the case."""
        self.office.reset()
        self.pages.write_text(json.dumps(self.office.records.pop("pages")), encoding="utf-8")
        wanted = {self.folder / path: text for path, text in {**FILES, **case.files}.items()}
        for path in sorted(self.folder.rglob("*"), reverse=True):  # what is in a folder comes before it
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in wanted:
                path.unlink()
        for path, text in wanted.items():
            if not path.is_file() or path.read_bytes() != text.encode():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())

    def state(self) -> dict[str, Any]:
        """Return everything that a case can change, as JSON; what git keeps for itself is never twice the same."""
        files = {
            path.relative_to(self.folder).as_posix(): path.read_bytes().decode("utf-8", "backslashreplace")
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }
        pages: dict[str, str] = json.loads(self.pages.read_text(encoding="utf-8"))
        records: Mapping[str, Any] = json.loads(json.dumps(self.office.records))
        return {"files": files, "pages": pages, **records}


@asynccontextmanager
async def open_world(folder: Path, *, large: bool = False) -> AsyncGenerator[World]:
    """Open the world in an empty folder; `large` has the tools of the other departments, too."""
    office, pages, work = Office(), folder / "pages.json", folder / "work"
    work.mkdir(parents=True)
    pages.write_text("{}", encoding="utf-8")
    settings = bare().with_values(builtins=True, mode="autonomous", tools=_TOOLS)
    async with api() as shop, Toolcrib(settings, memory=True) as crib:
        shop.otherwise = answering(office)
        crib.add(office)
        described = ApiSettings(base_url=shop.origin, allow_private=True)
        await crib.tools.mount_source(OpenApiSource("shop", DESCRIPTION, settings=described))
        wiki = {"command": sys.executable, "args": [wiki_server.__file__, str(pages)]}
        await crib.mount({"mcpServers": {"wiki": wiki}})
        if large:
            await crib.tools.mount_source(filler.source(office), prefix=False, trusted=True)
        await crib.tools.wait_ready(PATIENCE)
        # With a first one, the tools that need a workspace, or somebody to ask, come into the catalog.
        crib.session(workspace=work, elicitor=_silent)
        missing = await guests() - crib.catalog.tools.keys()
        yield World(crib=crib, office=office, folder=work, pages=pages, missing=missing)


async def guests() -> frozenset[str]:
    """Return the names of all built-in tools that arrive by entry point, whatever they need."""
    found, problems = load_entry_points()
    assert problems == ()
    source = PythonSource()
    source.provide(frozenset(NEEDS))
    for guest in found:
        source.offer(guest.thing, guest.origin)
    names: set[str] = set()
    await source.open(lambda listing: names.update(tool.name for tool in listing.tools))
    return frozenset(names)


async def _silent(asked: Clarification) -> str | None:
    """Answer nothing."""
    return None
