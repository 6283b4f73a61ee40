"""Implementation of a catalog entry: code, a command, a request, another tool, or the text of a skill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from ...core.documents.tree import Node
from ...core.patterns import regex
from ...core.similar import nearest
from ...errors import ConfigError
from .fields import Fields, Template

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_MAX_OUTPUT: Final = 4 << 20
"""Default limit for the bytes of one stream of a command."""
_DOTTED: Final = regex(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CONTROL: Final = regex(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that end a header, or that no header has."""
_HEADER: Final = regex(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
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
    """Return the implementation of the entry, and a sentence for each unused key. Raises `ConfigError`."""
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
    method = fields.choice("method", METHODS, "GET")
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
