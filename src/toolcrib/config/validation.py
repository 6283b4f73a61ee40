"""Validation of configured values by settings models; pydantic's errors become ours, with file and nearest key.

    read_setting(JobLimits, {"workin": "4"}, place)
    ─► jobs.workin (config.yaml:12): unknown key; did you mean 'working'?

Pydantic names where an error is by the steps that it took: branches of unions among them, and our names of keys for
other spellings. `_locate` follows these steps through the document, so that an error names the key as it is written and
its line. All errors are raised together, in the order of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ..core.documents.tree import Path
from ..core.json import as_mapping
from ..core.settings import Section, info_of
from ..core.similar import did_you_mean, nearest
from ..errors import ConfigError, ConfigErrors
from .secrets import expand

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
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "path_type": "a string",
    "string_type": "a string",
    "tuple_type": "a list",
}
"""The expected value, by pydantic's type of error. The actual value is never part of it: it may be a secret."""

_Located = tuple[Path, ConfigError]
_Check = Callable[[Any], Iterable[tuple[Path, str]]]

_MISSING: Final = "is required"


def _nowhere(path: Path) -> str:
    return ""


class SettingPlace(Struct, frozen=True, kw_only=True):
    """Position of a value in a document, and the sources of its variables."""

    path: Path = ()
    where: Callable[[Path], str] = _nowhere
    """`file:line` of a path inside the document."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Descriptions of the values that a person is asked for, by id."""
    written: Mapping[Path, Path] = field(default_factory=dict[Path, Path])
    """Path in the document of what has another path in the value; both count from this place."""

    def at(self, *steps: str | int) -> SettingPlace:
        """Return the place of a value inside this one."""
        return replace(self, path=(*self.path, *steps))

    def error(self, message: str, *steps: str | int) -> ConfigError:
        """Return an error at a path inside this place."""
        path = (*self.path, *self._in_document(steps))
        return ConfigError(message, file=self.where(path), key=".".join(map(str, path)))

    def has_name_alone(self, *steps: str | int) -> bool:
        """Whether the document names a variable here, as opposed to a text with variables in it."""
        return len(steps) > 1 and steps in self.written

    def _in_document(self, steps: Path) -> Path:
        for end in range(len(steps), 0, -1):
            if (written := self.written.get(steps[:end])) is not None:
                return (*written, *steps[end:])
        return steps


def read_setting(
    annotation: Any, raw: Any, place: SettingPlace, *, literal: bool = False, check: _Check | None = None
) -> Any:
    """Return `raw` validated as `annotation`, a model or an annotated type, with its variables replaced.

    A key with null counts as not set. `literal` keeps texts and nulls as they are. `check` yields further errors of
    the document, as paths and messages. Raises `ConfigError`, or `ConfigErrors` with every error in document order.
    """
    errors: list[_Located] = []
    value = raw if literal else _expanded(strip_nulls(raw), place, errors)
    errors += [(path, place.error(message, *path)) for path, message in (check(raw) if check else ())]
    for name in _in_code(annotation, value):
        errors.append(((name,), place.error(_unknown(name, annotation), name)))
        value = {key: inner for key, inner in value.items() if key != name}
    known = {path for path, _ in errors}
    try:
        result = _adapter(annotation).validate_python(value)
    except ValidationError as error:
        found = [
            one
            for detail in error.errors(include_url=False, include_input=False)
            for one in _found(detail, raw, annotation)
        ]
        misspelt = {(*path[:-1], near) for path, _, near in found if near}
        for path, message, _ in found:
            if path not in known and not (message == _MISSING and path in misspelt):
                known.add(path)
                errors.append((path, place.error(message, *path)))
    else:
        if not errors:
            return result
    raise ConfigErrors.of(error for _, error in sorted(errors, key=lambda one: _order(one[0], raw)))


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


def _expanded(value: Any, place: SettingPlace, errors: list[_Located], path: Path = ()) -> Any:
    """Return the value with the variables in its texts replaced; one that has no value is an error and stays."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return {name: _expanded(inner, place, errors, (*path, name)) for name, inner in members}
    if isinstance(value, list | tuple):
        items = enumerate(cast("list[Any]", value))
        return [_expanded(inner, place, errors, (*path, number)) for number, inner in items]
    if not isinstance(value, str):
        return value
    try:
        has_default = not place.has_name_alone(*path)
        return expand(value, place.environ, inputs=place.inputs, has_default=has_default)
    except ConfigError as error:
        errors.append((path, place.error(str(error), *path)))
        return value


def _found(detail: ErrorDetails, raw: Any, annotation: Any) -> list[tuple[Path, str, str]]:
    """Return path and message of one of pydantic's errors, with the key that a misspelt one was to be."""
    path, around, inner, value = _locate(detail, raw, annotation)
    kind, facts = detail["type"], detail.get("ctx", {})
    if kind == "conflicts":
        return [((*path, *steps), message, "") for steps, message in facts["found"]]
    if kind == "extra_forbidden" or "[key]" in detail["loc"][-1:]:
        close = nearest(str(path[-1]), _keys(around), 1)
        return [(path, _unknown(str(path[-1]), around), close[0] if close else "")]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        step = str(facts["discriminator"]).strip("'")
        words = _tags(inner, step)
        given = as_mapping(value).get(step)
        near = did_you_mean(str(given), words) if given is not None else ""
        return [((*path, step), f"one of {', '.join(words)} was expected{near}", "")]
    return [(path, _message(kind, facts, inner, value), "")]


