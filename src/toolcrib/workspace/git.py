"""Git, asked in a way that a hostile repository cannot use (security.md T22): nothing that it configures is run.

No hooks, no filters, no monitors, no pagers, no helpers, no network, no configuration but its own, and of that every
key that names a program is taken back.

Shadows use it, outside of the sandbox; guests that run git in the sandbox take its environment (`harmless`).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Final

import anyio
from anyio import to_thread
from msgspec import Struct

from ..core.files import read_strange
from ..core.patterns import regex
from ..errors import ToolFailure

_HARMLESS_SETTINGS: Final[Mapping[str, str]] = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.pager": "cat",
    "core.editor": "false",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.untrackedCache": "false",
    "core.autocrlf": "false",
    "commit.gpgSign": "false",
    "core.alternateRefsCommand": "true",
    "diff.external": "",
    "log.showSignature": "false",
    "merge.verifySignatures": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "advice.detachedHead": "false",
}
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "LC_ALL": "C",
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_AUTHOR_NAME": "Toolcrib",
    "GIT_AUTHOR_EMAIL": "toolcrib@localhost",
    "GIT_COMMITTER_NAME": "Toolcrib",
    "GIT_COMMITTER_EMAIL": "toolcrib@localhost",
}
_OWN_MERGE_DRIVER: Final = "git merge-file --marker-size=%L %A %O %B"
"""git's own merge, for a repository that names no program."""
_PROGRAM_SETTINGS: Final[Mapping[str, str]] = {
    r"filter\..+\.(?:clean|smudge|process)": "",
    r"filter\..+\.required": "false",
    r"merge\..+\.driver": _OWN_MERGE_DRIVER,
    r"hook\..+\.command": "true",
}
"""Keys that name a program under a repository's own name, and their replacements."""
_TIMEOUT_SECONDS: Final = 300.0

_CLOCK_SLACK_NS: Final = 20_000_000
"""Nanoseconds by which the clock of a file system may be behind."""
_MAX_COMMITS: Final = 50
_MAX_FILE_BYTES: Final = 16 << 20
"""Bytes of a file that are read: one that is larger has another hash."""

_CONFLICT_MARKER: Final = regex(rb"(?m)^(<{7}|>{7}|\|{7})(?: ([^\r\n]*))?$")
_CONFLICT_LABEL: Final = regex(
    rb"[\w./@~^+-]{0,100}(?::[\w./-]{1,200})?|Updated upstream|Stashed changes|Stash base|merged common ancestors"
)
"""Names beside the markers of a conflict: of a branch, commit or file, not a sentence."""
_CONFLICT_STYLES: Final = ("--quiet", "--diff3", "--zdiff3")


