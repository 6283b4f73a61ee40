"""The arguments of one operation: parameters and body as one flat object, no two under one name.

`Names` gives the operations of an API the names of their tools: the operation's own id, else its method and path; the
same for the same description, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast, get_args

from msgspec import Struct, field

from ...core.json import as_list, as_mapping
from ...core.patterns import regex
from .description import Refs
from .request import Body, BodyKind, Encoding, Parameter, Place
from .schemas import Schemas, prose

_UNSAFE: Final = regex(r"[^A-Za-z0-9_-]+")
_ARGUMENT: Final = regex(r"[^A-Za-z0-9_.-]+")
_MAX_ARGUMENT: Final = 64
_MAX_NAME: Final = 120
_BY: Final = regex(r"\{([^{}]*)\}")

_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""Styles by location; the first is the default."""

_OURS: Final = frozenset(
    """accept authorization connection content-length content-type expect host keep-alive proxy-authorization
    proxy-connection te trailer transfer-encoding upgrade x-http-method x-http-method-override
    x-method-override x-original-method x-original-url x-rewrite-url""".split()
)
"""Headers that no argument sets: OpenAPI leaves the first few out, the others belong to the connection, and the last
make another method, or another path, of the one that was decided on. To some servers `_` in a name is `-`."""

_FILE: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The content, if it is text."},
        "base64": {"type": "string", "contentEncoding": "base64", "description": "The content, if it is not."},
        "filename": {"type": "string"},
        "media_type": {"type": "string"},
    },
    "additionalProperties": False,
}
_MAX_PARTS: Final = 10_000
"""Parts and properties that one body is put together from; more, and it is one argument as it is written."""
_BINARY_FORMATS: Final = ("binary", "byte")


class Names:
    """The names of one API's tools. Operations with a unique id keep it, independent of the others."""

    def __init__(self, ids: Iterable[str]) -> None:
        """`ids` are the operation ids as they are written, empty ones included, in order."""
        counted: dict[str, int] = {}
        for name in map(_clean, ids):
            counted[name] = counted.get(name, 0) + 1
        self._counted = counted
        self._taken = {name for name, count in counted.items() if name and count == 1}

    def give(self, identity: str, method: str, path: str) -> tuple[str, bool]:
        """Return the name of an operation, and whether several operations have its id."""
        wanted = _clean(identity)
        if wanted and self._counted.get(wanted) == 1:
            return wanted, False
        base = from_path(method, path)
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name, bool(wanted)


def from_path(method: str, path: str) -> str:
    """Return a name for an operation without an id: `GET /users/{id}/posts` is `get_users_posts_by_id`."""
    fixed = _BY.sub("", path)
    given = [_clean(name) for name in _BY.findall(path)]
    words = [method.lower(), *filter(None, map(_clean, fixed.split("/")))]
    name = "_".join(words if len(words) > 1 else [*words, "root"])
    return f"{name}_by_{'_'.join(filter(None, given))}" if any(given) else name


def _argument_name(name: str) -> str:
    """Return `name` as every model API takes it: `filter[status]` is `filter_status`."""
    return _ARGUMENT.sub("_", name).strip("_")[:_MAX_ARGUMENT] or "value"


