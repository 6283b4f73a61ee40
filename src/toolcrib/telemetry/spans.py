"""Spans and metrics of calls and of requests to MCP servers, by the GenAI conventions of OpenTelemetry.

`gen_ai.*` and `mcp.*` are the GenAI and MCP conventions (open-telemetry/semantic-conventions-genai, status
Development): when those change, this module does. Names without a convention have our own prefix, `toolcrib.*`.

A request to an MCP server has a span of kind CLIENT below the span of its call. The server gets the trace context in
`_meta`, so that its own spans are children of this one.

`otel.Telemetry` loads it with the first listener.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import Token
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, Observation
from opentelemetry.trace import Link, SpanKind, StatusCode, TracerProvider

from ..core.call import Call, trace_of
from ..core.events import SourceState
from ..core.result import ToolResult
from .values import CURRENT, ShownValues

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

# toolcrib.*
APPROVAL: Final = "toolcrib.approval"
"""Outcome of an approval: `granted`, `refused`, or `pending` where the call is held for an answer."""
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
SOURCE_UP: Final = "toolcrib.source.up"
"""1 while calls of a source's tools can succeed, 0 while the source is down or needs a login."""

_NO_OP_MODULES: Final = ("opentelemetry.trace", "opentelemetry.metrics")
"""Modules of the no-op providers that are active until an SDK is set up."""

_MAX_NAME_LENGTH: Final = 200
"""Characters of a name that a model wrote."""
_TYPES: Final[Mapping[str, str]] = {
    "mcp": "extension",
    "openapi": "extension",
    "rest": "extension",
    "skill": "datastore",
}
"""The conventions' word by a tool's origin: an `extension` calls elsewhere on our side, all others are functions."""


class Kit:
    """Instruments of one pair of providers. Lives as long as they do.

    `kit_of` makes it; `Telemetry` keeps it for the rest of the crib's life.
    """

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        """Make the instruments, once."""
        meter = meters.get_meter(SCOPE)
        buckets = list(DURATION_BUCKETS)
        self.tracer = tracers.get_tracer(SCOPE)
        self.durations = meter.create_histogram(
            DURATION, "s", "Duration of tool executions", explicit_bucket_boundaries_advisory=buckets
        )
        self.hops = meter.create_histogram(
            MCP_DURATION,
            "s",
            "Duration of MCP requests, from sending to the response",
            explicit_bucket_boundaries_advisory=buckets,
        )
        self.calls = meter.create_counter(CALLS, "{call}", "Calls that ended, by decision and outcome")
        self.approvals = meter.create_counter(APPROVALS, "{approval}", "Calls that needed an approval")
        self.jobs = meter.create_up_down_counter(ACTIVE_JOBS, "{job}", "Calls that work as jobs now")

    def watch(self, values: ShownValues, call: Call) -> CallSpan:
        """Return the span of a call on its way to a result."""
        if call.options.job_seconds is not None:  # another walk left it behind: a queue's, or a dead process's
            return self._apart(values, call)
        incoming = trace_of(call.client.meta)
        if call.parent or not incoming:
            return CallSpan(values, self, call, None)
        return CallSpan(values, self, call, propagate.extract(incoming), links=_links(trace.get_current_span()))

    def watch_job(self, values: ShownValues, call: Call) -> CallSpan:
        """Return the span of the work of a job."""
        if call.options.background:
            return self._apart(values, call)
        return CallSpan(values, self, call, propagate.extract(trace_of(call.client.meta), Context()), job=True)

    def _apart(self, values: ShownValues, call: Call) -> CallSpan:
        """Return the span of a job without a waiting caller: a trace of its own, linked to its submission."""
        submitted = trace.get_current_span(propagate.extract(trace_of(call.client.meta), Context()))
        return CallSpan(values, self, call, Context(), job=True, links=_links(submitted))


def kit_of(tracers: TracerProvider | None, meters: MeterProvider | None) -> Kit | None:
    """Return the instruments of these providers, else of the program's; None while they do nothing."""
    tracers, meters = tracers or trace.get_tracer_provider(), meters or metrics.get_meter_provider()
    return Kit(tracers, meters) if _does_something(tracers) or _does_something(meters) else None


