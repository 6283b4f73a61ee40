"""One skill: a folder with a SKILL.md, by the Agent Skills format (agentskills.io), read leniently.

What is usable is taken; `Skill.warnings` names what the format's own validator (`agentskills validate`, PyPI
`skills-ref`) refuses and what may mislead. The body and the other files are read on demand.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from ..core.documents.tree import MAX_BYTES, Node
from ..core.documents.yaml import parse_yaml
from ..core.json import as_mapping, canonical
from ..core.patterns import regex
from ..core.result import ToolResult
from ..core.sanitize import clean_text
from ..errors import ConfigError, ToolFailure
from ..mcp.client.launch.digests import file_digest
from ..results.normalize import to_result
from ..workspace.safe_paths import files_beneath, read_beneath

FILE: Final = "SKILL.md"

PRIORITIES: Final[Mapping[str, int]] = {"low": 30, "medium": 50, "high": 80, "critical": 90}
"""The words that a priority may be written with (seed 004)."""

SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "reference": {
            "type": "string",
            "description": "A file of the skill, as its text or its list of files names it, to read instead.",
        }
    },
    "additionalProperties": False,
}
"""Arguments of a skill."""

_MAX_NAME: Final = 64
_MAX_DESCRIPTION: Final = 1024
_MAX_COMPATIBILITY: Final = 500
_MAX_FILE: Final = 4 << 20
"""Bytes of one reference or script that are read at once."""

_REPLACED: Final = "\ufffd"
"""Replacement for a byte that is not UTF-8."""

_JOINERS: Final = {0x200C: None, 0x200D: None}
"""Invisible characters that emoji and some scripts are written with."""
_FENCE: Final = regex(r"^---[ \t]*$", re.MULTILINE)
_PLAIN: Final = regex(r"^([A-Za-z][\w-]*):[ \t]+([^\s\"'|>\[{].*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Frontmatter of one skill. Lives until its file changes."""

    name: str
    description: str
    folder: Path
    """Absolute, with links resolved."""
    frontmatter: Mapping[str, Any]
    """As it is written, as JSON."""
    content: bytes = field(repr=False)
    """The whole SKILL.md as it was read and, for a project, confirmed."""
    file: str = FILE
    """The name of the file itself."""
    warnings: tuple[str, ...] = ()
    """Violations of the format that may mislead, each with the file. Unknown fields are none."""

    @property
    def body(self) -> str:
        """The text below the frontmatter."""
        return _split(_text(self.content))[1].strip()

    @property
    def files(self) -> tuple[str, ...]:
        """The other files of the folder, with `/`."""
        return tuple(name for name in files_beneath(self.folder) if name != self.file)

    @property
    def priority(self) -> int:
        """0 to 100, 50 without a usable value."""
        value = str(self._raw("priority")).strip().lower()
        number = int(value) if re.fullmatch(r"[0-9]{1,3}", value) else PRIORITIES.get(value, PRIORITIES["medium"])
        return min(number, 100)

    @property
    def tags(self) -> tuple[str, ...]:
        """The capability tags: a list, or words with commas between."""
        value = self._raw("capabilities")
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list):
            return ()
        return tuple(item.strip() for item in cast("list[Any]", items) if isinstance(item, str) and item.strip())

    @property
    def category(self) -> str:
        """Its category; empty without one."""
        value = self._raw("category")
        return value if isinstance(value, str) else ""

    @property
    def version(self) -> str:
        """Its version; empty without one."""
        value = self._raw("version")
        return str(value) if isinstance(value, str | int | float) else ""

    def read(self, relative: str) -> bytes:
        """Return a file of the folder; raises `ValueError` with a reason that may be shown."""
        return read_beneath(self.folder, relative, _MAX_FILE)

    def _raw(self, key: str) -> Any:
        inner: Any = as_mapping(self.frontmatter.get("metadata")).get(key)
        return self.frontmatter.get(key, inner)


def answer(skill: Skill, arguments: Mapping[str, Any], read: Callable[[str], bytes] | None = None) -> ToolResult:
    """Return the text of `skill` and the list of its files, or the one file that `reference` names.

    `read` takes the place of `skill.read`. Raises `ToolFailure("not_found")` for a file that the folder does not have.
    """
    reference = arguments.get("reference")
    if reference:
        try:
            return to_result((read or skill.read)(str(reference)))
        except ValueError as error:
            files = list(skill.files)
            hint = f"its files: {', '.join(files[:50])}" if files else "it has no other files"
            raise ToolFailure("not_found", f"{skill.name}: {error}", hint=hint, details={"files": files}) from None
    files = list(skill.files)
    content = {"name": skill.name, "description": skill.description, "body": skill.body, "files": files}
    listed = "".join(f"\n- {name}" for name in files)
    more = f'\n\nFiles of this skill, read with {{"reference": "…"}}:{listed}' if files else ""
    return ToolResult.of_text(skill.body + more, structured_content=content)


def skill_file(folder: Path) -> str:
    """Return the name of the skill's file in `folder`; empty when it has none."""
    return next((name for name in (FILE, FILE.lower()) if os.path.isfile(folder / name)), "")


def files_digest(folder: Path) -> str:
    """Return a hash over the files of the skill in `folder` as they are now. Blocks."""
    names = dict.fromkeys((skill_file(folder), *files_beneath(folder)))
    return hashlib.sha256(canonical({name: file_digest(folder / name) for name in names})).hexdigest()


