"""What can be known to fail before anything runs: arguments against the schemas of the tools, outputs against inputs.

Only what the schemas prove is an error. A tool without an output schema may return anything, so what is taken from it
is checked when it is there, like any argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from ...core.schema.nodes import Node, as_node, merged, properties_of, resolve, types_of
from ...core.schema.validator import compile_schema
from ...core.tool import Tool
from .spec import Step, Workflow
from .template import Reference, Template, is_text

__all__ = ["check"]

_ANY: Final = frozenset[str]()


def check(workflow: Workflow, find: Callable[[str], Tool | None]) -> list[str]:
    """Return what is wrong, each with the place in the workflow; empty when nothing is known to be."""
    found = {step.name: find(step.tool) for step in workflow.steps}
    tools = {name: tool for name, tool in found.items() if tool is not None}
    missing = [step for step in workflow.steps if step.name not in tools]
    unknown = [f"steps.{step.name}.tool: there is no tool {step.tool!r}" for step in missing]
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
        yield from _value(name, node, as_node(declared.get(name)), schema, tools, workflow)


def _value(
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
        yield f".{name}: {what} {_or(given)}, and the tool takes {_or(wanted)}"


def _types_at(reference: Reference, tools: Mapping[str, Tool], workflow: Workflow) -> frozenset[str]:
    """Return the types that can be at the end of the path, as far as the schemas say; none for no idea."""
    if reference.names is None:
        return frozenset({"array"})
    if reference.root == "input":
        root: Node = workflow.input_schema
    else:
        tool = tools.get(reference.step)
        if tool is None or tool.output_schema is None:
            return _ANY
        root = tool.output_schema
    node = root
    for name in reference.names:
        node = _below(resolve(node, root), name, root)
    return types_of(node, root)


def _below(node: Node, name: str | int, root: Node) -> Node:
    if isinstance(name, int):
        return as_node(node.get("items"))
    for part in merged(node, root):
        if name in as_node(part.get("properties")):
            return as_node(as_node(part["properties"])[name])
    return {}


def _or(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))
