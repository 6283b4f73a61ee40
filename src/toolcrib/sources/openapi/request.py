"""HTTP request of one operation: parameters and body serialized by the rules of OpenAPI.

    style            explode   value {"a": 1, "b": 2} of the parameter p
    form             yes       a=1&b=2
    form             no        p=a,1,b,2
    deepObject       yes       p%5Ba%5D=1&p%5Bb%5D=2
    label, matrix    (path)    .a=1.b=2     ;a=1;b=2

Every value is quoted, so that an argument never becomes another segment, parameter or header.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast
from urllib.parse import quote, unquote

from msgspec import Struct, field

from ...core.json import as_mapping, dumps, fields_of
from ...core.patterns import regex
from ...errors import ToolFailure
from ...net.urls import is_dots

Place = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "form", "multipart", "text", "binary"]

_RESERVED: Final = ":/?@!$'()*,[]"
"""Characters that `allowReserved` keeps; `&`, `=`, `#`, `+`, `;` and `%` would end or change the value."""
_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_MAX_DEPTH: Final = 16

_Pair = tuple[str, str]

_BYTES: Final = "application/octet-stream"

_PLACEHOLDER: Final = regex(r"\{([^{}/]+)\}")


class Parameter(Struct, frozen=True, kw_only=True):
    """One argument that travels outside of the body."""

    argument: str
    """Its name in the tool's schema."""
    name: str
    """Its name on the wire."""
    place: Place
    style: str
    explode: bool
    reserved: bool = False
    """Reserved characters of a query value may stay as they are."""
    as_json: bool = False
    """Whether the value is always written as JSON."""
    multi: bool = False
    """A path value with slashes is several segments (`x-multi-segment`)."""
    sent: str = ""
    """Default value of a header (`x-send`), from collections of saved requests."""


class Encoding(Struct, frozen=True, kw_only=True):
    """Serialization of one property of a form."""

    style: str = "form"
    explode: bool = True
    media_type: str = ""


class Body(Struct, frozen=True, kw_only=True):
    """Serialization of the body."""

    kind: BodyKind
    media_type: str
    argument: str = ""
    """The argument that is the whole body; empty when it is put together from `properties`."""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    """Argument → property of the body."""
    encodings: Mapping[str, Encoding] = field(default_factory=dict[str, Encoding])
    """By property."""
    files: tuple[str, ...] = ()
    """Properties that are files."""
    required: bool = False
    """A body is sent even when no argument is for it."""


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    """In upper case."""
    path: str
    """With `{name}` for path parameters."""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    accept: str = "application/json"
    is_anonymous: bool = False
    """Whether the description declares the operation public: it gets no credentials."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return fields_of(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Operation:
        """Return the operation from its `to_json` form; raises `KeyError` or `TypeError` for anything else."""
        given: Mapping[str, Any] = dict(kept)
        parameters = tuple(Parameter(**one) for one in given["parameters"])
        rest = {key: value for key, value in given.items() if key not in ("parameters", "body")}
        return cls(**rest, parameters=parameters, body=_body(given["body"]))


def _body(kept: Mapping[str, Any] | None) -> Body | None:
    if kept is None:
        return None
    encodings = {name: Encoding(**one) for name, one in kept["encodings"].items()}
    rest = {key: value for key, value in kept.items() if key not in ("encodings", "files")}
    return Body(**rest, encodings=encodings, files=tuple(kept["files"]))


def _path_value(parameter: Parameter, value: Any) -> str:
    """Return the replacement of `{name}` in the path. Raises `ToolFailure` for one that would make it another path."""
    safe = "/" if parameter.multi else ""
    prefix, delimiter = {"label": (".", "."), "matrix": (";", ";")}.get(parameter.style, ("", ","))
    if not parameter.explode:
        delimiter = ","

    def encoded(item: Any) -> str:
        return quote(text_of(item), safe=safe)

    name = quote(parameter.name, safe="")
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        joint = "=" if parameter.explode else ","
        inner = delimiter.join(f"{quote(key, safe='')}{joint}{encoded(item)}" for key, item in pairs)
        shown = f"{name}={inner}" if parameter.style == "matrix" and not parameter.explode else inner
    elif isinstance(value, list | tuple):
        items = [encoded(item) for item in cast("Sequence[Any]", value)]
        if parameter.style == "matrix":
            shown = ";".join(f"{name}={item}" for item in items) if parameter.explode else f"{name}={','.join(items)}"
        else:
            shown = delimiter.join(items)
    else:
        shown = f"{name}={encoded(value)}" if parameter.style == "matrix" else encoded(value)
    if not shown:
        raise _refused(parameter, "must not be empty: the path would be another one")
    return f"{prefix}{shown}"


def _query_pairs(parameter: Parameter, value: Any) -> list[str]:
    """Return the `name=value` parts of a query or a cookie, encoded."""
    if value is None:
        return []
    safe = _RESERVED if parameter.reserved else ""
    if parameter.as_json:
        return [_pair(parameter.name, dumps(value).decode(), safe)]
    encoding = Encoding(style=parameter.style, explode=parameter.explode)
    return [f"{name}={text}" for name, text in _form(parameter.name, value, encoding, safe)]


def _form_pairs(name: str, value: Any, encoding: Encoding) -> list[str]:
    """Return the `name=value` parts of a form for one property, encoded."""
    if value is None:
        return []
    if encoding.media_type.startswith("application/json"):
        return [_pair(name, dumps(value).decode())]
    return [f"{key}={text}" for key, text in _form(name, value, encoding, "")]


def header_value(parameter: Parameter, value: Any) -> str:
    """Return the header's value. Raises `ToolFailure` for what no header can hold."""
    if parameter.as_json:
        shown = dumps(value).decode()
    elif isinstance(value, Mapping):
        joint = "=" if parameter.explode else ","
        shown = ",".join(f"{key}{joint}{text_of(item)}" for key, item in cast("Mapping[str, Any]", value).items())
    elif isinstance(value, list | tuple):
        shown = ",".join(text_of(item) for item in cast("Sequence[Any]", value))
    else:
        shown = text_of(value)
    if not shown.isascii() or not (shown.isprintable() or shown.replace("\t", " ").isprintable()):
        raise _refused(parameter, "can only hold printable ASCII: it travels as a header")
    return shown


