"""Files that a command leaves behind and that another program starts or believes without being asked.

A command may create `sub/.envrc`, agent instructions or a repository whose configuration names a program: the next
`git status` of the user there runs it. The workspace is compared before and after each command, at any depth; such
files are put aside under a new name, and a changed one gets its earlier content back. Files that git brought from
commits of the workspace's own repository stay, and so does what cannot start anything.

    is_taken_up          by name and place: the comparison looks at such files alone
    is_harmless          by content: settings that start nothing
    clean_repository     a repository that was not there: hooks and keys that start programs are put aside
    restore_repository   one that was there, without mounts: the same, and earlier contents are written back
    restore_rebases      `exec` lines of a stopped rebase, in any sandbox

Where a folder around a file is a link, nothing is renamed (`_is_in_place`): the file may be outside of the workspace.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from ..core.files import read_strange
from ..core.patterns import regex

_TAKEN_UP_NAMES: Final = frozenset(
    ".envrc .mcp.json .exrc _exrc .vimrc _vimrc .gvimrc .nvimrc .nvim.lua .autoenv .autoenv.zsh"
    " .devcontainer.json .Rprofile .octaverc .irbrc .pryrc .ghci .iex.exs .pdbrc .perldb .byebugrc .rdbgrc"
    " .ocamlinit .erlang .gdbinit .lldbinit .dir-locals.el .dir-locals-2.el .lvimrc .gitpod.yml .replit AGENTS.md"
    " AGENTS.override.md AGENT.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md WARP.md .rules .roorules"
    " .roomodes .continuerules .augment-guidelines .aider.conf.yml crush.json .crush.json opencode.json"
    " opencode.jsonc .cursorrules .windsurfrules .clinerules .goosehints copilot-instructions.md .gitlab-ci.yml"
    " .gitlab-ci.yaml .travis.yml Jenkinsfile azure-pipelines.yml azure-pipelines.yaml .build.yml"
    " bitbucket-pipelines.yml .drone.yml .woodpecker.yml appveyor.yml .appveyor.yml .cirrus.yml .cirrus.star"
    " .woodpecker.yaml codemagic.yaml bitrise.yml buildspec.yml cloudbuild.yaml"
    " devfile.yaml .devfile.yaml .stackblitzrc CRUSH.md IFLOW.md CODEBUDDY.md .kilocodemodes"
    " .openhands_instructions .aider.model.settings.yml .coderabbit.yaml firebender.json gptme.toml conductor.json"
    " kilo.json kilo.jsonc replit.md zcode.json".split()
)
"""Files that a shell, an interpreter, an editor, an agent or a forge takes up by their name."""
_TAKEN_UP_FOLDERS: Final = frozenset(
    ".vscode .idea .zed .fleet .helix .nova .devcontainer .shadowenv.d .idx .husky .toolcrib .claude .codex"
    " .cursor .gemini .qwen .windsurf .clinerules .roo .opencode .goose .circleci .woodpecker .agents .agent"
    " .continue .amazonq .kiro .augment .junie .trae .kilocode .factory .openhands .aiassistant .cline .crush"
    " .copilot .grok .pi .qoder .codebuddy .vibe .buildkite .tekton .semaphore .builds .codesandbox .theia .gitpod"
    " .iflow .lingma .zencoder .firebender .rovodev .tabnine .warp .bolt .ona .teamcity .harness .amp .deepagents"
    " .kilo .kimi .vs .zcode".split()
)
"""Folders of which they take up every file."""
_FORGES: Final = frozenset({".github", ".gitea", ".forgejo"})
_FORGE_PARTS: Final = frozenset(
    {"workflows", "actions", "instructions", "prompts", "chatmodes", "copilot", "agents", "skills", "hooks"}
)
"""Such folders below those of a forge."""
_TAKEN_UP_ENDS: Final = (
    *("/.hg/hgrc", "/.hg/hgrc-not-shared", "/.hg/sharedpath"),
    *("/.jj/repo/config.toml", "/_darcs/prefs/defaults"),
)
"""Ends of the paths of configurations of Mercurial, Jujutsu and Darcs, which may name programs."""
_NAME_BY_LOWER_CASE: Final = {
    name.lower(): name
    for name in (
        *_TAKEN_UP_NAMES,
        *_TAKEN_UP_FOLDERS,
        *_FORGES,
        *_FORGE_PARTS,
        *(step for end in _TAKEN_UP_ENDS for step in end.split("/")),
    )
}
_FOLDS_CASE: Final = sys.platform in ("darwin", "win32")
"""Whether disks of this system hold `agents.md` and `AGENTS.md` as one file."""
_MAX_CONTENT_BYTES: Final = 256 * 1024
"""Bytes of a file whose content is kept, to be given back."""
_MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
_HARMLESS_SETTINGS_FILES: Final = frozenset({"extensions.json", "launch.json"})
_RISKY_KEY: Final = regex(
    r"path|command|exec|interpreter|args|shell|env|profile|server|bin|script|python|git\b|task|terminal|run|tool|launch"
    r"|automation|trust|url|proxy|mcp|agent|copilot|chat|instruction",
    re.IGNORECASE,
)
"""Words in the keys of an editor's settings that may name a program or instruct an agent."""
_HARMLESS_LINE_BY_FILE: Final[Mapping[str, re.Pattern[str]]] = {
    "hgrc": regex(r"\s*(?:[#;].*|\[paths\]|default(?:-push)?\s*=\s*(?!ssh:|\S*\s)[\w./:@~+-]*)?\s*"),
    ".Rprofile": regex(r"""\s*(?:#.*|source\(["']renv/activate\.R["']\))?\s*"""),
}
"""Lines of files that start nothing: what `hg clone` and `renv` write."""
_KEY: Final = regex(r'"([^"\\]*)"\s*(?::|/[/*])')
"""A key; before its colon, the editor skips comments."""

