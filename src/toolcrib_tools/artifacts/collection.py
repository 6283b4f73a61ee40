"""Tracked files of one project and their review state: a review is due when an input of the file has changed.

A change is noticed from the files themselves: the digest of each file that an artifact was made from is kept when the
artifact is tracked or looked at again, and compared with the present file at every query.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, Record, Records, ToolFailure, Workspace, nearest, unshown

from .._records import Values, change, date_of, names_of, project_of
from .._workspace.place import name_of, workspace_of

ArtifactType = Literal["document", "test", "config", "code", "schema", "script", "data", "other"]

MOST_RELATED: Final = 100
"""Files that one artifact was made from."""
_MOST: Final = 1_000
"""Artifacts of one project."""
_MOST_BYTES: Final = 16 << 20
"""Bytes of a file that is hashed; of a larger one size and time are compared."""
_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")
"""A digest without digits: a run of them may look like the number of a card, which no record keeps."""
_FLAGS: Final = 20
"""Reasons that one artifact keeps; the oldest go first."""


class Review(TypedDict):
    """The last look at an artifact."""

    time: str
    outcome: Literal["updated", "unchanged"]
    notes: str


class Artifact(TypedDict):
    """A file that was made, and how it stands."""

    path: str
    artifact_type: ArtifactType
    description: str
    tags: list[str]
    notes: str
    related_to: Annotated[list[str], Field(description="The files that it was made from.")]
    status: Literal["current", "needs_review"]
    reasons: Annotated[list[str], Field(description="Why it needs a look.")]
    changed: Annotated[bool, Field(description="It is not what it was when it was tracked or looked at.")]
    tracked: str
    reviewed: Review | None


class Artifacts(Struct, frozen=True, kw_only=True):
    """The artifacts that the caller tracks in a project. Lives as long as a call."""

    records: Records
    workspace: Workspace
    project: str

    @classmethod
    def of(cls, ctx: Context) -> Artifacts:
        """Return the artifacts of the calling session. Raises `ToolFailure` without a workspace."""
        return cls(records=ctx.records("artifacts"), workspace=workspace_of(ctx), project=project_of(ctx, ""))

    async def all(self) -> list[Record]:
        """Return all of them, by path."""
        found = await self.records.list(group=self.project, limit=_MOST)
        return sorted(found, key=lambda record: record.value["path"])

    def name(self, path: str) -> str:
        """Return the workspace's own spelling of a path."""
        return name_of(self.workspace, path)

    async def find(self, path: str) -> Record:
        """Return the one at a path; raises `ToolFailure` with the nearest that are tracked."""
        name = self.name(path)
        found = await self.records.get(self._id(name))
        if found is None:
            known = [record.value["path"] for record in await self.all()]
            near = nearest(name, known)
            hint = f"did you mean {', '.join(near)}?" if near else f"tracked: {names_of(known)}"
            raise ToolFailure("not_found", f"{name!r} is not tracked", hint=hint)
        return found

    async def add(self, value: Values) -> Record:
        """Keep a new one. Raises `ToolFailure` for one that is tracked already, and one too many."""
        if len(await self.all()) >= _MOST:
            raise ToolFailure("too_large", f"{_MOST:,} files are tracked already", hint="untrack_artifact makes room")

        def make(before: Values | None) -> Values:
            if before is not None:
                raise ToolFailure(
                    "tool_error", f"{value['path']!r} is tracked already", hint="update_tracked_artifact changes it"
                )
            return {**value, "flags": [], "reviewed": None}

        return await change(self.records, self._id(value["path"]), make, group=self.project)

    async def edit(self, record: Record, **changes: Any) -> Record:
        """Keep changes of one; `flag` adds a reason, `flags=()` takes all away."""

        def make(before: Values | None) -> Values:
            if before is None:
                raise ToolFailure("conflict", f"{record.value['path']!r} is not tracked any more")
            rest = dict(changes)
            added = [rest.pop("flag")] if "flag" in rest else []
            flags = [one for one in rest.pop("flags", before["flags"]) if one not in added]
            return {**before, **rest, "flags": [*flags, *added][-_FLAGS:]}

        return await change(self.records, record.id, make, group=self.project)

    async def review(self, record: Record, notes: str, was_updated: bool | None) -> Record:
        """Record the inputs of an artifact as they are now; no review is due after that."""
        value = record.value
        related = related_of(record)
        now = await digests(self.workspace, [value["path"], *related])
        was_changed = now[value["path"]] != value["digest"] if was_updated is None else was_updated
        return await self.edit(
            record,
            flags=(),
            digest=now[value["path"]],
            related=[(path, now[path]) for path in related],
            reviewed={"time": time.time(), "outcome": "updated" if was_changed else "unchanged", "notes": notes},
        )

    async def remove(self, record: Record) -> None:
        """Track one no longer."""
        await self.records.remove(record.id)

    async def describe(self, records: Sequence[Record]) -> list[Artifact]:
        """Return their state, after a look at their files and at what they were made from."""
        paths = {path for record in records for path in (record.value["path"], *related_of(record))}
        now = await digests(self.workspace, paths)
        return [_to_artifact(record, now) for record in records]

    def dependents(self, records: Iterable[Record], path: str) -> list[Record]:
        """Return the artifacts that were made from the file at a path, a spelling of the workspace."""
        return [record for record in records if path in related_of(record)]

    def _id(self, name: str) -> str:
        return f"{self.project}\n{name}"


