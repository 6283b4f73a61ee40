"""Every OpenTelemetry name that we send: spans, attributes, metrics, and the context keys of MCP.

`gen_ai.*` and `mcp.*` are the GenAI and MCP conventions (open-telemetry/semantic-conventions-genai, status
Development): when those change, this module does. Names without a convention have our own prefix, `toolcrib.*`.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ACTIVE_JOBS",
    "APPROVAL",
    "APPROVALS",
    "ARGUMENTS",
    "CALLS",
    "CALL_ID",
    "CONTEXT_KEYS",
    "DECISION",
    "DESCRIPTION",
    "DRY_RUN",
    "DURATION",
    "DURATION_BUCKETS",
    "ERROR_TYPE",
    "EXECUTE_TOOL",
    "MCP_DURATION",
    "MCP_METHOD",
    "MCP_VERSION",
    "NETWORK_TRANSPORT",
    "OPERATION",
    "ORIGIN",
    "OUTCOME",
    "PARENT",
    "PROFILE",
    "REPLAYED",
    "REQUESTED",
    "RESULT",
    "RPC_STATUS",
    "RULE",
    "SCOPE",
    "SESSION",
    "SOURCE",
    "SUBMIT_JOB",
    "TOOL_NAME",
    "TOOL_TYPE",
    "VERB",
]

SCOPE: Final = "toolcrib"
"""The instrumentation scope."""

# Spans
EXECUTE_TOOL: Final = "execute_tool"
SUBMIT_JOB: Final = "submit_job"
"""Ours: the part of a call that ended when the call went on as a job; the job has a span of its own."""

# gen_ai.*
OPERATION: Final = "gen_ai.operation.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
DESCRIPTION: Final = "gen_ai.tool.description"
CALL_ID: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
ERROR_TYPE: Final = "error.type"

# mcp.*, and attributes that the MCP conventions take from others
MCP_METHOD: Final = "mcp.method.name"
MCP_VERSION: Final = "mcp.protocol.version"
NETWORK_TRANSPORT: Final = "network.transport"
RPC_STATUS: Final = "rpc.response.status_code"
CONTEXT_KEYS: Final = ("traceparent", "tracestate", "baggage")
"""Keys of the trace context in `_meta`, unprefixed (SEP-414)."""

# toolcrib.*
APPROVAL: Final = "toolcrib.approval"
"""Outcome of an approval: `granted` or `refused`."""
DECISION: Final = "toolcrib.decision"
"""`allow`, `ask` or `deny`."""
DRY_RUN: Final = "toolcrib.dry_run"
ORIGIN: Final = "toolcrib.origin"
"""The way in: library, mcp, cli, batch."""
OUTCOME: Final = "toolcrib.outcome"
"""`ok`, `input_required`, `job`, or the error's code."""
PARENT: Final = "toolcrib.call.parent"
PROFILE: Final = "toolcrib.profile"
REPLAYED: Final = "toolcrib.replayed"
REQUESTED: Final = "toolcrib.requested"
"""The requested name, where it differs from the tool's own."""
RULE: Final = "toolcrib.rule"
SESSION: Final = "toolcrib.session"
"""16 hex digits, equal for all calls of a session; they reveal neither its key nor its principal."""
SOURCE: Final = "toolcrib.source"
VERB: Final = "toolcrib.verb"

# Metrics
DURATION: Final = "gen_ai.execute_tool.duration"
MCP_DURATION: Final = "mcp.client.operation.duration"
DURATION_BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds: the boundaries that the GenAI conventions give for durations."""
CALLS: Final = "toolcrib.calls"
"""Calls that ended, by decision and outcome: denials are those with the decision `deny`."""
APPROVALS: Final = "toolcrib.approvals"
"""Calls that needed an approval, by outcome."""
ACTIVE_JOBS: Final = "toolcrib.jobs.active"
