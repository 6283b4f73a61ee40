from .catalog.catalog import Catalog as Catalog
from .config import Settings as Settings
from .core.budget import Budget as Budget
from .core.budget import Budgets as Budgets
from .core.call import Call as Call
from .core.context import Context as Context
from .core.events import Problem as Problem
from .core.permission import Answer as Answer
from .core.permission import Decision as Decision
from .core.permission import Question as Question
from .core.result import ToolResult as ToolResult
from .core.session import Limits as Limits
from .core.tool import Tool as Tool
from .crib import Session as Session
from .crib import Standing as Standing
from .crib import Toolcrib as Toolcrib
from .crib import ask_later as ask_later
from .crib import run as run
from .crib import standing as standing
from .disclosure.base import Profile as Profile
from .dispatch.steps.custom import AfterStep as AfterStep
from .dispatch.steps.custom import BeforeStep as BeforeStep
from .errors import ConfigError as ConfigError
from .errors import ToolcribError as ToolcribError
from .errors import ToolFailure as ToolFailure
from .errors import UsageError as UsageError
from .plugin import tool as tool
from .sources.source import Source as Source
from .telemetry.sdk import TelemetryOptions as TelemetryOptions

__all__ = [
    "AfterStep",
    "Answer",
    "BeforeStep",
    "Budget",
    "Budgets",
    "Call",
    "Catalog",
    "ConfigError",
    "Context",
    "Decision",
    "Limits",
    "Problem",
    "Profile",
    "Question",
    "Session",
    "Settings",
    "Source",
    "Standing",
    "TelemetryOptions",
    "Tool",
    "ToolFailure",
    "ToolResult",
    "Toolcrib",
    "ToolcribError",
    "UsageError",
    "ask_later",
    "run",
    "standing",
    "tool",
]
