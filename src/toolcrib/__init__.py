"""Any number of tools, one small stable context, one safe way to run them.

    async with Toolcrib() as crib, crib.session(approver=ask) as session:
        crib.add(my_function)
        request = session.definitions("anthropic")                # `tools=` of the request to the model
        result = await session.call("my_function", {"x": 1})      # a call of its answer

The names below are the whole library; they load when they are first used, so that `import toolcrib` costs nothing.
"""

# pyright: reportUnsupportedDunderAll=false
# The names are typed in `__init__.pyi`; here they appear when they are asked for.

from importlib import import_module
from typing import Any

__all__ = [  # written out: the site's reference reads it without running it
    "AfterStep",
    "Annotations",
    "Answer",
    "ApiOptions",
    "Approver",
    "Availability",
    "BaseSource",
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
    "Guidance",
    "InteractionOptions",
    "Job",
    "Limits",
    "Listener",
    "Listing",
    "Mode",
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
    "Verdict",
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
    "Annotations": "core.tool",
    "Answer": "core.permission",
    "ApiOptions": "crib.options",
    "Approver": "core.permission",
    "Availability": "core.tool",
    "BaseSource": "sources.source",
    "BeforeStep": "dispatch.steps.custom",
    "Budget": "core.budget",
    "Budgets": "core.budget",
    "Call": "core.call",
    "CallOptions": "crib.options",
    "Catalog": "catalog.catalog",
    "Clarification": "core.elicitation",
    "ConfigError": "errors",
    "Context": "core.context",
    "Decision": "core.permission",
    "Elicitor": "core.elicitation",
    "Execution": "core.tool",
    "Guidance": "core.tool",
    "InteractionOptions": "crib.options",
    "Job": "jobs.job",
    "Limits": "core.session",
    "Listener": "core.context",
    "Listing": "sources.source",
    "Mode": "policy.modes",
    "Output": "core.context",
    "PendingApproval": "crib",
    "Problem": "core.events",
    "Profile": "disclosure.base",
    "Progress": "core.context",
    "Publish": "sources.source",
    "Question": "core.permission",
    "Session": "crib",
    "SessionOptions": "crib.options",
    "Settings": "config",
    "Source": "sources.source",
    "SourceState": "core.events",
    "TelemetryOptions": "telemetry.settings",
    "Tool": "core.tool",
    "ToolError": "core.result",
    "ToolFailure": "errors",
    "ToolResult": "core.result",
    "Toolcrib": "crib",
    "ToolcribError": "errors",
    "UsageError": "errors",
    "Verdict": "core.permission",
    "defer_approval": "crib",
    "filtered": "sources.combinators",
    "pending_approval": "crib",
    "prefixed": "sources.combinators",
    "renamed": "sources.combinators",
    "run": "crib",
    "tool": "sources.python.declaration",
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
