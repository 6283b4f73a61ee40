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
                                               `_conclude`: one last request, no tool callable

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
    Finished,
    Outcome,
    Requesting,
    Stopped,
    Tell,
    Used,
    discard,
)
from .history import Conversation
from .limits import UsageLimits
from .messages import calls_of, finished_part, text_of
from .models import Requests, describe_error
from .tool_calls import ToolCalls
from .tool_definitions import ToolDefinitions

Prompt = str | Sequence[UserContent]
"""Prompt of the user: text, or text with images and files."""

_BLANK: Final = "[Your answer was empty. Give your answer to the user in words, or call a tool.]"
_LAST: Final = (
    "[{reason}. Tools can no longer be called. Answer the user now with what you have, and say what is missing.]"
)
_STEP: Final = re.compile(r"^\s*\d+[.)]\s+\S", re.MULTILINE)
_STEPS: Final = 2
"""Numbered lines of an answer that is a plan, in a mode that wants one; with fewer it is a question or a remark."""
_IN_VAIN: Final = frozenset(
    {"budget_exceeded", "disabled", "invalid_arguments", "not_found", "not_in_scope", "not_loaded"}
)
"""Codes of calls that never ran."""
_KNOWN: Final = 5
"""Results listed in an answer that is made without a model."""
_SHOWN: Final = 200
"""Characters of each."""


class _End(Struct, frozen=True, kw_only=True):
    """Reason for the end of a run. Where it `asks`, the model is asked for a last answer without tools."""

    stopped: Stopped
    reason: str = ""
    text: str = ""
    asks: bool = True


_WITHHELD: Final = _End(stopped="filtered", reason="the model's API withheld the answer", asks=False)


