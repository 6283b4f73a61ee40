"""A model that makes the calls that it is given with whatever a client declares: one server, three APIs.

It speaks the messages of Anthropic, and the chat and Responses APIs of OpenAI. A tool is called by the name that the
client shows; one that a client holds back is asked for by the client's own tool search; one that a gateway holds back
is called through `call_tool`. It keeps the first request that declares tools, and when that came.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

from toolcrib.core.json import dumps

Json = dict[str, Any]

_DONE: Final = "finished"
_TRIES: Final = 12
"""Turns in which one tool is looked for."""
_IDLE: Final[Mapping[str, Json]] = {"Read": {"file_path": "/nothing"}, "get_goal": {}}
"""Tools of clients that may send a first request before their servers are there: a call brings the next request."""
_PAUSE: Final = 1.0
"""Seconds before a search for what is not listed: a client may not wait for its servers to start."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One call that the model makes."""

    server: str
    tool: str
    arguments: Mapping[str, Any]
    reads: bool = False
    after: Callable[[Sequence[str]], Mapping[str, Any]] | None = None
    """Function that makes further arguments of the results so far."""

    @property
    def whole(self) -> str:
        """Its name behind a gateway; a tool of the client's own has no server."""
        return f"{self.server}__{self.tool}" if self.server else self.tool


@dataclass(kw_only=True)
class _Chat:
    """What one request says, whatever the API."""

    declared: list[str]
    """Names of the tools, a namespace before its members."""
    held: set[str]
    """Names that the client lists and holds back."""
    loaded: set[str]
    """Those of them that were asked for."""
    searches: int
    """Searches of the client's own, and idle calls, since the last call of a wish."""
    results: list[str]
    """Results of the wishes so far."""
    search: str = ""
    """The client's own tool search."""


@dataclass(kw_only=True)
class Reactive:
    """The running model."""

    url: str
    wishes: Sequence[Wish] = ()
    shown: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    """By request: definitions, and lines of text before the first answer or with a name that is held back."""
    first_at: float = 0.0
    """When the first request with tools came, by `time.monotonic`."""
    results: list[str] = field(default_factory=list[str])
    """What the model read, one text a wish."""

    def begin(self, wishes: Sequence[Wish]) -> None:
        """Forget what was, and make these calls from now on."""
        self.wishes, self.shown, self.first_at, self.results = wishes, [], 0.0, []

    def next(self, chat: _Chat) -> tuple[str, Any] | None:
        """Return the next call, None at the end. A search is `("", query)`."""
        self.results = chat.results
        if len(chat.results) >= len(self.wishes):
            return None
        wish = self.wishes[len(chat.results)]
        arguments = {**wish.arguments, **wish.after(chat.results)} if wish.after else wish.arguments
        there = [*chat.declared, *chat.loaded]
        if own := named(there, wish.whole):
            return own, dict(arguments)
        through = "call_tool_readonly" if wish.reads else "call_tool"
        if verb := named(there, through):
            return verb, {"name": wish.whole, "arguments": dict(arguments)}
        wanted = named(chat.held, wish.whole) or named(chat.held, through)
        if chat.search and chat.searches < _TRIES:
            time.sleep(0 if wanted else _PAUSE)
            return "", wanted or (through if chat.searches % 2 else f"{wish.server} {wish.tool}")
        idle = next((name for name in chat.declared if name in _IDLE), "")
        if idle and chat.searches < _TRIES:
            time.sleep(_PAUSE)
            return idle, _IDLE[idle]
        return None


def named(names: Sequence[str] | set[str], wanted: str) -> str:
    """Return the one of `names` that ends like `wanted` whatever stands between its parts; empty where none does."""
    end = f"_{_plain(wanted)}"
    return next((name for name in sorted(names) if f"_{_plain(name)}".endswith(end)), "")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


