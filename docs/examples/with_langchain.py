# pyright: basic
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from toolcrib import Toolcrib, defer_approval, run, tool
from toolcrib.integrations.langchain import ToolcribMiddleware


@tool(kind="write")
def order(item: str, amount: int) -> str:
    """Order more of an item."""
    return f"{amount} {item} ordered"


class Played(GenericFakeChatModel):
    """Plays a script, so that this runs without a key; yours is "openai:gpt-5.6" or any other."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """Say what the model is given."""
        print("sees", [one.name for one in tools])
        return self


async def main() -> None:
    wanted = {"name": "order", "args": {"item": "tea", "amount": 5}, "id": "1"}
    model = Played(messages=iter([AIMessage("", tool_calls=[wanted]), AIMessage("Five are on their way.")]))
    thread: RunnableConfig = {"configurable": {"thread_id": "1"}}
    async with Toolcrib(memory=True) as crib:
        crib.add([order])
        session = crib.session(mode="cautious", approver=defer_approval)
        agent = create_agent(model, middleware=[ToolcribMiddleware(session)], checkpointer=InMemorySaver())

        state = await agent.ainvoke({"messages": [HumanMessage("Order tea.")]}, thread)
        while asked := state.get("__interrupt__"):
            print("May it run?", asked[0].value["name"], asked[0].value["args"])
            state = await agent.ainvoke(Command(resume={"verdict": "yes", "by": "Ada"}), thread)
        print(state["messages"][-1].text)


run(main())