def text_of(value: Any) -> str:
    """Return one value as text; JSON for objects and arrays."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


def _form(name: str, value: Any, encoding: Encoding, safe: str) -> Iterator[_Pair]:
    """Yield encoded names and values."""
    key = _encoded(name)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        if encoding.style == "deepObject":
            yield from _deep(key, members, safe, 0)
        elif encoding.explode:
            for inner, item in members.items():
                yield _encoded(inner), quote(text_of(item), safe=safe)
        else:
            flat = [part for inner, item in members.items() for part in (inner, text_of(item))]
            yield key, _DELIMITERS[encoding.style].join(quote(part, safe=safe) for part in flat)
    elif isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        if encoding.style == "deepObject":
            yield from _deep(key, items, safe, 0)
        elif encoding.explode:
            for item in items:
                yield key, quote(text_of(item), safe=safe)
        else:
            yield key, _DELIMITERS[encoding.style].join(quote(text_of(item), safe=safe) for item in items)
    else:
        yield key, quote(text_of(value), safe=safe)


def _deep(key: str, value: Any, safe: str, depth: int) -> Iterator[_Pair]:
    """Yield `a[b][0][c]=…`: OpenAPI defines one level, the servers that take it take all."""
    if depth > _MAX_DEPTH:
        raise ToolFailure("invalid_arguments", f"{unquote(key)[:60]} is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        for inner, item in cast("Mapping[str, Any]", value).items():
            yield from _deep(f"{key}%5B{_encoded(inner)}%5D", item, safe, depth + 1)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(cast("Sequence[Any]", value)):
            yield from _deep(f"{key}%5B{place}%5D", item, safe, depth + 1)
    elif value is not None:
        yield key, quote(text_of(value), safe=safe)


def _pair(name: str, text: str, safe: str = "") -> str:
    return f"{_encoded(name)}={quote(text, safe=safe)}"


def _encoded(name: str) -> str:
    return quote(name, safe="[]$" if name.isascii() and "[" in name else "$")


def _refused(parameter: Parameter, why: str) -> ToolFailure:
    return ToolFailure("invalid_arguments", f"{parameter.argument}: {why}", details={"argument": parameter.argument})


_DEFAULT: Final = Encoding()


class Encoded(Struct, frozen=True, kw_only=True):
    """A body as it is sent."""

    content: bytes
    media_type: str
    parts: tuple[str, ...] = ()
    """Of a multipart form, for people: `name=value` or `name=@file`."""


def encode(body: Body, arguments: Mapping[str, Any]) -> Encoded | None:
    """Return the body for `arguments`; None without a body argument if none is required.

    Raises `ToolFailure("invalid_arguments")` for an invalid file argument.
    """
    if body.argument:
        if body.argument not in arguments:
            return None
        value = arguments[body.argument]
    else:
        value = {name: arguments[key] for key, name in body.properties.items() if key in arguments}
        if not value and not body.required:
            return None
    if body.kind == "form":
        return _body_form(body, value)
    if body.kind == "multipart":
        return _multipart(body, as_mapping(value))
    if body.kind == "text":
        return Encoded(
            content=text_of(value).encode("utf-8", "replace"), media_type=f"{body.media_type}; charset=utf-8"
        )
    if body.kind == "binary":
        content, _, media_type = _file(body.argument, value)
        return Encoded(content=content, media_type=media_type if media_type != _BYTES else _concrete(body.media_type))
    return Encoded(content=dumps(value), media_type=_concrete(body.media_type, "application/json"))


def _concrete(media_type: str, otherwise: str = _BYTES) -> str:
    return otherwise if "*" in media_type else media_type


def _body_form(body: Body, value: Any) -> Encoded:
    parts: list[str] = []
    for name, item in as_mapping(value).items():
        encoding = body.encodings.get(name)
        if encoding is None:
            nested = isinstance(item, Mapping) or (isinstance(item, list) and any(map(_is_nested, cast("Any", item))))
            encoding = Encoding(style="deepObject") if nested else _DEFAULT
        parts += _form_pairs(name, item, encoding)
    return Encoded(content="&".join(parts).encode(), media_type=body.media_type)


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list)


def _multipart(body: Body, values: Mapping[str, Any]) -> Encoded:
    boundary = f"toolcrib-{secrets.token_hex(16)}"
    pieces: list[bytes] = []
    shown: list[str] = []
    for name, value in values.items():
        items: Sequence[Any] = [value]
        if isinstance(value, list) and name not in body.encodings:
            items = cast("Sequence[Any]", value)
        for item in items:
            if item is None:
                continue
            if name in body.files:
                content, filename, media_type = _file(name, item)
                shown.append(f"{name}=@{filename}")
                disposition = f'; filename="{_quoted(filename)}"'
            else:
                content, media_type = _field(item, body.encodings.get(name, _DEFAULT))
                shown.append(f"{name}={content.decode()}")
                disposition = ""
            head = f'--{boundary}\r\ncontent-disposition: form-data; name="{_quoted(name)}"{disposition}\r\n'
            kind = f"content-type: {media_type}\r\n" if media_type else ""
            pieces += [f"{head}{kind}\r\n".encode(), content, b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    return Encoded(content=b"".join(pieces), media_type=f"{body.media_type}; boundary={boundary}", parts=tuple(shown))


def _field(value: Any, encoding: Encoding) -> tuple[bytes, str]:
    if isinstance(value, Mapping | list) or "json" in encoding.media_type:
        return dumps(value), encoding.media_type or "application/json"
    return text_of(value).encode("utf-8", "replace"), encoding.media_type


def _file(name: str, value: Any) -> tuple[bytes, str, str]:
    """Return content, file name and media type of `{text | base64, filename, media_type}`."""
    given = as_mapping(value)
    if ("text" in given) == ("base64" in given):
        raise ToolFailure("invalid_arguments", f"{name}: give either `text` or `base64`", details={"argument": name})
    media_type = str(given.get("media_type") or ("text/plain" if "text" in given else _BYTES))
    if not media_type.isascii() or not media_type.isprintable():
        raise ToolFailure("invalid_arguments", f"{name}: `media_type` is not a media type", details={"argument": name})
    try:
        content = (
            str(given["text"]).encode("utf-8", "replace")
            if "text" in given
            else base64.b64decode(str(given["base64"]), validate=True)
        )
    except binascii.Error as error:
        message = f"{name}: `base64` cannot be read: {error}"
        raise ToolFailure("invalid_arguments", message, details={"argument": name}) from error
    return content, str(given.get("filename") or name), media_type


def _quoted(text: str) -> str:
    """A name in a header of a part, as browsers write it."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").replace("\0", "%00")


