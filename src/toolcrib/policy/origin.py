"""Origin of a result, and the trust that follows from it: the one table that taint, rules and `why` use.

    class       trust       results
    declared    untrusted   of a tool or source that the operator lists under `untrusted.untrusted`, or of a tool of
                            this process with the trait `untrusted` (web, mail)
    vouched     reviewed    of a source or tool that the operator trusts (`trusted: true`, `untrusted.trusted`, the
                            trait `reviewed`)
    process     local       of a function, object or built-in tool of this process
    quoted      local       whose text is contained in one argument of the call that is not a value of the tool's schema
    plain       local       of which the model sees nothing but values whose schema names them or gives them no room for
                            text: numbers, booleans, a few enums, date-times
    elsewhere   untrusted   of everything else: MCP servers, HTTP APIs, kinds of source that are not known here

The first class that applies is the result's. `quoted` and `plain` depend on the result, the others on the tool alone.
An annotation of a server restricts the trust in it and never extends it: `openWorldHint: false` counts only where the
operator trusts the server or wrote the hint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, cast

from msgspec import Struct

from ..core.json import as_list, read_json
from ..core.patterns import regex
from ..core.result import ToolResult, Trust
from ..core.tool import Tool

OriginClass = Literal["declared", "vouched", "process", "quoted", "plain", "elsewhere"]

_LOCAL_ORIGINS: Final = frozenset({"", "claude", "plugin", "python", "skill", "workflow", "yaml"})
"""Kinds of source that run in this process, or whose files the operator has trusted; empty is an object of ours."""
_PROPERTY_NAME: Final = regex(r"[\w.:/+-]{0,64}", re.ASCII)
"""Names of properties that are not sentences."""
_ENUM_LABEL: Final = regex(r"(?=[\w.:/+-]{0,32}\Z)(?:[A-Z]*[a-z0-9]*[\W_]*){0,4}", re.ASCII)
"""Values of enums that are not sentences: four words at most, joined by punctuation or by capitals."""
_MAX_LABELS: Final = 8
"""Texts of enums in one result: more of them spell what their author likes, as a list does."""
_MAX_OPTIONAL: Final = 64
"""Properties of one object that may be left out: the choice among more of them could spell a message."""
_VALUE_KEYWORDS: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords of a schema whose values a server proposes."""
_MAX_DEPTH: Final = 16
_MAX_COMPARED_VALUES: Final = 10_000
"""Values of a result that are compared; a larger one is not plain."""
_TIME_FORMATS: Final[Mapping[str, re.Pattern[str]]] = {
    "date": regex(r"\d{4}-\d\d-\d\d", re.ASCII),
    "time": regex(r"\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[zZ]|[+-]\d\d:\d\d)?", re.ASCII),
    "date-time": regex(r"\d{4}-\d\d-\d\d[tT ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[zZ]|[+-]\d\d:\d\d)?", re.ASCII),
}
"""Formats that leave no room for text, with ASCII digits only."""


