from typing import Any

import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletionMessageParam

from toolcrib import Session, Toolcrib, run, tool
from toolcrib.integrations.openai import answer, chat


@tool(kind="read")
def count_stock(item: str) -> int:
    """Count what is left of an item."""
    return {"tea": 2}[item]


async def talk(client: AsyncOpenAI, session: Session, prompt: str) -> str | None:
    """The loop: all that is needed."""
    session.begin()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": prompt}]
    while True:
        completion = await client.chat.completions.create(model="gpt-5.6", **chat(session, messages))
        turn = await answer(session, completion)
        messages += turn.messages
        if turn.is_final:
            return completion.choices[0].message.content


# Plays a script in place of the API, so that this runs without a key.
wanted = {"id": "1", "type": "function", "function": {"name": "count_stock", "arguments": '{"item": "tea"}'}}
script: list[dict[str, Any]] = [{"tool_calls": [wanted]}, {"content": "There are two."}]


def play(request: httpx2.Request) -> httpx2.Response:
    message = {"role": "assistant", "content": None, **script.pop(0)}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    head = {"id": "1", "object": "chat.completion", "created": 1, "model": "gpt-5.6"}
    return httpx2.Response(200, json={**head, "choices": [choice]})


async def main() -> None:
    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(play))
    async with Toolcrib() as crib, AsyncOpenAI(api_key="none", http_client=http) as client:
        crib.add([count_stock])
        print(await talk(client, crib.session(), "How much tea is there?"))


run(main())
