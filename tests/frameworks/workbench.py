"""Two hundred real functions over one small business: what a user of a framework has before he has Toolcrib.

Nineteen things with ten operations each, and ten functions that behave as tools in the wild do: one fails the first
time, one breaks, one returns far too much, three callers of one meet before any of them goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio

from rig import PATIENCE
from toolcrib import ToolFailure, tool

THINGS = (
    "account board budget campaign contract customer document employee event invoice lead meeting order product "
    "project shipment supplier ticket vehicle"
).split()
LOG_LINES = 4000
"""Of the log that `read_log` returns: about 200 kB, where a session's result may have 16."""
NAMED = "2026-11-21 12:00:00 worker-7 INFO job {number} finished"


class Workbench:
    """The functions, what they have done, and who has met whom. One for all runs, emptied before each."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        """Every body that was entered: `name {"arguments": …}`, in the order in which they were entered."""
        self._records: dict[str, dict[int, dict[str, Any]]] = {thing: {} for thing in THINGS}
        self._waiting: dict[str, list[anyio.Event]] = {}
        self._is_warm = False
        of_things = [function for thing in THINGS for function in (*self._looking(thing), *self._writing(thing))]
        self.functions = [*of_things, *self._reading(), *self._changing(), *self._working()]
        """All two hundred, in a fixed order: the same objects in every run, which are read as tools once."""

    def reset(self) -> None:
        """Forget what was done."""
        self.ran.clear()
        self._waiting.clear()
        self._is_warm = False
        for records in self._records.values():
            records.clear()

    def _note(self, name: str, /, **arguments: Any) -> None:
        self.ran.append(f"{name} {json.dumps(arguments)}")

    def _record(self, thing: str, number: int) -> dict[str, Any]:
        records = self._records[thing]
        if number not in records:
            known = ", ".join(map(str, records)) or "none"
            raise ToolFailure("tool_error", f"there is no {thing} {number}", hint=f"known numbers: {known}")
        return records[number]

    def _looking(self, thing: str) -> list[Callable[..., Any]]:
        records, category = self._records[thing], f"{thing}s"

        @tool(name=f"get_{thing}", kind="read", category=category, description=f"Return one {thing} by its number.")
        def get(number: int) -> dict[str, Any]:
            self._note(f"get_{thing}", number=number)
            return self._record(thing, number)

        @tool(name=f"list_{thing}s", kind="read", category=category, description=f"List the {thing}s, oldest first.")
        def listed(limit: int = 20) -> list[dict[str, Any]]:
            self._note(f"list_{thing}s", limit=limit)
            return list(records.values())[:limit]

        @tool(name=f"count_{thing}s", kind="read", category=category, description=f"Count the {thing}s.")
        def count() -> int:
            self._note(f"count_{thing}s")
            return len(records)

        @tool(
            name=f"find_{thing}s",
            kind="read",
            category=category,
            description=f"Find {thing}s whose title has a text; returns their numbers.",
        )
        def find(text: str) -> list[int]:
            self._note(f"find_{thing}s", text=text)
            return [number for number, record in records.items() if text in record["title"]]

        return [get, listed, count, find]

    def _writing(self, thing: str) -> list[Callable[..., Any]]:
        records, category = self._records[thing], f"{thing}s"

        @tool(
            name=f"create_{thing}",
            kind="write",
            category=category,
            description=f"Create a new {thing} with a title and an optional note.",
        )
        def create(title: str, note: str = "") -> dict[str, Any]:
            self._note(f"create_{thing}", title=title, note=note)
            return self._created(thing, title, note)

        @tool(name=f"rename_{thing}", kind="write", category=category, description=f"Give the {thing} another title.")
        def rename(number: int, title: str) -> dict[str, Any]:
            self._note(f"rename_{thing}", number=number, title=title)
            return self._replaced(thing, number, title=title)

        @tool(name=f"annotate_{thing}", kind="write", category=category, description=f"Write a note on the {thing}.")
        def annotate(number: int, note: str) -> dict[str, Any]:
            self._note(f"annotate_{thing}", number=number, note=note)
            return self._replaced(thing, number, note=note)

        @tool(name=f"archive_{thing}", kind="write", category=category, description=f"Put the {thing} away; it stays.")
        def archive(number: int) -> dict[str, Any]:
            self._note(f"archive_{thing}", number=number)
            return self._replaced(thing, number, archived=True)

        @tool(name=f"copy_{thing}", kind="write", category=category, description=f"Make a copy of the {thing}.")
        def copied(number: int) -> dict[str, Any]:
            self._note(f"copy_{thing}", number=number)
            record = self._record(thing, number)
            return self._created(thing, record["title"], record["note"])

        @tool(
            name=f"delete_{thing}", kind="destructive", category=category, description=f"Delete the {thing} for ever."
        )
        def delete(number: int) -> str:
            self._note(f"delete_{thing}", number=number)
            self._record(thing, number)
            del records[number]
            return f"{thing} {number} is gone"

        return [create, rename, annotate, archive, copied, delete]

    def _created(self, thing: str, title: str, note: str) -> dict[str, Any]:
        number = max(self._records[thing], default=0) + 1
        self._records[thing][number] = {"number": number, "title": title, "note": note}
        return self._records[thing][number]

    def _replaced(self, thing: str, number: int, **values: Any) -> dict[str, Any]:
        self._records[thing][number] = {**self._record(thing, number), **values}
        return self._records[thing][number]

    def _reading(self) -> list[Callable[..., Any]]:
        @tool(kind="read", category="office")
        def convert_money(amount: float, rate: float) -> float:
            """Convert an amount of money at an exchange rate."""
            self._note("convert_money", amount=amount, rate=rate)
            return round(amount * rate, 2)

        @tool(kind="read", category="office")
        def days_between(first: int, last: int) -> int:
            """Count the days between two day numbers."""
            self._note("days_between", first=first, last=last)
            return last - first

        @tool(kind="read", category="operations")
        def read_log() -> str:
            """Return the log of all workers."""
            self._note("read_log")
            lines = [NAMED.format(number=number) for number in range(LOG_LINES)]
            lines[LOG_LINES // 2] += " needle: disk of worker-7 is full"
            return "\n".join(lines)

        @tool(kind="read", category="operations")
        def probe_sensor(sensor: str) -> str:
            """Read a sensor. Its driver has a defect."""
            self._note("probe_sensor", sensor=sensor)
            raise RuntimeError(f"secret-driver-state of {sensor}")

        return [convert_money, days_between, read_log, probe_sensor]

    def _changing(self) -> list[Callable[..., Any]]:
        @tool(kind="write", category="office")
        def send_letter(to: str, text: str) -> str:
            """Send a letter by post."""
            self._note("send_letter", to=to, text=text)
            return f"sent to {to}"

        @tool(kind="destructive", category="operations")
        def wipe_disk(disk: str) -> str:
            """Erase everything on a disk."""
            self._note("wipe_disk", disk=disk)
            return f"{disk} is empty"

        @tool(kind="write", category="operations", approval="never")
        def book_room(room: str, seats: int) -> dict[str, Any]:
            """Book a room for a number of people."""
            self._note("book_room", room=room, seats=seats)
            return {"room": room, "seats": seats}

        return [send_letter, wipe_disk, book_room]

    def _working(self) -> list[Callable[..., Any]]:
        @tool(kind="read", category="operations")
        def upload_report(report: str) -> str:
            """Upload a report to the archive, which wakes up when it is first called."""
            self._note("upload_report", report=report)
            if not self._is_warm:
                self._is_warm = True
                raise ToolFailure("unavailable", "the archive is waking up", hint="call again")
            return f"{report} is in the archive"

        @tool(kind="read", category="operations")
        async def meet(place: str, party: int, name: str) -> str:
            """Wait at a place until the whole party is there."""
            self._note("meet", place=place, party=party, name=name)
            waiting, here = self._waiting.setdefault(place, []), anyio.Event()
            waiting.append(here)
            if len(waiting) == party:
                for event in waiting:
                    event.set()
            with anyio.move_on_after(PATIENCE):
                await here.wait()
                return f"{name} met {party - 1} others at {place}"
            raise ToolFailure("timeout", f"{name} was alone at {place}")

        @tool(kind="read", category="operations")
        def list_workers() -> list[str]:
            """List the workers of the plant."""
            self._note("list_workers")
            return [f"worker-{number}" for number in range(1, 10)]

        return [upload_report, meet, list_workers]
