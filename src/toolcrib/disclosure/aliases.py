"""A profile's names for the catalog's tools, as models see and call them.

The seeds give one tool different names and defaults; a profile maps them onto the canonical tool, which rules, records
and limits refer to. An alias only serves display and calls; a tool may have several, and is listed under each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from ..catalog import names as naming
from ..catalog.catalog import BUILTIN_SOURCES, Catalog
from ..core.schema.nodes import as_node
from ..core.tool import Kind, Tool
from .ops import OpMap
from .renames import Naming, Rename

_KINDS_BY_HARM: Final[tuple[Kind, ...]] = ("read", "write", "destructive")


class ToolAliases:
    """The names that one profile gives to the tools of one catalog. Immutable; results are cached.

    Made once for a catalog and a profile, and shared by their sessions; every table is computed at first use.
    """

    def __init__(
        self,
        catalog: Catalog,
        naming: Naming,
        ops: Mapping[str, str] | None = None,
        meta_tool_names: Iterable[str] = (),
    ) -> None:
        """`ops` are the ops of tools that declare none; `meta_tool_names` are the names of the meta-tools."""
        self._catalog = catalog
        self._naming = naming
        self._ops = ops
        self._meta_tool_names = frozenset(meta_tool_names)
        self._presented: dict[str, Tool] = {}

    @property
    def is_plain(self) -> bool:
        """Whether every tool keeps its catalog name."""
        return not self._naming.names and not self._naming.mcp_names

    def name(self, tool: Tool) -> str:
        """Return the profile's name of `tool`."""
        return tool.name if self.is_plain else self._first_name_by_tool.get(tool.name, tool.name)

    def rename_of(self, name: str) -> Rename | None:
        """Return the meaning of a name of the profile; None for a name that is not a label."""
        return None if self.is_plain else self._rename_by_name.get(name)

    def withheld_name(self, name: str) -> str:
        """Return the catalog name of a withheld tool by a name or op that it would have; any other name unchanged."""
        template, withheld = self._naming.mcp_names, self._catalog.withheld
        for own, problem in withheld.items() if template and name not in withheld else ():
            whole = template.format(server=problem.source, tool=problem.tool)
            if naming.shortened(whole, problem.source, problem.tool, naming.MAX_WHOLE) == name:
                return own
        if name in withheld or "." not in name:
            return name
        ops = self._withheld_ops
        return ops.named(name) or ops.spelled(name) or name

    def name_used(self, name: str, tool: Tool) -> str:
        """Return `name` if a call by it may mean `tool`, else the profile's first name for it."""
        label = self.rename_of(name)
        return name if label is not None and any(one.tool == tool.name for one in label.all) else self.name(tool)

    def names(self, tool: Tool) -> tuple[str, ...]:
        """Return everything that the profile calls `tool`: its own name where the profile has none."""
        return (tool.name,) if self.is_plain else self._names_by_tool.get(tool.name, (tool.name,))

    def present(self, tool: Tool, name: str = "") -> Tool:
        """Return `tool` as the model sees it under one of its names: with arguments in the profile's words.

        Name, schema and examples are the profile's; source and local name stay.
        """
        if self.is_plain or tool.name not in self._first_name_by_tool:
            return tool
        return self._present_renamed(name or self._first_name_by_tool[tool.name], tool)

    def presentations(self, tool: Tool) -> tuple[Tool, ...]:
        """Return `tool` as the model sees it under each of its names."""
        return tuple(self.present(tool, name) for name in self.names(tool))

    def tools_meant(self, name: str, tool: Tool) -> tuple[str, ...]:
        """Return the catalog names of all tools that a call of `tool` under `name` may mean."""
        label = self.rename_of(name)
        return (tool.name,) if label is None else tuple(one.tool for one in label.all)

    def _present_renamed(self, name: str, tool: Tool) -> Tool:
        known = self._presented.get(name)
        if known is not None:
            return known
        label = self._rename_by_name[name]
        others = [self._catalog.tools[one.tool] for one in label.instead]
        each = [self.present_as(one, name) for one in label.all]
        examples = [
            {**one.when, **given} for one, face in zip(label.all, each, strict=True) for given in face.guidance.examples
        ]
        made = self._presented[name] = replace(
            each[0],
            description=label.description or tool.description,
            input_schema=_joint_schema(label, each, [tool, *others]),
            guidance=replace(each[0].guidance, examples=examples),
            annotations=max(each, key=lambda one: _KINDS_BY_HARM.index(one.kind)).annotations,
        )
        return made

    def present_as(self, label: Rename, name: str) -> Tool:
        """Return the tool of one label under `name`, with the arguments of this one alone."""
        tool = self._catalog.tools[label.tool]
        return replace(
            tool,
            name=name,
            description=label.description or tool.description,
            input_schema=label.schema(tool.input_schema),
            guidance=replace(tool.guidance, examples=label.examples(tool.guidance.examples)),
        )

    @cached_property
    def shadowed(self) -> frozenset[str]:
        """Catalog names of tools that cannot be listed: their name belongs to a meta-tool or another tool."""
        tools = self._catalog.tools
        if self.is_plain:
            return frozenset(name for name in self._meta_tool_names if name in tools)
        return frozenset(tool.name for tool in tools.values() if self._is_shadowed(tool))

    def _is_shadowed(self, tool: Tool) -> bool:
        name = self.name(tool)
        label = self._rename_by_name.get(name)
        return name in self._meta_tool_names or (label is not None and label.tool != tool.name)

    @cached_property
    def ops(self) -> OpMap:
        """The ops of all tools; a label with a dot in it is the op of its tool."""
        dotted = {name: label for name, label in self._first_name_by_tool.items() if "." in label}
        return OpMap(self._catalog.tools.values(), self._ops, dotted)

    @cached_property
    def _withheld_ops(self) -> OpMap:
        """Ops of the withheld tools by their names alone: nothing else of a definition is used before its review."""
        withheld = self._catalog.withheld.items()
        return OpMap(Tool(name=own, local_name=one.tool, source=one.source) for own, one in withheld)

    @cached_property
    def _rename_by_name(self) -> Mapping[str, Rename]:
        tools = self._catalog.tools
        labels = {
            name: label
            for name, given in self._naming.names.items()
            if (label := self._existing(name, given)) is not None
        }
        for tool in tools.values() if self._naming.mcp_names else ():
            if tool.origin != "mcp" or tool.name == tool.local_name:  # of a single server, whose names stay its own
                continue
            whole = self._naming.mcp_names.format(server=tool.source, tool=tool.local_name)
            label = naming.shortened(whole, tool.source, tool.local_name, naming.MAX_WHOLE)
            if label not in tools:
                labels.setdefault(label, Rename(tool=tool.name))
        for label, rename in [*labels.items()]:  # the spellings of a declaration resolve to the same tool
            tool = tools[rename.tool]
            for short in (naming.shortened(label, "", label), naming.declared(label, tool.source, tool.local_name)):
                labels.setdefault(short, rename)
        return labels

    def _existing(self, name: str, label: Rename) -> Rename | None:
        """Return a label with its existing tools; None without any.

        Another source's tool of this name keeps it.
        """
        tools = self._catalog.tools
        found = [(one, tools[one.tool]) for one in label.all if one.tool in tools]
        if name in self._naming.ours:
            found = [(one, tool) for one, tool in found if tool.source in BUILTIN_SOURCES]
        known = [one for one, tool in found if one.fits(tool)]
        if not known or (name in tools and tools[name].source != tools[known[0].tool].source):
            return None
        return label if len(known) == len(label.all) else replace(known[0], instead=tuple(known[1:]))

    @cached_property
    def _first_name_by_tool(self) -> Mapping[str, str]:
        by_tool: dict[str, str] = {}
        for label, rename in self._rename_by_name.items():
            if rename.tool == label or rename.tool not in by_tool:  # its own name comes first, if it keeps that
                by_tool[rename.tool] = label
        return by_tool

    @cached_property
    def _names_by_tool(self) -> Mapping[str, tuple[str, ...]]:
        """Names by tool, in the order of the profile, without spellings made for an API."""
        presentations: dict[str, tuple[str, ...]] = {}
        for label, rename in self._rename_by_name.items():
            is_spelling = label not in self._naming.names and self._first_name_by_tool[rename.tool] != label
            if not is_spelling and label not in self._meta_tool_names:
                presentations[rename.tool] = (*presentations.get(rename.tool, ()), label)
        return presentations


