from agents import RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call

from toolcrib import Answer, Toolcrib, defer_approval, run, tool
from toolcrib.integrations.openai_agents import ToolcribAgent


@tool(kind="write")
def order(item: str, amount: int) -> str:
    """Order more of an item."""
    return f"{amount} {item} ordered"


async def main() -> None:
    # Plays a script, so that this runs without a key; yours is "gpt-5.6" or any other.
    wanted = function_call("order", {"item": "tea", "amount": 5}, call_id="1")
    model = ScriptedModel([[wanted], [assistant_message("Five are on their way.")]])
    quietly = RunConfig(tracing_disabled=True)
    async with Toolcrib(memory=True) as crib:
        crib.add([order])
        session = crib.session(mode="cautious", approver=defer_approval)
        agent = ToolcribAgent[None](name="Shop", model=model, session=session)

        result = await Runner.run(agent, "Order tea.", run_config=quietly)
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                question = await agent.question(item)
                print(f"May {question.tool} run with {' '.join(question.arguments.split())}?")
                await agent.answer(state, item, Answer(verdict="yes", by="Ada"))
            result = await Runner.run(agent, state, run_config=quietly)
        print(result.final_output)


run(main())
