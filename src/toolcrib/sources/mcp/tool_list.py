"""Listing of a server: every entry is checked by itself, and a bad one hides no good one; and its cache on disk.

`build_listing` runs in a worker thread, because two thousand schemas take a while. Every refused, cut or removed part
is reported as a `Problem` with its reason.

`ListingCache` keeps the last good list, so that a catalog is known before any server answers: one file a configuration,
named by a hash of it, mode 0600 in a folder of mode 0700. A file that cannot be read, that another version wrote or
that is broken counts as none. A cached list is reviewed like a fresh one, and every call is compared with a fresh one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field

from ...core.events import Problem
from ...core.json import as_mapping, dumps, fields_of, loads
from ...core.patterns import regex
from ...core.sanitize import Icons, clean_schema, clean_text, cut
from ...core.schema import bundle, compile_schema
from ...core.server_features import NO_FEATURES, ServerFeatures
from ...core.tool import Annotations, Execution, Tool
from ...mcp.client.handshake import Era, Hint
from ...mcp.client.session import RawListing, build_features
from ...mcp.client.spec import McpLimits, ServerSpec
from ...mcp.headers import header_paths
from ...system.private_files import remove_old, replace_private
from ..source import Listing

_NAME: Final = regex(r"[A-Za-z0-9_./-]{1,128}")
_EMPTY: Final[Mapping[str, Any]] = {"type": "object"}
_INTRODUCED: Final = {"name": 200, "title": 200, "version": 100, "description": 4096, "websiteUrl": 2048}
"""The fields of `serverInfo` that are passed on, and their bytes."""
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

_FORMAT: Final = 1


class _Report(Struct):
    """Collects the problems of one listing."""

    source: str
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, code: str, message: str, *, tool: str = "", hint: str = "") -> None:
        """Note one problem."""
        self.problems.append(Problem(source=self.source, code=code, message=message, tool=tool, hint=hint))


class _UnfitTool(Exception):
    """One entry cannot be offered."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def same(one: Any, other: Any) -> bool:
    """Whether two untrusted values are equal; values nested too deeply to compare are not."""
    try:
        return bool(one == other)
    except RecursionError:
        return False


def build_listing(raw: RawListing, spec: ServerSpec, limits: McpLimits, era: Era) -> Listing:
    """Check every entry of `raw` and return the usable ones.

    In this order: malformed entries, those that the configuration leaves out, those beyond the limit, names of several
    different tools; of each remaining tool its name, texts without invisible characters, then its schemas.
    """
    report = _Report(spec.name)
    entries = _wanted(raw, spec, limits, report)
    twice = _duplicates(entries, report)
    icons = Icons(limits.icon_bytes, limits.icons_bytes)
    server = _server(era, icons, limits)
    tools: list[Tool] = []
    seen: set[str] = set()
    for entry in entries:
        name = _name(entry)
        if name in twice or name in seen:
            continue
        seen.add(name)
        try:
            tools.append(_tool(entry, spec, limits, era, report.add, icons))
        except _UnfitTool as refused:
            report.add(refused.code, str(refused), tool=_shown(name))
    instructions, hidden = clean_text(era.instructions)
    if hidden:
        report.add("hidden_text", f"{hidden} invisible characters were removed from the instructions")
    features = NO_FEATURES if raw.features is None else build_features(raw.features, limits, report.add, icons)
    if icons.dropped:
        what = f"of at most {limits.icon_bytes} bytes, and all of a server have at most {limits.icons_bytes}"
        report.add("too_large", f"{icons.dropped} icons are left out: an icon is an https: or data:image/ URI {what}")
    return Listing(
        tools=tuple(tools),
        problems=tuple(report.problems),
        server=server,
        instructions=cut(instructions, limits.description_bytes),
        title=cut(clean_text(era.title)[0], 200),
        description=cut(clean_text(era.description)[0], limits.description_bytes),
        features=features,
    )


def _wanted(raw: RawListing, spec: ServerSpec, limits: McpLimits, report: _Report) -> list[Mapping[str, Any]]:
    """Drop malformed entries, those that the configuration leaves out, and those beyond the limit."""
    objects = [entry for entry in map(as_mapping, raw.tools) if entry]
    if len(objects) < len(raw.tools):
        report.add("bad_tool", f"{len(raw.tools) - len(objects)} entries of the list are not objects")
    if raw.more:
        report.add("too_many", raw.more)
    entries = [entry for entry in objects if spec.takes(_name(entry))]
    if len(entries) > limits.tools:
        report.add(
            "too_many",
            f"the server lists {len(entries)} tools; the first {limits.tools} are taken",
            hint="Name the tools you need in its `tools` list.",
        )
    return entries[: limits.tools]


