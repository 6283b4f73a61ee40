"""Base of the settings models: one section of the configuration each, declared beside the feature that reads it.

A key is one field. Its annotation validates, its default is the default, the docstring below it is its line in the
reference, and `setting` adds what the annotation cannot express: who may change it, and whether it may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

__all__ = [
    "Amount",
    "ChangedBy",
    "Count",
    "Duration",
    "Flag",
    "KeyInfo",
    "Number",
    "Section",
    "Size",
    "Text",
    "Texts",
    "Wait",
    "a_list_of",
    "at_least",
    "at_most",
    "expected",
    "identity_of",
    "info_of",
    "keys_of",
    "meaning_of",
    "seconds_of",
    "secret_texts",
    "setting",
]

ChangedBy = Literal["user", "tool"]
"""`user`: by hand alone. `tool`: a tool may propose a value, and a person approves each change."""

_SIZE: Final = re.compile(r"(\d{1,12})(B|KiB|MiB|GiB|TiB)")
_SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DURATION: Final = re.compile(r"(\d{1,6})([smhdw])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Section(BaseModel):
    """One section of the configuration: immutable, unknown keys are errors, `model_fields_set` is what a file sets."""

    # Schemas are built at the first validation: a section that no file has costs nothing. Defaults come from
    # `model_construct` therefore, which validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, arbitrary_types_allowed=True)

    replaced_whole: ClassVar[bool] = False
    """Whether a later file replaces the section instead of its single keys."""

    def over(self, earlier: Self | None) -> Self:
        """Return `earlier` with the keys that this section sets."""
        if earlier is None or self.replaced_whole:
            return self
        later: dict[str, Any] = {}
        for name in self.model_fields_set:
            value, before = getattr(self, name), getattr(earlier, name)
            nested = isinstance(value, Section) and type(before) is type(value)
            later[name] = value.over(before) if nested else value
        return earlier.model_copy(update=later)


class KeyInfo:
    """Facts about one key beside its type and default."""

    __slots__ = ("changed_by", "hidden", "in_code", "secret")

    def __init__(self, changed_by: ChangedBy, *, secret: bool, hidden: bool, in_code: bool) -> None:
        self.changed_by: ChangedBy = changed_by
        self.secret = secret
        self.hidden = hidden or secret
        self.in_code = in_code


def setting(
    default: Any = ...,
    *,
    changed_by: ChangedBy = "user",
    secret: bool = False,
    hidden: bool = False,
    in_code: bool = False,
) -> Any:
    """Return a field.

    The text of a `secret` one is masked wherever it turns up; a `hidden` one, of which parts may be secret, is not
    displayed; an `in_code` one has no key in files.
    """
    info: FieldInfo = Field(default, repr=not (secret or hidden))
    info.metadata.append(KeyInfo(changed_by, secret=secret, hidden=hidden, in_code=in_code))
    return info


_PLAIN: Final = KeyInfo("user", secret=False, hidden=False, in_code=False)


def info_of(field: FieldInfo) -> KeyInfo:
    """Return the facts about a field; those of an ordinary key if none were declared."""
    return next((item for item in field.metadata if isinstance(item, KeyInfo)), _PLAIN)


def keys_of(model: type[Section]) -> Iterator[tuple[str, KeyInfo]]:
    """Yield the dotted path and the facts of every key that a file may have in a section; inner sections opened."""
    for name, field in model.model_fields.items():
        info = info_of(field)
        if info.in_code:
            continue
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from ((f"{name}.{path}", inner) for path, inner in keys_of(field.annotation))
        else:
            yield name, info


def secret_texts(value: Any) -> Iterator[str]:
    """Yield the texts of the secret keys in a section, or in a list of them."""
    if isinstance(value, tuple):
        for one in cast("tuple[Any, ...]", value):
            yield from secret_texts(one)
    elif isinstance(value, Section):
        for name, field in type(value).model_fields.items():
            inner = getattr(value, name)
            if info_of(field).secret and isinstance(inner, str) and inner:
                yield inner
            yield from secret_texts(inner)


def meaning_of(field: FieldInfo) -> str:
    """Return how a value with a unit is written; empty for an ordinary one."""
    checks = {item.func for item in field.metadata if isinstance(item, BeforeValidator)}
    return (
        "seconds, or a time such as `7d`"
        if _seconds in checks
        else "bytes, or a size such as `1MiB`"
        if _bytes in checks
        else ""
    )


def expected(what: str) -> PydanticCustomError:
    """Return the error of a validator: the value should have been `what`, a noun phrase without the value itself."""
    return PydanticCustomError("expected", cast("Any", "{what}"), {"what": what})


def _not_blank(text: str) -> str:
    if not text.strip():
        raise expected("a string")
    return text


def seconds_of(text: str) -> float | None:
    """Return the seconds of `90d`, `12h` or `2w`; None for another text."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not (seconds := seconds_of(value)):
        raise expected("a time such as 7d or 12h")
    return seconds


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not (match := _SIZE.fullmatch(value)) or not int(match[1]):
        raise expected("a size such as 256MiB or 2GiB")
    return int(match[1]) * _SIZES[match[2]]


