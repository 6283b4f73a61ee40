"""Ops: dotted paths by which tools are called, `group.entity.action`, one a tool.

A user's tool has the op that it declares or that the profile gives it, else one made of its name by the pattern of seed
001 (`create_onto_task` → `onto.task.create`), else `x.<source>.<tool>`. Built-in tools never get an op from their name:
they declare it or go by their source.

Where two tools claim one op, the claims are settled in this order, the earlier tool of the catalog first: declared by a
user's tool; name with `_onto_`; any other name of the pattern; name of a server's tool with `_onto_`; declared by a
built-in tool. Two servers whose tools only have the same name both lose the op, so that a server cannot take over the
calls of another one. A tool that lost an op goes by its source, and `OpMap.lost` lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct

from ..catalog.catalog import BUILTIN_SOURCES
from ..catalog.names import SEPARATOR, portable
from ..core.patterns import regex
from ..core.similar import fold
from ..core.tool import Tool

GROUPS: Final = ("onto", "util", "cal", "x")
"""The groups of seed 001, in its order; a source may name others, which follow."""

_OP_NAME: Final = regex(r"(list|search|get|create|update|delete)_(onto_)?([a-z0-9_]+?)(?:_details)?")
_FOREIGN_ORIGINS: Final = ("mcp", "openapi", "rest", "skill")
"""Origins whose tools go by their source: what two servers both call `create_issue` is not one thing."""
_PLURAL: Final = regex(r"(?<=[a-z]{2})(?:(ie)s|((?:s|x|ch|sh))es|(?<![suiw])s)$")


class LostOp(Struct, frozen=True, kw_only=True):
    """An op that a tool claims and another one has."""

    op: str
    tool: Tool
    winner: Tool | None = None
    """None where several servers' tools have the same name, so that none of them has the op."""


