"""What a result says of the version that ran."""

from __future__ import annotations

from ...core.call import Call
from ...core.result import ToolResult

__all__ = ["tell_version"]


async def tell_version(call: Call, result: ToolResult) -> ToolResult:
    """Return the result with `version` in its metadata, where the tool is deprecated or arguments were migrated."""
    tool = call.tool
    if tool is None or not (tool.deprecated or call.migrated):
        return result
    told = {
        "ran": tool.version,
        "migrated_from": call.migrated,
        "deprecated": tool.deprecated,
        "replaced_by": tool.replaced_by,
    }
    return result.with_meta(version={key: value for key, value in told.items() if value})
