"""Meta-tools (verbs) that any profile may have: a handful of tools that reach all the others.

`search`, `describe` and `read` run like any tool, from a source of their own. `call` and its read-only twin never run:
the `resolve` step unwraps them to the real tool before any decision, so that rules, modes and records refer to the tool
that runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from ..core import json
from ..core.json import as_mapping
from ..core.patterns import regex
from ..core.result import ToolResult
from ..core.schema.repair import WRAPPERS
from ..core.similar import fold
from ..core.tool import Annotations, Execution, Guidance, Tool
from ..errors import ToolFailure
from ..results.artifacts import URI_PREFIX, SearchResult
from . import signatures
from .base import Profile, Unwrapped, Verb, VerbContext, VisibleCatalog, object_schema, report_outage

SOURCE: Final = "toolcrib"
"""The source of the meta-tools; no configured source may have this name."""

_NAME_KEYS: Final = ("tool", "tool_name", "name", "op")
_TRAILER_BYTES: Final = 100
"""Bytes below a page for its position."""
_MAX_CATEGORIES: Final = 6
"""Categories that a query which nothing fits is pointed to."""
_MAX_LINES_FOUND: Final = 100
"""Lines that a search in a result shows at most."""
_WORD: Final = regex(r"[^\W_]+")
_GENERIC_WORDS: Final = frozenset({"api", "mcp", "server", "service", "tool", "tools"})
"""Words of a source's name that a query need not have to mean the source."""
_MIN_PAGE_BYTES: Final = 300
"""Bytes of a page, however small the budget of one result."""

_CALL_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Exact name, from {search}."},
        "arguments": {"type": "object", "description": "The tool's own arguments."},
    },
    "required": ["name"],
}

RESERVED: Final = frozenset(
    {
        "browse_tools",
        "call_tool",
        "call_tool_readonly",
        "describe_tools",
        "get_tool_schemas",
        "list_tools",
        "load_tools",
        "read_artifact",
        "search_tools",
        "select_tools",
        "tool_batch",
        "tool_exec",
        "tool_help",
    }
)
"""Names that no source gets, in any profile: a tool that looks like a meta-tool would be trusted."""


def definitions(profile: Profile, known: Mapping[str, Verb]) -> tuple[Tool, ...]:
    """Return those meta-tools of `profile` that are in `known`, as tools, in the profile's order.

    Their `_meta` asks clients that defer definitions to show these at once: hidden, they would hide everything.

    Texts in braces in descriptions and schemas are the names of other meta-tools in this profile.
    """
    return tuple(_definition(shown, known[verb], profile) for verb, shown in profile.verbs.items() if verb in known)


def _definition(shown: str, verb: Verb, profile: Profile) -> Tool:
    words = {"search": _finder(profile.verbs), **profile.verbs}
    schema = json.loads(_fill(json.dumps(verb.input_schema).decode(), words))
    return Tool(
        name=shown,
        source=SOURCE,
        local_name=shown,
        op=shown if shown == profile.verbs.get("read") else "",  # the only one that an `exec` runs like a tool
        description=_fill(verb.description, words),
        input_schema=schema,
        annotations=verb.annotations,
        approval="never",
        core=True,
        execution=Execution(timeout=verb.timeout),
        guidance=Guidance(examples=() if verb.example is None else (verb.example,)),
        meta={"anthropic/alwaysLoad": True},
    )


def _finder(verbs: Mapping[str, str]) -> str:
    """Return the meta-tool from which a model of a profile without `search` has the names of tools."""
    return next((verbs[verb] for verb in ("list", "load", "select") if verb in verbs), "the catalog")


def _fill(text: str, words: Mapping[str, str]) -> str:
    for verb, shown in words.items():
        text = text.replace(f"{{{verb}}}", shown)
    return text


def instructions(profile: Profile) -> str:
    """Return the profile's instructions with the names of its meta-tools; any other braces are text."""
    return _fill(profile.instructions, profile.verbs).strip()


