import hashlib
import io
import json

from toolcrib import Toolcrib, run, tool


@tool(kind="write")
async def book(room: str) -> str:
    """Book a room."""
    return f"{room} is booked"


def verify(export: bytes) -> int:
    """Prove an export with nothing but the standard library; return how many records it holds."""
    last = (0, "0" * 64)
    for line in export.splitlines():
        seq, *values, prev, digest = json.loads(line).values()
        told = json.dumps([seq, *values], ensure_ascii=False, separators=(",", ":"))
        assert (seq - 1, prev) == last
        assert digest == hashlib.sha256((prev + told).encode()).hexdigest()
        last = (seq, digest)
    return last[0]


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(book)
        async with crib.session(mode="autonomous") as session:
            await session.call("book", {"room": "Blue"})
            await session.call("bok", {"room": "Red"})
        for row in await crib.store.calls.list():
            print(row.seq, row.tool, row.decision or "-", row.outcome, row.arguments)
        export = io.BytesIO()
        await crib.store.calls.export(export)
        print(verify(export.getvalue()), "records prove each other")
        try:
            verify(export.getvalue().replace(b"Blue", b"Gold"))
        except AssertionError:
            print("a changed record shows")


run(main())
