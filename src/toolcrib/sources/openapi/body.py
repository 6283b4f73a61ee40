"""Arguments as the body of a request: JSON, both kinds of form, text, or bytes."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ...core.json import dumps
from ...errors import ToolFailure
from .document import mapping
from .operation import Body, Encoding
from .serialize import form_pairs, text_of

__all__ = ["Encoded", "encode"]

_DEFAULT: Final = Encoding()
_BYTES: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A body as it is sent."""

    content: bytes
    media_type: str
    parts: tuple[str, ...] = ()
    """Of a multipart form, for people: `name=value` or `name=@file`."""


def encode(body: Body, arguments: Mapping[str, Any]) -> Encoded | None:
    """Return the body that `arguments` make; None when none of them is for it and none is needed.

    Raises `ToolFailure("invalid_arguments")` for a file that is no file.
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
        return _form(body, value)
    if body.kind == "multipart":
        return _multipart(body, mapping(value))
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


def _form(body: Body, value: Any) -> Encoded:
    parts: list[str] = []
    for name, item in mapping(value).items():
        encoding = body.encodings.get(name)
        if encoding is None:
            nested = isinstance(item, Mapping) or (isinstance(item, list) and any(map(_is_nested, cast("Any", item))))
            encoding = Encoding(style="deepObject") if nested else _DEFAULT
        parts += form_pairs(name, item, encoding)
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
    given = mapping(value)
    if ("text" in given) == ("base64" in given):
        raise ToolFailure("invalid_arguments", f"{name}: give either `text` or `base64`", details={"argument": name})
    media_type = str(given.get("media_type") or ("text/plain" if "text" in given else _BYTES))
    if not media_type.isascii() or not media_type.isprintable():
        raise ToolFailure("invalid_arguments", f"{name}: `media_type` is none", details={"argument": name})
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
