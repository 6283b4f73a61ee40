"""The last step: the result in the words of the session's profile, and a fence around what strangers wrote.

What was recorded stays what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...core.call import Call
from ...core.result import ToolResult
from ...core.session import SessionState
from ...disclosure.base import Profile
from ...disclosure.envelopes import ENVELOPES
from ...disclosure.profiles import envelope_of
from ...results.fence import fenced
from ..settled import is_settled

__all__ = ["Wrap"]


class Wrap:
    """Put results into the envelope of the profile."""

    def __init__(self, profile_of: Callable[[SessionState], Profile]) -> None:
        """`profile_of` says which profile a session has."""
        self._profile_of = profile_of

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as the model is to read it."""
        if call.raw or result.input_required is not None or is_settled(call, result):
            return result
        profile = self._profile_of(call.session)
        shown = ENVELOPES[envelope_of(profile)](call, result)
        if call.origin == "cli":  # a person, or a program that reads what was printed
            return shown
        suspicious = result.meta.get("suspicious", ())
        is_plain = "fenced" in result.meta or (result.is_error and not suspicious)
        if profile.fence != "none" and not is_plain and result.meta.get("trust") == "untrusted":
            shown = fenced(shown, call.name, suspicious).with_meta(fenced=True)
        envelope = envelope_of(profile)
        notes = (call.edited,) if call.edited and envelope == "mcp" else ()  # else it believes that its call ran
        notes = (*notes, *(call.unused if envelope != "gateway" else ()))
        told = tuple({"type": "text", "text": f"[{note}]"} for note in notes)
        return replace(shown, content=(*shown.content, *told)) if told else shown
