"""Usage of budgets by sessions and identities. One for a crib.

A call reserves its share before approval is requested, so that simultaneous calls cannot overdraw, and returns it when
it did not run: denied, refused, a dry run, a repeat that was answered from the record. A job keeps the share that it
took when it was accepted; a scheduled call takes one at each attempt.

Days are those of UTC. Several processes of one store see the usage of the others some seconds late; rates are those of
one process.

    CheckBudget   take(call)             reserves a call: session counter, day of the identity, buckets of the rates
    Record        settle(call, result)   gives it back if the call was never granted, else counts the result's tokens

Tokens are known only afterwards: a budget of tokens refuses the first call after the one that crossed it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from fnmatch import fnmatchcase
from typing import Final

import anyio
from msgspec import Struct, field

from ..core.budget import NO_BUDGETS, Bucket, Budget, Budgets
from ..core.call import Call
from ..core.result import ToolResult
from ..core.session import SessionState
from ..errors import ToolFailure
from ..policy.grant import covers
from ..store.budgets import BudgetRows

_DAY: Final = 86400
_REFRESH: Final = 2.0
"""Seconds after which the usage of other processes is read again."""
_MEDIA: Final = 1500
"""Tokens of an image (of a screen's size) or a sound, as the agent counts them (`toolcrib_agent.compaction`)."""
_ASK: Final = "answer with what you have, or ask the user for more"
_OTHER: Final = "try another tool or ask the user"


class _Used(Struct):
    """Usage of one identity on one day."""

    day: int
    calls: int = 0
    tokens: int = 0
    read_at: float = float("-inf")
    """On the clock of `time.monotonic`."""
    reading: anyio.Lock = field(default_factory=anyio.Lock)


class _Share(Struct, frozen=True):
    """One budget of a call, and its earlier usage.

    `buckets` holds the rate under `key`: in the session for its own budgets, in `BudgetUsage` for those of identities.
    """

    budget: Budget
    whose: str
    calls: int
    tokens: int
    buckets: dict[str, Bucket]
    key: str
    hint: str


class BudgetUsage:
    """Reservations on budgets.

    Used from the crib's event loop; check and reservation happen without a pause between.

    The methods that count do not await, so that two calls cannot both take the last place.
    """

    def __init__(
        self,
        budgets: Budgets = NO_BUDGETS,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives seconds since 1970, `monotonic` never goes backwards."""
        self._budgets = budgets
        self._rows: BudgetRows | None = None
        self._clock = clock
        self._monotonic = monotonic
        self.has_any = budgets != NO_BUDGETS
        """Whether anything is limited beside the calls of a session."""
        self._by_identity = budgets.identity != NO_BUDGETS.identity or bool(budgets.identities)
        self._by_session = budgets.session != NO_BUDGETS.session
        self._counts_tokens = any(
            budget.tokens is not None
            for budget in (budgets.session, budgets.identity, *budgets.identities.values(), *budgets.tools.values())
        )
        self._identities: dict[str, _Used] = {}
        self._rates: dict[str, Bucket] = {}

    def open(self, rows: BudgetRows) -> None:
        """Store the usage of identities in `rows` from now on."""
        self._rows = rows

    def take(self, call: Call) -> Call | Awaitable[Call]:
        """Return the call with its share taken. Raises `ToolFailure`: `budget_exceeded`, or `overloaded` by a rate.

        `Call.charged` makes it idempotent in one walk. What is made again by an approval that came late ended before,
        and got its share back.
        """
        if call.charged and not call.approval:
            return call
        return self._take_of_identity(call) if self._by_identity else self._take(call)

    async def _take_of_identity(self, call: Call) -> Call:
        await self._refresh(call.session.principal)
        return self._take(call)

    def _take(self, call: Call) -> Call:
        session, name = call.session, call.target.name
        shares = tuple(self._shares(session, name)) if self.has_any else ()
        self._check(shares, session, name)
        for share in shares:
            if share.budget.calls_per_minute is not None:
                share.buckets[share.key].take()
        session.usage.calls[name] += 1
        if self._by_identity:
            self._add(session.principal, 1, 0)
        return call.evolve(charged=True)

    def settle(self, call: Call, result: ToolResult) -> None:
        """Return the share of a call that did not run; count the tokens that the model saw of one that did.

        `Record` calls it with every outcome. A call without a grant, or with one that was not spent, did not run; any
        other counts, also if it failed.
        """
        has_run = call.grant is not None and not covers(call.grant, call.target, call.arguments, call.id)
        if not has_run and not call.charged:
            return
        session, name = call.session, call.target.name
        if not has_run:
            session.usage.calls[name] -= 1
            for share in self._shares(session, name):
                if share.key in share.buckets:
                    share.buckets[share.key].take(-1)
            if self._by_identity:
                self._add(session.principal, -1, 0)
        elif self._counts_tokens:
            tokens = _tokens(result)
            session.usage.tokens[name] += tokens
            if self._by_identity:
                self._add(session.principal, 0, tokens)

    def check(self, session: SessionState, name: str) -> None:
        """Raise `ToolFailure` when no further call of the tool `name` is left; reserves nothing."""
        self._check(tuple(self._shares(session, name)), session, name)

    def _check(self, shares: tuple[_Share, ...], session: SessionState, name: str) -> None:
        limits, spent = session.limits, session.usage.calls
        if limits.calls is not None and spent.total() >= limits.calls:
            raise ToolFailure("budget_exceeded", f"this session has used its {limits.calls} calls", hint=_ASK)
        ceiling = limits.calls_per_tool.get(name)
        if ceiling is not None and spent[name] >= ceiling:
            message = f"{name} was called {spent[name]} times, its budget in this session is {ceiling}"
            raise ToolFailure("budget_exceeded", message, hint=_OTHER)
        for share in shares:
            _check_amounts(share)
        for share in shares:
            self._check_rate(share)

    def _check_rate(self, share: _Share) -> None:
        rate, now = share.budget.calls_per_minute, self._monotonic()
        if rate is None:
            return
        bucket = share.buckets.setdefault(share.key, Bucket(rate, now))
        wait = round(bucket.wait(rate, now), 1)
        if wait:
            raise ToolFailure(
                "overloaded",
                f"{share.key or share.whose} may make {rate} calls a minute",
                hint=f"wait {wait:g} s, or go on with something else meanwhile",
                details={"retry_after": wait},
            )

    def _shares(self, session: SessionState, name: str) -> Iterator[_Share]:
        """Yield every budget that a call of `name` draws on."""
        budgets = self._budgets
        if self._by_session:
            calls, tokens = session.usage.calls.total(), session.usage.tokens.total()
            yield _Share(budgets.session, "this session", calls, tokens, session.usage.rates, "", _ASK)
        for pattern, budget in budgets.tools.items():
            if fnmatchcase(name, pattern):
                calls, tokens = _sum(session.usage.calls, pattern), _sum(session.usage.tokens, pattern)
                yield _Share(budget, pattern, calls, tokens, session.usage.rates, f"tool {pattern}", _OTHER)
        if self._by_identity:
            used = self._of(session.principal)
            budget, whose = budgets.identities.get(session.principal, budgets.identity), f"{session.principal} today"
            yield _Share(budget, whose, used.calls, used.tokens, self._rates, session.principal, _ASK)

    def _of(self, principal: str) -> _Used:
        day = int(self._clock() // _DAY)
        used = self._identities.get(principal)
        if used is None or used.day != day:
            used = self._identities[principal] = _Used(day)
        return used

    def _add(self, principal: str, calls: int, tokens: int) -> None:
        used = self._of(principal)
        used.calls += calls
        used.tokens += tokens
        if self._rows is not None:
            self._rows.add(principal, used.day, calls, tokens)

    async def _refresh(self, principal: str) -> None:
        """Refresh usage from the store periodically. While it cannot be read, calls with a budget are refused.

        Usage that was added here while the store was read is kept: only the difference between what the store has and
        what was known before the read is added.
        """
        used = self._of(principal)
        if self._rows is None or self._monotonic() - used.read_at < _REFRESH:
            return
        async with used.reading:
            #
            if self._monotonic() - used.read_at < _REFRESH:
                return
            before = used.calls, used.tokens
            calls, tokens = await self._rows.used(principal, used.day)
            used.calls += calls - before[0]
            used.tokens += tokens - before[1]
            used.read_at = self._monotonic()


def _check_amounts(share: _Share) -> None:
    budget = share.budget
    if budget.calls is not None and share.calls >= budget.calls:
        message = f"{share.whose}: the budget of {budget.calls} calls is used up"
        raise ToolFailure("budget_exceeded", message, hint=share.hint)
    if budget.tokens is not None and share.tokens >= budget.tokens:
        message = f"{share.whose}: the budget of {budget.tokens} tokens of results is used up"
        raise ToolFailure("budget_exceeded", message, hint=share.hint)


def _sum(counted: Counter[str], pattern: str) -> int:
    if "*" not in pattern and "?" not in pattern and "[" not in pattern:
        return counted[pattern]
    return sum(count for name, count in counted.items() if fnmatchcase(name, pattern))


def _tokens(result: ToolResult) -> int:
    """Estimated tokens that the model sees: the text, else the structure; and the images and sounds.

    Four bytes of UTF-8 count as a token, rounded up. Structured content is counted only if there is no text, because
    most results have the same content in both.
    """
    media = sum(_MEDIA for block in result.content if block.get("type") in ("image", "audio"))
    texts = [text for block in result.content if isinstance(text := block.get("text"), str)]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if not texts:
        size = len(result.json)
    return (size + 3) // 4 + media
