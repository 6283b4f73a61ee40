"""Endpoints of a description: found by method and path, described for a reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import unquote

from msgspec.structs import replace

from ...core.json import as_list, as_mapping, dumps, read_json
from ...core.patterns import regex
from ...core.schema import FieldError
from ...core.services.apis import ApiRequest
from ...core.similar import did_you_mean
from ...core.tool import Tool
from ...errors import ToolFailure
from .convert import Api
from .description import Document, Refs
from .request import Operation, Parameter
from .schemas import Schemas, prose

_PLACEHOLDER: Final = regex(r"\{([^{}/]+)\}")
_PLAIN: Final = ("boolean", "integer", "number", "null")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_TOGETHER: Final = 3
"""Places in one step of a path, and one over several steps: with more, a path can be read in too many ways to try."""
_NEAREST: Final = 3
_SHOWN: Final = 10
"""Errors listed in one message."""
_WHAT: Final = "get_endpoint_schema shows its parameters"
_WHERE: Final = f"values for {{places}} are in the path itself or in query; {_WHAT}"

_MAX_ANSWER: Final = 16 << 10
"""Bytes of the schema of one answer; a larger one is reduced to its first level."""


def find(api: Api, method: str, path: str) -> tuple[str, Mapping[str, str]]:
    """Return the name of the operation that a method and a path mean, and the values of the places in the path.

    The path is written as in the description, filled in, or is the operation's name. Where several fit, the one with
    the fewest places does (OpenAPI: concrete paths first). Raises `ToolFailure`: `not_found` with the nearest paths.
    """
    wanted, bare = method.upper(), path.strip()
    if "?" in bare or "#" in bare:
        raise ToolFailure("invalid_arguments", f"path: {path!r} has a `?` or `#`; parameters belong into query")
    named = api.operations.get(bare)
    if named is not None and named.method == wanted:
        return bare, {}
    bare = bare if bare.startswith("/") else f"/{bare}"
    found: list[tuple[int, str, Mapping[str, str]]] = []
    methods: set[str] = set()
    for name, operation in api.operations.items():
        values = _NOTHING if operation.path == bare else _values(operation, bare)
        if values is None:
            continue
        methods.add(operation.method)
        if operation.method == wanted:
            places = -1 if operation.path == bare else len(_PLACEHOLDER.findall(operation.path))
            found.append((places, name, values))
    if not found:
        raise _unknown(api, wanted, bare, methods)
    _, name, values = min(found, key=lambda one: one[0])
    return name, values


def with_headers(operation: Operation, headers: Mapping[str, str]) -> tuple[Operation, dict[str, str]]:
    """Return the operation with the headers that its description does not know, and their arguments."""
    known = {one.name.lower() for one in operation.parameters if one.place == "header"}
    more = {f"header {name}": name for name in headers if name.lower() not in known}
    added = (
        Parameter(argument=argument, name=name, place="header", style="simple", explode=False)
        for argument, name in more.items()
    )
    return replace(operation, parameters=(*operation.parameters, *added)), {
        argument: headers[name] for argument, name in more.items()
    }


def arguments_of(operation: Operation, tool: Tool, values: Mapping[str, str], request: ApiRequest) -> dict[str, Any]:
    """Return the arguments of a request, unchecked.

    Raises `ToolFailure("invalid_arguments")` for unknown query parameters, and for a body that the operation does not
    take.
    """
    query, properties = dict(request.query), as_mapping(tool.input_schema.get("properties"))
    headers = {name.lower(): value for name, value in request.headers.items()}
    made: dict[str, Any] = {}
    for one in operation.parameters:
        schema = as_mapping(properties.get(one.argument))
        if one.place in ("header", "cookie"):
            if one.name.lower() in headers:
                made[one.argument] = _read(headers[one.name.lower()], schema)
            continue
        if one.place == "path" and one.name in values:
            made[one.argument] = _read(values[one.name], schema)
            continue
        for key in (one.name, one.argument):
            if key in query:
                made[one.argument] = query.pop(key)
                break
    if query:
        raise _not_there("query", query, [one.name for one in operation.parameters if one.place in ("path", "query")])
    return made | _body(operation, request.body)


def misfit(operation: Operation, errors: tuple[FieldError, ...]) -> ToolFailure:
    """Return the failure for invalid arguments of a request, in the terms of the request."""
    places = {one.argument: _place(one) for one in operation.parameters}
    if operation.body is not None:
        places |= {argument: f"body.{name}" for argument, name in operation.body.properties.items()}
        places |= {operation.body.argument: "body"} if operation.body.argument else {}
    field_errors = [replace(error, path=_renamed(error.path, places)) for error in errors]
    more = f" (and {len(field_errors) - _SHOWN} more)" if len(field_errors) > _SHOWN else ""
    return ToolFailure(
        "invalid_arguments",
        f"{operation.method} {operation.path} was not sent: {'; '.join(map(str, field_errors[:_SHOWN]))}{more}",
        hint=_WHERE if any(_is_place(operation, error) for error in errors) else _WHAT,
        details={"field_errors": [error.to_json() for error in field_errors]},
    )


def _values(operation: Operation, path: str) -> Mapping[str, str] | None:
    """Return the values of the placeholders with which the operation's path becomes `path`, None if it cannot."""
    template, several = operation.path, {one.name for one in operation.parameters if one.multi}
    if "{" not in template or not path.startswith(template.partition("{")[0]):
        return None
    if not several and template.count("/") != path.count("/"):
        return None
    names = _PLACEHOLDER.findall(template)
    if sum(name in several for name in names) > 1 or any(
        len(_PLACEHOLDER.findall(step)) > _TOGETHER for step in template.split("/")
    ):
        return None
    pieces = _PLACEHOLDER.split(template)
    pattern = "".join(
        re.escape(piece) if place % 2 == 0 else ("(.+)" if piece in several else "([^/]+)")
        for place, piece in enumerate(pieces)
    )
    found = re.fullmatch(pattern, path)
    if found is None:
        return None
    values = zip(names, found.groups(), strict=True)
    return {name: unquote(value) for name, value in values if not _PLACEHOLDER.fullmatch(value)}


