"""The tool by which a model submits its plan, offered once a session is in a mode that wants one.

It is a tool like any: the approver of calls approves the plan by the same channel, may change it, or
refuse it with a word to the model. Sessions that are not planning do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..core.context import Context
from ..core.events import SourceState
from ..core.result import ToolResult
from ..core.session import SessionState
from ..core.tool import Annotations, Availability, Guidance, Tool
from ..errors import ToolFailure
from ..sources.source import Listing, Publish
from .session_table import SessionTable

__all__ = ["SUBMIT", "Plans", "end_planning"]

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


class Plans:
    """A source of one tool. One for a crib."""

    def __init__(self, sessions: SessionTable) -> None:
        """`sessions` has the session that a call belongs to."""
        self._sessions = sessions
        self._publish: Publish | None = None
        self._is_wanted = False

    @property
    def name(self) -> str:
        """Always `plan`."""
        return _SOURCE

    @property
    def state(self) -> SourceState:
        """Ready, once it is open."""
        state = "ready" if self._publish else "closed"
        return SourceState(source=_SOURCE, kind="plan", state=state, tools=int(self._is_wanted))

    async def open(self, publish: Publish) -> None:
        """Offer the tool, if a session wants it already."""
        self._publish = publish
        if self._is_wanted:
            publish(Listing(tools=(_TOOL,)))

    async def ready(self) -> None:
        """Return at once."""

    async def close(self) -> None:
        """Hold nothing any more."""
        self._publish = None

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Let the session work: this call was approved."""
        state = self._sessions.find(context.principal, context.session_key)
        if state is None:
            raise ToolFailure("unavailable", "the session of this plan is gone")
        end_planning(state)
        return ToolResult.of_text(f"The plan is approved. Work through it:\n\n{arguments['plan']}")

    def begin(self, state: SessionState) -> None:
        """Let the session plan: nothing runs until a plan is approved."""
        if not self._is_wanted:
            self._is_wanted = True
            if self._publish is not None:
                self._publish(Listing(tools=(_TOOL,)))
        state.scope.planning = True
        state.scope.provided |= {_NEED}


def end_planning(state: SessionState) -> None:
    """Let the session work."""
    state.scope.planning = False
    state.scope.provided -= {_NEED}
