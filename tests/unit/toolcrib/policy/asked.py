"""Calls that must be asked about, and what asks about them: a store in memory and the real policy."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib.core.call import Call
from toolcrib.core.permission import Answer, Approval, Approver, Decision, Grant
from toolcrib.core.session import Audience, SessionApprovals, SessionFiles, SessionState
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolFailure
from toolcrib.policy.approval import Approvals
from toolcrib.policy.approval_options import ApprovalOptions
from toolcrib.policy.decision import Policy
from toolcrib.policy.open_question import settlement_of
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.results.redaction.redactor import Redactor
from toolcrib.store.store import Store

TOOL = Tool(name="fs__write", source="fs", local_name="write")
ASKED = Decision(effect="ask", rule="mode cautious: a destructive tool is asked for")
WAIT = ApprovalSettings(wait=True)


def session(
    approver: Approver | None = None,
    *,
    is_client: bool = False,
    principal: str = "local",
    key: str = "k",
    cwd: Path = Path(),
) -> SessionState:
    approvals, audience = SessionApprovals(approver=approver), Audience(is_client=is_client)
    files = SessionFiles(cwd=cwd)
    return SessionState(key=key, principal=principal, approvals=approvals, audience=audience, files=files)


def call(state: SessionState, number: int = 1, arguments: dict[str, Any] | None = None) -> Call:
    given = {"path": "a"} if arguments is None else arguments
    return Call(id=f"call-{number}", name=TOOL.name, arguments=given, session=state, tool=TOOL, decision=ASKED)


async def unchanged(asked: Call) -> Call:
    return asked


class Asking:
    """Asks with a store in memory, the way a crib does."""

    def __init__(self, store: Store, options: ApprovalOptions) -> None:
        self.store = store
        self.notices = options.notices
        self._approvals = Approvals(Policy(), store.approvals, options)

    async def call(self, asked: Call) -> Call:
        return await self._approvals.ask(asked, unchanged)

    async def grant(self, asked: Call) -> Grant:
        granted = (await self.call(asked)).grant
        assert granted is not None
        return granted

    async def refusal(self, asked: Call) -> ToolFailure:
        with pytest.raises(ToolFailure) as failure:
            await self.call(asked)
        return failure.value

    async def rows(self) -> list[Approval]:
        return await self.store.approvals.list()

    async def states(self) -> list[str]:
        return [row.state for row in await self.rows()]

    async def pending(self) -> Approval:
        """Return the question that is open, as soon as there is one."""
        asked = anyio.Event()
        stop = self.notices.watch(lambda approval: asked.set())
        try:
            while not (rows := await self.store.approvals.list(states=("pending",))):
                await asked.wait()
            return rows[0]
        finally:
            stop()

    async def answer(self, answer: Answer) -> None:
        """Answer the open question through the store, as another process does."""
        await self.store.approvals.settle((await self.pending()).id, settlement_of(answer, Redactor().value))


@asynccontextmanager
async def asking(**options: Any) -> AsyncGenerator[Asking]:
    async with Store.open(None) as store:
        yield Asking(store, ApprovalOptions(**options))
