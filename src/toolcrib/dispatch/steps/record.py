"""Steps after the outcome: error advice and success rates, then the audit row, event and span.

    outcome of               row                        waits for the disk
    a write with a grant     `Calls.finish`             yes: row and receipt in one transaction, durable
    anything else            `Calls.note`               no: written within 250 ms, in a batch

Whether a write ran is read off its grant: an unspent one proves that the body was never entered.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio

from ...catalog.success_rates import SuccessRates
from ...core.call import Call
from ...core.events import CallFinished, Listeners
from ...core.result import ToolError, ToolResult
from ...core.session import SessionState
from ...disclosure.base import Profile
from ...disclosure.meta_tools import SOURCE
from ...disclosure.profiles import strategy_of
from ...errors import ToolFailure
from ...jobs.tools import SOURCE as JOBS
from ...policy.grant import spend
from ...results.error_advice import classify, error_type, is_failure
from ...store.store import Store
from ...telemetry.otel import Telemetry
from ..budgets import BudgetUsage
from ..plan import After, Subject

_OURS: Final = frozenset({SOURCE, JOBS})
"""Sources whose tools pass on results of other calls, which were counted themselves."""

_DID_NOT_RUN: Final = ("overloaded", "unavailable")
"""Codes by which a source reports that the call had no effect: the same key may be tried again."""


class Assess:
    """Count outcomes for the session and for the success rates of tools, and add advice after an error."""

    def __init__(self, success_rates: SuccessRates, profile_of: Callable[[SessionState], Profile]) -> None:
        """`success_rates` counts over sessions, `profile_of` returns the profile of a session."""
        self._success_rates = success_rates
        self._profile_of = profile_of

    def __call__(self, call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
        """Return the result with `recovery` in the metadata of an error, and the strategy's notes on the run."""
        return self._assessed(call, result, strategy_of(self._profile_of(call.session)).deliver)

    def bind(self, subject: Subject) -> After:
        """Return the step for one profile."""
        if subject.profile is None:
            return self
        deliver = strategy_of(subject.profile).deliver
        return partial(self._assessed, deliver=deliver)

    def _assessed(
        self, call: Call, result: ToolResult, deliver: Callable[[Call, ToolResult], Awaitable[ToolResult]] | None
    ) -> ToolResult | Awaitable[ToolResult]:
        tool, session = call.tool, call.session
        if tool is not None and tool.source not in _OURS and call.grant is not None and result.input_required is None:
            self._success_rates.note(session.principal, tool.name, result.error.code if result.error else "ok")
            if deliver is not None:
                return self._delivered(call, deliver(call, result))
        return self._counted(call, result)

    async def _delivered(self, call: Call, delivery: Awaitable[ToolResult]) -> ToolResult:
        return self._counted(call, await delivery)

    def _counted(self, call: Call, result: ToolResult) -> ToolResult:
        if result.error is not None:
            return self._failed(call, result, result.error)
        if call.grant is not None:
            history = call.session.history
            history.errors = ("", 0)
            if history.failures:
                history.failures.pop(call.name, None)
        return result

    def _failed(self, call: Call, result: ToolResult, error: ToolError) -> ToolResult:
        session, kind = call.session, error_type(error)
        in_a_row = session.history.errors[1] + 1 if session.history.errors[0] == kind else 1
        session.history.errors = (kind, in_a_row)
        failures = 0
        if call.tool is not None and call.tool.source not in _OURS and is_failure(error):
            session.history.failures[call.tool.name] += 1
            failures = session.history.failures[call.tool.name]
        return result.with_meta(recovery=classify(error, in_a_row=in_a_row, failures=failures))


class Record:
    """The step that remembers.

    The event and the span are made before the row, so that listeners do not wait for the disk.
    """

    def __init__(
        self,
        store: Store,
        finished: Listeners[CallFinished],
        telemetry: Telemetry,
        budget_usage: BudgetUsage,
    ) -> None:
        """`store` keeps the rows and the receipts; `finished` has the listeners to calls that ended.

        `telemetry` puts the outcome into the span that is open around the call, and counts it;
        `budget_usage` takes back the unused part of the call's budgets.
        """
        self._store = store
        self._finished = finished
        self._telemetry = telemetry
        self._budget_usage = budget_usage

    def __call__(self, call: Call, result: ToolResult) -> ToolResult | Awaitable[ToolResult]:
        """Return the result with the call's id, its duration in milliseconds, and the deciding rule."""
        took = round((time.monotonic() - call.started) * 1000, 3)
        rule = call.decision.rule if call.decision else ""
        result = result.with_meta(call_id=call.id, latency_ms=took, rule=rule)
        if self._finished.callbacks:
            self._finished.tell(self._event(call, result, took))
        if self._telemetry.kit is not None:
            self._telemetry.ended(call, result)
        if call.grant is None or self._budget_usage.has_any:
            self._budget_usage.settle(call, result)
        if call.tool is not None and result.error is None and result.input_required is None:
            call.session.history.succeeded.setdefault(call.tool.name)
        if call.grant is not None and not call.target.annotations.read_only:
            return self._write_down(call, result)
        if call.reserved and not call.options.is_stored:
            return self._released(call, result)
        self._store.calls.note(call, result)
        return result

    async def _released(self, call: Call, result: ToolResult) -> ToolResult:
        await self._store.receipts.release(call.session.principal, call.options.idempotency_key)
        self._store.calls.note(call, result)
        return result

    async def _write_down(self, call: Call, result: ToolResult) -> ToolResult:
        """Record an effect, also while the caller leaves: no effect stays without its outcome."""
        with anyio.CancelScope(shield=True):
            result = await self._written(call, result)
        return result

    async def _written(self, call: Call, result: ToolResult) -> ToolResult:
        """Record an effect. While the disk fails, the row waits and the caller still gets the outcome."""
        receipt = None
        if call.reserved:
            principal, key = call.session.principal, call.options.idempotency_key
            if _is_final(call, result):
                receipt = self._store.receipts.settling(principal, key, result)
            elif not call.options.is_stored:
                await self._store.receipts.release(principal, key)
        try:
            await self._store.calls.finish(call, result, receipt)
        except ToolFailure as failure:
            return result.with_meta(unrecorded=failure.message)
        return result

    def _event(self, call: Call, result: ToolResult, took: float) -> CallFinished:
        """Return the event. A name that reached no tool is text of the caller: redacted and shortened."""
        tool, requested = call.tool, call.route.requested or call.name
        op = call.route.op or (tool.op if tool is not None else "")
        outcome = result.error.code if result.error else "input_required" if result.input_required else "ok"
        parts = op.split(".")
        return CallFinished(
            call_id=call.id,
            session=call.session.key,
            tool=tool.name if tool is not None else "",
            requested=requested if tool is not None else self._telemetry.values.text(requested),
            op=op,
            entity=".".join(parts[1:-1]),
            action=parts[-1],
            kind=tool.kind if tool is not None else "",
            outcome=outcome,
            latency_ms=took,
        )


def _is_final(call: Call, result: ToolResult) -> bool:
    """Whether a repeat is answered with `result`: false if nothing ran, or if the tool continues after input.

    Spends the grant of a call that never reached its body, so that it can never run later.
    """
    if call.grant is not None and spend(call.grant, call.target, call.arguments, call.id):
        return False
    return result.input_required is None and (result.error is None or result.error.code not in _DID_NOT_RUN)
