"""References to kept outputs become what they refer to, before anything judges the arguments."""

from __future__ import annotations

from ...core.call import Call
from ...disclosure.verbs import SOURCE
from ...jobs.tools import SOURCE as JOBS
from ...policy.taint import Taint
from ...results.artifacts import Artifacts
from ...results.references import expand, holds_reference

__all__ = ["Expand"]


class Expand:
    """Put the value of an artifact where its reference stands."""

    def __init__(self, artifacts: Artifacts, taint: Taint) -> None:
        """`artifacts` holds the outputs, each for its owner; `taint` is told which of them strangers wrote."""
        self._artifacts = artifacts
        self._taint = taint

    async def __call__(self, call: Call) -> Call:
        """Return the call with real arguments; raises `ToolFailure` naming the argument that cannot be had.

        Arguments of the verbs and of the tools for jobs stay as they are: what they name is another call's.
        """
        tool = call.target
        if tool.source in (SOURCE, JOBS) or not holds_reference(call.arguments):
            return call
        owner = call.session.principal
        arguments, references = await expand(call.arguments, tool.input_schema, owner, self._artifacts)
        if any(reference.trust == "untrusted" for reference in references):
            self._taint.stain(tool, call.session)  # another session may have read it: what the tool says of it is local
        return call.evolve(arguments=arguments, references=references) if references else call
