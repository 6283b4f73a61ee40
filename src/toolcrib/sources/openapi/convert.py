"""Conversion of a whole description to tools; what cannot be taken becomes a problem beside them.

    path, method ─> taken by `Picks`? ─> arguments (`parameters`) ─┬─> `Operation`: how the request is made (`request`)
                                                                   └─> `Tool`: schema, description, annotations

The result is kept on disk (`ApiCache`), from where a large one is read in a tenth of the time: one file a configured
API, mode 0600 in a folder of mode 0700, with the hash of the description; the other inputs of the conversion are in the
file's name. A file that is unreadable, broken or of another version counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

from msgspec import Struct, field

from ...core.events import Problem
from ...core.json import as_list, as_mapping, dumps, fields_of, loads
from ...core.patterns import regex
from ...core.sanitize import clean_schema, clean_text
from ...core.schema import Validator, compile_schema
from ...core.tool import Annotations, Guidance, Tool
from ...system.private_files import remove_old, replace_private
from .description import Document, Refs
from .parameters import Arguments, Names, Sent
from .request import Operation
from .schemas import Schemas, prose, samples
from .swagger import METHODS

_MAX_TOOLS: Final = 5000
_MAX_SCHEMA: Final = 64 << 10
"""Bytes of one tool's schema (security.md R13)."""
_DESCRIPTION: Final = 2000
"""Characters; the rest of a longer description is rarely useful."""
_PATH: Final = 500
_PLACEHOLDER: Final = regex(r"\{([^{}/]+)\}")
_WORD: Final = regex(r"[A-Z]?[a-z]+")
_DESTROYS: Final = frozenset("clear delete deletes destroy drop erase purge remove removes revoke wipe".split())

_FORMAT: Final = f"1 {version('toolcrib')}"


