from pydantic_ai import Agent, DeferredToolRequests

from toolcrib import Answer, Toolcrib, defer_approval, run, tool
from toolcrib.integrations.pydantic_ai import ToolcribToolset, answered, questions
from toolcrib.testing.models import ScriptedModel, calls

stock = {"tea": 2}


@tool(kind="read")
def count_stock(item: str) -> int:
    """Count what is left of an item."""
    return stock[item]


@tool(kind="write")
def order(item: str, amount: int) -> str:
    """Order more of an item."""
    stock[item] += amount
    return f"{amount} {item} ordered"


async def main() -> None:
    # Plays a script, so that this runs without a key; yours is "openai:gpt-5.6" or any other.
    model = ScriptedModel(calls("count_stock", item="tea"), calls("order", item="tea", amount=5), "There will be 7.")
    async with Toolcrib(memory=True) as crib:
        crib.add([count_stock, order])
        session = crib.session(mode="cautious", approver=defer_approval)
        agent = Agent(model, toolsets=[ToolcribToolset(session)], output_type=[str, DeferredToolRequests])

        done = await agent.run("Order tea when there is little of it.")
        while isinstance(done.output, DeferredToolRequests):
            asked = questions(done.output)
            for question in asked.values():
                print(f"May {question.tool} run with {' '.join(question.arguments.split())}?")
            results = answered(done.output, dict.fromkeys(asked, Answer(verdict="yes", by="Ada")))
            done = await agent.run(message_history=done.all_messages(), deferred_tool_results=results)
        print(done.output, stock)


run(main())
