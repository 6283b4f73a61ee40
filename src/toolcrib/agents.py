"""The interface for packages that run agents: sessions of sub-agents, tools for clients, and what a prompt is made of.

`toolcrib_agent` is such a package. Beside this it imports `toolcrib`, `toolcrib.plugin`, `toolcrib.errors`, and for its
command what our own commands are made of (`toolcrib.cli`). It arrives by entry points:

    toolcrib.agent_tools    an `AgentToolset`: tools that run agents for the sessions of MCP clients
    toolcrib.agents         `run_task(session, prompt)`: runs a scheduled task

A sub-agent works in a session of its own, made from that of its parent:

    child_of(parent)        a session with the parent's rights or less
    tell_child, follow      before each message to it, and at each of its events: its rights and taint are the parent's
    tell_parent             after each report: what the child has read, the parent has read
"""

from __future__ import annotations

from .config.directories import PROJECT_FOLDER
from .config.files import write as write_file
from .core.call import NESTED
from .core.context import Peer
from .core.exceptions import innermost
from .core.permission import Effect, Verdict
from .core.processes import is_alive
from .core.session import BUILT_IN, SessionState
from .core.tool import Availability, Guidance, Kind
from .crib.agents import AgentToolset
from .crib.child_sessions import child_of, follow, tell_child, tell_parent
from .crib.options import InteractionOptions
from .crib.session import SessionParts
from .disclosure.base import as_object
from .disclosure.profiles import strategy_name
from .disclosure.selection import CLASSIFICATION, UNKNOWN_TASK, checked_intent, describe_choices
from .disclosure.signatures import describe, signature
from .jobs.job import Job
from .policy.modes import Mode
from .policy.questions import shown_text
from .results.artifacts import Artifacts
from .results.redaction.redactor import Redactor
from .system.tasks import Background
from .telemetry.tokens import definition_text, estimate

__all__ = [
    "BUILT_IN",
    "CLASSIFICATION",
    "NESTED",
    "PROJECT_FOLDER",
    "UNKNOWN_TASK",
    "AgentToolset",
    "Artifacts",
    "Availability",
    "Background",
    "Effect",
    "Guidance",
    "InteractionOptions",
    "Job",
    "Kind",
    "Mode",
    "Peer",
    "Redactor",
    "SessionParts",
    "SessionState",
    "Verdict",
    "as_object",
    "checked_intent",
    "child_of",
    "definition_text",
    "describe",
    "describe_choices",
    "estimate",
    "follow",
    "innermost",
    "is_alive",
    "shown_text",
    "signature",
    "strategy_name",
    "tell_child",
    "tell_parent",
    "write_file",
]
