from .catalog.catalog import Catalog as Catalog
from .config import Settings as Settings
from .core.budget import Budget as Budget
from .core.budget import Budgets as Budgets
from .core.call import Call as Call
from .core.context import Context as Context
from .core.context import Listener as Listener
from .core.context import Output as Output
from .core.context import Progress as Progress
from .core.elicitation import Clarification as Clarification
from .core.elicitation import Elicitor as Elicitor
from .core.events import Problem as Problem
from .core.events import SourceState as SourceState
from .core.permission import Answer as Answer
from .core.permission import Approver as Approver
from .core.permission import Decision as Decision
from .core.permission import Question as Question
from .core.result import ToolError as ToolError
from .core.result import ToolResult as ToolResult
from .core.session import Limits as Limits
from .core.tool import Annotations as Annotations
from .core.tool import Execution as Execution
from .core.tool import Tool as Tool
from .crib import PendingApproval as PendingApproval
from .crib import Session as Session
from .crib import Toolcrib as Toolcrib
from .crib import defer_approval as defer_approval
from .crib import pending_approval as pending_approval
from .crib import run as run
from .crib.options import CallOptions as CallOptions
from .crib.options import SessionOptions as SessionOptions
from .disclosure.base import Profile as Profile
from .dispatch.steps.custom import AfterStep as AfterStep
from .dispatch.steps.custom import BeforeStep as BeforeStep
from .errors import ConfigError as ConfigError
from .errors import ToolcribError as ToolcribError
from .errors import ToolFailure as ToolFailure
from .errors import UsageError as UsageError
from .plugin import tool as tool
from .sources.combinators import filtered as filtered
from .sources.combinators import prefixed as prefixed
from .sources.combinators import renamed as renamed
from .sources.source import Listing as Listing
from .sources.source import Publish as Publish
from .sources.source import Source as Source
from .telemetry.settings import TelemetryOptions as TelemetryOptions

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
