"""Reading of settings models: values of a file validated, and pydantic's errors as ours, with file, line and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, cast, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ..core.document_tree import Path
from ..core.settings import Section, info_of
from ..errors import ConfigError, ConfigErrors
from .servers import did_you_mean
from .value import Value

__all__ = ["collected", "key_names", "read_setting", "strip_nulls"]

_EXPECTED: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "bytes_type": "a string",
    "dict_type": "a mapping",
    "finite_number": "a number above 0",
    "float_type": "a number",
    "greater_than_equal": "a whole number from {ge} on",
    "greater_than": "a number above {gt:g}",
    "int_type": "a whole number",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "path_type": "a string",
    "string_type": "a string",
    "tuple_type": "a list",
}
"""What should have stood there, by pydantic's type of error. The value is never part of it: it may be a secret."""


def read_setting(annotation: Any, value: Value) -> Any:
    """Return `value` validated as `annotation`, a model or an annotated type, its variables replaced.

    A key with null counts as not set. Raises `ConfigError`, or `ConfigErrors` with every error in the file's order.
    """
    errors: list[tuple[Path, ConfigError]] = []
    raw = _expanded(Value(strip_nulls(value.value), value.path, value.where, value.environ), errors)
    for name in _in_code(annotation, raw):
        errors.append(((*value.path, name), _unknown((name,), annotation, value)))
        del raw[name]
    failed = {path for path, _ in errors}
    try:
        result = _adapter(annotation).validate_python(raw)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            path = _path(detail, raw)
            if (*value.path, *path) not in failed:
                errors.append(((*value.path, *path), _error(detail, path, annotation, value)))
    else:
        if not errors:
            return result
    places = {path: _place(path[len(value.path) :], value.value) for path, _ in errors}
    raise collected([error for _, error in sorted(errors, key=lambda one: places[one[0]])])


def collected(errors: Sequence[ConfigError]) -> ConfigError:
    """Return the errors as one: itself where it is the only one."""
    flat = [one for error in errors for one in (error.errors if isinstance(error, ConfigErrors) else (error,))]
    return flat[0] if len(flat) == 1 else ConfigErrors(flat)


def key_names(model: type[Section]) -> tuple[str, ...]:
    """Return the keys that a file may have in a section."""
    return tuple(name for name, field in model.model_fields.items() if not info_of(field).in_code)


def strip_nulls(value: Any) -> Any:
    """Return mappings without their keys that have no value: `key:` alone sets nothing."""
    if not isinstance(value, Mapping):
        return value
    given = cast("Mapping[str, Any]", value)
    return {name: strip_nulls(inner) for name, inner in given.items() if inner is not None}


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _expanded(value: Value, errors: list[tuple[Path, ConfigError]]) -> Any:
    """Return the value with the variables in its texts replaced; one that has no value is an error and stays."""
    given: Any = value.value
    if isinstance(given, Mapping):
        members = cast("Mapping[str, Any]", given).items()
        return {name: _expanded(value.inner(name, inner), errors) for name, inner in members}
    if isinstance(given, list | tuple):
        items = enumerate(cast("list[Any]", given))
        return [_expanded(value.inner(place, inner), errors) for place, inner in items]
    try:
        return value.expanded()
    except ConfigError as error:
        errors.append((value.path, error))
        return given


def _path(detail: ErrorDetails, raw: Any) -> Path:
    """Return the place of an error in the document: pydantic's has steps of its own, such as the branch of a union."""
    path: list[str | int] = []
    at = raw
    last = len(detail["loc"]) - 1
    for place, step in enumerate(detail["loc"]):
        if isinstance(at, Mapping) and step in at:
            at = cast("Mapping[Any, Any]", at)[step]
        elif isinstance(at, list) and isinstance(step, int) and step < len(cast("list[Any]", at)):
            at = cast("list[Any]", at)[step]
        elif not (place == last and detail["type"] == "missing"):
            continue
        path.append(step)
    facts = detail.get("ctx", {})
    if "key" in facts:
        path.append(facts["key"])
    return tuple(path)


def _error(detail: ErrorDetails, path: Path, annotation: Any, value: Value) -> ConfigError:
    kind, facts = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(path, annotation, value)
    whole = (*value.path, *path)
    where, key = value.where(whole), ".".join(map(str, whole))
    if kind == "missing":
        return ConfigError("is required", file=where, key=key)
    if kind == "value_error":
        return ConfigError(str(facts["error"]), file=where, key=key)
    if kind == "literal_error":
        words = _words(annotation, path)
        return ConfigError(f"one of {', '.join(words)} was expected", file=where, key=key)
    what = facts["what"] if kind == "expected" else _EXPECTED.get(kind, "another kind of value").format(**facts)
    return ConfigError(f"{what} was expected", file=where, key=key)


def _unknown(path: Path, annotation: Any, value: Value) -> ConfigError:
    model = _model_at(annotation, path[:-1])
    near = did_you_mean(str(path[-1]), key_names(model)) if model else ""
    whole = (*value.path, *path)
    return ConfigError(f"unknown key{near}", file=value.where(whole), key=".".join(map(str, whole)))


def _in_code(annotation: Any, raw: Any) -> Sequence[str]:
    """Return the keys that only a program may set."""
    model = _model_at(annotation, ())
    if model is None or not isinstance(raw, dict):
        return ()
    return [name for name in cast("dict[str, Any]", raw) if name in model.model_fields.keys() - key_names(model)]


def _annotation_at(annotation: Any, path: Path) -> Any:
    """Return the type of what stands at `path` inside a value of type `annotation`."""
    if not path:
        return annotation
    model = _model_in(annotation)
    if isinstance(path[0], int) or model is None:
        inner = [one for one in get_args(annotation) if one is not Ellipsis]
        found = (_annotation_at(one, path[1:]) for one in inner if _model_in(one) or get_args(one))
        return next(found, None)
    field = model.model_fields.get(path[0])
    return _annotation_at(field.annotation, path[1:]) if field else None


def _model_at(annotation: Any, path: Path) -> type[Section] | None:
    return _model_in(_annotation_at(annotation, path))


def _model_in(annotation: Any) -> type[Section] | None:
    """Return the model that an annotation is, or is optionally."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    parts = get_args(annotation)
    return next((one for one in parts if isinstance(one, type) and issubclass(one, Section)), None)


def _words(annotation: Any, path: Path) -> tuple[str, ...]:
    return tuple(str(word) for word in get_args(_annotation_at(annotation, path)))


def _place(path: Path, raw: Any) -> tuple[int, ...]:
    """Return what sorts paths in the order of the document; what is missing comes after what is there."""
    places: list[int] = []
    at = raw
    for step in path:
        if isinstance(at, Mapping):
            given = cast("Mapping[Any, Any]", at)
            places.append(list(given).index(step) if step in given else len(given))
            at = given.get(step)
        elif isinstance(at, list | tuple) and isinstance(step, int):
            items = cast("list[Any]", at)
            places.append(step)
            at = items[step] if step < len(items) else None
        else:
            break
    return tuple(places)
