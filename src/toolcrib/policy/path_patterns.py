"""Path patterns of rules for files, as gitignore and Claude Code write them, and their match with an argument.

    Read(./src/**)      below the folder in which the session works; `src/**` is the same
        Read(.env)          a name without a slash: in any folder below it
    Edit(//etc/**)      a path from the root of the disk
        Edit(~/notes/**)    below the home of the process's user

`*` and `?` stay inside one name, `**` is any number of folders, and a pattern that means a folder means all in it.
Paths are compared as they are written, without their detours, and as they are once links are followed: a deny holds for
a file by whichever of its paths, and an allow only where both are meant.

A pattern is compared with a path as text below a base; the disk is asked for links (`realpath`) and folders only, so
that a rule can be about files that do not exist. RE2 compares: Python's `re` takes 12 s for three `**` and 4,096 bytes.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ..core.json import named_texts
from ..core.patterns import regex
from .argument_conditions import PROCESS_FOLDER

if TYPE_CHECKING:
    import re2

_PATH_ARGUMENTS: Final = frozenset(
    "attachments dest destination destination_path dir directory dst file file_path filename files folder from"
    " from_path new_path notebook_path old_path output_path path paths root source source_path specs_path src target"
    " target_path template_path to to_path uri workspace_path".split()
)
"""Arguments that are paths."""
_MAX_VALUES: Final = 1_000
_MAX_PATH_BYTES: Final = 4_096
"""Bytes of a path; the system opens no longer one, and to follow the links of one takes the square of its length."""
_FOLDS_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether `SECRETS` is the file `secrets`: for disks that tell them apart there, a rule means both, too."""
_RANGE: Final = regex(r"(.)-(.)")
_CLASS: Final = regex(r"\[(!?)([^\]/]+)\]")


class PathPattern(Struct, frozen=True, kw_only=True):
    """One pattern. `base` is the folder it counts from, absolute; empty is the folder in which the session works.

    `regex` matches the path below `base`, without a leading slash.
    """

    regex: re2.Pattern[str]
    base: str
    fixed: str
    """Folders before the first wildcard; paths above it may contain a match."""
    walks: bool = False
    """Whether the tool walks folders: one above the pattern is then undecidable.

    So is any existing folder, for every tool: copying or removing it affects its whole content.
    """

    def matches(self, arguments: Mapping[str, Any], *, every: bool, cwd: Path = PROCESS_FOLDER) -> bool | None:
        """Whether the paths among the arguments match: all of them, else one; None when undecidable."""
        paths = [text for name, text in named_texts(arguments) if name.lower() in _PATH_ARGUMENTS]
        if not paths and self.walks:
            paths = ["."]
        if not paths or len(paths) > _MAX_VALUES:
            return False if every else None
        start = _normalize(str(cwd.absolute()))
        answers = [answer for path in paths for answer in self._match_path(path, start)]
        if every:
            return all(answer is True for answer in answers)
        return True if True in answers else None if None in answers else False

    def _match_path(self, path: str, cwd: str) -> Iterator[bool | None]:
        """Yield whether the path as written matches, and whether its link target does.

        None for a path that begins with `~` or `project:`, which the tool expands by itself, and for one that is none.
        """
        if not _is_path(path) or path.startswith(("~", "project:")):  # only the tool knows the folder
            yield None
            return
        whole, base = _normalize(posixpath.join(cwd, path.removeprefix("file://"))), _normalize(self.base or cwd)
        real, folder = os.path.realpath(whole), posixpath.join(base, self.fixed)
        walks, led = self.walks or os.path.isdir(real), os.path.realpath(folder)
        yield self._match_below(whole, base, walks=walks)
        if real == led or real.startswith(led.rstrip("/") + "/"):
            yield self._match_below(_normalize(folder + "/" + real[len(led.rstrip("/")) :]), base, walks=walks)
        else:
            yield self._match_below(real, os.path.realpath(base), walks=walks)

    def _match_below(self, whole: str, base: str, *, walks: bool) -> bool | None:
        """Whether the path matches; None for a folder above the base, and above the pattern where the tool walks."""
        fixed = self.fixed
        if _FOLDS_CASE:
            whole, base, fixed = whole.lower(), base.lower(), fixed.lower()
        if whole != base and not whole.startswith(base.rstrip("/") + "/"):
            return None if base.startswith(whole.rstrip("/") + "/") else False
        inside = whole[len(base.rstrip("/")) + 1 :]
        if self.regex.fullmatch(inside.encode("utf-8", "replace").decode()):
            return True
        return None if walks and (not inside or f"{fixed}/".startswith(f"{inside}/") or not fixed) else False


def parse_path(body: str, *, home: str) -> PathPattern:
    """Read the brackets of a rule for files. Raises `ValueError` when they cannot mean any path.

    A pattern with a slash inside counts from its base; one without (`*.env`) matches in any folder below.
    """
    import re2  # here and below: 2 ms at each opening of a crib, and the first rule for files is early enough

    base, written = "", body
    if written.startswith("//"):
        base, written = "/", written[2:]
    elif written == "~" or written.startswith("~/"):
        if not home:
            raise ValueError("~ cannot be resolved here; write the whole path, with // in front")
        base, written = home, written[2:]
    anchored = bool(base) or "/" in written.rstrip("/")
    written = written.removeprefix("./").lstrip("/").rstrip("/").removesuffix("/**")
    if any(part == ".." for part in written.split("/")):
        raise ValueError("a pattern with .. is not supported; write the path out, with // in front")
    regex = _compile_glob(written)
    before = re.split(r"[*?\[]", written)[0]
    fixed = (before if before == written else posixpath.dirname(before + "x")) if anchored else ""
    if not anchored:
        regex = f"(?:.*/)?{regex}"
    try:
        whole = re2.compile(f"(?s){regex}(?:/.*)?" if written else "(?s).*", _regex_options())
    except re2.error:
        raise ValueError(f"{body!r} is not a pattern of paths") from None
    return PathPattern(regex=whole, base=base, fixed=fixed)


def _regex_options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not _FOLDS_CASE
    return options


def _is_path(text: str) -> bool:
    try:
        return "\0" not in text and len(os.fsencode(text)) <= _MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False


def _normalize(path: str) -> str:
    """Return the path without detours; two slashes in front are one."""
    return "/" + posixpath.normpath(path).lstrip("/")


def _compile_glob(pattern: str) -> str:
    import re2

    parts: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern.startswith("**/", place):
            parts.append("(?:[^/]+/)*")
            place += 3
        elif pattern.startswith("**", place):
            parts.append(".*")
            place += 2
        elif found := _CLASS.match(pattern, place):
            inside = _RANGE.sub(_without_slash, found[2])
            inside = inside.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            parts.append(f"[^{inside}/]" if found[1] else f"[{inside}]")
            place = found.end()
        else:
            character = pattern[place]
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(character) or re2.escape(character))
            place += 1
    return "".join(parts)


def _without_slash(range: re.Match[str]) -> str:
    return f"{range[1]}-.0-{range[2]}" if range[1] < "/" < range[2] else range[0]
