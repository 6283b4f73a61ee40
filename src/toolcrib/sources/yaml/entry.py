"""Entries of a YAML catalog: checked fields, and the tool made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct, field

from ...core.documents.tree import Node
from ...core.exceptions import ErrorList
from ...core.json import as_list, canonical
from ...core.patterns import regex
from ...core.result import ToolResult
from ...core.sanitize import clean_schema, clean_text
from ...core.schema import Validator, compile_schema
from ...core.similar import did_you_mean
from ...core.tool import (
    NO_LOCKS,
    NO_VERSION_INFO,
    READS,
    TRAITS,
    Annotations,
    Availability,
    Capability,
    CapabilityType,
    Execution,
    Guidance,
    Tool,
    VersionInfo,
)
from ...core.versions import read_migrations, retiring
from ...errors import ConfigError, ConfigErrors, ToolFailure
from ..skill_folder import PRIORITIES, SCHEMA
from .fields import Expand, Fields
from .implementation import Code, Command, Delegate, Endpoint, Implementation, SkillText, read_implementation

KEYS: Final = tuple(
    "name type subtype provider level capabilities priority cost constraints metadata input_schema fallback_tool"
    " skill_path cache_stable enabled implementation state_category invocation_hint"
    " description title category op aliases examples policy kind annotations approval timeout background_after contexts"
    " serial locks output_schema version traits deprecated replaced_by migrations explicit".split()
)
"""Every key of an entry; the first two lines are seed 004's."""

_TYPES: Final = ("TOOL", "SKILL", "CODE")
_KINDS: Final = ("read", "write", "destructive")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_ADVICE: Final = ("do", "dont", "edge_cases")
_CLOSED: Final = frozenset({"description", "properties", "required", "title", "type"})
"""Keys of a schema whose properties are all of its arguments."""
_NAME: Final = regex(r"[^\s\x00-\x1f\x7f]{1,128}")


class EntryContext(Struct, frozen=True, kw_only=True):
    """Shared context for reading the entries of one catalog."""

    source: str
    file: str
    expand: Expand
    serial: frozenset[str] = frozenset()
    """Names that the catalog's `tool_classification.serial_only_tools` lists."""
    categories: Sequence[str] = ()
    """Ids of the catalog's `capability_categories`: the first of them among a tool's tags is its category."""


class ToolEntry(Struct, frozen=True, kw_only=True):
    """One tool of a catalog. Lives until the catalog is read again."""

    tool: Tool
    implementation: Implementation | None
    line: int
    warnings: tuple[str, ...] = field(default=())


def read_entry(node: Node, place: int, reading: EntryContext) -> ToolEntry | None:
    """Return the entry that `node` holds, or None when it is switched off.

    `place` is its place in the list, for messages. Raises `ConfigError` or `ConfigErrors` with file, line and key: of
    the implementation, of the first other value that is wrong, and of unknown keys, which may be the reason.
    """
    named = node.member("name")
    label = str(named.node.text) if named and named.node.text else f"[{place}]"
    fields = Fields(node, reading.file, (label,), reading.expand)
    if not fields.flag("enabled", True):
        return None
    warnings = fields.unknown(KEYS)
    implementation: Implementation | None = None
    errors = ErrorList()
    with errors.part():
        if "implementation" in fields:
            implementation, unused = read_implementation(fields.inside("implementation"))
            warnings += unused
        elif "skill_path" in fields:
            implementation = SkillText(path=fields.text("skill_path"))
    with errors.part():
        tool = _tool(fields, reading, implementation, warnings)
        if not errors.found:
            return ToolEntry(tool=tool, implementation=implementation, line=node.line, warnings=tuple(warnings))
    raise ConfigErrors.of([*errors.found, *map(ConfigError, warnings)])


