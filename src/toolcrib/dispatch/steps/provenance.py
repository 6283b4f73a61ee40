"""Where a result comes from and how far it is to be trusted: said with every result, remembered for what follows.

It stands before `limit`, so that what is kept says so too.
"""

from __future__ import annotations

from typing import Final

from ...core.call import Call
from ...core.result import ToolResult, Trust
from ...disclosure.verbs import SOURCE
from ...jobs.tools import SOURCE as JOBS
from ...policy.taint import Taint

__all__ = ["Provenance"]

_OURS: Final = frozenset({SOURCE, JOBS})
"""Sources whose results are other calls' results: these say where they come from by themselves."""

_OUR_WORDS: Final = frozenset({"budget_exceeded", "denied", "internal", "overloaded", "storage", "timeout"})
"""Codes of failures that no source words."""


class Provenance:
    """Say where a result comes from, and remember in the session what it means."""

    def __init__(self, taint: Taint) -> None:
        """`taint` says what counts as untrusted."""
        self._taint = taint

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result with `source` and `trust` in its metadata. A refusal is our own word, and local."""
        tool = call.tool
        is_ours = result.error is not None and result.error.code in _OUR_WORDS
        if tool is None or is_ours or (call.grant is None and not result.meta.get("replayed")):
            return result.with_meta(source=SOURCE, trust="local")
        if result.meta.get("trust") == "untrusted" or (tool.source in _OURS and "trust" in result.meta):
            if result.meta["trust"] == "untrusted":
                self._taint.note(tool, "untrusted", call.session, result.text)
            return result  # the result of another call, handed on
        trust: Trust = self._taint.trust_of(tool)
        if result.input_required is None:
            text = result.text if result.spill is None else f"{result.spill.head}\n{result.spill.tail}"
            self._taint.note(tool, trust, call.session, text)
        return result.with_meta(source=tool.source, trust=trust)
