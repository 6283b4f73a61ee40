"""The last step: the result in the words of the session's profile. What was recorded stays what happened."""

from __future__ import annotations

from collections.abc import Callable

from ...core.call import Call
from ...core.result import ToolResult
from ...core.session import SessionState
from ...disclosure.base import Profile
from ...disclosure.envelopes import ENVELOPES
from ...disclosure.profiles import envelope_of

__all__ = ["Wrap"]


class Wrap:
    """Put results into the envelope of the profile."""

    def __init__(self, profile_of: Callable[[SessionState], Profile]) -> None:
        """`profile_of` says which profile a session has."""
        self._profile_of = profile_of

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result as the model is to read it."""
        if result.input_required is not None:
            return result
        return ENVELOPES[envelope_of(self._profile_of(call.session))](call, result)
