"""Services for the commands of guests: tools of an open crib, and output as our own commands print it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..config.directories import here
from ..core.services.contributions import ToolCaller
from ..crib.options import SessionOptions
from ..crib.services.contributions import SessionCaller
from ..daemon.caller import is_interactive
from ..disclosure.settings import BY_CATALOG
from ..errors import ToolFailure
from .commands.call import HOW_TO_SAY_YES, say_yes
from .open_crib import opened
from .options import run, settings_of
from .output import Column, emit_json, escape, note, out, table
from .prompts import Terminal as Approver

T = TypeVar("T")


class Terminal:
    """Implements `core.services.contributions.CommandHost`."""

    @property
    def folder(self) -> Path:
        """The folder in which the command was typed."""
        return here().project

    def run(
        self,
        work: Callable[[ToolCaller], Awaitable[T]],
        *,
        categories: Sequence[str],
        config: Sequence[Path] | None = None,
        yes: bool | None = None,
        workspace: Path | None = None,
    ) -> T:
        """Run `work` with the built-in tools of these categories, without servers."""
        settings = settings_of(list(config) if config else None)
        settings = settings.with_values(builtins=tuple(categories), servers=(), openapi=())

        async def main() -> T:
            async with opened(settings, wait=0.0) as crib:
                asks = Approver() if is_interactive() else None
                options: SessionOptions = {"profile": BY_CATALOG, "approver": say_yes if yes else asks}
                if workspace is not None:
                    options["workspace"] = workspace
                async with crib.session(**options) as session:
                    return await work(SessionCaller(session, "cli"))

        try:
            return run(main)
        except ToolFailure as failure:
            if yes is not None and failure.details.get("reason") == "no_approver":
                note(HOW_TO_SAY_YES)
            raise

    def out(self, text: str) -> None:
        """Print lines."""
        out(escape(text, lines=True))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Print rows."""
        table(columns, rows)

    def json(self, value: Any) -> None:
        """Print JSON."""
        emit_json(value)
