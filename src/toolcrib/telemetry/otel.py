"""Spans and metrics of calls, by the GenAI conventions of OpenTelemetry (`names`), and their instruments."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, StatusCode, TracerProvider

from ..core.call import Call
from ..core.json import dumps
from ..core.result import ToolResult
from . import names

__all__ = ["Kit", "Telemetry", "current_kit", "does_something"]

_API: Final = ("opentelemetry.trace", "opentelemetry.metrics")
"""Modules of the no-op providers that are active until an SDK is set up."""


class Kit:
    """Instruments of one pair of providers. Lives as long as they do."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        """Make the instruments, once."""
        meter = meters.get_meter(names.SCOPE)
        buckets = list(names.DURATION_BUCKETS)
        self.tracer = tracers.get_tracer(names.SCOPE)
        self.durations = meter.create_histogram(
            names.DURATION, "s", "Duration of tool executions", explicit_bucket_boundaries_advisory=buckets
        )
        self.hops = meter.create_histogram(
            names.MCP_DURATION,
            "s",
            "Duration of MCP requests, from sending to the response",
            explicit_bucket_boundaries_advisory=buckets,
        )
        self.calls = meter.create_counter(names.CALLS, "{call}", "Calls that ended, by decision and outcome")
        self.approvals = meter.create_counter(names.APPROVALS, "{approval}", "Calls that needed an approval")
        self.jobs = meter.create_up_down_counter(names.ACTIVE_JOBS, "{job}", "Calls that work as jobs now")


def does_something(provider: TracerProvider | MeterProvider) -> bool:
    """Whether `provider` is more than the API's no-op."""
    return not type(provider).__module__.startswith(_API)


_LOOK: Final = 1.0
"""Seconds after which it is looked again whether the program has set up an SDK meanwhile."""
_LONGEST: Final = 8192
"""Characters of arguments, of a result and of any other text: what most backends show."""
_NAME: Final = 200
"""Characters of a name that a model wrote."""
_TYPES: Final[Mapping[str, str]] = {
    "mcp": "extension",
    "openapi": "extension",
    "rest": "extension",
    "skill": "datastore",
}
"""The conventions' word by a tool's origin: an `extension` calls elsewhere on our side, all others are functions."""

_current: ContextVar[_CallSpan | None] = ContextVar("toolcrib_call_span", default=None)


