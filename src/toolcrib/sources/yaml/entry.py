"""Entries of a YAML catalog: checked fields, the implementation, and the tool made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from msgspec import Struct, field

from ...catalog.names import nearest
from ...core.document_tree import Node
from ...core.sanitize import clean_schema, clean_text
from ...core.schema import compile_schema
from ...core.tool import (
    NO_LINEAGE,
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
from ...errors import ConfigError
from ..skill_folder import PRIORITIES, READS, SCHEMA
from .fields import Expand, Fields, Template

__all__ = [
    "KEYS",
    "KINDS",
    "Code",
    "Command",
    "Delegate",
    "Endpoint",
    "EntryContext",
    "Implementation",
    "SkillText",
    "ToolEntry",
    "read_entry",
    "read_implementation",
]

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_MAX_OUTPUT: Final = 4 << 20
"""Default limit for the bytes of one stream of a command."""

_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that end a header, or that no header has."""
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

_Output = Literal["text", "json"]

KINDS: Final = ("module", "command", "endpoint", "mcp", "path")
"""Keys of implementations; an entry has exactly one."""

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "module": ("module", "class", "function"),
    "command": ("command", "cwd", "env", "stdin", "output", "max_output"),
    "endpoint": ("endpoint",),
    "mcp": ("mcp",),
    "path": ("path", "args", "cwd", "env", "stdin", "output", "max_output"),
}
_ENDPOINT_KEYS: Final = ("method", "url", "query", "headers", "body", "output", "allow_private")
_WITH: Final = {"endpoint": "`url` and `method`", "mcp": "`server` and `tool`"}
"""Required keys of the mappings, for an entry with a text there."""

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
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,128}")
_NO_TURNS: Final = ("",)
"""Names no argument: the tool behind a delegate takes the turns, and the same ones twice would wait for itself."""


class Code(Struct, frozen=True, kw_only=True):
    """A class with `execute(params, context)`, or a function, of a Python module."""

    module: str
    attribute: str
    is_class: bool


class Command(Struct, frozen=True, kw_only=True):
    """A program and its arguments; no shell reads them."""

    argv: tuple[tuple[Template, ...], ...]
    """Groups: one argument, or several that stand or fall together."""
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: Literal["none", "json"] = "none"
    """Input of the program: none, or all arguments as one JSON object."""
    output: _Output = "text"
    max_output: int = _MAX_OUTPUT
    script: str = ""
    """A file to run, relative to the catalog; `argv` then holds only its arguments."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it uses."""
        return tuple(name for group in self.argv for template in group for name in template.names)