def harmless(configured: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment in which git runs nothing of a repository that has these keys in its configuration.

    It comes after the repository's own configuration; by the environment, which takes any name. No `PATH` is in it.

    Keys that name a program under a chosen name (`filter.x.clean`) cannot be listed in advance: they are read from the
    repository's configuration, and set to something harmless.
    """
    keys = dict(_HARMLESS_SETTINGS)
    for name in configured:
        for pattern, value in _PROGRAM_SETTINGS.items():
            if re.fullmatch(pattern, name, re.DOTALL):
                keys[name] = value
    numbered = {"GIT_CONFIG_COUNT": str(len(keys))}
    for number, (key, value) in enumerate(keys.items()):
        numbered |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**_ENVIRONMENT, **numbered}


def repository_of(folder: Path) -> Path | None:
    """Return the nearest folder from `folder` upwards that git works in; None without one."""
    return next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)


class Git(Struct, frozen=True, kw_only=True):
    """Git in one working tree."""

    tree: Path
    folder: Path
    """Its `.git`: that of the working tree, not the one that its configuration claims."""
    configured: tuple[str, ...] = ()
    """The keys that the repository configures: programs among them are taken back one by one."""
    path: str = os.defpath
    """Search path of programs."""

    @classmethod
    async def at(cls, tree: Path, path: str = os.defpath) -> Git:
        """Return git in the working tree at `tree`. Raises `ToolFailure("tool_error")` when it will not work there.

        Two runs: the first finds the folder of git, the second reads the keys to take back, with the known ones off
        already.
        """
        first = cls(tree=tree, folder=tree / ".git", path=path)
        output = await first._run("rev-parse", "--absolute-git-dir", environment={})
        found = cls(tree=tree, folder=Path(os.fsdecode(output).rstrip("\n")), path=path)
        configured = await found.run("config", "--null", "--name-only", "--list")
        names = configured.decode(errors="surrogateescape").split("\0")
        return cls(tree=tree, folder=found.folder, configured=tuple(sorted({*names})), path=path)

    async def run(self, *arguments: str, index: Path | None = None, stdin: bytes | None = None, most: int = 0) -> bytes:
        """Return the output of `git <arguments>`; `index` replaces the tree's own, `stdin` is its input.

        `most` is the highest exit status that is not a failure. Raises `ToolFailure("tool_error")` with git's message.
        """
        environment = {"GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self.tree)}
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        return await self._run(*arguments, environment=environment, stdin=stdin, most=most)

    async def _run(
        self, *arguments: str, environment: Mapping[str, str], stdin: bytes | None = None, most: int = 0
    ) -> bytes:
        command: Sequence[str] = ("git", "--no-pager", "--literal-pathspecs", *arguments)
        try:
            with anyio.fail_after(_TIMEOUT_SECONDS):
                done = await anyio.run_process(
                    command,
                    cwd=self.tree,
                    env={"PATH": self.path, **harmless(self.configured), **environment},
                    input=stdin,
                    stdin=DEVNULL if stdin is None else None,
                    check=False,
                )
        except FileNotFoundError:
            raise ToolFailure("unavailable", "git is not installed", hint="shadow workspaces need it") from None
        except TimeoutError:
            raise ToolFailure("timeout", f"git {arguments[0]} did not end within {_TIMEOUT_SECONDS:g} s") from None
        if not 0 <= done.returncode <= most:
            problem = done.stderr.decode(errors="replace").strip()[-500:]
            raise ToolFailure("tool_error", f"git {arguments[0]} failed: {problem or f'status {done.returncode}'}")
        return done.stdout


async def is_from_commit(
    file: Path, repositories: Mapping[Path, Sequence[str]], began: int, *, path: str = os.defpath
) -> bool:
    """Whether git brought a file from a commit that the workspace's own repositories had when a command began.

    `repositories` are `.git` folders, each with the commits that were referred to at that time (nanoseconds). What was
    fetched since counts, too; a file in a new worktree or clone whose commit one of the repositories had; and the
    result of a merge of such files, with its conflicts.
    """
    tree = repository_of(file.parent)
    if tree is None:
        return False
    place = str(file.relative_to(tree))
    try:
        content = await to_thread.run_sync(_content, file)
    except OSError:
        return False
    own = tree / ".git"
    for folder in (own,) if own in repositories else repositories:
        with contextlib.suppress(OSError, ToolFailure):
            git = await Git.at(folder.parent, path)
            blob = (await git.run("hash-object", "--stdin", "--no-filters", stdin=content)).decode().strip()
            if await _has(git, blob, place, repositories[folder], began):
                return True
            if folder == own and await _is_merged(git, content, place, repositories[folder], began):
                return True
    return False


async def _is_merged(git: Git, content: bytes, place: str, commits: Sequence[str], began: int) -> bool:
    """Whether `content` is what git makes of three versions of the file that were there before."""
    if not all(_CONFLICT_LABEL.fullmatch(label) for _, label in _CONFLICT_MARKER.findall(content)):
        return False
    result = _CONFLICT_MARKER.sub(rb"\1", content)
    for blobs in await _merged_blobs(git, place):
        if not all([await _has(git, blob, place, commits, began) for blob in blobs]):
            continue
        with TemporaryDirectory() as folder:
            names = [str(Path(folder, str(number))) for number in range(len(blobs))]
            for name, blob in zip(names, blobs, strict=True):
                await anyio.Path(name).write_bytes(await git.run("cat-file", "blob", blob))
            for style in _CONFLICT_STYLES:
                merged = await git.run("merge-file", "-p", style, *names, most=127)
                if _CONFLICT_MARKER.sub(rb"\1", merged) == result:
                    return True
    return False


async def _merged_blobs(git: Git, place: str) -> list[tuple[str, str, str]]:
    """Return the versions (ours, base, theirs) of a conflict in the index, or of the merge that HEAD is."""
    listed = (await git.run("ls-files", "--unmerged", "-z", "--", place)).decode().split("\0")
    stages = {row.split()[2]: row.split()[1] for row in listed if row}
    if stages:
        return [(stages["2"], stages["1"], stages["3"])] if stages.keys() == {"1", "2", "3"} else []
    with contextlib.suppress(ToolFailure):
        base = (await git.run("merge-base", "HEAD^1", "HEAD^2")).decode().strip()
        names = [f"{commit}:{place}" for commit in ("HEAD^1", base, "HEAD^2")]
        ours, old, theirs = [await git.run("rev-parse", "--verify", name) for name in names]
        return [(ours.decode().strip(), old.decode().strip(), theirs.decode().strip())]
    return []


async def _has(git: Git, blob: str, place: str, commits: Sequence[str], began: int) -> bool:
    """Whether a commit that was there before, or was fetched since, has `blob` at this place."""
    log = ("log", "--full-history", "-m", "--format=%H", f"--find-object={blob}")
    if await git.run(*log, "--max-count=1", "--remotes", "--", place):
        return True
    known = "".join(f"{commit}\n" for commit in commits).encode()
    if known and await git.run(*log, "--max-count=1", "--ignore-missing", "--stdin", "--", place, stdin=known):
        return True
    found = (await git.run(*log, f"--max-count={_MAX_COMMITS}", "--all", "--reflog", "--", place)).decode().split()
    objects = Path(os.fsdecode(await git.run("rev-parse", "--git-path", "objects")).strip())
    return any(_is_older(git.tree / objects, commit, began - _CLOCK_SLACK_NS) for commit in found)


def _content(file: Path) -> bytes:
    return os.fsencode(os.readlink(file)) if file.is_symlink() else read_strange(file, _MAX_FILE_BYTES)


def _is_older(objects: Path, name: str, began: int) -> bool:
    """Whether an object was there before: as a file, or in a pack."""
    try:
        return (objects / name[:2] / name[2:]).lstat().st_ctime_ns < began
    except OSError:
        packs = list((objects / "pack").glob("*.pack"))
        return bool(packs) and all(pack.lstat().st_ctime_ns < began for pack in packs)
