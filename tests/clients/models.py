"""The models of the suite: they say what a script wants, whatever they are told, and keep what they were told.

aimock, which nobody here wrote, speaks the chat API of OpenAI and the messages of Anthropic. Codex hides the tools of
MCP servers behind the tool search of OpenAI's Responses API, which aimock does not know: `ResponsesModel` does.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
import urllib.request
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from clients.script import CLIENT_VERBS, Said, Step, verbs_in
from rig import PATIENCE, ensure_npm, free_port, node, serving

Conversation = tuple[str, str, Sequence[Step]]
"""What the user says, what the client puts before a verb's name, and what the model does then."""

_DONE: Final = "finished"


class ChatModel:
    """A running aimock."""

    def __init__(self, url: str) -> None:
        self.url = url

    def heard(self, prompt: str) -> Said:
        """Return what the model was shown and told in the conversation that began with `prompt`."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal", timeout=PATIENCE) as answer:
            journal: list[dict[str, Any]] = json.load(answer)
        bodies: list[dict[str, Any]] = [entry["body"] for entry in journal if entry.get("body")]
        mine = [body for body in bodies if body.get("tools") and prompt in json.dumps(body.get("messages"))]
        told = {
            _key(said["tool_call_id"]): _text(said.get("content"))
            for body in mine
            for said in body["messages"]
            if said["role"] == "tool"
        }
        shown = {str((tool.get("function") or tool).get("name")) for body in mine for tool in body["tools"]}
        return Said(names=verbs_in(shown), told=told)


@contextmanager
def chat_model(folder: Path, conversations: Iterable[Conversation]) -> Generator[ChatModel]:
    """Run aimock with the script of all conversations until the block ends."""
    fixtures = [fixture for conversation in conversations for fixture in _fixtures(*conversation)]
    fixtures.append({"match": {}, "response": {"content": "nothing to do"}})
    scripts = folder / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "script.json").write_text(json.dumps({"fixtures": fixtures}))
    main, port = ensure_npm() / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js", free_port()
    with serving([node(), main, "-p", str(port), "-f", scripts], port=port, log=folder / "model.log"):
        yield ChatModel(f"http://127.0.0.1:{port}")


def _fixtures(prompt: str, prefix: str, steps: Sequence[Step]) -> Generator[dict[str, Any]]:
    """Each step follows the outcome of the one before it."""
    before: dict[str, Any] = {"userMessage": prompt, "hasToolResult": False}
    for step in steps:
        call = {"id": _id(prompt, step.key), "name": prefix + step.verb, "arguments": step.arguments}
        yield {"match": before, "response": {"toolCalls": [call]}}
        before = {"toolCallId": call["id"]}
    yield {"match": before, "response": {"content": _DONE}}


class ResponsesModel(http.server.ThreadingHTTPServer):
    """OpenAI's Responses API as far as Codex needs it: a tool search first, then the steps, by names in a namespace."""

    daemon_threads = True

    def __init__(self, conversations: Iterable[Conversation]) -> None:
        super().__init__(("127.0.0.1", 0), _Responder)
        self._scripts = {prompt: (namespace, steps) for prompt, namespace, steps in conversations}
        self._requests: list[list[dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def answer(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the item that follows the conversation so far."""
        self._requests.append(items)
        text = json.dumps(items)
        found = [(prompt, *script) for prompt, script in self._scripts.items() if prompt in text]
        if not found:
            return _message("nothing to do")
        [(prompt, namespace, steps)] = found
        searches = [item["tools"] for item in items if item["type"] == "tool_search_output"]
        if not any(searches):
            # Its servers start while the model thinks: a model that finds nothing looks again.
            time.sleep(1 if searches else 0)
            wanted = {"query": " ".join(CLIENT_VERBS), "limit": len(CLIENT_VERBS)}
            search = {"type": "tool_search_call", "execution": "client", "status": "completed"}
            return {**search, "call_id": _id(prompt, f"search{len(searches)}"), "arguments": wanted}
        done = sum(item["type"] == "function_call_output" for item in items)
        if done == len(steps):
            return _message(_DONE)
        step = steps[done]
        call = {"type": "function_call", "name": step.verb, "namespace": namespace}
        return {**call, "call_id": _id(prompt, step.key), "arguments": json.dumps(step.arguments)}

    def heard(self, prompt: str) -> Said:
        """Return what the model was shown and told in the conversation that began with `prompt`."""
        mine = [item for items in self._requests if prompt in json.dumps(items) for item in items]
        outputs = [item for item in mine if item["type"] == "function_call_output"]
        spaces = [space for item in mine if item["type"] == "tool_search_output" for space in item["tools"]]
        names = {f"{space['name']}.{tool['name']}" for space in spaces for tool in space.get("tools", [])}
        return Said(names=verbs_in(names), told={_key(item["call_id"]): _text(item["output"]) for item in outputs})


class _Responder(http.server.BaseHTTPRequestHandler):
    server: ResponsesModel  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version: ClassVar[str] = "HTTP/1.1"  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        counts = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events = [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.done", "output_index": 0, "item": self.server.answer(body["input"])},
            {"type": "response.completed", "response": {"id": "r", "usage": counts}},
        ]
        data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self._send(200, "text/event-stream", data)

    def do_GET(self) -> None:
        self._send(404, "application/json", b"{}")

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def responses_model(conversations: Iterable[Conversation]) -> Generator[ResponsesModel]:
    """Serve a script until the block ends."""
    with ResponsesModel(conversations) as model:
        thread = threading.Thread(target=model.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": list[str]()}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def _id(prompt: str, key: str) -> str:
    return f"call_{prompt.replace(' ', '_')}__{key}"


def _key(call_id: str) -> str:
    return call_id.rpartition("__")[2]


def _text(content: Any) -> str:
    """Return the text of a message, which is text, or parts of which some are."""
    if isinstance(content, str):
        return content
    parts: list[Mapping[str, Any]] = content or []
    return "\n".join(str(part.get("text", "")) for part in parts)