class OpMap:
    """The ops of one catalog's tools, both ways. Immutable; made once for a catalog and a profile."""

    def __init__(
        self,
        tools: Iterable[Tool],
        given: Mapping[str, str] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """`aliases` are the ops of tools by catalog name, before those that they declare themselves.

        `given` assigns an op to tools that have none yet: by catalog name or, for tools that no server brings, by the
        name in their source.
        """
        self._tools = {tool.name: tool for tool in tools}
        self._by_tool: dict[str, str] = {}
        self._by_op: dict[str, str] = {}
        self._lost: dict[tuple[str, str], LostOp] = {}
        self._place(given or {}, aliases or {})

    @property
    def lost(self) -> tuple[LostOp, ...]:
        """The ops that tools claim and do not have, in the order of the claims."""
        return tuple(self._lost.values())

    def of(self, tool: Tool) -> str:
        """Return the op of a tool of the catalog; of another one, the name that it would have."""
        return self._by_tool.get(tool.name) or tool.op or _op_from_source(tool)

    def named(self, op: str) -> str | None:
        """Return the name of the tool that has exactly this op."""
        return self._by_op.get(op)

    def spelled(self, asked: str) -> str | None:
        """Return the name of the only tool that `asked` can mean.

        Known are the op in any case and with any separators (`onto_task_create`), without its group (`task.create`),
        with its last two parts turned (`create_task`), with a plural (`tasks.list`), and the seed's `x.misc.<tool>`.
        """
        return self._name_by_spelling.get(fold(asked)) or self._name_by_spelling.get(fold(_singular_parts(asked)))

    @cached_property
    def _name_by_spelling(self) -> Mapping[str, str]:
        return _spellings(self._tools.values(), self._by_tool)

    def _place(self, given: Mapping[str, str], aliases: Mapping[str, str]) -> None:
        """Settle the claims, the strongest first, then name the tools that have no op by their source.

        Every tool has an op in the end, and no two the same: those without a claim are `x.<source>.<tool>`, at last
        their name.
        """
        users = [tool for tool in self._tools.values() if tool.source not in BUILTIN_SOURCES]
        guests = [tool for tool in self._tools.values() if tool.source in BUILTIN_SOURCES]
        local = [tool for tool in users if tool.origin not in _FOREIGN_ORIGINS]
        remote = [tool for tool in users if tool.origin in _FOREIGN_ORIGINS]
        self._claim(_declared_ops(users, aliases))
        self._claim(_profile_ops(users, given))
        self._claim(_derived_ops(local, is_marked=True))
        self._claim(_derived_ops(local, is_marked=False))
        self._claim_unambiguous(_derived_ops(remote, is_marked=True))
        self._claim(_profile_ops(guests, given))  # a profile renames a built-in, overriding the op that it declares
        self._claim(_declared_ops(guests, aliases))
        by_source: dict[str, list[Tool]] = {}
        for tool in self._tools.values():
            if tool.name not in self._by_tool:
                by_source.setdefault(_op_from_source(tool), []).append(tool)
        for op, claimants in by_source.items():
            for tool in claimants:
                alone = len(claimants) == 1 and op not in self._by_op
                full = f"x.{_word(tool.source)}.{tool.name}"  # catalog names are unique
                self._assign(tool, op if alone else full if full not in self._by_op else tool.name)

    def _claim(self, claims: Iterable[tuple[Tool, str]]) -> None:
        """Give each op to the first tool that claims it. A tool may claim several, the best first.

        A tool that has an op already claims no other.
        """
        for tool, op in claims:
            if tool.name in self._by_tool:
                continue
            if op not in self._by_op:
                self._assign(tool, op)
                continue
            winner = self._tools[self._by_op[op]]
            self._lost.setdefault((tool.name, op), LostOp(op=op, tool=tool, winner=winner))

    def _claim_unambiguous(self, claims: Iterable[tuple[Tool, str]]) -> None:
        """Give each op to the only tool that claims it; several claimants all lose it."""
        claimants: dict[str, list[Tool]] = {}
        for tool, op in claims:
            if tool.name not in self._by_tool:
                claimants.setdefault(op, []).append(tool)
        for op, tools in claimants.items():
            if len(tools) == 1 or op in self._by_op:
                self._claim((tool, op) for tool in tools)
            else:
                self._lost.update({(tool.name, op): LostOp(op=op, tool=tool) for tool in tools})

    def _assign(self, tool: Tool, op: str) -> None:
        self._by_tool[tool.name] = op
        self._by_op[op] = tool.name


def group_of(op: str) -> str:
    """Return the first part of an op."""
    return op.partition(".")[0]


def parts_of(op: str) -> tuple[str, str, str]:
    """Return group, entity and action; `onto.search` has no entity, `onto.project.graph.get` has `project.graph`."""
    group, *entity, action = op.split(".") if "." in op else ("", op)
    return group, ".".join(entity), action


def _declared_ops(tools: Iterable[Tool], aliases: Mapping[str, str]) -> Iterator[tuple[Tool, str]]:
    """Yield the op of the profile's alias and the one that the tool declares, the better first."""
    for tool in tools:
        for op in dict.fromkeys((aliases.get(tool.name, ""), tool.op)):
            if op:
                yield tool, op


def _profile_ops(tools: Iterable[Tool], given: Mapping[str, str]) -> Iterator[tuple[Tool, str]]:
    """Yield the ops of the profile's table, in its order."""
    order = {name: place for place, name in enumerate(given)}
    claims: list[tuple[int, Tool, str]] = []
    for tool in tools if given else ():
        name = tool.name if tool.name in given or tool.origin in _FOREIGN_ORIGINS else tool.local_name
        if given.get(name):
            claims.append((order[name], tool, str(given[name])))
    for _, tool, op in sorted(claims, key=lambda claim: claim[0]):
        yield tool, op


def _derived_ops(tools: Iterable[Tool], *, is_marked: bool) -> Iterator[tuple[Tool, str]]:
    """Yield the ops derived from the names of tools; `is_marked` chooses the names with `_onto_` or the others."""
    for tool in tools:
        if ("_onto_" in tool.local_name) == is_marked and (op := _op_from_name(tool)):
            yield tool, op


def _op_from_name(tool: Tool) -> str:
    match = _OP_NAME.fullmatch(tool.local_name)
    if match is None:
        return ""
    action, _, noun = match.groups()
    entity = _singular(noun) if action in ("list", "search") else noun
    return f"onto.{entity}.{action}"


def _op_from_source(tool: Tool) -> str:
    return f"x.{_word(tool.source)}.{_word(tool.local_name)}"


def _word(name: str) -> str:
    return portable(name).strip("_") or "_"


def _singular(noun: str) -> str:
    """`tasks` → `task`, `entities` → `entity`, `boxes` → `box`; `status` stays."""
    if noun.endswith(("series", "species")):
        return noun
    return _PLURAL.sub(lambda found: "y" if found[1] else found[2] or "", noun)


def _singular_parts(asked: str) -> str:
    return ".".join(_singular(part) for part in re.split(r"[^A-Za-z0-9]+", asked.lower()))


def _spellings(tools: Iterable[Tool], ops: Mapping[str, str]) -> dict[str, str]:
    """Return the unambiguous spellings; an op itself always means its own tool."""
    meant: dict[str, str] = {}
    loose: dict[str, str] = {}
    """Spelling → the tool; empty for one that could mean several."""
    for tool in tools:
        op = ops[tool.name]
        meant[fold(op)] = tool.name
        for spelling in _loose_spellings(tool, op):
            key = fold(spelling)
            loose[key] = tool.name if loose.get(key, tool.name) == tool.name else ""
    return {**{spelling: name for spelling, name in loose.items() if name}, **meant}


def _loose_spellings(tool: Tool, op: str) -> Iterator[str]:
    group, entity, action = parts_of(op)
    yield f"x.misc.{tool.local_name}"
    yield f"x.{tool.source}.{tool.name.removeprefix(tool.source + SEPARATOR)}"
    if tool.source not in BUILTIN_SOURCES and (pattern := _op_from_name(tool)):
        yield pattern
    if entity and group != "x":
        yield f"{entity}.{action}"
        yield f"{action}.{group}.{entity}"
        yield f"{action}.{entity}"
