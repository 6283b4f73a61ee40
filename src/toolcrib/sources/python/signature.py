"""Signatures of functions as JSON Schema, with the parameter texts of their docstrings (`docstrings`)."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import typing_extensions
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ...core.context import Context
from ...core.json import MAX_DEPTH, dumps, dumps_or_none
from ...core.result import ToolResult
from ...core.schema.nodes import as_node, types_of
from ...errors import ToolFailure, UsageError
from ...results.library_values import picture_or_none, plain_or_none, without_missing_dates
from ...results.normalize import is_content, to_result, writable
from .docstrings import parse_docstring

_SILENT: Final = (str, type(None))
"""Results that are their own text."""
_JSON_TYPES: Final = (str, int, float, bool, type(None))
"""Types of defaults that are the same in JSON."""


def portable(annotation: Any, known: dict[Any, Any] | None = None) -> Any:
    """Return `annotation` with every `typing.TypedDict` in it replaced; itself without one.

    Pydantic takes those of `typing_extensions` alone on Python before 3.12. One that refers to itself stays as it is
    at that place.
    """
    known = {} if known is None else known
    if isinstance(annotation, list):  # the parameters of a Callable
        return cast("Any", annotation)
    if typing_extensions.is_typeddict(annotation):
        return known[annotation] if annotation in known else _made_anew(annotation, known)
    old = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        inner = portable(old[0], known)
        return annotation if inner is old[0] else Annotated[(inner, *old[1:])]
    new: tuple[Any, ...] = tuple(portable(argument, known) for argument in old)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return annotation
    if origin in (Union, types.UnionType):
        return Union[new]  # noqa: UP007 - built from values, which `|` of two types cannot express
    copy_with = getattr(annotation, "copy_with", None)
    return copy_with(new) if copy_with is not None else origin[new]


def _made_anew(old: Any, known: dict[Any, Any]) -> Any:
    known[old] = old
    hints = typing.get_type_hints(old, include_extras=True)
    new = {name: portable(hint, known) for name, hint in hints.items()}
    if not typing.is_typeddict(old) and all(hint is new[name] for name, hint in hints.items()):
        return old
    required = old.__required_keys__
    fields = {
        name: typing_extensions.Required[hint] if name in required else typing_extensions.NotRequired[hint]
        for name, hint in new.items()
    }
    made = cast("Any", typing_extensions).TypedDict(old.__name__, fields)
    for kept in ("__doc__", "__module__", "__pydantic_config__"):
        if hasattr(old, kept):
            setattr(made, kept, getattr(old, kept))
    known[old] = made
    return made


class _Schema(GenerateJsonSchema):
    """JSON Schema without parts that a model does not need: generated titles cost tokens without information."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: a title that is only the name again is left out."""
        return False

    def encode_default(self, dft: Any) -> Any:
        """Return a default; pydantic makes an adapter of its type for each, an eighth of the time of a function.

        Raises `PydanticSerializationError` for one that JSON has no number for: the schema goes without it.
        """
        if type(dft) is float and not isfinite(dft):
            raise PydanticSerializationError(f"{dft} is not a number of JSON")
        return dft if type(dft) in _JSON_TYPES else super().encode_default(dft)


