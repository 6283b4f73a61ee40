"""A scripted model behind OpenAI's chat API on loopback: what a real model's requests and answers go through."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai.models import Model
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from peers.api import Api, api
from scenarios.case import Case
from scenarios.player import Player, Saying, done_well
from toolcrib.crib import Session
from toolcrib_agent import model_of


@dataclass(kw_only=True)
class Wire:
    """The API, and the models that it has. One case at a time."""

    running: Api
    tokens: int = 1000
    """Of the input of each request, as it counts; the output has ten."""
    refuses: int = 0
    """A status that every request is answered with, if it is not 0."""
    player: Player | None = None

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all requests."""
        return [json.loads(seen["body"]) for seen in self.running.received]

    def model(self, named: str = "local:scripted") -> Model:
        """Return the model as an agent has it."""
        return model_of(named, base_url=f"{self.running.origin}/v1", api_key="none")

    def of(self, case: Case, session: Session) -> Model:
        """Return the model of a case."""
        self.player = Player(case=case, session=session, play=done_well)
        return self.model()

    async def answer(self, request: Request) -> Response:
        """Answer a request for a completion, as a stream of events."""
        if self.refuses:
            return JSONResponse({"error": {"message": "no more money", "type": "billing"}}, self.refuses)
        body = await request.json()
        return StreamingResponse(self._events(body), media_type="text/event-stream")

    def _events(self, body: dict[str, Any]) -> Iterator[str]:
        assert self.player is not None
        messages: list[dict[str, Any]] = body["messages"]
        last = max((at for at, one in enumerate(messages) if one["role"] == "assistant"), default=-1)
        returns = [str(one["content"]) for one in messages[last + 1 :] if one["role"] == "tool"]
        tools = [tool["function"]["name"] for tool in body.get("tools", ())]
        instructions = "\n".join(str(one["content"]) for one in messages if one["role"] in ("system", "developer"))
        move = self.player.move(instructions, tools, returns)
        if isinstance(move, Saying):
            yield _chunk(body, {"role": "assistant", "content": move.text})
            yield _chunk(body, {}, finish_reason="stop")
        else:
            for place, (name, given) in enumerate(move.calls):
                called = {"name": name, "arguments": json.dumps(given)}
                one = {"index": place, "id": self.player.next_id(), "type": "function", "function": called}
                yield _chunk(body, {"role": "assistant", "tool_calls": [one]})
            yield _chunk(body, {}, finish_reason="tool_calls")
        used = {"prompt_tokens": self.tokens, "completion_tokens": 10, "total_tokens": self.tokens + 10}
        yield _event(body, {"choices": [], "usage": used})
        yield "data: [DONE]\n\n"


def _chunk(body: dict[str, Any], delta: dict[str, Any], finish_reason: str | None = None) -> str:
    return _event(body, {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _event(body: dict[str, Any], more: dict[str, Any]) -> str:
    told = {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": body["model"], **more}
    return f"data: {json.dumps(told)}\n\n"


@asynccontextmanager
async def open_wire() -> AsyncGenerator[Wire]:
    """Serve until the block ends."""
    async with api() as running:
        wire = Wire(running=running)
        running.handlers["POST /v1/chat/completions"] = wire.answer
        yield wire
