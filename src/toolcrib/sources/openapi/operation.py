"""One operation of an API: how the arguments of a tool become an HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Body", "BodyKind", "Encoding", "Operation", "Parameter", "Place"]

Place = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "form", "multipart", "text", "binary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
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
    """The value is written as JSON, whatever it is."""
    multi: bool = False
    """A path value with slashes is several segments (`x-multi-segment`)."""
    sent: str = ""
    """Of a header: what is sent where nothing is given (`x-send`), as collections of saved requests have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How one property of a form is written."""

    style: str = "form"
    explode: bool = True
    media_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """How the body is made."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    """In upper case."""
    path: str
    """With `{name}` for path parameters."""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    accept: str = "application/json"
    is_anonymous: bool = False
    """The description says that it takes no credentials: it gets none."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Operation:
        """Return what `to_json` was of; raises `KeyError` or `TypeError` for anything else."""
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
