"""The verbs: a handful of tools that reach all the others.

`search` and `describe` run like any tool, from a source of their own. `call` and its read-only twin never run: the
`resolve` step unwraps them to the real tool before anything is decided, so that rules, modes and records speak of
what really happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from ..catalog.catalog import Catalog, categories_of
from ..core import json
from ..core.context import Context
from ..core.events import SourceState
from ..core.result import ToolResult
from ..core.session import SessionState
from ..core.tool import Annotations, Kind, Tool
from ..errors import ToolFailure
from ..results.artifacts import Artifacts
from ..sources.base import Publish
from . import render
from .base import Profile, in_scope

__all__ = ["RESERVED", "SOURCE", "VERBS", "Scene", "Verb", "VerbSource", "definitions", "names", "unwrap"]

SOURCE: Final = "toolcrib"
"""The source of the verbs; no configured source may have this name."""

_READ = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
_ANY = Annotations()
_WRAPPERS: Final = ("args", "arguments", "input", "parameters", "params")
_NAMES: Final = ("tool", "tool_name", "name", "op")
_TRAILER: Final = 100
"""Bytes below a page that say where it stands."""
_LEAST_PAGE: Final = 300
"""Bytes of a page, however small the budget of one result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One meta-tool: what the model reads of it, and how it is carried out."""

    description: str
    input_schema: Mapping[str, Any]
    annotations: Annotations = _READ
    unwraps: bool = False
    """True: stands for another tool, named in its arguments."""
    only: Kind | None = None


def _object(required: list[str], **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_CALL: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Exact name, from {search}."},
        "arguments": {"type": "object", "description": "The tool's own arguments."},
    },
    "required": ["name"],
}

VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {
        "search": Verb(
            description="Find tools by what you want to do. Returns names, arguments and purpose, best first.",
            input_schema=_object(
                ["query"],
                query={"type": "string", "description": "What to do, in plain words, or a tool's name."},
                limit={"type": "integer", "minimum": 1, "maximum": 25, "default": 5},
            ),
        ),
        "describe": Verb(
            description="Full description, input schema and one example of the named tools.",
            input_schema=_object(
                ["names"], names={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20}
            ),
        ),
        "read": Verb(
            description="Read more of a long result: a page of the artifact it names. Without an id: what is kept.",
            input_schema=_object(
                [],
                id={"type": "string"},
                offset={"type": "integer", "minimum": 0, "default": 0},
                limit={"type": "integer", "minimum": 1, "maximum": 12000, "default": 12000},
            ),
        ),
        "call": Verb(
            description="Run any tool that {search} finds.", input_schema=_CALL, annotations=_ANY, unwraps=True
        ),
        "call_readonly": Verb(
            description="Run a tool that only reads (no [write] or [destructive] mark); others are refused.",
            input_schema=_CALL,
            unwraps=True,
            only="read",
        ),
    }
)


RESERVED: Final = frozenset({"search_tools", "describe_tools", "call_tool", "call_tool_readonly", "read_artifact"})
"""Names that no source gets, whatever the profile calls its verbs: a tool that looks like a verb would be trusted."""


def names(profile: Profile) -> Mapping[str, str]:
    """Return shown name → verb of `profile`."""
    return {shown: verb for verb, shown in profile.verbs.items()}


def definitions(profile: Profile) -> tuple[Tool, ...]:
    """Return the verbs of `profile` as tools, in the profile's order.

    Their `_meta` asks clients that hold definitions back to show these at once: hidden, they would hide everything.
    """
    return tuple(_definition(shown, VERBS[verb], profile) for verb, shown in profile.verbs.items())


def _definition(shown: str, verb: Verb, profile: Profile) -> Tool:
    words = {key: profile.verbs.get(key, key) for key in VERBS}
    schema = json.loads(_fill(json.dumps(verb.input_schema).decode(), words))
    return Tool(
        name=shown,
        source=SOURCE,
        local_name=shown,
        description=_fill(verb.description, words),
        input_schema=schema,
        annotations=verb.annotations,
        approval="never",
        core=True,
        meta={"anthropic/alwaysLoad": True},
    )


def _fill(text: str, words: Mapping[str, str]) -> str:
    for verb, shown in words.items():
        text = text.replace(f"{{{verb}}}", shown)
    return text


def unwrap(arguments: Any, shown: str) -> tuple[str, Any]:
    """Return the tool and the arguments that a `call` verb stands for, as models really send them.

    Taken: an object, JSON text of one, the whole wrapped in `args` or the like, the tool's arguments as an object,
    as JSON text (also encoded twice) or flat beside the name. Raises `ToolFailure` when no tool is named.
    """
    given = _unwrapped(_as_object(arguments))
    declared = isinstance(given.get("name"), str) and "arguments" in given
    for key in ("name", *_NAMES) if declared else _NAMES:
        name = given.get(key)
        if isinstance(name, str) and name.strip():
            rest = {other: value for other, value in given.items() if other != key}
            return name.strip(), _inner(rest)
    raise ToolFailure(
        "invalid_arguments",
        f"{shown} needs the name of a tool",
        hint=f'for example {shown}({{"name": "server__tool", "arguments": {{}}}})',
    )


def _inner(rest: dict[str, Any]) -> Any:
    if not rest:
        return {}
    if len(rest) == 1:
        key, value = next(iter(rest.items()))
        if value is None and key in _WRAPPERS:
            return {}
        if key == "arguments" or (key in _WRAPPERS and _holds_object(value)):
            return value
    wrapped = rest.get("arguments")
    if not isinstance(wrapped, dict):
        return rest
    flat = {key: value for key, value in rest.items() if key != "arguments"}
    return {**cast("dict[str, Any]", wrapped), **flat}


def _holds_object(value: Any) -> bool:
    """Whether `value` can be a tool's arguments; else its key is one of them, whatever it is called."""
    return bool(_as_object(value)) or value == {}


