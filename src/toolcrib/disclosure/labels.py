"""What a profile calls the catalog's tools: other names, other argument names, fixed values.

The seeds give one tool different names and defaults; a profile maps them onto the canonical tool, which is what rules,
records and limits speak of. A label is only how a tool is shown and asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from ..catalog import naming
from ..catalog.catalog import Catalog
from ..core.tool import Tool
from .ops import OpMap

__all__ = ["Labels", "Rename"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """What stands behind one name of a profile."""

    tool: str
    args: Mapping[str, str] = field(default_factory=dict[str, str])
    """The profile's argument name → the tool's own."""
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the tool that every call under this name has; the model neither sees nor changes them."""
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values that arguments of the tool get when the model gives none."""

    @property
    def is_bare(self) -> bool:
        """Whether it is another name and nothing else."""
        return not (self.args or self.fixed or self.defaults)

    def fits(self, tool: Tool) -> bool:
        """Whether the tool has the arguments that this speaks of: one of somebody else's may have the same name."""
        return {*self.args.values(), *self.fixed, *self.defaults} <= tool.input_schema.get("properties", {}).keys()

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the tool gets for arguments in the profile's words."""
        own = {self.args.get(name, name): value for name, value in given.items()}
        return {**self.defaults, **own, **self.fixed}

    def schema(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the tool's schema in the profile's words: arguments renamed, fixed ones gone, its own defaults."""
        if self.is_bare:
            return own
        theirs = {ours: name for name, ours in self.args.items()}
        properties: dict[str, Any] = {}
        for name, value in cast("Mapping[str, Any]", own.get("properties", {})).items():
            if name in self.fixed:
                continue
            default = {"default": self.defaults[name]} if name in self.defaults else {}
            properties[theirs.get(name, name)] = {**value, **default} if default and isinstance(value, dict) else value
        given = {*self.fixed, *self.defaults}
        required = [theirs.get(name, name) for name in own.get("required", ()) if name not in given]
        return {**own, "properties": properties, "required": required}


class Labels:
    """The names that one profile gives to the tools of one catalog. Immutable; what it computes is kept."""

    def __init__(
        self,
        catalog: Catalog,
        names: Mapping[str, Rename],
        mcp_names: str = "",
        ops: Mapping[str, str] | None = None,
        taken: Iterable[str] = (),
    ) -> None:
        """`mcp_names` is a template of `{server}` and `{tool}` for tools of MCP servers; empty gives them no label.

        `ops` says of tools which op they have, where they do not say it themselves; `taken` are the names of verbs.
        """
        self._catalog = catalog
        self._names = names
        self._mcp_names = mcp_names
        self._ops = ops
        self._taken = frozenset(taken)

    @property
    def is_plain(self) -> bool:
        """Whether every tool is called what the catalog calls it."""
        return not self._names and not self._mcp_names

    def name(self, tool: Tool) -> str:
        """Return what the profile calls `tool`."""
        return tool.name if self.is_plain else self._by_tool.get(tool.name, tool.name)

    def real(self, name: str) -> Rename | None:
        """Return what stands behind a name of the profile; None when it has no such label."""
        return None if self.is_plain else self._by_label.get(name)

    def shown(self, tool: Tool) -> Tool:
        """Return `tool` as the model sees it: named, and with arguments in the profile's words."""
        if self.is_plain or tool.name not in self._by_tool:
            return tool
        name = self._by_tool[tool.name]
        return replace(tool, name=name, input_schema=self._by_label[name].schema(tool.input_schema))

    @cached_property
    def shadowed(self) -> frozenset[str]:
        """Catalog names of tools that cannot be shown: what the model would call them is a verb or another tool."""
        tools = self._catalog.tools
        if self.is_plain:
            return frozenset(name for name in self._taken if name in tools)
        return frozenset(tool.name for tool in tools.values() if self._is_shadowed(tool))

    def _is_shadowed(self, tool: Tool) -> bool:
        name = self.name(tool)
        label = self._by_label.get(name)
        return name in self._taken or (label is not None and label.tool != tool.name)

    @cached_property
    def ops(self) -> OpMap:
        """The ops of all tools; a label with a dot in it is the op of its tool."""
        dotted = {name: label for name, label in self._by_tool.items() if "." in label}
        said = {**(self._ops or {}), **dotted}
        tools = self._catalog.tools.values()
        return OpMap((replace(tool, op=dotted[tool.name]) if tool.name in dotted else tool for tool in tools), said)

    @cached_property
    def _by_label(self) -> Mapping[str, Rename]:
        tools = self._catalog.tools
        found = ((name, label, tools.get(label.tool)) for name, label in self._names.items())
        labels = {name: label for name, label, tool in found if tool is not None and label.fits(tool)}
        for tool in tools.values() if self._mcp_names else ():
            if tool.origin != "mcp" or tool.name == tool.local_name:  # of a single server, whose names stay its own
                continue
            label = naming.shortened(
                self._mcp_names.format(server=tool.source, tool=tool.local_name), tool.source, tool.local_name
            )
            if label not in tools:
                labels.setdefault(label, Rename(tool=tool.name))
        for label, rename in [*labels.items()]:  # as an API wants it: what is asked for by it is the same
            labels.setdefault(naming.shortened(label, "", label), rename)
        return labels

    @cached_property
    def _by_tool(self) -> Mapping[str, str]:
        by_tool: dict[str, str] = {}
        for label, rename in self._by_label.items():
            by_tool.setdefault(rename.tool, label)
        return by_tool
