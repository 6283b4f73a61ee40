from .catalog.catalog import Catalog as Catalog
from .core.context import Context as Context
from .core.events import Problem as Problem
from .core.permission import Answer as Answer
from .core.permission import Decision as Decision
from .core.permission import Question as Question
from .core.result import ToolResult as ToolResult
from .core.session import Limits as Limits
from .core.tool import Tool as Tool
from .crib import PendingApproval as PendingApproval
from .crib import Session as Session
from .crib import Toolcrib as Toolcrib
from .crib import defer_approval as defer_approval
from .crib import pending_approval as pending_approval
from .crib import run as run
from .errors import ConfigError as ConfigError
from .errors import ToolcribError as ToolcribError
from .errors import ToolFailure as ToolFailure
from .errors import UsageError as UsageError
from .plugin import tool as tool

__all__ = [
    "Answer",
    "Catalog",
    "ConfigError",
    "Context",
    "Decision",
    "Limits",
    "PendingApproval",
    "Problem",
    "Question",
    "Session",
    "Tool",
    "ToolFailure",
    "ToolResult",
    "Toolcrib",
    "ToolcribError",
    "UsageError",
    "defer_approval",
    "pending_approval",
    "run",
    "tool",
]