async def digests(workspace: Workspace, paths: Iterable[str]) -> dict[str, str]:
    """Return the digests of files, by path; empty for one that is missing or unreadable."""
    wanted = list(dict.fromkeys(paths))
    contents = await unshown(workspace).read_many(wanted, limit=_MOST_BYTES)
    found: dict[str, str] = {}
    for path, content in zip(wanted, contents, strict=True):
        if not isinstance(content, ToolFailure):
            found[path] = hashlib.sha256(content).hexdigest()[:32].translate(_LETTERS)
        elif content.code == "too_large" and (entry := await workspace.stat(path)) is not None:
            found[path] = f"{entry.size} bytes of {entry.modified}"
        else:
            found[path] = ""
    return found


def related_of(record: Record) -> Mapping[str, str]:
    """Return the files that an artifact was made from, with their digests of then.

    They are kept as pairs: of a mapping, what stands under the name of a file may be taken for a secret of that name.
    """
    return dict(record.value["related"])


def paths_of(path: str, paths: Sequence[str]) -> list[str]:
    """Resolve the paths of an argument. Raises `ToolFailure` if there are none."""
    given = [path, *paths] if path.strip() else list(paths)
    wanted = list(dict.fromkeys(given))
    if not wanted:
        raise ToolFailure("invalid_arguments", "path: is missing", hint="give path, or paths for several")
    return wanted


def _to_artifact(record: Record, now: Mapping[str, str]) -> Artifact:
    value = record.value
    reasons: list[str] = list(value["flags"])
    for path, digest in related_of(record).items():
        if now[path] != digest:
            reasons.append(f"{path} has changed since" if now[path] else f"{path} is not there any more")
    if not now[value["path"]]:
        reasons.append("the file itself is not there any more")
    reviewed = value["reviewed"]
    return Artifact(
        path=value["path"],
        artifact_type=value["artifact_type"],
        description=value["description"],
        tags=list(value["tags"]),
        notes=value["notes"],
        related_to=list(related_of(record)),
        status="needs_review" if reasons else "current",
        reasons=reasons,
        changed=now[value["path"]] != value["digest"],
        tracked=date_of(record.created),
        reviewed=_review(reviewed) if reviewed else None,
    )


def _review(value: Mapping[str, Any]) -> Review:
    return Review(time=date_of(value["time"]), outcome=value["outcome"], notes=value["notes"])
