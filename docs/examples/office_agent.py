from office import FUNCTIONS

from toolcrib import Toolcrib, run
from toolcrib.testing.models import ScriptedModel, calls
from toolcrib_agent import Agent


async def main() -> None:
    # Plays a script, so that this runs without a key; yours is "anthropic:claude-sonnet-5-5" or any other.
    model = ScriptedModel(
        calls("search_tools", query="create a meeting"),
        calls("call_tool", name="create_meeting", arguments={"text": "Budget, Monday at ten"}),
        "The meeting is booked.",
    )
    async with Toolcrib(rules={"allow": ["create_*"]}) as crib:
        crib.add(FUNCTIONS)
        outcome = await Agent(model, crib.session()).run("Book a meeting about the budget, Monday at ten.")
        print(outcome.text)
        print([row.tool for row in await crib.store.calls.list()][::-1])


run(main())