def _clean(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_")[:_MAX_NAME]


class Sent(Struct, frozen=True, kw_only=True):
    """Parameters sent with every call: they are not arguments. Header names in lower case."""

    headers: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()
    cookies: frozenset[str] = frozenset()

    def has(self, place: str, name: str) -> bool:
        """Whether the parameter `name` is one of them."""
        if place == "header":
            return name.lower() in self.headers
        return name in (self.query if place == "query" else self.cookies if place == "cookie" else ())


class Arguments(Struct):
    """Arguments of one operation, gathered once. Earlier ones keep the plain name, later ones add their location."""

    refs: Refs
    schemas: Schemas
    sent: Sent
    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    required: list[str] = field(default_factory=list[str])
    dependent: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    parameters: list[Parameter] = field(default_factory=list[Parameter])

    def schema(self) -> dict[str, Any]:
        """Return the input schema of the tool. Raises `ValueError` for a reference that leads nowhere."""
        made: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            made["required"] = self.required
        if self.dependent:
            made["dependentRequired"] = self.dependent
        made["additionalProperties"] = False
        return self.schemas.complete(made)

    def add_parameters(self, declared: Iterable[object], placeholders: Iterable[str]) -> None:
        """Add the parameters of an operation and its path; the operation's own come last and override.

        Every placeholder of the path is a parameter, even if the description forgot to declare it.
        """
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for one in declared:
            parameter = self.refs.resolve(one)
            name, place = parameter.get("name"), parameter.get("in")
            if not isinstance(name, str) or place not in get_args(Place):
                raise ValueError("a parameter has no name, or is not in path, query, header or cookie")
            found[cast("str", place), name] = parameter
        for name in placeholders:
            found.setdefault(("path", name), {"name": name, "in": "path", "schema": {"type": "string"}})
        wanted = set(placeholders)
        order = {place: number for number, place in enumerate(get_args(Place))}
        for (place, name), parameter in sorted(found.items(), key=lambda item: order[item[0][0]]):
            is_path = place == "path"
            if (is_path and name not in wanted) or (place == "header" and name.lower().replace("_", "-") in _OURS):
                continue
            if not self.sent.has(place, name):
                self._add_parameter(cast("Place", place), name, parameter)

    def add_body(self, node: object) -> Body | None:
        """Add the request body, as JSON if possible."""
        given = self.refs.resolve(node)
        chosen = _chosen(as_mapping(given.get("content")))
        if chosen is None:
            return None
        media_type, kind = chosen
        content = as_mapping(as_mapping(given.get("content")).get(media_type))
        is_required = given.get("required") is True
        is_object = kind in ("json", "form", "multipart")
        shape = _Shape.of(self.refs, content.get("schema"), [_MAX_PARTS]) if is_object else None
        if shape is None or not shape.properties:
            return self._whole(given, content, media_type.strip(), kind, is_required)
        return self._flat(shape, content, media_type.strip(), kind, is_required)

    def _add_parameter(self, place: Place, name: str, given: Mapping[str, Any]) -> None:
        content = as_mapping(given.get("content"))
        schema = as_mapping(next(iter(content.values()), None)).get("schema") if content else given.get("schema")
        made = self.schemas.convert(schema if schema is not None else {"type": "string"})
        if text := prose(given.get("description")):
            made["description"] = text if "description" not in made or "$ref" in made else _joined(text, made)
        stated = given.get("style")
        style = str(stated) if stated in _STYLES[place] else _STYLES[place][0]
        explode = given.get("explode")
        argument = self._place(name, place, made)
        if given.get("required") is True or place == "path":
            self.required.append(argument)
        self.parameters.append(
            Parameter(
                argument=argument,
                name=name,
                place=place,
                style=style,
                explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
                reserved=given.get("allowReserved") is True,
                as_json=bool(content),
                multi=given.get("x-multi-segment") is True,
                sent=sent if place == "header" and isinstance(sent := given.get("x-send"), str) else "",
            )
        )

    def _whole(
        self, given: Mapping[str, Any], content: Mapping[str, Any], media_type: str, kind: BodyKind, required: bool
    ) -> Body:
        if kind == "binary":
            made: dict[str, Any] = dict(_FILE)
        elif kind == "text":
            made = {"type": "string"}
        else:
            made = self.schemas.convert(content.get("schema") or {})
            if kind != "json":
                made.setdefault("type", "object")
        if "description" not in made and (text := prose(given.get("description"))):
            made["description"] = text
        argument = self._place("body", "body", made)
        if required:
            self.required.append(argument)
        return Body(kind=kind, media_type=media_type, argument=argument, required=required)

    def _flat(self, shape: _Shape, content: Mapping[str, Any], media_type: str, kind: BodyKind, required: bool) -> Body:
        names: dict[str, str] = {}
        files: list[str] = []
        for name, node in shape.properties.items():
            if kind == "multipart" and _is_file(self.refs.resolve(node)):
                files.append(name)
                made = dict(_FILE) | _described(self.refs.resolve(node))
            else:
                made = self.schemas.convert(node)
            names[self._place(name, "body", made)] = name
        needed = [argument for argument, name in names.items() if name in shape.required]
        if required:
            self.required += needed
        elif needed:
            self.dependent |= {
                argument: [other for other in needed if other != argument] for argument in names if needed != [argument]
            }
        return Body(
            kind=kind,
            media_type=media_type,
            properties=names,
            encodings=_encodings(content) if kind != "json" else {},
            files=tuple(files),
            required=required,
        )

    def _place(self, name: str, place: str, schema: dict[str, Any]) -> str:
        wanted = _argument_name(name)
        argument, number = wanted, 1
        while argument in self.properties:
            argument = f"{wanted[:50]}__{place}" + (f"_{number}" if number > 1 else "")
            number += 1
        self.properties[argument] = schema
        return argument


class _Shape(Struct, frozen=True):
    """The properties of a body that can be arguments of their own."""

    properties: dict[str, Any]
    required: frozenset[str]

    @classmethod
    def of(cls, refs: Refs, node: object, left: list[int], depth: int = 0) -> _Shape | None:
        """Return the shape of `node`; None when the body is more than its named properties, or not always an object.

        `left` holds how many parts and properties may still be put together: parts that refer to parts multiply.
        """
        given = refs.resolve(node)
        left[0] -= 1 + len(as_mapping(given.get("properties")))
        if depth > 8 or left[0] < 0 or given.get("type", "object") not in ("object", ["object"], ["object", "null"]):
            return None
        is_open = given.get("additionalProperties", False) is not False
        if is_open or any(key in given for key in ("not", "if", "patternProperties", "$dynamicRef")):
            return None
        if not all(map(_only_required, as_list(given.get("anyOf")) + as_list(given.get("oneOf")))):
            return None
        properties: dict[str, Any] = {}
        required: set[str] = set()
        for part in as_list(given.get("allOf")):
            inner = cls.of(refs, part, left, depth + 1)
            if inner is None:
                return None
            left[0] -= len(inner.properties)
            properties |= inner.properties
            required |= inner.required
        properties |= as_mapping(given.get("properties"))
        stated = given.get("required")
        if isinstance(stated, list):
            required |= {name for name in cast("list[Any]", stated) if isinstance(name, str)}
        sent = {name: one for name, one in properties.items() if refs.resolve(one).get("readOnly") is not True}
        return cls(sent, frozenset(required & sent.keys()))


def _only_required(branch: object) -> bool:
    """Whether a branch only combines requirements (`anyOf: [{required: [a]}, …]`), which the server checks."""
    return as_mapping(branch).keys() <= {"required", "type", "description", "title"}


def _chosen(content: Mapping[str, Any]) -> tuple[str, BodyKind] | None:
    """Return the media type that the body is sent as, and how."""
    kinds: list[tuple[str, BodyKind]] = [(media_type, _kind_of(media_type)) for media_type in content]
    preferred = get_args(BodyKind)
    return min(kinds, key=lambda one: preferred.index(one[1]), default=None)


def _kind_of(media_type: str) -> BodyKind:
    plain = media_type.partition(";")[0].strip().lower()
    if plain in ("application/json", "*/*", "application/*") or plain.endswith("+json"):
        return "json"
    if plain == "application/x-www-form-urlencoded":
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    return "text" if plain.startswith("text/") or plain.endswith(("xml", "yaml", "javascript")) else "binary"


def _is_file(node: Mapping[str, Any]) -> bool:
    if node.get("format") in _BINARY_FORMATS or "contentEncoding" in node:
        return True
    media_type = node.get("contentMediaType")
    return isinstance(media_type, str) and not media_type.startswith(("text/", "application/json"))


def _described(node: Mapping[str, Any]) -> dict[str, Any]:
    text = prose(node.get("description"))
    return {"description": text} if text else {}


def _encodings(content: Mapping[str, Any]) -> dict[str, Encoding]:
    made: dict[str, Encoding] = {}
    for name, node in as_mapping(content.get("encoding")).items():
        given = as_mapping(node)
        style = given.get("style") if given.get("style") in _STYLES["query"] else "form"
        explode, media_type = given.get("explode"), given.get("contentType")
        made[name] = Encoding(
            style=str(style),
            explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
            media_type=media_type.partition(",")[0].strip() if isinstance(media_type, str) else "",
        )
    return made


def _joined(text: str, made: Mapping[str, Any]) -> str:
    """The parameter's own words, and what its schema adds to them."""
    of_schema = str(made["description"])
    return text if of_schema in text else f"{text} {of_schema}"