def observe_sources(meters: MeterProvider, states: Callable[[], Iterable[SourceState]]) -> None:
    """Export whether the tools of each source can be called, at each collection for as long as `meters` are used."""

    def look(_: object) -> Iterable[Observation]:
        return [Observation(int(not one.outage), {SOURCE: one.source}) for one in states()]

    meters.get_meter(SCOPE).create_observable_gauge(SOURCE_UP, [look], "1", "Whether a source's tools can be called")


def _does_something(provider: TracerProvider | MeterProvider) -> bool:
    """Whether `provider` is more than the API's no-op."""
    return not type(provider).__module__.startswith(_NO_OP_MODULES)


class CallSpan(AbstractContextManager[None]):
    """One call on its way: entered and left in the task that walks it.

    It lives from `watch` to the end of the walk. A call that goes on as a job has two: this one, renamed to
    `submit_job`, and that of its work.
    """

    __slots__ = ("_attached", "_begun", "_has_outcome", "_job", "_mine", "_parent", "_span", "call", "kit", "values")

    def __init__(
        self,
        values: ShownValues,
        kit: Kit,
        call: Call,
        parent: Context | None,
        *,
        job: bool = False,
        links: list[Link] | None = None,
    ) -> None:
        self.values = values
        self.kit = kit
        self.call = call
        self._parent = parent
        self._job = job
        self._has_outcome = False
        self._begun = time.monotonic()
        name = _name(call)
        start = {OPERATION: EXECUTE_TOOL, TOOL_NAME: name, CALL_ID: call.id}
        self._span = kit.tracer.start_span(
            f"{EXECUTE_TOOL} {name}", parent, SpanKind.INTERNAL, attributes=start, links=links
        )
        self._attached: Token[Context] | None = None
        self._mine: Token[CallSpan | None] | None = None

    def __enter__(self) -> None:
        self._attached = contexts.attach(trace.set_span_in_context(self._span, self._parent))
        self._mine = CURRENT.set(self)
        if self._job:
            self.kit.jobs.add(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._mine is not None and self._attached is not None:
            CURRENT.reset(self._mine)
            contexts.detach(self._attached)
        if self._job:
            self.kit.jobs.add(-1)
        if not self._has_outcome:  # the call goes on as a job, whose span records the outcome
            self._span.update_name(f"{SUBMIT_JOB} {_name(self.call)}")
            self._span.set_attributes({OPERATION: SUBMIT_JOB, TOOL_NAME: _name(self.call), OUTCOME: "job"})
        self._span.end()

    def with_trace_context(self, call: Call) -> Call:
        """Return a call that may become a job, with its trace context."""
        self.call = call
        return call.evolve(meta={**(call.client.meta or {}), **trace_of(sent_context())})

    def set_outcome(self, call: Call, result: ToolResult) -> None:
        """Take the outcome: the first one counts."""
        if self._has_outcome:
            return
        self._has_outcome = True
        marks: dict[str, Any] = {OPERATION: EXECUTE_TOOL}
        if call.tool is not None:
            marks |= {TOOL_NAME: call.tool.name, TOOL_TYPE: _TYPES.get(call.tool.origin, "function")}
        if result.error is not None:
            marks[ERROR_TYPE] = result.error.code
        ours = _own_marks(call, result)
        self.kit.durations.record(time.monotonic() - self._begun, marks)
        counted = (OUTCOME, DECISION)
        self.kit.calls.add(1, {name: ours[name] for name in counted if name in ours})
        if APPROVAL in ours:
            self.kit.approvals.add(1, {APPROVAL: ours[APPROVAL]})
        if self._span.is_recording():
            self._describe(call, result, marks | ours)

    def _describe(self, call: Call, result: ToolResult, marks: dict[str, Any]) -> None:
        shown, span = self.values.text, self._span
        requested = (call.route.requested or call.name)[:_MAX_NAME_LENGTH]
        if call.tool is None:
            span.update_name(EXECUTE_TOOL)  # a name that a model made up must not name spans
            marks[TOOL_NAME] = shown(requested)
        else:
            span.update_name(f"{EXECUTE_TOOL} {call.tool.name}")
            marks[DESCRIPTION] = shown(call.tool.description)
            if requested != call.tool.name:
                marks[REQUESTED] = shown(requested)
        if RULE in marks:
            marks[RULE] = shown(marks[RULE])
        if self.values.content:
            content = result.structured_content if result.structured_content is not None else result.text
            marks |= {ARGUMENTS: shown(call.display_arguments), RESULT: shown(content)}
        span.set_attributes(marks)
        if result.error is not None:
            span.set_status(StatusCode.ERROR, shown(result.error.message) if self.values.content else None)


def _own_marks(call: Call, result: ToolResult) -> dict[str, Any]:
    """Attributes without a convention."""
    session, decision = call.session, call.decision
    marks: dict[str, Any] = {
        OUTCOME: result.error.code if result.error else "input_required" if result.input_required else "ok",
        PROFILE: session.profile,
        ORIGIN: call.origin,
        SESSION: hashlib.sha256(f"{session.principal}\0{session.key}".encode()).hexdigest()[:16],
    }
    if call.tool is not None:
        marks[SOURCE] = call.tool.source
    if decision is not None:
        marks |= {DECISION: decision.effect, RULE: decision.rule}
    ran = call.grant is not None
    if decision is not None and decision.effect == "ask" and (ran or result.is_error):
        marks[APPROVAL] = "granted" if ran else "pending" if marks[OUTCOME] == "approval_pending" else "refused"
    if result.meta.get("replayed"):
        marks[REPLAYED] = True
    if call.options.dry_run:
        marks[DRY_RUN] = True
    return marks | {name: value for name, value in ((VERB, call.route.verb), (PARENT, call.parent)) if value}


def _name(call: Call) -> str:
    return call.tool.name if call.tool is not None else call.name[:_MAX_NAME_LENGTH]


def _links(span: trace.Span) -> list[Link]:
    """A link to `span`, if it is valid."""
    found = span.get_span_context()
    return [Link(found)] if found.is_valid else []


def sent_context(context: Context | None = None) -> dict[str, str]:
    """Return the trace context as a request carries it: that of the current span without a `context`."""
    sent: dict[str, str] = {}
    propagate.inject(sent, context)
    return sent


def hop(kit: Kit, method: str, tool: str, *, version: str, transport: str) -> Hop:
    """Return the context manager to enter around the request.

    `version` is the protocol's, `transport` is `pipe` or `tcp`.

        with hop(kit, "tools/call", "read_file", version="2025-11-25", transport="pipe") as span:
            answer = await send(meta=span.meta)
    """
    marks = {
        MCP_METHOD: method,
        TOOL_NAME: tool,
        MCP_VERSION: version,
        NETWORK_TRANSPORT: transport,
    }
    return Hop(kit, f"{method} {tool}", marks)


class Hop(AbstractContextManager["Hop"]):
    """One request. Without a reported failure or an exception it is a success."""

    __slots__ = ("_begun", "_kit", "_marks", "_span", "meta")

    def __init__(self, kit: Kit, name: str, marks: dict[str, Any]) -> None:
        """Start the span.

        It has no `gen_ai.operation.name`: the span above it is the execution, and consumers count those.
        """
        self._kit = kit
        self._marks = marks
        self._begun = time.monotonic()
        self._span = kit.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=marks)
        sent = sent_context(trace.set_span_in_context(self._span))
        self.meta: Mapping[str, str] = trace_of(sent)
        """The trace context to send, under the keys of `_meta`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._fail(error)
        self._kit.hops.record(time.monotonic() - self._begun, self._marks)
        self._span.end()

    def failed(self, error: str) -> None:
        """Record the kind of failure: `tool_error` for an error result."""
        self._marks[ERROR_TYPE] = error
        self._span.set_attribute(ERROR_TYPE, error)
        self._span.set_status(StatusCode.ERROR)

    def _fail(self, error: BaseException) -> None:
        """JSON-RPC errors have a number as their code, our failures a word; a cancellation is not an Exception."""
        code = getattr(error, "code", None)
        if isinstance(code, int):
            self._marks[RPC_STATUS] = str(code)
            self._span.set_attribute(RPC_STATUS, str(code))
        named = type(error).__name__ if code is None else str(code)
        self.failed(named if isinstance(error, Exception) else "cancelled")