def read_skill(folder: Path) -> Skill:
    """Return the skill in `folder`. Raises `ConfigError` with file and line when it cannot be used at all."""
    file = skill_file(folder)
    where = str(folder / (file or FILE))
    if not file:
        raise ConfigError("the file does not exist", file=where)
    try:
        content = read_beneath(folder, file, MAX_BYTES)
    except ValueError as error:
        raise ConfigError(str(error), file=where) from None
    warnings: list[str] = []
    node = _frontmatter(_text(content), where, warnings)
    frontmatter = cast("dict[str, Any]", node.plain())
    name = _scalar(node, "name").strip()
    description, hidden = clean_text(_scalar(node, "description").strip())
    if not description:
        raise ConfigError("has no `description`, which a model needs to choose it", file=where)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        warnings.append(f"{where}:{line}: is not UTF-8 there, and is read with {_REPLACED}; save it as UTF-8")
    if hidden:
        warnings.append(f"{where}: {hidden} invisible characters were removed from the description")
    if smuggled := clean_text(_split(_text(content))[1].translate(_JOINERS))[1]:
        warnings.append(
            f"{where}: its text has {smuggled} invisible characters, which a model reads and no person sees"
        )
    if name and not re.fullmatch(r"[^\s\x00-\x1f\x7f/]{1,128}", name):
        warnings.append(f"{where}: the name {name[:80]!r} cannot be used; the folder's name replaces it")
        name = ""
    if clean_text(name or folder.name)[1]:
        raise ConfigError("its name has invisible characters", file=where, key="name")
    warnings += [f"{where}: {wrong}" for wrong in _wrong(node, folder)]
    return Skill(
        name=name or folder.name,
        description=description[:_MAX_DESCRIPTION],
        folder=folder,
        file=file,
        frontmatter=frontmatter,
        content=content,
        warnings=tuple(warnings),
    )


def _frontmatter(text: str, where: str, warnings: list[str]) -> Node:
    """Parse leniently: the meaning of `description: Use when: …` is clear."""
    frontmatter, _ = _split(text)
    if not frontmatter.strip():
        reason = "has no frontmatter: `---`, `name:`, `description:`, `---` at its beginning"
        if _REPLACED in text:
            reason = "is not UTF-8 text: save it as UTF-8"
        elif _FENCE.match(text):
            reason = "has a frontmatter without an end: a line `---` was expected below `name:` and `description:`"
        raise ConfigError(reason, file=where)
    try:
        node = parse_yaml("\n" + frontmatter, where)
    except ConfigError as error:
        quoted = _PLAIN.sub(lambda match: f"{match[1]}: {json.dumps(match[2].rstrip())}", frontmatter)
        try:
            node = parse_yaml("\n" + quoted, where)
        except ConfigError:
            raise error from None
        warnings.append(f"{error}; read as if its values were quoted")
    if node.kind != "mapping":
        raise ConfigError("the frontmatter is not a mapping", file=where)
    return node


def _split(text: str) -> tuple[str, str]:
    """Return the frontmatter and the body; without frontmatter, all is body."""
    fences = list(_FENCE.finditer(text))
    if len(fences) < 2 or text[: fences[0].start()].strip():
        return "", text
    return text[fences[0].end() + 1 : fences[1].start()], text[fences[1].end() :]


def _wrong(node: Node, folder: Path) -> list[str]:
    """Return the violations of the format in these fields."""
    wrong = _wrong_name(node, folder)
    description = node.member("description")
    if description is None or description.node.kind != "scalar" or not description.node.text.strip():
        wrong.append("`description` must be a text that is not empty")
    elif len(description.node.text) > _MAX_DESCRIPTION:
        wrong.append(f"`description` has {len(description.node.text)} characters, more than {_MAX_DESCRIPTION}")
    compatibility = node.member("compatibility")
    if compatibility is not None and compatibility.node.kind != "scalar":
        wrong.append("`compatibility` must be a text")
    elif compatibility is not None and len(compatibility.node.text) > _MAX_COMPATIBILITY:
        wrong.append(f"`compatibility` has more than {_MAX_COMPATIBILITY} characters")
    return wrong


def _wrong_name(node: Node, folder: Path) -> list[str]:
    member = node.member("name")
    if member is None or member.node.kind != "scalar" or not member.node.text.strip():
        return ["`name` must be a text that is not empty"]
    wrong: list[str] = []
    name = unicodedata.normalize("NFKC", member.node.text.strip())
    if len(name) > _MAX_NAME:
        wrong.append(f"`name` has {len(name)} characters, more than {_MAX_NAME}")
    if name != name.lower():
        wrong.append("`name` must be in lower case")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        wrong.append("`name` must not begin or end with a hyphen, nor have two in a row")
    if not all(character.isalnum() or character == "-" for character in name):
        wrong.append("`name` may only have letters, digits and hyphens")
    if unicodedata.normalize("NFKC", folder.name) != name:
        wrong.append(f"`name` ({name}) must be the folder's name ({folder.name})")
    return wrong


def _scalar(node: Node, key: str) -> str:
    member = node.member(key)
    return member.node.text if member and member.node.kind == "scalar" else ""


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
