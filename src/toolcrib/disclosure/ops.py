"""Ops: dotted paths by which tools are asked for, `group.entity.action`, one a tool.

An op is what its source or the profile says, else it is made of the tool's name by the pattern of seed 001
(`create_onto_task` → `onto.task.create`), else `x.<source>.<tool>`. An op that two tools would have is nobody's: both
go by their source, whichever came first, so that a tool that arrives later never takes over what another one is
called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from ..catalog.naming import SEPARATOR, fold, portable
from ..core.tool import Tool

__all__ = ["GROUPS", "OpMap", "group_of", "parts_of"]

GROUPS: Final = ("onto", "util", "cal", "x")
"""The groups of seed 001, in its order; a source may name others, which follow."""

_PATTERN: Final = re.compile(r"(list|search|get|create|update|delete)_(onto_)?([a-z0-9_]+?)(?:_details)?")
_ELSEWHERE: Final = ("mcp", "openapi", "rest", "skill")
"""Origins whose tools go by their source: what two servers both call `create_issue` is not one thing."""
_PLURAL: Final = re.compile(r"(?<=[a-z]{2})(?:(ie)s|((?:s|x|ch|sh))es|(?<![suiw])s)$")


class OpMap:
    """The ops of one catalog's tools, both ways. Immutable; made once for a catalog and a profile."""

    def __init__(self, tools: Iterable[Tool], said: Mapping[str, str] | None = None) -> None:
        """`said` gives tools their op by catalog name or, where it is ours, by the name in their source."""
        self._tools = tuple(tools)
        self._by_tool: dict[str, str] = {}
        self._by_op: dict[str, str] = {}
        self._place(self._tools, said or {})

    def of(self, tool: Tool) -> str:
        """Return the op of a tool of the catalog; of another one, the name that it would have."""
        return self._by_tool.get(tool.name) or tool.op or _by_source(tool)

    def named(self, op: str) -> str | None:
        """Return the name of the tool that has exactly this op."""
        return self._by_op.get(op)

    def spelled(self, asked: str) -> str | None:
        """Return the name of the only tool that `asked` can mean.

        Known are the op in any case and with any separators (`onto_task_create`), without its group (`task.create`),
        with its last two parts turned (`create_task`), with a plural (`tasks.list`), and the seed's `x.misc.<tool>`.
        """
        return self._spelled.get(fold(asked)) or self._spelled.get(fold(_singular_parts(asked)))

    @cached_property
    def _spelled(self) -> Mapping[str, str]:
        return _spellings(self._tools, self._by_tool)

    def _place(self, tools: Sequence[Tool], said: Mapping[str, str]) -> None:
        """Settle first what was said, then what the pattern gives, then what is left, by source."""
        taken: set[str] = set()
        for wanted in (_said(tools, said), _derived(tools)):
            claims: dict[str, list[Tool]] = {}
            for tool, op in wanted:
                if tool.name not in self._by_tool and op not in taken:
                    claims.setdefault(op, []).append(tool)
            taken |= claims.keys()
            for op, claimants in claims.items():
                if len(claimants) == 1:
                    self._give(claimants[0], op)
        by_source: dict[str, list[Tool]] = {}
        for tool in tools:
            if tool.name not in self._by_tool:
                by_source.setdefault(_by_source(tool), []).append(tool)
        for op, claimants in by_source.items():
            for tool in claimants:
                alone = len(claimants) == 1 and op not in taken
                full = f"x.{_word(tool.source)}.{tool.name}"  # catalog names are unique
                self._give(tool, op if alone else full if full not in self._by_op else tool.name)

    def _give(self, tool: Tool, op: str) -> None:
        self._by_tool[tool.name] = op
        self._by_op[op] = tool.name


def group_of(op: str) -> str:
    """Return the first part of an op."""
    return op.partition(".")[0]


def parts_of(op: str) -> tuple[str, str, str]:
    """Return group, entity and action; `onto.search` has no entity, `onto.project.graph.get` has `project.graph`."""
    group, *entity, action = op.split(".") if "." in op else ("", op)
    return group, ".".join(entity), action


def _said(tools: Iterable[Tool], said: Mapping[str, str]) -> Iterator[tuple[Tool, str]]:
    for tool in tools:
        op = tool.op or said.get(tool.name) or (said.get(tool.local_name) if tool.origin not in _ELSEWHERE else None)
        if op:
            yield tool, str(op)


def _derived(tools: Iterable[Tool]) -> Iterator[tuple[Tool, str]]:
    for tool in tools:
        op = _by_pattern(tool)
        is_ours = tool.origin not in _ELSEWHERE or "_onto_" in tool.local_name
        if op and is_ours:
            yield tool, op


def _by_pattern(tool: Tool) -> str:
    match = _PATTERN.fullmatch(tool.local_name)
    if match is None:
        return ""
    action, _, noun = match.groups()
    entity = _singular(noun) if action in ("list", "search") else noun
    return f"onto.{entity}.{action}"


def _by_source(tool: Tool) -> str:
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
    """Return what is unambiguous; an op itself always means its own tool."""
    meant: dict[str, str] = {}
    loose: dict[str, str] = {}
    """Spelling → the tool; empty for one that could mean several."""
    for tool in tools:
        op = ops[tool.name]
        meant[fold(op)] = tool.name
        for spelling in _loosely(tool, op):
            key = fold(spelling)
            loose[key] = tool.name if loose.get(key, tool.name) == tool.name else ""
    return {**{spelling: name for spelling, name in loose.items() if name}, **meant}


def _loosely(tool: Tool, op: str) -> Iterator[str]:
    group, entity, action = parts_of(op)
    yield f"x.misc.{tool.local_name}"
    if group != "x":
        yield f"x.{tool.source}.{tool.name.removeprefix(tool.source + SEPARATOR)}"
    if pattern := _by_pattern(tool):
        yield pattern
    if entity and group != "x":
        yield f"{entity}.{action}"
        yield f"{action}.{group}.{entity}"
        yield f"{action}.{entity}"
