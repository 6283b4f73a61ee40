from toolcrib import Toolcrib, ToolFailure, run, tool
from toolcrib.workflows import Workflows


@tool(kind="read")
async def find_person(name: str) -> dict[str, str]:
    """Find a person."""
    return {"name": name.title(), "address": f"{name}@example.org"}


@tool(kind="write")
async def send_letter(to: str, text: str) -> str:
    """Send a letter."""
    if closed:
        raise ToolFailure("unavailable", closed.pop())
    return f"sent to {to}: {text}"


closed = ["the post is closed"]

WRITE_TO = {
    "description": "Find somebody and write them a letter.",
    "input": {"name": "string", "news": {"type": "string", "default": "all is well"}},
    "steps": {
        "find": {"tool": "find_person", "arguments": {"name": {"$from": "$.input.name"}}},
        "send": {
            "tool": "send_letter",
            "arguments": {
                "to": {"$from": "$.steps.find.address"},
                "text": {"$text": "Dear {$.steps.find.name}, {$.input.news}"},
            },
        },
    },
}


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(find_person, send_letter)
        await crib.slice(Workflows).add("write_to", WRITE_TO)
        session = crib.session(mode="autonomous")
        broken = await session.call("write_to", {"name": "ada"})
        print(broken.text.splitlines()[0])
        assert broken.error is not None
        details = broken.error.details
        print({name: step["status"] for name, step in details["steps"].items()})
        result = await session.call("write_to", {"name": "ada", "resume_id": details["resume_id"]})
        print(result.text)
        print([row.tool for row in await crib.store.calls.list()][::-1])


run(main())
