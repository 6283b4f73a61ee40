"""References to kept outputs become what they refer to, before anything judges the arguments."""

from __future__ import annotations

from ...core.call import Call
from ...disclosure.verbs import SOURCE
from ...jobs.tools import SOURCE as JOBS
from ...results.artifacts import Artifacts
from ...results.references import expand, holds_reference

__all__ = ["Expand"]


class Expand:
    """Put the value of an artifact where its reference stands."""

    def __init__(self, artifacts: Artifacts) -> None:
        """`artifacts` holds the outputs, each for its owner."""
        self._artifacts = artifacts

    async def __call__(self, call: Call) -> Call:
        """Return the call with real arguments; raises `ToolFailure` naming the argument that cannot be had.

        Arguments of the verbs and of the tools for jobs stay as they are: what they name is another call's.
        """
        tool = call.target
        if tool.source in (SOURCE, JOBS) or not holds_reference(call.arguments):
            return call
        owner = call.session.principal
        arguments, references = await expand(call.arguments, tool.input_schema, owner, self._artifacts)
        return call.evolve(arguments=arguments, references=references) if references else call
