"""A profile's names for the catalog's tools: other names, other argument names, fixed values.

The seeds give one tool different names and defaults; a profile maps them onto the canonical tool, which rules, records
and limits refer to. A label only serves display and calls; a tool may have several, and is listed under each of them.

`Rename` is one name and the translation of its calls: names of arguments, also inside objects in lists, other
spellings of values, fixed values and defaults. Where a seed has one tool for two of ours, the arguments decide which of
them runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeGuard, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ..catalog import names as naming
from ..catalog.catalog import OUR_SOURCES, Catalog
from ..core.json import dumps
from ..core.schema.nodes import Node, alternatives, as_node, properties_of, resolve
from ..core.tool import Kind, Tool
from ..errors import ToolFailure
from .ops import OpMap

_NOT: Final = "not "
"""Prefix of a flag's name: the alias has the opposite meaning."""
_OF_PROJECT: Final = "project of "
"""Prefix of a path's name: the alias is the id of the project in whose workspace the path begins."""

_KINDS: Final[tuple[Kind, ...]] = ("read", "write", "destructive")


class Rename(Struct, frozen=True, kw_only=True):
    """Meaning of one name of a profile: the tool, and the translation of its arguments."""

    tool: str
    args: Mapping[str, str] = field(default_factory=dict[str, str])
    """The profile's argument name → the tool's own.

    `not x` is a flag with the opposite meaning, `list.x` is `x` of the objects in a list, `project of x` the project
    in which the path `x` begins: `project:ID/x`. Several names may map to one argument.
    """
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The tool's own argument (`x` or `list.x`) → the profile's words for its values → the tool's."""
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the tool that every call under this name has; the model neither sees nor changes them."""
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values that arguments of the tool get when the model gives none."""
    at_most: Mapping[str, float] = field(default_factory=dict[str, float])
    """Numbers that arguments of the tool have at most under this name; a larger one counts as that."""
    required: Sequence[str] = ()
    """Arguments of the tool that this name cannot do without, though the tool can."""
    unused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arguments of the seed without effect here → the reason. They are accepted, and the answer reports it."""
    description: str = ""
    """Description for the model in place of the tool's own: for a name that covers a part of the tool."""
    when: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the profile's that choose between this and `instead`, with the values that mean this one."""
    given: str = ""
    """The argument of the profile's that chooses this one of `instead` by being there."""
    instead: tuple[Rename, ...] = ()
    """Alternative tools of the name; the first whose `when` or `given` holds is chosen."""

    @property
    def is_bare(self) -> bool:
        """Whether it is another name and nothing else."""
        parts = (
            self.args,
            self.values,
            self.fixed,
            self.defaults,
            self.at_most,
            self.required,
            self.unused,
            self.instead,
            self.description,
        )
        return not any(parts)

    @property
    def all(self) -> tuple[Rename, ...]:
        """This and those that it may mean instead."""
        return (self, *self.instead)

    def fits(self, tool: Tool) -> bool:
        """Whether the tool has the arguments named here: another source's tool may have the same name."""
        members = _members(tool.input_schema)
        named = (*map(_bare, self.args.values()), *self.values)
        own = tool.input_schema.get("properties", {}).keys()
        return all(name in members for name in named) and {*self.fixed, *self.defaults, *self.at_most} <= own

    def chosen(self, given: Mapping[str, Any]) -> Rename:
        """Return the tool that these arguments choose. Raises `ToolFailure` for a word that chooses none."""
        for name in self.when:
            known = [one.when[name] for one in self.all if name in one.when]
            if name in given and given[name] not in known:
                words = ", ".join(dumps(value).decode() for value in known)
                raise ToolFailure("invalid_arguments", f"{name}: must be one of {words}")
        return next((one for one in self.instead if one._is_meant(given)), self)

    def _is_meant(self, given: Mapping[str, Any]) -> bool:
        if self.given:
            return self.given in given
        return bool(self.when) and all(given.get(name) == value for name, value in self.when.items())

    def arguments(self, given: Mapping[str, Any], filled: Collection[str] = ()) -> dict[str, Any]:
        """Return the tool's arguments for arguments in the profile's words.

        `filled` names arguments that have a value without a default of the profile.

        Raises `ToolFailure("invalid_arguments")` for two names of one argument with different values, and for one of
        `required` that is missing.
        """
        own = dict(self._own(given, ""))
        if missing := [self._theirs(name)[0] for name in self.required if name not in own]:
            raise ToolFailure("invalid_arguments", f"{missing[0]}: is required")
        own |= {name: most for name, most in self.at_most.items() if _exceeds(own.get(name), most)}
        defaults = {name: value for name, value in self.defaults.items() if name not in filled}
        return {**defaults, **own, **self.fixed}

    def _own(self, given: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
        """Yield arguments, or members of an object in the list `above`, in the tool's words."""
        taken: dict[str, tuple[str, Any]] = {}
        projects: dict[str, Any] = {}
        for name, value in given.items():
            if not above and (name in self.unused or name in self.when):
                continue
            ours = self.args.get(f"{above}{name}", f"{above}{name}")
            bare = _bare(ours).removeprefix(above)
            if ours.startswith(_OF_PROJECT):
                projects |= {bare: value} if value else {}
                continue
            value = self._value(value, f"{above}{bare}", is_opposite=ours.startswith(_NOT))
            before = taken.setdefault(bare, (name, value))
            if before[1] != value:
                message = f"{before[0]} and {name} are two names of one argument, with different values"
                raise ToolFailure("invalid_arguments", message, hint="give one of them")
        paths = {name: (name, f"project:{id}/{taken.get(name, ('', ''))[1]}") for name, id in projects.items()}
        yield from ((name, value) for name, (_, value) in {**taken, **paths}.items())

    def _value(self, value: Any, ours: str, *, is_opposite: bool) -> Any:
        if isinstance(value, bool):
            return value != is_opposite
        if isinstance(value, str):
            return self.values.get(ours, {}).get(value, value)
        return self._items(value, f"{ours}.") if self._has_members(ours) else value

    def _items(self, given: Any, above: str) -> Any:
        """Return a list with its objects in the tool's words; any other value unchanged, for the schema to refuse."""
        if not isinstance(given, list):
            return given
        items = cast("list[Any]", given)
        return [dict(self._own(one, above)) if _is_object(one) else one for one in items]

    def _has_members(self, ours: str) -> bool:
        return any(name.startswith(f"{ours}.") for name in (*self.args, *self.values))

    def notes(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return notes for the caller on arguments without effect here, and on numbers that are too large."""
        unused = (f"{name} has no effect here: {why}" for name, why in self.unused.items() if given.get(name))
        named = ((self._theirs(name)[0], most) for name, most in self.at_most.items())
        return (*unused, *(f"{name} is {most} at most" for name, most in named if _exceeds(given.get(name), most)))

    def schema(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the tool's schema in the profile's words: arguments renamed, fixed ones removed, its own defaults."""
        if self.is_bare:
            return own
        given = {*self.fixed, *self.defaults}
        needed = dict.fromkeys((*own.get("required", ()), *self.required))
        required = [self._theirs(name)[0] for name in needed if name not in given]
        properties = dict(self._properties(own, own, ""))
        for name, why in self.unused.items():
            properties[name] = {"type": "string", "description": f"No effect: {why}."}
        shown = {**own, "properties": properties, "required": required}
        if "$ref" not in dumps(properties).decode():  # renamed members are replaced in place
            shown.pop("$defs", None)
        return shown

    def _properties(self, own: Mapping[str, Any], root: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
        for name, node in as_node(own.get("properties")).items():
            if not above and name in self.fixed:
                continue
            for theirs in self._theirs(f"{above}{name}"):
                yield theirs.removeprefix(above), self._node(node, root, f"{above}{name}", theirs)

    def _node(self, node: Any, root: Mapping[str, Any], ours: str, theirs: str) -> Any:
        """Return the schema of one argument, with this name's default, words and members."""
        if not isinstance(node, dict):
            return node
        shown = dict(cast("dict[str, Any]", node))
        if ours in self.defaults:
            shown["default"] = self.defaults[ours]
        elif ours in self.required:
            shown.pop("default", None)
        if ours in self.at_most:
            shown["description"] = f"{shown.get('description', '')} At most {self.at_most[ours]}.".strip()
        if self.args.get(theirs, "").startswith(_OF_PROJECT):
            return {"type": "string", "description": "Id of the project in whose workspace it is."}
        if self.args.get(theirs, "").startswith(_NOT):
            shown["description"] = f"False: {_lowered(shown.get('description', ours))}"
            shown["default"] = not shown.get("default", False)
        if ours in self.values and "enum" in shown:
            words = {value: word for word, value in self.values[ours].items()}
            shown["enum"] = [words.get(value, value) for value in shown["enum"]]
        if self._has_members(ours):
            shown["items"] = self._item(as_node(shown.get("items")), root, f"{ours}.")
        return shown

    def _item(self, item: Node, root: Node, above: str) -> Node:
        """Return the schema of an item with its members renamed; of several alternatives, those with members."""
        inner = resolve(item, root)
        if branches := alternatives(inner):
            return {"anyOf": [self._item(branch, root, above) for branch in branches]}
        if "properties" not in inner:
            return inner
        members = dict(self._properties(inner, root, above))
        required = [name for name in inner.get("required", ()) if self._theirs(f"{above}{name}") == [f"{above}{name}"]]
        return {**inner, "properties": members, "required": required}

    def _theirs(self, ours: str) -> Sequence[str]:
        """Return the profile's names of one argument; its own where the profile has none."""
        return [name for name, one in self.args.items() if _bare(one) == ours] or [ours]

    def examples(self, own: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the tool's examples in the profile's words, without those that this name cannot express."""
        if self.is_bare:
            return own
        fixed = self.fixed
        return [
            self._example(one, "")
            for one in own
            if all(name not in one or one[name] == value for name, value in fixed.items())
        ]

    def _example(self, own: Mapping[str, Any], above: str) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, value in own.items():
            if not above and name in self.fixed:
                continue
            ours = f"{above}{name}"
            theirs = self._theirs(ours)[0]
            words = {theirs_: word for word, theirs_ in self.values.get(ours, {}).items()}
            if self.args.get(theirs, "").startswith(_NOT):
                value = not value
            elif isinstance(value, list) and self._has_members(ours):
                items = cast("list[Any]", value)
                value = [self._example(one, f"{ours}.") if _is_object(one) else one for one in items]
            shown[theirs.removeprefix(above)] = words.get(value, value) if isinstance(value, str) else value
        return shown


class Naming(Struct, frozen=True, kw_only=True):
    """Names of tools and categories in one profile. Its fields are keys of a profile's file."""

    names: Mapping[str, Rename] = field(default_factory=dict[str, Rename])
    """Names of the seed → the tool behind each, with its argument names and fixed values."""
    mcp_names: str = ""
    """Template of the names of MCP servers' tools, with `{server}` and `{tool}`; empty keeps the catalog's names."""
    categories: Mapping[str, str] = field(default_factory=dict[str, str])
    """Category → description, in the order in which they are listed."""
    placed: Mapping[str, str] = field(default_factory=dict[str, str])
    """A tool, by the profile's or the catalog's name, or a category → the category in which the profile lists it."""
    ours: frozenset[str] = frozenset()
    """Entries of `names` that a built-in profile has, too: they mean built-in tools alone. No key of the file."""


NO_NAMING: Final = Naming()


def in_words(text: str, names: Mapping[str, Rename], called: str = "") -> str:
    """Return a message of ours with the profile's names in place of those that tools have in the catalog.

    `called` is the name that the model used. A word in quotes or in a path is data and stays.

    Only names with an underscore are replaced: `search` or `read` in a sentence may be words.
    """
    if "_" not in text or not any(one.tool in text for rename in names.values() for one in rename.all):
        return text
    words: dict[str, str] = {}
    for label in (called, *names) if called in names else names:
        for one in names[label].all:
            words.setdefault(one.tool, one.tool if one.tool in names and label != called else label)
    changed = [name for name, word in words.items() if name != word and "_" in name]
    if not changed or not any(name in text for name in changed):
        return text
    return re.sub(rf"(?<![\w./'\"-])({'|'.join(changed)})(?![\w/'\"-]|\.\w)", lambda found: words[found[1]], text)


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _exceeds(value: Any, most: float) -> bool:
    return isinstance(value, int | float) and value > most


def _bare(name: str) -> str:
    return name.removeprefix(_NOT).removeprefix(_OF_PROJECT)


def _lowered(text: str) -> str:
    return f"{text[:1].lower()}{text[1:]}"


def _members(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the arguments, and of the members of objects in lists: `list.member`."""
    own = properties_of(schema, schema)
    inner = (
        f"{name}.{member}"
        for name, node in own.items()
        for item in (as_node(node.get("items")), *alternatives(as_node(node.get("items"))))
        for member in properties_of(item, schema)
    )
    return frozenset((*own, *inner))


class Labels:
    """The names that one profile gives to the tools of one catalog. Immutable; results are cached.

    Made once for a catalog and a profile, and shared by their sessions; every table is computed at first use.
    """

    def __init__(
        self,
        catalog: Catalog,
        naming: Naming,
        ops: Mapping[str, str] | None = None,
        taken: Iterable[str] = (),
    ) -> None:
        """`ops` are the ops of tools that declare none; `taken` are the names of the meta-tools."""
        self._catalog = catalog
        self._naming = naming
        self._ops = ops
        self._taken = frozenset(taken)
        self._made: dict[str, Tool] = {}

    @property
    def is_plain(self) -> bool:
        """Whether every tool keeps its catalog name."""
        return not self._naming.names and not self._naming.mcp_names

    def name(self, tool: Tool) -> str:
        """Return the profile's name of `tool`."""
        return tool.name if self.is_plain else self._by_tool.get(tool.name, tool.name)

    def real(self, name: str) -> Rename | None:
        """Return the meaning of a name of the profile; None for a name that is not a label."""
        return None if self.is_plain else self._by_label.get(name)

    def withheld(self, name: str) -> str:
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

    def called(self, name: str, tool: Tool) -> str:
        """Return `name` if a call by it may mean `tool`, else the profile's first name for it."""
        label = self.real(name)
        return name if label is not None and any(one.tool == tool.name for one in label.all) else self.name(tool)

    def names(self, tool: Tool) -> tuple[str, ...]:
        """Return everything that the profile calls `tool`: its own name where the profile has none."""
        return (tool.name,) if self.is_plain else self._faces.get(tool.name, (tool.name,))

    def shown(self, tool: Tool, name: str = "") -> Tool:
        """Return `tool` as the model sees it under one of its names: with arguments in the profile's words.

        Name, schema and examples are the profile's; source and local name stay.
        """
        if self.is_plain or tool.name not in self._by_tool:
            return tool
        return self._shown(name or self._by_tool[tool.name], tool)

    def faces(self, tool: Tool) -> tuple[Tool, ...]:
        """Return `tool` as the model sees it under each of its names."""
        return tuple(self.shown(tool, name) for name in self.names(tool))

    def behind(self, name: str, tool: Tool) -> tuple[str, ...]:
        """Return the catalog names of all tools that a call of `tool` under `name` may mean."""
        label = self.real(name)
        return (tool.name,) if label is None else tuple(one.tool for one in label.all)

    def _shown(self, name: str, tool: Tool) -> Tool:
        known = self._made.get(name)
        if known is not None:
            return known
        label = self._by_label[name]
        others = [self._catalog.tools[one.tool] for one in label.instead]
        each = [self.shown_as(one, name) for one in label.all]
        examples = [
            {**one.when, **given} for one, face in zip(label.all, each, strict=True) for given in face.guidance.examples
        ]
        made = self._made[name] = replace(
            each[0],
            description=label.description or tool.description,
            input_schema=_together(label, each, [tool, *others]),
            guidance=replace(each[0].guidance, examples=examples),
            annotations=max(each, key=lambda one: _KINDS.index(one.kind)).annotations,
        )
        return made

    def shown_as(self, label: Rename, name: str) -> Tool:
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
        return OpMap(self._catalog.tools.values(), self._ops, dotted)

    @cached_property
    def _withheld_ops(self) -> OpMap:
        """Ops of the withheld tools by their names alone: nothing else of a definition is used before its review."""
        withheld = self._catalog.withheld.items()
        return OpMap(Tool(name=own, local_name=one.tool, source=one.source) for own, one in withheld)

    @cached_property
    def _by_label(self) -> Mapping[str, Rename]:
        tools = self._catalog.tools
        labels = {
            name: label for name, given in self._naming.names.items() if (label := self._there(name, given)) is not None
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

    def _there(self, name: str, label: Rename) -> Rename | None:
        """Return a label with its existing tools; None without any.

        Another source's tool of this name keeps it.
        """
        tools = self._catalog.tools
        found = [(one, tools[one.tool]) for one in label.all if one.tool in tools]
        if name in self._naming.ours:
            found = [(one, tool) for one, tool in found if tool.source in OUR_SOURCES]
        known = [one for one, tool in found if one.fits(tool)]
        if not known or (name in tools and tools[name].source != tools[known[0].tool].source):
            return None
        return label if len(known) == len(label.all) else replace(known[0], instead=tuple(known[1:]))

    @cached_property
    def _by_tool(self) -> Mapping[str, str]:
        by_tool: dict[str, str] = {}
        for label, rename in self._by_label.items():
            if rename.tool == label or rename.tool not in by_tool:  # its own name comes first, if it keeps that
                by_tool[rename.tool] = label
        return by_tool

    @cached_property
    def _faces(self) -> Mapping[str, tuple[str, ...]]:
        """Names by tool, in the order of the profile, without spellings made for an API."""
        faces: dict[str, tuple[str, ...]] = {}
        for label, rename in self._by_label.items():
            is_spelling = label not in self._naming.names and self._by_tool[rename.tool] != label
            if not is_spelling and label not in self._taken:
                faces[rename.tool] = (*faces.get(rename.tool, ()), label)
        return faces


def _together(label: Rename, each: list[Tool], tools: list[Tool]) -> Mapping[str, Any]:
    """Return the schema of a name: that of the tool behind it or, if it may mean several, all their arguments.

    An argument is required where every tool behind the name requires it.
    """
    schema = each[0].input_schema
    for face in each[1:]:
        more = face.input_schema
        required = [name for name in schema.get("required", ()) if name in more.get("required", ())]
        properties = {**as_node(schema.get("properties")), **_new(schema, more)}
        schema = {**more, **schema, "properties": properties, "required": required}
    choosing = _choosing(label, tools)
    if not choosing:
        return schema
    return {**schema, "properties": {**as_node(schema.get("properties")), **choosing}}


def _new(schema: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    known = as_node(schema.get("properties"))
    return {name: node for name, node in as_node(more.get("properties")).items() if name not in known}


def _choosing(label: Rename, tools: list[Tool]) -> dict[str, Any]:
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
