"""Review of pending changes: accepting and rejecting per file, or a whole batch, all of it or none.

An acceptance is recorded before the disk is touched, and the disk is locked for it among all processes: one that a
crash interrupted is completed at the next access to the set. A change that another program made meanwhile is a
conflict, shown with the changes of both sides; nothing is changed then. Texts are merged by the diffs of both sides,
combined where they do not touch the same lines.

    mark `applying` in the store ── batch.apply on the disk ── drop the changes from the store
           crash here: nothing happened   │        crash here: `finish` applies again, which is the same
                                          └─ a conflict or an error takes the mark back
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from typing import Any, Final, Literal

from anyio import CancelScope
from msgspec.structs import replace

from ..core.workspace import PendingChange, PendingKey, PendingSet, PendingStore
from ..errors import ToolFailure
from .batch import MAX_BYTES, NOTHING, Change, Conflict, apply, state_of, sweep
from .disk import Tree, in_thread
from .nodes import digest_of_content, kind_of, look, read_file
from .paths import Place

_MAX_COMPARED_LINES: Final = 20_000
"""Lines up to which texts are compared: the work may grow with their square."""
_MAX_DIFF_LINES: Final = 400
"""Lines of a diff that are shown."""

_Edit = tuple[int, int, list[str]]

OnConflict = Literal["refuse", "merge", "overwrite"]
"""Handling of a file that changed on disk: refuse all, merge both changes, or apply the pending one."""
_logger = logging.getLogger(__name__)
_MAX_TRIES: Final = 20


def difference(old: bytes | None, new: bytes | None, path: str, sides: tuple[str, str] = ("disk", "pending")) -> str:
    """Return a unified diff for people; None means no file. A binary side is described by its size."""
    if old == new:
        return ""
    try:
        before, after = ("" if side is None else side.decode() for side in (old, new))
    except UnicodeDecodeError:
        before = None
        after = ""
    if before is None or "\0" in before + after or max(before.count("\n"), after.count("\n")) > _MAX_COMPARED_LINES:
        sizes = ["nothing" if side is None else f"{len(side):,} bytes" for side in (old, new)]
        return f"{path}: {sizes[0]} on {sides[0]}, {sizes[1]} {sides[1]}\n"
    names = ["/dev/null" if side is None else f"{path} ({name})" for side, name in zip((old, new), sides, strict=True)]
    lines = list(unified_diff(before.splitlines(), after.splitlines(), names[0], names[1], lineterm=""))
    left_out = len(lines) - _MAX_DIFF_LINES
    if left_out > 0:
        lines = [*lines[:_MAX_DIFF_LINES], f"… {left_out} more lines"]
    return "\n".join(lines) + "\n"


def merged(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return `base` with the changes of both sides; None where they touch the same lines, or it is binary.

    Three-way, by lines; edits that touch are a conflict.
    """
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    try:
        texts = [side.decode().splitlines(keepends=True) for side in (base, ours, theirs)]
    except UnicodeDecodeError:
        return None
    if any(len(lines) > _MAX_COMPARED_LINES for lines in texts):
        return None
    edits = _group_edits(_edits(texts[0], texts[1]), _edits(texts[0], texts[2]))
    if edits is None:
        return None
    result: list[str] = []
    place = 0
    for start, end, lines in edits:
        result += [*texts[0][place:start], *lines]
        place = end
    return "".join([*result, *texts[0][place:]]).encode()


def _edits(base: Sequence[str], side: Sequence[str]) -> list[_Edit]:
    """Return the edits of one side: first and last line in the base, and the new lines."""
    codes = SequenceMatcher(None, base, side, autojunk=False).get_opcodes()
    return [(start, end, list(side[low:high])) for tag, start, end, low, high in codes if tag != "equal"]


