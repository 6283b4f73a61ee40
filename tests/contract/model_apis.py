"""The APIs of models, as far as an agent meets them: what is sent is kept, what comes back is written down in a test.

The adapters and SDKs between are the real ones; only the network is not there. The events are those of the APIs'
documentation (Messages, Chat Completions and Responses, streamed).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


@dataclass(frozen=True, kw_only=True)
class Say:
    """What the model answers: a text, and calls as (id, name, arguments as they stand on the wire)."""

    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()


def busy(status: int, **headers: str) -> httpx2.Response:
    """Return a refusal of the API."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json={"error": {"type": "overloaded_error", "message": "busy"}}, headers=named)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request, in the words of its API."""

    api: str
    body: Mapping[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names in its list of tools."""
        return [tool.get("name") or tool["function"]["name"] for tool in self.body.get("tools", [])]

    @property
    def listing(self) -> list[dict[str, Any]]:
        """Its list of tools, without the marks of the cache."""
        tools = self.body.get("tools", [])
        return [{key: value for key, value in tool.items() if key != "cache_control"} for tool in tools]

    @property
    def text(self) -> str:
        """All of it but the list of tools, as JSON."""
        return json.dumps({key: value for key, value in self.body.items() if key != "tools"}, ensure_ascii=False)

    @property
    def may_call(self) -> bool:
        """Whether the model may call a tool."""
        choice = self.body.get("tool_choice", "auto")
        return bool(self.tools) and choice not in ("none", {"type": "none"})


@dataclass(kw_only=True)
class Api:
    """One API with a script. `model()` talks to it."""

    name: str
    script: list[Say | httpx2.Response] = field(default_factory=list[Say | httpx2.Response])
    sent: list[Sent] = field(default_factory=list[Sent])

    def model(self) -> Model:
        """Return a model of this API, with the real adapter and SDK."""
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))
        if self.name == "anthropic":
            return AnthropicModel("claude-sonnet-5-5", provider=AnthropicProvider(api_key="k", http_client=client))
        provider = OpenAIProvider(api_key="k", http_client=client)
        if self.name == "openai":
            return OpenAIChatModel("gpt-6-luna", provider=provider)
        return OpenAIResponsesModel("gpt-6-luna", provider=provider)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(Sent(api=self.name, body=json.loads(request.content)))
        step = self.script.pop(0)
        if isinstance(step, httpx2.Response):
            return step
        lines = "".join(f"event: {kind}\ndata: {data}\n\n" for kind, data in _EVENTS[self.name](step))
        return httpx2.Response(200, text=lines, headers={"content-type": "text/event-stream"})


def _anthropic(say: Say) -> Iterator[tuple[str, str]]:
    def event(kind: str, **fields: Any) -> tuple[str, str]:
        return kind, json.dumps({"type": kind, **fields})

    usage = {"input_tokens": 100, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-sonnet-5-5",
    }
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage})
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if say.text:
        blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": say.text}))
    for id, name, arguments in say.calls:
        block: dict[str, Any] = {"type": "tool_use", "id": id, "name": name, "input": {}}
        blocks.append((block, {"type": "input_json_delta", "partial_json": arguments}))
    for index, (block, delta) in enumerate(blocks):
        yield event("content_block_start", index=index, content_block=block)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    stop = "tool_use" if say.calls else "end_turn"
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 20})
    yield event("message_stop")


def _openai(say: Say) -> Iterator[tuple[str, str]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> tuple[str, str]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "message", json.dumps({**_CHUNK, "choices": [choice]})

    yield chunk({"role": "assistant", "content": say.text})
    for index, (id, name, arguments) in enumerate(say.calls):
        function = {"name": name, "arguments": arguments}
        yield chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
    yield chunk({}, "tool_calls" if say.calls else "stop")
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    yield "message", json.dumps({**_CHUNK, "choices": [], "usage": usage})
    yield "message", "[DONE]"


_CHUNK: Final = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-6-luna"}


def _responses(say: Say) -> Iterator[tuple[str, str]]:
    number = iter(range(1000))

    def event(kind: str, **fields: Any) -> tuple[str, str]:
        return kind, json.dumps({"type": kind, "sequence_number": next(number), **fields})

    yield event("response.created", response={**_RESPONSE, "status": "in_progress", "output": []})
    items: list[dict[str, Any]] = []
    if say.text:
        part: dict[str, Any] = {"type": "output_text", "text": say.text, "annotations": []}
        items.append({"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]})
    for id, name, arguments in say.calls:
        call = {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments}
        items.append({**call, "status": "completed"})
    for place, item in enumerate(items):
        where = {"output_index": place, "item_id": item["id"]}
        if item["type"] == "message":
            yield event("response.output_item.added", output_index=place, item={**item, "content": []})
            empty: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **where, content_index=0, part=empty)
            yield event("response.output_text.delta", **where, content_index=0, delta=say.text, logprobs=[])
        else:
            yield event("response.output_item.added", output_index=place, item={**item, "arguments": ""})
            yield event("response.function_call_arguments.delta", **where, delta=item["arguments"])
        yield event("response.output_item.done", output_index=place, item=item)
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120, **details}
    yield event("response.completed", response={**_RESPONSE, "status": "completed", "output": items, "usage": usage})


_RESPONSE: Final[Mapping[str, Any]] = json.loads(
    """{"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-6-luna", "parallel_tool_calls": true,
    "tool_choice": "auto", "tools": [], "error": null, "incomplete_details": null, "instructions": null,
    "metadata": {}, "temperature": 1, "top_p": 1}"""
)
_EVENTS: Final[Mapping[str, Callable[[Say], Iterator[tuple[str, str]]]]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "openai-responses": _responses,
}
APIS: Final = tuple(_EVENTS)