Stamp = tuple[int, int, int]
"""Inode, change time and size of a file."""

_DATA_FOLDERS: Final = frozenset({"objects", "refs", "logs"})
_RUNNING_PARTS: Final = ("config", "config.worktree", "commondir", "hooks", "info/attributes")
_REBASE_FILES: Final = ("rebase-merge/git-rebase-todo", "rebase-merge/strategy")
"""Files of a rebase that stopped: `git rebase --continue` runs the `exec` lines of the first, and the program
`git-merge-NAME` for a name in the second."""
_STEP_THAT_RUNS: Final = regex(r"\s*(?:x|exec)\b", re.IGNORECASE)
_OWN_STRATEGIES: Final = frozenset({"", "octopus", "ort", "ours", "recursive", "resolve", "subtree"})
"""Merge strategies that are part of git."""
_HARMLESS_KEYS: Final = regex(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|sparsecheckout|sparsecheckoutcone|quotepath|longpaths|untrackedcache|preloadindex|abbrev|compression"
    r"|commentchar|whitespace|checkstat|trustctime)"
    r"|extensions\.\w+|user\.(?:name|email)|(?:author|committer)\.(?:name|email)"
    r"|remote\.[^\n]*\.(?:url|pushurl|fetch|push|tagopt|mirror|prune|prunetags|promisor|partialclonefilter|skipfetchall)"
    r"|branch\.[^\n]*\.(?:remote|merge|rebase|pushremote|description|vscode-merge-base|github-pr-owner-number)"
    r"|submodule\.[^\n]*\.(?:url|active|branch|update|ignore|path)|submodule\.active"
    r"|(?:pull|push|fetch|color|color\..*|advice|rerere|status|stash|index|pack|gc|feature|rebase|column|receive|transfer)\.\w+"
    r"|init\.defaultbranch|merge\.(?:conflictstyle|ff|renames|stat|log)|diff\.(?:algorithm|renames|colormoved|mnemonicprefix)"
    r"|lfs\.repositoryformatversion|http\.(?:postbuffer|sslverify|version)|commit\.(?:verbose|status)|tag\.sort|log\.date"
)
"""Keys of git that start no program, with their section and in lower case."""
_RUNNING_VALUE: Final = regex(r"\s*(?:!|[\w+.-]+::)")
"""A value that runs: `ext::command`, `!command`. Git takes quotes and backslashes away first, wherever they stand."""
_QUOTES: Final = str.maketrans("", "", "\"'\\")
_PROGRAM_KEY: Final = regex(r"hook|command|program|editor|helper|driver|pager|textconv|tool\b")
"""Words in keys of git that name a program, in whichever section: `gc.recentObjectsHook`."""
_SECTION: Final = regex(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\\n]|\\.)*)")?\s*\]\s*$')
_LINE: Final = regex(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*([^\n]*))?$")

