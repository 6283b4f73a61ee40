"""A model that nobody here wrote: aimock, told by fixtures what to say, and asked afterwards what it was told."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from frameworks.cases import Case, Turn, done
from rig import PATIENCE, ensure_npm, free_port, node, serving

__all__ = ["Heard", "Mock", "running"]

_LAST = -1


@dataclass(frozen=True, kw_only=True)
class Heard:
    """One request, as aimock keeps it: in the words of OpenAI's chat API, whichever API it came through."""

    body: Mapping[str, Any]

    @cached_property
    def tools(self) -> tuple[str, ...]:
        """Return the names of the tools that it declared, in their order."""
        return tuple(str(tool["function"]["name"]) for tool in self.body.get("tools") or ())

    @cached_property
    def definitions(self) -> str:
        """Return what the model reads of the tools and of the system prompt, as compact JSON."""
        shown = [tool["function"] for tool in self.body.get("tools") or ()]
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False) + self.system

    @cached_property
    def system(self) -> str:
        """Return the system prompt."""
        return "\n".join(_text(said["content"]) for said in self.body["messages"] if said["role"] == "system")

    @cached_property
    def results(self) -> tuple[tuple[str, str], ...]:
        """Return the results of calls, each with the id of its call, in their order."""
        told = (said for said in self.body["messages"] if said["role"] == "tool")
        return tuple((str(said["tool_call_id"]), _text(said["content"])) for said in told)


@dataclass(frozen=True, kw_only=True)
class Mock:
    """A running aimock."""

    url: str

    def learn(self, case: Case, turns: Sequence[Turn], prompt: str) -> None:
        """Teach it what to say to a prompt. Each turn follows the result of the last call of the one before it."""
        fixtures: list[dict[str, Any]] = []
        match: dict[str, Any] = {"userMessage": prompt, "hasToolResult": False}
        for number, turn in enumerate(turns):
            calls = [
                {"name": name, "arguments": json.dumps(given), "id": call_id(prompt, number, place)}
                for place, (name, given) in enumerate(turn)
            ]
            fixtures.append({"match": match, "response": {"toolCalls": calls}})
            match = {"userMessage": prompt, "toolCallId": calls[_LAST]["id"]}
        fixtures.append({"match": match, "response": {"content": done(case)}})
        self._ask("/__aimock/fixtures", {"fixtures": fixtures})

    def heard(self, prompt: str) -> list[Heard]:
        """Return the requests whose last prompt was this one, in their order."""
        journal: list[dict[str, Any]] = self._ask("/__aimock/journal")
        bodies: list[dict[str, Any]] = [entry["body"] or {} for entry in journal]
        return [Heard(body=body) for body in bodies if prompt in _last_prompt(body.get("messages") or ())]

    def _ask(self, path: str, given: Any = None) -> Any:
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)


@contextmanager
def running(folder: Path) -> Generator[Mock]:
    """Run one, on a port of its own, until the block ends; it refuses what no fixture speaks of."""
    fixtures = folder / "fixtures.json"
    fixtures.write_text('{"fixtures": [{"match": {"userMessage": "are you there"}, "response": {"content": "yes"}}]}')
    main, port = ensure_npm() / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js", free_port()
    command = [node(), main, "-p", str(port), "-f", fixtures, "--strict", "--journal-max", "0"]
    with serving(command, port=port, log=folder / "log"):
        yield Mock(url=f"http://127.0.0.1:{port}")


def call_id(prompt: str, turn: int, place: int) -> str:
    """Return the id that the model gives a call."""
    words = "".join(letter if letter.isalnum() else "_" for letter in prompt)
    return f"call_{words}_{turn}_{place}"


def _last_prompt(messages: Iterable[Mapping[str, Any]]) -> str:
    return next((_text(said["content"]) for said in reversed(list(messages)) if said["role"] == "user"), "")


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        return "".join(str(part.get("text", "")) for part in parts)
    return str(content or "")
