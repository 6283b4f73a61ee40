"""Looking at definitions and accepting them: what a crib has for whoever reviews."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.tool import Tool
from .intake import Intake

__all__ = ["Reviewable"]


class Reviewable:
    """What has sources whose definitions are reviewed: a crib."""

    _intake: Intake

    async def accept(self, source: str, tools: Iterable[str] | None = None) -> list[str]:
        """Take what `source` lists now as reviewed; return the names that were withheld before.

        `tools` names those that are taken, as the source calls them; None is all, flagged ones too.
        Raises `UsageError` for a source that has listed nothing.
        """
        return await self._intake.accept(source, tools)

    async def changes(self, source: str) -> dict[str, str]:
        """Return by local name how the definitions that `source` lists differ from what was reviewed: unified diffs.

        Tools that are as they were reviewed, or never were reviewed, are not among them. The text is safe to look at.
        """
        return await self._intake.changes(source)

    def listed(self, source: str) -> tuple[Tool, ...]:
        """Return what `source` lists, withheld tools included; for showing, never for calling."""
        return self._intake.listed(source)