_INACTIVE_SUFFIXES: Final = (".sample", ".aside")
"""Ends of names of hooks that git does not run."""

Contents = Mapping[Path, tuple[bytes, int]]
"""Files of repositories that start programs, each with its content (of a link: its target) and its mode."""


def is_taken_up(parts: tuple[str, ...], name: str) -> bool:
    """Whether a file of this name, in a folder with these steps below its root, is taken up by another program.

    Names with a dot count in every case: `.ENVRC` is `.envrc` where a disk of macOS or Windows holds the folder, or a
    colleague's does. Others count in every case on those systems only, for `agents.md` is an ordinary page elsewhere.
    """
    parts, name = tuple(map(_in_case, parts)), _in_case(name)
    if name in _TAKEN_UP_NAMES or name in _TAKEN_UP_FOLDERS or not _TAKEN_UP_FOLDERS.isdisjoint(parts):
        return True
    if parts and f"/{'/'.join(parts[-2:])}/{name}".endswith(_TAKEN_UP_ENDS):
        return True
    return any(forge in _FORGES and folder in _FORGE_PARTS for forge, folder in itertools.pairwise(parts))


def _in_case(name: str) -> str:
    """Return a name as the lists here spell it, where it differs from that in case only."""
    return _NAME_BY_LOWER_CASE.get(name.lower(), name) if name.startswith(".") or _FOLDS_CASE else name


def is_harmless(path: Path) -> bool:
    """Whether the content of a file that an editor takes up starts nothing and instructs no agent."""
    if path.is_symlink():
        return False
    if allowed := _HARMLESS_LINE_BY_FILE.get(path.name):
        text = _text(path)
        return bool(text) and all(map(allowed.fullmatch, text.splitlines()))
    if path.parent.name != ".vscode":
        return False
    if path.name in _HARMLESS_SETTINGS_FILES or path.name.endswith(".code-snippets"):
        return True
    text = _text(path)
    if not text or len(text) > _MAX_CONTENT_BYTES or "\\u" in text:
        return False
    if path.name == "tasks.json":
        return "folderopen" not in text.lower()
    return path.name == "settings.json" and not any(map(_RISKY_KEY.search, _KEY.findall(text)))


