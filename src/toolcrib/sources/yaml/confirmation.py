"""Content of a project's catalog that a user confirms, and of a single entry about whose call a person is asked.

It is the text, and what it runs or shows: code, programs and skills. They are found by the text, as those behind a
server are (`mcp.client.launch.sources`): what a program loads by a name that it computes is not found.
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
from ...mcp.client.launch.named_files import named_files, named_folders
from ...mcp.client.launch.runner_files import recipe_files
from ...mcp.client.launch.sources import loaded_by
from ...mcp.client.spec import ServerSpec
from ...workspace.safe_paths import files_beneath
from ..skill_folder import files_digest, skill_file
from .implementation import Command, Implementation, SkillText
from .run_code import Located

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


def implementation_digest(how: Implementation, located: Located | None, folder: Path) -> str:
    """Return a hash over what an entry of the catalog in `folder` is, and over the files that it runs or shows now.

    A program that is found by `PATH` counts by its name. Blocks: it is for a thread.
    """
    if isinstance(how, SkillText):
        path = folder / how.path
        return files_digest(path if path.is_dir() else path.parent)
    named = list(_files_of(how, folder) if isinstance(how, Command) else ())
    if located is not None and located.file is not None:
        named.append(located.file)
    places = [folder if located is None or located.root is None else located.root]
    files = dict.fromkeys([*named, *loaded_by(filter(os.path.isfile, named), places, places[0])])
    digests = {str(file): file_digest(file) for file in files}
    return hashlib.sha256(dumps([repr(how), dict(sorted(digests.items()))])).hexdigest()


def _files_of(how: Command, folder: Path) -> Iterator[Path]:
    """Yield the files that the fixed words of a command name, as those of a server's command do, and its recipes."""
    here = folder / os.path.expanduser(how.cwd)
    fixed = [piece for group in how.argv for template in group for piece in template.pieces[::2] if piece]
    program, *words = [str(folder / how.script), *fixed] if how.script else fixed
    spec = ServerSpec(name="", transport="stdio", command=program, args=tuple(words), env=how.env, cwd=str(here))
    places = named_folders(spec, here)
    yield from (here / program, *named_files(spec, here, places), *recipe_files(spec, places))


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
            names += [f"{packages[-1]}.py", f"{packages[-1]}/__main__.py", *(f"{one}/__init__.py" for one in packages)]
        yield from (folder / name for name in names if (folder / name).is_file())
