"""Other names of tools in a profile, each with the translation of its calls.

`Rename` is one name: names of arguments, also inside objects in lists, other spellings of values, fixed values and
defaults. Where a seed has one tool for two of ours, the arguments decide which of them runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard, cast

from msgspec import Struct, field

from ..core.json import dumps
from ..core.schema.nodes import Node, alternatives, as_node, properties_of, resolve
from ..core.tool import Tool
from ..errors import ToolFailure

_NEGATED: Final = "not "
"""Prefix of a flag's name: the alias has the opposite meaning."""
_PROJECT_OF: Final = "project of "
"""Prefix of a path's name: the alias is the id of the project in whose workspace the path begins."""


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
        members = _argument_names(tool.input_schema)
        named = (*map(_without_prefix, self.args.values()), *self.values)
        own = tool.input_schema.get("properties", {}).keys()
        return all(name in members for name in named) and {*self.fixed, *self.defaults, *self.at_most} <= own

    def choose(self, given: Mapping[str, Any]) -> Rename:
        """Return the tool that these arguments choose. Raises `ToolFailure` for a word that chooses none."""
        for name in self.when:
            known = [one.when[name] for one in self.all if name in one.when]
            if name in given and given[name] not in known:
                words = ", ".join(dumps(value).decode() for value in known)
                raise ToolFailure("invalid_arguments", f"{name}: must be one of {words}")
        return next((one for one in self.instead if one._is_chosen_by(given)), self)

    def _is_chosen_by(self, given: Mapping[str, Any]) -> bool:
        if self.given:
            return self.given in given
        return bool(self.when) and all(given.get(name) == value for name, value in self.when.items())

    def arguments(self, given: Mapping[str, Any], filled: Collection[str] = ()) -> dict[str, Any]:
        """Return the tool's arguments for arguments in the profile's words.

        `filled` names arguments that have a value without a default of the profile.

        Raises `ToolFailure("invalid_arguments")` for two names of one argument with different values, and for one of
        `required` that is missing.
        """
        own = dict(self._in_tool_words(given, ""))
        if missing := [self._profile_names(name)[0] for name in self.required if name not in own]:
            raise ToolFailure("invalid_arguments", f"{missing[0]}: is required")
        own |= {name: most for name, most in self.at_most.items() if _exceeds(own.get(name), most)}
        defaults = {name: value for name, value in self.defaults.items() if name not in filled}
        return {**defaults, **own, **self.fixed}

    def _in_tool_words(self, given: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
        """Yield arguments, or members of an object in the list `above`, in the tool's words."""
        taken: dict[str, tuple[str, Any]] = {}
        projects: dict[str, Any] = {}
        for name, value in given.items():
            if not above and (name in self.unused or name in self.when):
                continue
            ours = self.args.get(f"{above}{name}", f"{above}{name}")
            bare = _without_prefix(ours).removeprefix(above)
            if ours.startswith(_PROJECT_OF):
                projects |= {bare: value} if value else {}
                continue
            value = self._value(value, f"{above}{bare}", is_opposite=ours.startswith(_NEGATED))
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
        return [dict(self._in_tool_words(one, above)) if _is_object(one) else one for one in items]

    def _has_members(self, ours: str) -> bool:
        return any(name.startswith(f"{ours}.") for name in (*self.args, *self.values))

    def notes(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return notes for the caller on arguments without effect here, and on numbers that are too large."""
        unused = (f"{name} has no effect here: {why}" for name, why in self.unused.items() if given.get(name))
        named = ((self._profile_names(name)[0], most) for name, most in self.at_most.items())
        return (*unused, *(f"{name} is {most} at most" for name, most in named if _exceeds(given.get(name), most)))

    def schema(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the tool's schema in the profile's words: arguments renamed, fixed ones removed, its own defaults."""
        if self.is_bare:
            return own
        given = {*self.fixed, *self.defaults}
        needed = dict.fromkeys((*own.get("required", ()), *self.required))
        required = [self._profile_names(name)[0] for name in needed if name not in given]
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
            for theirs in self._profile_names(f"{above}{name}"):
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
        if self.args.get(theirs, "").startswith(_PROJECT_OF):
            return {"type": "string", "description": "Id of the project in whose workspace it is."}
        if self.args.get(theirs, "").startswith(_NEGATED):
            shown["description"] = f"False: {_lower_first(shown.get('description', ours))}"
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
        required = [
            name for name in inner.get("required", ()) if self._profile_names(f"{above}{name}") == [f"{above}{name}"]
        ]
        return {**inner, "properties": members, "required": required}

    def _profile_names(self, ours: str) -> Sequence[str]:
        """Return the profile's names of one argument; its own where the profile has none."""
        return [name for name, one in self.args.items() if _without_prefix(one) == ours] or [ours]

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
            theirs = self._profile_names(ours)[0]
            words = {theirs_: word for word, theirs_ in self.values.get(ours, {}).items()}
            if self.args.get(theirs, "").startswith(_NEGATED):
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


def in_profile_words(text: str, names: Mapping[str, Rename], called: str = "") -> str:
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


def _without_prefix(name: str) -> str:
    return name.removeprefix(_NEGATED).removeprefix(_PROJECT_OF)


def _lower_first(text: str) -> str:
    return f"{text[:1].lower()}{text[1:]}"


def _argument_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the arguments, and of the members of objects in lists: `list.member`."""
    own = properties_of(schema, schema)
    inner = (
        f"{name}.{member}"
        for name, node in own.items()
        for item in (as_node(node.get("items")), *alternatives(as_node(node.get("items"))))
        for member in properties_of(item, schema)
    )
    return frozenset((*own, *inner))