def _group_edits(ours: Sequence[_Edit], theirs: Sequence[_Edit]) -> list[_Edit] | None:
    """Return the edits of both in order; None where two that differ touch or overlap."""
    edits: list[_Edit] = []
    for edit in sorted((*ours, *theirs), key=lambda edit: edit[:2]):
        if edits and edit == edits[-1]:
            continue
        if edits and edit[0] <= edits[-1][1]:
            return None
        edits.append(edit)
    return edits


def chosen(tree: Tree, waiting: PendingSet, paths: Collection[str] | None) -> tuple[PendingChange, ...]:
    """Return the changes at and below `paths`, all for None, with the folders that they need.

    Raises `ToolFailure("not_found")` for a path at which nothing waits.
    """
    if paths is None:
        return waiting.changes
    wanted: set[str] = set()
    for path in paths:
        place = tree.place(path)
        found = [change.path for change in waiting.changes if Path(change.path).is_relative_to(place.path)]
        if not found:
            raise ToolFailure("not_found", f"nothing waits for review at {place.shown}")
        wanted.update(found)
    above = {str(parent) for path in wanted for parent in Path(path).parents}
    return tuple(change for change in waiting.changes if change.path in wanted | above)


async def accept(
    tree: Tree,
    store: PendingStore,
    key: PendingKey,
    paths: Collection[str] | None = None,
    *,
    on_conflict: OnConflict = "refuse",
) -> list[str]:
    """Apply changes to the disk, all of them or none; return their paths.

    Raises `ToolFailure`: `conflict` with the changes of both sides, `not_found` for a path without a pending change,
    and errors of the disk.

    The disk is not touched before the mark is durable. Shielded from there on, as half of it must not stay.
    """
    await finish(tree, store, key)
    async with locked(tree):
        taken = chosen(tree, await store.get(key), paths)
        contents = await _contents(store, key, taken)
        accepted, held = taken, contents
        if on_conflict == "merge":
            contents |= {change.before: await store.content(key, change.before) for change in taken if change.before}
            accepted, held = await _merged(tree, taken, contents)
        todo = await in_thread(_plan_changes, tree, accepted, held, on_conflict == "overwrite")
        marked = tuple(replace(change, applying=True) for change in accepted)
        new = {digest: content for digest, content in held.items() if digest not in contents}
        with CancelScope(shield=True):
            await _exchange(store, key, dict(zip(taken, marked, strict=True)), new)
            try:
                await in_thread(apply, todo)
            except BaseException as error:
                await _exchange(store, key, dict(zip(marked, taken, strict=True)), contents)
                if isinstance(error, Conflict):
                    raise await _conflict(store, key, taken, error) from error
                raise
            await _settle(store, key, marked)
    return [tree.place(change.path).shown for change in taken if not change.implied]


async def reject(tree: Tree, store: PendingStore, key: PendingKey, paths: Collection[str] | None = None) -> list[str]:
    """Discard changes; return their paths. Changes below a rejected folder are discarded with it.

    Raises `ToolFailure("not_found")` for a path without a pending change.
    """
    await finish(tree, store, key)
    taken: set[PendingChange] = set()

    def left(changes: tuple[PendingChange, ...]) -> list[PendingChange]:
        waiting = PendingSet(key=key, changes=changes)
        above = {str(parent) for path in paths or () for parent in tree.place(path).path.parents}
        taken.update(change for change in chosen(tree, waiting, paths) if change.path not in above)
        kept = [change for change in changes if change not in taken]
        while empty := {change for change in kept if change.implied and not _holds(change, kept)}:
            kept = [change for change in kept if change not in empty]
            taken.update(empty)
        return kept

    await _update(store, key, left)
    return sorted(tree.place(change.path).shown for change in taken if not change.implied)


