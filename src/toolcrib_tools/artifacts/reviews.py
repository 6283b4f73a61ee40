"""Tools for reviews of artifacts: find them, request them, acknowledge them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Annotated, NotRequired, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, ToolFailure, tool

from .._workspace.place import entry_at
from .collection import MOST_RELATED, Artifact, Artifacts, digests, paths_of, related_of
from .tracking_tools import NotTracked

__all__ = [
    "Acknowledged",
    "Notified",
    "Related",
    "RelatedArtifact",
    "acknowledge_review",
    "check_related_artifacts",
    "flag_for_review",
    "notify_change",
]

_Path = Annotated[str, Field(min_length=1)]
_Reason = Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"\S")]


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


@tool(
    op="x.artifact.related",
    category="knowledge",
    kind="read",
    open_world=False,
    needs=["workspace"],
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


@tool(
    op="x.artifact.notify",
    category="knowledge",
    kind="write",
    open_world=False,
    idempotent=True,
    needs=["workspace"],
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


@tool(
    op="x.artifact.flag",
    category="knowledge",
    kind="write",
    open_world=False,
    idempotent=True,
    needs=["workspace"],
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


@tool(
    op="x.artifact.acknowledge",
    category="knowledge",
    kind="write",
    open_world=False,
    idempotent=True,
    needs=["workspace"],
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