def _as_object(value: Any) -> dict[str, Any]:
    for _ in range(2):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                break
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _unwrapped(given: dict[str, Any]) -> dict[str, Any]:
    if len(given) == 1:
        key, value = next(iter(given.items()))
        if key in _WRAPPERS:
            inner = _as_object(value)
            if any(name in inner for name in _NAMES):
                return inner
    return given


Scene = Callable[[Context], tuple[Catalog, SessionState, Profile]]
"""What the session of a call can see; the composition root knows."""


class VerbSource:
    """The source of the verbs that run. Knows no tools of its own: a profile's view declares them."""

    def __init__(self, scene: Scene, artifacts: Artifacts) -> None:
        """`scene` is asked at every call; `artifacts` holds the long results."""
        self._scene = scene
        self._artifacts = artifacts

    @property
    def name(self) -> str:
        """Always `toolcrib`."""
        return SOURCE

    @property
    def state(self) -> SourceState:
        """Always ready."""
        return SourceState(source=SOURCE, kind="verbs", state="ready")

    async def open(self, publish: Publish) -> None:
        """Publish nothing: verbs are declared by views, not by the catalog."""

    async def ready(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        """Do nothing: nothing is held."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Carry out the verb that `tool` is in the session's profile."""
        catalog, session, profile = self._scene(context)
        verb = names(profile)[tool.name]
        if verb == "read":
            return await self._read(arguments, session)
        if verb == "search":
            return _search(catalog, session, profile, arguments)
        return _describe(catalog, session, profile, arguments)

    async def _read(self, arguments: Mapping[str, Any], session: SessionState) -> ToolResult:
        if "id" not in arguments:
            kept = await self._artifacts.recent(session.principal)
            listed = [f"{artifact.id} ({artifact.mime_type}, {artifact.size} bytes)" for artifact in kept]
            return ToolResult.of_text("\n".join(listed) or "No long result is kept.")
        room = max(_LEAST_PAGE, session.limits.result_tokens * 4 - _TRAILER)  # a page must not be cut in its turn
        limit = min(int(arguments["limit"]), room)
        page = await self._artifacts.read(str(arguments["id"]), session.principal, int(arguments["offset"]), limit)
        end = page.next_offset if page.next_offset is not None else page.size
        more = f"; next offset {page.next_offset}" if page.next_offset is not None else ", the end"
        return ToolResult.of_text(f"{page.text}\n[bytes {page.offset}-{end} of {page.size}{more}]")


def _search(catalog: Catalog, session: SessionState, profile: Profile, arguments: Mapping[str, Any]) -> ToolResult:
    query = str(arguments["query"])
    allowed = None if session.allowed is None else session.includes
    hits = catalog.search(query, int(arguments["limit"]), allowed=allowed)
    if not hits:
        return ToolResult.of_text(_nothing(catalog, session, query))
    found = [catalog.tools[hit.name] for hit in hits]
    for tool in found:
        session.activated.setdefault(tool.name)
    return ToolResult.of_text("\n".join(render.line(tool) for tool in found))


def _nothing(catalog: Catalog, session: SessionState, query: str) -> str:
    counts = catalog.categories if session.allowed is None else categories_of(in_scope(catalog, session))
    shown = ", ".join(f"{name} ({count})" for name, count in list(counts.items())[:12])
    return f"No tool fits {query[:200]!r}. Say it in other words, or name one of: {shown}."


def _describe(catalog: Catalog, session: SessionState, profile: Profile, arguments: Mapping[str, Any]) -> ToolResult:
    parts: list[str] = []
    for name in arguments["names"]:
        tool = catalog.find(name)
        if tool is None or not session.includes(tool.name):
            close = catalog.nearest(name, allowed=session.includes) or [f"use {profile.verbs.get('search', 'search')}"]
            parts.append(f"{name}: not found; nearest: {', '.join(close)}")
            continue
        session.activated.setdefault(tool.name)
        parts.append(render.describe(tool))
    return ToolResult.of_text("\n\n".join(parts))
