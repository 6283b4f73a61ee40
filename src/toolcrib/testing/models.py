"""A model with a script, for tests of agents: no network, no key, the same answers every time.

    model = ScriptedModel(calls("forecast", city="Oslo"), "Sun, for three days.")
    outcome = await Agent(model, session).run("Weather in Oslo?")
    assert model.seen[1].results == ["Oslo: sun for 3 days"]

It is a Pydantic AI model like any other: every framework that takes one takes this one. Needs the extra `agent` or
`pydantic-ai`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from ..core.extras import needs_extra

with needs_extra("pydantic-ai"):
    from pydantic_ai.messages import (
        BinaryContent,
        FinishReason,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ModelResponseStreamEvent,
        SystemPromptPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.profiles import ModelProfile, merge_profile
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage

__all__ = ["Call", "Hold", "Reply", "ScriptedModel", "Seen", "Step", "calls"]

_WORDS: Final = 3
"""Words of one piece of a text."""


class Hold:
    """Point in a reply at which it stops: the test waits until it is `reached`, and calls `go_on` or never does."""

    def __init__(self) -> None:
        """One for a reply."""
        self.reached = anyio.Event()
        self.go_on = anyio.Event()


class Call(Struct, frozen=True, kw_only=True):
    """A tool call that the model makes."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    """Text is sent as it is, malformed or not."""
    id: str = ""
    """Empty for one of its own."""


class Reply(Struct, frozen=True, kw_only=True):
    """One response of the model: thoughts, text, calls, in this order."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    error: Exception | None = None
    """Raised after the whole reply was sent; without content, at once, as an API would."""
    hold: Hold | None = None
    """Point to wait at after the text, before the calls."""
    finish_reason: FinishReason | None = None
    usage: RequestUsage = field(default_factory=RequestUsage)
    """Usage that the API reports for the request; empty by default, as with some local servers."""

    def __add__(self, other: Reply) -> Reply:
        """Return both as one: the text and the calls of each."""
        return replace(self, text=f"{self.text}{other.text}", calls=(*self.calls, *other.calls))


class Seen(Struct, frozen=True, kw_only=True):
    """One request, as the model got it."""

    messages: tuple[ModelMessage, ...]
    tools: tuple[str, ...]
    """Names, in their order."""
    listing: str
    """The tool definitions as JSON: equal where a prompt cache would hold."""
    instructions: str
    settings: Mapping[str, Any]
    outputs: tuple[str, ...] = ()
    """Names of the tools by which structured output is asked for."""

    @property
    def prompts(self) -> list[str]:
        """The messages of the user and of the application in it, oldest first."""
        return [_text(part.content) for part in self._parts() if isinstance(part, UserPromptPart | SystemPromptPart)]

    @property
    def results(self) -> list[str]:
        """The results of tool calls in it, oldest first, as text."""
        found: list[Any] = [part for part in self._parts() if isinstance(part, ToolReturnPart)]
        return [part.content if isinstance(part.content, str) else part.model_response_str() for part in found]

    def _parts(self) -> Iterator[object]:
        for message in self.messages:
            if isinstance(message, ModelRequest):
                yield from message.parts


Step = str | Reply | Exception | Callable[[Seen], "str | Reply | Exception"]
"""Behaviour of the model at one request: a text, a reply, an exception, or a function of the seen request."""


class ScriptedModel(Model):
    """Model that answers request after request from a script, and records the requests.

    A request after the last step is an `AssertionError`: the script limits the number of requests.
    """

    supported_tool_deferral_modes = frozenset({"standalone", "with_tool_search"})
    supported_tool_addition_modes = frozenset({"by_reference", "with_definitions"})
    _announces_lookalike_notes = False

    def __init__(
        self,
        *steps: Step,
        name: str = "scripted",
        system: str = "test",
        context_window: int | None = None,
        profile: ModelProfile | None = None,
    ) -> None:
        """`system` is whose API it poses as: with `anthropic` it counts as paid. `profile` is Pydantic AI's."""
        window = ModelProfile() if context_window is None else ModelProfile(context_window=context_window)
        super().__init__(profile=merge_profile(profile or ModelProfile(), window))
        self._name = name
        self._system = system
        self.steps = list(steps)
        """Remaining steps of the script."""
        self.seen: list[Seen] = []
        """Every request so far, those that failed included."""

    @property
    def model_name(self) -> str:
        """The name."""
        return self._name

    @property
    def system(self) -> str:
        """Name of the imitated API."""
        return self._system

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the next reply."""
        async with self.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream the next reply; raises the exception of the script."""
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        parts = self._get_instruction_parts(messages, parameters) or []
        tools = parameters.declared_function_tools
        seen = Seen(
            messages=tuple(messages),
            tools=tuple(tool.name for tool in tools),
            listing=json.dumps([[tool.name, tool.description, tool.parameters_json_schema] for tool in tools]),
            instructions="\n\n".join(part.content for part in parts),
            settings=dict(settings or {}),
            outputs=tuple(tool.name for tool in parameters.output_tools),
        )
        yield _Speech(model_request_parameters=parameters, reply=self._next(seen), name=self._name)

    def _next(self, seen: Seen) -> Reply:
        """Take note of the request, and return the reply."""
        self.seen.append(seen)
        if not self.steps:
            raise AssertionError(f"the script of {self._name} ends after {len(self.seen) - 1} requests")
        step = self.steps.pop(0)
        reply_step = step(seen) if callable(step) else step
        if isinstance(reply_step, Exception):
            raise reply_step
        reply = Reply(text=reply_step) if isinstance(reply_step, str) else reply_step
        if reply.error is not None and not (reply.text or reply.thinking or reply.calls or reply.hold):
            raise reply.error
        return reply


@dataclasses.dataclass(kw_only=True)
class _Speech(StreamedResponse):
    """A reply, piece by piece."""

    reply: Reply
    name: str

    def __post_init__(self) -> None:
        self.finish_reason = self.reply.finish_reason
        self._usage = self.reply.usage

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        reply, parts = self.reply, self._parts_manager
        if reply.thinking:
            for event in parts.handle_thinking_delta(vendor_part_id="thinking", content=reply.thinking):
                yield event
        for piece in _pieces(reply.text):
            for event in parts.handle_text_delta(vendor_part_id="text", content=piece):
                yield event
        if reply.hold is not None:
            reply.hold.reached.set()
            await reply.hold.go_on.wait()
        for place, call in enumerate(reply.calls):
            arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
            yield parts.handle_tool_call_part(
                vendor_part_id=place, tool_name=call.name, args=arguments, tool_call_id=call.id or None
            )
        if reply.error is not None:
            raise reply.error

    async def close_stream(self) -> None:
        """Without effect: nothing is open."""

    @property
    def model_name(self) -> str:
        return self.name

    @property
    def provider_name(self) -> None:
        return None

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return datetime.now(UTC)


def calls(name: str, /, **arguments: Any) -> Reply:
    """Return a reply with one call; `+` makes one reply of several."""
    return Reply(calls=(Call(name=name, arguments=arguments),))


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of some words; together they are the text."""
    words = text.split(" ")
    for at in range(0, len(words), _WORDS):
        piece = " ".join(words[at : at + _WORDS])
        if piece := piece if at == 0 else f" {piece}":
            yield piece


def _text(content: str | Sequence[object]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        "[media]" if isinstance(item, BinaryContent) else str(getattr(item, "content", item)) for item in content
    )
