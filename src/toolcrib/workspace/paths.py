"""Paths of tools: from a text to one of the declared roots, and the protected names below a root.

  guarded      .env, keys, credentials: not for tools. The setting `workspace.guarded` adds patterns; one that begins
               with `!` releases what an earlier one holds back
  protected    read, never written: files that run by themselves or decide what may run (.git, shell start files,
               our configuration)
  private      Toolcrib's own folders: neither

A pattern without `/` matches any folder or file on the way, one with `/` matches neighbours (`.docker/config.json`).
Case, look-alike letters, invisible characters and dots or blanks at the end make no difference: some file systems
ignore them too.

    text of a model ── Roots.place ──► Place(root, steps)     no disk: what lies outside is refused by the text alone
    Place ── Guard.hides, fixes ──► "" or the pattern that forbids reading or writing
    Place ── nodes.* ──► the file, opened step by step below the root, links never followed

The text check alone would not protect: a folder on the way may be a link, and may become one at any moment. The opening
does (`safe_paths`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from ..core.patterns import regex
from ..errors import ToolFailure, UsageError

_MAX_PATH_BYTES: Final = 4096
"""Bytes, PATH_MAX of Linux."""
_MAX_NAME_BYTES: Final = 255
"""Bytes, NAME_MAX."""
_MAX_SHOWN_LENGTH: Final = 200

GUARDED: Final = (
    *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template", "!.env.dist", ".envrc"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "!id_*.pub"),
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker/config.json", ".config/gcloud", ".config/gh"),
    *(".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".vault-token"),
    *("credentials", "credentials.json", "credentials.toml", "credentials.y*ml", "secrets.json", "secrets.toml"),
    *("secrets.y*ml", "service-account*.json"),
)
"""Names that are guarded unless the setting releases them."""

_PROTECTED: Final = (
    *(".git", "git~1", ".hg", ".svn", ".toolcrib", ".mcp.json", ".claude", ".cursor/mcp.json", ".vscode", ".idea"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv"),
    *(".zlogin", ".gitconfig", ".gitmodules", ".config/git", ".config/toolcrib", ".config/fish", ".config/autostart"),
    *(".cursor/hooks.json", ".codex", ".gemini/settings.json", ".qwen/settings.json", ".kiro/settings", ".kiro/hooks"),
    *(".roo/mcp.json", ".kilocode/mcp.json", ".kilo", "kilo.json", "kilo.jsonc", "opencode.json", "opencode.jsonc"),
    *(".opencode", ".amp/settings.json*", ".zed/settings.json", ".continue/mcpServers", ".junie/mcp", ".vs/mcp.json"),
    *(".github/copilot", ".factory/mcp.json", ".zcode"),
)
"""Names at and below which writing is refused: their content runs by itself, or decides what may run.

