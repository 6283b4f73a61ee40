"""Seed 001: three meta-tools before all others. Help goes from groups to one op, exec runs it, batch does both.

The view is these three, and instructions with the present contents of the catalog.

`tool_exec` becomes the call of the real tool; nothing runs here. `unwrap` accepts the meta-tool's own arguments (op,
args, idempotency_key, dry_run) in every shape that models send; `read` finds the tool of the op, gives arguments the
tool's own names, and notes options without effect on a read.

`tool_batch`: several helps and calls in one round trip, each through the pipeline.

    tool_exec {"op": "onto.task.create", "args": {…}}
      unwrap   Unwrapped(name=op, arguments, options)       without the catalog: shapes alone
      read     op → tool; argument names, fallback           with the catalog, in `resolve`
      then the call is one of the real tool, and the envelope `gateway` wraps its result
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ...core.call import Call, context_values
from ...core.json import read_json
from ...core.patterns import regex
from ...core.result import ToolError, ToolResult
from ...core.schema.repair import WRAPPERS
from ...core.tool import Annotations, Tool
from ...errors import ToolFailure
from .. import meta_tools
from ..base import Strategy, Unwrapped, Verb, VerbContext, View, VisibleCatalog, answer, as_object
from ..meta_tools import SOURCE
from ..ops import parts_of
from .help import run_help, sample_op
from .op_tree import Tree, nearest_paths

__all__ = ["MAX_KEY", "MAX_OPS", "STRATEGY", "gateway", "read", "run_batch", "unwrap"]

MAX_KEY: Final = 255
"""Characters of an idempotency key."""

_OPS: Final = ("op", "operation", "tool", "tool_name", "name", "path")
_OWN: Final = ("idempotency_key", "dry_run")
_NOISE: Final = "\"'`.,;: \t\r\n"
_CALLED: Final = regex(r"\s*tool_exec\s*\(\s*")
_REST: Final = regex(r"[\s({<,\"'`].*", re.DOTALL)
_AROUND: Final = regex(r"[^\w./-]")
_DOTTED: Final = regex(r"[A-Za-z]\w*(?:\.[\w-]+)+")
_ARGUMENT: Final = regex(r"[({]\s*[^\s(){}]")
"""An argument behind an op, in the notation of a call or of an object."""
_BOOLEANS: Final = {"true": True, "false": False}

MAX_OPS: Final = 50
"""Entries of one batch."""

_GROUPS_NAMED: Final = 8
_ENTITIES_NAMED: Final = 12
"""Of one group; instructions must not grow with the catalog."""

_BATCH_SECONDS: Final = 600.0
"""Each call inside has its own time; the whole has the longest that a call may take."""

_PATH: Final = {
    "type": "string",
    "default": "root",
    "description": '"root", a group, an entity or an exact op, as an earlier answer names it.',
}
_FORMAT: Final = {"type": "string", "enum": ["short", "full"], "default": "short"}
_EXAMPLES: Final = {"type": "boolean", "default": True}
_SCHEMAS: Final = {"type": "boolean", "default": False, "description": "Add the JSON schemas."}
_OP: Final = {"type": "string", "description": "Exact op, from {help}."}
_ARGS: Final = {"type": "object", "description": "The op's own arguments."}
_KEY: Final = {
    "type": "string",
    "maxLength": MAX_KEY,
    "description": "A write with the same key and arguments runs once.",
}
_DRY_RUN: Final = {"type": "boolean", "default": False, "description": "Tell what a write would do, change nothing."}

_EXEC: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"op": _OP, "args": _ARGS, "idempotency_key": _KEY, "dry_run": _DRY_RUN},
    "required": ["op", "args"],
}

_ENTRY: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["help", "exec"]},
        "path": {"type": "string"},
        "format": {"type": "string", "enum": ["short", "full"]},
        "include_examples": {"type": "boolean"},
        "include_schemas": {"type": "boolean"},
        "op": {"type": "string"},
        "args": {"type": "object"},
        "idempotency_key": {"type": "string", "maxLength": MAX_KEY},
        "dry_run": {"type": "boolean"},
    },
}


def unwrap(arguments: Any, shown: str) -> Unwrapped:
    """Return the call behind the arguments of `tool_exec`.

    Accepted: an object or JSON text of one, the whole wrapped in `args` or the like, the tool's arguments as an object,
    as JSON text (also encoded twice) or flat beside `op`, another word for `op`, and an op with quotes, brackets or
    text around it. Raises `ToolFailure` with field errors for anything else.
    """
    given = _unwrapped(_object(arguments) or {})
    whole = _object(given.get("op")) or {}
    if isinstance(whole.get("op"), str):
        given = {**given, **whole}
    key, op = _op(given)
    if not op:
        raise _wrong(shown, [_field("op", "required", "op is required: the op to run")])
    if not given.get("args"):
        given = _with_args(shown, given, given[key].partition(op)[2])
    rest = {name: value for name, value in given.items() if name != key}
    options, wrong = _options(rest)
    if wrong:
        raise _wrong(shown, wrong)
    inner = _inner({name: value for name, value in rest.items() if name not in options})
    return Unwrapped(name=op, arguments=inner, options={name: value for name, value in options.items() if value})


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
    tool, op = read_call.tool, visible.labels.ops.of(read_call.tool)
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
    asked = visible.labels.real(call.name)
    return call.evolve(
        name=call.name if asked is not None and asked.tool == tool.name else visible.labels.name(tool),
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
    catalog, ops, label = visible.catalog, visible.labels.ops, visible.labels.real(asked)
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
    if visible.labels.withheld(asked) in catalog.withheld or visible.down(asked):
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
    declared = _declared(visible.labels.shown(tool))
    entity = parts_of(visible.labels.ops.of(tool))[1].rpartition(".")[2]
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
    ops = visible.labels.ops
    op = ops.of(reading.tool)
    group, entity, action = parts_of(op)
    sent = cast("dict[str, Any]", reading.arguments) if isinstance(cast("object", reading.arguments), dict) else {}
    required = visible.labels.shown(reading.tool).input_schema.get("required") or ()
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


def _op(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key that holds the op, and the op without surrounding text."""
    for key in ("op",) if isinstance(given.get("op"), str) else _OPS:
        value = given.get(key)
        if isinstance(value, str) and (op := _clean(value)):
            return key, op
    return "", ""


