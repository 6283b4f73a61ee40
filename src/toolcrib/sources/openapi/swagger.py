"""Swagger 2.0 as OpenAPI 3.0: the parts of a description under their new names and places.

    host, basePath, schemes                     servers
    definitions, responses                      components
    parameter: in body │ in formData            requestBody: of `consumes` │ a form, multipart where it has a file
    parameter: type, format, items …            its `schema`
    collectionFormat                            style, explode
    produces                                    content of the responses

The conversion after it knows version 3 alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from ...core.json import as_list, as_mapping

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")

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


def upgraded(root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a description of version 2.0 in version 3.0. Its errors stay, for the reader to report."""
    return _Upgrade(root).made()


class _Upgrade:
    """One run over one description."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parameters = as_mapping(root.get("parameters"))

    def made(self) -> dict[str, Any]:
        root = self._root
        components: dict[str, Any] = {
            "schemas": {name: _moved(one) for name, one in as_mapping(root.get("definitions")).items()},
            "responses": {name: self._answer(one, root) for name, one in as_mapping(root.get("responses")).items()},
            "securitySchemes": {
                name: _scheme(one) for name, one in as_mapping(root.get("securityDefinitions")).items()
            },
        }
        made: dict[str, Any] = {"openapi": "3.0.3", "info": root.get("info", {}), "components": components}
        made |= {"servers": servers} if (servers := list(self._servers())) else {}
        made |= {key: root[key] for key in ("security", "tags") if key in root}
        made["paths"] = {path: self._item(item) for path, item in as_mapping(root.get("paths")).items()}
        return made

    def _servers(self) -> Iterator[dict[str, str]]:
        host, base = self._root.get("host"), str(self._root.get("basePath") or "")
        if not isinstance(host, str) or not host:
            if base:
                yield {"url": base}
            return
        schemes = [one for one in as_list(self._root.get("schemes")) if one in ("http", "https")] or ["https"]
        for scheme in sorted(schemes, reverse=True):
            yield {"url": f"{scheme}://{host}/{base.strip('/')}".rstrip("/")}

    def _item(self, written: Any) -> Any:
        """Return a path with its operations; parameters that are a body belong to each of them."""
        if not isinstance(written, Mapping):
            return written
        item = cast("Mapping[str, Any]", written)
        shared = as_list(item.get("parameters"))
        made: dict[str, Any] = {"$ref": item["$ref"]} if "$ref" in item else {}
        for method in METHODS:
            if method in item:
                given: object = item[method]
                made[method] = self._operation(as_mapping(given), shared) if as_mapping(given) else given
        return made

    def _operation(self, given: Mapping[str, Any], shared: list[Any]) -> dict[str, Any]:
        made: dict[str, Any] = {key: given[key] for key in _KEPT if key in given}
        parameters: list[Any] = []
        fields: list[Mapping[str, Any]] = []
        for written in _without_overridden(shared, as_list(given.get("parameters")), self._found):
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
        answers = as_mapping(given.get("responses")).items()
        return made | {"responses": {status: self._answer(one, given) for status, one in answers}}

    def _found(self, written: Any) -> Mapping[str, Any]:
        """Return a parameter, or the one that it refers to; a reference that leads nowhere stays as it is."""
        one = as_mapping(written)
        reference = str(one.get("$ref", ""))
        name = reference.removeprefix("#/parameters/").replace("~1", "/").replace("~0", "~")
        return as_mapping(self._parameters[name]) if reference and name in self._parameters else one

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
        given = as_mapping(written)
        if "$ref" in given:
            return _moved(given)
        made: dict[str, Any] = {"description": given.get("description", "")}
        schema = as_mapping(given.get("schema"))
        if schema and schema.get("type") != "file":
            kinds = self._kinds("produces", operation) or [_JSON]
            made["content"] = {kind: {"schema": _moved(schema)} for kind in kinds}
        elif schema:
            made["content"] = {kind: {} for kind in self._kinds("produces", operation) or ["application/octet-stream"]}
        return made

    def _kinds(self, key: str, operation: Mapping[str, Any]) -> list[str]:
        """Return media types, of the operation or of all of them."""
        return [kind for kind in as_list(operation.get(key, self._root.get(key))) if isinstance(kind, str)]


def _without_overridden(shared: list[Any], own: list[Any], found: Any) -> Iterator[Any]:
    """Yield the parameters of a path that its operation does not override, then those of the operation."""

    def key(one: Any) -> tuple[str, str]:
        return str(found(one).get("in")), str(found(one).get("name"))

    named = set(map(key, own))
    yield from (one for one in shared if key(one) not in named)
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
    given = as_mapping(written)
    match given.get("type"):
        case "basic":
            return {"type": "http", "scheme": "basic"}
        case "oauth2":
            urls = {key: given[key] for key in ("authorizationUrl", "tokenUrl") if key in given}
            flow = _FLOWS.get(str(given.get("flow")), "implicit")
            return {"type": "oauth2", "flows": {flow: {**urls, "scopes": as_mapping(given.get("scopes"))}}}
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
