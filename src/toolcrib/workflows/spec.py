"""Workflow definitions: templates, steps, and checks against the schemas of their tools.

    steps:
      list:  {tool: list_files, arguments: {path: {$from: $.input.folder, default: .}}}
      first: {tool: read_file, arguments: {path: {$from: "$.steps.list.files[0]"}}}
      tell:  {tool: send_message, arguments: {content: {$text: "{$.steps.list.count} files"}}, after: first}

A step waits for the steps that its holes (`$from`, `$text`) name and for those of `after`. Holes are read once, when
the definition is: a step that does not exist, a circle and an input that is not declared are errors then. Tools may
come and go, so that arguments are checked against their schemas at each call (`check`).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Literal, cast

from jsonpath_rfc9535 import JSONPathQuery
from jsonpath_rfc9535.selectors import IndexSelector, NameSelector
from msgspec import Struct

from ..core.json import canonical, dumps
from ..core.patterns import regex
from ..core.schema import MAX_ARGUMENT_BYTES
from ..core.schema.nodes import Node, as_node, merged, properties_of, resolve, types_of
from ..core.schema.validator import compile_schema
from ..core.similar import did_you_mean, unknown_name
from ..core.tool import Tool
from ..errors import ConfigError, ToolFailure, UsageError
from ..sources.yaml.fields import as_text
from .json_paths import Document, compile_path

_PIECES: Final = regex(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_MAX_DEPTH: Final = 64

RESUME: Final = "resume_id"
"""The argument by which a run that broke off goes on."""

_NAME: Final = regex(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_KEYS: Final = ("description", "title", "category", "tags", "input", "steps", "output", "background_after")
_STEP_KEYS: Final = ("tool", "arguments", "after", "timeout", "approval")
_MAX_STEPS: Final = 100

_ANY: Final = frozenset[str]()


class MissingValue(ToolFailure):
    """A path that leads to no value in the present document."""

    def __init__(self, path: str) -> None:
        super().__init__("invalid_arguments", f"nothing is at {path}", hint="give the path a `default`")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One hole: where its value comes from. `steps` or `input` is its root.

    A path to many places gives a list, which is empty where it finds nothing; one to a single place needs a value
    there, or a default.
    """

    path: str
    query: JSONPathQuery = dataclasses.field(compare=False)
    root: Literal["input", "steps"]
    step: str = ""
    names: tuple[str | int, ...] | None
    """The way below the root's value, for a path to exactly one place; None for a path to many."""
    default: Any = None
    has_default: bool = False

    def value(self, document: Document) -> Any:
        """Return the value at the path. Raises `MissingValue`, and `ToolFailure` where too much is to be looked at."""
        if self.names is None:
            return document.all(self.query)
        if found := document.first(self.query):
            return found[0]
        if self.has_default:
            return self.default
        raise MissingValue(self.path)


class _Text(Struct, frozen=True):
    pieces: tuple[str | Reference, ...]


class Template:
    """A JSON value with holes, read once. Immutable."""

    def __init__(self, written: Any) -> None:
        """Read `written`. Raises `UsageError` for a hole that cannot be filled, saying where."""
        self._written = written
        self._tree = _read(written, ())
        self.references = tuple(_references(self._tree))

    @property
    def steps(self) -> frozenset[str]:
        """The steps whose results it needs."""
        return frozenset(reference.step for reference in self.references if reference.root == "steps")

    @property
    def tree(self) -> Any:
        """The written tree, with a `Reference` in place of each `$from`; `is_text` marks a `$text`."""
        return self._tree

    @property
    def digest(self) -> str:
        """Names what is written: another text, another digest."""
        return hashlib.sha256(canonical(self._written)).hexdigest()

    def fill(self, document: Mapping[str, Any], room: int = MAX_ARGUMENT_BYTES) -> Any:
        """Return the value, taken from `document` (`input` and `steps`), with `room` for bytes of it.

        Raises `MissingValue`, and `ToolFailure` where it is too large or takes too long to find.
        """
        return _fill(self._tree, Document(document, room))


class CodeTemplate(Template):
    """Arguments of a tool that runs Python: code, which gets the values as `params`."""

    def __init__(self, params: Any, code: str) -> None:
        """Read `params` as any template."""
        super().__init__(params)
        self._code = code

    @property
    def digest(self) -> str:
        """Names the code, and what is written for `params`."""
        return hashlib.sha256(canonical([super().digest, self._code])).hexdigest()

    @property
    def tree(self) -> Any:
        """The arguments, without the values of `params`."""
        return {"code": self._code}

    def fill(self, document: Mapping[str, Any], room: int = MAX_ARGUMENT_BYTES) -> Any:
        """Return the code, below a line that sets `params`. Raises as any template."""
        params = dumps(super().fill(document, room)).decode()
        return {"code": f"params = __import__('json').loads({params!r})\n{self._code}"}


