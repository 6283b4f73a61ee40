"""Schema defaults: the values of absent arguments.

A plan is made once per schema and holds only the parts that lead to a default, so a schema without defaults costs
nothing. A default that does not have the type its own schema asks for (`default: null` for a string is common in the
wild, and means "none") is not filled in.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from .nodes import Node, alternatives, as_node, merged, resolve, types_of

__all__ = ["DefaultsPlan", "plan_defaults"]


def plan_defaults(root: Node) -> DefaultsPlan | None:
    """Return the plan of the defaults of `root`, None when it has none. Values must be JSON and at most 64 deep."""
    plan = _Planner(root).plan(root)
    useful = _leading_somewhere(plan)
    if plan not in useful:
        return None
    for known in useful:
        known.prune(useful)
    return plan


class DefaultsPlan:
    """The defaults at one place of a value, and the places below it that have some."""

    __slots__ = ("defaults", "extra", "items", "properties")

    def __init__(self) -> None:
        self.defaults: list[tuple[str, Any]] = []
        self.properties: dict[str, DefaultsPlan] = {}
        self.items: DefaultsPlan | None = None
        self.extra: DefaultsPlan | None = None

    def below(self) -> list[DefaultsPlan]:
        """Return the plans of the parts of a value."""
        return [plan for plan in (*self.properties.values(), self.items, self.extra) if plan is not None]

    def prune(self, useful: set[DefaultsPlan]) -> None:
        """Forget the parts without any default."""
        self.properties = {name: plan for name, plan in self.properties.items() if plan in useful}
        self.items = self.items if self.items in useful else None
        self.extra = self.extra if self.extra in useful else None

    def fill(self, value: Any) -> Any:
        """Return `value` with defaults filled in; the same object when there was nothing to fill."""
        if isinstance(value, Mapping):
            return self._fill_object(cast("Mapping[str, Any]", value))
        if self.items is not None and isinstance(value, list | tuple):
            old = cast("list[Any]", value)
            new = [self.items.fill(item) for item in old]
            return new if any(a is not b for a, b in zip(old, new, strict=True)) else old
        return value

    def _fill_object(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        changes: dict[str, Any] = {}
        for name, default in self.defaults:
            if name not in value:
                changes[name] = copy.deepcopy(default)
        for name, plan in self.properties.items():
            if name in value or name in changes:
                self._fill_part(plan, name, value, changes)
        if self.extra is not None:
            for name in value:
                if name not in self.properties:
                    self._fill_part(self.extra, name, value, changes)
        return {**value, **changes} if changes else value

    @staticmethod
    def _fill_part(plan: DefaultsPlan, name: str, value: Mapping[str, Any], changes: dict[str, Any]) -> None:
        old = changes[name] if name in changes else value[name]
        new = plan.fill(old)
        if new is not old:
            changes[name] = new

    def strip_nulls(self, value: Any) -> Any:
        """Return `value` without every null that `fill` would put there; the same object when nothing is removed.

        `fill` restores it exactly, provided that `value` is complete: `fill(value)` changes nothing.
        """
        if isinstance(value, Mapping):
            return self._strip_object(cast("Mapping[str, Any]", value))
        if self.items is not None and isinstance(value, list | tuple):
            old = cast("list[Any]", value)
            new = [self.items.strip_nulls(item) for item in old]
            return new if any(a is not b for a, b in zip(old, new, strict=True)) else old
        return value

    def _strip_object(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        nulls = {name for name, default in self.defaults if default is None and name in value and value[name] is None}
        kept = {name: self._strip_part(name, part) for name, part in value.items() if name not in nulls}
        return kept if nulls or any(part is not value[name] for name, part in kept.items()) else value

    def _strip_part(self, name: str, part: Any) -> Any:
        plan = self.properties.get(name, self.extra)
        return part if plan is None else plan.strip_nulls(part)


class _Planner:
    def __init__(self, root: Node) -> None:
        self._root = root
        self._known: dict[int, DefaultsPlan] = {}
        self._alive: list[Node] = []

    def plan(self, node: Node) -> DefaultsPlan:
        known = self._known.get(id(node))
        if known is not None:
            return known
        plan = self._known[id(node)] = DefaultsPlan()
        self._alive.append(node)
        for part in merged(node, self._root):
            self._add(plan, part)
            branch = self._only_container(part)
            if branch is not None:
                for inner in merged(branch, self._root):
                    self._add(plan, inner)
        return plan

    def _add(self, plan: DefaultsPlan, part: Node) -> None:
        for name, child in as_node(part.get("properties")).items():
            schema = as_node(child)
            if _usable_default(schema, self._root) and name not in dict(plan.defaults):
                plan.defaults.append((name, resolve(schema, self._root)["default"]))
            plan.properties.setdefault(name, self.plan(schema))
        if isinstance(part.get("items"), Mapping):
            plan.items = plan.items or self.plan(as_node(part["items"]))
        if isinstance(part.get("additionalProperties"), Mapping):
            plan.extra = plan.extra or self.plan(as_node(part["additionalProperties"]))

    def _only_container(self, part: Node) -> Node | None:
        """The one branch that can be an object or an array (`Model | None`); with two of them nothing is certain."""
        branches = [b for b in alternatives(part) if types_of(b, self._root) & {"object", "array"}]
        return branches[0] if len(branches) == 1 else None


def _usable_default(schema: Node, root: Node) -> bool:
    resolved = resolve(schema, root)
    if "default" not in resolved:
        return False
    default = resolved["default"]
    types = types_of(resolved, root)
    match default:
        case None:
            fits = "null" in types
        case bool():
            fits = "boolean" in types
        case int():
            fits = "integer" in types
        case float():
            fits = "number" in types or (default.is_integer() and "integer" in types)
        case str():
            fits = "string" in types
        case list():
            fits = "array" in types
        case _:
            fits = "object" in types
    options = resolved.get("enum")
    return fits and (not isinstance(options, list) or default in options)


def _leading_somewhere(plan: DefaultsPlan) -> set[DefaultsPlan]:
    """Every plan from which a default can be reached."""
    above: dict[DefaultsPlan, list[DefaultsPlan]] = {plan: []}
    stack = [plan]
    while stack:
        current = stack.pop()
        for child in current.below():
            if child not in above:
                above[child] = []
                stack.append(child)
            above[child].append(current)
    useful = {known for known in above if known.defaults}
    stack = list(useful)
    while stack:
        for parent in above[stack.pop()]:
            if parent not in useful:
                useful.add(parent)
                stack.append(parent)
    return useful
