"""Steps on the size and the envelope of a result: limit, wrap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from ...catalog.catalog import OUR_SOURCES
from ...core.call import UNCHANGED, Call
from ...core.result import ToolError, ToolResult
from ...core.session import SessionState
from ...disclosure.aliases import in_words
from ...disclosure.base import Profile
from ...disclosure.envelopes import ENVELOPES
from ...disclosure.meta_tools import SOURCE
from ...disclosure.profiles import envelope_of
from ...jobs.tools import SOURCE as JOBS
from ...jobs.tools import is_settled
from ...results.limit import HINTS, Limiter, Way
from ...results.untrusted_text import fenced
from ..plan import After, Subject

__all__ = ["Limit", "Wrap"]


class Limit:
    """Shorten a result that is too long, and store the whole."""

    def __init__(self, limiter: Limiter, profile_of: Callable[[SessionState], Profile]) -> None:
        """`limiter` stores the artifacts, `profile_of` returns the profile of a session."""
        self._limiter = limiter
        self._profile_of = profile_of

    def __call__(self, call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
        """Return the result within the session's budget of tokens for one result, and within its profile's.

        Results for an MCP client pass whole up to a size, unless a person or the profile set a limit in tokens or
        characters. Built-in tools keep the limit: clients had no such results before.
        """
        profile = self._profile_of(call.session)
        return self._limited(call, result, profile, _usual_way(profile))

    def bind(self, subject: Subject) -> After:
        """Return the step for one profile."""
        profile = subject.profile
        if profile is None:
            return self
        usual, fits = _usual_way(profile), self._limiter.fits
        least = 0 if usual.fit.hints or (subject.tool is not None and subject.tool.source == JOBS) else usual.fit.least

        def limit(call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
            if least and fits(result, call.session.result_tokens, least):
                return result
            return self._limited(call, result, profile, usual)

        return limit

    def _limited(
        self, call: Call, result: ToolResult, profile: Profile, usual: Way
    ) -> ToolResult | Awaitable[ToolResult]:
        if is_settled(call, result) or (call.options.raw and result.spooled is None):
            return result
        if not usual.fit.hints and self._limiter.fits(result, call.session.result_tokens, usual.fit.least):
            return result
        return self._cut(call, result, profile, usual)

    async def _cut(self, call: Call, result: ToolResult, profile: Profile, usual: Way) -> ToolResult:
        session = call.session
        way = self._way(call, profile, usual)
        if result.meta.get("trust", "local") != "local":
            way = replace(way, source=str(result.meta.get("source", "")), trust=result.meta["trust"])
        limited = await self._limiter.apply(result, session.result_tokens, session.principal, way)
        reading = profile.verbs.get("read")
        if reading and limited is not result and "artifact" in limited.meta:
            session.history.loaded.setdefault(reading)
        is_lost = result.structured_content is not None and limited.structured_content is None
        is_read = call.session.audience.is_client or profile.results.characters is None  # else its model reads the text
        return _without_structure(call, limited) if is_lost and is_read and _is_promised(call) else limited

    def _way(self, call: Call, profile: Profile, usual: Way) -> Way:
        """Return how the result of `call` is to fit: the caller's word before the declaration of the tool."""
        tool = call.tool
        declared: Mapping[str, Any] = tool.capability.metadata if tool is not None else {}
        hint: Any = call.options.result_hint or declared.get("compression_hint")
        if tool is not None and tool.source == SOURCE:
            hint = "skip"  # a page that the model asked for is cut to fit already
        lines, whole = declared.get("result") == "lines", _passes_whole(call, profile)
        schema = tool.output_schema if tool is not None and _is_promised(call) else None
        if not (hint or lines or whole or schema is not None):
            return usual
        return replace(usual, hint=hint if hint in HINTS else None, lines=lines, schema=schema, whole=whole)


def _usual_way(profile: Profile) -> Way:
    """Return how results of most calls under a profile are to fit."""
    return Way(fit=profile.results, read=profile.verbs.get("read", ""))


