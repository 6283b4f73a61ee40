from toolcrib import Toolcrib, run, tool


@tool(kind="read", core=True)
def read_note(name: str) -> str:
    """Read a note."""
    return f"the note {name}"


@tool(kind="read", category="search")
def grep_notes(pattern: str, limit: int = 20) -> list[str]:
    """Search the text of notes. A regular expression."""
    return [f"{pattern} is in a note"][:limit]


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(read_note, grep_notes)
        session = crib.session(profile="introspection")
        print([shown.name for shown in session.tools])
        print((await session.call("list_tools", {"category": "search"})).structured_content["tools"][0])
        print((await session.call("grep_notes", {"pattern": "tea"})).structured_content["hint"])
        found = await session.call("get_tool_schemas", {"names": ["grep_notes", "grep"]})
        print(found.structured_content["activated"], found.structured_content["suggestions"])
        print((await session.call("grep_notes", {"pattern": "tea"})).text, session.loaded)
        session.disable("grep_notes")
        print((await session.call("grep_notes", {"pattern": "tea"})).text, session.status)


run(main())
