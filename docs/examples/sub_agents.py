from toolcrib import Toolcrib, run, tool
from toolcrib.testing.models import Reply, ScriptedModel, Seen, calls
from toolcrib_agent import Agent


@tool(kind="read")
async def callers(function: str) -> str:
    """Find the callers of a function."""
    return f"4 places call {function}"


def script(seen: Seen) -> Reply:
    """Instead of a real model: the same answers every time."""
    if seen.prompts[0].startswith("Find"):  # the sub-agent
        return Reply(text=seen.results[0]) if seen.results else calls("callers", function="parse_config")
    if not seen.results:
        return calls("spawn_subagent", task="Find the callers of parse_config", name="callers")
    lines = "\n".join(seen.prompts).splitlines()
    return Reply(text=next(line for line in lines if "places" in line) if "And now?" in lines else "One is at work.")


async def main() -> None:
    async with Toolcrib() as crib, crib.session() as session:
        crib.add(callers)
        agent = Agent(ScriptedModel(*[script] * 5), session, sub_agents=True)
        outcome = await agent.run("How often is parse_config called?")
        print(outcome.text)
        await agent.sub_agents.wait_idle()  # a program may wait; a model goes on
        outcome = await agent.run("And now?", history=outcome.history)
        print(outcome.text)


run(main())
