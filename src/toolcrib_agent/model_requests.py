"""One request to a model: streamed, measured, and retried after a transient failure."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import anyio
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings

from .events import AgentEvent, Retrying, TextDelta, ThinkingDelta
from .history import calls_of, merged, tokens_of
from .limits import AgentLimits, Usage, UsageLimits

__all__ = ["Requests", "describe_error"]

_LOG: Final = logging.getLogger(__name__)

_PASSING: Final = (
    ModelRateLimitError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
)
"""Errors after which the same request may succeed; UnexpectedModelBehavior is a stream that ended in nothing, say."""
_PASSING_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHOWN: Final = 300
"""Characters of an error in an event."""


class Requests:
    """Makes the requests of one run. Keeps what came of the newest one, should it be broken off."""

    def __init__(self, model: Model, limits: AgentLimits, usage: UsageLimits, settings: ModelSettings) -> None:
        """Every attempt counts against `usage`."""
        self._model = model
        self._limits = limits
        self._usage = usage
        # The SDKs would repeat requests on their own, unseen and on top of ours.
        self._settings: ModelSettings = {"max_retries": 0, "cache": True, **settings}
        self._stream: StreamedResponse | None = None
        self._has_streamed = False

    @property
    def broken_off(self) -> ModelResponse | None:
        """Partial response of an interrupted request; None if every request ended or no content had arrived."""
        return self._stream.get() if self._stream is not None else None

    def forget(self) -> None:
        """Let go of what was broken off."""
        self._stream = None

    async def ask(
        self,
        messages: Sequence[ModelMessage],
        parameters: ModelRequestParameters,
        tell: Callable[[AgentEvent], None],
        *,
        size: int,
        without_tools: bool = False,
    ) -> tuple[ModelResponse, Usage]:
        """Return the model's response and what it used. The usage is paid.

        `size` is the estimate of its tokens, for APIs that do not count them. `without_tools` keeps the list of tools,
        for the cache, and lets none be called. Raises `ModelAPIError` or `UnexpectedModelBehavior` when the request
        failed for good.
        """
        settings: ModelSettings = {**self._settings, "tool_choice": "none"} if without_tools else self._settings
        if not parameters.function_tools and "tool_choice" in settings:
            settings = {**settings, "tool_choice": "auto"}
        attempt = 0
        while True:
            self._has_streamed = False
            try:
                response = await self._once(messages, parameters, settings, tell)
            except (ModelAPIError, UnexpectedModelBehavior) as error:
                self._stream = None
                self._usage.pay(Usage(requests=1, unpriced=1))
                wait = self._wait(error, attempt)
                is_over = bool(self._usage.lacks) and not without_tools
                if wait is None or attempt >= self._limits.retries or is_over:
                    raise
                attempt += 1
                tell(Retrying(attempt=attempt, wait=wait, reason=describe_error(error), discards=self._has_streamed))
                await anyio.sleep(wait)
                continue
            usage = _usage_of(response, size)
            self._usage.pay(usage)
            return _with_own_ids(response, messages), usage

    async def _once(
        self,
        messages: Sequence[ModelMessage],
        parameters: ModelRequestParameters,
        settings: ModelSettings,
        tell: Callable[[AgentEvent], None],
    ) -> ModelResponse:
        try:
            prepared = merged(self._model.prepare_messages(list(messages), parameters))
            async with self._model.request_stream(prepared, settings, parameters) as stream:
                self._stream = stream
                async for event in stream:
                    if (piece := _piece(event)) is not None:
                        self._has_streamed = True
                        tell(piece)
        except (ModelAPIError, UnexpectedModelBehavior):
            raise
        except Exception as error:
            _LOG.exception("the model %s broke", self._model.model_name)
            message = f"{type(error).__name__}: {error}"
            raise ModelAPIError(self._model.model_name, message) from error
        self._stream = None
        response = stream.get()
        if response.state == "incomplete" and not response.parts:
            raise UnexpectedModelBehavior("the model's API ended its answer before it began")
        return response

    def _wait(self, error: Exception, attempt: int) -> float | None:
        """Return the seconds until the request may be repeated; None if that is of no use."""
        if isinstance(error, ModelQuotaExceededError | ContentFilterError):
            return None
        status = error.status_code if isinstance(error, ModelHTTPError) else None
        if not isinstance(error, _PASSING) and status not in _PASSING_STATUS:
            return None
        asked = error.retry_after if isinstance(error, ModelAPIError) else None
        if asked is None:
            asked = min(self._limits.backoff * 2**attempt, self._limits.longest_wait) * random.uniform(0.8, 1.2)
        elif asked > self._limits.longest_wait:
            return None
        return asked


def describe_error(error: Exception) -> str:
    """Return the error of a model's API on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, ModelHTTPError):
        text = f"HTTP {error.status_code} from {error.model_name}: {_words(error) or text}"
    elif isinstance(error, ModelAPIError):
        text = f"{error.model_name}: {text}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _words(error: ModelHTTPError) -> str:
    """Return the message in the body of an API's error, wherever it stands there."""
    body: Any = error.body
    for key in ("error", "message"):
        if isinstance(body, dict):
            body = cast("dict[str, Any]", body).get(key, body)
    return " ".join(body.split()) if isinstance(body, str) else ""


def _piece(event: ModelResponseStreamEvent) -> TextDelta | ThinkingDelta | None:
    """Return the event for one piece of the stream."""
    if isinstance(event, PartStartEvent):
        part = event.part
        if isinstance(part, TextPart) and part.content:
            return TextDelta(text=part.content)
        if isinstance(part, ThinkingPart) and part.content:
            return ThinkingDelta(text=part.content)
    elif isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta) and delta.content_delta:
            return TextDelta(text=delta.content_delta)
        if isinstance(delta, ThinkingPartDelta) and delta.content_delta:
            return ThinkingDelta(text=delta.content_delta)
    return None


def _usage_of(response: ModelResponse, size: int) -> Usage:
    """Return the usage of a request: as its API counts, else estimated (some local servers report none)."""
    given = response.usage
    is_estimated = not given.input_tokens and not given.output_tokens
    cost = None if is_estimated else _cost(response)
    return Usage(
        requests=1,
        input_tokens=size if is_estimated else given.input_tokens,
        output_tokens=tokens_of([response]) if is_estimated else given.output_tokens,
        cache_read_tokens=given.cache_read_tokens,
        cache_write_tokens=given.cache_write_tokens,
        cost=cost or 0.0,
        unpriced=int(cost is None),
        is_estimated=is_estimated,
    )


def _cost(response: ModelResponse) -> float | None:
    """Return the price in US dollars, None if the model has none that is known."""
    if not response.model_name:
        return None
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):
        return None


def _with_own_ids(response: ModelResponse, messages: Sequence[ModelMessage]) -> ModelResponse:
    """Return the response with ids that no other call of the conversation has; some servers begin anew each time."""
    earlier = (call for message in messages if isinstance(message, ModelResponse) for call in calls_of(message))
    taken = {call.tool_call_id for call in earlier}
    parts = list(response.parts)
    for place, part in enumerate(parts):
        if not isinstance(part, ToolCallPart):
            continue
        if not part.tool_call_id or part.tool_call_id in taken:
            number = sum(1 for id in taken if id.startswith(part.tool_call_id)) + 1
            parts[place] = part = replace(part, tool_call_id=f"{part.tool_call_id or 'call'}_{number}")
        taken.add(part.tool_call_id)
    return response if parts == list(response.parts) else replace(response, parts=parts)
