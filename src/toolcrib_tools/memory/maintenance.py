"""Maintenance of memories: statistics, removal of duplicates, rebuilding of the search index."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, tool

from .._records import ProjectId, date_of
from .collections import MOST_ENTRIES, ProjectRecords, same_text, shelf_of

__all__ = [
    "CompactReport",
    "ReindexReport",
    "Stats",
    "compact_memory",
    "memory_reindex",
    "memory_stats",
]

_NAMED: Final = 50
_REPORTED: Final = 100
_INDEXING_SECONDS: Final = 600
"""Some 5,000 records by meaning, in the time that a call may have at most."""


class Stats(TypedDict):
    """Number and size of records."""

    memories: int
    notes: int
    has_profile: bool
    characters: int
    tags: Annotated[int, Field(description="Different tags of memories.")]
    last_changed: Annotated[str | None, Field(description="ISO 8601; null where there is nothing.")]
    room: Annotated[int, Field(description="How many more can be kept.")]
    search: Annotated[Literal["words", "words and meaning"], Field(description="What memory_search goes by.")]
    without_meaning: Annotated[int, Field(description="Found by words only so far: memory_reindex changes that.")]


class ReindexReport(TypedDict):
    """Records that were indexed again."""

    indexed: int
    meant: Annotated[int, Field(description="How many of them are found by their meaning, too.")]


class CompactReport(TypedDict):
    """Records that were removed, or would be."""

    merged: Annotated[int, Field(description="Memories whose content another one has, too.")]
    unsure: Annotated[int, Field(description="Memories that were less sure than wanted.")]
    empty_notes: int
    removed: Annotated[list[str], Field(description="The first of them.")]
    dry_run: bool


@tool(
    op="x.memory.stats",
    category="memory",
    kind="read",
    open_world=False,
    tags=["memory", "size", "statistics"],
    examples=[{}],
)
async def memory_stats(ctx: Context, project_id: ProjectId = "") -> Stats:
    """Tell how much is remembered of a project.

    Args:
        project_id: The project; that of this session when not given.
    """
    shelf = shelf_of(ctx, project_id)
    everything = await shelf.all()
    meant = await shelf.records.meant(group=shelf.project)
    kinds = [record.value["of"] for record in everything]
    return Stats(
        memories=kinds.count("memory"),
        notes=kinds.count("note"),
        has_profile="profile" in kinds,
        characters=sum(len(record.value["content"]) for record in everything),
        tags=len({tag for record in everything for tag in record.value.get("tags", ())}),
        last_changed=date_of(max(one.value["changed"] for one in everything)) if everything else None,
        room=max(0, MOST_ENTRIES - len(everything)),
        search="words" if meant is None else "words and meaning",
        without_meaning=0 if meant is None else max(0, len(everything) - meant),
    )


@tool(
    op="x.memory.reindex",
    category="memory",
    kind="write",
    open_world=False,
    idempotent=True,
    approval="never",
    serial=True,
    timeout=_INDEXING_SECONDS,
    tags=["memory", "index"],
    examples=[{}],
    policy={
        "do": [
            "Use it when memory_search does not find what list_notes or retrieve_memories show.",
            "Use it when memory_stats tells of records without a meaning: they are older than the embedder.",
        ]
    },
)
async def memory_reindex(ctx: Context, project_id: ProjectId = "") -> ReindexReport:
    """Make anew what memory_search goes by, words and meanings, for all memories and notes of a project.

    Args:
        project_id: The project; that of this session when not given.
    """
    shelf = shelf_of(ctx, project_id)
    everything = await shelf.all()
    done = 0
    for record in reversed(everything):  # the one changed last stays the last
        done += await shelf.index(record)
        if done % _REPORTED == 0:
            await ctx.report(done, len(everything), "indexing what is remembered")
    return ReindexReport(indexed=done, meant=await shelf.records.meant(group=shelf.project) or 0)


@tool(
    op="x.memory.compact",
    category="memory",
    kind="destructive",
    open_world=False,
    idempotent=True,
    serial=True,
    tags=["memory", "clean up", "duplicates"],
    examples=[{"dry_run": True}, {"min_confidence": 0.3}],
    policy={"do": ["dry_run shows what would go."]},
)
async def compact_memory(
    ctx: Context,
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.0,
    dry_run: bool = False,
    project_id: ProjectId = "",
) -> CompactReport:
    """Drop what is remembered twice or not surely: memories of the same content become one, empty notes go.

    Args:
        min_confidence: Memories that are less sure than this go, too.
        dry_run: Change nothing, only tell what would go.
        project_id: The project; that of this session when not given.
    """
    shelf = shelf_of(ctx, project_id)
    memories = await shelf.all("memory")
    unsure = [one for one in memories if one.value["confidence"] < min_confidence]
    kept = [one for one in memories if one not in unsure]
    twice = _groups(kept)
    empty = [one for one in await shelf.all("note") if not one.value["content"].strip()]
    extra = [one for group in twice for one in group[1:]]
    gone = [*extra, *unsure, *empty]
    if not dry_run:
        for group in twice:
            await _merge(shelf, group)
        for record in gone:
            await shelf.records.remove(record.id)
    names = [str(one.value.get("title") or one.value.get("description", "")) for one in gone]
    return CompactReport(
        merged=len(extra), unsure=len(unsure), empty_notes=len(empty), removed=names[:_NAMED], dry_run=dry_run
    )


def _groups(memories: list[Record]) -> list[list[Record]]:
    """Return the memories that say the same, those of one content together, the oldest first."""
    by_content: dict[str, list[Record]] = {}
    for record in sorted(memories, key=lambda one: one.created):
        by_content.setdefault(same_text(record.value["content"]), []).append(record)
    return [group for group in by_content.values() if len(group) > 1]


async def _merge(shelf: ProjectRecords, group: list[Record]) -> None:
    """Give the oldest what the others know besides."""
    values = [record.value for record in group]
    merged: dict[str, Any] = {
        **values[0],
        "tags": sorted({tag for value in values for tag in value["tags"]}),
        "confidence": max(value["confidence"] for value in values),
        "evidence": next((value["evidence"] for value in values if value["evidence"]), ""),
    }
    await shelf.keep(group[0], merged)
