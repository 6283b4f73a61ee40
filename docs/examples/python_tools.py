from collections.abc import AsyncIterator
from datetime import date
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from toolcrib import Context, Output, Progress, Toolcrib, ToolFailure, run, tool
from toolcrib.testing import RecordingApprover


class Size(StrEnum):
    """Beds of a room."""

    SINGLE = "single"
    DOUBLE = "double"


class Stay(BaseModel):
    """Some nights of a guest."""

    guest: str
    begins: date
    nights: Annotated[int, Field(ge=1, le=30)] = 1


class Hotel:
    """Tools that share something: a connection, a client, settings."""

    def __init__(self, rooms: dict[Size, int]) -> None:
        self.rooms = rooms

    @tool(kind="read")
    def free_rooms(self, size: Size = Size.DOUBLE) -> int:
        """Count the free rooms of a size."""
        return self.rooms[size]

    @tool(kind="write", timeout=20, locks=["size"])
    async def book(self, stay: Stay, size: Annotated[Size, "what the guest pays for"], context: Context) -> Stay:
        """Book a room."""
        if not self.rooms[size]:
            raise ToolFailure("tool_error", f"no {size} room is free", hint="free_rooms counts the other size")
        await context.report(1, 2, f"for {context.principal}")
        self.rooms[size] -= 1
        return stay

    @tool(kind="read")
    async def menu(self) -> AsyncIterator[str]:
        """Read the menu, course by course."""
        for course in ("soup", "fish"):
            yield f"{course}\n"


def hear(update: Progress | Output) -> None:
    print("heard:", update.message if isinstance(update, Progress) else update.chunk.strip())


async def main() -> None:
    approver = RecordingApprover("yes")  # of toolcrib.testing: it answers, and keeps the questions
    async with Toolcrib() as crib, crib.session(profile="flat", approver=approver) as session:
        crib.add(Hotel({Size.SINGLE: 1, Size.DOUBLE: 4}))
        stay = {"guest": "Ada", "begins": "2026-12-01"}
        for name, arguments in (
            ("free_rooms", {}),
            ("book", {"stay": stay, "size": "single"}),
            ("book", {"stay": stay, "size": "single"}),
            ("book", {"stay": stay | {"nights": 60}, "size": "double"}),
            ("menu", {}),
        ):
            print((await session.call(name, arguments, listener=hear)).text)
        print(len(approver.questions), "questions,", len(crib.problems), "problems")


run(main())
