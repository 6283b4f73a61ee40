"""The tools that a model sees, in the form of its API: names, schemas and limits as that API takes them.

    anthropic         Messages: `tools`
    openai            Chat Completions: `tools`
    openai-responses  Responses: `tools`
    gemini            generateContent: `tools` of its `config`
    mcp               tools/list

Sources of the figures. Names and counts: the documentation of each API; descriptions of OpenAI functions: the API's own
error (`string_above_max_length`, 1024); keys, references and combinators of Anthropic's schemas: its error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from msgspec import Struct, field

from ...catalog.names import declared, portable, shortened
from ...core.events import Problem
from ...core.patterns import regex
from ...core.tool import Tool
from ...errors import UsageError
from ..base import View, VisibleCatalog
from .reduced_schemas import CONSTRAINT_KEYS, Cut, Subset, cut

__all__ = ["FORMATS", "Definitions", "definitions"]

_NAMED: Final = 12
"""Tools that the description of a namespace names."""
_WORDS: Final = 300
"""Characters of a source's own words in it."""

_KEYS_OF_ANTHROPIC: Final = regex(r"[A-Za-z0-9_.-]{1,64}")
_KEYS_OF_GEMINI: Final = regex(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ANTHROPIC: Final = Subset(constraints=CONSTRAINT_KEYS, keys=_KEYS_OF_ANTHROPIC)
_OPENAI: Final = Subset(constraints=CONSTRAINT_KEYS)
_GEMINI: Final = Subset(
    constraints=frozenset({"format", "minItems", "maxItems", "minimum", "maximum"}),
    defaults=False,
    enums=frozenset({"string", "integer", "number"}),
    keys=_KEYS_OF_GEMINI,
)
_STRICT_ANTHROPIC: Final = Subset(
    constraints=frozenset({"format"}), defaults=False, closed=True, keys=_KEYS_OF_ANTHROPIC
)
_STRICT_OPENAI: Final = Subset(
    constraints=CONSTRAINT_KEYS - {"minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties"},
    defaults=False,
    closed=True,
)


class Definitions(list[dict[str, Any]]):
    """Definitions for a request; `problems` holds those that the API will refuse or that were shortened."""

    def __init__(self, shown: Iterable[dict[str, Any]], problems: Iterable[Problem]) -> None:
        """Made by `definitions`."""
        super().__init__(shown)
        self.problems = tuple(problems)


class _Format(Struct, frozen=True, kw_only=True):
    """Properties of one API."""

    wrap: Callable[[Tool, str, dict[str, Any], Mapping[str, Any]], dict[str, Any]]
    """From tool, description, schema and marks (`strict`, `defer_loading`) to a definition."""
    subset: Subset | None = None
    """None takes any schema."""
    strict: Subset | None = None
    """Its strict form of schemas; None without one."""
    whole_only: bool = False
    """The strict form wants every property to be required."""
    tools: int | None = None
    """Definitions of one request."""
    description: int | None = None
    """Characters."""
    gather: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list[dict[str, Any]]
    defer: (
        Callable[[VisibleCatalog, list[tuple[Tool, dict[str, Any]]]], tuple[list[dict[str, Any]], list[dict[str, Any]]]]
        | None
    ) = None
    """Splits the deferred definitions into the first and the last part of the list."""


class _Report(Struct):
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, tool: Tool, code: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(source=tool.source, tool=tool.name, code=code, message=message, hint=hint))


def definitions(
    visible: VisibleCatalog, view: View, format: str, *, strict: bool = False, defer: bool = False
) -> Definitions:
    """Return the tools of `view` in the form of the API `format`.

    `strict` asks for the API's strict form where a tool's schema has an equivalent one. `defer` adds every other tool
    in scope as one that the API itself searches, in place of our meta-tools for it. Raises `UsageError` for an unknown
    format, or a form that the format does not have.

    No tool is refused: what an API does not take of it is left out or shortened, and reported in `problems`.
    """
    kind = FORMATS.get(format)
    if kind is None:
        raise UsageError(f"unknown format {format!r} (known: {', '.join(FORMATS)})")
    if strict and kind.strict is None:
        raise UsageError(f"{format} has no strict form; the formats that have one: {_having('strict')}")
    report = _Report()
    verbs = set(visible.profile.verbs.values()) - {visible.profile.verbs.get("read", "")} if defer else set[str]()
    shown = [_one(kind, tool, report, strict=strict) for tool in view.tools if tool.name not in verbs]
    if defer:
        shown = _with_deferred(visible, view, kind, shown, report, strict=strict)
    if kind.tools is not None and len(shown) > kind.tools:
        message = f"{len(shown)} tools, and {format} takes {kind.tools} in one request"
        hint = "take a profile that shows fewer, or defer=True where the API can hold tools back"
        report.problems.append(Problem(source=visible.profile.name, code="too_many", message=message, hint=hint))
    return Definitions(kind.gather(shown), report.problems)


def _exported(name: str) -> str:
    """Return a name as every API takes it; a call by it is resolved."""
    return shortened(name, "", name)


