"""Configuration of language servers, `tools: {lsp: {servers: …}}`, read entry by entry.

A problem of one entry is reported with its key, and the other entries are used.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from msgspec import Struct

from toolcrib.plugin import ToolFailure, as_mapping

from .._workspace.patterns import Glob, parse_glob

KEY: Final = "tools.lsp.servers"
HINT: Final = (
    "the operator names one in the configuration: tools: {lsp: {servers: {python: {command: [pyright-langserver,"
    ' --stdio], files: ["*.py"]}}}}; such as pyright (pip install pyright), or for TypeScript [tsc, --lsp, --stdio]'
    " (npm install -g typescript)"
)
_SECONDS: Final = 60.0
_KEYS: Final = ("command", "environment", "files", "options", "readable", "seconds", "settings", "writes")
_LANGUAGES: Final[Mapping[str, str]] = {
    ".bash": "shellscript", ".c": "c", ".cc": "cpp", ".cjs": "javascript", ".cpp": "cpp", ".cs": "csharp",
    ".css": "css", ".ex": "elixir", ".exs": "elixir", ".go": "go", ".h": "c", ".hpp": "cpp", ".hs": "haskell",
    ".html": "html", ".java": "java", ".js": "javascript", ".json": "json", ".jsx": "javascriptreact",
    ".kt": "kotlin", ".lua": "lua", ".md": "markdown", ".mjs": "javascript", ".mts": "typescript", ".php": "php",
    ".pl": "perl", ".py": "python", ".pyi": "python", ".rb": "ruby", ".rs": "rust", ".scala": "scala",
    ".sh": "shellscript", ".sql": "sql", ".swift": "swift", ".tf": "terraform", ".toml": "toml",
    ".ts": "typescript", ".tsx": "typescriptreact", ".vue": "vue", ".xml": "xml", ".yaml": "yaml", ".yml": "yaml",
    ".zig": "zig",
}  # fmt: skip
"""The protocol's names of languages (LSP 3.17, TextDocumentItem), and those that servers use beside them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One language server."""

    name: str
    command: tuple[str, ...]
    files: tuple[Glob, ...]
    """Patterns of the files that the server is responsible for."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str], repr=False)
    options: Any = None
    """`initializationOptions`."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any], repr=False)
    """Answer to the server's configuration requests, by section."""
    readable: tuple[Path, ...] = ()
    """Folders that it reads beside the workspace and the machine's programs: a library, a runtime."""
    seconds: float = _SECONDS
    """For one answer."""
    writes: bool = False
    """True if it may write in the workspace, such as build output."""

    def takes(self, path: str) -> bool:
        """True if the server is responsible for a file."""
        return any(glob.takes(path.lstrip("/")) for glob in self.files)

    def language(self, path: str) -> str:
        """Return the protocol's language id of a file; the server's name if the protocol has none."""
        return _LANGUAGES.get(PurePosixPath(path).suffix.lower(), self.name)

    def section(self, name: str) -> Any:
        """Return a part of the server's settings by its dotted name; all of them for an empty one, None if missing."""
        value: Any = self.settings
        for step in filter(None, name.split(".")):
            value = as_mapping(value).get(step)
        return value


class LspSettings(Struct, frozen=True, kw_only=True):
    """Valid servers and the problems of other entries."""

    servers: tuple[ServerSpec, ...] = ()
    problems: tuple[str, ...] = ()


def read_settings(setting: Any) -> LspSettings:
    """Return the servers that `tools.lsp` names, in its order, and what is wrong with others."""
    if setting is None:
        return LspSettings()
    if not isinstance(setting, Mapping):
        return LspSettings(problems=("tools.lsp: a mapping with the key servers is needed",))
    given = cast("Mapping[str, Any]", setting)
    problems = [f"tools.lsp.{key}: there is no such key, only servers" for key in given if key != "servers"]
    servers: Any = given.get("servers") or {}
    if not isinstance(servers, Mapping):
        return LspSettings(
            problems=(*problems, f"{KEY}: a mapping of a server's name to its command and files is needed")
        )
    found: list[ServerSpec] = []
    for name, entry in cast("Mapping[str, Any]", servers).items():
        try:
            found.append(_server(str(name), entry))
        except ValueError as error:
            problems.append(f"{KEY}.{name}{error}")
    return LspSettings(servers=tuple(found), problems=tuple(problems))


def _server(name: str, entry: Any) -> ServerSpec:
    """Raises `ValueError` with the rest of the key and what is wrong there."""
    if not isinstance(entry, Mapping):
        raise ValueError(': command and files are needed, such as {command: [gopls], files: ["*.go"]}')
    given = cast("Mapping[str, Any]", entry)
    for key in given:
        if key not in _KEYS:
            raise ValueError(f".{key}: there is no such key, only {', '.join(_KEYS)}")
    environment, settings = _mapping(given, "environment"), _mapping(given, "settings")
    seconds, writes = given.get("seconds", _SECONDS), given.get("writes", False)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 600:
        raise ValueError(f".seconds: a number of seconds up to 600 is needed, not {seconds!r}")
    if not isinstance(writes, bool):
        raise ValueError(f".writes: true or false is needed, not {writes!r}")
    try:
        json.dumps([given.get("options"), settings])
    except (TypeError, ValueError):
        raise ValueError(".options: options and settings are plain JSON; quote what looks like a date") from None
    return ServerSpec(
        name=name,
        command=_texts(given, "command"),
        files=tuple(_glob(pattern) for pattern in _texts(given, "files")),
        environment={key: str(value) for key, value in environment.items()},
        options=given.get("options"),
        readable=_paths(given, "readable"),
        settings=settings,
        seconds=float(seconds),
        writes=writes,
    )


def _texts(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value: Any = given.get(key)
    several = (
        (value,)
        if isinstance(value, str)
        else tuple(cast("list[Any]", value))
        if isinstance(value, list | tuple)
        else ()
    )
    if not several or not all(isinstance(one, str) and one.strip() for one in several):
        example = '["*.py"]' if key == "files" else "[pyright-langserver, --stdio]"
        raise ValueError(f".{key}: a list of texts is needed, such as {example}")
    return cast("tuple[str, ...]", several)


def _paths(given: Mapping[str, Any], key: str) -> tuple[Path, ...]:
    paths = _texts(given, key) if given.get(key) else ()
    if wrong := next((path for path in paths if not path.startswith("/")), ""):
        raise ValueError(f".{key}: a path from the root on is needed, not {wrong!r}")
    return tuple(map(Path, paths))


def _glob(pattern: str) -> Glob:
    try:
        return parse_glob(pattern)
    except ToolFailure as failure:
        raise ValueError(f".files: {failure.message}") from None


def _mapping(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value: Any = given.get(key) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f".{key}: a mapping is needed, not {value!r}")
    return cast("Mapping[str, Any]", value)