def stamp_of(path: Path | str) -> Stamp | None:
    """Return the stamp of a file; None when nothing is there. A link is not followed."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size


class KeptContents(Struct):
    """Contents of files that other programs take up, each read once for its stamp. Used in one thread at a time.

    At most 16 MiB (`_MAX_KEPT_BYTES`) for all files, and 256 KiB of each: what is beyond is put aside and not given
    back. Files that are gone make room.
    """

    _contents: dict[str, tuple[Stamp, bytes]] = field(default_factory=dict[str, "tuple[Stamp, bytes]"])
    _size: int = 0
    _refused: set[bytes] = field(default_factory=set[bytes])
    """Digests of what was put aside: git brings it back as little as any other program."""

    def is_refused(self, path: Path) -> bool:
        """Whether a file has content that was put aside before."""
        return _digest(path) in self._refused

    def refuse(self, path: Path) -> None:
        """Remember the content of a file that is put aside."""
        self._refused.add(_digest(path))

    def take(self, stamps: Mapping[str, Stamp]) -> None:
        """Read those that are not known yet."""
        if self._size >= _MAX_KEPT_BYTES:
            for gone in [path for path in self._contents if not os.path.lexists(path)]:
                self._size -= len(self._contents.pop(gone)[1])
        for path, stamp in stamps.items():
            known = self._contents.get(path)
            if (known is None or known[0] != stamp) and stamp[2] <= _MAX_CONTENT_BYTES and self._size < _MAX_KEPT_BYTES:
                with contextlib.suppress(OSError):
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        content = read_strange(path, _MAX_CONTENT_BYTES)
                        self._contents[path] = stamp, content
                        self._size += len(content) - (len(known[1]) if known is not None else 0)

    def give_back(self, path: Path, stamp: Stamp) -> None:
        """Write the content that a file had at `stamp`, if it is known."""
        known = self._contents.get(str(path))
        if known is not None and known[0] == stamp and not os.path.lexists(path):
            with contextlib.suppress(OSError):
                path.write_bytes(known[1])


def _digest(path: Path) -> bytes:
    try:
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else read_strange(path, _MAX_KEPT_BYTES)
    except OSError:
        content = b""
    return hashlib.sha256(content).digest()


def move_aside(path: Path) -> str:
    """Rename a file or folder; return its new name, empty when it is gone meanwhile or behind a link.

    `AGENTS.md` becomes `AGENTS.md.aside`, then `.aside2` and so on: nothing is overwritten.
    """
    if not _is_in_place(path):
        return ""
    reopen(path.parent)
    target = next(place for place in _names(path) if not os.path.lexists(place))
    try:
        path.rename(target)
    except OSError:  # another process has removed it meanwhile
        return ""
    return str(target)


def _is_in_place(path: Path) -> bool:
    """Whether no folder around a path is a link: what is behind one may be outside of the workspace."""
    return os.path.realpath(path.parent) == str(path.parent)


def reopen(folder: Path | str) -> None:
    """Give us access to a folder of our own: a command may have taken it away, so that nothing in it is put back.

    A folder behind a link stays as it is, for it may be outside of the workspace.
    """
    with contextlib.suppress(OSError):
        mode = os.lstat(folder).st_mode
        if not stat.S_ISDIR(mode) or mode & stat.S_IRWXU == stat.S_IRWXU:
            return
        if sys.platform != "linux":
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU, follow_symlinks=False)
            return
        place = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            link = f"/proc/self/fd/{place}"
            if os.readlink(link) == str(folder):
                os.chmod(link, stat.S_IMODE(os.fstat(place).st_mode) | stat.S_IRWXU)
        finally:
            os.close(place)


def reopen_repository(repository: Path) -> None:
    """Give us access to the folders of a repository, except those with what it stores."""
    waiting = [str(repository)]
    while waiting:
        place = waiting.pop()
        reopen(place)
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            waiting += [
                one.path for one in entries if one.is_dir(follow_symlinks=False) and one.name not in _DATA_FOLDERS
            ]


def _names(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.aside")
    yield from (path.with_name(f"{path.name}.aside{number}") for number in itertools.count(2))


def stamps_of(repository: Path) -> tuple[object, ...]:
    """Return the stamps of the files of a repository that start programs."""
    places = [repository / name for name in (*_RUNNING_PARTS, *_REBASE_FILES)]
    with contextlib.suppress(OSError):
        places += sorted((repository / "hooks").iterdir())
    return tuple((str(place), stamp_of(place)) for place in (repository, *places) if place.name != "hooks")[1:]


def contents_of(repository: Path) -> Contents:
    """Return the files of a repository that start programs; those of its worktrees and submodules, too."""
    found: dict[Path, tuple[bytes, int]] = {}
    places = [repository]
    for folder in _parts_of(repository):
        places += [folder / name for name in _RUNNING_PARTS if name != "hooks" or (folder / name).is_symlink()]
        with contextlib.suppress(OSError):
            places += [
                hook for hook in sorted((folder / "hooks").iterdir()) if not hook.name.endswith(_INACTIVE_SUFFIXES)
            ]
    for place in places:
        with contextlib.suppress(OSError):
            if place.is_symlink():
                found[place] = os.fsencode(os.readlink(place)), 0
            elif place.is_file():
                found[place] = b"", place.stat().st_mode  # a hook that cannot be read runs, too
                found[place] = read_strange(place, _MAX_KEPT_BYTES), place.stat().st_mode
    return found


def restore_repository(repository: Path, before: Contents) -> Iterator[str]:
    """Put aside what starts programs in a repository since `before`, and give changed files their earlier content.

    A configuration stays where what starts programs in it was there before; yield the new names.
    """
    if not _is_in_place(repository):
        return
    known = {_part_of(place) for place in before}
    fresh = [one for one in _parts_of(repository) if one != repository and one not in known]
    for folder in fresh:
        yield from clean_folder(folder)
    for place, (content, mode) in contents_of(repository).items():
        if _part_of(place) in fresh:
            continue
        earlier = before.get(place)
        is_config = place.name in ("config", "config.worktree") and mode  # 0 is a link, to any content
        if earlier == (content, mode) or (is_config and earlier and _runs_no_more(place.parent, earlier[0], content)):
            continue
        yield from _moved(place)
    for place, (content, mode) in before.items():
        if mode and _part_of(place).is_dir() and not os.path.lexists(place):  # put aside, or removed
            with contextlib.suppress(OSError):
                place.parent.mkdir(exist_ok=True)  # it was a link that is put aside now
                place.write_bytes(content)
                place.chmod(stat.S_IMODE(mode))


def rebases_of(repository: Path) -> Mapping[Path, bytes]:
    """Return the files of stopped rebases in a repository and in its worktrees, each with its content."""
    places = [folder / name for folder in _parts_of(repository) for name in _REBASE_FILES]
    return {place: _text(place).encode() for place in places if place.is_file()}


def restore_rebases(repository: Path, before: Mapping[Path, bytes]) -> Iterator[str]:
    """Take away the steps of a stopped rebase that would run a program and were not there before; yield new names."""
    for folder in _parts_of(repository) if _is_in_place(repository) else ():
        for place in (folder / name for name in _REBASE_FILES):
            yield from _clean_rebase(place, before.get(place, b""))


def _part_of(place: Path) -> Path:
    """Return the folder of git that a file which starts programs belongs to."""
    return place.parent.parent if place.parent.name in ("hooks", "info") else place.parent


def _runs_no_more(folder: Path, before: bytes, after: bytes) -> bool:
    """Whether the configuration of `folder` has no new line, in its section, that may start a program.

    Compared as sets of lines with their sections: a command may add a branch, or take away what runs.
    """

    def risky(content: bytes) -> set[str]:
        text = content.decode("utf-8", "surrogateescape")
        harmless, section, found = harmless_config(text, folder).splitlines(), "", set[str]()
        for line in text.splitlines():
            if _SECTION.fullmatch(line.strip()):
                section = line.strip()
            if harmless and line == harmless[0]:
                harmless.pop(0)
            else:
                found.add(f"{section}\n{line}")
        return found

    return risky(after) <= risky(before)


def _parts_of(repository: Path) -> Iterator[Path]:
    """Yield a repository and the folders of its worktrees and submodules, that git reads in the same way."""
    if repository.is_symlink() or not repository.is_dir():
        return
    yield repository
    for kind in _own_folders(repository):
        for place, folders, files in os.walk(kind):
            if "HEAD" in files:
                yield Path(place)
                folders[:] = [name for name in folders if name == "modules"]


def _own_folders(repository: Path) -> Iterator[Path]:
    """Yield the folders with worktrees and submodules, without links: behind one are repositories of others.

    A command cannot write to those, and must not make us do it. What it can write to is found by its `.git` file.
    """
    yield from (folder for kind in ("worktrees", "modules") if not (folder := repository / kind).is_symlink())


def clean_repository(
    repository: Path, roots: Collection[Path], own: Collection[Path], worktrees: Collection[Path]
) -> Iterator[str]:
    """Put aside what starts programs in a new repository; yield the new names.

    Its configuration keeps the keys that start none, so that it works as before. A `.git` file may name a folder
    outside of `roots`, one of the repositories in `own`, of their `worktrees` or submodules: those stay as they are.
    """
    if not _is_in_place(repository):
        return
    if repository.is_symlink():
        yield from _moved(repository)
    elif repository.is_file():
        target = _named_in(repository)
        if target is None or target in own or target in worktrees:
            return
        is_submodule = any(one / "modules" in target.parents for one in own)
        if not is_submodule and any(root in target.parents for root in roots) and target.is_dir():
            yield from clean_folder(target)
    else:
        yield from clean_folder(repository)
        for kind in _own_folders(repository):
            for place, folders, files in os.walk(kind):
                if "HEAD" in files:
                    yield from clean_folder(Path(place))
                    folders.clear()


def clean_folder(folder: Path) -> Iterator[str]:
    """Put aside what starts programs in a folder of git: a repository, or that of a worktree; yield the new names.

    Files named `*.sample` and `*.aside` stay: git runs no hook of these names.
    """
    for name in ("config", "config.worktree"):
        yield from _clean_config(folder / name)
    shared = folder / "commondir"
    is_worktree = folder.parent.name == "worktrees" and not shared.is_symlink() and _text(shared).strip() == "../.."
    if not is_worktree:
        yield from _moved(shared)
    yield from _moved(folder / "info" / "attributes")
    for name in _REBASE_FILES:
        yield from _clean_rebase(folder / name, b"")
    hooks = folder / "hooks"
    if hooks.is_symlink():
        yield from _moved(hooks)
        return
    with contextlib.suppress(OSError):
        for hook in sorted(hooks.iterdir()):
            if not hook.name.endswith(_INACTIVE_SUFFIXES):
                yield from _moved(hook)


def _clean_config(file: Path) -> Iterator[str]:
    """Put aside a configuration that may start a program; leave one with its other keys."""
    if not os.path.lexists(file):
        return
    text = "" if file.is_symlink() else _text(file)
    kept = harmless_config(text, file.parent)
    if file.is_symlink() or not text or kept != text:
        yield from _moved(file)
        with contextlib.suppress(OSError):
            file.write_text(kept, encoding="utf-8")


def _clean_rebase(file: Path, before: bytes) -> Iterator[str]:
    """Put aside a file of a stopped rebase that would run a program which it did not run before; leave its picks."""
    stamp = stamp_of(file)
    if stamp is None or (stamp[2] == 0 and not file.is_symlink()):
        return  # at its last step a rebase has an empty plan, and needs it to go on
    earlier = before.decode("utf-8", "replace").splitlines()
    lines = [] if file.is_symlink() else _text(file).splitlines()
    if file.name == "strategy":
        kept = [line for line in lines if line.strip() in _OWN_STRATEGIES or line in earlier]
    else:
        kept = [line for line in lines if not _STEP_THAT_RUNS.match(line) or line in earlier]
    if file.is_symlink() or kept != lines or not lines:
        yield from _moved(file)
        if kept:
            with contextlib.suppress(OSError):
                file.write_text("\n".join([*kept, ""]), encoding="utf-8")


def harmless_config(text: str, folder: Path) -> str:
    """Return the lines that start no program, of the git configuration in `folder`; `text` itself when all are such.

    Line by line: what cannot be read with certainty (a value over several lines, a lone carriage return) is not kept.
    """
    if "\r" in text.replace("\r\n", "") or "\0" in text:
        return ""
    lines, section, kept = text.splitlines(keepends=True), "", list[str]()
    continued = False
    for line in lines:
        bare = line.strip()
        follows, continued = continued, bare.endswith("\\")
        if follows or (continued and not bare.startswith(("#", ";"))):
            continue  # a value over several lines: no harmless key needs one
        if not bare or bare.startswith(("#", ";")):
            continued = False
            kept.append(line)
        elif header := _SECTION.fullmatch(bare):
            section = f"{header[1].lower()}.{header[2]}" if header[2] is not None else header[1].lower()
            kept.append(line)
        elif _is_harmless_line(section, bare, folder):
            kept.append(line)
    return "".join(kept)


def _is_harmless_line(section: str, line: str, folder: Path) -> bool:
    setting = _LINE.fullmatch(line)
    if setting is None or not section:
        return False
    key, value = setting[1].lower(), (setting[2] or "").translate(_QUOTES)
    if (section, key) == ("core", "worktree"):
        return _is_submodule_at(folder, value)
    is_known = _HARMLESS_KEYS.fullmatch(f"{section}.{key}") is not None
    return is_known and not _PROGRAM_KEY.search(key) and not _RUNNING_VALUE.match(value)


def _is_submodule_at(folder: Path, value: str) -> bool:
    """Whether `folder` is a submodule whose files are, by its configuration, below the repository that it is part of.

    Git sets it there. In another repository it sends the user's next `git checkout` to another folder.
    """
    whole = next((place for place in folder.parents if place.name == ".git"), None)
    if whole is None or "modules" not in folder.relative_to(whole).parts:
        return False
    return Path(os.path.normpath(folder / value)).is_relative_to(whole.parent)


def _moved(path: Path) -> Iterator[str]:
    """Rename a file; where its folder is a link, that link: the file behind it may be outside of the workspace."""
    path = path.parent if path.parent.is_symlink() else path
    if os.path.lexists(path) and (name := move_aside(path)):
        yield name


def _text(file: Path) -> str:
    try:
        content = read_strange(file, _MAX_CONTENT_BYTES + 1)
        return content.decode() if len(content) <= _MAX_CONTENT_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _named_in(file: Path) -> Path | None:
    """Return the folder that a `.git` file names."""
    text = _text(file).strip()
    return (file.parent / text.removeprefix("gitdir:").strip()).resolve() if text.startswith("gitdir:") else None
