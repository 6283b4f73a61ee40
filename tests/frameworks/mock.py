"""A model that nobody here wrote: aimock, told by fixtures what to say; and a wire before it that keeps what it hears.

aimock's own journal puts every API into the words of one, and leaves out what that one has not: deferred tools, tools
that come in the middle of a conversation, results that are errors.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, cast

from frameworks.cases import Case, Turn, done
from rig import PATIENCE, ensure_npm, free_port, node, serving

Body = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Heard:
    """One request as it was sent: to OpenAI's chat or Responses API, or Anthropic's Messages."""

    body: Body

    @cached_property
    def tools(self) -> tuple[str, ...]:
        """Return the names of the tools that the model may call: declared ones, and those that came later on."""
        declared = [*self._declared, *(tool for item in self._items for tool in _tools_of(item))]
        return tuple(dict.fromkeys(str(_function(tool)["name"]) for tool in declared if "name" in _function(tool)))

    @cached_property
    def deferred(self) -> tuple[str, ...]:
        """Return the names of those that are declared and held back."""
        return tuple(str(tool["name"]) for tool in self._declared if tool.get("defer_loading"))

    @cached_property
    def definitions(self) -> str:
        """Return what the model reads of the tools and of the system prompt, as compact JSON."""
        shown = [_function(tool) for tool in self._declared if not tool.get("defer_loading")]
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False) + self.system

    @cached_property
    def system(self) -> str:
        """Return the system prompt that comes before everything."""
        said = [item for item in self._items if item.get("role") in ("system", "developer")]
        told = self.body.get("instructions") or self.body.get("system") or [item["content"] for item in said[:1]]
        return _text(told)

    @cached_property
    def results(self) -> tuple[tuple[str, str], ...]:
        """Return the results of calls, each with the id of its call, in their order."""
        found: list[tuple[str, str]] = []
        for item in self._items:
            if item.get("role") == "tool":
                found.append((item["tool_call_id"], _text(item["content"])))
            elif item.get("type") == "function_call_output":
                found.append((item["call_id"], _text(item["output"])))
            found += [(block["tool_use_id"], _text(block.get("content"))) for block in _blocks(item, "tool_result")]
        return tuple(found)

    @cached_property
    def errors(self) -> tuple[str, ...]:
        """Return the ids of the calls whose results say that they are errors, where the API has a word for that."""
        blocks = [block for item in self._items for block in _blocks(item, "tool_result")]
        return tuple(block["tool_use_id"] for block in blocks if block.get("is_error"))

    @property
    def _declared(self) -> list[Body]:
        return self.body.get("tools") or []

    @property
    def _items(self) -> list[Body]:
        items: Any = self.body.get("messages") or self.body.get("input")
        return cast("list[Body]", items) if isinstance(items, list) else []


@dataclass(frozen=True, kw_only=True)
class Mock:
    """A running aimock, and what was asked of it."""

    url: str
    behind: str
    """Where aimock itself listens."""
    bodies: list[Body]
    timeouts: Iterator[int] = field(default_factory=lambda: count(600))
    """Seconds, others each time: LangChain tells apart by them the clients for Anthropic that it keeps for ever."""

    def learn(self, case: Case, turns: Sequence[Turn], prompt: str) -> None:
        """Teach it what to say to a prompt: a turn a request, whatever frameworks put beside the results."""
        said: list[dict[str, Any]] = []
        for number, turn in enumerate(turns):
            calls = [
                {"name": name, "arguments": json.dumps(given), "id": call_id(prompt, number, place)}
                for place, (name, given) in enumerate(turn)
            ]
            said.append({"toolCalls": calls})
        said.append({"content": done(case)})
        fixtures = [
            {"match": {"userMessage": prompt, "sequenceIndex": number}, "response": response}
            for number, response in enumerate(said)
        ]
        data = json.dumps({"fixtures": fixtures}).encode()
        request = urllib.request.Request(f"{self.behind}/__aimock/fixtures", data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE):
            return

    def heard(self, prompt: str, *, until: str = "") -> list[Heard]:
        """Return the requests that have the one prompt, and not yet the other, in their order."""
        texts = [(body, json.dumps(body)) for body in self.bodies]
        return [Heard(body=body) for body, text in texts if prompt in text and not (until and until in text)]


@contextmanager
def running(folder: Path) -> Generator[Mock]:
    """Run one, on a port of its own, until the block ends; it refuses what no fixture speaks of."""
    fixtures = folder / "fixtures.json"
    fixtures.write_text('{"fixtures": [{"match": {"userMessage": "are you there"}, "response": {"content": "yes"}}]}')
    main, port = ensure_npm() / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js", free_port()
    command = [node(), main, "-p", str(port), "-f", fixtures, "--strict", "--journal-max", "1"]
    behind, bodies = f"http://127.0.0.1:{port}", list[Body]()
    with serving(command, port=port, log=folder / "log"), _listening(behind, bodies) as url:
        yield Mock(url=url, behind=behind, bodies=bodies)


def call_id(prompt: str, turn: int, place: int) -> str:
    """Return the id that the model gives a call."""
    words = "".join(letter if letter.isalnum() else "_" for letter in prompt)
    return f"call_{words}_{turn}_{place}"


@contextmanager
def _listening(behind: str, bodies: list[Body]) -> Generator[str]:
    """Listen in front of a server until the block ends, and keep what is sent to it."""

    class Wire(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["content-length"]))
            bodies.append(json.loads(sent))
            request = urllib.request.Request(behind + self.path, sent, {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    self._reply(answer.status, answer.headers["content-type"], answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    self._reply(error.code, error.headers["content-type"], error.read())

        def _reply(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Wire) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _function(tool: Body) -> Body:
    return tool.get("function") or tool


def _tools_of(item: Body) -> list[Body]:
    """Return the tools that an item of a conversation brings along."""
    later: list[Body] = item.get("tools") or []
    added: list[Body] = [block.get("tool") or {} for block in _blocks(item, "tool_addition")]
    return [*later, *added]


def _blocks(item: Body, kind: str) -> list[Body]:
    content: Any = item.get("content")
    blocks = cast("list[Body]", content) if isinstance(content, list) else []
    return [block for block in blocks if block.get("type") == kind]


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        return "".join(part if isinstance(part, str) else str(part.get("text", "")) for part in parts)
    return str(content or "")
