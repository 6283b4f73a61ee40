from toolcrib import Toolcrib, run, tool
from toolcrib.config import bare
from toolcrib.core.budget import Budget, Budgets
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
    settings = bare().with_values(budgets=Budgets(tools={"search_web": Budget(calls=2)}))
    async with Toolcrib(settings, memory=True) as crib:
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
