"""What an outcome means for the next step: told to the caller, and remembered for what is shown next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...catalog.learning import Learning
from ...core.call import Call
from ...core.result import ToolError, ToolResult
from ...core.session import SessionState
from ...disclosure.base import Profile
from ...disclosure.profiles import strategy_of
from ...disclosure.verbs import SOURCE
from ...jobs.tools import SOURCE as JOBS
from ...results.recovery import classify, error_type, is_failure

__all__ = ["Assess"]

_OURS: Final = frozenset({SOURCE, JOBS})
"""Sources whose tools hand on what became of other calls, which were counted as what they were."""


class Assess:
    """Count outcomes for the session and for the rates of tools, and say what to do after an error."""

    def __init__(self, learning: Learning, profile_of: Callable[[SessionState], Profile]) -> None:
        """`learning` counts over sessions, `profile_of` says which profile a session has."""
        self._learning = learning
        self._profile_of = profile_of

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result with `recovery` in the metadata of an error, and what its strategy says of the run."""
        tool, session = call.tool, call.session
        if tool is not None and tool.source not in _OURS and call.grant is not None and result.input_required is None:
            self._learning.note(session.principal, tool.name, result.error.code if result.error else "ok")
            deliver = strategy_of(self._profile_of(session)).deliver
            if deliver is not None:
                result = await deliver(call, result)
        if result.error is not None:
            return self._failed(call, result, result.error)
        if call.grant is not None:
            session.errors = ("", 0)
            session.failures.pop(call.name, None)
        return result

    def _failed(self, call: Call, result: ToolResult, error: ToolError) -> ToolResult:
        session, kind = call.session, error_type(error)
        in_a_row = session.errors[1] + 1 if session.errors[0] == kind else 1
        session.errors = (kind, in_a_row)
        failures = 0
        if call.tool is not None and call.tool.source not in _OURS and is_failure(error):
            session.failures[call.tool.name] += 1
            failures = session.failures[call.tool.name]
        return result.with_meta(recovery=classify(error, in_a_row=in_a_row, failures=failures))
