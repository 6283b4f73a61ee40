"""The changes of files that wait for review, for whoever decides on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import Settings
from ..core.file_changes import PendingChange, PendingSet, PendingStore
from ..core.session import LOCAL
from ..errors import ToolFailure
from ..workspace.paths import Roots
from ..workspace.protected_names import Guard
from ..workspace.review import OnConflict, accept, diff, reject
from ..workspace.tree import Tree

__all__ = ["FileChanges", "PendingFile", "guard_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFile:
    """One change that waits for review."""

    path: str
    """Relative to the workspace where it lies below it."""
    kind: str
    """`file`, `folder` or `gone`."""
    size: int
    changed: float
    """Seconds since 1970."""
    owner: str
    """`session <key>` or `task <id>`."""
    workspace: str
    files: str
    """`review` or `audit`: how it was made."""


class FileChanges:
    """The changes of a principal that wait for review. Lives as long as its crib.

    Every method takes the session or task whose changes are meant; where only one of this workspace has any, none need
    be named.
    """

    def __init__(self, store: PendingStore, guard: Guard) -> None:
        """`store` keeps them."""
        self._store = store
        self._guard = guard

    async def list(self, *, owner: str = "", principal: str = LOCAL) -> Sequence[PendingFile]:
        """Return what waits, by owner and path; folders that were made on the way to a file are left out."""
        found: list[PendingFile] = []
        for one in await self._store.sets(principal):
            if owner in ("", one.key.owner):
                found += [_told(one, change) for change in one.changes if not change.implied]
        return found

    async def diff(self, path: str = "", *, owner: str = "", principal: str = LOCAL) -> str:
        """Return what the changes at and below `path`, or all, do to the disk as it is now, as unified diffs."""
        waiting, tree = await self._of(owner, principal)
        named = [change for change in waiting.changes if not change.implied]
        if path:
            place = tree.place(path).path
            named = [change for change in named if Path(change.path).is_relative_to(place)]
        if not named:
            raise ToolFailure("not_found", f"nothing waits for review at {path or 'all'}")
        return "".join([await diff(tree, self._store, waiting.key, change) for change in named])

    async def accept(
        self,
        *paths: str,
        owner: str = "",
        principal: str = LOCAL,
        on_conflict: OnConflict = "refuse",
    ) -> Sequence[str]:
        """Let changes take place on the disk, all of them or none; return the paths. Without `paths` it is the batch.

        Raises `ToolFailure`: `conflict` for files that changed underneath, with what both sides did in its details,
        and `not_found` for a path at which nothing waits.
        """
        waiting, tree = await self._of(owner, principal)
        return await accept(tree, self._store, waiting.key, paths or None, on_conflict=on_conflict)

    async def reject(self, *paths: str, owner: str = "", principal: str = LOCAL) -> Sequence[str]:
        """Forget changes; return the paths. Without `paths` it is the batch. Raises `ToolFailure("not_found")`."""
        waiting, tree = await self._of(owner, principal)
        return await reject(tree, self._store, waiting.key, paths or None)

    async def _of(self, owner: str, principal: str) -> tuple[PendingSet, Tree]:
        """Return the one set that is meant, and its files."""
        sets = [one for one in await self._store.sets(principal) if owner in ("", one.key.owner)]
        if not sets:
            raise ToolFailure("not_found", f"nothing waits for review{f' of {owner}' if owner else ''}")
        if len(sets) > 1:
            owners = ", ".join(one.key.owner for one in sets)
            raise ToolFailure("invalid_arguments", f"several have changes that wait: {owners}", hint="name one of them")
        return sets[0], Tree(Roots(*map(Path, sets[0].key.workspace.split("\n"))), self._guard)


def guard_of(settings: Settings) -> Guard:
    """Return what keeps names from tools in this configuration: its own patterns, and folders of ours."""
    spec, own = settings.workspace, settings.directories
    system = (Path("/proc"), Path("/sys"), Path("/dev"))
    return Guard(spec.guarded, spec.hard_links, (own.config, own.data, own.state, own.cache, own.runtime, *system))


def _told(waiting: PendingSet, change: PendingChange) -> PendingFile:
    path, root = Path(change.path), Path(waiting.key.workspace.partition("\n")[0])
    return PendingFile(
        path=str(path.relative_to(root)) if path.is_relative_to(root) else change.path,
        kind=change.kind,
        size=change.size,
        changed=change.changed,
        owner=waiting.key.owner,
        workspace=str(root),
        files=waiting.files,
    )