async def diff(tree: Tree, store: PendingStore, key: PendingKey, change: PendingChange) -> str:
    """Return the effect of a change on the present disk, as a unified diff."""
    place = tree.place(change.path)
    there = await in_thread(_on_disk, place)
    if change.kind == "folder":
        return f"{place.shown}/ is a new folder\n"
    new = await store.content(key, change.content) if change.kind == "file" else None
    if change.kind == "gone" and change.base.startswith("folder"):
        return f"{place.shown}/ is removed with all that is in it\n"
    return difference(there, new, place.shown)


async def finish(tree: Tree, store: PendingStore, key: PendingKey) -> None:
    """Bring an acceptance to its end that was interrupted; one that still runs is waited for.

    Where the disk refuses, its changes wait as before.

    Applying is repeatable: a change that the disk has already is left out (`_plan_changes`).
    """
    if not any(change.applying for change in (await store.get(key)).changes):
        return
    async with locked(tree):
        marked = tuple(change for change in (await store.get(key)).changes if change.applying)
        contents = await _contents(store, key, marked)
        with CancelScope(shield=True):
            try:
                todo = await in_thread(_plan_changes, tree, marked, contents, True)
                await in_thread(sweep, [Change(place=tree.place(change.path)) for change in marked])
                await in_thread(apply, todo)
            except ToolFailure:
                _logger.exception("an acceptance that was interrupted cannot be brought to its end")
                await _exchange(store, key, {change: replace(change, applying=False) for change in marked}, {})
            else:
                await _settle(store, key, marked)