def unwrap(arguments: Any, shown: str) -> Unwrapped:
    """Return the call behind a `call` meta-tool, from arguments in the shapes that models send.

    Accepted: an object, JSON text of one, the whole wrapped in `args` or the like, the tool's arguments as an object,
    as JSON text (also encoded twice) or flat beside the name. Raises `ToolFailure` when no tool is named.

    The declared shape is looked for first, as nearly all calls have it.
    """
    written = as_mapping(arguments)
    name, inner = written.get("name"), written.get("arguments")
    if len(written) == 2 and isinstance(name, str) and name.strip() and inner is not None:  # as the schema has it
        return Unwrapped(name=name.strip(), arguments=inner)
    given = _unwrapped(_as_object(arguments))
    declared = isinstance(given.get("name"), str) and "arguments" in given
    for key in ("name", *_NAME_KEYS) if declared else _NAME_KEYS:
        name = given.get(key)
        if isinstance(name, str) and name.strip():
            rest = {other: value for other, value in given.items() if other != key}
            return Unwrapped(name=name.strip(), arguments=_inner(rest))
    raise ToolFailure(
        "invalid_arguments",
        f"{shown} needs the name of a tool",
        hint=f'for example {shown}({{"name": "server__tool", "arguments": {{}}}})',
    )


def _inner(rest: dict[str, Any]) -> Any:
    """Return the tool's arguments: an object under `arguments` or a wrapper's name, else the keys beside the name."""
    if not rest:
        return {}
    if len(rest) == 1:
        key, value = next(iter(rest.items()))
        if value is None and key in WRAPPERS:
            return {}
        if key == "arguments" or (key in WRAPPERS and _holds_object(value)):
            return value
    wrapped = rest.get("arguments")
    if not isinstance(wrapped, dict):
        return rest
    flat = {key: value for key, value in rest.items() if key != "arguments"}
    return {**cast("dict[str, Any]", wrapped), **flat}


def _holds_object(value: Any) -> bool:
    """Whether `value` can be a tool's arguments; else its key is itself an argument."""
    return bool(_as_object(value)) or value == {}


def _as_object(value: Any) -> dict[str, Any]:
    for _ in range(2):
        if isinstance(value, str):
            try:
                value = json.read_json(value, strict=True)
            except ValueError:
                break
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _unwrapped(given: dict[str, Any]) -> dict[str, Any]:
    if len(given) == 1:
        key, value = next(iter(given.items()))
        if key in WRAPPERS:
            inner = _as_object(value)
            if any(name in inner for name in _NAME_KEYS):
                return inner
    return given


