"""Plan mode: a session that plans has one tool more, by which the model submits its plan.

It is a tool like any: the approver of calls approves the plan by the same channel, may change it, or refuse it with a
word to the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..core.context import Context
from ..core.result import ToolResult
from ..core.session import SessionState, SessionTable
from ..core.tool import Annotations, Availability, Guidance, Tool
from ..errors import ToolFailure
from ..sources.source import BaseSource

_SOURCE: Final = "plan"
_NEED: Final = "plan"
SUBMIT: Final = "submit_plan"
"""The tool's name."""
_TOOL: Final = Tool(
    name=SUBMIT,
    source=_SOURCE,
    local_name=SUBMIT,
    op="x.plan.submit",
    description="Submit your plan for approval. Once it is approved all tools are there, and you work through it.",
    input_schema={
        "type": "object",
        "properties": {
            "plan": {
                "type": "string",
                "minLength": 1,
                "description": "Numbered steps: what is done, with which tools, and what could go wrong.",
            }
        },
        "required": ["plan"],
        "additionalProperties": False,
    },
    annotations=Annotations(read_only=True, destructive=False, open_world=False),
    approval="always",
    traits=("asks_user",),
    availability=Availability(needs=(_NEED,)),
    guidance=Guidance(examples=({"plan": "1. Read src/app.py.\n2. Rename `load` to `open`.\n3. Run the tests."},)),
)


class PlanMode(BaseSource):
    """A source of one tool. One for a crib."""

    def __init__(self, sessions: SessionTable) -> None:
        """`sessions` has the session that a call belongs to."""
        super().__init__(_SOURCE, "plan")
        self._sessions = sessions

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Let the session work: this call was approved."""
        state = self._sessions.find(context.principal, context.session_key)
        if state is None:
            raise ToolFailure("unavailable", "the session of this plan is gone")
        end_planning(state)
        return ToolResult.of_text(f"The plan is approved. Work through it:\n\n{arguments['plan']}")

    def begin(self, state: SessionState) -> None:
        """Let the session plan: nothing runs until a plan is approved."""
        self.offer(_TOOL)
        state.scope.planning = True
        state.scope.provided |= {_NEED}


def end_planning(state: SessionState) -> None:
    """Let the session work."""
    state.scope.planning = False
    state.scope.provided -= {_NEED}
