from agents import function_tool
from langchain_core.tools import tool as langchain_tool
from pydantic_ai import ModelRetry, Tool

from toolcrib import Answer, Question, Toolcrib, run, tool


@langchain_tool
def search(query: str) -> list[str]:
    """Search the shop."""
    return [item for item in ("green tea", "black tea", "coffee") if query in item]


@function_tool
async def order(item: str, amount: int) -> str:
    """Order an item."""
    return f"{amount} {item} ordered"


def refund(order_id: int) -> str:
    """Refund an order."""
    raise ModelRetry(f"order {order_id} was not paid")


def answer(question: Question) -> Answer:
    print("May it run?", question.tool.name, question.arguments)
    return Answer(verdict="yes")


async def main() -> None:
    async with Toolcrib() as crib, crib.session(approver=answer) as session:
        crib.add([tool(kind="read")(search), order, Tool(refund, requires_approval=True)])
        print((await session.call("search", {"query": "tea"})).text)
        print((await session.call("order", {"item": "green tea", "amount": 2})).text)
        print((await session.call("refund", {"order_id": 7})).text)


run(main())
