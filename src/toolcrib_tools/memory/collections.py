"""Storage of memories, notes and the project profile: one collection, so that one search covers all of them.

A memory has a number; a note and a profile have their project and title as id. `of` says which of them a record is.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolcrib.plugin import Context, Record, Records, ToolFailure

from .._records import Values, change, names_of, project_of

__all__ = ["MOST_ENTRIES", "NOTE_CHARACTERS", "Kind", "ProjectRecords", "same_text", "shelf_of"]

Kind = Literal["memory", "note", "profile"]

MOST_ENTRIES: Final = 5_000
"""Records of one project."""
NOTE_CHARACTERS: Final = 100_000
"""Characters of a note or a profile."""
_COLLECTION: Final = "memory"


def same_text(text: str) -> str:
    """Return one spelling for texts that say the same: case, form and blanks make no difference."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRecords:
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
    """Return what is kept of a project for the caller."""
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
    """Return what a search goes by, beside the title."""
    tags: Iterable[str] = value.get("tags", ())
    return "\n\n".join(filter(None, (value["content"], " ".join(tags), value.get("evidence", ""))))


def _title(value: Mapping[str, Any]) -> str:
    return f"{value.get('title', '')}{value.get('description', '')}"
