"""A result that went through the after-steps before: a job's, fetched by the tool that looks after jobs.

It was limited and put into words when the job ended. To do so again would cut what was cut and wrap what was wrapped.
"""

from __future__ import annotations

from ..core.call import Call
from ..core.result import ToolResult
from ..jobs.tools import SOURCE, TASK

__all__ = ["is_settled"]


def is_settled(call: Call, result: ToolResult) -> bool:
    """Whether `result` is that of an earlier call, which this one only fetched."""
    return call.tool is not None and call.tool.source == SOURCE and TASK in result.meta
