"""Results that already passed the after-steps: a job's result, fetched by the tool that reads jobs.

It was limited and put into its envelope when the job ended; doing so again would cut and wrap it twice.
"""

from __future__ import annotations

from ..core.call import Call
from ..core.result import ToolResult
from ..jobs.tools import SOURCE, TASK

__all__ = ["is_settled"]


def is_settled(call: Call, result: ToolResult) -> bool:
    """Whether `result` is that of an earlier call, which this one only fetched."""
    return call.tool is not None and call.tool.source == SOURCE and TASK in result.meta
