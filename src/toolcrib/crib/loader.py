"""Loader of catalogs, skills, API descriptions and servers: the content of a path determines its kind.

    load(path)           a person named it: mounted as trusted, and waited for
    mount_configured()   catalogs and skills of the settings; those of a project are confirmed by their content
    mount_entries()      APIs, and sources of other kinds, of the settings; waits for none

The modules of each kind are loaded with its first source: most cribs have only one or two kinds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from ..catalog.skill_groups import SkillGroups
from ..config import Settings
from ..config.files import parse, read
from ..config.secrets import expand
from ..config.trust import Trust
from ..core.context import Context
from ..core.events import Problem
from ..core.json import as_mapping, read_json
from ..core.patterns import regex
from ..core.result import ToolResult
from ..errors import ConfigError, ToolFailure, UsageError
from ..sources.settings import KINDS, CatalogSpec, SkillsSpec
from ..sources.skill_folder import skill_file
from ..sources.skills.skill_scan import SkillRoot, find_folders
from ..sources.source import Source
from .calls import CallRunner
from .named_servers import plain_name
from .tools import ToolRegistry

if TYPE_CHECKING:
    from ..sources.yaml.document import YamlOptions

Kind = Literal["catalog", "skills", "openapi", "servers"]

_MAX_BYTES: Final = 64 << 20
"""Of a file that is looked into: GitHub's OpenAPI description has 13 MiB."""

_KEYS: Final[tuple[tuple[str, Kind], ...]] = (
    ("openapi", "openapi"),
    ("swagger", "openapi"),
    ("mcpServers", "servers"),
    ("servers", "servers"),
    ("capabilities", "catalog"),
)
"""Keys at the root that say what a document is; the first of them that is there decides."""
_YAML_KEY: Final = regex(rf"^[\"']?({'|'.join(key for key, _ in _KEYS)})[\"']?[ \t]*:", re.MULTILINE)
_IN_PROCESS: Final = "http://localhost"
"""The address that an application of this process is called by."""
_SAID: Final = regex(r"^(?!---)[^#\s].*$", re.MULTILINE)


