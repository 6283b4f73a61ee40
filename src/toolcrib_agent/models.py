"""Models by name, and requests to them: streamed, measured, and retried after a transient failure."""

from __future__ import annotations

import ipaddress
import logging
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

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
    UserError,
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
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model, known_model_names
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from toolcrib.errors import UsageError
from toolcrib.plugin import clip, nearest

from .compaction import tokens_of
from .events import EventListener, Retrying, TextDelta, ThinkingDelta
from .limits import AgentLimits, Usage, UsageLimits
from .messages import calls_of, merge_adjacent

LOCAL: Final = "local"
"""The provider of any server with OpenAI's chat API."""
OLLAMA: Final = "http://127.0.0.1:11434/v1"
"""Default address of Ollama."""
_FREE_SYSTEMS: Final = frozenset({"function", "local", "test"})
"""Systems that cost nothing wherever they are: Pydantic AI's doubles, and a server of one's own."""
_VARIABLE_PATTERN: Final = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`")
_EXTRA_PATTERN: Final = re.compile(r"pydantic-ai-slim\[([a-z-]+)\]")

_logger = logging.getLogger(__name__)

_TRANSIENT_ERRORS: Final = (
    ModelRateLimitError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
)
"""Errors after which the same request may succeed; UnexpectedModelBehavior is a stream that ended in nothing, say."""
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_MAX_ERROR_CHARS: Final = 300
"""Characters of an error in an event."""


def model_of(spec: Model | str, *, base_url: str = "", api_key: str = "") -> Model:
    """Return the model with the name `spec`; a `Model` is returned unchanged.

    `base_url` and `api_key` take the place of what the environment says, or the name after its `@`. Raises `UsageError`
    for an unknown name, a missing key (with the variable to set), a package that is not installed.
    """
    if isinstance(spec, Model):
        return spec
    name, at, url = spec.strip().partition("@")
    is_url = at and "://" in url
    name, url = (name, base_url or url) if is_url else (spec.strip(), base_url)
    provider, colon, _ = name.partition(":")
    if not colon:
        raise UsageError(f"model {spec!r}: a model is named provider:name, such as anthropic:claude-sonnet-5-5")
    if provider == LOCAL:
        return _local_model(spec, name.removeprefix(f"{LOCAL}:"), url, api_key)
    try:
        infer_provider_class(provider)
    except ValueError:
        raise UsageError(_unknown_provider_text(spec, provider)) from None
    except ImportError as error:
        raise UsageError(_remedy_text(spec, error)) from error
    try:
        return infer_model(name, lambda provider_name: _make_provider(provider_name, url, api_key))
    except (UserError, ImportError) as error:
        raise UsageError(_remedy_text(spec, error)) from error
    except TypeError as error:
        raise UsageError(f"model {spec!r}: {provider} takes no URL and no key of one's own ({error})") from error


def is_paid(model: Model) -> bool:
    """True if requests to `model` cost money: it does not run on a machine of the user."""
    if model.system in _FREE_SYSTEMS:
        return False
    host = urlsplit(model.base_url or "").hostname
    return host is None or not _is_local_host(host)


def _make_provider(provider_name: str, url: str, api_key: str) -> Provider[Any]:
    """Make a provider. Ollama needs no configuration where it is on this machine."""
    provider_type: Any = infer_provider_class(provider_name)
    arguments = {key: value for key, value in (("base_url", url), ("api_key", api_key)) if value}
    if arguments:
        return provider_type(**arguments)
    try:
        return infer_provider(provider_name)
    except UserError:
        if provider_name != "ollama":
            raise
        return provider_type(base_url=OLLAMA)


def _local_model(spec: str, name: str, url: str, api_key: str) -> Model:
    if not name or not url:
        raise UsageError(f"model {spec!r}: a local model is named {LOCAL}:NAME@URL, such as {LOCAL}:qwen3@{OLLAMA}")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UsageError(f"model {spec!r}: {url!r} is not an http URL")
    try:
        # Loads OpenAI's SDK, which only models of this kind need.
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        return infer_model(
            f"openai-chat:{name}",
            lambda _: OpenAICompatibleProvider(LOCAL, base_url=url, api_key=api_key or "none"),
        )
    except ImportError as error:
        raise UsageError(_remedy_text(spec, error)) from error


def _unknown_provider_text(spec: str, provider: str) -> str:
    """Return the error text for an unknown provider."""
    known = {name.partition(":")[0] for name in known_model_names()} | {LOCAL, "ollama", "openrouter", "vllm"}
    close = nearest(provider, sorted(known), 1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"model {spec!r}: there is no provider {provider!r}{meant}"


def _remedy_text(spec: str, error: Exception) -> str:
    """Return the remedy for a missing model."""
    text = " ".join(str(error).split())
    if isinstance(error, ImportError):
        group = _EXTRA_PATTERN.search(text)
        extra = group.group(1) if group else spec.partition(":")[0]
        return f'model {spec!r}: a package is missing: pip install "pydantic-ai-slim[{extra}]"'
    variables = list(dict.fromkeys(_VARIABLE_PATTERN.findall(text)))
    if variables:
        return f"model {spec!r}: set {' or '.join(variables)} in the environment"
    return f"model {spec!r}: {text}"


def _is_local_host(host: str) -> bool:
    """True if a host is this machine or belongs to its local network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal", ".lan")) or "." not in host
    return address.is_loopback or address.is_private or address.is_link_local


class ModelRequests:
    """Makes the requests of one run, one at a time. Keeps what came of the newest one, should it be broken off.

    Retries are made here alone, where each can be counted, shown and stopped by a limit.
    """

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
    def partial_response(self) -> ModelResponse | None:
        """Partial response of an interrupted request; None if every request ended or no content had arrived."""
        return self._stream.get() if self._stream is not None else None

    def forget_partial(self) -> None:
        """Let go of what was broken off."""
        self._stream = None

    async def ask(
        self,
        messages: Sequence[ModelMessage],
        parameters: ModelRequestParameters,
        on_event: EventListener,
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
        if not parameters.function_tools and "tool_choice" in settings:  # APIs refuse a choice among no tools
            settings = {**settings, "tool_choice": "auto"}
        attempt = 0
        while True:
            self._has_streamed = False
            try:
                response = await self._send_once(messages, parameters, settings, on_event)
            except (ModelAPIError, UnexpectedModelBehavior) as error:
                self._stream = None
                self._usage.charge(Usage(requests=1, unpriced=1))
                wait = self._retry_wait(error, attempt)
                # The last answer may be retried at a limit.
                is_over = bool(self._usage.exhausted_limit) and not without_tools
                if wait is None or attempt >= self._limits.retries or is_over:
                    raise
                attempt += 1
                on_event(
                    Retrying(attempt=attempt, wait=wait, reason=describe_error(error), discards=self._has_streamed)
                )
                await anyio.sleep(wait)
                continue
            usage = _usage_of(response, size)
            self._usage.charge(usage)
            return _with_unique_ids(response, messages), usage

    async def _send_once(
        self,
        messages: Sequence[ModelMessage],
        parameters: ModelRequestParameters,
        settings: ModelSettings,
        on_event: EventListener,
    ) -> ModelResponse:
        try:
            prepared = merge_adjacent(self._model.prepare_messages(list(messages), parameters))
            async with self._model.request_stream(prepared, settings, parameters) as stream:
                self._stream = stream
                async for event in stream:
                    if (piece := _stream_delta(event)) is not None:
                        self._has_streamed = True
                        on_event(piece)
        except (ModelAPIError, UnexpectedModelBehavior):
            raise
        except Exception as error:
            _logger.exception("the model %s broke", self._model.model_name)
            message = f"{type(error).__name__}: {error}"
            raise ModelAPIError(self._model.model_name, message) from error
        self._stream = None
        response = stream.get()
        if response.state == "incomplete" and not response.parts:
            raise UnexpectedModelBehavior("the model's API ended its answer before it began")
        return response

    def _retry_wait(self, error: Exception, attempt: int) -> float | None:
        """Return the seconds until the request may be repeated; None if that is of no use."""
        if isinstance(error, ModelQuotaExceededError | ContentFilterError):
            return None
        status = error.status_code if isinstance(error, ModelHTTPError) else None
        if not isinstance(error, _TRANSIENT_ERRORS) and status not in _TRANSIENT_STATUSES:
            return None
        seconds = error.retry_after if isinstance(error, ModelAPIError) else None
        if seconds is None:
            seconds = min(self._limits.backoff * 2**attempt, self._limits.max_wait_seconds) * random.uniform(0.8, 1.2)
        elif seconds > self._limits.max_wait_seconds:
            return None
        return seconds


def describe_error(error: Exception) -> str:
    """Return the error of a model's API on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, ModelHTTPError):
        text = f"HTTP {error.status_code} from {error.model_name}: {_body_message(error) or text}"
    elif isinstance(error, ModelAPIError):
        text = f"{error.model_name}: {text}"
    return clip(text, _MAX_ERROR_CHARS)


def _body_message(error: ModelHTTPError) -> str:
    """Return the message in the body of an API's error, wherever it stands there."""
    body: Any = error.body
    for key in ("error", "message"):
        if isinstance(body, dict):
            body = cast("dict[str, Any]", body).get(key, body)
    return " ".join(body.split()) if isinstance(body, str) else ""


def _stream_delta(event: ModelResponseStreamEvent) -> TextDelta | ThinkingDelta | None:
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
    usage = response.usage
    is_estimated = not usage.input_tokens and not usage.output_tokens
    cost = None if is_estimated else _cost(response)
    return Usage(
        requests=1,
        input_tokens=size if is_estimated else usage.input_tokens,
        output_tokens=tokens_of([response]) if is_estimated else usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
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


def _with_unique_ids(response: ModelResponse, messages: Sequence[ModelMessage]) -> ModelResponse:
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