class Endpoint(Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str
    url: Template
    query: Mapping[str, Template] = field(default_factory=dict[str, Template])
    headers: Mapping[str, Template] = field(default_factory=dict[str, Template])
    """Lower-case names."""
    body: Literal["none", "json", "template"] = "none"
    """`json` sends every argument that the URL, the query and the headers leave."""
    content: Template | None = None
    """The body of `template`."""
    output: _Output = "text"
    allow_private: bool = False
    """Whether the operator permits a private or loopback address as the host."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that it uses by name."""
        written = (self.url, *self.query.values(), *self.headers.values(), *((self.content,) if self.content else ()))
        return tuple(name for template in written for name in template.names)


class Delegate(Struct, frozen=True, kw_only=True):
    """A tool of a mounted MCP server, called through the pipeline."""

    server: str
    tool: str


class SkillText(Struct, frozen=True, kw_only=True):
    """The text of a skill's SKILL.md, and its files on demand."""

    path: str
    """Relative to the catalog; the SKILL.md or its folder."""


Implementation = Code | Command | Endpoint | Delegate | SkillText


def read_implementation(fields: Fields) -> tuple[Implementation, list[str]]:
    """Return how the entry runs, and a sentence for each key that is not used. Raises `ConfigError`."""
    kinds = [key for key in KINDS if key in fields]
    if len(kinds) != 1:
        problem = f"has {' and '.join(kinds)}" if kinds else "has no implementation"
        near = [] if kinds else [name for key in fields.keys for name in nearest(key, KINDS, 1)]
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise fields.error(f"{problem}: exactly one of {', '.join(KINDS)} is needed{meant}")
    kind = kinds[0]
    unknown = fields.unknown(_KEYS[kind])
    if kind == "module":
        return _code(fields), unknown
    if kind == "command":
        return _command(fields), unknown
    if kind == "path":
        return _script(fields), unknown
    try:
        inner = fields.inside(kind)
    except ConfigError:
        raise fields.error(f"a mapping with {_WITH[kind]} was expected", kind) from None
    if kind == "mcp":
        server, tool = _needed(inner, "server"), _needed(inner, "tool")
        return Delegate(server=server, tool=tool), unknown + inner.unknown(("server", "tool"))
    return _endpoint(inner), unknown + inner.unknown(_ENDPOINT_KEYS)


def _code(fields: Fields) -> Code:
    module, name, function = _needed(fields, "module"), fields.text("class"), fields.text("function")
    if bool(name) == bool(function):
        raise fields.error("exactly one of `class` and `function` is needed beside `module`")
    for key, value in (("module", module), ("class" if name else "function", name or function)):
        if not _DOTTED.fullmatch(value):
            raise fields.error(f"{value!r} is not a Python name", key)
    return Code(module=module, attribute=name or function, is_class=bool(name))


def _command(fields: Fields) -> Command:
    argv = _groups(fields, "command")
    if not argv or len(argv[0]) != 1:
        raise fields.error("a list was expected: the program, then its arguments", "command")
    if argv[0][0].names or not argv[0][0].pieces[0]:
        raise fields.error("the program itself is fixed: it takes no arguments", "command")
    return _process(fields, argv, "none")


def _script(fields: Fields) -> Command:
    path = _needed(fields, "path")
    return _process(fields, _groups(fields, "args"), "json", script=path)


def _process(
    fields: Fields, argv: tuple[tuple[Template, ...], ...], stdin: Literal["none", "json"], script: str = ""
) -> Command:
    limit = fields.number("max_output") or _MAX_OUTPUT
    return Command(
        argv=argv,
        cwd=fields.expanded(fields.text("cwd"), "cwd"),
        env={name: fields.expanded(text, "env", name) for name, text in fields.strings("env").items()},
        stdin="json" if fields.choice("stdin", ("none", "json"), stdin) == "json" else "none",
        output=_output(fields),
        max_output=int(limit),
        script=script,
    )


def _groups(fields: Fields, key: str) -> tuple[tuple[Template, ...], ...]:
    node = fields.node(key)
    if node.kind == "mapping" or (node.kind == "scalar" and node.value is not None):
        raise fields.error("a list was expected, one item an argument: no shell splits it", key)
    return tuple(
        tuple(_template(fields, key, part) for part in (item.items if item.kind == "sequence" else (item,)))
        for item in node.items
    )


def _endpoint(fields: Fields) -> Endpoint:
    method = fields.choice("method", _METHODS, "GET")
    url = fields.template(_needed(fields, "url"), "url")
    try:
        parts = urlsplit(url.pieces[0])
        _ = parts.port  # raises for an invalid port
    except ValueError as error:
        raise fields.error(f"not a URL: {error}", "url") from None
    if parts.scheme not in ("http", "https"):
        raise fields.error("an http:// or https:// URL was expected", "url")
    if not parts.netloc or (url.names and not (parts.path or parts.query)):
        raise fields.error("an argument may not choose the host: it stands behind the first `/` after it", "url")
    headers = {name.lower(): template for name, template in _templates(fields, "headers").items()}
    for name, template in headers.items():
        if not _HEADER.fullmatch(name):
            raise fields.error(f"{name!r} is not a header name", "headers")
        if any(_CONTROL.search(piece) for piece in template.pieces[::2]):
            raise fields.error(f"the value of {name!r} has a line break or another control character", "headers")
    body, content = _body(fields, method)
    return Endpoint(
        method=method,
        url=url,
        query=_templates(fields, "query"),
        headers=headers,
        body=body,
        content=content,
        output=_output(fields),
        allow_private=fields.flag("allow_private", False),
    )


def _body(fields: Fields, method: str) -> tuple[Literal["none", "json", "template"], Template | None]:
    default = "none" if method in ("GET", "HEAD", "DELETE") else "json"
    text = fields.text("body", default)
    if text in ("none", "json"):
        return ("none" if text == "none" else "json"), None
    return "template", fields.template(text, "body")


def _output(fields: Fields) -> _Output:
    return "json" if fields.choice("output", ("text", "json"), "text") == "json" else "text"


def _needed(fields: Fields, key: str) -> str:
    text = fields.text(key)
    if not text.strip():
        raise fields.error("is missing", key)
    return text


def _template(fields: Fields, key: str, node: Node) -> Template:
    if node.kind != "scalar" or node.value is None:
        raise fields.error("a list of strings was expected", key)
    return fields.template(str(node.strings()), key)


def _templates(fields: Fields, key: str) -> dict[str, Template]:
    return {name: fields.template(text, key, name) for name, text in fields.strings(key).items()}


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

    `place` is its place in the list, for messages. Raises `ConfigError` with file, line and key.
    """
    named = node.member("name")
    label = str(named.node.text) if named and named.node.text else f"[{place}]"
    fields = Fields(node, reading.file, (label,), reading.expand)
    if not fields.flag("enabled", True):
        return None
    warnings = fields.unknown(KEYS)
    implementation: Implementation | None = None
    if "implementation" in fields:
        implementation, unused = read_implementation(fields.inside("implementation"))
        warnings += unused
    elif "skill_path" in fields:
        implementation = SkillText(path=fields.text("skill_path"))
    tool = _tool(fields, reading, implementation, warnings)
    return ToolEntry(tool=tool, implementation=implementation, line=node.line, warnings=tuple(warnings))


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
        version_info=_lineage(fields, schema),
        approval=cast("Any", fields.choice("approval", ("never", "mode", "always"), "mode")),
        execution=Execution(
            timeout=fields.number("timeout"),
            background_after=fields.number("background_after"),
            serial=fields.flag("serial", name in reading.serial),
            locks=_NO_TURNS if isinstance(implementation, Delegate) else _arguments(fields, schema, "locks"),
        ),
        availability=Availability(contexts=fields.texts("contexts")),
        guidance=Guidance(examples=_examples(fields, schema), policy=_policy(fields, warnings)),
        capability=_capability(fields, schema, implementation),
        traits=_traits(fields, implementation),
    )


def _lineage(fields: Fields, schema: Mapping[str, Any]) -> VersionInfo:
    why, instead = fields.text("deprecated"), fields.text("replaced_by")
    if instead and not why:
        raise fields.error("needs `deprecated` with the reason", "replaced_by")
    try:
        migrations = read_migrations(fields.mapping("migrations"), schema)
    except ValueError as error:
        raise fields.error(str(error), "migrations") from None
    made = VersionInfo(version=fields.text("version"), deprecated=why, replaced_by=instead, migrations=migrations)
    return made if made != NO_LINEAGE else NO_LINEAGE


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
    is_told = "untrusted" in traits or "reviewed" in traits
    return traits if is_told or not isinstance(implementation, Endpoint) else (*traits, "untrusted")


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
