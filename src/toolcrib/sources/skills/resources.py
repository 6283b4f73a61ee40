"""Skills as MCP resources (`skill://`, SEP-2640): index, listing and file contents."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

import anyio.to_thread

from ...core.context import Context
from ...core.result import ToolResult
from ...core.server_features import ServerFeatures
from ...errors import ToolFailure
from ...workspace.safe_paths import read_beneath
from ..skill_folder import FILE
from .manifest import MAX_BYTES
from .skill_scan import FoundSkill

__all__ = ["SkillFeatures", "SkillResource", "entries_of", "features_of", "read_resource", "resources_of"]

_SCHEME: Final = "skill://"
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MARKDOWN: Final = "text/markdown"
_TYPES: Final[Mapping[str, str]] = {".md": _MARKDOWN, ".py": "text/x-python", ".sh": "text/x-shellscript"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillResource:
    """One file of a skill, as `resources/list` shows it."""

    uri: str
    name: str
    description: str
    mime_type: str
    size: int


def resources_of(found: Iterable[FoundSkill]) -> tuple[SkillResource, ...]:
    """Return every file of every skill that has an address, each skill's SKILL.md first."""
    resources: list[SkillResource] = []
    for one in found:
        if one.manifest is None or not _NAME.fullmatch(one.skill.name):
            continue
        for name in sorted(one.manifest.files, key=lambda name: (name != one.skill.file, name)):
            is_main = name == one.skill.file
            resources.append(
                SkillResource(
                    uri=_uri(one, name),
                    name=one.skill.name if is_main else f"{one.skill.name}/{name}",
                    description=one.skill.description if is_main else "",
                    mime_type=_type(name),
                    size=one.manifest.files[name].size,
                )
            )
    return tuple(resources)


def entries_of(found: Iterable[FoundSkill]) -> tuple[Mapping[str, Any], ...]:
    """Return what `skills/list` answers with: `{uri, frontmatter, resources: [{uri, digest, size}]}` a skill."""
    return tuple(
        {
            "uri": _uri(one, one.skill.file),
            "frontmatter": one.skill.frontmatter,
            "resources": [
                {"uri": _uri(one, name), "digest": f"sha256:{stamp.sha256}", "size": stamp.size}
                for name, stamp in one.manifest.files.items()
            ],
        }
        for one in found
        if one.manifest is not None and _NAME.fullmatch(one.skill.name)
    )


def read_resource(found: Mapping[str, FoundSkill], uri: str) -> tuple[str, bytes]:
    """Return the media type and the content of `uri`. Raises `KeyError` if it is missing, or changed meanwhile."""
    name, _, path = unquote(uri.removeprefix(_SCHEME)).partition("/")
    one = found.get(name) if uri.startswith(_SCHEME) else None
    if one is None or one.manifest is None:
        raise KeyError(uri)
    path = one.skill.file if path == FILE else path
    if path not in one.manifest.files or uri != _uri(one, path):
        raise KeyError(uri)
    try:
        content = read_beneath(one.skill.folder, path, MAX_BYTES)
    except ValueError:
        raise KeyError(uri) from None
    if not one.manifest.holds(path, content):
        raise KeyError(uri)
    return _type(path), content


def _uri(one: FoundSkill, name: str) -> str:
    """The file of a skill is SKILL.md there, however it is written on disk."""
    return f"{_SCHEME}{one.skill.name}/{FILE if name == one.skill.file else quote(name)}"


def _type(name: str) -> str:
    suffix = name[name.rfind(".") :] if "." in name else ""
    return _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def features_of(resources: Iterable[SkillResource]) -> ServerFeatures:
    """Return the entries that `resources/list` shows."""
    entries = tuple(map(_entry, resources))
    return ServerFeatures(resources=entries, reads=bool(entries))


class SkillFeatures:
    """Reads files of skills. Lives as long as its source."""

    traits: tuple[str, ...] = ()

    def __init__(self, read: Callable[[str], tuple[str, bytes]]) -> None:
        """`read` returns media type and content of a URI; it raises `KeyError` for an unknown one."""
        self._read = read
        self.on_update: Callable[[str], None] = _ignore

    async def read(self, uri: str, context: Context) -> ToolResult:
        """Return the file: its text, or base64 for other content."""
        try:
            mime_type, content = await anyio.to_thread.run_sync(partial(self._read, uri))
        except KeyError:
            raise ToolFailure("not_found", f"unknown resource {uri[:300]!r}, or it changed a moment ago") from None
        resource = {"uri": uri, "mimeType": mime_type, **_body(content)}
        return ToolResult(content=({"type": "resource", "resource": resource},))

    async def prompt(self, name: str, arguments: Mapping[str, str], context: Context) -> ToolResult:
        """Raise `ToolFailure`: skills are not prompts."""
        raise ToolFailure("not_found", f"unknown prompt {name[:200]!r}")

    async def complete(self, params: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        """Return an empty completion: resources of skills have no arguments."""
        return {"values": []}

    async def watch(self, uri: str) -> None:
        """Do nothing: a skill that changes is listed anew."""

    async def unwatch(self, uri: str) -> None:
        """Do nothing."""


def _ignore(uri: str) -> None:
    """Ignore subscriptions: changes of single files are not announced."""


def _entry(resource: SkillResource) -> dict[str, Any]:
    shown: dict[str, Any] = {"uri": resource.uri, "name": resource.name}
    if resource.description:
        shown["description"] = resource.description
    return {**shown, "mimeType": resource.mime_type, "size": resource.size}


def _body(content: bytes) -> dict[str, str]:
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"blob": base64.b64encode(content).decode()}
