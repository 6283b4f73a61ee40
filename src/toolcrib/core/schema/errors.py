"""Validation errors that a model can act on: path, defect, expectation. They never repeat the value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import jsonschema_rs
from msgspec import Struct

from ...errors import ToolFailure
from ..json import read_json
from ..patterns import regex
from ..similar import nearest
from .nodes import json_type

_PLAIN: Final = regex(r"[A-Za-z_$][\w$-]*")
_STEP: Final = regex(r'\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|\.?([A-Za-z_$][\w$-]*)')
_MAX_NAME: Final = 100
"""Characters of a property name that an error repeats."""
_MAX_OPTIONS: Final = 20
"""Options of an `enum` that a message lists."""
_MAX_EXPECTED: Final = 200
"""Options of an `enum` that `expected` holds."""
_MAX_BRANCHES: Final = 4
"""Branches of an `anyOf` that a message describes."""

_Kind = jsonschema_rs.ValidationErrorKind

_NOT_BLANK: Final = r"\S"
"""The pattern of texts that have any character but blanks."""
_WORDINGS: Final[Mapping[str, str]] = {
    "contains": "has no item of the kind that must be there",
    "exclusiveMaximum": "must be less than {}",
    "exclusiveMinimum": "must be more than {}",
    "falseSchema": "is not allowed",
    "format": "must be a valid {}",
    "maxItems": "must have at most {} items",
    "maxLength": "must have at most {} characters",
    "maxProperties": "must have at most {} properties",
    "maximum": "must be at most {}",
    "minItems": "must have at least {} items",
    "minLength": "must have at least {} characters",
    "minProperties": "must have at least {} properties",
    "minimum": "must be at least {}",
    "multipleOf": "must be a multiple of {}",
    "not": "is what the schema excludes",
    "oneOf": "fits more than one of the alternatives; exactly one must fit",
    "pattern": "must match the pattern {}",
    "required": "needs {!r}",
    "unevaluatedItems": "has items that are not allowed",
    "uniqueItems": "must not have the same item twice",
}


class FieldError(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with the arguments.

    `expected` and `message` come from the schema, never from the value, which may be a secret.
    """

    path: str
    """`a.b[0]`; empty for the arguments as a whole. A missing or unknown argument is named here too."""
    keyword: str
    """The violated JSON Schema keyword, or `limit` or `json` for errors beyond any schema."""
    message: str
    expected: Any = None
    """Expectation of the schema: a type name, the options, the limit."""

    def __str__(self) -> str:
        return f"{self.path or 'arguments'}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """Return the non-empty fields."""
        shown: dict[str, Any] = {"path": self.path, "keyword": self.keyword, "message": self.message}
        if self.expected is not None:
            shown["expected"] = self.expected
        return shown


def invalid_argument(path: str, message: str, *, keyword: str = "invalid", hint: str = "") -> ToolFailure:
    """Return the failure `invalid_arguments` for one argument, where no schema can tell what is wrong with it."""
    error = FieldError(path=path, keyword=keyword, message=message)
    return ToolFailure("invalid_arguments", str(error), hint=hint, details={"field_errors": [error.to_json()]})


def join_path(parts: Sequence[str | int]) -> str:
    """Write a path as a person would: `a.b[0]`, with odd names in quotes: `a["odd name"]`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part[:_MAX_NAME]}" if text else part[:_MAX_NAME]
        else:
            text += f"[{json.dumps(part[:_MAX_NAME], ensure_ascii=False)}]"
    return text


def split_path(path: str) -> list[str | int]:
    """Return the steps of a path that `join_path` wrote; a name that was cut there stays cut."""
    found = (step.groups() for step in _STEP.finditer(path))
    return [int(index) if index else _unquoted(odd) if odd else plain for index, odd, plain in found]


def _unquoted(name: str) -> str:
    try:
        return str(read_json(name))
    except ValueError:  # half of a surrogate pair is not JSON
        return name


def explain(error: jsonschema_rs.ValidationError, declared: Sequence[str]) -> Iterator[FieldError]:
    """Yield the field errors of one error of the engine. `declared` are the names of the tool's arguments."""
    path, kind = list(error.instance_path), error.kind
    match kind:
        case _Kind.AdditionalProperties(unexpected) | _Kind.UnevaluatedProperties(unexpected):
            yield from (_unknown(path, name, kind.name, declared) for name in unexpected)
        case _Kind.Required(name):
            yield _error([*path, name], kind.name, "is required")
        case _Kind.AnyOf(context) | _Kind.OneOfNotValid(context):
            yield from _no_branch(error, context, declared)
        case _Kind.PropertyNames(inner):
            yield _error(path, kind.name, f"has a name that {describe(inner)}")
        case _:
            yield _error(path, kind.name, describe(error), _expected(kind))