class Draft(Struct, frozen=True, kw_only=True):
    """A request in its parts; query and cookies are encoded already."""

    method: str
    url: str
    """Without query."""
    query: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case names."""
    cookies: tuple[str, ...] = ()
    content: bytes = b""
    parts: tuple[str, ...] = ()
    """Of a multipart body, for people."""


def draft(operation: Operation, arguments: Mapping[str, Any], base_url: str) -> Draft:
    """Return the request. Raises `ToolFailure("invalid_arguments")` for values that would make it another one."""
    values: dict[str, str] = {}
    query: list[str] = []
    headers = {"accept": operation.accept}
    cookies: list[str] = []
    for one in operation.parameters:
        if one.argument not in arguments and not one.sent:
            continue
        value = arguments.get(one.argument, one.sent)
        if one.place == "path":
            values[one.name] = _path_value(one, value)
        elif value is None:
            continue
        elif one.place == "query":
            query += _query_pairs(one, value)
        elif one.place == "header":
            headers[one.name.lower()] = header_value(one, value)
        else:
            cookies += _query_pairs(one, value)
    body = encode(operation.body, arguments) if operation.body else None
    if body is not None:
        headers["content-type"] = body.media_type
    return Draft(
        method=operation.method,
        url=base_url.rstrip("/") + _path(operation.path, values),
        query=tuple(query),
        headers=headers,
        cookies=tuple(cookies),
        content=body.content if body else b"",
        parts=body.parts if body else (),
    )


def _path(template: str, values: Mapping[str, str]) -> str:
    """Fill the template in. `.` and `..` would climb out of it, and an empty segment names another resource."""

    def filled(match: re.Match[str]) -> str:
        return values[match[1]] if match[1] in values else match[0]

    segments: list[str] = []
    for segment in template.split("/"):
        made = _PLACEHOLDER.sub(filled, segment)
        for part in made.split("/") if made != segment else ():
            if not part or is_dots(unquote(part)):
                name = ", ".join(_PLACEHOLDER.findall(segment))
                raise ToolFailure(
                    "invalid_arguments",
                    f"{name}: {unquote(made)!r} would make the path another one",
                    details={"argument": name},
                )
        segments.append(made)
    return "/".join(segments)
