"""The tools that the suite's scenarios about tasks call by name. Which of them become tasks is the gateway's to say.

The everything server itself knows no tasks: its SDK does not serve them.
"""

from __future__ import annotations

import anyio
from everything_tools import Context, EverythingTool, Handler, Result, Schema, text
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolRequestParams, CallToolResult, TextContent

_JOB_SECONDS = 1.0


async def _greet(ctx: Context, params: CallToolRequestParams) -> Result:
    return text(f"Hello, {(params.arguments or {}).get('name', '')}!")


async def _slow_compute(ctx: Context, params: CallToolRequestParams) -> Result:
    await anyio.sleep(float((params.arguments or {}).get("seconds", 0)))
    return text("computed")


async def _failing_job(ctx: Context, params: CallToolRequestParams) -> Result:
    await anyio.sleep(_JOB_SECONDS)
    return CallToolResult(content=[TextContent(type="text", text="The job failed.")], is_error=True)


async def _protocol_error_job(ctx: Context, params: CallToolRequestParams) -> Result:
    await anyio.sleep(_JOB_SECONDS)
    raise MCPError(INTERNAL_ERROR, "the job broke the server")


def _tool(name: str, description: str, run: Handler, properties: Schema | None = None) -> EverythingTool:
    schema: Schema = {"type": "object", "properties": properties or {}}
    return EverythingTool(name=name, description=description, run=run, schema=schema)


_COMPUTE: Schema = {"seconds": {"type": "number"}, "label": {"type": "string"}}

TASK_TOOLS = (
    _tool("greet", "Greets", _greet, {"name": {"type": "string"}}),
    _tool("slow_compute", "Takes as long as asked", _slow_compute, _COMPUTE),
    _tool("failing_job", "Takes a second and fails", _failing_job),
    _tool("protocol_error_job", "Takes a second and breaks", _protocol_error_job),
)
