"""Agent loop: request a response, run its tool calls, return their results, until the model answers.

However a run ends, its history is valid and there is an answer: the model's own, its last word without tools at a
limit, or, where no model can be asked, what is known. One round:

    limits used up? ── yes ──────────────────────────────────────────────┐
      │ no                                                               │
    inbox, new tools, new instructions ─> conversation; compact if full  │
      │                                                                  │
    request ──> calls ──> `ToolCalls.run` ──> results ─> next round      │
      │           └─ none could run, several rounds long: "fruitless" ───┤
      ├──> text: "answered" (a plan is offered first), "cut", "filtered" │
      ├──> nothing: asked again, then "blank" ───────────────────────────┤
      └──> error of the API: "failed"                                    v
                                               `_ask_final_answer`: one last request, no tool callable

`cancel` ends any of these steps; results that had arrived and text that had streamed stay in the history.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio
import anyio.lowlevel
from msgspec import Struct
from msgspec.structs import replace
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelContextWindowExceededError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    UserContent,
)
from pydantic_ai.models import ModelRequestParameters

from toolcrib import ToolResult
from toolcrib.plugin import clip

from .agent_setup import AgentSetup, prompt_of
from .compaction import tokens_of
from .events import (
    AgentEvent,
    CallEnded,
    Concluding,
    EventListener,
    Finished,
    Outcome,
    Requesting,
    Stopped,
    UsageReport,
    discard,
)
from .history import Conversation
from .limits import UsageLimits
from .messages import calls_of, finished_part, text_of
from .models import ModelRequests, describe_error
from .tool_calls import ToolCalls
from .tool_definitions import ToolDefinitions

Prompt = str | Sequence[UserContent]
"""Prompt of the user: text, or text with images and files."""

_EMPTY_ANSWER_REMINDER: Final = "[Your answer was empty. Give your answer to the user in words, or call a tool.]"
_FINAL_ANSWER_REQUEST: Final = (
    "[{reason}. Tools can no longer be called. Answer the user now with what you have, and say what is missing.]"
)
_NUMBERED_LINE: Final = re.compile(r"^\s*\d+[.)]\s+\S", re.MULTILINE)
_MIN_PLAN_STEPS: Final = 2
"""Numbered lines of an answer that is a plan, in a mode that wants one; with fewer it is a question or a remark."""
_NEVER_RAN_CODES: Final = frozenset(
    {"budget_exceeded", "disabled", "invalid_arguments", "not_found", "not_in_scope", "not_loaded"}
)
"""Codes of calls that never ran."""
_MAX_REMEMBERED_RESULTS: Final = 5
"""Results listed in an answer that is made without a model."""
_MAX_RESULT_CHARS: Final = 200
"""Characters of each."""


class _RunEnd(Struct, frozen=True, kw_only=True):
    """Reason for the end of a run. Where it `asks_final_answer`, the model is asked for a last answer without tools."""

    stopped: Stopped
    reason: str = ""
    text: str = ""
    asks_final_answer: bool = True


_FILTERED_END: Final = _RunEnd(
    stopped="filtered", reason="the model's API withheld the answer", asks_final_answer=False
)


class Run:
    """One run. `execute` is called once; `cancel` may be called from any task of the same event loop."""

    def __init__(
        self,
        setup: AgentSetup,
        usage: UsageLimits,
        on_event: EventListener,
        take_messages: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`take_messages` removes and returns messages to the agent, which it reads before each request to the model.

        The instructions are composed anew for each request; new lines of them are added to the conversation.
        """
        self._setup = setup
        self._usage = usage
        self._on_event = on_event
        self._take_messages = take_messages
        self._definitions = ToolDefinitions(setup.model, prompt_of(setup))
        self._requests = ModelRequests(setup.model, setup.limits, usage, setup.settings)
        self._calls = ToolCalls(setup.session, usage, self._record_event, setup.parent)
        self._conversation = Conversation((), setup.limits, setup.model.context_window)
        self._scope = anyio.CancelScope()
        self._recent_results: deque[str] = deque(maxlen=_MAX_REMEMBERED_RESULTS)
        """Results of calls, for a run that ends without an answer of the model."""
        self._fruitless_rounds = 0
        """Rounds in a row in which no call ran."""
        self._empty_answers = 0
        """Empty responses in a row."""
        self._request_count = 0
        """Requests so far, as events count them: without repetitions and summaries."""
        self.outcome: Outcome | None = None
        """Set when the run has ended, however it did."""

    def cancel(self) -> None:
        """End the run now: what runs is cancelled, and the history stays valid."""
        self._scope.cancel()

    async def execute(self, prompt: Prompt, history: Iterable[ModelMessage]) -> Outcome:
        """Run to the end. Raises only the cancellation of its caller; `outcome` is set even then."""
        self._conversation = Conversation(history, self._setup.limits, self._setup.model.context_window)
        self._conversation.add_prompt(prompt)
        self._setup.session.state.runtime["agent.model"] = self._setup.model.model_name  # commits name who wrote them
        # Stays the end of a run whose scope is left early.
        end = _RunEnd(stopped="cancelled", reason="cancelled", asks_final_answer=False)
        try:
            with self._scope:
                ended = await self._run_with_deadline()
                end = await self._ask_final_answer(ended) if ended.asks_final_answer else ended
        finally:
            if end.stopped == "cancelled":
                self._close_interrupted()
            text = end.text or self._fallback_answer(end)
            self.outcome = Outcome(
                text=text,
                stopped=end.stopped,
                reason=end.reason,
                history=self._conversation.messages,
                usage=self._usage.used,
            )
            self._on_event(Finished(outcome=self.outcome))
        return self.outcome

    async def compact(self, history: Iterable[ModelMessage]) -> tuple[ModelMessage, ...]:
        """Return the history with its older part summarised; unchanged if nothing can be removed."""
        self._conversation = Conversation(history, self._setup.limits, self._setup.model.context_window)
        await self._compact()
        return self._conversation.messages

    async def _run_with_deadline(self) -> _RunEnd:
        """Return the end of the run, at the latest when the time is over; the last answer has time of its own."""
        left = self._usage.seconds_left
        with anyio.move_on_after(None if left == math.inf else max(left, 0)):
            return await self._run_rounds()
        self._close_interrupted()
        return _RunEnd(stopped="limit", reason=self._usage.exhausted_limit or "the time is over")

    async def _run_rounds(self) -> _RunEnd:
        while True:
            await anyio.lowlevel.checkpoint()  # models and tools that never wait can be cancelled here
            if exhausted_limit := self._usage.exhausted_limit:
                return _RunEnd(stopped="limit", reason=exhausted_limit)
            try:
                response = await self._next_response()
            except ContentFilterError:
                return _FILTERED_END
            except (ModelAPIError, UnexpectedModelBehavior) as error:
                return _RunEnd(stopped="failed", reason=describe_error(error), asks_final_answer=False)
            calls = calls_of(response)
            end = self._end_for(response) if not calls else None
            if end is not None:
                reply = await self._offer_plan(end)
                if not reply:
                    return end
                self._conversation.add_prompt(reply)
                continue
            if not calls:
                self._conversation.add_prompt(_EMPTY_ANSWER_REMINDER)
                continue
            self._empty_answers = 0
            returns, results = await self._calls.run(calls)
            self._conversation.add_parts(*returns)
            if self._calls.is_limit_reached:
                return _RunEnd(stopped="limit", reason="the tool calls of this task are used up")
            if self._is_fruitless(results):
                return _RunEnd(
                    stopped="fruitless", reason=f"no tool call could run for {self._fruitless_rounds} rounds"
                )

    async def _offer_plan(self, end: _RunEnd) -> str:
        """Have a plan that was written as an answer approved, as `submit_plan` does; return what the model reads then.

        Empty for any other answer, and after a refusal without a comment.
        """
        session = self._setup.session
        steps = len(_NUMBERED_LINE.findall(end.text))
        if end.stopped != "answered" or not session.state.scope.planning or steps < _MIN_PLAN_STEPS:
            return ""
        result = await session.approve_plan(end.text)
        if result.error is None:
            return f"[{result.text}]"
        comment = result.error.details.get("comment")
        return f"[The plan is not approved. Change it: {comment}]" if comment else ""

    def _end_for(self, response: ModelResponse) -> _RunEnd | None:
        """Return the end of the run by a response without calls; None for a blank one, which is asked for again."""
        text = text_of(response)
        if not text:
            self._conversation.drop_last_answer()
        if response.finish_reason == "content_filter":
            return replace(_FILTERED_END, text=text)
        if text and response.finish_reason == "length":
            return _RunEnd(
                stopped="cut", reason="the answer reached the model's output limit", text=text, asks_final_answer=False
            )
        if text:
            return _RunEnd(stopped="answered", text=text, asks_final_answer=False)
        self._empty_answers += 1
        if self._empty_answers <= self._setup.limits.blank_answers:
            return None
        return _RunEnd(stopped="blank", reason=f"the model answered nothing, {self._empty_answers} times")

    def _is_fruitless(self, results: Sequence[ToolResult]) -> bool:
        """True after several rounds in which no call ran: the run ends instead of repeating."""
        ran = any(result.error is None or result.error.code not in _NEVER_RAN_CODES for result in results)
        self._fruitless_rounds = 0 if ran else self._fruitless_rounds + 1
        return self._fruitless_rounds >= self._setup.limits.fruitless_rounds

    async def _next_response(self) -> ModelResponse:
        """Return the next response. Room is made before where it is needed, and once where the API says so."""
        for text in self._take_messages():
            self._conversation.add_prompt(text)
        parameters = self._prepare_request()
        if self._conversation.is_full(self._definitions.tokens):
            await self._compact()
            parameters = self._prepare_request()
        try:
            return await self._send_request(parameters)
        except ModelContextWindowExceededError:
            # Our estimate was too low, or what is known of the window is wrong: half of it has to go.
            if not await self._compact(keep=tokens_of(self._conversation.messages) // 2):
                raise
            return await self._send_request(self._prepare_request())

    def _prepare_request(self) -> ModelRequestParameters:
        """Return the parameters of the next request, after adding new tools and instructions to the conversation."""
        session = self._setup.session
        self._conversation.add_parts(
            *self._definitions.announce(session.tools, prompt_of(self._setup), self._conversation.messages)
        )
        return self._definitions.parameters()

    async def _send_request(self, parameters: ModelRequestParameters, *, without_tools: bool = False) -> ModelResponse:
        self._request_count += 1
        names = tuple(tool.name for tool in parameters.function_tools)
        context = self._conversation.size(self._definitions.tokens)
        self._on_event(
            Requesting(number=self._request_count, tools=names, context=context, window=self._conversation.window)
        )
        response, usage = await self._requests.ask(
            self._conversation.messages, parameters, self._on_event, size=context, without_tools=without_tools
        )
        self._conversation.add_response(response, usage)
        self._on_event(UsageReport(request=usage, total=self._usage.used))
        return response

    async def _ask_final_answer(self, end: _RunEnd) -> _RunEnd:
        """Ask for a last answer: with the tools declared and none to be called, then without any.

        The declared tools keep the prompt cache of the API valid. Some models call one all the same, and some APIs
        refuse the combination; the second request then declares none. Any other error ends the attempts.
        """
        self._on_event(Concluding(reason=end.reason))
        reason = f"{end.reason[:1].upper()}{end.reason[1:]}"
        self._conversation.add_prompt(_FINAL_ANSWER_REQUEST.format(reason=reason))
        with anyio.move_on_after(self._setup.limits.answer_seconds):
            for tools in (True, False):
                try:
                    response = await self._send_request(self._definitions.parameters(tools=tools), without_tools=True)
                except (ModelAPIError, UnexpectedModelBehavior) as error:
                    end = replace(end, reason=f"{end.reason}; then {describe_error(error)}")
                    if not isinstance(error, ModelRequestRejectedError):
                        break
                    continue
                if text := text_of(response):
                    kept = [part for part in response.parts if not isinstance(part, ToolCallPart)]
                    self._conversation.replace_last_answer(dataclasses.replace(response, parts=kept))
                    return replace(end, text=text)
                self._conversation.drop_last_answer()
        text = self._fallback_answer(end)
        self._close_interrupted()
        self._conversation.add_own_answer(text)
        return replace(end, text=text)

    async def _compact(self, keep: int | None = None) -> bool:
        """Compact the conversation to `keep` tokens, else as the limits say; return whether it became smaller.

        Where the limits allow no further request, an outline takes the place of the model's summary.
        """
        summarise = None if self._usage.exhausted_limit else self._summarise
        done = await self._conversation.compact(self._definitions.tokens, summarise, keep)
        if done is not None:
            self._on_event(done)
        return done is not None

    async def _summarise(self, brief: str) -> str:
        """Return the model's summary; empty if that fails, so that an outline takes its place."""
        conversation = Conversation((), self._setup.limits, None)
        conversation.add_prompt(brief)
        try:
            response, usage = await self._requests.ask(
                conversation.messages, ModelRequestParameters(), discard, size=conversation.size(0)
            )
        except (ModelAPIError, UnexpectedModelBehavior):
            return ""
        self._on_event(UsageReport(request=usage, total=self._usage.used))
        return text_of(response)

    def _close_interrupted(self) -> None:
        """Keep results and text that had come of what was interrupted; calls without a result get one that says so."""
        interrupted = self._requests.partial_response
        partial = finished_part(interrupted) if interrupted is not None else None
        self._requests.forget_partial()
        self._conversation.close(self._calls.ended, partial)

    def _fallback_answer(self, end: _RunEnd) -> str:
        """Return the answer of a run that no model has ended."""
        lines = [f"There is no complete answer: {(end.reason or end.stopped).rstrip('.')}."]
        if text := self._conversation.last_text:
            lines.append(f"Last text of the model: {text}")
        if self._recent_results:
            lines += ["What the tools brought last:", *self._recent_results]
        return "\n".join(lines)

    def _record_event(self, event: AgentEvent) -> None:
        """Record call results on their way to the listener."""
        if isinstance(event, CallEnded):
            self._recent_results.append(
                f"- {event.name}: {clip(' '.join(event.result.text.split()), _MAX_RESULT_CHARS)}"
            )
        self._on_event(event)
