from .catalog.catalog import Catalog
from .config import Settings
from .core.budget import Budget, Budgets
from .core.call import Call
from .core.context import Context, Listener, Output, Progress
from .core.elicitation import Clarification, Elicitor
from .core.events import Problem, SourceState
from .core.permission import Answer, Approver, Decision, Question
from .core.result import ToolError, ToolResult
from .core.session import Limits
from .core.tool import Annotations, Execution, Tool
from .crib import PendingApproval, Session, Toolcrib, defer_approval, pending_approval, run
from .crib.options import CallOptions, SessionOptions
from .disclosure.base import Profile
from .dispatch.steps.custom import AfterStep, BeforeStep
from .errors import ConfigError, ToolcribError, ToolFailure, UsageError
from .plugin import tool
from .sources.combinators import filtered, prefixed, renamed
from .sources.source import Listing, Publish, Source
from .telemetry.settings import TelemetryOptions

__all__ = [
    "AfterStep",
    "Annotations",
    "Answer",
    "Approver",
    "BeforeStep",
    "Budget",
    "Budgets",
    "Call",
    "CallOptions",
    "Catalog",
    "Clarification",
    "ConfigError",
    "Context",
    "Decision",
    "Elicitor",
    "Execution",
    "Limits",
    "Listener",
    "Listing",
    "Output",
    "PendingApproval",
    "Problem",
    "Profile",
    "Progress",
    "Publish",
    "Question",
    "Session",
    "SessionOptions",
    "Settings",
    "Source",
    "SourceState",
    "TelemetryOptions",
    "Tool",
    "ToolError",
    "ToolFailure",
    "ToolResult",
    "Toolcrib",
    "ToolcribError",
    "UsageError",
    "defer_approval",
    "filtered",
    "pending_approval",
    "prefixed",
    "renamed",
    "run",
    "tool",
]
