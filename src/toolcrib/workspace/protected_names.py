"""Protected names inside a workspace: secrets are neither read nor written, some files never written.

  guarded      .env, keys, credentials: not for tools. The setting `workspace.guarded` adds patterns; one that begins
               with `!` releases what an earlier one holds back
  protected    read, never written: files that run by themselves or decide what may run (.git, shell start files,
               our configuration)
  private      Toolcrib's own folders: neither

A pattern without `/` matches any folder or file on the way, one with `/` matches neighbours (`.docker/config.json`).
Case, look-alike letters and dots or blanks at the end make no difference: some file systems ignore them too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Final

__all__ = ["GUARDED", "HARD_LINKED", "PROTECTED", "TEMPORARY", "Guard"]

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

PROTECTED: Final = (
    *(".git", ".hg", ".svn", ".toolcrib", ".mcp.json", ".claude", ".cursor/mcp.json", ".vscode", ".idea"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv"),
    *(".zlogin", ".gitconfig", ".gitmodules", ".config/git", ".config/toolcrib", ".config/fish", ".config/autostart"),
)
"""Names at and below which writing is refused: their content runs by itself, or decides what may run."""

HARD_LINKED: Final = ("node_modules", ".venv", "venv", "site-packages", ".git")
"""Folders whose files package managers and git link to a store of theirs; elsewhere a hard link is a way around."""

TEMPORARY: Final = ".toolcrib-tmp-"
"""Prefix of our own temporary files; tools do not see them."""


_NAMES_KEPT: Final = 8192
"""Number of cached names: those of folders recur."""
_ROOTS_KEPT: Final = 64


class Guard:
    """Answers for paths by their steps below a root. Immutable."""

    def __init__(
        self, guarded: Iterable[str] = (), hard_linked: Iterable[str] = (), private: Iterable[Path] = ()
    ) -> None:
        """`guarded` and `hard_linked` add to the built-in patterns; `private` are absolute folders of our own."""
        self._guarded = _Patterns((*GUARDED, *guarded))
        self._protected = _Patterns(PROTECTED)
        self._hard_linked = _Patterns((*HARD_LINKED, *hard_linked))
        self._private = tuple(folder.resolve() for folder in private)
        self._private_in = lru_cache(maxsize=_ROOTS_KEPT)(self._private_below)

    def hides(self, root: Path, steps: Sequence[str]) -> str:
        """Return the pattern, or the private folder, that forbids reading a path; "" if none does."""
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
        self._ending_in = lru_cache(maxsize=_NAMES_KEPT)(self._find)

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
        self.steps = [re.compile(translate(_fold(step))) for step in self.text.strip("/").split("/")]

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
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ") or name
