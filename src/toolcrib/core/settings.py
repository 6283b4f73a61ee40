"""Base of the settings models: one section of the configuration each, declared beside the feature that reads it.

A key is one field. Its annotation validates, its default is the default, the docstring below it is its line in the
reference, and `setting` adds what the annotation cannot express: who may change it, and whether it may hold a secret.

    class LogSettings(Section):
        size: Size = setting(1 << 20, changed_by="tool")    # the value, not "1MiB": defaults are not validated

    files, in order of precedence ──► one section each ──► later.over(earlier) ──► `config.settings`
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from .patterns import regex

ChangedBy = Literal["user", "tool"]
"""`user`: by hand alone. `tool`: a tool may propose a value, and a person approves each change."""

POLICY: Final = "it decides what is allowed"
"""Reasons why only the user changes a key; here and below."""
LIMITING: Final = "it limits what may be used"
REACH: Final = "it decides which tools exist, and what they may reach"
RECORDING: Final = "it decides what is recorded, and where that goes"
INSTRUCTIONS: Final = "it decides which instructions a model gets"
CLIENTS: Final = "it decides who can reach this program"

_SIZE: Final = regex(r"(\d{1,12})(B|KiB|MiB|GiB|TiB)")
_SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DURATION: Final = regex(r"(\d{1,6})([smhdw])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_MILLISECONDS_FROM: Final = 1000
"""Our unit is the second; most clients write milliseconds, and a thousand seconds is not a realistic timeout."""
_HINTS: Final[Mapping[str, Mapping[str, bool]]] = {
    "read": {"readOnlyHint": True},
    "write": {"readOnlyHint": False, "destructiveHint": False},
    "destructive": {"readOnlyHint": False, "destructiveHint": True},
}

_HEADER_NAME: Final = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = regex(r"[\t\x20-\x7e]*")

Flag = Annotated[bool, Strict()]
"""true or false; texts and numbers are not accepted."""

Count = Annotated[int, Strict(), Field(gt=0)]
"""A whole number above 0."""
Amount = Annotated[int, Strict(), Field(ge=0)]
"""A whole number; 0 allows nothing."""
Number = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
"""A finite number above 0."""


class Section(BaseModel):
    """One section of the configuration: immutable, unknown keys are errors, `model_fields_set` is what a file sets."""

    # Schemas are built at the first validation: a section that no file has costs nothing. Defaults come from
    # `model_construct` therefore, which validates nothing. Modules of sections have no `from __future__ import
    # annotations`: pydantic would compile the text of each annotation at their import, 5 ms together.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, arbitrary_types_allowed=True)

    replaced_whole: ClassVar[bool] = False
    """Whether a later file replaces the section instead of its single keys."""
    lists_add_up: ClassVar[bool] = False
    """Whether the lists of a later file follow those of an earlier one instead of replacing them."""
    spellings: ClassVar[Mapping[str, str]] = {}
    """Other spellings of keys, and the fields that they mean."""

    @model_validator(mode="before")
    @classmethod
    def _spelt(cls, value: Any) -> Any:
        """Rename the keys with another spelling; a second one for the same field stays, and is an unknown key."""
        if not cls.spellings or not isinstance(value, dict):
            return value
        given = cast("dict[str, Any]", value)
        named: dict[str, Any] = {}
        for key, inner in given.items():
            name = cls.spellings.get(key, key)
            named[key if name in named or (name != key and name in given) else name] = inner
        return named

    def over(self, earlier: Self | None) -> Self:
        """Return `earlier` with the keys that this section sets."""
        if earlier is None or self.replaced_whole:
            return self
        later: dict[str, Any] = {}
        for name in self.model_fields_set:
            value, before = getattr(self, name), getattr(earlier, name)
            if isinstance(value, Section) and type(before) is type(value):
                value = value.over(before)
            elif self.lists_add_up:
                value = (*before, *value)
            later[name] = value
        return earlier.model_copy(update=later)


class KeyInfo(Struct, frozen=True, kw_only=True):
    """Facts about one key beside its type and default."""

    changed_by: ChangedBy = "user"
    why: str = ""
    """Reason why a tool may not change it, of a key at the top of a file."""
    secret: bool = False
    """Whether its text is masked wherever it turns up; a whole section that is secret is not displayed."""
    hidden: bool = False
    """Whether it is not displayed because a part of it may be secret."""
    names_only: bool = False
    """Whether only the names below it are displayed."""
    in_code: bool = False
    """Whether only a program sets it: it has no key in files and, unless `in_digest`, no part in the digest."""
    in_digest: bool = False


def setting(
    default: Any = ...,
    *,
    changed_by: ChangedBy = "user",
    why: str = "",
    secret: bool = False,
    hidden: bool = False,
    names_only: bool = False,
    in_code: bool = False,
    in_digest: bool = False,
) -> Any:
    """Return a field with the facts of `KeyInfo`."""
    is_shown = not (secret or hidden)
    # pydantic copies a default deeply for every section that is made, unless a factory gives it: ours are immutable.
    is_shared = isinstance(default, Section | MappingProxyType)
    info: FieldInfo = (
        Field(default_factory=lambda: default, repr=is_shown) if is_shared else Field(default, repr=is_shown)
    )
    facts = KeyInfo(
        changed_by=changed_by,
        why=why,
        secret=secret,
        hidden=hidden or secret,
        names_only=names_only,
        in_code=in_code,
        in_digest=in_digest,
    )
    info.metadata.append(facts)
    return info


_PLAIN: Final = KeyInfo()


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
    """Return the notation of a value with a unit; empty for an ordinary one."""
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


def conflicts(found: Sequence[tuple[tuple[str | int, ...], str]]) -> PydanticCustomError:
    """Return the error of a model validator: paths in the section that cannot stand together, each with a message."""
    return PydanticCustomError("conflicts", "conflicts", {"found": tuple(found)})


def _not_blank(text: str) -> str:
    if not text.strip():  # often an environment variable that is empty
        raise expected("a string that is not blank")
    return text


def check_headers(value: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse what would end a header and begin another one. Values may be secrets: no message has them."""
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header")
        if not _HEADER_VALUE.fullmatch(text):
            raise ValueError(f"the value of {name!r} can only hold printable ASCII: no line break, no other character")
    return value


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


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise expected("a string")
    return str(value)


