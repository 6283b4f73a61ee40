"""Skills as MCP resources: extension `io.modelcontextprotocol/skills` (SEP-2640), `skill://name/SKILL.md`.

Only skills that the format calls valid have an address: its last part must be the name, and the name must be one.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from ..beneath import read_beneath
from ..skill import FILE
from .manifest import MAX_BYTES
from .reading import Found

__all__ = ["SkillResource", "entries_of", "read_resource", "resources_of"]

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


def resources_of(found: Iterable[Found]) -> tuple[SkillResource, ...]:
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


def entries_of(found: Iterable[Found]) -> tuple[Mapping[str, Any], ...]:
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


def read_resource(found: Mapping[str, Found], uri: str) -> tuple[str, bytes]:
    """Return the media type and the content of `uri`. Raises `KeyError` when there is none, or it changed meanwhile."""
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


def _uri(one: Found, name: str) -> str:
    """The file of a skill is SKILL.md there, however it is written on disk."""
    return f"{_SCHEME}{one.skill.name}/{FILE if name == one.skill.file else quote(name)}"


def _type(name: str) -> str:
    suffix = name[name.rfind(".") :] if "." in name else ""
    return _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
