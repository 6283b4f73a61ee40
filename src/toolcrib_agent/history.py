"""History of a conversation: it stays valid, knows its size, and is compacted when it is full."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    UserContent,
    UserPromptPart,
)

from .compaction import (
    SUMMARY_REQUEST,
    SplitConversation,
    join_summary,
    outline,
    shorten_results,
    split_conversation,
    tokens_of,
    transcript,
)
from .events import Compacted
from .limits import AgentLimits, Usage
from .messages import make_valid, merge_adjacent, text_of

DEFAULT_WINDOW_TOKENS: Final = 128_000
"""Tokens of a context window of which nothing is known."""
_SUMMARY_WORDS: Final = 600
"""Words of a summary."""

Summarise = Callable[[str], Awaitable[str]]
"""Has a model summarise a text; returns nothing if it cannot."""


class Conversation:
    """A history that stays valid. Lives as long as a run, and hands its messages on to the next.

    Between a response with calls and their returns it is open: `add_parts` closes it with the returns, `close` with
    those that had arrived.
    """

    def __init__(self, history: Iterable[ModelMessage], limits: AgentLimits, window: int | None) -> None:
        """`window` is what is known of the model's context window, in tokens."""
        self._messages = make_valid(history)
        self.last_text = ""
        """Last text of the model in this run; empty without one."""
        self._limits = limits
        self.window = limits.context or window or DEFAULT_WINDOW_TOKENS
        self._measured: tuple[int, int] | None = None
        """Tokens that the API counted at the newest response, and the number of messages then."""

    @property
    def messages(self) -> tuple[ModelMessage, ...]:
        """All of them, as they are now."""
        return tuple(self._messages)

    def add_prompt(self, content: str | Sequence[UserContent]) -> None:
        """Add what the user says."""
        self.add_parts(UserPromptPart(content=content))

    def add_parts(self, *parts: ModelRequestPart) -> None:
        """Add to the request that comes next."""
        if parts:
            self._messages = merge_adjacent([*self._messages, ModelRequest(parts=list(parts))])

    def add_response(self, response: ModelResponse, usage: Usage) -> None:
        """Add what the model has answered."""
        self._messages.append(response)
        self.last_text = text_of(response) or self.last_text
        self._measured = None if usage.is_estimated else (usage.tokens, len(self._messages))

    def add_own_answer(self, text: str) -> None:
        """Add an answer that the model did not give, in its place."""
        self.close()
        self._messages.append(ModelResponse(parts=[TextPart(content=text)], metadata={"toolcrib": "not from a model"}))

    def close(self, ended: Iterable[ModelRequestPart] = (), partial: ModelResponse | None = None) -> None:
        """Make the messages valid: `ended` has come back of calls that were interrupted, `partial` of a response."""
        if partial is not None:
            self._messages.append(partial)
            self.last_text = text_of(partial) or self.last_text
        ended = list(ended)
        self._messages = make_valid([*self._messages, ModelRequest(parts=ended)] if ended else self._messages)

    def size(self, fixed_tokens: int) -> int:
        """Return the tokens of the next request; `fixed_tokens` are those of instructions and tools.

        What the API counted last is believed, what came since is estimated.
        """
        if self._measured is None:
            return fixed_tokens + tokens_of(self._messages)
        counted, known = self._measured
        return counted + tokens_of(self._messages[known:])

    def is_full(self, fixed_tokens: int) -> bool:
        """True if the conversation should be compacted."""
        return self.size(fixed_tokens) >= self._limits.compact_at * self.window

    async def compact(
        self, fixed_tokens: int, summarise: Summarise | None, keep: int | None = None
    ) -> Compacted | None:
        """Replace older messages by a summary; return the report, None if nothing can be removed.

        `keep` tokens stay, else what the limits say. Without `summarise`, or where that gives nothing, the summary is
        an outline of what was done.
        """
        before = tokens_of(self._messages)
        limit = int(self._limits.keep * self.window)
        keep = limit if keep is None else min(keep, limit)
        split = split_conversation(self._messages, keep)
        summary, has_model = "", False
        if split is not None:
            summary = await summarise(self._summary_prompt(split)) if summarise is not None else ""
            has_model = bool(summary.strip())
            self._messages = join_summary(split, summary if has_model else outline(split.older))
        room = int(self._limits.compact_at * self.window) - fixed_tokens
        self._messages = shorten_results(self._messages, max(room, keep))
        self._measured = None
        after = tokens_of(self._messages)
        return Compacted(before=before, after=after, by="model" if has_model else "outline") if after < before else None

    def _summary_prompt(self, split: SplitConversation) -> str:
        """Return the prompt for a summary; the middle of a conversation that would not fit is left out."""
        text = transcript(split.older)
        room = int(self._limits.compact_at * self.window) * 3
        if len(text) > room:
            text = f"{text[: room // 2]}\n\n[…]\n\n{text[-room // 2 :]}"
        return f"{SUMMARY_REQUEST.format(words=_SUMMARY_WORDS)}\n\n<conversation>\n{text}\n</conversation>"

    def drop_last_answer(self) -> None:
        """Remove the newest response, which is the last message: it does not count."""
        if self._messages and isinstance(self._messages[-1], ModelResponse):
            self._messages.pop()
            self._measured = None

    def replace_last_answer(self, response: ModelResponse) -> None:
        """Put `response` in the place of the newest one."""
        self._messages[-1] = response
