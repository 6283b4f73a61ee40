"""Steps on permission: budget, decide, replay, approve.

    CheckBudget        reserves a call; refuses loops of a model
    Decide             Policy.decide_call → Call.decision; a deny ends here, naming the rule
    ReplayOrDescribe   a known idempotency key → the recorded result; a dry run → its description
    Approve            allow → grant; ask → `Approvals.ask`, which waits for a person and redeems the answer → grant

Nothing of the tool has run when one of these ends the call.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from ...catalog.catalog import Catalog
from ...core.budget import NO_LOOPS
from ...core.call import Call
from ...core.json import canonical
from ...core.permission import Decision
from ...core.result import ToolResult
from ...core.session import SessionState
from ...core.tool import Tool
from ...disclosure.base import Profile
from ...disclosure.meta_tools import SOURCE
from ...errors import ToolFailure
from ...jobs.attempts import is_repeatable
from ...jobs.tools import SOURCE as JOBS
from ...policy.approval import Approvals, Revise
from ...policy.decision import Policy
from ...policy.grant import mint
from ...policy.questions import NO_OTHER_WAY
from ...policy.shell.command_tools import CallArguments
from ...sources.source import Source
from ...store.calls import OUTCOME_UNKNOWN, Calls
from ...store.idempotency import Conflict, Receipts, Replay, hash_request
from ..budgets import BudgetUsage
from ..pipeline import Refused, definition_changed
from ..plan import Before, Subject


class TurnHistory(Struct, kw_only=True):
    """State of the loop check in one session: hashes of name and arguments."""

    turns: deque[bytes] = field(default_factory=deque[bytes])
    """The newest calls of finished turns, each once a turn."""
    turn: set[bytes] = field(default_factory=set[bytes])
    """The calls of the running turn."""

    @property
    def shown_by(self) -> object:
        """None: views do not depend on it."""
        return ()


class CheckBudget:
    """The step that counts."""

    def __init__(self, budget_usage: BudgetUsage, profile_of: Callable[[SessionState], Profile]) -> None:
        """`budget_usage` tracks usage; the profile has the limits on repeated turns of a model."""
        self._budget_usage = budget_usage
        self._profile_of = profile_of

    def __call__(self, call: Call) -> Call | Awaitable[Call]:
        """Return the call with its share reserved; raises `ToolFailure` with the alternatives."""
        if call.options.job_seconds is not None and call.charged:
            # It took its share when it was accepted as a job. No attempt gives it back: the next one may run.
            return call.evolve(charged=False)
        if call.turn.place:
            self._check_loops(call)
        return self._budget_usage.take(call)

    def bind(self, subject: Subject) -> Before:
        """Return the step for one tool: where nothing is limited, a call is counted and goes on."""
        limits = subject.limits
        is_limited = self._budget_usage.has_any or limits.calls is not None or limits.calls_per_tool
        if subject.tool is None or is_limited:
            return self
        name = subject.tool.name

        def count(call: Call) -> Call | Awaitable[Call]:
            if call.charged or call.turn.place:
                return self(call)
            call.session.usage.calls[name] += 1
            return replace(call, charged=True)

        return count

    def _check_loops(self, call: Call) -> None:
        """Check the turns of a model for loops: single calls do not form turns.

        The window holds one entry for each call and turn; a turn begins with place 1.
        """
        loops = self._profile_of(call.session).session.loops
        if loops is NO_LOOPS or call.target.source == JOBS:  # repeated queries of a job are a way of waiting for it
            return
        if loops.burst is not None and call.turn.place > loops.burst:
            raise ToolFailure(
                "budget_exceeded",
                f"one turn may make {loops.burst} calls, this was number {call.turn.place}; it did not run",
                hint="read the results of the others first, then make the calls that are still needed",
            )
        history = call.session.state_of(TurnHistory)
        if call.turn.place == 1:
            history.turn.clear()
        made = hashlib.blake2b(canonical([call.target.name, call.arguments]), digest_size=16).digest()
        if made in history.turn:  # twice in one turn is not a loop: the model has seen no result between
            return
        circle = loops.found(history.turns, made)
        if circle:
            raise ToolFailure(
                "budget_exceeded",
                f"{call.name} did not run: {circle}",
                hint="its results are above; try another tool or other arguments, or ask the user",
            )
        history.turn.add(made)
        history.turns.append(made)
        while len(history.turns) >= loops.window:
            history.turns.popleft()


class Decide:
    """Attach the decision to the call."""

    def __init__(
        self,
        policy: Policy,
        is_unreviewed: Callable[[Tool], bool],
        catalog_of: Callable[[SessionState], Catalog],
        tools_of: Callable[[SessionState], Iterable[Tool]],
    ) -> None:
        """`policy` holds the rules and the modes; an unreviewed tool runs only while the guard is off.

        `catalog_of` returns the present catalog of a session: a tool that changed since it was found does not run.
        `tools_of` returns what a list of its tools would have now.
        """
        self._policy = policy
        self._is_unreviewed = is_unreviewed
        self._catalog_of = catalog_of
        self._tools_of = tools_of

    def __call__(self, call: Call) -> Call | Awaitable[Call]:
        """Return the call with its decision; raises `ToolFailure` when it is a deny."""
        return self._read(call) if self._policy.reads_files(call) else self._decide(call)

    async def _read(self, call: Call) -> Call:
        return self._decide(call, await self._policy.read(call))

    def _decide(self, call: Call, read: CallArguments | None = None) -> Call:
        # A step behind `resolve` may have waited: what the model was shown and what would run must be one definition.
        if not call.options.version and not _is_current(call.target, self._catalog_of(call.session)):
            raise definition_changed(call.target.name)
        if self._policy.is_strict() and self._is_unreviewed(call.target):  # the guard was switched on meanwhile
            source = call.target.source
            raise ToolFailure(
                "quarantined",
                f"{call.name} is withheld: its definition has not been reviewed, and the guard is on",
                hint=f"The user can read and accept it with `toolcrib accept {source}`",
            )
        if self._is_unlisted(call):
            call = call.evolve(is_unlisted=True)
        return _decided(call, self._policy.decide_call(call, read))

    def _is_unlisted(self, call: Call) -> bool:
        """Whether the client was not shown the tool; a job that is made again was decided on when it was accepted."""
        if not self._policy.rests_on_lists(call) or call.options.job_seconds is not None:
            return False
        if call.session.audience.listed is not None:
            return True
        place = (call.target.source, call.target.local_name)
        return not any((tool.source, tool.local_name) == place for tool in self._tools_of(call.session))

    def bind(self, subject: Subject) -> Before:
        """Return the step for one tool and one session.

        Where no rule, mode or check looks at the arguments, the first decision holds for every later call that nothing
        but the subject decides on.

        `settled` lives as long as the plan, so that a change of rules or mode drops it. `is_usual` is asked at each
        call for everything that is not a term of the plan: answers, taint, the guard, placeholders.
        """
        policy, tool = self._policy, subject.tool
        if tool is None or subject.catalog is None or not _is_current(tool, subject.catalog):
            return self
        settled: Decision | None = None

        def decide(call: Call) -> Call | Awaitable[Call]:
            nonlocal settled
            if not policy.is_usual(call) or (settled is None and policy.reads_files(call)):
                return self(call)
            if settled is not None:
                return _decided(call, settled)
            decision = policy.decide_call(call)
            if policy.is_settled(tool, call.session, decision):  # never for one that rests on arguments or files
                settled = decision
            return _decided(call, decision)

        return decide


def _is_current(tool: Tool, catalog: Catalog) -> bool:
    """Whether the catalog has the tool as it is; meta-tools stand in none."""
    return tool.source == SOURCE or catalog.tools.get(tool.name) == tool


def _decided(call: Call, decision: Decision) -> Call:
    """Return the call with the decision. Raises `ToolFailure` for a deny."""
    if decision.effect != "deny":
        return replace(call, decision=decision)
    failure = ToolFailure(
        "denied",
        f"{call.name} is denied by {decision.rule}",
        hint=NO_OTHER_WAY,
        details={"rule": decision.rule},
    )
    raise Refused(failure, replace(call, decision=decision))  # so that the record names who denied it


class ReplayOrDescribe:
    """End the walk for calls that need not run."""

    def __init__(
        self,
        receipts: Receipts,
        journal: Calls,
        sources: Callable[[str], Source | None],
        diff: Callable[[Call], Awaitable[str]],
    ) -> None:
        """`receipts` holds the idempotency keys, `journal` what earlier processes began, `sources` finds one by name.

        `diff` returns the file changes of a call, empty for one that edits none.
        """
        self._receipts = receipts
        self._journal = journal
        self._sources = sources
        self._diff = diff

    def __call__(self, call: Call) -> Call | Awaitable[Call | ToolResult]:
        """Return the call, holding its key if it has one, or the recorded outcome for the key.

        A key on a read has no effect: reads may run twice.

        The key is reserved before the approval: of two calls with one key, the second gets `CONFLICT` while the first
        is asked about. `Record` settles the receipt with the result, or gives the key back where nothing ran.
        """
        options = call.options
        if options.dry_run:
            return self._described(call)
        if options.is_again:
            if not is_repeatable(call.target, call.session.treat_as_write):
                return self._once(call)
            call = call.evolve(id=f"{call.id}.{secrets.token_hex(3)}", first=call.id)  # the record may have the first
        if call.reserved or not options.idempotency_key or call.target.annotations.read_only:
            return call
        return self._replayed(call)

    async def _once(self, call: Call) -> Call | ToolResult:
        """Return the call if no earlier process began it: the intent is on disk before anything runs.

        For a call that must not run twice, made again after a restart (`is_again`): that it has no intent, row or job
        proves that it never began.
        """
        outcome = await self._journal.began(call.id)
        if not outcome:
            if call.target.annotations.read_only:  # a write to this session, which has no intent
                outcome = OUTCOME_UNKNOWN
            else:
                call = call.evolve(is_again=False)
                taken = self(call)
                return taken if isinstance(taken, Call) else await taken
        was = "was running" if outcome == OUTCOME_UNKNOWN else f"had ended ({outcome})"
        raise ToolFailure(
            OUTCOME_UNKNOWN,
            f"{call.name} {was} when the local daemon ended, and its result is lost; it was not run again",
            hint=f"Check its effects before you call it again; `toolcrib log {call.id}` has what is known of it.",
            details={"call_id": call.id, "outcome": outcome},
        )

    async def _described(self, call: Call) -> ToolResult:
        return _described(call, self._sources(call.target.source), await self._diff(call))

    async def _replayed(self, call: Call) -> Call | ToolResult:
        session, tool = call.session, call.target
        request = hash_request(tool.digest, call.arguments)
        with anyio.CancelScope(shield=True):  # a key that was taken without a record would stay taken
            taken = await self._receipts.reserve(session.principal, call.options.idempotency_key, request, call.id)
            if isinstance(taken, Replay):
                return taken.result.with_meta(replayed=True)
            if isinstance(taken, Conflict):
                raise ToolFailure("conflict", taken.reason)
        return call.evolve(reserved=True)


def _described(call: Call, source: Source | None, diff: str) -> ToolResult:
    """Describe the effect of the call, and whether it would need an approval first."""
    tool, decision = call.target, call.decision
    effect: dict[str, Any] = {
        "dry_run": True,
        "tool": tool.name,
        "source": tool.source,
        "kind": tool.kind,
        "arguments": call.display_arguments,
        "decision": decision.effect if decision else "ask",
        "rule": decision.rule if decision else "",
    }
    describe: Callable[[Tool, Mapping[str, Any]], str | None] | None = getattr(source, "describe", None)
    if describe is not None and (described := describe(tool, call.arguments)):
        effect["request"] = described
    if diff:
        effect["diff"] = diff
    return ToolResult.of_json(effect)


class Approve:
    """The last step before the execution."""

    def __init__(
        self,
        approvals: Approvals,
        revise: Revise,
        check: Callable[[Call], Awaitable[str]],
        catalog_of: Callable[[SessionState], Catalog],
    ) -> None:
        """`approvals` asks the approver; `revise` validates and decides anew where the arguments were changed.

        `check` raises the failure of a call that fails after any answer, so that no person is asked about it, and
        returns `Call.implementation`. `catalog_of` returns the present catalog of a session: a tool that changed while
        a person was asked does not run.
        """
        self._approvals = approvals
        self._revise = revise
        self._check = check
        self._catalog_of = catalog_of

    def __call__(self, call: Call) -> Call | Awaitable[Call]:
        """Return the call with its grant; raises `ToolFailure` when it is not granted.

        An approval that was given before is used up even where a rule allows the call by now.

        Asking takes as long as the approver needs; the call's own time begins at the execution.
        """
        decision = call.decision
        if decision is not None and decision.effect == "allow" and not call.approval:
            return replace(call, grant=mint(call.id, call.target, call.arguments, decision.rule))
        return self._asked(call)

    async def _asked(self, call: Call) -> Call:
        """Ask, unless the source knows already that the call would fail after any answer, or the answer is there."""
        if not call.approval:
            call = call.evolve(implementation=await self._check(call))
        call = await self._approvals.ask(call, self._revise)
        if not call.options.version and not _is_current(call.target, self._catalog_of(call.session)):
            raise definition_changed(call.target.name)
        return call