def _passes_whole(call: Call, profile: Profile) -> bool:
    """Whether the result may pass whole: an MCP client reads it, and no other limit is set."""
    if not call.session.audience.is_client:
        return False
    is_limited = call.session.limits.result_tokens is not None or profile.results.is_sized
    is_ours = call.tool is None or call.tool.source in (SOURCE, *OUR_SOURCES)
    return not is_limited and not is_ours


def _is_promised(call: Call) -> bool:
    """Whether the caller read an output schema of the called tool. A call through a meta-tool has none."""
    return not call.route.verb and call.tool is not None and call.tool.output_schema is not None


def _without_structure(call: Call, limited: ToolResult) -> ToolResult:
    """Make the result an error if the caller expects structured content: MCP clients reject a result without it.

    Clients pass errors on, and with them the ends of the text and the artifact; the hint repeats both for envelopes
    that have their own error sentences.
    """
    if limited.is_error:
        return limited
    message = f"{call.name} ran, and its result is too large to be shown whole"
    return replace(limited, error=ToolError(code="too_large", message=message, hint=limited.text))


def _in_words(call: Call, result: ToolResult, profile: Profile) -> ToolResult:
    """Return a failure with the names that the profile gives to tools; what another source's tool reports stays."""
    error = result.error
    is_foreign = call.tool is not None and call.tool.source not in (SOURCE, *OUR_SOURCES)
    if error is None or not profile.names or (is_foreign and error.code == "tool_error"):
        return result
    written = call.route.as_written
    called = written[0].name if written is not None else call.route.requested
    message, hint = (in_words(text, profile.names, called) for text in (error.message, error.hint))
    if (message, hint) == (error.message, error.hint):
        return result
    blocks = tuple(
        {**block, "text": in_words(str(block["text"]), profile.names, called)} if block.get("type") == "text" else block
        for block in result.content
    )
    return replace(result, content=blocks, error=replace(error, message=message, hint=hint))


class Wrap:
    """Put results into the envelope of the profile."""

    def __init__(self, profile_of: Callable[[SessionState], Profile]) -> None:
        """`profile_of` returns the profile of a session."""
        self._profile_of = profile_of

    def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as the model is to read it."""
        profile = self._profile_of(call.session)
        return self._wrapped(call, result, profile, envelope_of(profile))

    def bind(self, subject: Subject) -> After:
        """Return the step for one profile."""
        profile = subject.profile
        if profile is None:
            return self
        envelope = envelope_of(profile)
        is_plain = envelope == "mcp" and (subject.tool is None or subject.tool.source != JOBS)

        def wrap(call: Call, result: ToolResult) -> ToolResult:
            if is_plain and call.changes is UNCHANGED and result.meta.get("trust") != "untrusted":
                return result
            return self._wrapped(call, result, profile, envelope)

        return wrap

    def _wrapped(self, call: Call, result: ToolResult, profile: Profile, envelope: str) -> ToolResult:
        if call.options.raw or result.input_required is not None or is_settled(call, result):
            return result
        shown = ENVELOPES[envelope](call, _in_words(call, result, profile))
        shown = shown if shown.error is result.error else replace(shown, error=result.error)
        if call.origin == "cli":  # a person, or a program that reads standard output
            return shown
        suspicious = result.meta.get("suspicious", ())
        is_plain = "fenced" in result.meta or (result.is_error and not suspicious)
        if profile.fence != "none" and not is_plain and result.meta.get("trust") == "untrusted":
            shown = fenced(shown, call.name, suspicious).with_meta(fenced=True)
        changes = call.changes
        if not (changes.edited or changes.unused):
            return shown
        # else it believes that its call ran
        notes = (changes.edited,) if changes.edited and envelope == "mcp" else ()
        notes = (*notes, *(changes.unused if envelope != "gateway" else ()))
        blocks = tuple({"type": "text", "text": f"[{note}]"} for note in notes)
        return replace(shown, content=(*shown.content, *blocks)) if blocks else shown
