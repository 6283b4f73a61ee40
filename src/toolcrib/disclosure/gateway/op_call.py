"""The call that an op means: the tool, its own names of the arguments, and the list or search in place of a `get`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from ...core.call import Call, context_values
from ...core.tool import Tool
from ...errors import ToolFailure
from ..base import VisibleCatalog
from ..ops import parts_of
from .op_tree import nearest_paths


def read(visible: VisibleCatalog, call: Call) -> Call:
    """Return `call` with the name of the tool that its op means, and its arguments in the tool's words.

    Raises `ToolFailure` with the nearest ops when no tool has this op, and for one that is out of scope.
    """
    tool = _tool(visible, call.name)
    if tool is None:
        return call  # withheld, or of a server that is down: a later step gives the reason
    if not visible.session.admits(tool):  # the requested name, because the real one is out of scope too
        raise ToolFailure("not_in_scope", f"{call.name[:200]} is not in the scope of this session")
    read_call = _Reading.of(visible, call, tool)
    if visible.profile.options.get("fallback") and tool.kind == "read":
        read_call = _fallen_back(visible, read_call)
    tool, op = read_call.tool, visible.aliases.ops.of(read_call.tool)
    warnings = [*read_call.warnings]
    changes: dict[str, Any] = {}
    if call.route.verb and tool.kind == "read":
        if call.options.dry_run:
            changes["dry_run"] = False
            warnings.append("dry_run has no effect on a read: it ran")
        if call.options.idempotency_key:
            changes["idempotency_key"] = ""
            warnings.append("idempotency_key has no effect on a read")
    reading = {"op": call.name, "warnings": warnings, "fallback": read_call.fallback}
    asked = visible.aliases.rename_of(call.name)
    return call.evolve(
        name=call.name if asked is not None and asked.tool == tool.name else visible.aliases.name(tool),
        arguments=read_call.arguments,
        op=op,
        reading=reading,
        repairs=(*call.changes.repairs, *read_call.repairs),
        **changes,
    )


class _Reading(Struct, frozen=True, kw_only=True):
    """Partly parsed call."""

    tool: Tool
    arguments: Any
    repairs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fallback: Mapping[str, str] | None = None

    @classmethod
    def of(cls, visible: VisibleCatalog, call: Call, tool: Tool) -> _Reading:
        arguments, repairs = _in_own_words(visible, tool, call.arguments)
        return cls(tool=tool, arguments=arguments, repairs=repairs)


def _tool(visible: VisibleCatalog, asked: str) -> Tool | None:
    """Return the tool that an op, or a name in its place, means: exactly, by its name, at last by a spelling."""
    catalog, ops, label = visible.catalog, visible.aliases.ops, visible.aliases.rename_of(asked)
    name = ops.named(asked) or (label.tool if label else None)
    if name is not None:
        return catalog.tools[name]
    if asked in catalog.withheld:
        return None
    tool = catalog.find(asked)
    if tool is not None:
        return tool
    name = ops.spelled(asked)
    if name is not None:
        return catalog.tools[name]
    if visible.aliases.withheld_name(asked) in catalog.withheld or visible.down(asked):
        return None
    raise _no_op(visible, asked)


def _no_op(visible: VisibleCatalog, asked: str) -> ToolFailure:
    near = nearest_paths(visible, asked, ops_only=True)
    close = f"did you mean {', '.join(near)}? " if near else ""
    helps = visible.profile.verbs.get("help", "tool_help")
    return ToolFailure(
        "not_found",
        f"unknown op {asked[:200]!r}",
        hint=f'{close}{helps}({{"path": "root"}}) lists the groups',
        details={"nearest": near},
    )


def _in_own_words(visible: VisibleCatalog, tool: Tool, given: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the arguments under the tool's names, and a note for each that was renamed.

    An unknown name stands for the first argument that the tool has of those that the profile's option `arguments` lists
    for it; `{entity}` in it is the entity of the op.
    Names that stand for one argument with different values keep theirs: `validate` refuses them by their paths.
    """
    table = cast("Mapping[str, str | list[str]]", visible.profile.options.get("arguments") or {})
    if not table or not isinstance(given, dict):
        return given, ()
    sent = cast("dict[str, Any]", given)
    declared = _declared(visible.aliases.present(tool))
    entity = parts_of(visible.aliases.ops.of(tool))[1].rpartition(".")[2]
    meant: dict[str, str] = {}
    for name in sent:
        if name not in declared and name in table:
            may_be = [table[name]] if isinstance(table[name], str) else table[name]
            wanted = (str(ours).replace("{entity}", entity) for ours in may_be)
            if ours := next((ours for ours in wanted if ours in declared), None):
                meant[name] = ours
    if not meant:
        return sent, ()
    taken = {name: value for name, value in sent.items() if name not in meant}
    twice = {ours for name, ours in meant.items() if taken.setdefault(ours, sent[name]) != sent[name]}
    meant = {name: ours for name, ours in meant.items() if ours not in twice}
    kept = {name: value for name, value in sent.items() if name not in meant}
    notes = tuple(f"took {theirs} for {ours}" for theirs, ours in meant.items())
    return {**kept, **{ours: sent[name] for name, ours in meant.items()}}, notes


def _fallen_back(visible: VisibleCatalog, reading: _Reading) -> _Reading:
    """Return the list or the search that replaces a `get` without an id; any other call unchanged.

    For `get` of the group `onto` that lacks one id: a search where the call has a text, else a list.
    """
    ops = visible.aliases.ops
    op = ops.of(reading.tool)
    group, entity, action = parts_of(op)
    sent = cast("dict[str, Any]", reading.arguments) if isinstance(cast("object", reading.arguments), dict) else {}
    required = visible.aliases.present(reading.tool).input_schema.get("required") or ()
    missing = [name for name in required if name.endswith("_id") and sent.get(name) in (None, "")]
    filled = context_values(reading.tool, visible.session.defaults)
    missing = [name for name in missing if name not in filled]
    if (action, group) != ("get", "onto") or not entity or len(missing) != 1:
        return reading
    query = next((sent[name] for name in ("query", "search", "name", "title") if isinstance(sent.get(name), str)), "")
    for other in (["search"] if query else []) + ["list"]:
        tool = visible.find(ops.named(f"{group}.{entity}.{other}") or "")
        if tool is None or tool.kind != "read" or visible.session.is_disabled(tool.name):
            continue
        executed = ops.of(tool)
        declared = _declared(tool)
        arguments = {name: value for name, value in sent.items() if name in declared}
        asks = next((name for name in ("search", "query") if name in declared), "")
        if other == "search" and asks:
            arguments[asks] = query
        return _Reading(
            tool=tool,
            arguments=arguments,
            repairs=reading.repairs,
            warnings=(f"{op} needs {missing[0]}, which was not given: {executed} ran in its place",),
            fallback={
                "reason": "missing_required_arg",
                "required_arg": missing[0],
                "requested_op": op,
                "executed_op": executed,
            },
        )
    return reading


def _declared(tool: Tool) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", tool.input_schema.get("properties") or {})