async def _read(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    """Return a page of an artifact, or its lines with a text: short enough that `Limit` does not cut it again."""
    session, artifacts = visible.session, context.artifacts
    if "id" not in arguments:
        kept = await artifacts.recent(session.principal)
        listed = [f"{artifact.id} ({artifact.mime_type}, {artifact.size} bytes)" for artifact in kept]
        return ToolResult.of_text("\n".join(listed) or "No long result is kept.")
    name = str(arguments["id"]).strip().removeprefix(URI_PREFIX)
    artifact = artifacts.find(name, session.principal)
    room = max(_MIN_PAGE_BYTES, session.result_tokens * 4 - _TRAILER_BYTES)  # a page must not be cut in its turn
    limit = min(int(arguments["limit"]), room)
    if "find" in arguments:
        found = await artifacts.search(name, session.principal, str(arguments["find"]), limit=_MAX_LINES_FOUND)
        text = _lines_of(found, limit)
    else:
        page = await artifacts.read(name, session.principal, int(arguments["offset"]), limit)
        end = page.next_offset if page.next_offset is not None else page.size
        more = f"; next offset {page.next_offset}" if page.next_offset is not None else ", the end"
        text = f"{page.text}\n[bytes {page.offset}-{end} of {page.size}{more}]"
    return ToolResult.of_text(text).with_meta(source=artifact.source or SOURCE, trust=artifact.trust)


def _lines_of(found: SearchResult, room: int) -> str:
    """Return one line a hit, as far as there is room, and how many there are."""
    lines: list[str] = []
    for hit in found.hits:
        line = f"{hit.line} @{hit.offset}: {hit.text}"
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        lines.append(line)
    shown = f", the first {len(lines)} are shown" if len(lines) < found.total else ""
    return "\n".join([*lines, f"[{found.total} lines found{shown}; number @offset: line]"])


async def _search(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    query = str(arguments["query"])
    await visible.catalog.prepare(query)
    hits = visible.catalog.search(query, int(arguments["limit"]), allowed=visible.admitted, boost=visible.boost)
    found = [visible.catalog.tools[hit.name] for hit in hits]
    for tool in found:
        visible.session.history.activated.setdefault(tool.name)
    concerned, others = _outages(visible, query, {tool.source for tool in found})
    lines = [signatures.line(visible.aliases.present(tool)) for tool in found] or [
        _no_match(visible, query, int(arguments["limit"]))
    ]
    absent = f"Not available, so their tools are not found: {', '.join(others)}." if others else ""
    return ToolResult.of_text("\n".join(filter(None, [*concerned, *lines, absent])) + _still_starting(visible))


def _outages(visible: VisibleCatalog, query: str, found: Collection[str]) -> tuple[list[str], list[str]]:
    """Return a line for each source that is down and that a search concerns, and the names of others without tools.

    A search concerns a source that it names or finds tools of; one that finds nothing concerns those without tools.
    """
    words, concerned, others = _words(query), list[str](), list[str]()
    for state in visible.down():
        own = _words(state.source)
        is_named = (own - _GENERIC_WORDS or own) <= words or fold(state.source) in words
        if is_named or state.source in found or not (found or state.tools):
            concerned.append(report_outage(state))
        elif not state.tools:
            others.append(state.source)
    return concerned, others


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _still_starting(visible: VisibleCatalog) -> str:
    """Return a line with the sources whose tools cannot be found yet; empty where all have listed."""
    starting = visible.starting()
    return f"\nStill starting, so their tools are not found yet: {', '.join(starting)}." if starting else ""


def _no_match(visible: VisibleCatalog, query: str, limit: int) -> str:
    """Return that no tool fits, where one may be, and the names of those that match a little.

    Up to 2 % of the labelled requests get it (`bench/retrieval`); a third of these get the right name here.
    """
    counts = visible.catalog.nearest_categories(query, _MAX_CATEGORIES, allowed=visible.admitted)
    weak = visible.catalog.search(query, limit, allowed=visible.admitted, boost=visible.boost, weak=True)
    names = ", ".join(visible.aliases.present(visible.catalog.tools[hit.name]).name for hit in weak)
    shown = ", ".join(f"{name} ({count})" for name, count in counts.items()) or "no tools yet"
    also = f" Tools that share a word with it: {names}." if names else ""
    return f"No tool fits {query[:200]!r}. Say it in other words; nearest: {shown}.{also}"


async def _describe(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    parts: list[str] = []
    for name in arguments["names"]:
        tool = visible.find(name)
        if tool is None:
            nearest = visible.catalog.nearest(name, allowed=visible.admitted)
            search = visible.profile.verbs.get("search")
            close = f"; nearest: {', '.join(nearest)}" if nearest else f"; use {search}" if search else ""
            if down := visible.down(name):
                parts.append(f"{name[:200]}: {report_outage(down[0])}")
                continue
            parts.append(f"{name[:200]}: not found{close}{_still_starting(visible)}")
            continue
        if visible.session.is_disabled(tool.name):
            parts.append(f"{name}: is switched off")
            continue
        if visible.is_denied(tool):
            parts.append(f"{name}: a rule denies every call of it")
            continue
        visible.session.history.activated.setdefault(tool.name)
        parts.append(signatures.describe(visible.aliases.present(tool)))
    return ToolResult.of_text("\n\n".join(parts))


VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {
        "search": Verb(
            description="Find tools by what you want to do. Returns names, arguments and purpose, best first.",
            input_schema=object_schema(
                ["query"],
                query={"type": "string", "description": "What to do, in plain words, or a tool's name."},
                limit={"type": "integer", "minimum": 1, "maximum": 25, "default": 5},
            ),
            run=_search,
        ),
        "describe": Verb(
            description="Full description, input schema and one example of the named tools.",
            input_schema=object_schema(
                ["names"], names={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20}
            ),
            run=_describe,
        ),
        "read": Verb(
            description="Read more of a long result: a page of the artifact it names, or the lines with a text. "
            "Without an id: what is kept.",
            input_schema=object_schema(
                [],
                id={"type": "string"},
                offset={"type": "integer", "minimum": 0, "default": 0},
                limit={"type": "integer", "minimum": 1, "maximum": 12000, "default": 12000},
                find={"type": "string"},
            ),
            run=_read,
        ),
        "call": Verb(
            description="Run any tool that {search} finds.",
            input_schema=_CALL_SCHEMA,
            annotations=Annotations(),
            unwrap=unwrap,
        ),
        "call_readonly": Verb(
            description="Run a tool that only reads (no [write] or [destructive] mark); others are refused.",
            input_schema=_CALL_SCHEMA,
            unwrap=unwrap,
            only="read",
        ),
    }
)