class Telemetry:
    """Watches the calls of one crib. Used from one event loop."""

    def __init__(
        self,
        *,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        content: bool = False,
        redact: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        """`tracers` and `meters` are ours alone; without them those of the program count, whenever it sets them up.

        `content`: arguments and results go into the spans too, as `redact` leaves them.
        """
        self.content = content
        self._tracers = tracers
        self._meters = meters
        self._redact = redact
        self._look_at = 0.0
        self._kit: Kit | None = None

    def watch(self, call: Call) -> AbstractContextManager[None] | None:
        """Return the context manager to enter around the call, on its way to a result; None without a listener."""
        kit = self._kit or self._look()
        if kit is None:
            return None
        if (
            call.options.job_seconds is not None
        ):  # a job that another walk has left behind: a queue's, or a dead process's
            return self._apart(kit, call)
        incoming = _carrier(call.client.meta)
        if call.parent or not incoming:
            return _CallSpan(self, kit, call, None)
        return _CallSpan(self, kit, call, propagate.extract(incoming), links=_links(trace.get_current_span()))

    def watch_job(self, call: Call) -> AbstractContextManager[None] | None:
        """Return the context manager for the work of a job that `with_trace_context` announced; None without an SDK."""
        kit = self._kit or self._look()
        if kit is None:
            return None
        if call.options.background:
            return self._apart(kit, call)
        return _CallSpan(self, kit, call, propagate.extract(_carrier(call.client.meta), Context()), job=True)

    def with_trace_context(self, call: Call) -> Call:
        """Return a call that may become a job, with its trace context: a job may run in another process."""
        span = _current.get()
        if span is None or span.telemetry is not self:
            return call
        sent: dict[str, str] = {}
        propagate.inject(sent)
        span.call = call
        return call.evolve(meta={**(call.client.meta or {}), **_carrier(sent)})

    def ended(self, call: Call, result: ToolResult) -> None:
        """Record the outcome of `call`. Its span, if it has one, is the current one."""
        span = _current.get()
        if span is not None and span.telemetry is self:
            span.set_outcome(call, result)

    def shown(self, value: Any) -> str:
        """Return `value` without secrets and no longer than is fit for an attribute: text as it is, else JSON."""
        clean = self._redact(value)
        try:
            text = clean if isinstance(clean, str) else dumps(clean).decode()
        except (TypeError, ValueError, RecursionError):
            return f"({type(value).__name__})"
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

    def _apart(self, kit: Kit, call: Call) -> _CallSpan:
        """Return the span of a job without a waiting caller: a trace of its own, linked to its submission."""
        submitted = trace.get_current_span(propagate.extract(_carrier(call.client.meta), Context()))
        return _CallSpan(self, kit, call, Context(), job=True, links=_links(submitted))

    def _look(self) -> Kit | None:
        """Look for providers that do something, at most once a second."""
        now = time.monotonic()
        if now < self._look_at:
            return None
        self._look_at = now + _LOOK
        tracers = self._tracers or trace.get_tracer_provider()
        meters = self._meters or metrics.get_meter_provider()
        if does_something(tracers) or does_something(meters):
            self._kit = Kit(tracers, meters)
        return self._kit


def current_kit() -> Kit | None:
    """Return the instruments of the call that runs in this task; None outside a watched call."""
    span = _current.get()
    return None if span is None else span.kit


class _CallSpan(AbstractContextManager[None]):
    """One call on its way: entered and left in the task that walks it."""

    __slots__ = ("_attached", "_begun", "_has_outcome", "_job", "_mine", "_parent", "_span", "call", "kit", "telemetry")

    def __init__(
        self,
        telemetry: Telemetry,
        kit: Kit,
        call: Call,
        parent: Context | None,
        *,
        job: bool = False,
        links: list[Link] | None = None,
    ) -> None:
        self.telemetry = telemetry
        self.kit = kit
        self.call = call
        self._parent = parent
        self._job = job
        self._has_outcome = False
        self._begun = time.monotonic()
        name = _name(call)
        start = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: name, names.CALL_ID: call.id}
        self._span = kit.tracer.start_span(
            f"{names.EXECUTE_TOOL} {name}", parent, SpanKind.INTERNAL, attributes=start, links=links
        )
        self._attached: Token[Context] | None = None
        self._mine: Token[_CallSpan | None] | None = None

    def __enter__(self) -> None:
        self._attached = contexts.attach(trace.set_span_in_context(self._span, self._parent))
        self._mine = _current.set(self)
        if self._job:
            self.kit.jobs.add(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._mine is not None and self._attached is not None:
            _current.reset(self._mine)
            contexts.detach(self._attached)
        if self._job:
            self.kit.jobs.add(-1)
        if not self._has_outcome:  # the call goes on as a job, whose span records the outcome
            self._span.update_name(f"{names.SUBMIT_JOB} {_name(self.call)}")
            self._span.set_attributes(
                {names.OPERATION: names.SUBMIT_JOB, names.TOOL_NAME: _name(self.call), names.OUTCOME: "job"}
            )
        self._span.end()

    def set_outcome(self, call: Call, result: ToolResult) -> None:
        """Take the outcome: the first one counts."""
        if self._has_outcome:
            return
        self._has_outcome = True
        marks: dict[str, Any] = {names.OPERATION: names.EXECUTE_TOOL}
        if call.tool is not None:
            marks |= {names.TOOL_NAME: call.tool.name, names.TOOL_TYPE: _TYPES.get(call.tool.origin, "function")}
        if result.error is not None:
            marks[names.ERROR_TYPE] = result.error.code
        ours = _ours(call, result)
        self.kit.durations.record(time.monotonic() - self._begun, marks)
        counted = (names.OUTCOME, names.DECISION)
        self.kit.calls.add(1, {name: ours[name] for name in counted if name in ours})
        if names.APPROVAL in ours:
            self.kit.approvals.add(1, {names.APPROVAL: ours[names.APPROVAL]})
        if self._span.is_recording():
            self._describe(call, result, marks | ours)

    def _describe(self, call: Call, result: ToolResult, marks: dict[str, Any]) -> None:
        shown, span = self.telemetry.shown, self._span
        requested = (call.route.requested or call.name)[:_NAME]
        if call.tool is None:
            span.update_name(names.EXECUTE_TOOL)  # a name that a model made up must not name spans
            marks[names.TOOL_NAME] = shown(requested)
        else:
            span.update_name(f"{names.EXECUTE_TOOL} {call.tool.name}")
            marks[names.DESCRIPTION] = shown(call.tool.description)
            if requested != call.tool.name:
                marks[names.REQUESTED] = shown(requested)
        if names.RULE in marks:
            marks[names.RULE] = shown(marks[names.RULE])
        if self.telemetry.content:
            content = result.structured_content if result.structured_content is not None else result.text
            marks |= {names.ARGUMENTS: shown(call.display_arguments), names.RESULT: shown(content)}
        span.set_attributes(marks)
        if result.error is not None:
            span.set_status(StatusCode.ERROR, shown(result.error.message) if self.telemetry.content else None)


def _ours(call: Call, result: ToolResult) -> dict[str, Any]:
    """Attributes without a convention."""
    session, decision = call.session, call.decision
    marks: dict[str, Any] = {
        names.OUTCOME: result.error.code if result.error else "input_required" if result.input_required else "ok",
        names.PROFILE: session.profile,
        names.ORIGIN: call.origin,
        names.SESSION: hashlib.sha256(f"{session.principal}\0{session.key}".encode()).hexdigest()[:16],
    }
    if call.tool is not None:
        marks[names.SOURCE] = call.tool.source
    if decision is not None:
        marks |= {names.DECISION: decision.effect, names.RULE: decision.rule}
    ran = call.grant is not None
    if decision is not None and decision.effect == "ask" and (ran or result.is_error):
        marks[names.APPROVAL] = "granted" if ran else "refused"
    if result.meta.get("replayed"):
        marks[names.REPLAYED] = True
    if call.options.dry_run:
        marks[names.DRY_RUN] = True
    return marks | {
        name: value for name, value in ((names.VERB, call.route.verb), (names.PARENT, call.parent)) if value
    }


def _name(call: Call) -> str:
    return call.tool.name if call.tool is not None else call.name[:_NAME]


def _carrier(meta: Mapping[str, Any] | None) -> dict[str, str]:
    """The trace context in a call's `meta`, and nothing else of it."""
    return {key: str(meta[key]) for key in names.CONTEXT_KEYS if key in meta} if meta else {}


def _links(span: trace.Span) -> list[Link]:
    """A link to `span`, if it is valid."""
    found = span.get_span_context()
    return [Link(found)] if found.is_valid else []
