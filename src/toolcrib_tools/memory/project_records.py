"""Records of a project: memories, notes and the profile in one collection, its statistics and its maintenance.

A memory has a number; a note and a profile have their project and title as id. `of` says which of them a record is.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, Record, Records, ToolFailure, tool

from .._records import ProjectId, Values, change, date_of, names_of, project_of

Kind = Literal["memory", "note", "profile"]

MOST_ENTRIES: Final = 5_000
"""Records of one project."""
NOTE_CHARACTERS: Final = 100_000
"""Characters of a note or a profile."""
_COLLECTION: Final = "memory"

_NAMED: Final = 50
_REPORTED: Final = 100
_INDEX_SECONDS: Final = 600
"""Some 5,000 records by meaning, in the time that a call may have at most."""

memory_tool = partial(tool, category="memory", open_world=False)


def same_text(text: str) -> str:
    """Return one spelling for texts that say the same: case, form and blanks make no difference."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


class ProjectRecords(Struct, frozen=True, kw_only=True):
    """Records of one project. Lives as long as a call."""

    records: Records
    project: str

    async def all(self, kind: Kind | None = None) -> list[Record]:
        """Return the records of one kind, or all, newest change first."""
        found = await self.records.list(group=self.project, limit=MOST_ENTRIES)
        return [record for record in found if kind in (None, record.value["of"])]

    async def check_room(self) -> None:
        """Raise `ToolFailure("too_large")` if the project has no room for another record."""
        if len(await self.records.list(group=self.project, limit=MOST_ENTRIES)) >= MOST_ENTRIES:
            raise ToolFailure(
                "too_large",
                f"this project has {MOST_ENTRIES} memories and notes already",
                hint="compact_memory drops what is there twice or unsure, delete_note and delete_memory what is over",
            )

    async def note(self, title: str) -> Record:
        """Return a note; raises `ToolFailure` with the titles that there are."""
        found = await self.records.get(self._note_id(title))
        if found is None:
            titles = sorted(record.value["title"] for record in await self.all("note"))
            raise ToolFailure("not_found", f"there is no note {title!r}", hint=names_of(titles))
        return found

    async def write_note(self, title: str, content: str, *, append: bool) -> tuple[Record, bool]:
        """Write a note, or append to it; return it, and whether it is new."""
        if await self.records.get(self._note_id(title)) is None:
            await self.check_room()

        def make(before: Values | None) -> Values:
            old = before["content"] if before and append else ""
            new = f"{old.rstrip()}\n{content}" if old.strip() else content
            return _entry("note", new, title=before["title"] if before else title.strip())

        record = await self._change(self._note_id(title), make)
        return record, record.revision == 1

    async def remove_note(self, title: str) -> str:
        """Forget a note; return its title."""
        found = await self.note(title)
        await self.records.remove(found.id)
        return str(found.value["title"])

    async def profile(self) -> str:
        """Return the profile of the project; empty without one."""
        found = await self.records.get(self._profile_id)
        return "" if found is None else str(found.value["content"])

    async def write_profile(self, content: str) -> Record:
        """Put a text in the place of the profile."""

        def make(before: Values | None) -> Values:
            return _entry("profile", content)

        return await self._change(self._profile_id, make)

    async def change_profile(self, old: str, new: str) -> None:
        """Put a text in the place of the one that it was made of.

        Raises `ToolFailure("conflict")` where the profile is another one by now.
        """

        def make(before: Values | None) -> Values:
            if (before["content"] if before else "") != old:
                raise ToolFailure("conflict", "the profile was changed meanwhile", hint="call this tool again")
            return _entry("profile", new)

        await self._change(self._profile_id, make)

    async def keep(self, record: Record | None, value: Values) -> Record:
        """Keep a memory, a new one or in the place of another."""
        value = {**value, "of": "memory", "changed": time.time()}
        fields = {"group": self.project, "text": _text(value), "title": _title(value)}
        if record is None:
            return await self.records.add(value, **fields)
        return await self.records.put(record.id, value, **fields, revision=record.revision)

    async def index(self, record: Record) -> bool:
        """Put a record into the search again; False if it was written meanwhile, which indexed it."""
        fields = {"group": self.project, "text": _text(record.value), "title": _title(record.value)}
        try:
            await self.records.put(record.id, record.value, **fields, revision=record.revision)
        except ToolFailure as failure:
            if failure.code != "conflict":
                raise
            return False
        return True

    @property
    def _profile_id(self) -> str:
        return f"profile:{self.project}"

    def _note_id(self, title: str) -> str:
        return f"note:{self.project}\n{same_text(title)}"

    async def _change(self, id: str, make: Callable[[Values | None], Values]) -> Record:
        return await change(self.records, id, make, group=self.project, text=_text, title=_title)


def shelf_of(ctx: Context, project_id: str) -> ProjectRecords:
    """Return the caller's records of a project."""
    return ProjectRecords(records=ctx.records(_COLLECTION), project=project_of(ctx, project_id))


def _entry(kind: Kind, content: str, **more: Any) -> Values:
    if len(content) > NOTE_CHARACTERS:
        raise ToolFailure(
            "too_large",
            f"a {kind} has at most {NOTE_CHARACTERS:,} characters, this one would have {len(content):,}",
            hint="begin another note" if kind == "note" else "take something out of it",
        )
    return {"of": kind, "content": content, "changed": time.time(), **more}


def _text(value: Mapping[str, Any]) -> str:
    """Return the searched text, beside the title."""
    tags: Iterable[str] = value.get("tags", ())
    return "\n\n".join(filter(None, (value["content"], " ".join(tags), value.get("evidence", ""))))


def _title(value: Mapping[str, Any]) -> str:
    return f"{value.get('title', '')}{value.get('description', '')}"


class Stats(TypedDict):
    """Number and size of records."""

    memories: int
    notes: int
    has_profile: bool
    characters: int
    tags: Annotated[int, Field(description="Different tags of memories.")]
    last_changed: Annotated[str | None, Field(description="ISO 8601; null if there is nothing.")]
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


@memory_tool(op="x.memory.stats", kind="read", tags=["memory", "size", "statistics"], examples=[{}])
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


@memory_tool(
    op="x.memory.reindex",
    kind="write",
    idempotent=True,
    approval="never",
    serial=True,
    timeout=_INDEX_SECONDS,
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


@memory_tool(
    op="x.memory.compact",
    kind="destructive",
    idempotent=True,
    serial=True,
    traits=["by_action"],
    metadata={"reads": {"dry_run": [True]}},
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