class Origin(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: OriginClass
    trust: Trust
    reason: str
    """Completes "its results are …", for `why`."""


CLASSES: Final[Mapping[OriginClass, Origin]] = {
    row.name: row
    for row in (
        Origin(name="declared", trust="untrusted", reason="declared untrusted"),
        Origin(name="vouched", trust="reviewed", reason="trusted by the operator"),
        Origin(name="process", trust="local", reason="of this process"),
        Origin(name="quoted", trust="local", reason="contained in the call's own arguments"),
        Origin(name="plain", trust="local", reason="numbers, booleans, enums and date-times only"),
        Origin(name="elsewhere", trust="untrusted", reason="written elsewhere, and not trusted by the operator"),
    )
}


def is_local(tool: Tool) -> bool:
    """Whether the tool runs on this machine, as opposed to one that a server describes."""
    return tool.origin in _LOCAL_ORIGINS


def origin_of(tool: Tool, *, distrusted: bool = False, trusted: bool = False) -> Origin:
    """Return the class of every result of `tool`, as far as the tool alone decides it.

    `distrusted` and `trusted`: the operator lists the tool or its source so.
    """
    if distrusted:
        return CLASSES["declared"]
    if trusted or "reviewed" in tool.traits:
        return CLASSES["vouched" if not is_local(tool) or "untrusted" in tool.traits else "process"]
    if not is_local(tool):
        return CLASSES["elsewhere"]
    return CLASSES["declared" if "untrusted" in tool.traits else "process"]


def origin_of_result(tool: Tool, arguments: Any, result: ToolResult, origin: Origin) -> Origin:
    """Return the class of one result, given that of its tool.

    Only `elsewhere` can be narrowed. Both exceptions hold for results that carry nothing an author elsewhere could
    choose freely: values of a schema (`plain`), or the caller's own words (`quoted`).
    """
    if origin.name != "elsewhere" or result.spooled is not None or result.input_required is not None:
        return origin
    text, structured, error = result.only_text, result.structured_content, result.error
    if text is None:  # more than one text: look at every part
        text = result.text
        if any(block.get("type") != "text" or len(block) > 2 for block in result.content) or (
            error is not None and error.details
        ):
            return origin
    if error is None and structured is not None and tool.output_schema is not None:
        is_shown_alone = not text or _is_json_of(text, structured)
        if is_shown_alone and _is_plain(tool.output_schema, structured):
            return CLASSES["plain"]
    shown: list[Any] = [text, *(() if error is None else (error.message, error.hint))]
    if structured is not None:
        wrapped = cast("dict[str, Any]", structured) if isinstance(structured, dict) else {}
        if wrapped.keys() != {"result"}:
            return origin
        shown.append(wrapped["result"])  # of a tool that returns text, as servers wrap it
    given = list(_texts_in(arguments))
    if not all(_is_quoted(one, given) for one in shown):
        return origin
    offered = _texts_of_schema(tool)  # the last look, and seldom: most results quote nothing
    own = [one for one in given if one not in offered]
    if not all(_is_quoted(one, own) for one in shown):
        return origin
    return CLASSES["quoted"]


def is_closed_world(tool: Tool, trust: Trust) -> bool:
    """Whether the tool reaches nothing outside of this machine or of a server that the operator trusts."""
    if tool.annotations.open_world:
        return False
    return is_local(tool) or trust == "reviewed" or "closed_world" in tool.traits


def _is_quoted(shown: Any, given: Sequence[str]) -> bool:
    """Whether one argument contains all of `shown`: texts put together from several could say anything."""
    return isinstance(shown, str) and (not shown or any(shown in one for one in given))


def _texts_in(value: Any, depth: int = 0) -> list[str]:
    """Return the texts inside of mappings and lists, as deep as `_MAX_DEPTH`."""
    if isinstance(value, str):
        return [value]
    if value is None or isinstance(value, int | float):  # most others; a look for the interface of mappings costs more
        return []
    if isinstance(value, Mapping):
        value = cast("Mapping[str, Any]", value).values()
    elif not isinstance(value, list | tuple):
        return []
    found: list[str] = []
    if depth < _MAX_DEPTH:
        for inner in cast("Iterable[Any]", value):
            found += _texts_in(inner, depth + 1)
    return found


def _is_json_of(text: str, structured: Any) -> bool:
    """Whether `text` is the JSON of the structured content and nothing else, as servers add it for older clients."""
    try:
        return read_json(text, strict=True) == structured  # a key that comes twice would hide the first value
    except ValueError:
        return False


@lru_cache(maxsize=128)
def _texts_of_schema(tool: Tool) -> frozenset[str]:
    """Return the texts that the schema of a tool proposes; a walk through the schema at each call costs 20 µs."""
    return frozenset(_proposed_texts(tool.input_schema))


def _proposed_texts(schema: Any) -> Iterator[str]:
    """Yield the texts that a schema proposes as values: defaults, which we fill in ourselves, enums and examples.

    They are the server's words, also where a call carries them: a result that repeats a part of one is not a quotation.
    A single word of an enum is left out, for it says nothing. No tool with more than 64 levels is called.
    """
    if isinstance(schema, Mapping):
        for key, inner in cast("Mapping[str, Any]", schema).items():
            if key in _VALUE_KEYWORDS:
                yield from (one for one in _texts_in(inner) if key == "default" or not _ENUM_LABEL.fullmatch(one))
            yield from _proposed_texts(inner)  # also of a keyword: a property may have its name
    elif isinstance(schema, list):
        for inner in cast("list[Any]", schema):
            yield from _proposed_texts(inner)


def _is_plain(schema: Any, value: Any) -> bool:
    """Whether `value` is valid against `schema`, and the schema leaves it no room for text.

    Reads the keywords that leave none and only those; a schema that needs another one is not plain. A list of enums is
    not plain either: it spells what its author likes. So does an object of many enums, or one whose author chooses the
    order of its properties.

    `left` counts down over the whole value: comparisons, and texts of enums.
    """
    left = [_MAX_COMPARED_VALUES, _MAX_LABELS]
    return _is_plain_value(schema, value, left, 0)


def _is_plain_value(schema: Any, value: Any, left: list[int], depth: int, *, is_listed: bool = False) -> bool:
    """Whether the schema leaves `value` no room for text; `is_listed`: it stands inside of an array."""
    left[0] -= 1
    if not isinstance(schema, Mapping) or left[0] < 0 or depth > _MAX_DEPTH:
        return False
    known = cast("Mapping[str, Any]", schema)
    if "const" in known or isinstance(known.get("enum"), list):
        allowed: list[Any] = known["enum"] if "enum" in known else [known["const"]]
        if isinstance(value, str):
            left[1] -= 1
            if is_listed or left[1] < 0 or not _ENUM_LABEL.fullmatch(value):
                return False
        return not isinstance(value, Mapping | list) and value in allowed
    for word in ("anyOf", "oneOf"):
        if isinstance(known.get(word), list):
            return any(_is_plain_value(one, value, left, depth + 1, is_listed=is_listed) for one in known[word])
    types: Any = known.get("type")
    names = cast("list[Any]", types) if isinstance(types, list) else [types]
    return any(_is_plain_of_type(name, known, value, left, depth, is_listed=is_listed) for name in names)


def _is_plain_of_type(
    name: Any, schema: Mapping[str, Any], value: Any, left: list[int], depth: int, *, is_listed: bool
) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            pattern = _TIME_FORMATS.get(str(schema.get("format", "")))
            return isinstance(value, str) and pattern is not None and pattern.fullmatch(value) is not None
        case "array":
            if not isinstance(value, list):
                return False
            items, inside = schema.get("items"), cast("list[Any]", value)
            return all(_is_plain_value(items, one, left, depth + 1, is_listed=True) for one in inside)
        case "object":
            known: Any = schema.get("properties")
            if not isinstance(value, Mapping) or not isinstance(known, Mapping):
                return value == {}
            inner, named = cast("Mapping[str, Any]", value), cast("Mapping[str, Any]", known)
            return _is_order_plain(schema, named, list(inner)) and all(
                key in named
                and _PROPERTY_NAME.fullmatch(key) is not None
                and _is_plain_value(named[key], one, left, depth + 1, is_listed=is_listed)
                for key, one in inner.items()
            )
        case _:
            return False


def _is_order_plain(schema: Mapping[str, Any], known: Mapping[str, Any], names: list[str]) -> bool:
    """Whether the names of an object say nothing by their choice and order: that of the schema, or the alphabet's."""
    always = as_list(schema.get("required"))
    if len(known) - len(always) > _MAX_OPTIONAL:
        return False
    return names == sorted(names) or names == [name for name in known if name in names]