def _port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise expected("a port from 0 (any free one) to 65535")
    return value


def _call_seconds(value: Any) -> float:
    if isinstance(value, str) and (seconds := seconds_of(value)):
        return seconds
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise expected("a number of seconds above 0, or a time such as 90s or 1h,")
    return value / 1000 if value >= _MILLISECONDS_FROM else float(value)


def _hints(value: Any) -> Any:
    if isinstance(value, str) and value in _HINTS:
        return _HINTS[value]
    if not isinstance(value, Mapping):
        raise expected("read, write, destructive or a mapping of MCP hints")
    return cast("Any", value)


Text = Annotated[str, AfterValidator(_not_blank)]
"""A string that is not blank."""
Texts = Annotated[tuple[Text, ...], a_list_of("strings")]
"""A list of strings that are not blank."""
Scalar = Annotated[str, BeforeValidator(_scalar)]
"""A string; a number stands for its digits."""
Port = Annotated[int, BeforeValidator(_port)]
"""A port; 0 is any free one."""
CallTimeout = Annotated[float, BeforeValidator(_call_seconds)]
"""Seconds of one call, or a time such as `90s`; 1000 and more are milliseconds."""
Hints = Annotated[
    Mapping[Literal["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"], Flag],
    BeforeValidator(_hints),
]
"""MCP hints of one tool, or `read`, `write` or `destructive` for those of a kind."""
Duration = Annotated[Number, BeforeValidator(_seconds)]
"""Seconds, or a time such as `90d`."""
Wait = Annotated[float, Strict(), Field(allow_inf_nan=False), at_least(0, "0"), BeforeValidator(_seconds)]
"""Seconds to wait, or a time such as `30s`; 0 waits for nothing."""
Size = Annotated[Count, BeforeValidator(_bytes)]
"""Bytes, or a size such as `256MiB`."""


def identity_of(value: Any) -> Any:
    """Return the JSON that identifies a value: every field of structs, dataclasses and sections, at any depth.

    A dataclass leaves a field out with `compare=False`, a section with `in_code`. Raises `TypeError` for another kind
    of object: a digest that skipped it would be the same for different settings.
    """
    if isinstance(value, BaseModel):
        given = type(value).model_fields.items()
        counted = [name for name, field in given if not info_of(field).in_code or info_of(field).in_digest]
        return {name: identity_of(getattr(value, name)) for name in counted}
    if isinstance(value, Struct):
        return {name: identity_of(getattr(value, name)) for name in value.__struct_fields__}
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
