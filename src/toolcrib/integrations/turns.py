"""One turn of a model in a loop of your own: its calls, their results, and the next messages.

Shared by the integrations, mainly the plain loops (`anthropic`, `openai`). Each API module parses answers and builds
result messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..core.permission import Answer
from ..core.result import ToolResult
from ..crib.approvals import PendingApproval, pending_approval
from ..crib.session import Session
from ..errors import UsageError
from ..results.artifacts import URI_PREFIX

__all__ = ["CUT", "Media", "Send", "Turn", "begin", "check_session", "parts", "run"]

_BEGUN: Final = "toolcrib.integrations.begun"
"""Key in the session's runtime for the interaction of the last run."""

Send = Callable[[Sequence[tuple[str, ToolResult]]], list[dict[str, Any]]]
"""From results, each with the id of its call, to messages."""

CUT: Final = ToolResult.failed(
    "invalid_arguments",
    "your answer reached its limit inside this call: its arguments are not whole, and it did not run",
    hint="make it again with shorter arguments, in several calls if necessary",
)
"""Result for the call in which an answer was cut off."""


_SHOWN: Final = ("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf")
"""Media types that the APIs of Anthropic and OpenAI take in a result."""


class Media(Struct, frozen=True, kw_only=True):
    """A picture or a file of a result."""

    kind: str
    """Media type."""
    data: str
    """Base64."""
    name: str
    """Name of the file."""

    @property
    def label(self) -> str:
        """Text in place of the content."""
        return f"[{self.kind}, which cannot be shown here]"

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.kind.startswith("image/")


class Turn(Struct, frozen=True, kw_only=True):
    """One answer of a model and what came of its calls. It changes nothing; `resume` returns the next one."""

    session: Session
    reply: tuple[dict[str, Any], ...]
    """The model's own answer, as its API wants it back."""
    ids: tuple[str, ...] = ()
    """Of its calls, in their order."""
    results: tuple[ToolResult, ...] = ()
    """One a call, in the order of the calls."""
    send: Send
    is_paused: bool = False
    """The API has paused the answer: it goes on when it gets it back."""

    @property
    def is_final(self) -> bool:
        """Whether the model needs no further messages."""
        return not self.results and not self.is_paused

    @property
    def outputs(self) -> list[Any]:
        """The results as messages, for an API that keeps the conversation itself."""
        return self.send(tuple(zip(self.ids, self.results, strict=True))) if self.results else []

    @property
    def messages(self) -> list[Any]:
        """Messages to append to the conversation: the model's answer, and the results of its calls."""
        return [*self.reply, *self.outputs]

    @property
    def questions(self) -> tuple[PendingApproval, ...]:
        """Questions to the user before some of the calls run; empty unless the session defers approvals."""
        return tuple(question for question in map(pending_approval, self.results) if question is not None)

    async def resume(self, answers: Mapping[str, Answer]) -> Turn:
        """Return the turn with the results of the calls whose questions are answered; `answers` are by approval.

        Calls without a question are not made again. Raises `UsageError` for an answer without a question here.
        """
        asked = {
            question.approval: place
            for place, result in enumerate(self.results)
            if (question := pending_approval(result))
        }
        results = list(self.results)
        for approval in answers:
            if approval not in asked:
                raise UsageError(f"this turn does not ask {approval!r}, only {', '.join(asked) or 'nothing'}")

        async def one(approval: str, answer: Answer) -> None:
            results[asked[approval]] = await self.session.resume(approval, answer)

        async with anyio.create_task_group() as group:
            for approval, answer in answers.items():
                group.start_soon(one, approval, answer)
        return replace(self, results=tuple(results))


async def run(
    session: Session, calls: Sequence[tuple[str, Any]], *, is_cut: bool, origin: str
) -> tuple[ToolResult, ...]:
    """Make the calls of one answer at once; one result a call, in their order. Records name their `origin`.

    `is_cut`: the answer reached its limit, and its last call does not run, even if the arguments look whole.
    """
    whole = calls[:-1] if is_cut else calls
    results = await session.call_many(whole, origin=origin) if whole else []
    return (*results, CUT) if len(whole) < len(calls) else tuple(results)


def check_session(given: object) -> None:
    """Raise `UsageError` for what is neither a session nor a function that opens one, such as a crib."""
    if not isinstance(given, Session) and not callable(given):
        expected = "crib.session(), or a function that returns one"
        raise UsageError(f"a session was expected ({expected}), not {type(given).__name__}")


def begin(session: Session) -> None:
    """Begin the interaction of a run, unless the application has begun it since the last run or by opening the session.

    So `session.begin(intent=...)` before a run sets the requirements of that run, if a framework has no place for them.
    Raises `UsageError` when the crib is not open: its sessions show no tools.
    """
    session.parts.calls.check_open()
    state = session.state
    if state.history.interactions == state.runtime.get(_BEGUN):
        session.begin()
    state.runtime[_BEGUN] = state.history.interactions


def parts(result: ToolResult) -> tuple[str, list[Media]]:
    """Return the text of a result, and the pictures and PDFs in it that the model APIs take.

    Links and texts of embedded resources are part of the text, and any other block is named in it: an API refuses the
    whole conversation because of one block that it does not take. So it does for a picture in an error (Anthropic). The
    link to the whole of a shortened output is left out: the text contains it.
    """
    texts, media = list[str](), list[Media]()
    for block in result.content:
        if str(block.get("uri", "")).startswith(URI_PREFIX):
            continue
        text = _text(block)
        if text is not None:
            texts.append(text)
            continue
        held: Mapping[str, Any] = block.get("resource") or block
        kind, data = held.get("mimeType") or block.get("type"), held.get("data") or held.get("blob")
        name = str(held.get("uri") or "file.pdf").rpartition("/")[2]
        one = Media(kind=str(kind), data=data if isinstance(data, str) else "", name=name)
        if one.data and one.kind in _SHOWN and not result.is_error:
            media.append(one)
        else:
            texts.append(one.label)
    return "\n".join(texts), media


def _text(block: Mapping[str, Any]) -> str | None:
    if block.get("type") == "text":
        return str(block.get("text", ""))
    if block.get("type") == "resource_link":
        return " ".join(str(block[name]) for name in ("name", "uri", "description") if block.get(name))
    resource: Mapping[str, Any] = block.get("resource") or {}
    return str(resource["text"]) if "text" in resource else None