def _joint_schema(label: Rename, each: list[Tool], tools: list[Tool]) -> Mapping[str, Any]:
    """Return the schema of a name: that of the tool behind it or, if it may mean several, all their arguments.

    An argument is required where every tool behind the name requires it.
    """
    schema = each[0].input_schema
    for face in each[1:]:
        more = face.input_schema
        required = [name for name in schema.get("required", ()) if name in more.get("required", ())]
        properties = {**as_node(schema.get("properties")), **_added_properties(schema, more)}
        schema = {**more, **schema, "properties": properties, "required": required}
    choosing = _choice_properties(label, tools)
    if not choosing:
        return schema
    return {**schema, "properties": {**as_node(schema.get("properties")), **choosing}}


def _added_properties(schema: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    known = as_node(schema.get("properties"))
    return {name: node for name, node in as_node(more.get("properties")).items() if name not in known}


def _choice_properties(label: Rename, tools: list[Tool]) -> dict[str, Any]:
    """Return the arguments that only choose between the tools that a name may mean."""
    summaries: dict[str, dict[Any, str]] = {}
    for one, tool in zip(label.all, tools, strict=True):
        for name, value in one.when.items():
            summaries.setdefault(name, {})[value] = tool.summary
    return {
        name: {
            "enum": list(found),
            "default": next(iter(found)),
            "description": " ".join(f"{value}: {summary}" for value, summary in found.items()),
        }
        for name, found in summaries.items()
    }