def is_text(node: Any) -> bool:
    """Whether this part of a tree is a text with holes."""
    return isinstance(node, _Text)


def _read(node: Any, where: tuple[str | int, ...]) -> Any:
    if len(where) > _MAX_DEPTH:
        raise UsageError(f"{_at(where)}: deeper than {_MAX_DEPTH} levels")
    if isinstance(node, Mapping):
        given = cast("Mapping[str, Any]", node)
        if "$from" in given:
            return _hole(given, where)
        if "$text" in given:
            return _text(given, where)
        return {key: _read(value, (*where, key)) for key, value in given.items()}
    if isinstance(node, list | tuple):
        return [_read(item, (*where, place)) for place, item in enumerate(cast("Sequence[Any]", node))]
    return node


def _hole(given: Mapping[str, Any], where: tuple[str | int, ...]) -> Reference:
    if others := sorted(set(given) - {"$from", "default"}):
        raise UsageError(f"{_at(where)}: beside $from only `default` can stand, not {', '.join(others)}")
    reference = _reference(given["$from"], where)
    if "default" not in given:
        return reference
    if reference.names is None:
        raise UsageError(f"{_at(where)}: a path to many values has no default; it gives an empty list")
    return Reference(
        path=reference.path,
        query=reference.query,
        root=reference.root,
        step=reference.step,
        names=reference.names,
        default=given["default"],
        has_default=True,
    )


def _text(given: Mapping[str, Any], where: tuple[str | int, ...]) -> _Text:
    written = given["$text"]
    if len(given) > 1 or not isinstance(written, str):
        raise UsageError(f"{_at(where)}: $text takes one text, and nothing beside it")
    pieces: list[str | Reference] = []
    end = 0
    for match in _PIECES.finditer(written):
        pieces.append(written[end : match.start()])
        end = match.end()
        if match[0] in ("{{", "}}"):
            pieces.append(match[0][0])
        elif match[1] is None:
            raise UsageError(f"{_at(where)}: a brace stands alone in $text; write {match[0] * 2} for the brace itself")
        else:
            pieces.append(_reference(match[1].strip(), where))
    return _Text((*pieces, written[end:]))


def _reference(path: Any, where: tuple[str | int, ...]) -> Reference:
    if not isinstance(path, str):
        raise UsageError(f"{_at(where)}: $from takes a JSON path such as $.steps.name.field")
    try:
        query = compile_path(path)
    except UsageError as error:
        raise UsageError(f"{_at(where)}: {error}") from None
    way = _way(query)
    root, *rest = way
    if root not in ("input", "steps") or (root == "steps" and not (rest and isinstance(rest[0], str))):
        raise UsageError(f"{_at(where)}: {path!r} begins neither at $.input nor at $.steps.NAME")
    step = str(rest.pop(0)) if root == "steps" else ""
    names = tuple(rest) if query.singular_query() else None
    return Reference(path=path, query=query, root=cast("Any", root), step=step, names=names)


def _way(query: JSONPathQuery) -> list[str | int]:
    """Return the names and places at the beginning of the path, up to the first that means many."""
    way: list[str | int] = []
    for segment in query.segments:
        selectors = segment.selectors
        only = selectors[0] if len(selectors) == 1 and type(segment).__name__ == "JSONPathChildSegment" else None
        if isinstance(only, NameSelector):
            way.append(only.name)
        elif isinstance(only, IndexSelector):
            way.append(only.index)
        else:
            break
    return way or [""]


def _references(node: Any) -> Iterator[Reference]:
    if isinstance(node, Reference):
        yield node
    elif isinstance(node, _Text):
        yield from (piece for piece in node.pieces if isinstance(piece, Reference))
    elif isinstance(node, dict):
        for value in cast("dict[str, Any]", node).values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in cast("list[Any]", node):
            yield from _references(item)


def _fill(node: Any, document: Document) -> Any:
    if isinstance(node, Reference):
        return node.value(document)
    if isinstance(node, _Text):
        return "".join(piece if isinstance(piece, str) else as_text(piece.value(document)) for piece in node.pieces)
    if isinstance(node, dict):
        return {key: _fill(value, document) for key, value in cast("dict[str, Any]", node).items()}
    if isinstance(node, list):
        return [_fill(item, document) for item in cast("list[Any]", node)]
    return node


def _at(where: tuple[str | int, ...]) -> str:
    return ".".join(map(str, where)) or "the value"


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
    values = _mapping(given, key, _KEYS)
    steps = _steps(values.get("steps"), key)
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
        steps=_in_order(steps, key),
        output=output,
        background_after=after,
    )


def _steps(given: Any, key: str) -> dict[str, Step]:
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


def _in_order(steps: Mapping[str, Step], key: str) -> tuple[Step, ...]:
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
    """Return the possible types at the end of the path, as far as the schemas define them; empty if unknown."""
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