def _message(kind: str, facts: Mapping[str, Any], annotation: Any, value: Any) -> str:
    if kind == "missing":
        return _MISSING
    if kind == "value_error":
        return str(facts["error"])
    if kind == "literal_error":
        words = _words(annotation)
        near = did_you_mean(value, words) if isinstance(value, str) else ""
        return f"one of {', '.join(words)} was expected{near}"
    what = facts["what"] if kind == "expected" else _EXPECTED.get(kind, "another kind of value").format(**facts)
    model = _model_in(annotation) if what == "a mapping" else None
    return f"{what} was expected" + (f"; its keys are {', '.join(key_names(model))}" if model else "")


def _unknown(key: str, annotation: Any) -> str:
    model = _model_in(annotation)
    if model is not None and key in model.spellings:
        return f"repeats another key of this entry ({model.spellings[key]!r})"
    return f"unknown key{did_you_mean(key, _keys(annotation))}"


def _keys(annotation: Any) -> tuple[str, ...]:
    """Return the keys of a model, or of a mapping whose keys are a `Literal`."""
    model = _model_in(annotation)
    return key_names(model) if model else _words(annotation)


def _locate(detail: ErrorDetails, raw: Any, annotation: Any) -> tuple[Path, Any, Any, Any]:
    """Return the position of an error in the document: its path, the type around it, its own type and its value.

    The locations of pydantic have steps of its own (the branch of a union), and our names of keys for other spellings.
    """
    path: list[str | int] = []
    at: Any = raw
    inside = around = annotation
    steps = detail["loc"]
    for number, step in enumerate(steps):
        key = _key_of(step, at, _model_in(inside))
        if key is None and not (number == len(steps) - 1 and detail["type"] == "missing"):
            inside = _inner(inside, step) if isinstance(step, int) else _branch(inside, step)
            continue
        path.append(step if key is None else key)
        around, inside = inside, _inner(inside, step)
        at = None if key is None else at[key]
    return tuple(path), around, inside, at


def _key_of(step: str | int, at: Any, model: type[Section] | None) -> str | int | None:
    """Return the key or place of the document that a step means; None for a step of pydantic's own."""
    if isinstance(at, Mapping):
        if step in at:
            return step
        spellings: Mapping[str, str] = model.spellings if model else {}
        return next((key for key in cast("Mapping[str, Any]", at) if spellings.get(key) == step), None)
    is_place = isinstance(at, list | tuple) and isinstance(step, int) and step < len(cast("list[Any]", at))
    return step if is_place else None


def parts_of(annotation: Any) -> tuple[Any, ...]:
    """Return the branches of a union without None, or the type itself."""
    if get_origin(annotation) is Annotated:
        return parts_of(get_args(annotation)[0])
    if get_origin(annotation) not in (Union, UnionType):
        return (annotation,)
    return tuple(part for one in get_args(annotation) for part in parts_of(one) if one is not NoneType)


def _model_in(annotation: Any) -> type[Section] | None:
    """Return the first model among the branches of an annotation."""
    return next((one for one in parts_of(annotation) if isinstance(one, type) and issubclass(one, Section)), None)


def _branch(annotation: Any, tag: str | int) -> Any:
    """Return the branch of a union whose discriminating field has the value `tag`; the union where none has."""
    for part in parts_of(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            fields = part.model_fields.values()
            if any(tag in get_args(field.annotation) for field in fields if get_origin(field.annotation) is Literal):
                return part
    return annotation


def _inner(annotation: Any, step: str | int) -> Any:
    """Return the type of a member or an item."""
    model = _model_in(annotation)
    if model is not None and step in model.model_fields:
        return model.model_fields[step].annotation
    for part in parts_of(annotation):
        if inner := [one for one in get_args(part) if one is not Ellipsis]:
            return inner[-1]
    return None


def _words(annotation: Any) -> tuple[str, ...]:
    """Return the values of the first `Literal` of an annotation, the keys of a mapping included."""
    for part in parts_of(annotation):
        if get_origin(part) is Literal:
            return tuple(str(word) for word in get_args(part))
        for one in get_args(part):
            if words := _words(one):
                return words
    return ()


def _tags(annotation: Any, step: str) -> tuple[str, ...]:
    """Return the values of the discriminating field `step` of a union, or of the unions in a list."""
    parts = [one for part in parts_of(annotation) for one in (get_args(part) if get_origin(part) is tuple else (part,))]
    models = [one for part in parts for one in parts_of(part) if isinstance(one, type) and issubclass(one, Section)]
    return tuple(word for model in models for word in get_args(model.model_fields[step].annotation))


def _in_code(annotation: Any, value: Any) -> Sequence[str]:
    """Return the keys that only a program may set."""
    model = _model_in(annotation)
    if model is None or not isinstance(value, dict):
        return ()
    return [name for name in cast("dict[str, Any]", value) if name in model.model_fields.keys() - key_names(model)]


def _order(path: Path, raw: Any) -> tuple[int, ...]:
    """Return the sort key of a path, in the order of the document; missing keys come last."""
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
