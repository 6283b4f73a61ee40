from toolcrib import Toolcrib, run, tool
from toolcrib.testing import RecordingApprover


@tool(kind="read")
async def search_web(query: str) -> str:
    """Search the web."""
    return f"found {query}"


@tool(kind="write")
async def send(text: str) -> str:
    """Send a message."""
    return "sent"


async def main() -> None:
    async with Toolcrib(budgets={"tools": {"search_web": {"calls": 2}}}) as crib:
        crib.add(search_web)
        crib.add(send)
        async with crib.session(approver=RecordingApprover("no")) as session:
            for query in ("tea", "cake", "milk"):
                result = await session.call("search_web", {"query": query})
                print(result.text)
            await session.call("send", {"text": "hello"})
            print(dict(session.state.usage.calls))
        async with crib.session(profile="flat", mode="autonomous") as session:
            for _ in range(4):
                [result] = await session.call_many([("send", {"text": "hello"})])
            print(result.text)


run(main())