`git~1` is another name of `.git` on file systems of Windows."""

_HARD_LINKED_FOLDERS: Final = ("node_modules", ".venv", "venv", "site-packages", ".git")
"""Folders whose files package managers and git link to a store of theirs; elsewhere a hard link is a way around."""

TEMPORARY: Final = ".toolcrib-tmp-"
"""Prefix of our own temporary files; tools do not see them."""

_MAX_CACHED_NAMES: Final = 8192
"""Number of cached names: those of folders recur."""
_MAX_CACHED_ROOTS: Final = 64


class Place(Struct, frozen=True):
    """Something below a root, whether it exists or not. No step is `..`, and no `/` or control character is in one."""

    root: Path
    steps: tuple[str, ...]
    shown: str
    """As tools name it: relative to where relative paths begin, else absolute."""

    @property
    def path(self) -> Path:
        """The absolute path; for display and for programs, never to open a file that could have been swapped."""
        return self.root.joinpath(*self.steps)


class Roots:
    """The declared folders. Immutable; links in their own paths are followed once, now."""

    def __init__(self, *folders: Path, begin: Path | None = None) -> None:
        """Relative paths begin at `begin`, which lies in the first folder, or at that folder.

        Raises `UsageError` for a path that is not a folder.
        """
        if not folders:
            raise UsageError("a workspace needs a folder")
        self._spellings = {_absolute(folder): _real(folder) for folder in folders}
        self.all = tuple(dict.fromkeys(self._spellings.values()))
        self._spellings |= {root: root for root in self.all}
        self.begin = _real(begin) if begin is not None else self.all[0]
        if not self.begin.is_relative_to(self.all[0]):
            raise UsageError(f"{self.begin} lies outside of the workspace {self.all[0]}")
        self._inner = self.begin.relative_to(self.all[0]).parts

    def place(self, path: str) -> Place:
        """Return the place that `path` means.

        Raises `ToolFailure`: `invalid_arguments` for an invalid path, `denied` for one that leads outside.

        An absolute path may name a root by the spelling that it was declared with, or by its real one.
        """
        _check(path)
        steps = tuple(step for step in path.split("/") if step not in ("", "."))
        if ".." in steps:
            raise ToolFailure(
                "denied", f"{_shown(path)} goes up with `..`", hint="name the path from the workspace's root"
            )
        if not path.startswith("/"):
            if steps[:1] == ("~",):
                raise ToolFailure("denied", "`~` is outside of the workspace", hint=self._hint())
            return self.at(self.all[0], (*self._inner, *steps))
        absolute = Path("/", *steps)
        inside = [folder for folder in self._spellings if absolute.is_relative_to(folder)]
        if not inside:
            raise ToolFailure("denied", f"{_shown(path)} is outside of the workspace", hint=self._hint())
        folder = max(inside, key=lambda folder: len(folder.parts))
        return self.at(self._spellings[folder], absolute.relative_to(folder).parts)

    def at(self, root: Path, steps: tuple[str, ...]) -> Place:
        """Return the place of `steps` that are known to be below `root`."""
        depth = len(self._inner)
        if root == self.all[0] and steps[:depth] == self._inner:  # nearly every one: a path would take ten times longer
            return Place(root, steps, "/".join(steps[depth:]) or ".")
        path = root.joinpath(*steps)
        shown = path.relative_to(self.begin) if path.is_relative_to(self.begin) else path
        return Place(root, steps, str(shown))

    def _hint(self) -> str:
        return f"paths begin at {self.begin}; files can be reached in {', '.join(map(str, self.all))}"


def is_text(name: str) -> bool:
    """Whether a name can be expressed in JSON: Linux takes any bytes, and Python keeps them as halves of characters."""
    if name.isprintable():  # neither halves nor control characters are
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return not any(unicodedata.category(character) == "Cc" for character in name)


def _check(path: str) -> None:
    """Refuse an invalid file name, before the disk is accessed."""
    if not path or not path.strip():
        raise ToolFailure("invalid_arguments", "a path was expected, not an empty text", hint="`.` is the root")
    if not is_text(path):
        raise ToolFailure("invalid_arguments", f"{_shown(path)} has control characters or broken Unicode in it")
    if "\\" in path:
        raise ToolFailure(
            "invalid_arguments", f"{_shown(path)} has a backslash in it", hint="folders are set apart by /"
        )
    if len(path.encode()) >= _MAX_PATH_BYTES or any(len(step.encode()) > _MAX_NAME_BYTES for step in path.split("/")):
        raise ToolFailure(
            "invalid_arguments",
            f"{_shown(path)} is too long: names have {_MAX_NAME_BYTES} bytes, paths {_MAX_PATH_BYTES}",
        )


def _shown(path: str) -> str:
    return repr(path if len(path) <= _MAX_SHOWN_LENGTH else f"{path[:_MAX_SHOWN_LENGTH]}…")


def _absolute(folder: Path) -> Path:
    return folder.absolute()


def _real(folder: Path) -> Path:
    path = _absolute(folder).resolve()
    if not path.is_dir():
        raise UsageError(f"{folder} is not an existing folder: a workspace is made of folders that exist")
    return path


class Guard:
    """Answers for paths by their steps below a root. Immutable.

    Decides on names alone; whether something is there is not its concern.
    """

    def __init__(
        self, guarded: Iterable[str] = (), hard_linked: Iterable[str] = (), private: Iterable[Path] = ()
    ) -> None:
        """`guarded` and `hard_linked` add to the built-in patterns; `private` are absolute folders of our own."""
        self._guarded = _Patterns((*GUARDED, *guarded))
        self._protected = _Patterns(_PROTECTED)
        self._hard_linked = _Patterns((*_HARD_LINKED_FOLDERS, *hard_linked))
        self._private = tuple(folder.resolve() for folder in private)
        self._private_in = lru_cache(maxsize=_MAX_CACHED_ROOTS)(self._private_below)

    def hides(self, root: Path, steps: Sequence[str]) -> str:
        """Return the pattern, or the private folder, that forbids reading a path; "" if none does.

        A pattern holds at any step: what lies below a guarded folder is guarded.
        """
        if held := self._guarded.holding(steps):
            return held
        return next((name for inner, name in self._private_in(root) if tuple(steps[: len(inner)]) == inner), "")

    def fixes(self, root: Path, steps: Sequence[str]) -> str:
        """Return the pattern that forbids writing a path; "" if none does."""
        return self.hides(root, steps) or self._protected.holding(steps)

    def _private_below(self, root: Path) -> tuple[tuple[tuple[str, ...], str], ...]:
        """Return the steps from a root to each private folder in it, and its name.

        Empty steps if it contains the root.
        """
        around = [((), folder.name) for folder in self._private if root.is_relative_to(folder)]
        inside = [folder for folder in self._private if folder != root and folder.is_relative_to(root)]
        return (*around, *((folder.relative_to(root).parts, folder.name) for folder in inside))

    def may_be_hard_linked(self, steps: Sequence[str]) -> bool:
        """Whether a second name (hard link) of a file there is harmless."""
        return bool(self._hard_linked.holding(steps[:-1]))


class _Patterns:
    """A list like that of .gitignore: the last pattern that fits counts."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_pattern(pattern) for pattern in patterns]
        self._ending_in = lru_cache(maxsize=_MAX_CACHED_NAMES)(self._find)

    def holding(self, steps: Sequence[str]) -> str:
        """Return the pattern that holds one of the steps."""
        for place in range(len(steps)):
            held = ""
            for pattern in self._ending_in(steps[place]):
                if bool(held) == pattern.lets_through and pattern.fits(steps[: place + 1]):
                    held = "" if pattern.lets_through else pattern.text
            if held:
                return held
        return ""

    def _find(self, name: str) -> tuple[_Pattern, ...]:
        """Return the patterns whose last step matches: none for nearly every name."""
        folded = _fold(name)
        return tuple(pattern for pattern in self._patterns if pattern.steps[-1].match(folded))


class _Pattern:
    """One pattern line, as the regular expressions of its steps. `*` does not match `/`."""

    def __init__(self, text: str) -> None:
        self.lets_through = text.startswith("!")
        self.text = text.removeprefix("!")
        self.steps = [regex(translate(_fold(step))) for step in self.text.strip("/").split("/")]

    def fits(self, steps: Sequence[str]) -> bool:
        """Whether the last steps are those of the pattern; the last one was looked at."""
        before = self.steps[:-1]
        there = steps[-len(self.steps) : -1] if before else ()
        return len(there) == len(before) and all(
            step.match(_fold(name)) for step, name in zip(before, there, strict=True)
        )


_pattern = lru_cache(maxsize=1024)(_Pattern)
"""Every crib has the same built-in ones."""


def _fold(name: str) -> str:
    """Return a name as lenient file systems compare it: `.ENV`, `.env.` and look-alikes are `.env`."""
    if not name.isascii():
        name = "".join(one for one in unicodedata.normalize("NFKC", name) if unicodedata.category(one) != "Cf")
    return name.casefold().rstrip(". ") or name
