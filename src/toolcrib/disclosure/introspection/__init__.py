"""Seed 003: core tools at first, everything else in two steps: `list` shows the tools, `schemas` activates them.

A tool is core or discoverable; the default is discoverable. Activation lasts for the session. The instructions of a
source without core tools are deferred until one of its tools is activated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec.structs import replace

from ...core.json import as_mapping
from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.schema import type_in_words
from ...core.tool import Tool
from ...errors import ToolFailure
from .. import growing_list, meta_tools
from ..base import Strategy, Verb, VerbContext, View, VisibleCatalog, answer, object_schema, with_absent_sources

__all__ = ["STRATEGY", "UNCATEGORIZED", "category_of", "introspection"]

UNCATEGORIZED: Final = "uncategorized"
"""The category of tools that name none."""
_MCP: Final = "MCP"
_OWN: Final = "introspection"
"""The plugin and the category of the two meta-tools."""
_SHORT: Final = 97
"""Characters of a short description without a sentence end, before its dots."""
_SUGGESTED: Final = 3
_WORD: Final = regex(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])")
"""The place between two words of a name."""

_NAMES: Final = {
    "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}],
    "description": "Names of tools, from {list}.",
}


def introspection(visible: VisibleCatalog) -> View:
    """Return the core, then the activated tools of this session, with the instructions of the sources in use."""
    view = growing_list.growing_view(visible, _declared(visible), meta_tools.instructions(visible.profile))
    return replace(view, instructions=_with_sources(visible, view.instructions, _introduced(visible)))


def _whole(visible: VisibleCatalog) -> View:
    """Return everything in scope and the instructions of every source: nothing is deferred."""
    return growing_list.whole_view(visible, _declared(visible), _with_sources(visible, "", visible.offered()))


def category_of(visible: VisibleCatalog, tool: Tool) -> str:
    """Return the category of `tool` in the profile; tools of MCP servers have one of their own."""
    return visible.category(tool) or (_MCP if tool.origin == "mcp" else UNCATEGORIZED)


def _declared(visible: VisibleCatalog) -> dict[str, Tool]:
    """Return the meta-tools by shown name; `list` names the existing categories."""
    declared = {tool.name: tool for tool in meta_tools.definitions(visible.profile, {**meta_tools.VERBS, **_VERBS})}
    listing = declared.get(visible.profile.verbs.get("list", ""))
    names = sorted(_categories(visible))
    if listing is None or not names:
        return declared
    schema = listing.input_schema
    category = {**schema["properties"]["category"], "enum": names}
    properties = {**schema["properties"], "category": category}
    return {**declared, listing.name: replace(listing, input_schema={**schema, "properties": properties})}


def _categories(visible: VisibleCatalog) -> dict[str, dict[str, Tool]]:
    """Return all tools in scope by category and shown name, switched-off ones included: they are listed as such."""
    found: dict[str, dict[str, Tool]] = {}
    for tool in visible.tools():
        if visible.is_tool(tool):
            found.setdefault(category_of(visible, tool), {}).update(dict.fromkeys(visible.aliases.names(tool), tool))
    return found


def _in_use(visible: VisibleCatalog) -> tuple[Tool, ...]:
    """Return the core and the activated tools."""
    return (*growing_list.core_tools(visible), *growing_list.loaded_tools(visible))


def _introduced(visible: VisibleCatalog) -> tuple[Tool, ...]:
    """Return the tools whose sources have their instructions shown: with a fixed list, the core only."""
    return _in_use(visible) if visible.session.audience.grows else growing_list.core_tools(visible)


def _with_sources(visible: VisibleCatalog, instructions: str, in_use: Iterable[Tool]) -> str:
    """Return the profile's words and those of the sources in use, each once, in the order in which they came."""
    about = visible.catalog.about
    sources = dict.fromkeys(tool.source for tool in in_use)
    texts = [about[source].instructions.strip() for source in sources if source in about]
    return "\n\n".join(text for text in (instructions, *texts) if text)