def _clean(text: str) -> str:
    """Return the op without what models write around it: quotes, brackets, a prefix, a sentence."""
    text = text.strip(_NOISE)
    inside = _DOTTED.search(text) if _AROUND.search(text) else None
    if inside is not None:
        return inside[0]
    op = _CALLED.sub("", text.strip(_NOISE)).removeprefix("op:").strip(_NOISE)
    return _REST.sub("", op).strip(_NOISE)


def _with_args(shown: str, given: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the call with the arguments that the text behind its op holds; unreadable ones raise `ToolFailure`."""
    bracket = _ARGUMENT.search(text)
    if bracket is None:
        return dict(given)
    first, last = text.find("{"), text.rfind("}")
    ends = (last + 1, last) if 0 <= first < last else ()
    found = next((one for end in ends if (one := _object(text[first:end])) is not None), None)
    if found is None:
        raise _wrong(
            shown, [_field("op", "format", f"op holds more than an op: put {text.strip(_NOISE)[:80]} into args")]
        )
    return {**given, "args": found}


def _options(rest: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the options of the call itself, and their errors; `null` counts as not set."""
    options: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []
    if "dry_run" in rest:
        flag = rest["dry_run"]
        flag = _BOOLEANS.get(flag.strip().lower(), flag) if isinstance(flag, str) else flag
        if not isinstance(flag, bool | None):
            wrong.append(_field("dry_run", "type", "dry_run must be true or false"))
        options["dry_run"] = flag
    if "idempotency_key" in rest:
        key = rest["idempotency_key"]
        if not isinstance(key, str | None) or len(key or "") > MAX_KEY:
            message = f"idempotency_key must be text of at most {MAX_KEY} characters"
            wrong.append(_field("idempotency_key", "type", message))
        options["idempotency_key"] = key
    return options, wrong


def _inner(rest: dict[str, Any]) -> Any:
    """Return the tool's arguments: those under `args`, and those flat beside it."""
    if "args" in rest:
        wrapper = "args"
    else:
        wrapper = next((name for name in WRAPPERS if name in rest and _object(rest[name]) is not None), "")
    if not wrapper:
        return rest
    flat = {name: value for name, value in rest.items() if name != wrapper}
    inner = rest[wrapper]
    found = {} if inner is None else _object(inner)
    if found is None:
        return inner if not flat else {**flat, wrapper: inner}  # the schema check reports the defect
    return {**found, **flat}


def _object(value: Any) -> dict[str, Any] | None:
    """Return an object, or the one that a text holds, also encoded twice; None for anything else."""
    for _ in range(2):
        if isinstance(value, str):
            try:
                value = read_json(value, strict=True)
            except ValueError:
                return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _unwrapped(given: dict[str, Any]) -> dict[str, Any]:
    """Take the whole call out of a wrapper: the only key, or one beside nothing but options."""
    wrappers = [name for name in given if name in WRAPPERS]
    if len(wrappers) != 1 or any(name not in _OWN for name in given if name not in wrappers):
        return given
    inner = _object(given[wrappers[0]]) or {}
    if not any(isinstance(inner.get(name), str) for name in _OPS[:4]):
        return given
    return {**{name: value for name, value in given.items() if name in _OWN}, **inner}


def _field(path: str, keyword: str, message: str) -> dict[str, Any]:
    return {"path": path, "keyword": keyword, "message": message}


def _wrong(shown: str, fields: list[dict[str, Any]]) -> ToolFailure:
    return ToolFailure(
        "invalid_arguments",
        f"{shown} did not run: {'; '.join(str(field['message']) for field in fields)}",
        hint=f'for example {shown}({{"op": "<group>.<entity>.<action>", "args": {{}}}})',
        details={"field_errors": fields},
    )


async def run_batch(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    """Run `tool_batch`: one result an entry, in the order of the entries.

    `sequential` starts an entry when the one before has ended, `parallel` all at once, up to the profile's limit. A
    failed entry leaves the others alone, and makes the whole a failure that carries all results.

    Entries are calls of their own, decided and recorded one by one; the batch itself needs no approval.
    """
    entries = cast("list[Mapping[str, Any]]", arguments["ops"])
    results: dict[int, dict[str, Any]] = {}
    trusts: set[str] = set()
    at_once = visible.profile.parallel or math.inf
    places = anyio.CapacityLimiter(1 if arguments["mode"] == "sequential" else at_once)

    async def one(number: int, entry: Mapping[str, Any]) -> None:
        async with places:
            results[number], trust = await _run(visible, entry, context)
            trusts.add(trust)

    if arguments["mode"] == "sequential":
        for number, entry in enumerate(entries):
            await one(number, entry)
    else:
        async with anyio.create_task_group() as group:
            for number, entry in enumerate(entries):
                group.start_soon(one, number, entry)
    summed = _summed([results[number] for number in range(len(entries))])
    return summed.with_meta(source=SOURCE, trust="untrusted") if "untrusted" in trusts else summed


def _summed(results: list[dict[str, Any]]) -> ToolResult:
    failed = sum(not result["ok"] for result in results)
    summary = {"total": len(results), "succeeded": len(results) - failed, "failed": failed}
    outcome = answer({"ok": not failed, "summary": summary, "results": results})
    if not failed:
        return outcome
    error = ToolError(code="tool_error", message=f"{failed} of {len(results)} ops failed", details=summary)
    return replace(outcome, error=error)


async def _run(visible: VisibleCatalog, entry: Mapping[str, Any], context: VerbContext) -> tuple[dict[str, Any], str]:
    """Return the outcome of an entry, and its trust."""
    verbs = visible.profile.verbs
    values = {name: value for name, value in entry.items() if name != "type"}
    type = entry.get("type") or ("help" if "path" in entry else "exec")  # models leave it out
    result = await context.run(verbs[type], values)
    trust = str(result.meta.get("trust", ""))
    if type == "help":
        body, path = _body(result), entry.get("path", "")
        if result.error is None:
            return {"type": "help", "path": path, "ok": True, "result": body}, trust
        return {"type": "help", "path": path, "ok": False, "error": body.get("error", body)}, trust
    if result.input_required is not None:
        message = "the tool asks for input first: run it alone"
        op = _op(values)[1] or "root"
        error = {"code": "INTERNAL", "message": message, "help_path": op}
        return {"type": "exec", "op": op, "ok": False, "error": error}, trust
    return {"type": "exec", **_body(result)}, trust


def _body(result: ToolResult) -> dict[str, Any]:
    """Return a result in the words of the envelope; one that was too long for them as the text that is left of it."""
    body = result.structured_content
    if isinstance(body, dict):
        return cast("dict[str, Any]", body)
    return {"ok": result.error is None, "result": result.text}


def gateway(visible: VisibleCatalog) -> View:
    """Return the meta-tools, and no other tool for any catalog; `read` is an op like any other."""
    return View(tools=meta_tools.definitions(visible.profile, _VERBS), instructions=_instructions(visible))


def _instructions(visible: VisibleCatalog) -> str:
    """Return the profile's instructions, filled with an existing path and the existing groups."""
    tree = Tree.of(visible)
    if not tree.ops:
        return "There are no tools."
    op = sample_op(tree)
    words = {**visible.profile.verbs, "op": op, "entity": op.rpartition(".")[0] or op}
    text = visible.profile.instructions
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    listed = "; ".join(_group(tree, group) for group in tree.groups[:_GROUPS_NAMED])
    more = len(tree.groups) - _GROUPS_NAMED
    return f"{text.strip()}\n{len(tree.ops):,} ops: {listed}{f'; {more} more groups' if more > 0 else ''}."


def _group(tree: Tree, group: str) -> str:
    below = tree.below(group)
    entities = list(dict.fromkeys(parts_of(op)[1].partition(".")[0] for op in below))
    named = [entity for entity in entities if entity][:_ENTITIES_NAMED]
    more = ", …" if len(entities) > len(named) + 1 else ""
    return f"{group} ({', '.join(named)}{more})" if named else group


_VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {
        "help": Verb(
            description="What tools there are and how to call them: groups, entities, ops, the args of one op.",
            input_schema=as_object(
                [], path=_PATH, format=_FORMAT, include_examples=_EXAMPLES, include_schemas=_SCHEMAS
            ),
            run=run_help,
        ),
        "exec": Verb(
            description="Run an op that {help} names. An error names the help_path that tells what was wrong.",
            input_schema=_EXEC,
            annotations=Annotations(),
            unwrap=unwrap,
        ),
        "batch": Verb(
            description="Several {help} (type help) and {exec} (type exec) calls at once; results in their order.",
            input_schema=as_object(
                ["ops"],
                ops={"type": "array", "items": _ENTRY, "minItems": 1, "maxItems": MAX_OPS},
                mode={"type": "string", "enum": ["sequential", "parallel"], "default": "sequential"},
            ),
            example={"ops": [{"type": "help", "path": "root"}]},
            annotations=Annotations(),
            run=run_batch,
            timeout=_BATCH_SECONDS,
        ),
    }
)

STRATEGY = Strategy(
    view=gateway,
    verbs=_VERBS,
    read=read,
    options={"arguments": dict, "fallback": bool, "ops": dict},
)