@contextlib.asynccontextmanager
async def locked(tree: Tree) -> AsyncGenerator[None]:
    """Hold the first root for one acceptance alone, among all processes; the system frees it when we end.

    `flock` on the first root; other programs that write there do not ask for it, and are found by the states.
    """
    descriptor = await in_thread(os.open, tree.roots.all[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        await in_thread(fcntl.flock, descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _plan_changes(
    tree: Tree, taken: Sequence[PendingChange], contents: Mapping[str, bytes], whatever_is_there: bool
) -> list[Change]:
    """Return the changes to make on the disk. A change that the disk already has is left out, and is not a conflict."""
    states = {change: state_of(tree.writable(change.path)) for change in taken}
    replaced = {Path(change.path) for change in taken if _replaces(change, states[change])}
    todo: list[Change] = []
    for change in taken:
        place, state = tree.writable(change.path), states[change]
        is_inside = any(parent in replaced for parent in place.path.parents)
        if not is_inside and change.kind != "folder" and state == change.content:
            continue  # a removed file has empty content, and a missing file an empty state
        is_free = whatever_is_there or is_inside or _is_new_folder(change)
        mode = None if change.mode < 0 else change.mode
        todo.append(
            Change(
                place=place,
                content=contents[change.content] if change.kind == "file" else None,
                folder=change.kind == "folder",
                mode=mode,
                expected=None if is_free else change.base,
                replaces=_replaces(change, state),
            )
        )
    return todo


def _replaces(change: PendingChange, state: str) -> bool:
    """Whether something else than a file must make way: the states of files are digests, of one word."""
    if change.kind == "gone" or _is_new_folder(change):
        return False
    return state != NOTHING if change.kind == "folder" else " " in state


def _is_new_folder(change: PendingChange) -> bool:
    """Whether it only makes a folder: a folder that was made meanwhile is harmless."""
    return change.kind == "folder" and change.base == NOTHING


async def _contents(store: PendingStore, key: PendingKey, taken: Sequence[PendingChange]) -> dict[str, bytes]:
    digests = {change.content for change in taken if change.kind == "file"}
    return {digest: await store.content(key, digest) for digest in digests}


async def _merged(
    tree: Tree, taken: Sequence[PendingChange], contents: Mapping[str, bytes]
) -> tuple[tuple[PendingChange, ...], dict[str, bytes]]:
    """Return the changes merged with those that other programs made to the same files, if possible."""
    after: list[PendingChange] = []
    held = dict(contents)
    for change in taken:
        theirs = await in_thread(_on_disk, tree.place(change.path))
        if change.kind == "file" and change.before and theirs is not None and digest_of_content(theirs) != change.base:
            both = merged(held[change.before], held[change.content], theirs)
            if both is not None:
                held |= {digest_of_content(both): both, digest_of_content(theirs): theirs}
                was = digest_of_content(theirs)
                change = replace(change, content=digest_of_content(both), size=len(both), base=was, before=was)
        after.append(change)
    return tuple(after), held


async def _conflict(
    store: PendingStore, key: PendingKey, taken: Sequence[PendingChange], conflict: Conflict
) -> ToolFailure:
    """Return the failure with the changes of both sides."""
    by_path = {change.path: change for change in taken}
    details: list[dict[str, Any]] = []
    for change in conflict.changes:
        waiting, path = by_path[str(change.place.path)], change.place.shown
        theirs = await in_thread(_on_disk, change.place)
        detail: dict[str, Any] = {"path": path, "can_merge": False}
        if waiting.before:
            base = await store.content(key, waiting.before)
            detail["disk"] = difference(base, theirs, path, ("before", "disk"))
            detail["pending"] = difference(base, change.content, path, ("before", "pending"))
            if theirs is not None and change.content is not None:
                detail["can_merge"] = merged(base, change.content, theirs) is not None
        details.append(detail)
    names = ", ".join(change.place.shown for change in conflict.changes)
    hint = "nothing was changed; reject these, or accept with on_conflict `merge` or `overwrite`"
    message = f"changed on the disk since the pending change was made: {names}"
    return ToolFailure("conflict", message, hint=hint, details={"conflicts": details})


def _on_disk(place: Place) -> bytes | None:
    """Return the content of a file on the disk; None for anything else."""
    found = look(place)
    return None if found is None or kind_of(found) != "file" else read_file(place, MAX_BYTES, many_names=True)[0]


def _holds(folder: PendingChange, changes: Sequence[PendingChange]) -> bool:
    return any(Path(folder.path) in Path(change.path).parents for change in changes)


async def _exchange(
    store: PendingStore, key: PendingKey, new: Mapping[PendingChange, PendingChange], contents: Mapping[str, bytes]
) -> None:
    """Replace changes by others. Raises `ToolFailure("conflict")` when one of the old ones no longer exists."""

    def exchanged(changes: tuple[PendingChange, ...]) -> list[PendingChange]:
        if not set(new) <= set(changes):
            raise ToolFailure(
                "conflict", "the changes were changed while they were accepted", hint="look at them again"
            )
        return [new.get(change, change) for change in changes]

    await _update(store, key, exchanged, contents)


async def _settle(store: PendingStore, key: PendingKey, done: Sequence[PendingChange]) -> None:
    """Drop applied changes. Later changes to the same files stay, as changes of the new disk state."""
    by_path = {change.path: change for change in done}

    def left(changes: tuple[PendingChange, ...]) -> list[PendingChange]:
        kept: list[PendingChange] = []
        for change in changes:
            one = by_path.get(change.path)
            if one is None:
                kept.append(change)
            elif one != change and not (change.kind == "gone" and one.kind == "gone"):
                kept.append(replace(change, base=one.content, before="", applying=False))
        return kept

    await _update(store, key, left)


async def _update(
    store: PendingStore,
    key: PendingKey,
    edit: Callable[[tuple[PendingChange, ...]], Sequence[PendingChange]],
    contents: Mapping[str, bytes] | None = None,
) -> None:
    """Write the set down as `edit` makes it of the newest one; again when another writer was faster.

    Optimistic: the version of the set is its guard; `edit` may be called several times.
    """
    for _ in range(_MAX_TRIES):
        now = await store.get(key)
        changes = tuple(edit(now.changes))
        if changes == now.changes or await store.replace(
            replace(now, version=now.version + 1, changes=changes), contents or {}
        ):
            return
    raise ToolFailure("conflict", "others changed the same files all the time", hint="try again")