class Loader:
    """Mounts catalogs, skills, API descriptions and servers from files and URLs. One for a crib."""

    def __init__(self, settings: Settings, tools: ToolRegistry, calls: CallRunner) -> None:
        """`calls` make the calls of catalog entries that name a tool of an MCP server."""
        self._settings = settings
        self._tools = tools
        self._calls = calls

    async def load(self, path: Any, name: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Mount what `path` holds or is, under `name` or one made of its own, and wait until it was read.

        `options` are those of an API. Raises `UsageError` when there is nothing of a known kind, or `name` is taken.
        """
        api = options or {}
        if not isinstance(path, str | Path):
            document = _described(path)
            title = as_mapping(document.get("info")).get("title")
            own = name or self._unused(plain_name(title if isinstance(title, str) else "api"))
            app = None if document is path else path
            await self._mount(_openapi(own, document, api, app), prefix=True)
            return
        there, url = await anyio.to_thread.run_sync(_place, path)
        if url:
            own = name or self._unused(urlsplit(url).hostname or "api")
            await self._mount(_openapi(own, url, api), prefix=True)
            return
        kind = await anyio.to_thread.run_sync(kind_of, there)
        if api and kind != "openapi":
            raise UsageError(f"{next(iter(api))} is an option of an API, and {path} is none: it holds {kind}")
        if kind == "servers":
            if name is not None:
                raise UsageError(f"{path} brings servers, which have their own names; leave `name` out")
            document = await anyio.to_thread.run_sync(lambda: parse(read(there), str(there)).plain())
            await self._tools.mount(document)
            return
        own = name or self._free(there)
        source = _openapi(own, there, api) if kind == "openapi" else self._source(kind, there, own)
        await self._mount(source, prefix=kind == "openapi")

    async def mount_configured(self) -> None:
        """Mount the catalogs and skills that the settings name. What cannot be read is a problem of its source."""
        settings = self._settings
        for spec in settings.sources.catalogs:
            name = spec.name or self._free(spec.path)
            if name in {state.source for state in self._tools.sources}:
                message = (
                    f"{spec.path} is not mounted: something else is named {name}; give one of the two another name"
                )
                self._tools.report(Problem(source=str(spec.path), code="bad_config", message=message))
                continue
            source = _catalog(name, spec.path, self._options(spec))
            await self._tools.mount_source(source, prefix=False, trusted=True)
        if settings.sources.skills is not None:
            source = await anyio.to_thread.run_sync(_skills, self._unused("skills"), settings, settings.sources.skills)
            await self._tools.mount_source(source, prefix=False, trusted=True)

    async def _mount(self, source: Source, *, prefix: bool) -> None:
        """Mount what our own user named, and wait until it was read."""
        await self._tools.mount_source(source, prefix=prefix, trusted=True)
        await self._tools.wait_ready(self._settings.sources.ready_timeout, [source.name])

    def _source(self, kind: Kind, path: Path, name: str) -> Source:
        if kind == "catalog":
            return _catalog(name, path, self._options(CatalogSpec(path=path)))
        root = SkillRoot.named(path if path.is_dir() else path.parent)
        from ..sources.skills.source import SkillsSource  # only for cribs with skills

        return SkillsSource(name, (root,))

    def _options(self, spec: CatalogSpec) -> YamlOptions:
        from ..sources.yaml.document import YamlOptions  # only for cribs with catalogs

        settings = self._settings
        confirmed, record = _trust(settings)
        return YamlOptions(
            environment=settings.environment,
            expand=lambda text: expand(text, settings.environment),
            code=spec.code,
            trusted=confirmed if spec.confirm else None,
            also_watched=(record,) if spec.confirm else (),
            call_tool=self._call_tool,
        )

    async def _call_tool(self, server: str, tool: str, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Call a tool of an MCP server for the session that called us: decided, asked and recorded as its own call."""
        found = self._tools.of_server(server, tool)
        if found is None:
            raise ToolFailure("unavailable", f"there is no tool {tool} of an MCP server {server} to be called now")
        return await self._calls.door_of(context)(
            found.name, dict(arguments), origin="catalog", timeout=context.remaining
        )

    def _free(self, path: Path) -> str:
        """Return a name made of the file's, or of its folder's where the file is named as all are."""
        stem = path.stem if path.is_file() or path.suffix else path.name
        plain = path.parent.name if stem.lower() in ("capabilities", "skill") and path.parent.name else stem
        return self._unused(plain_name(plain, "catalog"))

    def _unused(self, name: str) -> str:
        taken = {state.source for state in self._tools.sources}
        numbered: Iterable[str] = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
        return next(other for other in numbered if other not in taken)


def kind_of(path: Path) -> Kind:
    """Return the kind of file at `path`. Raises `UsageError` for an unknown kind, `ConfigError` for bad YAML."""
    if path.is_dir():
        if skill_file(path) or next(find_folders((SkillRoot.named(path),), []), None):
            return "skills"
        raise UsageError(f"{path}: no folder in it has a SKILL.md; name a catalog by its file")
    content = read(path, limit=_MAX_BYTES)
    text = content.decode("utf-8-sig", "replace")
    if path.name.lower() == "skill.md":
        return "skills"
    if path.suffix == ".py":
        raise UsageError(f"{path} is Python: import it, and add the module with crib.add(module)")
    found = _by_json(text) if text.lstrip().startswith("{") else _by_yaml(text)
    if found is None:
        parse(content, str(path))  # a syntax error, with its line, is nearer than a key that is missing
        known = ", ".join(f"`{key}`" for key, _ in _KEYS)
        raise UsageError(f"{path}: unknown content: no {known} at its root, and it is not a list of entries")
    return found


def _place(path: str | Path) -> tuple[Path, str]:
    """Return the absolute path, or the URL that `path` is. Raises `UsageError` for a URL that is none."""
    url = str(path) if str(path).startswith(("http://", "https://")) else ""
    try:
        urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{path} is not a URL: {error}") from None
    return Path(os.path.expanduser(path)).absolute(), url


def _by_json(text: str) -> Kind | None:
    try:
        document: Any = read_json(text, limit=len(text))
    except ValueError:
        return _by_yaml(text)  # comments in it, or YAML that begins like JSON
    keys = set(cast("dict[str, Any]", document)) if isinstance(document, dict) else set[str]()
    found: Kind | None = next((kind for key, kind in _KEYS if key in keys), None)
    return found


def _by_yaml(text: str) -> Kind | None:
    """A key at the root is at the beginning of a line; a stray character elsewhere does not hide it."""
    keys = {match.group(1) for match in _YAML_KEY.finditer(text)}
    found: Kind | None = next((kind for key, kind in _KEYS if key in keys), None)
    first = _SAID.search(text)
    if found is None and first is not None and re.match(r"- +(?:\{[ \t]*)?[\"']?\w+[\"']?[ \t]*:", first.group()):
        return "catalog"
    return found


def _described(thing: Any) -> Mapping[str, Any]:
    """Return the OpenAPI description that `thing` is or makes. Raises `UsageError`."""
    document = thing.openapi() if callable(getattr(thing, "openapi", None)) else thing
    if not isinstance(document, Mapping) or not any(key in document for key, kind in _KEYS if kind == "openapi"):
        raise UsageError(
            "load takes the path of a file, a URL, an OpenAPI description or an application that makes one by"
            f" `openapi()`, not {type(thing).__name__}; MCP servers are mounted with crib.mount, functions added with"
            " crib.add"
        )
    return cast("Mapping[str, Any]", document)


def _openapi(name: str, place: str | Path | Mapping[str, Any], options: Mapping[str, Any], app: Any = None) -> Source:
    """Return the source of an API. Raises `ConfigError` for an option that cannot be taken.

    An application counts as code of this process, at an address that is only a name.
    """
    given = dict(options)
    app = given.pop("app", app)
    if app is not None and not callable(app):
        raise UsageError(f"app is an ASGI application, not {type(app).__name__}")
    own = {"base_url": _IN_PROCESS, "trusted": True, "allow_private": True} if app is not None else {}
    from ..config.sources import api_settings
    from ..sources.openapi.source import OpenApiSource  # the HTTP client is slow to load: few cribs have APIs

    return OpenApiSource(name, place, settings=api_settings({**own, **given}), app=app)


def _catalog(name: str, path: Path, options: YamlOptions) -> Source:
    from ..sources.yaml.source import YamlSource  # only for cribs with catalogs

    return YamlSource(name, path, options)


def _skills(name: str, settings: Settings, spec: SkillsSpec) -> Source:
    confirmed, record = _trust(settings)
    from ..sources.skills.source import SkillsOptions, SkillsSource  # only for cribs with skills

    options = SkillsOptions(groups=_groups(spec.groups), trusted=confirmed, also_watched=(record,))
    return SkillsSource(name, spec.roots, options)


def _groups(files: Iterable[Path]) -> SkillGroups:
    """Read the groups; a file that cannot be read costs its groups, not the skills."""
    return reduce(SkillGroups.joined, map(_groups_in, files), SkillGroups())


def _groups_in(path: Path) -> SkillGroups:
    try:
        root = parse(read(path), str(path)).plain()
    except ConfigError as error:
        return SkillGroups(problems=(str(error),))
    data = cast("dict[str, Any]", root) if isinstance(root, dict) else {"skill_groups": root}
    return SkillGroups.of(data.get("skill_groups", data))


def _trust(settings: Settings) -> tuple[Callable[[Path, bytes], bool], Path]:
    """Return the check whether a file is confirmed now, and the path of its record."""
    directories = settings.directories
    return lambda path, content: Trust(directories).covers(path, content), directories.state / "trusted.json"


async def mount_entries(settings: Settings, tools: ToolRegistry, cache: Path | None) -> None:
    """Mount the entries of `sources`: every API, and every source of another kind.

    Waits for none: what cannot be mounted or read is a problem. `cache` is the folder for what was converted; None
    keeps nothing.
    """
    for spec in settings.sources.openapi:
        if _is_free(tools, "openapi", spec.name):
            from ..sources.openapi.source import OpenApiSource  # the HTTP client is slow to load: few cribs have APIs

            made = OpenApiSource.of(spec, cache_dir=cache)
            tools.identify(spec.name, spec.identity)
            await tools.mount_source(made, accept=settings.sources.accept)
    for entry in settings.sources.configured:
        if _is_free(tools, entry.kind, entry.name):
            try:
                source = KINDS[entry.kind].make(entry)
            except UsageError as error:
                problem = Problem(source=f"sources.{entry.kind}.{entry.name}", code="bad_config", message=str(error))
                tools.report(problem)
            else:
                await tools.mount_source(source, accept=settings.sources.accept)


def _is_free(tools: ToolRegistry, kind: str, name: str) -> bool:
    """Return whether no source has the name; else report that the entry is not mounted."""
    if name not in {state.source for state in tools.sources}:
        return True
    message = f"it is not mounted: something else is named {name}; give one of the two another name"
    tools.report(Problem(source=f"sources.{kind}.{name}", code="bad_config", message=message))
    return False