def _tool(fields: Fields, reading: EntryContext, implementation: Implementation | None, warnings: list[str]) -> Tool:
    name = fields.text("name")
    if not _NAME.fullmatch(name) or clean_text(name)[1]:
        raise fields.error("a name of 1 to 128 visible characters without spaces was expected", "name")
    tags = fields.texts("capabilities")
    schema = _schema(fields, implementation, warnings)
    described = fields.text("description") or str(fields.mapping("metadata").get("description") or "")
    category = fields.text("category") or next((tag for tag in tags if tag in reading.categories), "")
    return Tool(
        name=name,
        local_name=name,
        source=reading.source,
        origin="yaml",
        title=_clean(fields, fields.text("title"), warnings),
        description=retiring(
            _clean(fields, described.strip(), warnings), fields.text("deprecated"), fields.text("replaced_by")
        ),
        input_schema=schema,
        output_schema=_output_schema(fields, warnings),
        annotations=READS if isinstance(implementation, SkillText) else _annotations(fields),
        op=fields.text("op"),
        category=category,
        tags=tags,
        aliases=fields.texts("aliases"),
        core=_level(fields) == 1,
        version_info=_version_info(fields, schema),
        approval=cast("Any", fields.choice("approval", ("never", "mode", "always"), "mode")),
        execution=Execution(
            timeout=fields.number("timeout"),
            background_after=fields.number("background_after"),
            serial=fields.flag("serial", name in reading.serial),
            locks=NO_LOCKS if isinstance(implementation, Delegate) else _arguments(fields, schema, "locks"),
            implementation=_implementation_digest(fields),
        ),
        availability=Availability(contexts=fields.texts("contexts")),
        guidance=Guidance(examples=_examples(fields, schema), policy=_policy(fields, warnings)),
        capability=_capability(fields, schema, implementation),
        traits=_traits(fields, implementation),
    )


def _implementation_digest(fields: Fields) -> str:
    """Return a hash of the implementation as it is written: with the names of variables, not with their values."""
    if "implementation" not in fields:
        return ""
    written = fields.node("implementation").strings()
    return hashlib.blake2b(canonical(written), digest_size=16).hexdigest()


def _version_info(fields: Fields, schema: Mapping[str, Any]) -> VersionInfo:
    why, instead = fields.text("deprecated"), fields.text("replaced_by")
    if instead and not why:
        raise fields.error("needs `deprecated` with the reason", "replaced_by")
    try:
        migrations = read_migrations(fields.mapping("migrations"), schema)
    except ValueError as error:
        raise fields.error(str(error), "migrations") from None
    made = VersionInfo(version=fields.text("version"), deprecated=why, replaced_by=instead, migrations=migrations)
    return made if made != NO_VERSION_INFO else NO_VERSION_INFO


def _traits(fields: Fields, implementation: Implementation | None) -> tuple[str, ...]:
    """Return the properties that the pipeline relies on; only built-in code can write through the session's workspace.

    An endpoint's answer is foreign text, unless the entry declares `reviewed`.
    """
    traits = fields.texts("traits")
    for trait in traits:
        if trait not in TRAITS:
            raise fields.error(f"{trait!r} is not one of {', '.join(TRAITS)}", "traits")
    if "file_writer" in traits and not isinstance(implementation, Code):
        raise fields.error("file_writer is for code that writes by `context.call.workspace`", "traits")
    if isinstance(implementation, SkillText):
        traits = (*traits, "file_reader")
    is_stated = "untrusted" in traits or "reviewed" in traits
    return traits if is_stated or not isinstance(implementation, Endpoint) else (*traits, "untrusted")


def _capability(fields: Fields, schema: Mapping[str, Any], implementation: Implementation | None) -> Capability:
    metadata = dict(fields.mapping("metadata"))
    metadata.pop("description", None)
    stable = metadata.pop("cache_stable", False) is True
    for key in ("state_category", "invocation_hint"):
        if key in fields:
            metadata[key] = fields.text(key)
    if isinstance(implementation, Endpoint):
        metadata.setdefault("invocation_hint", "programmatic")  # seed 004: a request to a configured endpoint
    return Capability(
        type=cast("CapabilityType", fields.choice("type", _TYPES, "TOOL")),
        subtype=fields.text("subtype"),
        provider=fields.text("provider"),
        priority=_priority(fields),
        cost=fields.strings("cost"),
        constraints=fields.mapping("constraints"),
        metadata=metadata,
        fallback_tool=fields.text("fallback_tool"),
        skill_path=fields.text("skill_path"),
        cache_stable=fields.flag("cache_stable", stable),
        explicit=_arguments(fields, schema, "explicit"),
    )


def _priority(fields: Fields) -> int:
    node = fields.node("priority")
    if isinstance(node.value, str) and node.value.lower() in PRIORITIES:
        return PRIORITIES[node.value.lower()]
    if node.value is None and node.kind == "scalar":
        return PRIORITIES["medium"]
    if isinstance(node.value, bool) or not isinstance(node.value, int) or not 0 <= node.value <= 100:
        raise fields.error(f"0 to 100 or one of {', '.join(PRIORITIES)} was expected", "priority")
    return node.value


def _level(fields: Fields) -> int:
    value = fields.node("level").value
    if value is None and "level" not in fields:
        return 2
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise fields.error("a level of 1 (core) or more was expected", "level")
    return value