def _duplicates(entries: Iterable[Mapping[str, Any]], report: _Report) -> set[str]:
    """Return the names of several different tools: none of them can be trusted to be the right one."""
    counted = Counter(map(_name, entries))
    often = {name for name, count in counted.items() if count > 1}
    if not often:
        return set()
    first: dict[str, Mapping[str, Any]] = {}
    differing: set[str] = set()
    for entry in entries:
        name = _name(entry)
        if name in often and not same(first.setdefault(name, entry), entry):
            differing.add(name)
    for name in sorted(often):
        if name in differing:
            message = f"{counted[name]} different tools have this name; none of them is offered"
        else:
            message = f"the same tool is listed {counted[name]} times"
        report.add("duplicate", message, tool=_shown(name))
    return differing


def _server(era: Era, icons: Icons, limits: McpLimits) -> Mapping[str, Any]:
    """Return the server's introduction (MCP `Implementation`), with sanitized texts and icons of bounded size."""
    known = {key: cut(clean_text(_text(era.info.get(key)))[0], most) for key, most in _INTRODUCED.items()}
    shown: dict[str, Any] = {key: text for key, text in known.items() if text}
    if "description" in shown:
        shown["description"] = cut(shown["description"], limits.description_bytes)
    if not shown.get("websiteUrl", "https://").startswith(("https://", "http://")):
        del shown["websiteUrl"]
    taken = icons.take(era.info.get("icons"))
    return {**shown, "icons": taken} if taken else shown


def _tool(
    entry: Mapping[str, Any], spec: ServerSpec, limits: McpLimits, era: Era, add: Callable[..., None], icons: Icons
) -> Tool:
    name = _name(entry)
    if not _NAME.fullmatch(name):
        raise _UnfitTool("bad_tool", f"{name[:200]!a} is not a tool name: it takes 1 to 128 of A-Z a-z 0-9 _ . / -")
    hidden = 0
    title, count = clean_text(_text(entry.get("title")) or _text(as_mapping(entry.get("annotations")).get("title")))
    hidden += count
    description, count = clean_text(_text(entry.get("description")))
    hidden += count
    schema, count = _schema(entry.get("inputSchema"), spec, limits, "inputSchema")
    hidden += count
    output, count = (
        _schema(entry.get("outputSchema"), spec, limits, "outputSchema") if entry.get("outputSchema") else (None, 0)
    )
    hidden += count
    if hidden:
        add("hidden_text", f"{hidden} invisible characters were removed", tool=name)
    if (shown := cut(description, limits.description_bytes)) != description:
        add("too_large", f"the description was cut to {limits.description_bytes} bytes", tool=name)
    if spec.transport == "http" and era.modern:
        try:
            header_paths(schema)
        except ValueError as error:
            raise _UnfitTool("bad_schema", str(error)) from error
    return Tool(
        origin="mcp",
        traits=spec.traits_of(name, as_mapping(entry.get("annotations"))),
        name=name,
        source=spec.name,
        local_name=name,
        description=shown,
        title=cut(title, 200),
        input_schema=schema,
        output_schema=output,
        annotations=_annotations(entry, spec, name, icons),
        execution=Execution(background_after=spec.goes_on_after(name)),
        meta=as_mapping(entry.get("_meta")),
    )


