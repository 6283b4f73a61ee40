"""`tool_help`: the tree of ops that one session may see, and the help at a path, readable for a catalog of any size.

  root        the groups, the contract of the meta-tools, the way from here to a call
  directory   the entities or the ops below a path; a large one is divided by the beginnings of its ops
  op          everything needed for a call: arguments, notes, examples, policy, on request the schema
  not_found   a result like the others, with the nearest paths

Answers are cached by catalog version, path, format, include_schemas, include_examples and the session's visible tools,
so that a session with fewer rights never gets the answer of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.tool import Tool
from .. import meta_tools
from ..base import VerbContext, VisibleCatalog, answer, with_absent_sources
from ..ops import group_of, parts_of
from .op_description import describe_op, summary_of
from .op_tree import ROOT, Tree, nearest_paths, normalized

__all__ = ["MAX_ITEMS", "ROOT", "run_help", "sample_op"]

MAX_ITEMS: Final = 66
"""Maximum items of one directory; a larger one is divided. No smaller than the alphabet of names: that always fits."""
_FLAT: Final = 24
"""Number of ops below a path up to which they are listed one by one, even of several entities."""
_NAMED: Final = 12
"""Entities or actions that a summary names."""
_SAMPLE: Final = "onto.task.update"
_WORD_END: Final = regex(r"[._-]|(?<=[a-z0-9])(?=[A-Z])")


async def run_help(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    """Carry out `tool_help`: from memory where the same was asked before."""
    options = {name: arguments[name] for name in ("format", "include_schemas", "include_examples")}
    path = normalized(arguments["path"])
    key = ("help", visible.catalog.version, path, *options.values(), visible.profile.name, *_seen(visible))
    kept = context.memory.get(key)
    if kept is None or kept[0] is not visible.profile:
        kept = context.memory[key] = (visible.profile, _help_on(visible, arguments["path"], **options))
    return answer(with_absent_sources(visible, kept[1]))


def _help_on(
    visible: VisibleCatalog,
    asked: str,
    *,
    format: str = "short",
    include_schemas: bool = False,
    include_examples: bool = True,
) -> dict[str, Any]:
    """Return the help on a path."""
    tree = Tree.of(visible)
    path = tree.find(visible, asked)
    head = {"path": path or normalized(asked), "format": format, "version": visible.catalog.version}
    if path in tree.ops:
        tool = tree.ops[path]
        shown = describe_op(visible, tool, full=format == "full", schemas=include_schemas, examples=include_examples)
        return {"type": "op", **head, **shown}
    if path == ROOT:
        return {"type": "directory", **head, **_root(visible, tree, full=format == "full", examples=include_examples)}
    if path:
        directory = _directory(visible, tree, path, full=format == "full", examples=include_examples)
        if include_schemas:
            directory["schemas"] = _schemas(visible, tree, path)
        return {"type": "directory", **head, **directory}
    if (reader := _reader(visible)) is not None and head["path"] == reader.name:
        shown = describe_op(visible, reader, full=format == "full", schemas=include_schemas, examples=include_examples)
        return {"type": "op", **head, **shown}
    return {"type": "not_found", **head, **_not_found(visible, asked)}


def _reader(visible: VisibleCatalog) -> Tool | None:
    """Return the meta-tool that reads long results, as the op that it is."""
    tools = meta_tools.definitions(visible.profile, meta_tools.VERBS)
    return next((tool for tool in tools if tool.op), None)


def _seen(visible: VisibleCatalog) -> tuple[object, ...]:
    """Return the session properties that decide which tools it may see."""
    session = visible.session
    disabled = (tuple(session.scope.disabled), tuple(session.scope.disabled_for_all))
    scope = (session.scope.allowed, session.scope.exact, session.scope.contexts, session.scope.provided)
    return (session.principal, session.instance, *scope, disabled)


def _root(visible: VisibleCatalog, tree: Tree, *, full: bool, examples: bool) -> dict[str, Any]:
    verbs = visible.profile.verbs
    shown: dict[str, Any] = {
        "groups": tree.groups,
        "items": [_group(visible, tree, group, full=full) for group in tree.groups],
        "command_contract": _contract(verbs),
        "workflow": list(_workflow(visible, tree)),
    }
    if examples:
        shown["examples"] = _examples(visible, tree.ops)
    return shown


def _group(visible: VisibleCatalog, tree: Tree, group: str, *, full: bool) -> dict[str, Any]:
    below = tree.below(group) or [group]
    entities = list(dict.fromkeys(parts_of(op)[1].partition(".")[0] for op in below))
    named = [entity for entity in entities if entity]
    listed = ", ".join(named if full else named[:_NAMED])
    more = "" if full or len(named) <= _NAMED else f" and {len(named) - _NAMED} more"
    words = [visible.profile.naming.categories.get(group, ""), f"({listed}{more})" if named else ""]
    about = " ".join(word for word in words if word)
    return {"name": group, "type": "group", "summary": _counted(len(below), about)}


def _contract(verbs: Mapping[str, str]) -> dict[str, Any]:
    helps, runs, batch = (verbs.get(verb, "") for verb in ("help", "exec", "batch"))
    contract: dict[str, Any] = {
        helps: {"required": [], "optional": ["path", "format", "include_examples", "include_schemas"]},
        runs: {
            "required": ["op", "args"],
            "optional": ["idempotency_key", "dry_run"],
            "critical_rules": [
                f"Never call {runs} without an op, nor a write without its args.",
                "Take ids from a list, search or get op; never guess one.",
                "The args that help lists are the only ones there are; null clears a field that may be null.",
            ],
        },
    }
    if batch:
        contract[batch] = {"required": ["ops"], "optional": ["mode"]}
    if "read" in verbs:
        contract[runs]["long_results"] = f'op "{verbs["read"]}" with {{id, offset}} reads on where a result was cut'
    return contract


def _workflow(visible: VisibleCatalog, tree: Tree) -> Iterator[str]:
    helps, runs = visible.profile.verbs.get("help", ""), visible.profile.verbs.get("exec", "")
    op = sample_op(tree)
    directory = op.rpartition(".")[0] or op
    yield f'1) {helps}({{"path": "{directory}"}}) lists the ops of a group or entity.'
    yield f'2) {helps}({{"path": "{op}"}}) tells the args of one op and which are required.'
    yield f'3) {runs}({{"op": "{op}", "args": {{…}}}}) runs it.'
    yield f"4) On an error, {helps} with the help_path it names, then once more with corrected args."


def sample_op(tree: Tree) -> str:
    """Return an op to show the way with: the seed's own, else a change of something, else the first; empty for none."""
    if _SAMPLE in tree.ops:
        return _SAMPLE
    return next((op for op in tree.ops if op.endswith(".update")), next(iter(tree.ops), ""))


