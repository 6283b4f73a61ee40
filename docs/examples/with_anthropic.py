from typing import Any

import httpx2
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from anthropic.types import MessageParam

from toolcrib import Answer, Session, Toolcrib, defer_approval, run, tool
from toolcrib.integrations.anthropic import answer, request


@tool(kind="write")
def order(item: str, amount: int) -> str:
    """Order more of an item."""
    return f"{amount} {item} ordered"


async def talk(client: AsyncAnthropic, session: Session, prompt: str) -> str:
    """The loop: all that is needed."""
    session.begin()
    messages: list[MessageParam] = [{"role": "user", "content": prompt}]
    while True:
        wanted = request(session, messages, system="Be brief.")
        message = await client.messages.create(model="claude-opus-4-8", max_tokens=4096, **wanted)
        turn = await answer(session, message)
        for question in turn.questions:
            print(f"May {question.tool} run with {' '.join(question.arguments.split())}?")
            turn = await turn.resume({question.approval: Answer(verdict="yes", by="Ada")})
        messages += turn.messages
        if turn.is_final:
            return "".join(block.text for block in message.content if block.type == "text")


# Plays a script in place of the API, so that this runs without a key.
script: list[dict[str, Any]] = [
    {"type": "tool_use", "id": "1", "name": "order", "input": {"item": "tea", "amount": 5}},
    {"type": "text", "text": "Five are on their way."},
]


def play(request: httpx2.Request) -> httpx2.Response:
    said, usage = script.pop(0), {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "1", "type": "message", "role": "assistant", "model": "claude-opus-4-8", "usage": usage}
    stop = "tool_use" if said["type"] == "tool_use" else "end_turn"
    return httpx2.Response(200, json={**head, "content": [said], "stop_reason": stop, "stop_sequence": None})


async def main() -> None:
    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(play))
    async with Toolcrib(memory=True) as crib, AsyncAnthropic(api_key="none", http_client=http) as client:
        crib.add([order])
        print(await talk(client, crib.session(mode="cautious", approver=defer_approval), "Order tea."))


run(main())