def _one(kind: _Format, tool: Tool, report: _Report, *, strict: bool, **marks: Any) -> dict[str, Any]:
    schema, description = dict(tool.input_schema), tool.description or tool.title
    if kind.subset is not None:
        taken = cut(schema, kind.subset)
        if strict and kind.strict is not None:
            taken, marks["strict"] = _strict(kind, tool, taken, report)
        schema = taken.schema
        described = schema.pop("description", "")
        if described and described not in description:
            description = f"{description}\n{described}".strip()
        given = cast("Mapping[str, Any]", tool.input_schema.get("properties") or {})
        shown = cast("Mapping[str, Any]", schema["properties"])
        renamed = [name for name in given if name not in shown]
        if renamed:
            message = f"this API cannot name its arguments {', '.join(renamed)} so"
            report.add(tool, "renamed", message, "they have names without signs, which a call of this session may use")
    if kind.description is not None and len(description) > kind.description:
        report.add(tool, "cut", f"its description has {len(description)} characters, {kind.description} are taken")
        description = f"{description[: kind.description - 1].rstrip()}…"
    return kind.wrap(tool, description, schema, marks)


def _strict(kind: _Format, tool: Tool, loose: Cut, report: _Report) -> tuple[Cut, bool]:
    """Return the strict form and True, or the loose one and False where strict would mean something else.

    A strict form that would make the model send what may be left out means something else, and is not used.
    """
    closed = cut(tool.input_schema, kind.strict) if kind.strict is not None else loose
    reason = ""
    if closed.is_open:
        reason = "part of it has no known shape"
    elif kind.whole_only and closed.optional:
        reason = f"{', '.join(closed.optional[:5])} may be left out, and a strict form would make the model send it"
    if not reason:
        return closed, True
    report.add(tool, "not_strict", f"no strict form: {reason}")
    return loose, False


def _with_deferred(
    visible: VisibleCatalog, view: View, kind: _Format, shown: list[dict[str, Any]], report: _Report, *, strict: bool
) -> list[dict[str, Any]]:
    if kind.defer is None:
        raise UsageError(f"this format cannot hold tools back; the formats that can: {_having('defer')}")
    if visible.profile.on_miss != "run":
        raise UsageError(f"the profile {visible.profile.name} refuses tools that its own meta-tools did not load")
    known = {tool.name for tool in view.tools}
    faces = (face for tool in visible.offered() for face in visible.presentations(tool))
    waiting = [face for face in faces if declared(face.name, face.source, face.local_name) not in known]
    if not waiting:
        return shown
    deferred = [(tool, _one(kind, tool, report, strict=strict, defer_loading=True)) for tool in waiting]
    first, last = kind.defer(visible, deferred)
    return [*first, *shown, *last]


def _having(feature: str) -> str:
    return ", ".join(name for name, kind in FORMATS.items() if getattr(kind, feature) is not None)


def _anthropic(tool: Tool, description: str, schema: dict[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in marks.items() if value}
    return {"name": _exported(tool.name), "description": description, "input_schema": schema, **given}


def _openai(tool: Tool, description: str, schema: dict[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": _exported(tool.name), "description": description, "parameters": schema}
    return {"type": "function", "function": {**function, "strict": bool(marks.get("strict"))}}


def _responses(tool: Tool, description: str, schema: dict[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    given = {"type": "function", "name": _exported(tool.name), "description": description, "parameters": schema}
    return {**given, "strict": False, **marks}


def _gemini(tool: Tool, description: str, schema: dict[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"name": _exported(tool.name), "description": description}
    return {**given, "parameters_json_schema": schema} if schema["properties"] else given


def _mcp(tool: Tool, description: str, schema: dict[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    return dict(tool.listed)


def _as_one(shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"function_declarations": shown}] if shown else []


def _search_by_anthropic(
    visible: VisibleCatalog, deferred: list[tuple[Tool, dict[str, Any]]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    return [search], [definition for _, definition in deferred]


def _search_by_openai(
    visible: VisibleCatalog, deferred: list[tuple[Tool, dict[str, Any]]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a namespace a source, which the model sees by its name and description alone."""
    by_source: dict[str, list[tuple[Tool, dict[str, Any]]]] = {}
    for tool, definition in deferred:
        by_source.setdefault(tool.source, []).append((tool, definition))
    spaces = [
        {
            "type": "namespace",
            "name": portable(source)[:64],
            "description": _about(visible, source, [tool for tool, _ in inside]),
            "tools": [definition for _, definition in inside],
        }
        for source, inside in by_source.items()
    ]
    return [{"type": "tool_search"}], spaces


def _about(visible: VisibleCatalog, source: str, tools: list[Tool]) -> str:
    """Return the purpose of a source: its own description, else a list of its tools."""
    info = visible.catalog.about.get(source)
    words = (info.description or info.title) if info is not None else ""
    named = ", ".join(tool.local_name for tool in tools[:_NAMED])
    more = " …" if len(tools) > _NAMED else ""
    return f"{words[:_WORDS]} ({len(tools)} tools: {named}{more})" if words else f"{len(tools)} tools: {named}{more}"


FORMATS: Final[Mapping[str, _Format]] = MappingProxyType(
    {
        "anthropic": _Format(
            wrap=_anthropic, subset=_ANTHROPIC, strict=_STRICT_ANTHROPIC, tools=10_000, defer=_search_by_anthropic
        ),
        "openai": _Format(
            wrap=_openai, subset=_OPENAI, strict=_STRICT_OPENAI, whole_only=True, tools=128, description=1024
        ),
        "openai-responses": _Format(
            wrap=_responses,
            subset=_OPENAI,
            strict=_STRICT_OPENAI,
            whole_only=True,
            tools=128,
            description=1024,
            defer=_search_by_openai,
        ),
        "gemini": _Format(wrap=_gemini, subset=_GEMINI, gather=_as_one),
        "mcp": _Format(wrap=_mcp),
    }
)
"""THE list: an API is one line here."""