def a_list_of(what: str) -> BeforeValidator:
    """Return the check that a value is a list; `what` names its items in the error."""

    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise expected(f"a list of {what}")
        return cast("Any", value)

    return BeforeValidator(check)


def at_least(least: float, written: str) -> AfterValidator:
    """Return a lower bound, `written` as the error shows it."""

    def check(value: float) -> float:
        if value < least:
            raise expected(f"at least {written}")
        return value

    return AfterValidator(check)


def at_most(most: float, written: str) -> AfterValidator:
    """Return an upper bound, `written` as the error shows it."""

    def check(value: float) -> float:
        if value > most:
            raise expected(f"at most {written}")
        return value

    return AfterValidator(check)


Flag = Annotated[bool, Strict()]
"""true or false; no text and no number stands for either."""
Text = Annotated[str, AfterValidator(_not_blank)]
"""A string that is not blank."""
Texts = Annotated[tuple[Text, ...], a_list_of("strings")]
"""A list of strings that are not blank."""
Count = Annotated[int, Strict(), Field(gt=0)]
"""A whole number above 0."""
Amount = Annotated[int, Strict(), Field(ge=0)]
"""A whole number; 0 allows nothing."""
Number = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
"""A finite number above 0."""
Duration = Annotated[Number, BeforeValidator(_seconds)]
"""Seconds, or a time such as `90d`."""
Wait = Annotated[float, Strict(), Field(allow_inf_nan=False), at_least(0, "0"), BeforeValidator(_seconds)]
"""Seconds to wait, or a time such as `30s`; 0 waits for nothing."""
Size = Annotated[Count, BeforeValidator(_bytes)]
"""Bytes, or a size such as `256MiB`."""


def identity_of(value: Any) -> Any:
    """Return the JSON that tells two values apart: every field of dataclasses and sections, however deep.

    A dataclass leaves a field out with `compare=False`, a section with `in_code`. Raises `TypeError` for another kind
    of object: a digest that skipped it would be the same for different settings.
    """
    if isinstance(value, BaseModel):
        given = type(value).model_fields.items()
        return {name: identity_of(getattr(value, name)) for name, field in given if not info_of(field).in_code}
    if is_dataclass(value):
        return {one.name: identity_of(getattr(value, one.name)) for one in fields(value) if one.compare}
    if isinstance(value, Mapping):
        return {str(name): identity_of(inner) for name, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [identity_of(inner) for inner in cast("list[Any]", value)]
    if isinstance(value, set | frozenset):
        return sorted(str(inner) for inner in cast("set[Any]", value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, PurePath | str):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"no digest of a {type(value).__name__}")
