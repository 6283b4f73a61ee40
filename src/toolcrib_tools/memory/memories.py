"""Memories of an agent across conversations: stored under tags, found by tags and by words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Annotated, Any, Final, Literal, TypedDict

from pydantic import Field

from toolcrib.plugin import Context, Record, ToolFailure

from .._records import ProjectId, date_of, finds
from .project_records import ProjectRecords, memory_tool, same_text, shelf_of

_EXCERPT: Final = 300
"""Characters of what a search shows of each place."""
_BEFORE: Final = 80
_READ: Final = 10_000
"""Characters of a text in which the piece is looked for that a search means."""
_WORD: Final = re.compile(r"\w+")

Tag = Annotated[str, Field(min_length=1, max_length=100)]
Tags = Annotated[list[Tag], Field(min_length=1, max_length=30)]
Confidence = Annotated[float, Field(ge=0, le=1)]
Scope = Literal["project", "global"]


class Memory(TypedDict):
    """One thing that is remembered."""

    id: str
    description: str
    content: str
    tags: list[str]
    confidence: float
    evidence: str
    scope: Scope
    stored: str


class Stored(TypedDict):
    """Outcome of a memory that was stored."""

    id: str
    status: Annotated[
        Literal["stored", "merged"], Field(description="merged: the same was remembered already, and has more now.")
    ]
    tags: list[str]
    confidence: float


class Memories(TypedDict):
    """Those that fit best come first."""

    memories: list[Memory]
    total: Annotated[int, Field(description="How many there are with such tags.")]


class Tagged(TypedDict):
    """A tag and how many memories have it."""

    tag: str
    count: int


class Hit(TypedDict):
    """One place that a search found."""

    of: Literal["memory", "note", "profile"]
    id: Annotated[str, Field(description="Of a memory: its id; of a note: its title.")]
    title: str
    text: str
    scope: Scope


class Hits(TypedDict):
    """The best first."""

    results: list[Hit]


@memory_tool(
    op="x.memory.store",
    kind="write",
    idempotent=True,
    serial=True,
    tags=["remember", "memory", "learn", "save", "preference"],
    examples=[
        {
            "content": "Releases are cut on Thursdays, never on Fridays.",
            "description": "Day of releases",
            "tags": ["release", "process"],
            "confidence": 0.9,
            "evidence": "stated by the user",
        },
        {
            "content": "Prefers answers in German.",
            "description": "Language of answers",
            "tags": ["user"],
            "scope": "global",
        },
    ],
    policy={
        "do": [
            "Store what is worth knowing in another conversation: decisions, preferences, how things are done here."
        ],
        "dont": ["Do not store secrets, nor what stands in the files anyway."],
        "edge_cases": ["The same content again is merged: its tags are put together, the higher confidence counts."],
    },
)
async def store_memory(
    content: Annotated[str, Field(min_length=1, max_length=20_000)],
    description: Annotated[str, Field(min_length=1, max_length=500)],
    tags: Tags,
    ctx: Context,
    confidence: Confidence = 0.5,
    scope: Scope = "project",
    evidence: Annotated[str, Field(max_length=5_000)] = "",
    project_id: ProjectId = "",
) -> Stored:
    """Remember something for later conversations, under tags.

    Args:
        content: What is to be remembered.
        description: What it is about, in a few words.
        tags: Words that it is to be found by, such as "release".
        confidence: How sure it is, from 0 to 1.
        scope: project for what holds in this project, global for what holds everywhere.
        evidence: How it is known.
        project_id: The project; that of this session when not given.
    """
    shelf = _shelf(ctx, scope, project_id)
    named = _tags(tags)
    wanted = same_text(content)
    before = next((one for one in await shelf.all("memory") if same_text(one.value["content"]) == wanted), None)
    if before is None:
        await shelf.check_room()
    old: Mapping[str, Any] = {} if before is None else before.value
    together = sorted({*named, *old.get("tags", ())})
    surest = max(confidence, old.get("confidence", 0.0))
    value = {
        "content": content,
        "description": description,
        "tags": together,
        "confidence": surest,
        "evidence": evidence or old.get("evidence", ""),
    }
    kept = await shelf.keep(before, value)
    status: Literal["stored", "merged"] = "stored" if before is None else "merged"
    return Stored(id=kept.id, status=status, tags=together, confidence=surest)


@memory_tool(
    op="x.memory.retrieve",
    kind="read",
    tags=["remember", "recall", "memory"],
    examples=[{"tags": ["release"]}, {"tags": ["user", "language"], "limit": 3}],
    policy={"do": ["list_memory_tags shows the tags; memory_search finds by words."]},
)
async def retrieve_memories(
    tags: Tags,
    ctx: Context,
    limit: Annotated[int, Field(ge=1, le=100)] = 5,
    project_id: ProjectId = "",
) -> Memories:
    """Recall what is remembered under tags, of this project and globally: most tags first, then the surest.

    Args:
        tags: Any of these.
        limit: How many at most.
        project_id: The project; that of this session when not given.
    """
    wanted = set(_tags(tags))
    found: list[tuple[Record, Scope]] = []
    for scope, shelf in _shelves(ctx, project_id):
        fitting = [one for one in await shelf.all("memory") if wanted & set(one.value["tags"])]
        found.extend((one, scope) for one in fitting)
    found.sort(key=lambda pair: (-len(wanted & set(pair[0].value["tags"])), -pair[0].value["confidence"]))
    return Memories(memories=[_memory(record, scope) for record, scope in found[:limit]], total=len(found))


@memory_tool(op="x.memory.tags", kind="read", tags=["memory", "tag"], examples=[{}])
async def list_memory_tags(ctx: Context, project_id: ProjectId = "") -> list[Tagged]:
    """List the tags that memories have, those of this project and the global ones, the most used first.

    Args:
        project_id: The project; that of this session when not given.
    """
    counts: Counter[str] = Counter()
    for _, shelf in _shelves(ctx, project_id):
        for record in await shelf.all("memory"):
            counts.update(record.value["tags"])
    return [Tagged(tag=tag, count=count) for tag, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]


async def _find(ctx: Context, memory_id: str) -> Record:
    found = await ctx.records("memory").get(memory_id)
    if found is None or found.value["of"] != "memory":
        raise ToolFailure(
            "not_found", f"there is no memory {memory_id!r}", hint="memory_search finds memories and their ids"
        )
    return found


@memory_tool(
    check=finds(lambda given, ctx: _find(ctx, given["memory_id"])),
    op="x.memory.delete",
    kind="destructive",
    tags=["forget", "memory", "delete"],
    examples=[{"memory_id": "3"}],
)
async def delete_memory(memory_id: Annotated[str, Field(min_length=1)], ctx: Context) -> str:
    """Forget a memory.

    Args:
        memory_id: Its id, as store_memory, retrieve_memories and memory_search tell it.
    """
    found = await _find(ctx, memory_id)
    await ctx.records("memory").remove(memory_id)
    return f"forgotten: {found.value['description']}"


@memory_tool(
    op="x.memory.search",
    kind="read",
    tags=["remember", "recall", "memory", "notes", "find"],
    examples=[{"query": "release day"}, {"query": "deploy", "top_k": 3, "mode": "full"}],
    policy={
        "do": ["Look here before you ask the user what was settled before."],
        "edge_cases": ["Where memory_stats says that it goes by words only, try other words when nothing is found."],
    },
)
async def memory_search(
    query: Annotated[str, Field(min_length=1, max_length=1_000)],
    ctx: Context,
    top_k: Annotated[int, Field(ge=1, le=100)] = 10,
    mode: Literal["search", "full"] = "search",
    project_id: ProjectId = "",
) -> Hits:
    """Search what is remembered: memories, notes and the profile of this project, and global memories.

    Args:
        query: What to look for, in a few words.
        top_k: How many at most.
        mode: search shows the place that fits, full the whole text.
        project_id: The project; that of this session when not given.
    """
    found: list[tuple[Record, Scope]] = []
    for scope, shelf in _shelves(ctx, project_id):
        records = await shelf.records.search(query, group=shelf.project, limit=top_k)
        found.extend((record, scope) for record in records)
    found.sort(key=lambda pair: -pair[0].score)
    best = found[:top_k]
    meant = await _meant(ctx, query, [record for record, _ in best]) if mode == "search" else {}
    return Hits(results=[_hit(one, scope, query, mode == "full", meant.get(one.id, "")) for one, scope in best])


def _shelf(ctx: Context, scope: Scope, project_id: str) -> ProjectRecords:
    shelf = shelf_of(ctx, project_id)
    return ProjectRecords(records=shelf.records, project="") if scope == "global" else shelf


def _shelves(ctx: Context, project_id: str) -> list[tuple[Scope, ProjectRecords]]:
    """Return the memories of a project: its own, and the global ones."""
    own = shelf_of(ctx, project_id)
    everywhere: tuple[Scope, ProjectRecords] = ("global", ProjectRecords(records=own.records, project=""))
    return [("project", own), everywhere] if own.project else [everywhere]


def _tags(given: list[str]) -> list[str]:
    tags = [same_text(tag) for tag in given]
    if not all(tags):
        raise ToolFailure("invalid_arguments", f"tags are words, not {given!r}", hint="for example: release")
    return tags


def _memory(record: Record, scope: Scope) -> Memory:
    value = record.value
    return Memory(
        id=record.id,
        description=value["description"],
        content=value["content"],
        tags=list(value["tags"]),
        confidence=value["confidence"],
        evidence=value["evidence"],
        scope=scope,
        stored=date_of(value["changed"]),
    )


async def _meant(ctx: Context, query: str, records: Sequence[Record]) -> dict[str, str]:
    """Return the piece that a search means of each long text that has no word of the query, by id."""
    if not ctx.lent.embeds:
        return {}
    pieces = {
        f"{number}\n{record.id}": piece
        for record in records
        if len(record.value["content"]) > _EXCERPT and not _places(record.value["content"], query)
        for number, piece in enumerate(wrap(record.value["content"][:_READ], _EXCERPT))
    }
    nearest = await ctx.lent.nearest(query, pieces, len(pieces))
    found: dict[str, str] = {}
    for key in nearest.found:
        found.setdefault(key.partition("\n")[2], f"… {pieces[key]} …")
    return found


def _hit(record: Record, scope: Scope, query: str, whole: bool, meant: str) -> Hit:
    value, kind = record.value, record.value["of"]
    title = {"memory": value.get("description", ""), "note": value.get("title", ""), "profile": "profile"}[kind]
    content = str(value["content"])
    text = content if whole else meant or _excerpt(content, query)
    return Hit(of=kind, id=record.id if kind == "memory" else title, title=title, text=text, scope=scope)


def _places(content: str, query: str) -> list[int]:
    """Return the positions of the query's words in a text."""
    lowered = content.lower()
    return [place for word in _WORD.findall(query.lower()) if (place := lowered.find(word)) >= 0]


def _excerpt(content: str, query: str) -> str:
    """Return the piece of a text around the first word of the query in it; its beginning when none is."""
    if len(content) <= _EXCERPT:
        return content
    first = min(_places(content, query), default=0)
    start = max(0, min(first - _BEFORE, len(content) - _EXCERPT))
    piece = content[start : start + _EXCERPT].strip()
    return f"{'… ' if start else ''}{piece}{' …' if start + _EXCERPT < len(content) else ''}"
