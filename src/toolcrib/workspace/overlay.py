"""Overlay of pending changes over the disk: a session's view of its files, and the record of each change.

One rule holds: a change at a path hides the disk at and below it. A folder that was removed and made again is therefore
empty, and writing below a removed folder makes that folder anew.

    disk            as it is, and stays
    changes         path → file (content by digest), folder, or gone; with `base`, the state that it was made for
    the session     sees the disk where no change is at or above a path

`base` is the state of the disk when the first change of a path was made; later changes of the path keep it. The review
compares it with the disk to find conflicts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..core.workspace import MAX_PENDING, FileEntry, PendingChange, Written
from ..errors import ToolFailure
from .batch import MAX_BYTES, NOTHING, state_of
from .disk import Tree, check_into_itself, check_size
from .nodes import Kind, digest_of_content, kind_of, look, read_file, scan, translated_errors
from .paths import Place

_MAX_BASE_BYTES: Final = 1 << 20
"""Maximum bytes of a replaced file whose content is kept, to show the changes of both sides."""


class Seen(Struct, frozen=True, kw_only=True):
    """State of a place as the session sees it."""

    kind: Kind
    change: PendingChange | None = None
    state: os.stat_result | None = None
    """Of the disk, where no change hides it."""


class Overlay:
    """One set of changes over one tree, from when it was read until it is written. Blocking; used by one thread.

    Nothing is stored here: `PendingWorkspace` writes `changes` and the new `contents` down.
    """

    def __init__(self, tree: Tree, changes: Iterable[PendingChange]) -> None:
        """`changes` are those that wait now; `changes` of the overlay are those that shall wait."""
        self.tree = tree
        self.changes = {Path(change.path): change for change in changes}
        self.contents: dict[str, bytes] = {}
        """Contents of the changes made here, by digest."""

    def at(self, place: Place) -> Seen | None:
        """Return the state of a place; None if missing."""
        change = self.changes.get(place.path)
        if change is not None:
            return None if change.kind == "gone" else Seen(kind=change.kind, change=change)
        found = None if self.hides(place) else look(place)
        if found is not None:
            return Seen(kind=kind_of(found), state=found)
        return Seen(kind="folder") if any(self.below(place)) else None

    def stat(self, place: Place) -> FileEntry | None:
        """Return the entry of a place; None if missing."""
        seen = self.at(place)
        return None if seen is None else self.entry(place, seen)

    def hides(self, place: Place) -> bool:
        """Whether a change of a folder above keeps the disk's content from being seen."""
        return bool(self.changes) and any(parent in self.changes for parent in _above(place))

    def below(self, place: Place) -> Iterator[PendingChange]:
        """Yield the changes below a place after which something is there."""
        path = place.path
        for inner, change in self.changes.items():
            if change.kind != "gone" and path in inner.parents:
                yield change

    def entry(self, place: Place, seen: Seen) -> FileEntry:
        """Return the entry that tools get for a state."""
        if seen.state is not None:
            return self.tree.entry(place, seen.state)
        change = seen.change
        size, modified = (change.size, change.changed) if change else (0, 0.0)
        return FileEntry(path=place.shown, kind=seen.kind, size=size, modified=modified, pending=True)

    def list(self, place: Place) -> list[FileEntry]:
        """Return the entries of a folder, by name."""
        seen = self.must_be_folder(place)
        names: set[str] = set()
        if seen.state is not None:
            with translated_errors(place):
                names = {name for name, _ in scan(place.root, place.steps)}
        depth = len(place.path.parts)
        names |= {Path(change.path).parts[depth] for change in self.below(place)}
        found = ((inner, self.at(inner)) for name in sorted(names) if (inner := self._inner(place, name)))
        return [self.entry(inner, one) for inner, one in found if one is not None and not self.tree.is_ours(inner)]

    def walk(self, place: Place, *, hidden: bool, limit: int) -> list[FileEntry]:
        """Return the files below a folder that may be read, at most `limit`, by path."""
        seen = self.must_be_folder(place)
        entries: list[FileEntry] = []
        for change in self.below(place):
            inner = self.place_of(change)
            if change.kind == "file" and self._is_walked(place, inner, hidden=hidden):
                entries.append(self.entry(inner, Seen(kind="file", change=change)))
        if seen.state is not None:
            for inner, state in self.tree.files(place, hidden=hidden):
                if len(entries) >= limit:
                    break
                if inner.path not in self.changes and not self.hides(inner):
                    entries.append(self.tree.entry(inner, state))
        return sorted(entries, key=lambda entry: entry.path)[:limit]

    def put(self, place: Place, content: bytes, *, mode: int = -1) -> Written:
        """Write a file down."""
        check_size(place, content)
        seen = self.at(place)
        if seen is not None:
            if seen.state is not None:
                self.tree.must_be_plain(place)
            elif seen.kind != "file":
                raise ToolFailure("tool_error", f"{place.shown} is a folder")
        self._make_parents(place)
        if mode < 0 and seen is not None and seen.change is not None:
            mode = seen.change.mode
        elif mode < 0 and seen is not None and seen.state is not None:
            mode = seen.state.st_mode & 0o777
        self._note(place, "file", content=self._keep(content), size=len(content), mode=mode)
        return Written(path=place.shown, created=seen is None, size=len(content), pending=True)

    def remove(self, place: Place, *, recursive: bool) -> list[Written]:
        """Record the removal of a file, a link or a folder with its whole tree."""
        seen = self.at(place)
        if seen is None:
            raise self.tree.not_there(place)
        gone = [place]
        if seen.kind == "folder":
            gone = [inner for inner, one in self._all_below(place) if one.kind != "folder"]
            if seen.state is not None:
                self.tree.changeable(place)
            if not recursive and self.list(place):
                raise ToolFailure(
                    "tool_error", f"{place.shown} is a folder with something in it", hint="recursive=true"
                )
        self._take_away(place)
        return [Written(path=one.shown, created=False, size=0, pending=True) for one in gone]

    def move(self, old: Place, new: Place, contents: Mapping[str, bytes]) -> Written:
        """Write down that a file or folder moves; `contents` holds those of pending files, by digest."""
        seen = self.at(old)
        if seen is None:
            raise self.tree.not_there(old)
        check_into_itself(old, new)
        if self.at(new) is not None:
            raise ToolFailure("tool_error", f"{new.shown} is there already")
        if seen.kind == "folder" and seen.state is not None:
            self.tree.changeable(old)
        moved = [(old, seen), *(self._all_below(old) if seen.kind == "folder" else ())]
        carried: list[tuple[Place, bytes | None, int]] = []
        size = 0
        for place, one in moved:
            target = self.tree.writable(str(new.path.joinpath(*place.steps[len(old.steps) :])))
            if one.kind not in ("file", "folder"):
                raise ToolFailure("denied", f"{place.shown} is not a regular file, and was not moved")
            content, mode = self._content(place, one, contents) if one.kind == "file" else (None, -1)
            size += len(content or b"")
            if size > MAX_PENDING:
                raise ToolFailure("too_large", f"{old.shown} holds more than {MAX_PENDING >> 20} MiB")
            carried.append((target, content, mode))
        self._take_away(old)
        for target, content, mode in carried:
            if content is None:
                self.make_folder(target)
            else:
                self.put(target, content, mode=mode)
        return Written(path=new.shown, created=True, size=size if seen.kind == "file" else 0, pending=True)

    def make_folder(self, place: Place) -> None:
        """Write down a folder and those above it."""
        seen = self.at(place)
        if seen is not None:
            self.must_be_folder(place)
            return
        self._make_parents(place)
        self._note(place, "folder")

    def needed(self, place: Place) -> list[str]:
        """Return the digests of the pending files at and below a place: the contents that a move carries."""
        path = place.path
        return [
            change.content
            for inner, change in self.changes.items()
            if change.kind == "file" and (inner == path or path in inner.parents)
        ]

    def hidden_files(self, place: Place) -> list[Place]:
        """Return the files on disk at and below a place that the changes remove or replace."""
        found: list[Place] = []
        for path in self.changes:
            inner = self.place_of(self.changes[path])
            if (path == place.path or place.path in path.parents) and not self.hides(inner):
                found += self._on_disk(inner)
        return found

    def must_be_folder(self, place: Place) -> Seen:
        """Return the node; raises `ToolFailure("tool_error")` unless it is a folder."""
        seen = self.at(place)
        if seen is None:
            raise self.tree.not_there(place)
        if seen.kind != "folder":
            raise ToolFailure("tool_error", f"{place.shown} is not a folder")
        return seen

    def place_of(self, change: PendingChange) -> Place:
        """Return the place of a change. Raises `ToolFailure` when the workspace has changed so that it is outside."""
        return self.tree.place(change.path)

    def _inner(self, place: Place, name: str) -> Place:
        return self.tree.roots.at(place.root, (*place.steps, name))

    def _is_walked(self, top: Place, place: Place, *, hidden: bool) -> bool:
        """Whether a walk from `top` comes by: no step on the way is left out."""
        first = len(top.steps) + 1
        return not any(
            self.tree.is_left_out(place.root, place.steps[:count], hidden=hidden)
            for count in range(first, len(place.steps) + 1)
        )

    def _all_below(self, place: Place) -> Iterator[tuple[Place, Seen]]:
        """Yield every visible entry below a folder, each folder before its content."""
        for entry in self.list(place):
            inner = self._inner(place, Path(entry.path).name)
            seen = self.at(inner)
            if seen is None:
                continue
            yield inner, seen
            if seen.kind == "folder":
                yield from self._all_below(inner)

    def _on_disk(self, place: Place) -> list[Place]:
        found = look(place)
        if found is None:
            return []
        if kind_of(found) != "folder":
            return [place]
        return [inner for inner, _ in self.tree.files(place, hidden=True)]

    def _content(self, place: Place, seen: Seen, contents: Mapping[str, bytes]) -> tuple[bytes, int]:
        if seen.change is None:
            return self.tree.read(str(place.path))
        digest = seen.change.content
        return self.contents[digest] if digest in self.contents else contents[digest], seen.change.mode

    def _make_parents(self, place: Place) -> None:
        """Note missing folders above a place as `implied`: they are accepted and rejected with their contents."""
        for count in range(1, len(place.steps)):
            parent = self.tree.roots.at(place.root, place.steps[:count])
            seen = self.at(parent)
            if seen is None:
                self._note(parent, "folder", implied=True)
            elif seen.kind == "link":
                raise ToolFailure("denied", f"{parent.shown} is a link, and links are not followed")
            elif seen.kind != "folder":
                raise ToolFailure("tool_error", f"{parent.shown} is not a folder")

    def _take_away(self, place: Place) -> None:
        """Replace the changes at and below a place by its removal, which is a change only of what the disk has."""
        path = place.path
        base, before = self._base(place)
        for inner in [inner for inner in self.changes if path == inner or path in inner.parents]:
            del self.changes[inner]
        if base != NOTHING:
            self.changes[path] = PendingChange(
                path=str(path), kind="gone", base=base, before=before, changed=time.time()
            )

    def _note(self, place: Place, kind: str, *, implied: bool = False, **values: object) -> None:
        """Write a change down. One that leaves everything as the disk has it is dropped.

        A file that gets its old content back is not a change any more.
        """
        base, before = self._base(place)
        change = PendingChange(
            path=str(place.path), kind="folder" if kind == "folder" else "file", base=base, before=before
        )
        change = replace(change, implied=implied, changed=time.time(), **values)
        if change.kind == "file" and change.content == base and not self.hides(place):
            self.changes.pop(place.path, None)
        else:
            self.changes[place.path] = change

    def _base(self, place: Place) -> tuple[str, str]:
        """Return the state that a change at a place is made for, and the digest of the content that is there."""
        change = self.changes.get(place.path)
        if change is not None:
            return change.base, change.before
        if self.hides(place):
            return NOTHING, ""
        found = look(place)
        if found is None:
            return NOTHING, ""
        if kind_of(found) != "file":
            return state_of(place), ""
        content, _ = read_file(place, MAX_BYTES, many_names=True)
        digest = digest_of_content(content)
        if len(content) > _MAX_BASE_BYTES:
            return digest, ""
        self.contents[digest] = content
        return digest, digest

    def _keep(self, content: bytes) -> str:
        digest = digest_of_content(content)
        self.contents[digest] = content
        return digest


def _above(place: Place) -> Iterator[Path]:
    """Yield the folders between a place and its root, which no change can be at."""
    path = place.path
    for _ in place.steps[1:]:
        path = path.parent
        yield path