async def _list(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    found, category = _categories(visible), arguments.get("category", "")
    names = visible.profile.verbs
    if category not in found:
        category = next((name for name in found if name.lower() == category.strip().lower()), category)
    if not category:
        listed = [
            {
                "name": name,
                "tool_count": len(found[name]),
                "description": visible.profile.naming.categories.get(name, ""),
            }
            for name in sorted(found)
        ]
        hint = f"Call {names['list']}(category='<name>') to see the tools in a category."
        total = sum(map(len, found.values()))
        return answer(with_absent_sources(visible, {"categories": listed, "total_tools": total, "hint": hint}))
    if category not in found:
        known = ", ".join(sorted(found))
        raise ToolFailure("not_found", f"Unknown category: {category[:200]}", hint=f"Available categories: {known}")
    tools = [_entry(visible, name, tool, verbose=arguments["verbose"]) for name, tool in found[category].items()]
    shown: dict[str, Any] = {"category": category, "tool_count": len(tools)}
    shown["tools"] = sorted(tools, key=lambda entry: entry["name"])
    if "schemas" in names:
        shown["hint"] = f"Call {names['schemas']}(names=['<name>']) for the parameters of a tool, and to activate it."
    return answer(with_absent_sources(visible, shown))


def _entry(visible: VisibleCatalog, name: str, tool: Tool, *, verbose: bool) -> dict[str, Any]:
    shown = visible.aliases.present(tool, name)
    return {
        "name": name,
        "plugin_source": _plugin(visible, tool),
        "enabled": not visible.session.is_disabled(tool.name),
        "streaming": tool.execution.streaming,
        "description": shown.description if verbose else _short(shown.description),
    }


def _plugin(visible: VisibleCatalog, tool: Tool) -> str:
    return _OWN if tool.source == meta_tools.SOURCE else visible.profile.plugin_of(tool)


def _short(description: str) -> str:
    """Return the first sentence, or the first 97 characters and three dots."""
    text = " ".join(description.split())
    sentence, dot, _ = text.partition(". ")
    if dot:
        return f"{sentence}."
    return text if len(text) <= _SHORT + 3 else f"{text[:_SHORT]}..."


async def _schemas(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    given = arguments["names"]
    wanted = list(dict.fromkeys([given] if isinstance(given, str) else given))
    if not any(name.strip() for name in wanted):
        raise ToolFailure("invalid_arguments", "names is required: the names of tools", hint=_where(visible))
    declared = _declared(visible)
    own = {name: declared[name] for name in wanted if name in declared}
    found = {name: tool for name in wanted if name not in own and (tool := visible.find(name)) is not None}
    named = {visible.aliases.name_used(name, tool): tool for name, tool in found.items()}
    schemas = [_described(visible, name, tool) for name, tool in (own | named).items()]
    shown: dict[str, Any] = {"schemas": schemas, "count": len(schemas)}
    unknown = [name for name in wanted if name not in found and name not in own]
    if unknown:
        shown["not_found"] = unknown
        suggestions = {name: close for name in unknown if (close := _containing(visible, name))}
        if suggestions:
            shown["suggestions"] = suggestions
        shown["hint"] = _where(visible)
        shown |= with_absent_sources(visible, {})
    return answer(shown | _activation(visible, named))


def _activation(visible: VisibleCatalog, tools: Mapping[str, Tool]) -> dict[str, Any]:
    """Activate `tools`; return the new ones, empty where every tool is callable or the set is an exact one.

    With a fixed list, the instructions are fixed, too: those of the activated tools are in the answer.
    """
    if not visible.profile.progressive or visible.session.scope.exact is not None:
        return {}
    before = {tool.source for tool in _in_use(visible)}
    activated = growing_list.load(visible, tools)
    if not activated:
        return {}
    shown: dict[str, Any] = {"activated": activated, "activation_note": _note(visible)}
    fresh = [tool for tool in _in_use(visible) if tool.source not in before]
    instructions = "" if visible.session.audience.grows else _with_sources(visible, "", fresh)
    return shown | ({"instructions": instructions} if instructions else {})


def _note(visible: VisibleCatalog) -> str:
    through = "" if visible.session.audience.grows else f" through {visible.profile.verbs.get('call', 'their names')}"
    return f"These tools are now available to call{through}."


def _where(visible: VisibleCatalog) -> str:
    return f"Use {visible.profile.verbs.get('list', 'list_tools')}() to see what there is."


def _containing(visible: VisibleCatalog, name: str) -> list[str]:
    """Return up to three names that have `name` in them, those first that have it as a word; else similar ones."""
    part = name.strip().lower()
    offered = [name for tool in visible.offered() for name in visible.aliases.names(tool)]
    inside = [other for other in offered if part and part in other.lower()]
    inside.sort(key=lambda other: _distance(part, _WORD.sub(" ", other).lower().split()))
    return inside[:_SUGGESTED] or [
        visible.aliases.name(visible.catalog.tools[other])
        for other in visible.catalog.nearest(name, _SUGGESTED, allowed=visible.admitted)
    ]


def _distance(part: str, words: Sequence[str]) -> int:
    return 0 if part in words else 1 if any(word.startswith(part) for word in words) else 2


def _described(visible: VisibleCatalog, name: str, tool: Tool) -> dict[str, Any]:
    shown = visible.aliases.present(tool, name)
    return {
        "name": name,
        "description": shown.description,
        "plugin_source": _plugin(visible, tool),
        "enabled": visible.is_mentioned(tool),
        "category": _OWN if tool.source == meta_tools.SOURCE else category_of(visible, tool),
        "parameters": _parameters(shown.input_schema),
    }


def _parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return each argument in a line of its own, as the seed shows them."""
    required = schema.get("required", ())
    properties = cast("Mapping[str, Any]", schema.get("properties", {}))
    return {name: _parameter(node, required=name in required) for name, node in properties.items()}


def _parameter(node: Any, *, required: bool) -> dict[str, Any]:
    given = as_mapping(node)
    kind = given.get("type")
    shown: dict[str, Any] = {"type": kind if isinstance(kind, str) else type_in_words(given), "required": required}
    for key, theirs in (("description", "description"), ("enum", "allowed_values"), ("default", "default")):
        if key in given:
            shown[theirs] = given[key]
    items = given.get("items")
    if isinstance(items, Mapping):
        shown["items_type"] = type_in_words(cast("Mapping[str, Any]", items))
    return shown


_VERBS: Final[Mapping[str, Verb]] = {
    "list": Verb(
        description=(
            "Discover tools. Without a category: the categories and how many tools each has. "
            "With one: its tools. Then {schemas} activates those that you need."
        ),
        input_schema=object_schema(
            [],
            category={"type": "string", "description": "A category, to see the tools in it."},
            verbose={"type": "boolean", "default": False, "description": "Whole descriptions."},
        ),
        run=_list,
    ),
    "schemas": Verb(
        description="Parameters of the named tools, and activation: a tool that {list} names can be called afterwards.",
        input_schema=object_schema(["names"], names=_NAMES),
        run=_schemas,
        loads=True,
    ),
}

STRATEGY = Strategy(
    view=introspection,
    tells_sources=True,
    whole=_whole,
    verbs=_VERBS,
    options={**growing_list.OPTIONS, "plugins": dict},
)