def _examples(visible: VisibleCatalog, ops: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return example calls that look up an op and call one: the first that only reads, if any does."""
    verbs = visible.profile.verbs
    first = next((op for op, tool in ops.items() if tool.kind == "read"), next(iter(ops), ""))
    if not first:
        return []
    called = describe_op(visible, ops[first], full=False, schemas=False, examples=True)["example_call"]
    return [
        {"description": f"Read the args of {first}", verbs.get("help", ""): {"path": first, "include_schemas": True}},
        {"description": f"Call {first}", verbs.get("exec", ""): called},
    ]


def _directory(visible: VisibleCatalog, tree: Tree, path: str, *, full: bool, examples: bool) -> dict[str, Any]:
    below = tree.below(path)
    items = list(_items(tree, path, below, full=full))
    shown: dict[str, Any] = {"ops": len(below), "items": items}
    if more := tree.elsewhere(path):
        shown["see_also"] = more
    helps, runs = visible.profile.verbs.get("help", ""), visible.profile.verbs.get("exec", "")
    ops = [item["name"] for item in shown["items"] if item["type"] in ("op", "skill")]
    if ops:
        shown["next_step"] = f'{helps}({{"path": "<op>"}}) tells the args of an op; {runs} runs it.'
    else:
        shown["next_step"] = f'{helps}({{"path": "{items[0]["name"]}"}}) lists the ops below an entry.'
    if examples and ops:
        shown["examples"] = _examples(visible, {op: tree.ops[op] for op in ops})
    return shown


def _items(tree: Tree, path: str, below: list[str], *, full: bool) -> Iterator[dict[str, Any]]:
    """Yield the entries of a directory: its ops while they are few, else the entities, else how its ops begin."""
    if len(below) <= _FLAT:
        yield from (_op_item(tree, op, full=full) for op in below)
        return
    children: dict[str, list[str]] = {}
    for op in below:
        children.setdefault(_child(op, path), []).append(op)
    if len(children) > MAX_ITEMS:
        yield from _divided(tree, below, full=full)
        return
    for child, ops in children.items():
        if ops == [child]:
            yield _op_item(tree, child, full=full)
        else:
            name = child
            if child in tree.ops:  # both an op and a directory: the op has the path, the directory its children
                yield _op_item(tree, child, full=full)
                name, ops = f"{child}.*", [op for op in ops if op != child]
            yield {"name": name, "type": "entity", "summary": _counted(len(ops), _actions(child, ops, full=full))}


def _divided(tree: Tree, below: list[str], *, full: bool) -> Iterator[dict[str, Any]]:
    """Yield the ops of a large directory by how they go on, as paths that end in `*`."""
    for start, ops in _starts(below).items():
        if len(ops) == 1:
            yield _op_item(tree, ops[0], full=full)
        else:
            shown = ", ".join(op.rpartition(".")[2] for op in ops[:3])
            yield {"name": f"{start}*", "type": "prefix", "summary": _counted(len(ops), f"{shown} …")}


def _starts(below: list[str]) -> dict[str, list[str]]:
    """Return the ops by their next word, or by as many of their next letters as give few enough entries."""
    common = _common(min(below), max(below))
    by_word = _by_start(below, [_beginning(op, common) for op in below])
    if len(by_word) <= MAX_ITEMS:
        return by_word
    letters = 1
    while len({op[: common + letters + 1] for op in below}) <= MAX_ITEMS:
        letters += 1
    return _by_start(below, [op[: common + letters] for op in below])


def _common(first: str, last: str) -> int:
    """Return the length of the common beginning of two texts; of a sorted list, the first and the last suffice."""
    return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def _by_start(below: list[str], starts: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for op, start in zip(below, starts, strict=True):
        found.setdefault(start, []).append(op)
    return found


def _op_item(tree: Tree, op: str, *, full: bool) -> dict[str, Any]:
    tool = tree.ops[op]
    kind = "skill" if tool.capability.type == "SKILL" else "op"
    item: dict[str, Any] = {"name": op, "type": kind, "summary": summary_of(tool)}
    if full:
        item |= {"kind": tool.kind, "required_args": list(tool.input_schema.get("required") or ())}
    return item


def _child(op: str, path: str) -> str:
    """Return the entry of `path` under which `op` is found."""
    if path.endswith("*"):
        return op
    head = op[len(path) + 1 :].partition(".")[0]
    return f"{path}.{head}"


def _beginning(op: str, common: int) -> str:
    """Return `op` up to and with its next word after the letters that all have in common."""
    end = _WORD_END.search(op, common + 1)
    return op[: end.end()] if end else op


def _actions(entity: str, ops: list[str], *, full: bool) -> str:
    named = [op[len(entity) + 1 :] for op in ops]
    named = [name for name in named if name]
    more = "" if full or len(named) <= _NAMED else " …"
    return ", ".join(named if full else named[:_NAMED]) + more


def _counted(count: int, about: str) -> str:
    counted = "1 op" if count == 1 else f"{count:,} ops"
    return f"{counted}: {about}" if about else counted


def _schemas(visible: VisibleCatalog, tree: Tree, path: str) -> dict[str, Any]:
    """Return the schemas of the ops that a directory lists one by one."""
    listed = [op for op in tree.below(path) if len(tree.below(path)) <= _FLAT]
    return {op: visible.aliases.present(tree.ops[op]).input_schema for op in listed}


def _not_found(visible: VisibleCatalog, asked: str) -> dict[str, Any]:
    near = nearest_paths(visible, asked)
    helps = visible.profile.verbs.get("help", "")
    follow = f'{helps}({{"path": "{near[0] if near else ROOT}"}})'
    return {
        "message": f"Unknown path {asked[:200]!r}.",
        "nearest": near,
        "groups": list(dict.fromkeys(group_of(op) for op in Tree.of(visible).ops)),
        "next_step": f"{follow} is the nearest there is." if near else f"{follow} lists the groups.",
    }
