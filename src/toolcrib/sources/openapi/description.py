"""API descriptions from a file or a URL: read, checked, and Swagger 2.0 converted to OpenAPI 3.0.

YAML is read as API descriptions use it, without its dangerous features.
Anchors, aliases and merge keys are accepted, since real descriptions have them, but their expansion counts against the
limits. Scalars follow the core schema of YAML 1.2, so `no` and dates stay text; keys are always text, for responses are
often named `200`. Tags and duplicate keys are rejected.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urljoin, urlsplit

import anyio.to_thread
import yaml
from msgspec import Struct, field

from ...core.json import canonical, read_json
from ...errors import UsageError
from ...net.client import NetLimits, WebClient, WebRequest
from ...net.guard import DEFAULT_PORTS, Guard

__all__ = [
    "MAX_JSON_BYTES",
    "Document",
    "Refs",
    "base_url_of",
    "digest_of",
    "fetch",
    "is_openapi",
    "is_url",
    "mapping",
    "parse",
    "placed",
    "read_yaml",
    "same_origin",
    "shown",
    "upgraded",
]

_MAX_NODES: Final = 1_000_000
"""With aliases written out. The largest public descriptions have some 200,000."""
_MAX_YAML_DEPTH: Final = 100
_MERGE: Final = "<<"
_TAGS: Final = ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:str")

_CONSTANTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_JSON: Final = "application/json"
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
_OF_A_VALUE: Final = (
    *("type", "format", "items", "default", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength"),
    *("minLength", "pattern", "maxItems", "minItems", "uniqueItems", "enum", "multipleOf"),
)
"""Keywords of the value itself in a parameter of version 2; version 3 has them in `schema`."""
_KEPT: Final = ("tags", "summary", "description", "operationId", "deprecated", "security")
_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "csv": {"explode": False},
    "multi": {"explode": True},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
}
_FLOWS: Final[Mapping[str, str]] = {
    "accessCode": "authorizationCode",
    "application": "clientCredentials",
    "implicit": "implicit",
    "password": "password",
}
_MOVED: Final = (
    ("#/definitions/", "#/components/schemas/"),
    ("#/responses/", "#/components/responses/"),
    ("#/securityDefinitions/", "#/components/securitySchemes/"),
)
_MAX_DEPTH: Final = 200

MAX_JSON_BYTES: Final = 64 << 20
"""The largest public description has 14 MB."""
_MAX_YAML_BYTES: Final = 16 << 20
_VERSION: Final = re.compile(r"3\.(\d+)(?:\.\d+)?")

_MAX_HOPS: Final = 32

_LIMITS: Final = NetLimits(body_bytes=MAX_JSON_BYTES, seconds=60.0, idle_seconds=20.0, ratio=200)
_ACCEPTED: Final = {"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}


def read_yaml(text: str) -> Any:
    """Return the one document in `text`. Raises `ValueError` with the line."""
    builder = _Builder()
    try:
        loader = yaml.CSafeLoader(text)
        while (event := loader.get_event()) is not None:
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ValueError(f"line {mark.line + 1 if mark else 1}: {error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from error
    return builder.root


class _Open(Struct):
    """An open collection; `size` counts its content."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    key: str | None = None
    size: int = 1
    merged: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


