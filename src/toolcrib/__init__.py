"""Any number of tools, one small stable context, one safe way to run them.

The names below are the whole library; they load when they are first used, so that `import toolcrib` costs nothing.
"""

# pyright: reportUnsupportedDunderAll=false
# The names are typed in `__init__.pyi`; here they appear when they are asked for.

from importlib import import_module
from typing import Any

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
    "Listing",
    "PendingApproval",
    "Problem",
    "Profile",
    "Publish",
    "Question",
    "Session",
    "Settings",
    "Source",
    "SourceState",
    "TelemetryOptions",
    "Tool",
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

_HOMES = {
    "AfterStep": "dispatch.steps.custom",
    "Answer": "core.permission",
    "BeforeStep": "dispatch.steps.custom",
    "Budget": "core.budget",
    "Budgets": "core.budget",
    "Call": "core.call",
    "Catalog": "catalog.catalog",
    "ConfigError": "errors",
    "Context": "core.context",
    "Decision": "core.permission",
    "Limits": "core.session",
    "Listing": "sources.source",
    "Problem": "core.events",
    "Profile": "disclosure.base",
    "Publish": "sources.source",
    "Question": "core.permission",
    "Session": "crib",
    "Settings": "config",
    "Source": "sources.source",
    "SourceState": "core.events",
    "TelemetryOptions": "telemetry.sdk",
    "PendingApproval": "crib",
    "Tool": "core.tool",
    "ToolFailure": "errors",
    "ToolResult": "core.result",
    "Toolcrib": "crib",
    "ToolcribError": "errors",
    "UsageError": "errors",
    "filtered": "sources.combinators",
    "prefixed": "sources.combinators",
    "renamed": "sources.combinators",
    "defer_approval": "crib",
    "run": "crib",
    "pending_approval": "crib",
    "tool": "plugin",
}


def __getattr__(name: str) -> Any:
    """Load a public name from where it lives."""
    if name not in _HOMES:
        raise AttributeError(f"module 'toolcrib' has no attribute {name!r}")
    from .system.memory import without_collection

    with without_collection():
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
