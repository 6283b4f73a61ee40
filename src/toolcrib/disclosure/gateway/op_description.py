"""Description of one operation for a model: its usage, arguments, notes and examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...core.json import as_mapping
from ...core.schema import example, type_in_words
from ...core.tool import Tool
from ..base import VisibleCatalog
from ..ops import parts_of

_MERGES: Final = ("update_strategy", "merge_instructions")
"""Arguments of an update that control the update itself."""
_CHANGES: Final = ("update", "set", "move")
_FIXED: Final = ("const", "default", "enum", "examples", "format", "maxLength", "pattern")
"""Keywords of a text of which not just anything is valid."""
_RANGES: Final = (("timeMin", "timeMax"), ("time_min", "time_max"), ("start", "end"))
_ADVICE: Final = ("do", "dont", "edge_cases")
_PROPERTIES_NAMED: Final = 8


def describe_op(visible: VisibleCatalog, tool: Tool, *, full: bool, schemas: bool, examples: bool) -> dict[str, Any]:
    """Return the help on one op, without the common head of answers."""
    op = visible.aliases.ops.of(tool)
    schema = visible.aliases.present(tool).input_schema
    properties = as_mapping(schema.get("properties"))
    required = [name for name in schema.get("required") or () if name in properties]
    call = {"op": op, "args": _example(tool, op, schema, properties)}
    shown: dict[str, Any] = {
        "op": op,
        "tool_name": tool.name,
        "kind": "read" if tool.kind == "read" else "write",
        "summary": summary_of(tool),
        "usage": _usage(visible, op, properties, required),
        "args": [_argument(name, value, name in required) for name, value in properties.items()],
        "required_args": required,
        "id_args": [name for name in properties if name.endswith("_id")],
        "notes": list(_notes(visible, tool, properties, required)),
    }
    if schemas:
        shown["schema"] = schema
    if examples:
        shown["examples"] = list(_op_help_examples(visible, op, tool, call, required))
        shown["example_call"] = call
    if tool.guidance.policy:
        shown["policy"] = {key: list(tool.guidance.policy.get(key, ())) for key in _ADVICE}
    if full:
        shown["description"] = tool.description
    return shown


def summary_of(tool: Tool) -> str:
    """Return the first sentence of a tool's description, and whether it destroys data."""
    return tool.summary if tool.kind != "destructive" or not tool.summary else f"{tool.summary} [destructive]"


def _usage(visible: VisibleCatalog, op: str, properties: Mapping[str, Any], required: list[str]) -> str:
    optional = [name for name in properties if name not in required]
    named = [*required, *(f"{name}?" for name in optional[:_PROPERTIES_NAMED])]
    more = ", …" if len(optional) > _PROPERTIES_NAMED else ""
    args = f"{{ {', '.join(named)}{more} }}" if named else "{}"
    return f'{visible.profile.verbs.get("exec", "tool_exec")}({{ op: "{op}", args: {args} }})'


def _argument(name: str, value: Any, required: bool) -> dict[str, Any]:
    schema = as_mapping(value)
    shown: dict[str, Any] = {"name": name, "type": type_in_words(schema), "required": required}
    if "default" in schema:
        shown["default"] = schema["default"]
    options = schema.get("enum")
    if isinstance(options, list):
        shown["values"] = options
    text = schema.get("description")
    if text:
        shown["description"] = text
    inner = as_mapping(schema.get("properties") or as_mapping(schema.get("items")).get("properties"))
    if inner:
        shown["fields"] = list(inner)
    return shown


def _notes(visible: VisibleCatalog, tool: Tool, properties: Mapping[str, Any], required: list[str]) -> Iterator[str]:
    """Yield notes that the schema cannot express, derived from the op's name and its arguments."""
    op = visible.aliases.ops.of(tool)
    _, entity, action = parts_of(op)
    own = f"{entity.rpartition('.')[2]}_id"
    of_op = list(_argument_notes(action, own, properties, required))
    of_op += [
        f"{start} and {end} bound the time range (ISO 8601); give both for an exact window."
        for start, end in _RANGES
        if start in properties and end in properties
    ]
    if tool.kind == "destructive":
        of_op.append("It cannot be undone: make sure of the id, and that the user wants it.")
    yield from of_op
    if tool.kind != "read":
        yield "dry_run tells what a call would do and changes nothing; idempotency_key makes a repeat harmless."
    if not of_op:
        yield "Match args exactly to the required ones; others do not exist." if properties else "It takes no args."


def _argument_notes(action: str, own: str, properties: Mapping[str, Any], required: list[str]) -> Iterator[str]:
    ids = [name for name in required if name.endswith("_id")]
    if action == "update" and own in properties:
        needed = f"{own} and " if own in required else ""
        yield f"It needs {needed}at least one field to change; what is left out stays as it is."
    elif action in ("get", "delete") and ids:
        yield f"{' and '.join(ids)} must be exact: take it from a list, search or get op, never guess it."
    elif action == "search" or any(name in required for name in ("query", "search")):
        query = next((name for name in ("query", "search") if name in properties), "")
        if query:
            yield f"{query} says what to look for in plain words; add project_id when it is known."
    elif action == "move":
        yield "Without a parent it moves to the top; positions count from 0."
    if action in _CHANGES and any("null" in type_in_words(as_mapping(value)) for value in properties.values()):
        yield "null clears a field."


def _example(tool: Tool, op: str, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return valid args: the tool's own example, else the required ones; an update also changes a field."""
    if tool.guidance.examples:
        return tool.guidance.examples[0]
    args = example(schema)
    if parts_of(op)[2] == "update" and all(name.endswith("_id") for name in args):
        field = next((name for name in properties if not name.endswith("_id") and name not in _MERGES), "")
        if field:
            args = example({**schema, "required": [*args, field]})
    return {name: _placeholder(name, value, as_mapping(properties.get(name))) for name, value in args.items()}


def _placeholder(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a placeholder that describes the value, where any text is valid."""
    is_free = isinstance(value, str) and schema.get("type") == "string" and not any(key in schema for key in _FIXED)
    return f"<{name}>" if is_free else value


def _op_help_examples(
    visible: VisibleCatalog, op: str, tool: Tool, call: Mapping[str, Any], required: list[str]
) -> Iterator[dict[str, Any]]:
    runs = visible.profile.verbs.get("exec", "tool_exec")
    yield {"description": "A valid call", runs: call}
    for other in tool.guidance.examples[1:]:
        yield {"description": "Another", runs: {"op": op, "args": other}}
    group, entity, action = parts_of(op)
    listing = f"{group}.{entity}.list"
    own = f"{entity}_id"
    name = visible.aliases.ops.named(listing)
    if action in ("get", "update", "delete") and own in required and name is not None and visible.find(name):
        yield {
            "description": f"Where {own} is not known, find it first",
            "sequence": [{"op": listing, "args": {}}, {"op": op, "args": {own: f"<{own} of a result>"}}],
        }