class _Builder:
    """Puts events together; used once."""

    def __init__(self) -> None:
        self.root: Any = None
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) >= _MAX_YAML_DEPTH:
                raise _error(event, f"nested deeper than {_MAX_YAML_DEPTH} levels")
            self._known_tag(event)
            self._count_in(1, event)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(_Open(value={} if is_mapping else [], anchor=event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(event)
        elif isinstance(event, yaml.AliasEvent):
            known = self._anchors.get(event.anchor or "")
            if known is None:
                raise _error(event, f"nothing is called *{event.anchor} here")
            self._count_in(known[1], event)
            self._add(known[0], known[1], event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _error(event, "one document is expected, here a second one begins")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._known_tag(event)
        self._count_in(1, event)
        around = self._open[-1] if self._open else None
        text: str = event.value
        if around is not None and isinstance(around.value, dict) and around.key is None:
            value: Any = text
        else:
            value = _resolved(text) if not event.style and event.tag is None else text
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1, event)

    def _end(self, event: yaml.Event) -> None:
        done = self._open.pop()
        for more in done.merged:
            done.value = {**more, **cast("dict[str, Any]", done.value)}
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.size)
        self._add(done.value, done.size, event)

    def _add(self, value: Any, size: int, event: yaml.Event) -> None:
        if not self._open:
            self.root = value
            return
        around = self._open[-1]
        around.size += size
        if isinstance(around.value, list):
            around.value.append(value)
        elif around.key is None:
            self._key(around, value, event)
        else:
            self._member(around, around.key, value, event)
            around.key = None

    def _count_in(self, size: int, event: yaml.Event) -> None:
        self._count += size
        if self._count > _MAX_NODES:
            raise _error(event, f"more than {_MAX_NODES:,} values, aliases written out")

    def _key(self, around: _Open, value: Any, event: yaml.Event) -> None:
        if isinstance(value, dict | list):
            raise _error(event, "a key must be a plain name")
        key = value if isinstance(value, str) else str(value)
        if key in around.value:
            raise _error(event, f"{key!r} stands here a second time")
        around.key = key

    def _member(self, around: _Open, key: str, value: Any, event: yaml.Event) -> None:
        if key != _MERGE:
            cast("dict[str, Any]", around.value)[key] = value
            return
        for more in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if not isinstance(more, dict):
                raise _error(event, "<< takes a mapping or a list of mappings")
            around.merged.append(cast("Mapping[str, Any]", more))

    def _known_tag(self, event: yaml.NodeEvent) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _TAGS:
            raise _error(event, f"the tag {tag} is not supported here")


def _resolved(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _error(event: yaml.Event, message: str) -> ValueError:
    return ValueError(f"line {event.start_mark.line + 1}: {message}")


def upgraded(root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a description of version 2.0 in version 3.0. Its errors stay, for the reader to report."""
    return _Upgrade(root).made()


class _Upgrade:
    """One run over one description."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parameters = _mapping(root.get("parameters"))

    def made(self) -> dict[str, Any]:
        root = self._root
        components: dict[str, Any] = {
            "schemas": {name: _moved(one) for name, one in _mapping(root.get("definitions")).items()},
            "responses": {name: self._answer(one, root) for name, one in _mapping(root.get("responses")).items()},
            "securitySchemes": {name: _scheme(one) for name, one in _mapping(root.get("securityDefinitions")).items()},
        }
        made: dict[str, Any] = {"openapi": "3.0.3", "info": root.get("info", {}), "components": components}
        made |= {"servers": servers} if (servers := list(self._servers())) else {}
        made |= {key: root[key] for key in ("security", "tags") if key in root}
        made["paths"] = {path: self._item(item) for path, item in _mapping(root.get("paths")).items()}
        return made

    def _servers(self) -> Iterator[dict[str, str]]:
        host, base = self._root.get("host"), str(self._root.get("basePath") or "")
        if not isinstance(host, str) or not host:
            if base:
                yield {"url": base}
            return
        schemes = [one for one in _list(self._root.get("schemes")) if one in ("http", "https")] or ["https"]
        for scheme in sorted(schemes, reverse=True):
            yield {"url": f"{scheme}://{host}/{base.strip('/')}".rstrip("/")}

    def _item(self, written: Any) -> Any:
        """Return a path with its operations; parameters that are a body belong to each of them."""
        if not isinstance(written, Mapping):
            return written
        item = cast("Mapping[str, Any]", written)
        shared = _list(item.get("parameters"))
        made: dict[str, Any] = {"$ref": item["$ref"]} if "$ref" in item else {}
        for method in _METHODS:
            if method in item:
                given: object = item[method]
                made[method] = self._operation(_mapping(given), shared) if _mapping(given) else given
        return made

    def _operation(self, given: Mapping[str, Any], shared: list[Any]) -> dict[str, Any]:
        made: dict[str, Any] = {key: given[key] for key in _KEPT if key in given}
        parameters: list[Any] = []
        fields: list[Mapping[str, Any]] = []
        for written in _without_overridden(shared, _list(given.get("parameters")), self._found):
            one = self._found(written)
            if one.get("in") == "body":
                made["requestBody"] = self._body(one, given)
            elif one.get("in") == "formData":
                fields.append(one)
            else:
                parameters.append(_parameter(one) if "$ref" not in one else one)
        if fields and "requestBody" not in made:
            made["requestBody"] = self._form(fields, given)
        made["parameters"] = parameters
        answers = _mapping(given.get("responses")).items()
        return made | {"responses": {status: self._answer(one, given) for status, one in answers}}

    def _found(self, written: Any) -> Mapping[str, Any]:
        """Return a parameter, or the one that it refers to; a reference that leads nowhere stays as it is."""
        one = _mapping(written)
        reference = str(one.get("$ref", ""))
        name = reference.removeprefix("#/parameters/").replace("~1", "/").replace("~0", "~")
        return _mapping(self._parameters[name]) if reference and name in self._parameters else one

    def _body(self, one: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, Any]:
        kinds = [kind for kind in self._kinds("consumes", operation) if kind not in _FORMS] or [_JSON]
        schema = _moved(one.get("schema", {}))
        made: dict[str, Any] = {"required": one.get("required") is True}
        made |= {"description": one["description"]} if "description" in one else {}
        return made | {"content": {kind: {"schema": schema} for kind in kinds}}

    def _form(self, fields: list[Mapping[str, Any]], operation: Mapping[str, Any]) -> dict[str, Any]:
        kinds = [kind for kind in self._kinds("consumes", operation) if kind in _FORMS]
        has_file = any(one.get("type") == "file" for one in fields)
        kind = _FORMS[1] if has_file or kinds == [_FORMS[1]] else _FORMS[0]
        properties: dict[str, Any] = {}
        encoding: dict[str, Any] = {}
        for one in fields:
            name = str(one.get("name", ""))
            is_file = one.get("type") == "file"
            properties[name] = {"type": "string", "format": "binary"} if is_file else _value(one)
            properties[name] |= {"description": one["description"]} if "description" in one else {}
            if style := _STYLES.get(str(one.get("collectionFormat", ""))):
                encoding[name] = {"style": "form", **style}
        needed = [str(one.get("name")) for one in fields if one.get("required") is True]
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        schema |= {"required": needed} if needed else {}
        return {"required": bool(needed), "content": {kind: {"schema": schema, "encoding": encoding}}}

    def _answer(self, written: Any, operation: Mapping[str, Any]) -> Any:
        given = _mapping(written)
        if "$ref" in given:
            return _moved(given)
        made: dict[str, Any] = {"description": given.get("description", "")}
        schema = _mapping(given.get("schema"))
        if schema and schema.get("type") != "file":
            kinds = self._kinds("produces", operation) or [_JSON]
            made["content"] = {kind: {"schema": _moved(schema)} for kind in kinds}
        elif schema:
            made["content"] = {kind: {} for kind in self._kinds("produces", operation) or ["application/octet-stream"]}
        return made

    def _kinds(self, key: str, operation: Mapping[str, Any]) -> list[str]:
        """Return media types, of the operation or of all of them."""
        given = operation.get(key, self._root.get(key))
        return [kind for kind in _list(given) if isinstance(kind, str)]


def _without_overridden(shared: list[Any], own: list[Any], found: Any) -> Iterator[Any]:
    """Yield the parameters of a path that its operation does not override, then those of the operation."""
    named = {(found(one).get("in"), found(one).get("name")) for one in own}
    yield from (one for one in shared if (found(one).get("in"), found(one).get("name")) not in named)
    yield from own


def _parameter(one: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {key: one[key] for key in ("name", "in", "required", "description") if key in one}
    made |= {key: value for key, value in one.items() if key.startswith("x-")}
    made["schema"] = _value(one)
    if one.get("type") == "array":
        style = _STYLES.get(str(one.get("collectionFormat", "csv")), {})
        made |= style if one.get("in") == "query" else {}
    return made


def _value(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _moved(one[key]) for key in _OF_A_VALUE if key in one}


def _scheme(written: Any) -> Any:
    given = _mapping(written)
    match given.get("type"):
        case "basic":
            return {"type": "http", "scheme": "basic"}
        case "oauth2":
            urls = {key: given[key] for key in ("authorizationUrl", "tokenUrl") if key in given}
            flow = _FLOWS.get(str(given.get("flow")), "implicit")
            return {"type": "oauth2", "flows": {flow: {**urls, "scopes": _mapping(given.get("scopes"))}}}
        case _:
            return dict(given)


def _moved(value: Any, depth: int = 0) -> Any:
    """Return a schema whose references lead to where version 3 keeps things."""
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        node = {key: _moved(one, depth + 1) for key, one in cast("Mapping[str, Any]", value).items()}
        reference = node.get("$ref")
        if isinstance(reference, str):
            for old, new in _MOVED:
                if reference.startswith(old):
                    node["$ref"] = new + reference.removeprefix(old)
        if node.get("x-nullable") is True:
            node["nullable"] = True
        if isinstance(node.get("discriminator"), str):
            node["discriminator"] = {"propertyName": node["discriminator"]}
        return node
    return [_moved(one, depth + 1) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


class Document(Struct, frozen=True, kw_only=True):
    """A description. `root` is as it was written and must not be changed."""

    root: Mapping[str, Any]
    is_old: bool
    """Version 3.0, whose schemas are a dialect of their own."""


def is_openapi(value: object) -> bool:
    """Whether `value`, the data of a file, is meant as an API description; `parse` validates it."""
    return isinstance(value, Mapping) and ("openapi" in value or "swagger" in value)


def parse(given: bytes | Mapping[str, Any], where: str) -> Document:
    """Return the description in `given`. Raises `UsageError` that names `where` for any other data."""
    try:
        root = given if isinstance(given, Mapping) else _read(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {error}") from error
    if not is_openapi(root):
        raise UsageError(f"{where}: not an OpenAPI description: it has no key `openapi`")
    described = cast("Mapping[str, Any]", root)
    if str(described.get("swagger")) == "2.0":
        described = upgraded(described)
    version = str(described.get("openapi", described.get("swagger")))
    found = _VERSION.fullmatch(version)
    if "swagger" in described or found is None or int(found[1]) > 2:
        hint = "; convert it to OpenAPI 3 first" if "swagger" in described else ""
        raise UsageError(f"{where}: OpenAPI 3.0, 3.1 and 3.2 are read, not version {version[:20]}{hint}")
    if not isinstance(described.get("paths", {}), Mapping):
        raise UsageError(f"{where}: `paths` must be a mapping from path to operations")
    return Document(root=described, is_old=found[1] == "0")


def digest_of(given: bytes | Mapping[str, Any]) -> str:
    """Return 64 hex digits that name the content."""
    return hashlib.sha256(canonical(given) if isinstance(given, Mapping) else given).hexdigest()


def mapping(value: object) -> Mapping[str, Any]:
    """Return `value` when it is an object; anything else counts as an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _read(data: bytes) -> Any:
    data = data.removeprefix(b"\xef\xbb\xbf")
    is_json = data[:64].lstrip()[:1] == b"{"
    limit = MAX_JSON_BYTES if is_json else _MAX_YAML_BYTES
    if len(data) > limit:
        raise ValueError(f"the description has {len(data):,} bytes; {limit:,} are read")
    if is_json:
        return read_json(data, limit=limit)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from error
    return read_yaml(text)


class Refs:
    """The places that references of one description point to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._found: dict[str, Any] = {}

    def find(self, reference: str) -> Any:
        """Return the node at `reference`. Raises `ValueError` for an external or dangling one."""
        if reference not in self._found:
            self._found[reference] = self._look(reference)
        return self._found[reference]

    def resolve(self, node: object) -> Mapping[str, Any]:
        """Return `node`, or the final target of its `$ref`. Raises `ValueError`."""
        found = mapping(node)
        for _ in range(_MAX_HOPS):
            reference = found.get("$ref")
            if not isinstance(reference, str):
                return found
            found = mapping(self.find(reference))
        raise ValueError(f"{found.get('$ref')} leads from one reference to the next without end")

    def _look(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise ValueError(f"{reference[:200]} is outside of the description, which is not followed")
        found: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = cast("Mapping[str, Any]", found)[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(cast("list[Any]", found)):
                found = cast("list[Any]", found)[int(key)]
            else:
                raise ValueError(f"{reference[:200]} points to nothing")
        return found


async def fetch(where: str, guard: Guard) -> bytes:
    """Return the content at `where`, a path or a URL. Raises `UsageError` or `NetFailure`."""
    if not is_url(where):
        try:
            return await anyio.to_thread.run_sync(_fetch_read, where)
        except OSError as error:
            raise UsageError(f"{where} cannot be read: {error.strerror or error}") from error
    client = WebClient(guard, _LIMITS)
    try:
        answer = await client.send(WebRequest(method="GET", url=where, headers=_ACCEPTED))
    finally:
        await client.aclose()
    if answer.status != 200:
        raise UsageError(f"{shown(where)} answers HTTP {answer.status}, not with a description")
    return answer.body


def base_url_of(servers: Sequence[str], where: str) -> str:
    """Return the base URL of the API from a description that came from `where` (empty for data of our own).

    A downloaded description may not send our credentials to another origin. Raises `UsageError` with the key to
    configure.
    """
    written = servers[0] if servers else "/"
    if is_url(where):
        url = urljoin(where, written)
        if not same_origin(url, where):
            hint = f"set `base_url: {url}` if you trust it"
            raise UsageError(f"the description places the API at {url}, not at its own origin: {hint}")
        return url
    if not is_url(written) or "{" in written:
        raise UsageError(f"the description has no usable address of the API ({written!r}): set `base_url`")
    return written


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host and port."""
    return _origin(one) == _origin(other)


def is_url(text: str) -> bool:
    """Whether `text` is a URL and no path."""
    return text.lower().startswith(("http://", "https://"))


def placed(where: str | Path) -> str:
    """Return a URL as it is, and a path with `~` written out."""
    return where if isinstance(where, str) and is_url(where) else os.path.expanduser(where)


def shown(where: str) -> str:
    """Return a path or a URL for display, without parts that may be secret."""
    if not is_url(where):
        return where
    parts = urlsplit(where)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _fetch_read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(MAX_JSON_BYTES + 1)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    return parts.scheme, (parts.hostname or "").lower(), port or DEFAULT_PORTS.get(parts.scheme)
