"""Where a result comes from and how far it is to be trusted: said with every result, remembered for what follows.

It stands before `limit`, so that what is kept says so too.
"""

from __future__ import annotations

from typing import Final

from ...catalog.shelf import SHELF
from ...core.call import Call
from ...core.result import ToolResult, Trust
from ...disclosure.verbs import SOURCE
from ...jobs.tools import SOURCE as JOBS
from ...policy.taint import Taint

__all__ = ["Provenance"]

_OURS: Final = frozenset({SOURCE, JOBS, SHELF})
"""Sources that hand on what comes from elsewhere: their results say where that is by themselves."""

_OUR_WORDS: Final = frozenset({"budget_exceeded", "internal", "overloaded", "storage", "timeout"})
"""Codes of failures that no source words. Our own `denied` comes before there is a grant: a later one is an API's."""


class Provenance:
    """Say where a result comes from, and remember in the session what it means."""

    def __init__(self, taint: Taint) -> None:
        """`taint` says what counts as untrusted."""
        self._taint = taint

    async def __call__(self, call: Call, result: ToolResult) -> ToolResult:
        """Return the result with `source` and `trust` in its metadata. A refusal is our own word, and local."""
        tool = call.tool
        said = result.meta.get("trust")
        is_ours = result.error is not None and result.error.code in _OUR_WORDS and said != "untrusted"
        if tool is None or is_ours or (call.grant is None and not result.meta.get("replayed")):
            return result.with_meta(source=SOURCE, trust="local")
        hands_on = tool.source in _OURS or tool.origin == "workflow"
        if said == "untrusted" or (hands_on and said is not None):
            if said == "untrusted":
                self._taint.note(tool, "untrusted", call.session, result.text)
            return result  # the result of another call, handed on
        trust: Trust = self._taint.trust_of(tool)
        if result.input_required is None and self._taint.is_noted(tool, trust):
            text = result.text if result.spill is None else f"{result.spill.head}\n{result.spill.tail}"
            self._taint.note(tool, trust, call.session, text)
        return result.with_meta(source=tool.source, trust=trust)