class Signature(Struct, frozen=True, kw_only=True):
    """Calling convention of one function. Lives as long as its tool."""

    description: str
    input_schema: JsonSchemaValue
    output_schema: JsonSchemaValue | None
    _model: type[BaseModel]
    _fields: Mapping[str, str]
    """Model field by parameter."""
    _context: str
    """The parameter that takes the context, or empty."""
    _result: TypeAdapter[Any] | None

    def arguments(self, given: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Return keyword arguments of the function's parameter types.

        Raises `ToolFailure("invalid_arguments")` for a value that a type refuses although the schema admits it.
        """
        try:
            values = self._model.__pydantic_validator__.validate_python(dict(given)).__dict__
        except ValidationError as error:
            raise ToolFailure("invalid_arguments", f"the arguments do not fit: {'; '.join(_reasons(error))}") from None
        found = {name: values[field] for name, field in self._fields.items()}
        if self._context:
            found[self._context] = context
        return found

    def result(self, value: Any) -> ToolResult:
        """Return the function's return value as a result; raises `ToolFailure` if it does not match the declaration."""
        if isinstance(value, ToolResult):
            return writable(value)
        if self._result is None:
            return _as_result(value)
        rewriter = _Rewriter()
        try:
            valid = self._result.validate_python(value)
            plain = _written(partial(self._result.dump_python, mode="json", by_alias=True), valid, rewriter)
        except (TypeError, ValueError, RecursionError) as error:  # pydantic: two subclasses, a cycle none
            reason = "; ".join(_reasons(error)) if isinstance(error, ValidationError) else str(error)
            raise _not_declared(reason) from None
        written = dumps_or_none(plain)
        if written is None:
            raise _not_declared(
                f"JSON has at most {MAX_DEPTH} levels and integers of 64 bits; write larger ones as text"
            )
        return rewriter.result(plain, written, is_structured=True)


class DeclaredSignature(Struct, frozen=True, kw_only=True):
    """Calling convention of a function whose arguments are declared as JSON Schema (`@tool(input_schema=…)`).

    It takes them by name as they were given, so that an argument left out differs from one that is null; a whole number
    that was written with a point (`5.0`), which JSON Schema counts as an integer, is one.
    """

    description: str
    input_schema: JsonSchemaValue
    _context: str
    _integers: tuple[str, ...]
    """Arguments that are declared as integers."""
    output_schema: JsonSchemaValue | None = None

    def arguments(self, given: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Return keyword arguments: those that were given, and the context."""
        taken = {**given, self._context: context} if self._context else dict(given)
        for name in self._integers:
            if type(value := taken.get(name)) is float:
                taken[name] = int(value)
        return taken

    def result(self, value: Any) -> ToolResult:
        """Return the function's return value as a result: an object as structured content too."""
        if isinstance(value, ToolResult):
            return writable(value)
        if isinstance(value, dict) and (written := dumps_or_none(value)) is not None:
            return ToolResult.of_json(value, written)
        return _as_result(value)


def declared_signature(
    function: Callable[..., Any], input_schema: Mapping[str, Any], description: str = ""
) -> DeclaredSignature:
    """Return the signature of a function with declared arguments; raises `UsageError` unless they are an object."""
    if input_schema.get("type") != "object" or not isinstance(input_schema.get("properties"), Mapping):
        expected = "it must be that of an object, {'type': 'object', 'properties': {…}}"
        raise UsageError(f"input_schema is {dict(input_schema)!r:.100}: {expected}")
    parameters = inspect.signature(function).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        for name in input_schema["properties"]:
            if name not in parameters:
                known = ", ".join(parameters) or "none"
                raise UsageError(f"input_schema has {name!r}, which is not a parameter; the parameters are {known}")
    hints = typing.get_type_hints(_annotated_object(function))
    return DeclaredSignature(
        description=description or parse_docstring(_docstring(function)).description,
        input_schema={"additionalProperties": False, **input_schema},
        _context=next((name for name, hint in hints.items() if _is_context(hint)), ""),
        _integers=tuple(
            name
            for name, node in input_schema["properties"].items()
            if {"integer", "number"} & types_of(as_node(node), input_schema) == {"integer"}
        ),
    )


def read_signature(function: Callable[..., Any], description: str = "") -> Signature:
    """Return the signature of `function`; raises `UsageError` when a parameter cannot be described to a model."""
    documented = parse_docstring(_docstring(function))
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = typing.get_type_hints(_annotated_object(function), include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        hint = "names of types belong at the top of its module, neither into a function nor under TYPE_CHECKING"
        raise UsageError(f"its annotations cannot be read: {error}; {hint}") from None
    context = ""
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in parameters:
        annotation = hints.get(parameter.name, Any)
        if _is_context(annotation):
            if context:
                raise UsageError(f"{context} and {parameter.name} both take the Context: one parameter is enough")
            context = parameter.name
            continue
        names[parameter.name] = field = f"p{len(names)}"
        fields[field] = _field(parameter, annotation, documented.parameters.get(parameter.name, ""))
    model, schema = _model(function, fields, names)
    adapter, output = _output(hints.get("return", Any))
    return Signature(
        description=description or documented.description,
        input_schema=schema,
        output_schema=output,
        _model=model,
        _fields=names,
        _context=context,
        _result=adapter,
    )


def _annotated_object(function: Callable[..., Any]) -> Any:
    """Object with the annotations: a callable object keeps them on `__call__`, a partial on its function."""
    function = getattr(function, "func", function)
    return function if inspect.isroutine(function) else type(function).__call__


def _docstring(function: Any) -> str | None:
    """Docstring of what is called: a partial has that of its class, a callable object may have none of its own."""
    if function.__doc__ == partial.__doc__:
        return _docstring(function.func)
    own = inspect.getdoc(function)
    return own if own or inspect.isroutine(function) else inspect.getdoc(type(function).__call__)


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return any(_is_context(option) for option in get_args(annotation))
    return annotation is Context


def _field(parameter: inspect.Parameter, annotation: Any, description: str) -> tuple[Any, Any]:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise UsageError(
            f"{stars}{parameter.name}: a model must know every argument; name them, or take one list or dict"
        )
    if parameter.name == "self" and parameter.annotation is parameter.empty:
        raise UsageError(
            "self: this is a method of a class; add an instance of the class, or the method of an instance"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UsageError(f"{parameter.name} can only be given by position; models give names: take the `/` away")
    default = ... if parameter.default is parameter.empty else parameter.default
    extra = Field(alias=parameter.name, description=_description(annotation, default, description))
    try:
        return Annotated[portable(annotation), extra], default
    except AttributeError:  # of typing: a value in the place of a type, such as `[int]`
        raise _without_form(parameter.name, annotation) from None


def _description(annotation: Any, default: Any, documented: str) -> str | None:
    """Return the description of a parameter: of a `Field`, else `Annotated[str, "its text"]`, else the docstring's."""
    stated = (default, *(get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()))
    fields = [item.description for item in stated if isinstance(item, FieldInfo) and item.description]
    texts = [item for item in stated[1:] if isinstance(item, str)]
    return [*fields, *texts, documented][0] or None


def _model(
    function: Callable[..., Any], fields: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[type[BaseModel], JsonSchemaValue]:
    config = ConfigDict(extra="forbid", validate_by_alias=True, validate_by_name=False)
    name = getattr(function, "__name__", type(function).__name__)
    try:
        model = create_model(name, __config__=config, **dict(fields))
        schema = model.model_json_schema(by_alias=True, schema_generator=_Schema)
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError) as error:
        raise _blamed(error, fields, names) from None
    schema.pop("description", None)
    schema.setdefault("properties", {})
    return model, _untitled(schema)


def _blamed(error: Exception, fields: Mapping[str, Any], names: Mapping[str, str]) -> UsageError:
    """Return the error that names the parameter without a schema."""
    for name, key in names.items():
        try:
            probe = create_model("probe", **{key: fields[key]})
            probe.model_json_schema(schema_generator=_Schema)
        except (PydanticUserError, PydanticSchemaGenerationError, TypeError):
            return _without_form(name, get_args(fields[key][0])[0])
    return UsageError(f"its parameters cannot be described in JSON: {str(error).splitlines()[0]}")


def _without_form(name: str, annotation: Any) -> UsageError:
    return UsageError(
        f"parameter {name!r}: {annotation!r} has no form in JSON; use plain types (`list[int]`), models or dataclasses"
    )


def _output(annotation: Any) -> tuple[TypeAdapter[Any] | None, JsonSchemaValue | None]:
    """An adapter and a schema for results that are objects; every other result is text."""
    if annotation in (Any, ToolResult, *_SILENT):
        return None, None
    try:
        try:
            adapter, schema = _adapter(annotation)
        except TypeError:  # an annotation that has no hash is not kept
            adapter, schema = _adapter.__wrapped__(annotation)
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError):
        return None, None
    resolved = schema
    if str(schema.get("$ref", "")).startswith("#/$defs/"):
        resolved = schema["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        schema = {**resolved, **{key: value for key, value in schema.items() if key != "$ref"}}
    if resolved.get("type") != "object":
        return None, None
    return adapter, _untitled(schema)


@lru_cache(maxsize=128)
def _adapter(annotation: Any) -> tuple[TypeAdapter[Any], JsonSchemaValue]:
    """Return the adapter and the schema of a type; several tools share them."""
    adapter: TypeAdapter[Any] = TypeAdapter(portable(annotation))
    return adapter, adapter.json_schema(mode="serialization", by_alias=True, schema_generator=_Schema)


def _untitled(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Drop the titles that only repeat a name."""
    schema.pop("title", None)
    for name, definition in schema.get("$defs", {}).items():
        if definition.get("title") == name:
            del definition["title"]
    return schema


class _Rewriter(Struct):
    """Conversion of values without a form in JSON; keeps the pictures of one result."""

    pictures: list[bytes] = field(default_factory=list[bytes])
    is_used: bool = False

    def rewrite(self, value: Any) -> Any:
        """Return the number of a picture, an array or a table as lists and objects, any other value as its text."""
        self.is_used = True
        if (picture := picture_or_none(value)) is not None:
            self.pictures.append(picture)
            return f"[picture {len(self.pictures)}]"
        plain = plain_or_none(value)
        return str(value) if plain is None else plain

    def result(self, plain: Any, written: bytes, *, is_structured: bool = False) -> ToolResult:
        """Return a value, `written` in JSON, and the pictures that it numbers; of one that is a picture that alone."""
        pictures = [block for picture in self.pictures for block in to_result(picture).content]
        if self.is_used and isinstance(plain, str):  # then nothing is around it
            return ToolResult(content=tuple(pictures)) if pictures else ToolResult.of_text(plain)
        result = ToolResult.of_json(plain, written) if is_structured else ToolResult.of_text(written.decode())
        return replace(result, content=(*result.content, *pictures)) if pictures else result


def _written(write: Callable[..., Any], value: Any, rewriter: _Rewriter) -> Any:
    try:
        return write(value, fallback=rewriter.rewrite)
    except TypeError:
        rewriter.pictures.clear()
        return write(without_missing_dates(value), fallback=rewriter.rewrite)


def _as_result(value: Any) -> ToolResult:
    """Bytes, pictures and content blocks as what they are; every other value as text."""
    if value is None:
        return ToolResult.of_text("done")
    if isinstance(value, str):
        return ToolResult.of_text(value)
    if isinstance(value, bytes | bytearray | memoryview) or is_content(value):
        return to_result(value)
    rewriter = _Rewriter()
    try:
        plain = _written(partial(to_jsonable_python, bytes_mode="base64", by_alias=True), value, rewriter)
        result = rewriter.result(plain, dumps(plain))
        return result.with_meta(format="json") if isinstance(plain, bool | int | float) else result
    except Exception:  # noqa: BLE001 - the value's own methods wrote it
        pass
    try:
        return ToolResult.of_text(str(value))
    except RecursionError:
        raise ToolFailure("tool_error", "the tool ran, but its result is nested too deeply to be shown") from None
    except Exception as error:  # noqa: BLE001 - of the value's `__str__`
        reason = f"str() of its {type(value).__name__} failed: {type(error).__name__}"
        raise ToolFailure("tool_error", f"the tool ran, but its result has no text: {reason}") from None


def _not_declared(reason: str) -> ToolFailure:
    return ToolFailure("tool_error", f"the tool ran, but its result does not match its declaration: {reason}")


def _reasons(error: ValidationError) -> list[str]:
    """Every error with its place; without the value, and without pydantic's word for an error of a validator."""
    listed = error.errors(include_url=False, include_input=False, include_context=False)
    return [
        f"{'.'.join(str(part) for part in one['loc']) or 'value'}: "
        + one["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        for one in listed[:20]
    ]