class Picks(Struct, frozen=True, kw_only=True):
    """Selected operations: by tag, operation id or `METHOD /path`, with `*` and `?`."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def takes(self, names: Iterable[str]) -> bool:
        """Whether an operation that goes by all these names is taken."""
        known = [name.lower() for name in names]

        def named(patterns: Iterable[str]) -> bool:
            return any(fnmatchcase(name, pattern.lower()) for pattern in patterns for name in known)

        return (not self.include or named(self.include)) and not named(self.exclude)


class Api(Struct, frozen=True, kw_only=True):
    """Tools of a description. They carry no source yet: `source.OpenApiSource` puts its name in."""

    tools: tuple[Tool, ...]
    operations: Mapping[str, Operation]
    """By the tool's local name."""
    problems: tuple[Problem, ...] = ()
    title: str = ""
    description: str = ""
    servers: tuple[str, ...] = ()
    """As they are written, with the defaults of their variables; may be relative."""
    schemes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The security schemes, references resolved."""
    is_guarded: bool = False
    """At least one of the operations wants credentials."""


def convert(document: Document, picks: Picks, sent: Sent, source: str = "") -> Api:
    """Return the operations of `document`, as tools of `source`. A bad operation is a problem, and never raises."""
    return _Conversion(document, picks, sent, source).run()


class _Conversion:
    """One run over one description."""

    def __init__(self, document: Document, picks: Picks, sent: Sent, source: str) -> None:
        self._root = document.root
        self._refs = Refs(document.root)
        self._schemas = Schemas(self._refs, is_old=document.is_old)
        self._picks = picks
        self._sent = sent
        self._source = source
        self._problems: list[Problem] = []
        self._servers = _servers(document.root)
        self._seen: set[str] = set()
        self._is_guarded = False

    def run(self) -> Api:
        found = list(self._found())
        names = Names(_text(operation.get("operationId")) for _, _, _, operation in found)
        tools: dict[str, Tool] = {}
        operations: dict[str, Operation] = {}
        for method, path, item, node in found:
            name, is_shared = names.give(_text(node.get("operationId")), method, path)
            labels = (*_tags(node), _text(node.get("operationId")), name, f"{method.upper()} {path}")
            self._seen.update(label.lower() for label in labels if label)
            if not self._picks.takes(filter(None, labels)):
                continue
            if len(tools) >= _MAX_TOOLS:
                self._report("too_many", "", f"there are more than {_MAX_TOOLS} operations; name those you need")
                break
            if is_shared:
                shared = f"its operation id {node['operationId']!r} is another's too; the tool is {name}"
                self._report("duplicate", f"{method.upper()} {path}", shared)
            try:
                tools[name], operations[name] = self._take(name, method, path, item, node)
            except ValueError as error:
                self._report("bad_operation", f"{method.upper()} {path}", f"not offered: {error}")
        self._report_idle_picks()
        return self._api(tools, operations)

    def _api(self, tools: Mapping[str, Tool], operations: Mapping[str, Operation]) -> Api:
        info = as_mapping(self._root.get("info"))
        schemes: dict[str, Any] = {}
        for name, node in as_mapping(as_mapping(self._root.get("components")).get("securitySchemes")).items():
            try:
                schemes[name] = dict(self._refs.resolve(node))
            except ValueError as error:
                self._report("bad_scheme", "", f"the security scheme {name} cannot be used: {error}")
        return Api(
            tools=tuple(tools.values()),
            operations=operations,
            problems=tuple(self._problems),
            title=prose(info.get("title"), 200),
            description=prose(info.get("description"), 500),
            servers=self._servers,
            schemes=schemes,
            is_guarded=self._is_guarded and bool(schemes),
        )

    def _found(self) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
        """Yield method, path, path item and operation, in the order of the description."""
        for path, written in as_mapping(self._root.get("paths")).items():
            if path.startswith("x-"):
                continue
            try:
                item = self._refs.resolve(written)
            except ValueError as error:
                self._report("bad_path", path, f"not offered: {error}")
                continue
            for method in (method for method in item if method in METHODS):
                if isinstance(item[method], Mapping):
                    yield method, path, item, as_mapping(item[method])
                else:
                    self._report("bad_operation", f"{method.upper()} {path}", "left out: it is not a mapping")

    def _take(
        self, name: str, method: str, path: str, item: Mapping[str, Any], node: Mapping[str, Any]
    ) -> tuple[Tool, Operation]:
        if not path.startswith("/"):
            raise ValueError("its path does not begin with /")
        if any(step.partition(";")[0] in (".", "..") for step in unquote(path).replace("\\", "/").split("/")):
            raise ValueError("its path climbs out of where the API is")
        other = _servers(node) or _servers(item)
        if other and other != self._servers:
            raise ValueError(f"it is served at {other[0][:200]}, not where the API is")
        self._schemas.begin()
        arguments = Arguments(self._refs, self._schemas, self._sent)
        declared = (*as_list(item.get("parameters")), *as_list(node.get("parameters")))
        arguments.add_parameters(declared, _PLACEHOLDER.findall(path))
        body = arguments.add_body(node["requestBody"]) if "requestBody" in node else None
        security = as_list(node.get("security", self._root.get("security")))
        self._is_guarded = self._is_guarded or (bool(security) and {} not in security)
        operation = Operation(
            method=method.upper(),
            path=path,
            parameters=tuple(arguments.parameters),
            body=body,
            accept=self._accept(node),
            is_anonymous=node.get("security") == [],
        )
        made = arguments.schema()
        if (size := len(dumps(made))) > _MAX_SCHEMA:
            raise ValueError(f"its arguments take {size:,} bytes to describe; {_MAX_SCHEMA:,} are taken")
        schema, validator = _compiled(dict(clean_schema(made)[0]))
        if hidden := clean_text(dumps([node, declared]).decode())[1]:
            self._report("hidden_text", f"{operation.method} {path}", f"{hidden} invisible characters were removed")
        given = samples(self._refs, declared, node, operation)
        return self._tool(name, node, operation, schema, [one for one in given if not validator.check(one)]), operation

    def _tool(
        self,
        name: str,
        node: Mapping[str, Any],
        operation: Operation,
        schema: Mapping[str, Any],
        examples: list[Mapping[str, Any]],
    ) -> Tool:
        title = prose(node.get("summary"), 200)
        tags = _tags(node)
        segments = [part for part in operation.path.split("/") if part and "{" not in part]
        return Tool(
            name=name,
            local_name=name,
            source=self._source,
            title=title,
            description=_description(title, node, operation),
            input_schema=schema,
            annotations=_annotations(operation.method, title, _text(node.get("operationId")) or name),
            category=tags[0] if tags else (segments[0] if segments else ""),
            tags=tags,
            guidance=Guidance(examples=tuple(examples[:2])),
            origin="openapi",
        )

    def _accept(self, node: Mapping[str, Any]) -> str:
        """Accepted media type: JSON if possible, else any of the successful responses."""
        offered: dict[str, None] = {}
        for status, response in as_mapping(node.get("responses")).items():
            if str(status).startswith("2") or status == "default":
                try:
                    content = as_mapping(self._refs.resolve(response).get("content"))
                except ValueError:
                    continue
                offered.update(dict.fromkeys(content))
        media_types = [name.strip() for name in offered if name.isascii() and name.isprintable()]
        of_json = [name for name in media_types if "json" in name.lower()]
        plain = [name for name in of_json if name.lower().startswith("application/json")]
        return (plain or of_json or [", ".join([*media_types, "*/*;q=0.1"])])[0] if media_types else "application/json"

    def _report(self, code: str, where: str, message: str, hint: str = "") -> None:
        self._problems.append(Problem(source=self._source, code=code, tool=where, message=message, hint=hint))

    def _report_idle_picks(self) -> None:
        for key, patterns in (("include", self._picks.include), ("exclude", self._picks.exclude)):
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern.lower()) for name in self._seen):
                    hint = "Give a tag, an operation id or `METHOD /path`; `*` matches anything."
                    self._report("idle_filter", "", f"{key}: {pattern!r} fits no operation", hint)


def _compiled(schema: dict[str, Any]) -> tuple[dict[str, Any], Validator]:
    """Return the schema as it can be used: without its regular expressions if they are broken. Raises `ValueError`."""
    try:
        return schema, compile_schema(schema)
    except ValueError:
        bare = cast("dict[str, Any]", _without_patterns(schema))
        return bare, compile_schema(bare)


def _without_patterns(value: Any) -> Any:
    if isinstance(value, dict):
        node = cast("dict[str, Any]", value)
        dropped = ("pattern", "patternProperties")
        kept = {key: one for key, one in node.items() if key not in dropped or not isinstance(one, str | dict)}
        if isinstance(node.get("pattern"), Mapping):  # a property of that name
            kept["pattern"] = node["pattern"]
        return {key: _without_patterns(one) for key, one in kept.items()}
    return [_without_patterns(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _description(title: str, node: Mapping[str, Any], operation: Operation) -> str:
    """The summary as the first sentence, the words of the description, and the address."""
    body = prose(node.get("description"), _DESCRIPTION)
    first = title if not title or title.endswith((".", "!", "?")) else f"{title}."
    words = body if title and body.lower().startswith(title.lower().rstrip(".")) else f"{first} {body}".strip()
    if node.get("deprecated") is True:
        words = f"{words} Deprecated."
    return f"{words}\n\n{operation.method} {clean_text(operation.path)[0][:_PATH]}".strip()


def _annotations(method: str, title: str, identity: str) -> Annotations:
    """Annotations by the method (RFC 9110); a POST whose name says delete counts as destructive."""
    words = {word.lower() for word in _WORD.findall(identity)} | {title.partition(" ")[0].lower()}
    return Annotations(
        read_only=method in ("GET", "HEAD", "OPTIONS"),
        destructive=method == "DELETE" or (method in ("POST", "PUT", "PATCH") and bool(words & _DESTROYS)),
        idempotent=method not in ("POST", "PATCH"),
        open_world=True,
    )


def _servers(node: Mapping[str, Any]) -> tuple[str, ...]:
    servers: list[str] = []
    for one in map(as_mapping, as_list(node.get("servers"))):
        url = _text(one.get("url"))
        for name, variable in as_mapping(one.get("variables")).items():
            url = url.replace(f"{{{name}}}", str(as_mapping(variable).get("default", "")))
        servers.append(url)
    return tuple(filter(None, servers))


def _tags(node: Mapping[str, Any]) -> tuple[str, ...]:
    named = (prose(tag, 60) for tag in as_list(node.get("tags")))
    return tuple(dict.fromkeys(filter(None, named)))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


class ApiCache:
    """The file of one API. Blocking: use it from a thread. `folder` None keeps nothing."""

    def __init__(self, folder: Path | None, key: str, source: str) -> None:
        """`key` names the configuration; `source` is put into the tools."""
        self._path = None if folder is None else folder / f"openapi-{key}.json"
        self._source = source

    def read(self) -> tuple[str, Api] | None:
        """Return the hash of the converted description, and the result; None if missing."""
        if self._path is None:
            return None
        try:
            kept = as_mapping(loads(self._path.read_bytes()))
            return (str(kept["digest"]), self._api(kept)) if kept.get("format") == _FORMAT else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, digest: str, api: Api) -> None:
        """Keep `api`; raises `OSError` when the folder cannot be written."""
        if self._path is None:
            return
        data = dumps(
            {
                "format": _FORMAT,
                "digest": digest,
                "tools": [_entry(tool, api.operations[tool.local_name]) for tool in api.tools],
                "problems": [fields_of(problem) for problem in api.problems],
                "title": api.title,
                "description": api.description,
                "servers": api.servers,
                "schemes": api.schemes,
                "guarded": api.is_guarded,
            }
        )
        replace_private(self._path, data)
        remove_old(self._path.parent, "openapi-*")

    def _api(self, kept: Mapping[str, Any]) -> Api:
        entries: list[Mapping[str, Any]] = kept["tools"]
        return Api(
            tools=tuple(self._tool(entry) for entry in entries),
            operations={entry["name"]: Operation.from_json(entry["operation"]) for entry in entries},
            problems=tuple(Problem(**one) for one in kept["problems"]),
            title=kept["title"],
            description=kept["description"],
            servers=tuple(kept["servers"]),
            schemes=kept["schemes"],
            is_guarded=bool(kept["guarded"]),
        )

    def _tool(self, entry: Mapping[str, Any]) -> Tool:
        return Tool(
            name=entry["name"],
            local_name=entry["name"],
            source=self._source,
            title=entry["title"],
            description=entry["description"],
            input_schema=entry["inputSchema"],
            annotations=Annotations(**entry["annotations"]),
            category=entry["category"],
            tags=tuple(entry["tags"]),
            guidance=Guidance(examples=tuple(entry["examples"])),
            origin="openapi",
        )


def _entry(tool: Tool, operation: Operation) -> dict[str, Any]:
    return {
        "name": tool.local_name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": {key: value for key, value in fields_of(tool.annotations).items() if key != "icons"},
        "category": tool.category,
        "tags": tool.tags,
        "examples": list(tool.guidance.examples),
        "operation": operation.to_json(),
    }
