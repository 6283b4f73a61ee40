"""The seeds' tools in `toolcrib chat`: a model behind an API is declared them, calls them, and they do it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from contract.ways_in import TOOLCRIB, Home
from rig import PATIENCE
from seeds.builtin_world import server_of, tools_of
from seeds.inventory import Case, git, prepare

Call = tuple[str, Mapping[str, Any]]
COMMIT: Call = ("git_commit", {"message": "All of it"})
PAGE: dict[str, Any] = {"op": "util.web.visit", "args": {"url": "{origin}/page"}}
CLASSIFY = "classify_intent"
"""The request of the analysis before the first one of the task; it is no call of a tool."""

TALKS: list[Any] = [
    pytest.param("tiered", [("load_tools", {"category": "git"}), COMMIT], id="tiered"),
    pytest.param("flat", [("git_stage", {"files": ["new.txt"]}), COMMIT], id="flat"),
    pytest.param(
        "introspection",
        [
            ("get_tool_schemas", {"names": ["renameFile"]}),
            ("renameFile", {"source_path": "new.txt", "destination_path": "named.txt"}),
        ],
        id="introspection",
    ),
    pytest.param(
        "selection",
        [(CLASSIFY, {"complexity": "medium"}), ("api_calling", {"api_name": "shop", "path": "/page"})],
        id="selection",
    ),
    pytest.param("gateway", [("tool_exec", PAGE)], id="gateway"),
]


class Scripted:
    """A model behind OpenAI's chat API that makes one call after the other, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = list(calls)
        self.declared: list[set[str]] = []
        """The names of the tools that came with each request."""

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.declared.append({tool["function"]["name"] for tool in body["tools"]})
        return StreamingResponse(self._events(body["model"]), media_type="text/event-stream")

    def _events(self, model: str) -> Iterator[str]:
        place = len(self.declared) - 1
        delta: dict[str, Any] = {"content": "Done."}
        if place < len(self._calls):
            name, given = self._calls[place]
            function = {"name": name, "arguments": json.dumps(given)}
            delta = {"tool_calls": [{"index": 0, "id": f"c{place}", "type": "function", "function": function}]}
        reason = "tool_calls" if "tool_calls" in delta else "stop"
        for change, end in (({"role": "assistant", **delta}, None), ({}, reason)):
            told: dict[str, Any] = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": model}
            told["choices"] = [{"index": 0, "delta": change, "finish_reason": end}]
            yield f"data: {json.dumps(told)}\n\n"
        yield "data: [DONE]\n\n"


@pytest.mark.parametrize(("profile", "calls"), TALKS)
async def test_a_model_in_a_chat_is_declared_the_tools_of_the_profile_and_they_do_it(
    profile: str, calls: Sequence[Call], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    prepare(Case(name="", files={"a.txt": "one\n"}, git=True), folder, "")
    (folder / "new.txt").write_text("new\n")
    async with server_of() as server:
        model = Scripted(json.loads(json.dumps(calls).replace("{origin}", server.origin)))
        server.handlers["POST /v1/chat/completions"] = model.answer
        told = await _chat(tmp_path, profile, server.origin, {"tools": tools_of(server), "untrusted": {"ask": False}})

    assert (told["text"], told["stopped"]) == ("Done.", "answered")
    assert [(call["tool"], call["ok"]) for call in told["calls"]] == [
        (name, True) for name, _ in calls if name != CLASSIFY
    ]
    assert all(name in declared for (name, _), declared in zip(calls, model.declared, strict=False))
    asked = [one["path"] for one in server.received if one["method"] == "GET"]
    done = {
        "introspection": lambda: (folder / "named.txt").read_text() == "new\n",
        "selection": lambda: asked == ["/page"],
        "gateway": lambda: asked == ["/page"],
    }
    assert done.get(profile, lambda: git(folder, "log", "--format=%s") == "All of it\nfirst\n")()


async def _chat(home: Path, profile: str, origin: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Hold one chat, and return what it printed."""
    config = home / "toolcrib.yaml"
    config.write_text(json.dumps(told))
    words = [
        "chat",
        "-p",
        "Call the API shop for its page",
        "--json",
        "--mode",
        "autonomous",
        "--profile",
        profile,
        "--config",
        str(config),
    ]
    command = [TOOLCRIB, *words, "--model", f"local:scripted@{origin}/v1"]
    environ = {**Home(folder=home).environ, "OPENAI_API_KEY": "none", "GIT_CONFIG_GLOBAL": os.devnull}
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(command, cwd=home / "work", env=environ, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