def _error(path: Sequence[str | int], keyword: str, message: str, expected: Any = None) -> FieldError:
    return FieldError(path=join_path(path), keyword=keyword, message=message, expected=expected)


def _unknown(path: Sequence[str | int], name: str, keyword: str, declared: Sequence[str]) -> FieldError:
    message = "is not known here"
    if not path:
        word = name.lower()
        near = nearest(name, declared, 1) or [known for known in declared if known.lower().startswith(word)]
        meant = (
            f"; did you mean {near[0]!r}?" if near else f", which takes {', '.join(declared[:_MAX_OPTIONS]) or 'none'}"
        )
        message = f"is not an argument of this tool{meant}"
    return _error([*path, name], keyword, message)


def _no_branch(
    error: jsonschema_rs.ValidationError, context: list[list[jsonschema_rs.ValidationError]], declared: Sequence[str]
) -> Iterator[FieldError]:
    """Explain the one branch that has the right type (`Model | None`), else list the expectation of each branch."""
    path = list(error.instance_path)
    near = [branch for branch in context if not _wrong_type(branch, len(path))]
    if len(near) == 1 and near[0]:
        for inner in near[0]:
            yield from explain(inner, () if path else declared)
        return
    kinds = [inner.kind for branch in context for inner in branch[:1]]
    if not near and kinds and all(isinstance(kind, _Kind.Type) for kind in kinds):
        types = list(dict.fromkeys(name for kind in kinds for name in cast("Any", kind).types))
        yield _error(path, error.kind.name, f"must be {_one_of(types)}, not {json_type(error.instance)}", types)
        return
    wants = [
        f"({number}) {_summary(branch, len(path))}" for number, branch in enumerate(context[:_MAX_BRANCHES], start=1)
    ]
    if len(context) > _MAX_BRANCHES:
        wants.append("…")
    yield _error(path, error.kind.name, f"fits none of {len(context)} alternatives: {' '.join(wants)}")


def _wrong_type(branch: list[jsonschema_rs.ValidationError], depth: int) -> bool:
    """Whether the branch is for values of another type altogether, not for a value like this with something wrong."""
    return any(isinstance(inner.kind, _Kind.Type) and len(inner.instance_path) == depth for inner in branch)


def _summary(branch: list[jsonschema_rs.ValidationError], skip: int) -> str:
    if not branch:
        return "not allowed"
    inner = branch[0]
    below = [*inner.instance_path[skip:]]
    if isinstance(inner.kind, _Kind.Required):
        return f"{join_path([*below, inner.kind.property])} is required"
    return f"{join_path(below)} {describe(inner)}".strip()


def _one_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def describe(error: jsonschema_rs.ValidationError) -> str:
    """Return the defect that `error` describes, without repeating the value."""
    kind = error.kind
    match kind:
        case _Kind.Type(types):
            return f"must be {_one_of(types)}, not {json_type(error.instance)}"
        case _Kind.Enum(options):
            shown = ", ".join(_as_json(option) for option in options[:_MAX_OPTIONS])
            return f"must be one of {shown}{', …' if len(options) > _MAX_OPTIONS else ''}"
        case _Kind.Constant(value):
            return f"must be {_as_json(value)}"
        case _Kind.Pattern(pattern) if pattern == _NOT_BLANK:
            return "must not be blank"
        case _Kind.AnyOf(context) | _Kind.OneOfNotValid(context):
            return f"fits none of {len(context)} alternatives"
        case _Kind.AdditionalProperties(unexpected) | _Kind.UnevaluatedProperties(unexpected):
            return f"does not take {', '.join(name[:_MAX_NAME] for name in unexpected[:_MAX_BRANCHES])}"
        case _:
            wording = _WORDINGS.get(kind.name)
            return wording.format(kind.value) if wording else f"does not satisfy {kind.name!r}"


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _expected(kind: jsonschema_rs.ValidationErrorKind) -> Any:
    match kind:
        case _Kind.Type(types):
            return types[0] if len(types) == 1 else list(types)
        case _Kind.Enum(options):
            return options[:_MAX_EXPECTED]
        case (
            _Kind.Not() | _Kind.UnevaluatedItems() | _Kind.OneOfMultipleValid() | _Kind.Contains() | _Kind.UniqueItems()
        ):
            return None
        case _Kind.BacktrackLimitExceeded() | _Kind.RegexEngineFailure() | _Kind.FalseSchema():
            return None
        case _:
            return kind.value
