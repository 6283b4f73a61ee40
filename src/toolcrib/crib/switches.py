"""Tools switched off and on again, for one session or for all: a tool that is off is not shown and runs on no path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping

from ..catalog.names import nearest
from ..core.tool import Tool
from ..errors import UsageError

__all__ = ["Switches"]


class Switches:
    """One table of what is off. Names are catalog names; any spelling that can only mean one tool is taken."""

    def __init__(
        self,
        table: MutableMapping[str, None],
        *,
        find: Callable[[str], Tool | None],
        tools: Callable[[], Iterable[Tool]],
        changed: Callable[[tuple[str, ...]], None] = lambda names: None,
    ) -> None:
        """`find` and `tools` say what there is, `changed` hears of names whose state is another one now."""
        self._table = table
        self._find = find
        self._tools = tools
        self._changed = changed

    def off(self, names: Iterable[str]) -> None:
        """Switch off; raises `UsageError` with the nearest names for one that no tool has, and changes nothing then."""
        self._add(self._named(names))

    def on(self, names: Iterable[str]) -> None:
        """Switch on again what this table switched off; raises `UsageError` as `off` does."""
        self._remove(self._named(names))

    def all_off(self) -> None:
        """Switch off every tool that there is now."""
        self._add(tool.name for tool in self._tools())

    def all_on(self) -> None:
        """Switch everything on again."""
        self._remove(tuple(self._table))

    def _add(self, names: Iterable[str]) -> None:
        added = tuple(name for name in dict.fromkeys(names) if name not in self._table)
        self._table.update(dict.fromkeys(added))
        if added:
            self._changed(added)

    def _remove(self, names: Iterable[str]) -> None:
        removed = tuple(name for name in dict.fromkeys(names) if name in self._table)
        for name in removed:
            del self._table[name]
        if removed:
            self._changed(removed)

    def _named(self, names: Iterable[str]) -> list[str]:
        return [self._name(name) for name in names]

    def _name(self, name: str) -> str:
        tool = self._find(name)
        if tool is not None:
            return tool.name
        if name in self._table:
            return name
        close = nearest(name, (tool.name for tool in self._tools()))
        meant = f"; did you mean {', '.join(close)}?" if close else ""
        raise UsageError(f"there is no tool {name!r} to switch{meant}")
