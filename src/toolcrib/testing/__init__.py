"""Doubles for tests of code that uses Toolcrib: an approver with a script, a source made of functions, a client.

They stand where a person, a server and a client would; the pipeline between them is the real one. `check_source` holds
a source of one's own to what the library asks of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..core.context import Context
from ..core.events import SourceState
from ..core.permission import Answer, Question, Verdict
from ..core.result import ToolResult
from ..core.tool import Tool
from ..errors import ToolFailure
from ..sources.source import Listing, Publish
from .sources import check_source

__all__ = ["RecordingApprover", "RecordingPeer", "ScriptedSource", "ToolBody", "check_source"]

ToolBody = Callable[[Mapping[str, Any], Context], Awaitable[ToolResult]]


class RecordingApprover:
    """Answers with the given verdicts, or whole answers, in turn, the last one for ever; keeps every question."""

    def __init__(self, *verdicts: Verdict | Answer) -> None:
        """Without verdicts it approves every call."""
        self.questions: list[Question] = []
        self._verdicts: list[Verdict | Answer] = list(verdicts) or ["yes"]

    async def __call__(self, question: Question) -> Answer:
        """Answer `question`."""
        self.questions.append(question)
        verdict = self._verdicts.pop(0) if len(self._verdicts) > 1 else self._verdicts[0]
        return verdict if isinstance(verdict, Answer) else Answer(verdict=verdict, by="test")


class RecordingPeer:
    """A client that keeps notifications and answers requests from a table."""

    def __init__(self, answers: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`answers` maps a method, such as `elicitation/create`, to the client's result."""
        self.notifications: list[tuple[str, Mapping[str, Any]]] = []
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self._answers = answers or {}

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """One capability for the first part of every method in the table."""
        return {method.partition("/")[0]: {} for method in self._answers}

    @property
    def takes_requests(self) -> bool:
        """True: it answers in the middle of a call."""
        return True

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Keep the notification."""
        self.notifications.append((method, params))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer from the table; raises `ToolFailure` for a method that is not in it."""
        self.requests.append((method, params))
        if method not in self._answers:
            raise ToolFailure("unavailable", f"the client does not answer {method}")
        return self._answers[method]


class ScriptedSource:
    """A source whose tools and bodies a test writes down. Keeps the calls that reached it."""

    def __init__(self, name: str, tools: Mapping[str, ToolBody] | None = None, *, listed: Iterable[Tool] = ()) -> None:
        """`tools` maps a local name to its body; `listed` holds fuller definitions for some of them."""
        self._name = name
        self._bodies = dict(tools or {})
        self._listed = {tool.local_name: tool for tool in listed}
        self._publish: Publish | None = None
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def state(self) -> SourceState:
        """Ready once it is open."""
        state = "ready" if self._publish else "closed"
        return SourceState(source=self._name, kind="scripted", state=state, tools=len(self._bodies))

    async def open(self, publish: Publish) -> None:
        """Publish every tool that has a body."""
        self._publish = publish
        self._republish()

    async def ready(self) -> None:
        """Return at once: `open` has published."""

    async def close(self) -> None:
        """Publish nothing any more."""
        self._publish = None

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run the body of `tool`."""
        self.calls.append((tool.local_name, arguments))
        return await self._bodies[tool.local_name](arguments, context)

    def set(self, name: str, body: ToolBody, tool: Tool | None = None) -> None:
        """Add or replace a tool, and publish the listing."""
        self._bodies[name] = body
        if tool is not None:
            self._listed[name] = tool
        self._republish()

    def _republish(self) -> None:
        if self._publish is None:
            return
        tools = (self._listed.get(name) or self._plain(name) for name in self._bodies)
        self._publish(Listing(tools=tuple(tools)))

    def _plain(self, name: str) -> Tool:
        return Tool(name=name, source=self._name, local_name=name, description=f"Scripted {name}")
