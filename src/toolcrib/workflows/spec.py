"""Workflow definitions: steps, and checks against the schemas of their tools.

    steps:
      list:  {tool: list_files, arguments: {path: {$from: $.input.folder, default: .}}}
      first: {tool: read_file, arguments: {path: {$from: "$.steps.list.files[0]"}}}
      tell:  {tool: send_message, arguments: {content: {$text: "{$.steps.list.count} files"}}, after: first}

A step waits for the steps that its holes (`$from`, `$text`) name and for those of `after`. Holes are read once, when
the definition is: a step that does not exist, a circle and an input that is not declared are errors then. Tools may
come and go, so that arguments are checked against their schemas at each call (`check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

from msgspec import Struct

from ..core.patterns import regex
from ..core.schema.nodes import Node, as_node, merged, properties_of, resolve, types_of
from ..core.schema.validator import compile_schema
from ..core.similar import did_you_mean, unknown_name
from ..core.tool import Tool
from ..errors import ConfigError, UsageError
from .templates import Reference, Template, is_text

RESUME: Final = "resume_id"
"""The argument by which a run that broke off goes on."""

_NAME: Final = regex(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_WORKFLOW_KEYS: Final = ("description", "title", "category", "tags", "input", "steps", "output", "background_after")
_STEP_KEYS: Final = ("tool", "arguments", "after", "timeout", "approval")
_MAX_STEPS: Final = 100

_ANY_TYPE: Final = frozenset[str]()


class Step(Struct, frozen=True, kw_only=True):
    """One call. It runs as soon as the steps that it needs have ended well."""

    name: str
    tool: str
    """A name of the catalog, or an alias."""
    arguments: Template
    needs: frozenset[str]
    timeout: float | None = None
    approval: bool = False
    """Whether a person is asked before it, also where rules and mode allow it."""

    @property
    def digest(self) -> str:
        """Names the call that it makes of given values."""
        return f"{self.tool} {self.arguments.digest}"


class Workflow(Struct, frozen=True, kw_only=True):
    """Several calls as one tool. `steps` are in an order in which they could run one after another."""

    name: str
    description: str
    title: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    input_schema: Mapping[str, Any]
    steps: tuple[Step, ...]
    output: Template
    background_after: float | None = None


def read_workflow(name: str, given: Any) -> Workflow:
    """Return the workflow that `given` describes. Raises `ConfigError` naming the key, below `workflows.NAME`."""
    key = f"workflows.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be a tool's name: letters, digits, _ and -, at most 64", key=key)
    values = _mapping(given, key, _WORKFLOW_KEYS)
    steps = _read_steps(values.get("steps"), key)
    last = next(reversed(steps))
    output = _template(values.get("output", {"$from": f"$.steps.{last}"}), f"{key}.output")
    _check_needs(output.steps, steps, f"{key}.output")
    schema = _schema(values.get("input"), f"{key}.input")
    for step in steps.values():
        _check_inputs(step.arguments, schema, f"{key}.steps.{step.name}.arguments")
    _check_inputs(output, schema, f"{key}.output")
    after = values.get("background_after")
    if after is not None and (isinstance(after, bool) or not isinstance(after, int | float) or after < 0):
        raise ConfigError("a number of seconds was expected", key=f"{key}.background_after")
    return Workflow(
        name=name,
        description=_spec_text(values, "description", key)
        or f"Runs {', '.join(step.tool for step in steps.values())}.",
        title=_spec_text(values, "title", key),
        category=_spec_text(values, "category", key),
        tags=_texts(values.get("tags") or (), f"{key}.tags"),
        input_schema=schema,
        steps=_sort_steps(steps, key),
        output=output,
        background_after=after,
    )


def _read_steps(given: Any, key: str) -> dict[str, Step]:
    steps: dict[str, Step] = {}
    for name, written in _mapping(given, f"{key}.steps").items():
        where = f"{key}.steps.{name}"
        values = _mapping(written, where, _STEP_KEYS)
        arguments = _template(values.get("arguments") or {}, f"{where}.arguments")
        timeout = values.get("timeout")
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0):
            raise ConfigError("a number of seconds above 0 was expected", key=f"{where}.timeout")
        tool = _spec_text(values, "tool", where)
        if not tool:
            raise ConfigError("the name of a tool was expected", key=f"{where}.tool")
        after = _texts(values.get("after") or (), f"{where}.after")
        approval = values.get("approval", False)
        if not isinstance(approval, bool):
            raise ConfigError("true or false was expected", key=f"{where}.approval")
        steps[name] = Step(
            name=name,
            tool=tool,
            arguments=arguments,
            needs=arguments.steps | set(after),
            timeout=timeout,
            approval=approval,
        )
    if not steps:
        raise ConfigError("at least one step was expected", key=f"{key}.steps")
    if len(steps) > _MAX_STEPS:
        raise ConfigError(f"{len(steps)} steps; at most {_MAX_STEPS}", key=f"{key}.steps")
    for step in steps.values():
        _check_needs(step.needs, steps, f"{key}.steps.{step.name}")
    return steps


def _sort_steps(steps: Mapping[str, Step], key: str) -> tuple[Step, ...]:
    try:
        order = TopologicalSorter({name: sorted(step.needs) for name, step in steps.items()}).static_order()
        return tuple(steps[name] for name in order)
    except CycleError as error:
        circle = " → ".join(reversed(cast("list[str]", error.args[1])))
        raise ConfigError(f"the steps wait for one another: {circle}", key=f"{key}.steps") from None


def _check_needs(needs: frozenset[str], steps: Mapping[str, Step], key: str) -> None:
    for name in sorted(needs - set(steps)):
        raise ConfigError(f"unknown step {name!r}{did_you_mean(name, steps)}", key=key)


def _check_inputs(template: Template, schema: Mapping[str, Any], key: str) -> None:
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return
    declared = properties_of(schema, schema)
    for reference in template.references:
        name = reference.names[0] if reference.root == "input" and reference.names else None
        if name is not None and name not in declared and not reference.has_default:
            hint = did_you_mean(str(name), declared)
            raise ConfigError(f"{reference.path}: the input has no {name!r}{hint}", key=key)


def _schema(given: Any, key: str) -> Mapping[str, Any]:
    """Return the schema of the input: one that was written, or made of `{name: schema}`, all of them required."""
    if given is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    values = _mapping(given, key)
    if "type" not in values or isinstance(values["type"], Mapping):
        properties = {name: {"type": part} if isinstance(part, str) else part for name, part in values.items()}
        required = [name for name, part in properties.items() if not (isinstance(part, Mapping) and "default" in part)]
        values = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if values.get("type") != "object":
        raise ConfigError("the input of a tool is an object", key=f"{key}.type")
    if RESUME in properties_of(values, values):
        raise ConfigError(f"{RESUME} is ours: it goes on with a run that broke off", key=f"{key}.properties.{RESUME}")
    try:
        compile_schema(values)
    except ValueError as error:
        raise ConfigError(f"no valid JSON Schema: {error}", key=key) from None
    return values


def _template(given: Any, key: str) -> Template:
    try:
        return Template(given)
    except UsageError as error:
        raise ConfigError(str(error), key=key) from None


def _mapping(given: Any, key: str, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError("a mapping was expected", key=key)
    values = cast("Mapping[Any, Any]", given)
    for name in values:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{name!r} is not a name", key=key)
        if known is not None and name not in known:
            raise ConfigError(unknown_name("key", name, known), key=f"{key}.{name}")
    return values


def _spec_text(values: Mapping[str, Any], name: str, key: str) -> str:
    value = values.get(name, "")
    if not isinstance(value, str):
        raise ConfigError("a text was expected", key=f"{key}.{name}")
    return value.strip()


def _texts(given: Any, key: str) -> tuple[str, ...]:
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in cast("list[Any]", items)):
        raise ConfigError("a list of texts was expected", key=key)
    return tuple(cast("list[str]", items))


def check(workflow: Workflow, find: Callable[[str], Tool | None]) -> list[str]:
    """Return the defects, each with its place in the workflow; empty without known ones."""
    found = {step.name: find(step.tool) for step in workflow.steps}
    tools = {name: tool for name, tool in found.items() if tool is not None}
    missing = [step for step in workflow.steps if step.name not in tools]
    unknown = [f"steps.{step.name}.tool: unknown tool {step.tool!r}" for step in missing]
    return unknown + [
        f"steps.{step.name}.arguments{problem}"
        for step in workflow.steps
        if step.name in tools
        for problem in _arguments(step, tools, workflow)
    ]


def _arguments(step: Step, tools: Mapping[str, Tool], workflow: Workflow) -> Iterator[str]:
    schema = tools[step.name].input_schema
    declared = properties_of(schema, schema)
    tree = step.arguments.tree
    if not isinstance(tree, dict):
        yield ": a mapping from argument to value was expected"
        return
    given = cast("dict[str, Any]", tree)
    for name in cast("list[str]", schema.get("required", [])):
        if name not in given and "default" not in declared.get(name, {}):
            yield f": {name} is missing"
    is_open = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    if declared and not is_open:
        for name in given:
            if name not in declared:
                yield f".{name}: the tool has no such argument; it has {', '.join(declared)}"
    for name, node in given.items():
        yield from _check_value(name, node, as_node(declared.get(name)), schema, tools, workflow)


def _check_value(
    name: str, node: Any, part: Node, root: Node, tools: Mapping[str, Tool], workflow: Workflow
) -> Iterator[str]:
    if isinstance(node, Reference):
        given = _types_at(node, tools, workflow)
        yield from _mismatch(name, given, types_of(part, root), f"{node.path} is")
    elif is_text(node):
        yield from _mismatch(name, frozenset({"string"}), types_of(part, root), "$text gives")
    elif not Template(node).references:
        shared = {key: root[key] for key in ("$defs", "definitions", "$schema") if key in root}
        validator = compile_schema({**part, **shared}, strict_extra=False)
        yield from (f".{name}: {error}" for error in validator.check(node)[:3])


def _mismatch(name: str, given: frozenset[str], wanted: frozenset[str], what: str) -> Iterator[str]:
    if "integer" in given:
        given |= {"number"}
    if given and wanted and not given & wanted:
        yield f".{name}: {what} {_join_types(given)}, and the tool takes {_join_types(wanted)}"


def _types_at(reference: Reference, tools: Mapping[str, Tool], workflow: Workflow) -> frozenset[str]:
    """Return the possible types at the end of the path, as far as the schemas define them; empty if unknown."""
    if reference.names is None:
        return frozenset({"array"})
    if reference.root == "input":
        root: Node = workflow.input_schema
    else:
        tool = tools.get(reference.step)
        if tool is None or tool.output_schema is None:
            return _ANY_TYPE
        root = tool.output_schema
    node = root
    for name in reference.names:
        node = _schema_below(resolve(node, root), name, root)
    return types_of(node, root)


def _schema_below(node: Node, name: str | int, root: Node) -> Node:
    if isinstance(name, int):
        return as_node(node.get("items"))
    for part in merged(node, root):
        if name in as_node(part.get("properties")):
            return as_node(as_node(part["properties"])[name])
    return {}


def _join_types(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))