def _unknown(api: Api, method: str, path: str, methods: set[str]) -> ToolFailure:
    if methods:
        return ToolFailure("not_found", f"{path} has no {method}; it has {', '.join(sorted(methods))}")
    paths = sorted({operation.path for operation in api.operations.values()})
    near = get_close_matches(path, paths, n=_NEAREST, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "list_endpoints lists them"
    return ToolFailure("not_found", f"unknown endpoint {method} {path}", hint=hint)


def _read(text: str, schema: Mapping[str, Any]) -> Any:
    """Parse a text from a path or a header where the description does not admit a string."""
    kinds: Any = schema.get("type")
    admitted: set[Any] = {kinds} if isinstance(kinds, str) else set(cast("list[Any]", kinds or ()))
    if not admitted or not admitted <= set(_PLAIN):
        return text
    try:
        return read_json(text)
    except ValueError:
        return text


def _body(operation: Operation, given: Any) -> dict[str, Any]:
    body = operation.body
    if body is None:
        if given is not None:
            raise ToolFailure("invalid_arguments", f"body: {operation.method} {operation.path} takes none")
        return {}
    if given is None:
        return {}
    if isinstance(given, str) and body.kind in ("json", "form", "multipart") and given.lstrip()[:1] in ("{", "["):
        try:
            given = read_json(given, strict=True)
        except ValueError as error:
            raise ToolFailure("invalid_arguments", f"body: not JSON: {error}") from None
    if body.argument:
        is_file = body.kind == "binary" and isinstance(given, str)
        return {body.argument: {"text": given} if is_file else given}
    if not isinstance(given, Mapping):
        raise ToolFailure("invalid_arguments", f"body: an object is needed, with {', '.join(body.properties.values())}")
    fields = cast("Mapping[str, Any]", given)
    arguments = {name: argument for argument, name in body.properties.items()}
    if unknown := {name: value for name, value in fields.items() if name not in arguments}:
        raise _not_there("body", unknown, arguments)
    return {arguments[name]: value for name, value in fields.items()}


def _not_there(where: str, given: Mapping[str, Any], known: Any) -> ToolFailure:
    names: list[str] = list(known)

    def reasons() -> Iterator[str]:
        for name in list(given)[:_SHOWN]:
            yield f"{where}.{name} is not known{did_you_mean(name, names)}"

    there = f"this endpoint takes {', '.join(names[:40])}" if names else f"this endpoint takes no {where}"
    return ToolFailure("invalid_arguments", "; ".join(reasons()), hint=there)


def _is_place(operation: Operation, error: FieldError) -> bool:
    """Whether an error is about one of the {places} of the path."""
    return any(one.place == "path" and error.path == one.argument for one in operation.parameters)


def _place(one: Parameter) -> str:
    """Location of a parameter in a request of ours."""
    match one.place:
        case "path":
            return f"{{{one.name}}} in path"
        case "query":
            return f"query.{one.name}"
        case _:
            return f"headers.{one.name}"


def _renamed(path: str, places: Mapping[str, str]) -> str:
    for argument in sorted(places, key=len, reverse=True):
        if path == argument or path.startswith((f"{argument}.", f"{argument}[")):
            return places[argument] + path[len(argument) :]
    return path


def operation_details(operation: Operation, tool: Tool, document: Document) -> dict[str, Any]:
    """Return the description of one operation in full. `tool` is its converted form."""
    schema = tool.input_schema
    properties, required = as_mapping(schema.get("properties")), as_list(schema.get("required"))
    shown: dict[str, Any] = {"name": tool.local_name, "method": operation.method, "path": operation.path}
    shown |= {"description": tool.description} if tool.description else {}
    shown["parameters"] = [
        {
            "name": one.name,
            "in": one.place,
            "required": one.argument in required,
            "schema": properties.get(one.argument, {}),
            **({"sent": one.sent} if one.sent else {}),
        }
        for one in operation.parameters
    ]
    if operation.body is not None:
        body = operation.body
        whole: Any = properties.get(body.argument, {}) if body.argument else _object(body.properties, schema)
        shown["body"] = {"media_type": body.media_type, "required": body.required, "schema": whole}
    if tool.guidance.examples:
        shown["examples"] = [_as_request(operation, example) for example in tool.guidance.examples]
    shown["answers"] = _answers(operation, document)
    return shown | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _object(names: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Put the body together again that was taken apart into arguments."""
    properties, required = as_mapping(schema.get("properties")), as_list(schema.get("required"))
    needed = [name for argument, name in names.items() if argument in required]
    made = {"type": "object", "properties": {name: properties.get(argument, {}) for argument, name in names.items()}}
    return made | ({"required": needed} if needed else {})


def _as_request(operation: Operation, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an example as query, headers and body."""
    made: dict[str, dict[str, Any]] = {}
    for one in operation.parameters:
        if one.argument in example:
            where = "query" if one.place in ("path", "query") else "headers"
            made.setdefault(where, {})[one.name] = example[one.argument]
    if operation.body is None:
        return made
    if operation.body.argument in example:
        return {**made, "body": example[operation.body.argument]}
    body = {name: example[argument] for argument, name in operation.body.properties.items() if argument in example}
    return {**made, "body": body} if body else made


def _answers(operation: Operation, document: Document) -> dict[str, Any]:
    refs = Refs(document.root)
    schemas = Schemas(refs, is_old=document.is_old)
    try:
        item = refs.resolve(as_mapping(document.root.get("paths")).get(operation.path))
    except ValueError:
        return {}
    answers = as_mapping(as_mapping(item.get(operation.method.lower())).get("responses"))
    return {str(status): _answer(refs, schemas, node) for status, node in answers.items()}


def _answer(refs: Refs, schemas: Schemas, node: object) -> dict[str, Any]:
    try:
        given = refs.resolve(node)
    except ValueError as error:
        return {"description": f"not readable: {error}"}
    shown: dict[str, Any] = {"description": prose(given.get("description"), 300)}
    for media_type, content in as_mapping(given.get("content")).items():
        shown["media_type"] = media_type
        schemas.begin()
        try:
            made = schemas.complete(schemas.convert(as_mapping(content).get("schema") or {}))
        except ValueError as error:
            shown["schema"] = {"description": f"not readable: {error}"}
        else:
            shown["schema"] = made if len(dumps(made)) <= _MAX_ANSWER else _first_level(made)
        break
    return shown


def _first_level(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a large schema without nested ones."""
    fields = {
        name: {key: as_mapping(node)[key] for key in ("type", "format", "description") if key in as_mapping(node)}
        for name, node in as_mapping(schema.get("properties")).items()
    }
    kept = {key: schema[key] for key in ("type", "title", "description", "$ref") if key in schema}
    made = {**kept, **({"properties": fields} if fields else {}), "$comment": "reduced to its first level: too large"}
    return made if len(dumps(made)) <= _MAX_ANSWER else {"$comment": "too large"}