def _schema(value: Any, spec: ServerSpec, limits: McpLimits, what: str) -> tuple[Mapping[str, Any], int]:
    if value is None:
        return _EMPTY, 0
    if not isinstance(value, Mapping):
        raise _UnfitTool("bad_schema", f"its {what} is not an object")
    try:
        size = len(dumps(value))
        if size > limits.schema_bytes:
            raise _UnfitTool("too_large", f"its {what} has {size} bytes; {limits.schema_bytes} are allowed")
        schema, hidden = clean_schema(bundle(as_mapping(value), spec.schemas))
        if what == "inputSchema" and schema.get("type", "object") != "object":
            raise ValueError("it must describe an object")
        compile_schema(schema, strict_extra=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise _UnfitTool("bad_schema", f"its {what} cannot be used: {cut(clean_text(str(error))[0], 500)}") from error
    return schema, hidden


def _annotations(entry: Mapping[str, Any], spec: ServerSpec, name: str, icons: Icons) -> Annotations:
    given = as_mapping(entry.get("annotations"))
    hints: dict[str, Any] = {key: given[key] for key in _HINTS if isinstance(given.get(key), bool)}
    hints.update(spec.annotations.get(name, {}))
    title = cut(clean_text(_text(given.get("title")))[0], 200)
    listed: dict[str, Any] = {"title": title, **hints} if title else hints
    return Annotations.from_mcp(hints, listed=listed, icons=icons.take(entry.get("icons")))


def _name(entry: Mapping[str, Any]) -> str:
    return _text(entry.get("name"))


def _shown(name: str) -> str:
    """Return an untrusted name in a form fit for a report."""
    return ascii(name)[1:-1][:200]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class Cached(Struct, frozen=True, kw_only=True):
    """Cached listing of an earlier run."""

    listing: Listing
    era: Hint


class ListingCache:
    """The file of one server. Blocking: use it from a thread. `folder` None keeps nothing."""

    def __init__(self, folder: Path | None, spec: ServerSpec) -> None:
        self._spec = spec
        self._path = None if folder is None else folder / f"{spec.key()}.json"

    @property
    def path(self) -> Path | None:
        """The file, None where nothing is kept."""
        return self._path

    def is_recent(self, seconds: float) -> bool:
        """Whether the file was written within the last `seconds`."""
        try:
            return self._path is not None and time.time() - self._path.stat().st_mtime < seconds
        except OSError:
            return False

    def read(self) -> Cached | None:
        """Return the cached listing; None if missing or unusable."""
        if self._path is None:
            return None
        try:
            kept = as_mapping(loads(self._path.read_bytes()))
            if kept.get("format") != _FORMAT:
                return None
            return Cached(listing=self._listing(kept), era="modern" if kept["era"] == "modern" else "legacy")
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, cached: Cached) -> None:
        """Keep `cached`; raises `OSError` when the folder cannot be written."""
        if self._path is None:
            return
        listing = cached.listing
        data = dumps(
            {
                "format": _FORMAT,
                "era": cached.era,
                "tools": [_entry(tool) for tool in listing.tools],
                "problems": [fields_of(problem) for problem in listing.problems],
                "instructions": listing.instructions,
                "title": listing.title,
                "description": listing.description,
                "server": listing.server,
                "features": fields_of(listing.features),
            }
        )
        replace_private(self._path, data)
        remove_old(self._path.parent, "[0-9a-f]" * len(self._path.stem))

    def _listing(self, kept: Mapping[str, Any]) -> Listing:
        return Listing(
            tools=tuple(self._tool(as_mapping(entry)) for entry in cast("list[Any]", kept["tools"])),
            problems=tuple(Problem(**as_mapping(one)) for one in cast("list[Any]", kept["problems"])),
            instructions=kept["instructions"],
            title=kept["title"],
            description=kept["description"],
            server=as_mapping(kept.get("server")),
            features=_features(as_mapping(kept.get("features"))),
            is_cached=True,
        )

    def _tool(self, entry: Mapping[str, Any]) -> Tool:
        name = cast("str", entry["name"])
        hints = {**as_mapping(entry["annotations"]), **self._spec.annotations.get(name, {})}
        return Tool(
            origin="mcp",
            traits=self._spec.traits_of(name),
            name=name,
            source=self._spec.name,
            local_name=name,
            description=entry["description"],
            title=entry["title"],
            input_schema=entry["inputSchema"],
            output_schema=entry["outputSchema"],
            annotations=Annotations.from_mcp(
                hints,
                listed=as_mapping(entry["listed"]) if "listed" in entry else None,
                icons=tuple(as_mapping(icon) for icon in cast("list[Any]", entry.get("icons", ()))),
            ),
            execution=Execution(background_after=self._spec.goes_on_after(name)),
            meta=entry["meta"],
        )


def _features(kept: Mapping[str, Any]) -> ServerFeatures:
    lists = {
        name: tuple(as_mapping(entry) for entry in cast("list[Any]", kept.get(name, ())))
        for name in ("resources", "templates", "prompts")
    }
    return ServerFeatures(**lists, reads=kept.get("reads") is True)


def _entry(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.local_name,
        "description": tool.description,
        "title": tool.title,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations.to_mcp(),
        "meta": tool.meta,
        "icons": tool.annotations.icons,
        **({} if tool.annotations.listed is None else {"listed": tool.annotations.listed}),
    }
