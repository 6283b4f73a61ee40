"""Content of a project's catalog that a user confirms: its text, and what its entries run or show.

Those are the code, the programs and the skills. They are found by the text, as those behind a server are
(`mcp.client.launch.sources`): what a program loads by a name that it computes is not found.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...core.json import dumps
from ...core.patterns import regex
from ...mcp.client.launch.digests import file_digest
from ...mcp.client.launch.sources import loaded_by
from ...workspace.safe_paths import files_beneath
from ..skill_folder import skill_file

_KEYS: Final = (b"implementation", b"skill_path")
_TOKEN: Final = regex(r"[\w@.-][\w@./-]{0,300}")
_MODULE: Final = regex(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_DATA: Final = frozenset(".csv .json .log .md .toml .txt .yaml .yml".split())


def confirmed_content(path: Path, content: bytes) -> bytes:
    """Return the bytes that stand for a catalog: `content`, or the digests of all files where its entries run some.

    Blocks: it is for a thread.
    """
    if not any(key in content for key in _KEYS):
        return content
    folder = path.absolute().parent
    named = dict.fromkeys(_named(folder, content.decode("utf-8", "replace")))
    files = dict.fromkeys([*named, *loaded_by(named, [folder], folder)])
    digests = {os.path.relpath(file, folder): file_digest(file) for file in files}
    if not digests:
        return content
    return dumps({path.name: hashlib.sha256(content).hexdigest(), **dict(sorted(digests.items()))})


def _named(folder: Path, text: str) -> Iterator[Path]:
    """Yield the files of the catalog's folder that words of it name: as paths, or as modules."""
    stems = {name.partition(".")[0] for name in os.listdir(folder)}
    for token in dict.fromkeys(_TOKEN.findall(text)):
        word = os.path.normpath(token)
        if word.partition("/")[0].partition(".")[0] not in stems:
            continue
        skill = folder / word if (folder / word).is_dir() else (folder / word).parent
        if skill != folder and skill_file(skill):
            yield from (skill / name for name in files_beneath(skill))
        names = [word] if os.path.splitext(word)[1] not in _DATA or word == skill_file(folder) else []
        if _MODULE.fullmatch(token):
            parts = token.split(".")
            packages = ["/".join(parts[: count + 1]) for count in range(len(parts))]
            names += [f"{packages[-1]}.py", *(f"{one}/__init__.py" for one in packages)]
        yield from (folder / name for name in names if (folder / name).is_file())