def _schema(fields: Fields, implementation: Implementation | None, warnings: list[str]) -> Mapping[str, Any]:
    """Return the input schema, or the one that the templates of the implementation ask for."""
    used = implementation.names if isinstance(implementation, Command | Endpoint) else ()
    if "input_schema" not in fields and isinstance(implementation, SkillText):
        return SCHEMA
    if "input_schema" not in fields:
        properties = {name: {"type": "string"} for name in used}
        schema: dict[str, Any] = {"type": "object"}
        return schema | {"properties": properties, "required": [*properties]} if properties else schema
    schema = {"type": "object", **fields.mapping("input_schema")}
    if schema["type"] != "object":
        raise fields.error("the arguments are an object: `type: object` was expected", "input_schema")
    properties = schema.get("properties", {})
    if properties and schema.keys() <= _CLOSED:
        for name in map(str, as_list(schema.get("required"))):
            if name not in properties:
                reason = f"`required` names {name!r}, which `properties` lacks: no call can succeed"
                warnings.append(str(fields.error(reason + did_you_mean(name, properties), "input_schema")))
    for name in used:
        if not isinstance(properties, Mapping) or name not in properties:
            message = f"{{{name}}} is not an argument of the input_schema; write {{{{{name}}}}} for the text itself"
            raise fields.error(message, "implementation")
    return _compiled(fields, "input_schema", schema, warnings)


def _output_schema(fields: Fields, warnings: list[str]) -> Mapping[str, Any] | None:
    if "output_schema" not in fields:
        return None
    return _compiled(fields, "output_schema", fields.mapping("output_schema"), warnings)


def _compiled(fields: Fields, key: str, schema: Mapping[str, Any], warnings: list[str]) -> Mapping[str, Any]:
    try:
        shown, hidden = clean_schema(schema)
        compile_schema(shown)
    except ValueError as error:
        raise fields.error(f"is not a valid schema: {error}", key) from None
    if hidden:
        warnings.append(str(fields.error(f"{hidden} invisible characters were removed", key)))
    return shown


def _clean(fields: Fields, text: str, warnings: list[str]) -> str:
    shown, hidden = clean_text(text)
    if hidden:
        warnings.append(str(fields.error(f"{hidden} invisible characters were removed", "description")))
    return shown


def _annotations(fields: Fields) -> Annotations:
    """Return the hints: those of `kind`, and over them those that `annotations` names."""
    hints: dict[str, Any] = {}
    if "kind" in fields:
        kind = fields.choice("kind", _KINDS, "destructive")
        hints = {"readOnlyHint": kind == "read", "destructiveHint": kind == "destructive"}
        hints["idempotentHint"] = kind == "read"
    if "annotations" in fields:
        inner = fields.inside("annotations")
        for key in inner.keys:
            if key not in _HINTS:
                raise inner.error(f"unknown hint (known: {', '.join(_HINTS)})", key)
            hints[key] = inner.flag(key, False)
    return Annotations.from_mcp(hints)


def _arguments(fields: Fields, schema: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return the names of arguments that `key` lists."""
    names = fields.texts(key)
    for name in names:
        if name not in schema.get("properties", {}):
            raise fields.error(f"names {name!r}, which is not an argument", key)
    return names


def _examples(fields: Fields, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    examples: Any = fields.node("examples").plain() if "examples" in fields else []
    if not isinstance(examples, list):
        raise fields.error("a list of arguments was expected", "examples")
    validator = compile_schema(schema)
    given = cast("list[Any]", examples)
    for example in given:
        if not isinstance(example, Mapping) or validator.check(example):
            raise fields.error(f"the example {example!r} is not valid for the input_schema", "examples")
    return tuple(given)


def _policy(fields: Fields, warnings: list[str]) -> dict[str, Sequence[str]]:
    if "policy" not in fields:
        return {}
    inner = fields.inside("policy")
    warnings += inner.unknown(_ADVICE)
    return {key: inner.texts(key) for key in _ADVICE if key in inner}


def check_output(tool: Tool, result: ToolResult, output: Validator | None) -> ToolResult:
    """Return `result`. Raises `ToolFailure("tool_error")` for a success that the schema of the tool does not admit."""
    if output is None or result.is_error or result.spooled is not None or result.input_required is not None:
        return result
    if wrong := output.check(result.structured_content):
        raise ToolFailure("tool_error", f"{tool.name} did not return what its output_schema declares: {wrong[0]}")
    return result
