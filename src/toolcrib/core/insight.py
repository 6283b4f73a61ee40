"""Introspection of a crib for its tools: its settings, its own tools and calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

__all__ = ["Configuration", "Insight", "Setting"]


class Setting(Struct, frozen=True, kw_only=True):
    """One key of the configuration."""

    key: str
    """Dotted."""
    value: Any
    fixed: str = ""
    """Reason why tools cannot change the setting; empty if they can."""
    before: Any = None
    """Value in effect until the next start, of a changed setting."""
    file: str = ""
    """File of the change."""


class Configuration(Protocol):
    """Configuration of the crib, without secrets. Changes take effect at the next start."""

    def all(self) -> Mapping[str, Any]:
        """Return every key that may be shown, with its value."""
        ...

    def get(self, key: str) -> Setting:
        """Return one setting. Raises `ToolFailure`: `not_found` for an unknown key, `denied` for a secret one."""
        ...

    async def update(self, key: str, value: str | float | bool) -> Setting:
        """Write a setting into the user's file, keeping comments; return its new state.

        Raises `ToolFailure`: `denied` for a setting that only the user changes, `invalid_arguments` for an invalid
        value, `tool_error` if the file cannot be changed, `unavailable` without such a file.
        """
        ...

    async def switch(self, backend: str) -> Setting:
        """Choose another of the listed models. Raises `ToolFailure`: `not_found`, and those of `update`."""
        ...


class Insight(Protocol):
    """Introspection of the crib for one session, as JSON, without data of other principals."""

    async def status(self) -> Mapping[str, Any]:
        """Return version, sources, number of tools, problems, and how the session is set up."""
        ...

    async def usage(self) -> Mapping[str, Any]:
        """Return calls and estimated tokens of the session, by tool, and the rest of its budgets."""
        ...

    async def events(self, *, limit: int, tool: str = "", outcome: str = "") -> list[Mapping[str, Any]]:
        """Return the newest calls of the principal; `tool` may hold `*`, the outcome `error` is every failure."""
        ...

    def tools(self) -> Mapping[str, str]:
        """Return the tools that the session may call, by name, with the first sentence of each description."""
        ...

    def has_tool(self, pattern: str) -> bool:
        """Whether a pattern with `*` and `?` means a tool of the session, by names of its profile or of the catalog."""
        ...

    def fields(self, entity: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the arguments of the tools that work on a kind of entity, by name; empty without any."""
        ...
