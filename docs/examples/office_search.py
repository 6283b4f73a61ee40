from office import FUNCTIONS

from toolcrib import Toolcrib, run


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(FUNCTIONS)
        session = crib.session()
        print(len(crib.catalog), "tools; the model sees", [tool.name for tool in session.tools])
        found = await session.call("search_tools", {"query": "create a meeting", "limit": 2})
        print(found.text)
        listed = await session.call("list_meetings")
        print(listed.text)
        wrong = await session.call("list_meeting")
        print(wrong.text)


run(main())