class _Answer(http.server.BaseHTTPRequestHandler):
    model: ClassVar[Reactive]
    protocol_version: ClassVar[str] = "HTTP/1.1"  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self._send(404, "application/json", b"{}")

    def do_POST(self) -> None:
        at = time.monotonic()
        body: Json = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        api = next((api for api in _APIS if self.path.partition("?")[0].endswith(api)), "")
        if not api:
            self._send(404, "application/json", b"{}")
            return
        read, said, asked = _APIS[api]
        model = self.model
        if body.get("tools"):
            model.first_at = model.first_at or at
            model.shown.append(frozenset(_shown(body)))
        call = model.next(read(body)) if body.get("tools") else None
        number = len(model.results)
        events = said(_DONE) if call is None else asked(f"call_{number}_{at:.6f}".replace(".", "_"), *call)
        if not body.get("stream"):
            self._send(200, "application/json", json.dumps(_whole_chat(list(events))).encode())
            return
        lines = [f"{_event_line(event)}data: {json.dumps(event)}\n\n" for event in events]
        if api == "/chat/completions":
            lines.append("data: [DONE]\n\n")
        self._send(200, "text/event-stream", "".join(lines).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def reactive_model() -> Generator[Reactive]:
    """Serve until the block ends."""
    handler = type("_Handler", (_Answer,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        model = handler.model = Reactive(url=f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield model
        finally:
            server.shutdown()


_ANSWERS: Final = frozenset({"function_call", "reasoning", "tool_search_call"})


def _shown(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a model reads of tools in a request."""
    for tool in body["tools"]:
        yield dumps(tool).decode()
    is_first = True
    for message in [{"content": body.get("system", "")}, {"content": body.get("instructions", "")}, *_messages(body)]:
        is_first = is_first and message.get("role") != "assistant" and message.get("type") not in _ANSWERS
        lines = _text(message.get("content")).splitlines()
        yield from (line for line in lines if is_first or line.startswith("mcp__"))


def _messages(body: Mapping[str, Any]) -> list[Json]:
    return [*body.get("messages", ()), *body.get("input", ())]


def _event_line(event: Json) -> str:
    return f"event: {event['type']}\n" if "type" in event else ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = cast("list[Json]", content or [])
    return "\n".join(str(part.get("text", "")) for part in parts)


# Anthropic's messages


def _read_messages(body: Json) -> _Chat:
    parts = [part for message in body["messages"] for part in _parts(message["content"])]
    calls = {part["id"]: part for part in parts if part.get("type") == "tool_use"}
    outcomes = [part for part in parts if part.get("type") == "tool_result"]
    names = [str(calls[one["tool_use_id"]]["name"]) for one in outcomes]
    texts = "\n".join(str(part.get("text", "")) for part in parts)
    declared = [tool["name"] for tool in body["tools"]]
    found = "\n".join(json.dumps(one) for one, name in zip(outcomes, names, strict=True) if name == "ToolSearch")
    return _Chat(
        declared=declared,
        held=set(re.findall(r"^mcp__\S+$", texts, re.MULTILINE)),
        loaded=set(re.findall(r"mcp__\w[\w-]*", found)),
        searches=_since_last([name in ("ToolSearch", *_IDLE) for name in names]),
        results=[
            _text(one.get("content"))
            for one, name in zip(outcomes, names, strict=True)
            if name not in ("ToolSearch", *_IDLE)
        ],
        search="ToolSearch" if "ToolSearch" in declared else "",
    )


def _parts(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _since_last(are_searches: Sequence[bool]) -> int:
    count = 0
    for is_search in reversed(are_searches):
        if not is_search:
            break
        count += 1
    return count


def _message_events(block: Json, delta: Json, reason: str) -> Iterator[Json]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: Json = {"id": "m", "type": "message", "role": "assistant", "model": "mock", "content": [], "usage": usage}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _say_message(text: str) -> Iterator[Json]:
    return _message_events({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn")


def _ask_message(id: str, name: str, arguments: Any) -> Iterator[Json]:
    query = f"select:{arguments}" if str(arguments).startswith("mcp__") else arguments
    given = arguments if name else {"query": query, "max_results": 5}
    block: Json = {"type": "tool_use", "id": f"toolu_{id}", "name": name or "ToolSearch", "input": {}}
    return _message_events(block, {"type": "input_json_delta", "partial_json": json.dumps(given)}, "tool_use")


# OpenAI's chat


def _read_chat(body: Json) -> _Chat:
    results = [_text(message.get("content")) for message in body["messages"] if message["role"] == "tool"]
    names = [tool["function"]["name"] for tool in body["tools"] if "function" in tool]
    return _Chat(declared=names, held=set(), loaded=set(), searches=0, results=results)


def _chat_chunk(delta: Json, reason: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "mock", "choices": [choice]} | (
        {"usage": usage} if reason else {}
    )


def _say_chat(text: str) -> Iterator[Json]:
    yield _chat_chunk({"role": "assistant", "content": text}, None)
    yield _chat_chunk({}, "stop")


def _ask_chat(id: str, name: str, arguments: Any) -> Iterator[Json]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": id, "type": "function", "function": function}
    yield _chat_chunk({"role": "assistant", "content": None, "tool_calls": [call]}, None)
    yield _chat_chunk({}, "tool_calls")


def _whole_chat(chunks: Sequence[Json]) -> Json:
    """Return chunks of a chat as one completion."""
    last = chunks[-1]
    choice = {
        "index": 0,
        "message": chunks[0]["choices"][0]["delta"],
        "finish_reason": last["choices"][0]["finish_reason"],
    }
    return {**last, "object": "chat.completion", "choices": [choice]}


# OpenAI's Responses


_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_FREEFORM: Final = "apply_patch"
"""A tool of Codex that takes a text instead of arguments."""


def _read_responses(body: Json) -> _Chat:
    items: list[Json] = body["input"]
    spaces = [space for item in items if item["type"] == "tool_search_output" for space in item["tools"]]
    idle = {item["call_id"] for item in items if item["type"] == "function_call" and item["name"] in _IDLE}
    outputs = [item for item in items if item["type"] in (*_OUTPUTS, "tool_search_output")]
    wished = [item for item in outputs if item["type"] in _OUTPUTS and item["call_id"] not in idle]
    return _Chat(
        declared=_members(body["tools"]),
        held=set(),
        loaded=set(_members(spaces)),
        searches=_since_last([item not in wished for item in outputs]),
        results=[_text(item["output"]) for item in wished],
        search="tool_search" if any(tool.get("type") == "tool_search" for tool in body["tools"]) else "",
    )


def _members(tools: Sequence[Json]) -> list[str]:
    """Return the names of tools; those of a namespace after its name and a slash."""
    names: list[str] = []
    for tool in tools:
        inner = tool.get("tools") if tool.get("type") == "namespace" else None
        names += [f"{tool['name']}/{one['name']}" for one in inner] if inner else [str(tool.get("name"))]
    return names


def _response_events(item: Json) -> Iterator[Json]:
    counts = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {"id": "r"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "r", "usage": counts}}


def _say_response(text: str) -> Iterator[Json]:
    content = [{"type": "output_text", "text": text, "annotations": list[str]()}]
    return _response_events({"type": "message", "role": "assistant", "status": "completed", "content": content})


def _ask_response(id: str, name: str, arguments: Any) -> Iterator[Json]:
    if not name:
        search = {"type": "tool_search_call", "execution": "client", "status": "completed", "call_id": id}
        return _response_events({**search, "arguments": {"query": arguments, "limit": 8}})
    if name == _FREEFORM:
        return _response_events({"type": "custom_tool_call", "call_id": id, "name": name, "input": arguments["input"]})
    space, slash, member = name.rpartition("/")
    call = {"type": "function_call", "call_id": id, "name": member, "arguments": json.dumps(arguments)}
    return _response_events({**call, "namespace": space} if slash else call)


_APIS: Final[Mapping[str, tuple[Any, Any, Any]]] = {
    "/messages": (_read_messages, _say_message, _ask_message),
    "/chat/completions": (_read_chat, _say_chat, _ask_chat),
    "/responses": (_read_responses, _say_response, _ask_response),
}
"""By the end of the path: how a request is read, a text is said, and a call is made."""
