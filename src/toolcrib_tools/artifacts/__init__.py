"""Artifacts: files that an agent made, their inputs, and the reviews that are due when an input has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Annotated, NotRequired, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, ToolFailure

from .._workspace.place import entry_at, file_at, workspace_tool
from .collection import MOST_RELATED, Artifact, Artifacts, ArtifactType, digests, paths_of, related_of

__all__ = [
    "acknowledge_review",
    "check_related_artifacts",
    "flag_for_review",
    "list_tracked_artifacts",
    "notify_change",
    "track_artifact",
    "untrack_artifact",
    "update_tracked_artifact",
]

_Path = Annotated[str, Field(min_length=1)]
_Paths = Annotated[list[_Path], Field(max_length=MOST_RELATED)]
_Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=30)]
_Description = Annotated[str, Field(max_length=1_000)]
_Notes = Annotated[str, Field(max_length=5_000)]

_Reason = Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"\S")]


class ArtifactList(TypedDict):
    """By path."""

    artifacts: list[Artifact]
    total: Annotated[int, Field(description="Number of all tracked files, regardless of filters.")]
    needing_review: Annotated[int, Field(description="How many of all need a look.")]


class NotTracked(TypedDict):
    """A path that is not a tracked artifact."""

    path: str
    reason: str


class Untracked(TypedDict):
    """Artifacts that are no longer tracked. Their files are unchanged."""

    untracked: list[str]
    not_tracked: list[NotTracked]


@workspace_tool(
    op="x.artifact.track",
    category="knowledge",
    kind="write",
    locks=["path"],
    tags=["artifact", "track", "made", "generated", "dependency", "document", "keep in sync"],
    examples=[
        {
            "path": "docs/api.md",
            "artifact_type": "document",
            "description": "Reference of the HTTP API",
            "related_to": ["src/api.py"],
            "tags": ["api"],
        }
    ],
    policy={
        "do": ["Track a document, test or configuration that you made from other files and that must follow them."],
        "dont": ["It has nothing to do with long results that were kept: read_artifact reads those."],
        "edge_cases": ["Files of related_to must exist; every change of them is noticed, by any program."],
    },
)
async def track_artifact(
    path: _Path,
    artifact_type: ArtifactType,
    description: Annotated[str, Field(min_length=1, max_length=1_000)],
    ctx: Context,
    related_to: _Paths | None = None,
    tags: _Tags | None = None,
    notes: _Notes = "",
) -> Artifact:
    """Track a file that you made, and the files it was made from, to learn when it needs another look.

    Args:
        path: The file that you made.
        artifact_type: What it is.
        description: What it is for.
        related_to: The files that it was made from: it needs another look when one of them changes.
        tags: Words to find it by.
        notes: What to think of when it is looked at again.
    """
    artifacts = Artifacts.of(ctx)
    own = (await file_at(artifacts.workspace, path)).path
    related = await _related(artifacts, own, related_to or ())
    now = await digests(artifacts.workspace, [own, *related])
    record = await artifacts.add(
        {
            "path": own,
            "artifact_type": artifact_type,
            "description": description,
            "tags": _unique(tags or ()),
            "notes": notes,
            "digest": now[own],
            "related": [(path, now[path]) for path in related],
        }
    )
    return await _one(artifacts, record)


@workspace_tool(
    op="x.artifact.update",
    category="knowledge",
    kind="write",
    idempotent=True,
    locks=["path"],
    tags=["artifact", "track", "dependency", "change"],
    examples=[
        {"path": "docs/api.md", "add_related": ["src/models.py"]},
        {"path": "docs/api.md", "description": "Reference of the API, version 2", "mark_updated": True},
    ],
    policy={
        "edge_cases": ["What is not given stays as it is.", "related_to and tags replace, add_ and remove_ change."]
    },
)
async def update_tracked_artifact(
    path: _Path,
    ctx: Context,
    description: _Description = "",
    artifact_type: ArtifactType | None = None,
    related_to: _Paths | None = None,
    add_related: _Paths | None = None,
    remove_related: _Paths | None = None,
    tags: _Tags | None = None,
    add_tags: _Tags | None = None,
    remove_tags: _Tags | None = None,
    notes: _Notes | None = None,
    mark_updated: bool = False,
) -> Artifact:
    """Change what is known of a file that you track: description, the files it was made from, tags, notes.

    Args:
        path: The tracked file.
        description: Another description.
        artifact_type: Another type.
        related_to: The files it was made from, in the place of those that are known.
        add_related: Further files that it was made from.
        remove_related: Files that it does not follow any more.
        tags: Tags in the place of all that it has.
        add_tags: Further tags.
        remove_tags: Tags that it has no longer.
        notes: Notes in the place of those that it has.
        mark_updated: You have brought the file up to date: it needs no look any more.
    """
    artifacts = Artifacts.of(ctx)
    record = await artifacts.find(path)
    value = record.value
    known = related_of(record)
    wanted = list(known) if related_to is None else await _related(artifacts, value["path"], related_to)
    wanted += await _related(artifacts, value["path"], add_related or ())
    gone = {artifacts.name(one) for one in remove_related or ()}
    paths = [one for one in dict.fromkeys(wanted) if one not in gone]
    if len(paths) > MOST_RELATED:
        raise ToolFailure("too_large", f"a file is made from at most {MOST_RELATED} others, these are {len(paths)}")
    now = await digests(artifacts.workspace, [one for one in paths if one not in known])
    named = [*(value["tags"] if tags is None else tags), *(add_tags or ())]
    record = await artifacts.edit(
        record,
        description=description or value["description"],
        artifact_type=artifact_type or value["artifact_type"],
        related=[(one, known[one] if one in known else now[one]) for one in paths],
        tags=[tag for tag in _unique(named) if tag not in (remove_tags or ())],
        notes=value["notes"] if notes is None else notes,
    )
    if mark_updated:
        record = await artifacts.review(record, "", was_updated=True)
    return await _one(artifacts, record)


@workspace_tool(
    op="x.artifact.list",
    category="knowledge",
    kind="read",
    tags=["artifact", "track", "review", "outdated", "made", "generated"],
    examples=[{}, {"needs_review": True}, {"artifact_type": "test", "tag": "api"}],
    policy={
        "do": ["Ask with needs_review before you finish: it tells what has to follow the files that changed."],
        "dont": ["It does not list long results that were kept, which read_artifact reads."],
    },
)
async def list_tracked_artifacts(
    ctx: Context, artifact_type: ArtifactType | None = None, tag: str = "", needs_review: bool = False
) -> ArtifactList:
    """List the files that you made and track, and which are out of date because what they were made from changed.

    Args:
        artifact_type: Only of this type.
        tag: Only with this tag.
        needs_review: Only those that need another look.
    """
    artifacts = Artifacts.of(ctx)
    artifacts_shown = await artifacts.describe(await artifacts.all())
    shown = [
        one
        for one in artifacts_shown
        if artifact_type in (None, one["artifact_type"])
        and (not tag or tag in one["tags"])
        and (not needs_review or one["status"] == "needs_review")
    ]
    needing = sum(one["status"] == "needs_review" for one in artifacts_shown)
    return ArtifactList(artifacts=shown, total=len(artifacts_shown), needing_review=needing)


@workspace_tool(
    op="x.artifact.untrack",
    category="knowledge",
    kind="destructive",
    tags=["artifact", "track", "remove", "forget"],
    examples=[{"path": "docs/api.md"}, {"paths": ["docs/old.md", "tests/test_old.py"]}],
    policy={"dont": ["It does not remove the file: remove_file does."]},
)
async def untrack_artifact(ctx: Context, path: str = "", paths: _Paths | None = None) -> Untracked:
    """Stop tracking files that you made. The files stay.

    Args:
        path: The tracked file.
        paths: Several of them.
    """
    artifacts = Artifacts.of(ctx)
    untracked: list[str] = []
    unknown: list[NotTracked] = []
    for one in paths_of(path, paths or ()):
        try:
            record = await artifacts.find(one)
        except ToolFailure as failure:
            unknown.append(NotTracked(path=one, reason=failure.message))
            continue
        await artifacts.remove(record)
        untracked.append(record.value["path"])
    if not untracked:
        await artifacts.find(unknown[0]["path"])
    return Untracked(untracked=untracked, not_tracked=unknown)


async def _one(artifacts: Artifacts, record: Record) -> Artifact:
    (artifact,) = await artifacts.describe([record])
    return artifact


async def _related(artifacts: Artifacts, own: str, paths: Sequence[str]) -> list[str]:
    """Return the files that are there; raises `ToolFailure` for one that is not, and for the artifact itself."""
    found = [(await file_at(artifacts.workspace, path)).path for path in dict.fromkeys(paths)]
    if own in found:
        raise ToolFailure("invalid_arguments", f"related_to: {own!r} cannot be made from itself")
    return list(dict.fromkeys(found))


def _unique(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in words if word.strip()))


class RelatedArtifact(TypedDict):
    """A tracked file that would need a look."""

    path: str
    through: Annotated[str, Field(description="The file that it was made from: this one, or one made from it.")]
    artifact: NotRequired[Artifact]


class Related(TypedDict):
    """Artifacts that depend on a file."""

    path: str
    related: Annotated[list[RelatedArtifact], Field(description="The nearest first.")]
    made_from: Annotated[list[str], Field(description="Where it is tracked itself: the files that it was made from.")]


class Notified(TypedDict):
    """Artifacts for which a change made a review due."""

    path: str
    flagged: Annotated[list[str], Field(description="Tracked files that need a look now.")]
    changed: Annotated[bool, Field(description="Whether the file differs from what one of them was made from.")]
    later: Annotated[list[str], Field(description="Those made from these: they need a look when these change.")]


class Acknowledged(TypedDict):
    """Artifacts whose review is done."""

    acknowledged: list[Artifact]
    not_tracked: list[NotTracked]


@workspace_tool(
    op="x.artifact.related",
    category="knowledge",
    kind="read",
    tags=["artifact", "impact", "dependency", "depends on", "related", "before change"],
    examples=[{"path": "src/api.py"}, {"path": "src/api.py", "verbose": False}],
    policy={"do": ["Check before you change a file; notify_change tells those that it finds afterwards."]},
)
async def check_related_artifacts(path: _Path, ctx: Context, verbose: bool = True) -> Related:
    """Check which files that you made hang on a file: what would need a look if it changed.

    Args:
        path: The file that is to be changed.
        verbose: Also tell how each of them stands; else paths only.
    """
    artifacts = Artifacts.of(ctx)
    name = artifacts.name(path)
    records = await artifacts.all()
    found = _reached(artifacts, records, name)
    details = {one["path"]: one for one in await artifacts.describe([record for record, _ in found])} if verbose else {}
    related: list[RelatedArtifact] = []
    for record, through in found:
        one = RelatedArtifact(path=record.value["path"], through=through)
        if verbose:
            one["artifact"] = details[one["path"]]
        related.append(one)
    own = next((record for record in records if record.value["path"] == name), None)
    if own is None and not found:
        await entry_at(artifacts.workspace, name)
    return Related(path=name, related=related, made_from=list(related_of(own)) if own else [])


@workspace_tool(
    op="x.artifact.notify",
    category="knowledge",
    kind="write",
    idempotent=True,
    tags=["artifact", "changed", "outdated", "dependency", "specification", "after change"],
    examples=[{"path": "src/api.py", "reason": "the endpoint /orders takes a page"}],
    policy={
        "do": ["Call it after you changed a file: reviewers of the files made from it see your description."],
        "edge_cases": ["A change is noticed without it, too; it adds the reason."],
    },
)
async def notify_change(path: _Path, reason: _Reason, ctx: Context) -> Notified:
    """Say that you changed a file, and why: every file that was made from it is flagged for review.

    Args:
        path: The file that you changed.
        reason: What changed, in a sentence.
    """
    artifacts = Artifacts.of(ctx)
    name = artifacts.name(path)
    records = await artifacts.all()
    direct = artifacts.dependents(records, name)
    if not direct and all(record.value["path"] != name for record in records):
        await entry_at(artifacts.workspace, name)
    now = (await digests(artifacts.workspace, [name]))[name]
    for record in direct:
        await artifacts.edit(record, flag=f"{name} changed: {reason.strip()}")
    flagged = [record.value["path"] for record in direct]
    return Notified(
        path=name,
        flagged=flagged,
        changed=any(related_of(record)[name] != now for record in direct),
        later=[record.value["path"] for record, _ in _reached(artifacts, records, name)][len(flagged) :],
    )


@workspace_tool(
    op="x.artifact.flag",
    category="knowledge",
    kind="write",
    idempotent=True,
    locks=["path"],
    tags=["artifact", "review", "outdated", "flag"],
    examples=[{"path": "docs/api.md", "reason": "the examples do not run any more"}],
    policy={"do": ["notify_change flags everything that was made from a file; this flags one file for a reason."]},
)
async def flag_for_review(path: _Path, reason: _Reason, ctx: Context) -> Artifact:
    """Flag one file that you track as in need of another look, and say why.

    Args:
        path: The tracked file.
        reason: Why it needs a look.
    """
    artifacts = Artifacts.of(ctx)
    record = await artifacts.find(path)
    kept = await artifacts.edit(record, flag=reason.strip())
    (artifact,) = await artifacts.describe([kept])
    return artifact


@workspace_tool(
    op="x.artifact.acknowledge",
    category="knowledge",
    kind="write",
    idempotent=True,
    tags=["artifact", "review", "reviewed", "done", "up to date"],
    examples=[{"path": "docs/api.md", "notes": "examples run again", "was_updated": True}, {"paths": ["a.md", "b.md"]}],
    policy={"do": ["Acknowledge only what you have looked at: from now on what is there counts as right."]},
)
async def acknowledge_review(
    ctx: Context,
    path: str = "",
    paths: Annotated[list[_Path], Field(max_length=MOST_RELATED)] | None = None,
    notes: Annotated[str, Field(max_length=5_000)] = "",
    was_updated: bool | None = None,
) -> Acknowledged:
    """Say that you looked at files that were flagged for review: they are up to date with what they were made from.

    Args:
        path: The tracked file.
        paths: Several of them.
        notes: What you found or changed.
        was_updated: Whether you changed the file; found from its content when not given.
    """
    artifacts = Artifacts.of(ctx)
    done: list[Record] = []
    unknown: list[NotTracked] = []
    for one in paths_of(path, paths or ()):
        try:
            record = await artifacts.find(one)
        except ToolFailure as failure:
            unknown.append(NotTracked(path=one, reason=failure.message))
            continue
        done.append(await artifacts.review(record, notes, was_updated))
    if not done:
        await artifacts.find(unknown[0]["path"])
    return Acknowledged(acknowledged=await artifacts.describe(done), not_tracked=unknown)


def _reached(artifacts: Artifacts, records: Sequence[Record], path: str) -> list[tuple[Record, str]]:
    """Return the artifacts that were made from a file, or from what was made from it, each with what it was made of."""
    reached: dict[str, tuple[Record, str]] = {}
    waiting = deque([path])
    while waiting:
        through = waiting.popleft()
        for record in artifacts.dependents(records, through):
            name = record.value["path"]
            if name != path and name not in reached:
                reached[name] = (record, through)
                waiting.append(name)
    return list(reached.values())
