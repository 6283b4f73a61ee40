"""Whatever callers, deciders, crashes and clocks do, in any order: an approval moves along its arrows and runs once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from toolcrib.core.call import Call
from toolcrib.core.permission import Approval, Settlement
from toolcrib.core.result import ToolResult
from toolcrib.core.saved_call import SavedCall, SavedSession
from toolcrib.core.session import SessionState
from toolcrib.errors import ToolFailure
from toolcrib.store.store import Store

pytestmark = pytest.mark.long

ARROWS: Final = {
    "pending": {"pending", "approved", "denied", "expired", "cancelled"},
    "approved": {"approved", "used", "denied", "expired", "cancelled"},
    "used": {"used"},
    "denied": {"denied"},
    "expired": {"expired"},
    "cancelled": {"cancelled"},
}
"""An approved one is denied only when what it would run is found to be impossible."""
LIFE: Final = 600.0


class Approvals(RuleBasedStateMachine):
    """One store, many callers."""

    ids = Bundle("ids")
    used = Bundle("used")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.runner = asyncio.Runner()
        self.store = self.do(self._open())
        self.seen: dict[str, Approval] = {}
        self.answers = Counter[str]()
        self.runs = Counter[str]()
        self.said_yes: set[str] = set()

    async def _open(self) -> Store:
        return Store.open(None, clock=lambda: self.now)

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.do(self.store.close())
        self.runner.close()

    def attempt(self, work: Any) -> bool:
        """Do it and return whether it was let."""
        try:
            self.do(work)
        except ToolFailure as failure:
            assert failure.code in ("conflict", "denied"), failure
            return False
        return True

    @rule(target=ids)
    def ask(self) -> str:
        number = len(self.seen)
        asked = Approval(
            id=f"approval_{number}",
            call_id=f"call_{number}",
            principal="ada",
            session="k",
            tool="t",
            kind="write",
            source="s",
            definition="d",
            hash=f"h{number}",
            arguments="{}",
            rule="r",
            created=self.now,
            expires=self.now + LIFE,
        )
        session = SavedSession(key="k", principal="ada")
        saved = SavedCall(id=asked.call_id, name="t", arguments={}, session=session, definition="d")
        self.seen[asked.id] = self.do(self.store.approvals.put(asked, saved, limit=1000))
        return asked.id

    @rule(id=ids, yes=st.booleans(), edits=st.booleans())
    def decide(self, id: str, yes: bool, edits: bool) -> None:
        arguments = {"other": 1} if yes and edits else None
        said = Settlement(state="approved" if yes else "denied", verdict="yes" if yes else "no", arguments=arguments)
        if self.attempt(self.store.approvals.settle(id, said)):
            self.answers[id] += 1
            if yes:
                self.said_yes.add(id)

    @rule(target=used, id=ids)
    def use(self, id: str) -> tuple[str, str]:
        """Use it as its call, which may then run, or crash before it does."""
        call_id = self.do(self.store.approvals.get(id)).call_id
        return (id, call_id) if self.attempt(self.store.approvals.redeem(id, call_id, f"h{id[9:]}")) else ("", "")

    @rule(what=consumes(used))
    def run(self, what: tuple[str, str]) -> None:
        """Run what was used; the record refuses a second row of the same call, as the pipeline's door does."""
        id, call_id = what
        if not id or not self.attempt(self.store.approvals.redeem(id, call_id, f"h{id[9:]}")):
            return
        self.runs[id] += 1
        session = SessionState(key="k", principal="ada")
        call = Call(id=call_id, name="t", arguments={}, session=session)
        self.store.calls.note(call, ToolResult.of_text("done"))
        self.do(self.store.flush())

    @rule(id=ids, other=ids)
    def use_for_another_call(self, id: str, other: str) -> None:
        if id != other:
            assert not self.attempt(self.store.approvals.redeem(id, f"call_{other[9:]}", f"h{other[9:]}"))
            assert not self.attempt(self.store.approvals.redeem(id, f"call_{other[9:]}", f"h{id[9:]}"))

    @rule(id=ids, keep=st.booleans())
    def caller_leaves(self, id: str, keep: bool) -> None:
        self.do(self.store.approvals.leave(id, keep=keep))

    @rule(id=ids)
    def cannot_run(self, id: str) -> None:
        self.do(self.store.approvals.withdraw(id, "the arguments do not pass"))

    @rule(id=ids)
    def claim(self, id: str) -> None:
        claimed = self.do(self.store.approvals.claim(id))
        if claimed is not None:
            assert id in self.said_yes
            assert self.runs[id] == 0

    @rule(seconds=st.sampled_from([1.0, LIFE / 2, LIFE, 86_400.0, -1.0, -86_400.0]))
    def clock_jumps(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def every_one_moved_along_an_arrow_and_ran_at_most_once_after_a_yes(self) -> None:
        for id, before in self.seen.items():
            found = self.do(self.store.approvals.get(id))
            if found is None:  # kept for thirty days
                continue
            stayed_open = before.state == "expired" and found.state in ("pending", "approved")  # the clock jumped back
            assert found.state in ARROWS[before.state] or stayed_open, (before.state, found.state)
            self.seen[id] = found
            assert self.answers[id] <= 1
            assert self.runs[id] <= (1 if id in self.said_yes else 0)


TestApprovals = Approvals.TestCase
TestApprovals.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
