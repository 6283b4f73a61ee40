from toolcrib import Answer, Question, Toolcrib, run, tool
from toolcrib.testing.models import ScriptedModel, calls
from toolcrib_agent import Agent, AgentLimits
from toolcrib_agent.events import Asked, CallBegun, CallEnded, TextDelta


@tool(kind="read")
async def price(item: str) -> int:
    """What an item costs, in cents."""
    return {"tea": 350, "cake": 420}[item]


@tool(kind="write")
async def order(item: str) -> str:
    """Order an item."""
    return f"{item} is on its way"


async def agrees(question: Question) -> Answer:
    return Answer(verdict="yes", by="Ada")


async def main() -> None:
    # Instead of "anthropic:claude-sonnet-5-5": the same answers every time, no key, no network.
    model = ScriptedModel(
        calls("price", item="tea") + calls("price", item="cake"),
        calls("order", item="tea"),
        "Tea is cheaper. It is on its way.",
        "350 cents.",
    )
    async with Toolcrib() as crib, crib.session(approver=agrees) as session:
        crib.add(price, order)
        agent = Agent(model, session, limits=AgentLimits(requests=20, seconds=300))
        async with agent.stream("Order the cheaper one: tea or cake?") as events:
            async for event in events:
                match event:
                    case CallBegun():
                        print("call", event.name, event.arguments)
                    case Asked():
                        print("asks", event.question.decision.rule)
                    case CallEnded():
                        print("    ", event.result.text, "|", event.rule)
                    case TextDelta():
                        print(event.text, end="")
                    case _:
                        pass
        print()
        outcome = await agent.run("What did it cost?", history=events.outcome.history)
        print(outcome.text, outcome.stopped, len(outcome.history), "messages")


run(main())