class Run:
    """One run. `go` is called once; `cancel` may be called from any task of the same event loop."""

    def __init__(
        self, setup: AgentSetup, usage: UsageLimits, tell: Tell, inbox: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """`inbox` removes and returns messages to the agent, which it reads before each request to the model.

        The instructions are composed anew for each request; new lines of them are added to the conversation.
        """
        self._setup = setup
        self._usage = usage
        self._tell = tell
        self._inbox = inbox
        self._definitions = ToolDefinitions(setup.model, prompt_of(setup))
        self._requests = Requests(setup.model, setup.limits, usage, setup.settings)
        self._calls = ToolCalls(setup.session, usage, self._hear, setup.parent)
        self._conversation = Conversation((), setup.limits, setup.model.context_window)
        self._scope = anyio.CancelScope()
        self._known: deque[str] = deque(maxlen=_KNOWN)
        """Results of calls, for a run that ends without an answer of the model."""
        self._fruitless = 0
        """Rounds in a row in which no call ran."""
        self._blanks = 0
        """Empty responses in a row."""
        self._number = 0
        """Requests so far, as events count them: without repetitions and summaries."""
        self.outcome: Outcome | None = None
        """Set when the run has ended, however it did."""

    def cancel(self) -> None:
        """End the run now: what runs is cancelled, and the history stays valid."""
        self._scope.cancel()

    async def go(self, prompt: Prompt, history: Iterable[ModelMessage]) -> Outcome:
        """Run to the end. Raises only the cancellation of its caller; `outcome` is set even then."""
        self._conversation = Conversation(history, self._setup.limits, self._setup.model.context_window)
        self._conversation.say(prompt)
        self._setup.session.state.runtime["agent.model"] = self._setup.model.model_name  # commits name who wrote them
        end = _End(stopped="cancelled", reason="cancelled", asks=False)  # it stays where the scope is left early
        try:
            with self._scope:
                ended = await self._timed()
                end = await self._conclude(ended) if ended.asks else ended
        finally:
            if end.stopped == "cancelled":
                self._break_off()
            text = end.text or self._what_is_known(end)
            self.outcome = Outcome(
                text=text,
                stopped=end.stopped,
                reason=end.reason,
                history=self._conversation.messages,
                usage=self._usage.used,
            )
            self._tell(Finished(outcome=self.outcome))
        return self.outcome

    async def compact(self, history: Iterable[ModelMessage]) -> tuple[ModelMessage, ...]:
        """Return the history with its older part summarised; unchanged if nothing can be removed."""
        self._conversation = Conversation(history, self._setup.limits, self._setup.model.context_window)
        await self._compact()
        return self._conversation.messages

    async def _timed(self) -> _End:
        """Return the end of the run, at the latest when the time is over; the last answer has time of its own."""
        left = self._usage.seconds_left
        with anyio.move_on_after(None if left == math.inf else max(left, 0)):
            return await self._rounds()
        self._break_off()
        return _End(stopped="limit", reason=self._usage.lacks or "the time is over")

    async def _rounds(self) -> _End:
        while True:
            await anyio.lowlevel.checkpoint()  # models and tools that never wait can be cancelled here
            if lacks := self._usage.lacks:
                return _End(stopped="limit", reason=lacks)
            try:
                response = await self._ask()
            except ContentFilterError:
                return _WITHHELD
            except (ModelAPIError, UnexpectedModelBehavior) as error:
                return _End(stopped="failed", reason=describe_error(error), asks=False)
            calls = calls_of(response)
            end = self._end_of(response) if not calls else None
            if end is not None:
                reply = await self._offer_plan(end)
                if not reply:
                    return end
                self._conversation.say(reply)
                continue
            if not calls:
                self._conversation.say(_BLANK)
                continue
            self._blanks = 0
            returns, results = await self._calls.run(calls)
            self._conversation.add(*returns)
            if self._calls.was_cut:
                return _End(stopped="limit", reason="the tool calls of this task are used up")
            if self._is_in_vain(results):
                return _End(stopped="fruitless", reason=f"no tool call could run for {self._fruitless} rounds")

    async def _offer_plan(self, end: _End) -> str:
        """Have a plan that was written as an answer approved, as `submit_plan` does; return what the model reads then.

        Empty for any other answer, and after a refusal without a comment.
        """
        session = self._setup.session
        if end.stopped != "answered" or not session.state.scope.planning or len(_STEP.findall(end.text)) < _STEPS:
            return ""
        result = await session.approve_plan(end.text)
        if result.error is None:
            return f"[{result.text}]"
        comment = result.error.details.get("comment")
        return f"[The plan is not approved. Change it: {comment}]" if comment else ""

    def _end_of(self, response: ModelResponse) -> _End | None:
        """Return the end of the run by a response without calls; None for a blank one, which is asked for again."""
        text = text_of(response)
        if not text:
            self._conversation.drop_last_answer()
        if response.finish_reason == "content_filter":
            return replace(_WITHHELD, text=text)
        if text and response.finish_reason == "length":
            return _End(stopped="cut", reason="the answer reached the model's output limit", text=text, asks=False)
        if text:
            return _End(stopped="answered", text=text, asks=False)
        self._blanks += 1
        if self._blanks <= self._setup.limits.blanks:
            return None
        return _End(stopped="blank", reason=f"the model answered nothing, {self._blanks} times")

    def _is_in_vain(self, results: Sequence[ToolResult]) -> bool:
        """True after several rounds in which no call ran: the run ends instead of repeating."""
        ran = any(result.error is None or result.error.code not in _IN_VAIN for result in results)
        self._fruitless = 0 if ran else self._fruitless + 1
        return self._fruitless >= self._setup.limits.fruitless

    async def _ask(self) -> ModelResponse:
        """Return the next response. Room is made before where it is needed, and once where the API says so."""
        for text in self._inbox():
            self._conversation.say(text)
        parameters = self._prepared()
        if self._conversation.is_full(self._definitions.tokens):
            await self._compact()
            parameters = self._prepared()
        try:
            return await self._request(parameters)
        except ModelContextWindowExceededError:
            # Our estimate was too low, or what is known of the window is wrong: half of it has to go.
            if not await self._compact(keep=tokens_of(self._conversation.messages) // 2):
                raise
            return await self._request(self._prepared())

    def _prepared(self) -> ModelRequestParameters:
        """Return the parameters of the next request, after adding new tools and instructions to the conversation."""
        session = self._setup.session
        self._conversation.add(
            *self._definitions.announce(session.tools, prompt_of(self._setup), self._conversation.messages)
        )
        return self._definitions.parameters()

    async def _request(self, parameters: ModelRequestParameters, *, without_tools: bool = False) -> ModelResponse:
        self._number += 1
        names = tuple(tool.name for tool in parameters.function_tools)
        context = self._conversation.size(self._definitions.tokens)
        self._tell(Requesting(number=self._number, tools=names, context=context, window=self._conversation.window))
        response, usage = await self._requests.ask(
            self._conversation.messages, parameters, self._tell, size=context, without_tools=without_tools
        )
        self._conversation.answer(response, usage)
        self._tell(Used(request=usage, total=self._usage.used))
        return response

    async def _conclude(self, end: _End) -> _End:
        """Ask for a last answer: with the tools declared and none to be called, then without any.

        The declared tools keep the prompt cache of the API valid. Some models call one all the same, and some APIs
        refuse the combination; the second request then declares none. Any other error ends the attempts.
        """
        self._tell(Concluding(reason=end.reason))
        reason = f"{end.reason[:1].upper()}{end.reason[1:]}"
        self._conversation.say(_LAST.format(reason=reason))
        with anyio.move_on_after(self._setup.limits.answer_seconds):
            for tools in (True, False):
                try:
                    response = await self._request(self._definitions.parameters(tools=tools), without_tools=True)
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
        text = self._what_is_known(end)
        self._break_off()
        self._conversation.speak(text)
        return replace(end, text=text)

    async def _compact(self, keep: int | None = None) -> bool:
        """Compact the conversation to `keep` tokens, else as the limits say; return whether it became smaller.

        Where the limits allow no further request, an outline takes the place of the model's summary.
        """
        summarise = None if self._usage.lacks else self._summarise
        done = await self._conversation.compact(self._definitions.tokens, summarise, keep)
        if done is not None:
            self._tell(done)
        return done is not None

    async def _summarise(self, brief: str) -> str:
        """Return the model's summary; empty if that fails, so that an outline takes its place."""
        asking = Conversation((), self._setup.limits, None)
        asking.say(brief)
        try:
            response, usage = await self._requests.ask(
                asking.messages, ModelRequestParameters(), discard, size=asking.size(0)
            )
        except (ModelAPIError, UnexpectedModelBehavior):
            return ""
        self._tell(Used(request=usage, total=self._usage.used))
        return text_of(response)

    def _break_off(self) -> None:
        """Keep results and text that had come of what was interrupted; calls without a result get one that says so."""
        broken = self._requests.broken_off
        partial = finished_part(broken) if broken is not None else None
        self._requests.forget()
        self._conversation.close(self._calls.ended, partial)

    def _what_is_known(self, end: _End) -> str:
        """Return the answer of a run that no model has ended."""
        lines = [f"There is no complete answer: {(end.reason or end.stopped).rstrip('.')}."]
        if text := self._conversation.last_words:
            lines.append(f"Last text of the model: {text}")
        if self._known:
            lines += ["What the tools brought last:", *self._known]
        return "\n".join(lines)

    def _hear(self, event: AgentEvent) -> None:
        """Record call results on their way to the listener."""
        if isinstance(event, CallEnded):
            self._known.append(f"- {event.name}: {clip(' '.join(event.result.text.split()), _SHOWN)}")
        self._tell(event)
