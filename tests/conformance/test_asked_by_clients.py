"""Approvals end to end: a real MCP client of each era is asked, through `serve --http`, and what it answers happens."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types
import pytest
from mcp import Client

from contract.ways_in import TOOLCRIB, Home
from rig import PATIENCE
from rig.process import announced
from toolcrib.core.permission import Approval, Settlement
from toolcrib.store.store import Store

Mode = Literal["legacy", "2026-07-28"]
Reply = Callable[["Gateway", str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""Answers a question: gets its message and its form, returns the content of an accepted form, or None to decline."""

ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A served Toolcrib and the store behind it, as another process sees it."""

    home: Home
    url: str

    @property
    def ran(self) -> list[str]:
        """The paths that reached the tool behind the server, in order."""
        return [arguments["path"] for _, arguments in self.home.ledger]

    @asynccontextmanager
    async def store(self) -> AsyncGenerator[Store]:
        async with Store.open(self.home.folder / "DATA" / "toolcrib" / "toolcrib.db") as store:
            yield store

    async def approvals(self) -> list[Approval]:
        async with self.store() as store:
            return await store.approvals.list()

    async def until(self, state: str) -> None:
        """Wait until the newest approval is in that state."""
        with anyio.fail_after(PATIENCE):
            while not (found := await self.approvals()) or found[0].state != state:
                await anyio.sleep(0.05)

    async def settle(self, settlement: Settlement) -> None:
        """Answer the open question from here, as `toolcrib approvals` does."""
        async with self.store() as store:
            (asked,) = await store.approvals.list(states=("pending",))
            await store.approvals.settle(asked.id, settlement)

    async def call(self, mode: Mode, reply: Reply, path: str = "a") -> mcp_types.CallToolResult:
        """Call as a client of that era whose user answers like `reply`."""

        async def answer(context: Any, params: Any) -> mcp_types.ElicitResult:
            content = await reply(self, params.message, params.requested_schema)
            action = "decline" if content is None else "accept"
            return mcp_types.ElicitResult(action=action, content=content)

        async with Client(f"{self.url}/flat", mode=mode, elicitation_callback=answer) as client:
            return await client.call_tool("t__erase", {"path": path})


@asynccontextmanager
async def serving(folder: Path, **told: Any) -> AsyncGenerator[Gateway]:
    home = Home(folder=folder)
    config = Path(home.config)
    config.write_text(json.dumps(json.loads(config.read_text()) | told))
    command = [TOOLCRIB, "serve", "--config", str(config), "--http", "--port", "0"]
    async with await anyio.open_process(command, env=home.environ, cwd=folder) as process:
        try:
            yield Gateway(home=home, url=await announced(process))
        finally:
            process.terminate()


def saying(**content: Any) -> Reply:
    async def reply(gateway: Gateway, message: str, form: Mapping[str, Any]) -> dict[str, Any] | None:
        return content or None

    return reply


def told(result: mcp_types.CallToolResult) -> tuple[str, str]:
    """Return the code and the message of a refusal."""
    error = (result.meta or {})["io.toolcrib/error"]
    return error["code"], error["message"]


@ERAS
async def test_what_the_user_answers_is_what_happens(tmp_path: Path, mode: Mode) -> None:
    by = "the client's user"
    async with serving(tmp_path) as gateway:
        yes = await gateway.call(mode, saying(decision="yes"), "yes")
        no = await gateway.call(mode, saying(decision="no"), "no")
        declined = await gateway.call(mode, saying(), "declined")
        comment = await gateway.call(mode, saying(decision="comment", comment="use staging"), "comment")
        edit = await gateway.call(mode, saying(decision="edit", arguments='{"path": "edited"}'), "edit")
        denied = await gateway.call(mode, saying(decision="edit", arguments='{"path": "/etc/passwd"}'), "denied")
        broken = await gateway.call(mode, saying(decision="edit", arguments='{"path": 7}'), "broken")
        found = [(row.state, row.verdict, row.by) for row in await gateway.approvals()][::-1]

    assert (yes.is_error, edit.is_error) == (False, False)
    assert told(no) == told(declined) == ("denied", f"{by} refused t__erase")
    assert told(comment) == ("denied", f"{by} refused t__erase: use staging")
    for refused in (denied, broken):
        assert told(refused)[0] == "denied"
        assert f"{by} changed the arguments of t__erase, and it cannot run with them" in told(refused)[1]
    assert gateway.ran == ["yes", "edited"]
    no_answer: list[tuple[str, str, str]] = [("denied", "no", by)] * 2
    edits = [("used", "edit", by), ("denied", "edit", by), ("denied", "edit", by)]
    assert found == [("used", "yes", by), *no_answer, ("denied", "comment", by), *edits]


@ERAS
async def test_the_user_sees_the_real_tool_its_arguments_the_rule_and_the_call(tmp_path: Path, mode: Mode) -> None:
    messages = list[str]()

    async def reply(gateway: Gateway, message: str, form: Mapping[str, Any]) -> dict[str, Any] | None:
        messages.append(message)
        return {"decision": "no"}

    async with serving(tmp_path) as gateway:
        await gateway.call(mode, reply, "a\u202eb")
        (asked,) = await gateway.approvals()

    (message,) = messages
    assert message == (
        f"May t__erase (destructive) run with these arguments?\n{asked.arguments}\n"
        f"Asked because of: {asked.rule}\nCall {asked.call_id}, approval {asked.id}"
    )
    assert '"a\\u202eb"' in asked.arguments


@ERAS
async def test_silence_is_a_no_and_an_answer_that_comes_too_late_changes_nothing(tmp_path: Path, mode: Mode) -> None:
    async def late(gateway: Gateway, message: str, form: Mapping[str, Any]) -> dict[str, Any] | None:
        await gateway.until("expired")
        return {"decision": "yes"}

    async with serving(tmp_path, approvals={"timeout": 1}) as gateway:
        result = await gateway.call(mode, late)

    assert told(result)[0] == "denied" and "within 1 s" in told(result)[1]
    assert gateway.ran == []


@ERAS
@pytest.mark.parametrize("state", ["approved", "denied"])
async def test_an_answer_at_the_desk_is_first_and_the_clients_own_changes_nothing(
    tmp_path: Path, mode: Mode, state: Literal["approved", "denied"]
) -> None:
    async def second(gateway: Gateway, message: str, form: Mapping[str, Any]) -> dict[str, Any] | None:
        verdict = "yes" if state == "approved" else "no"
        await gateway.settle(Settlement(state=state, verdict=verdict, by="Ada"))
        await gateway.until("used" if state == "approved" else "denied")
        return {"decision": "no" if state == "approved" else "yes"}

    async with serving(tmp_path) as gateway:
        result = await gateway.call(mode, second)

    assert gateway.ran == (["a"] if state == "approved" else [])
    assert result.is_error == (state == "denied")
    if state == "denied":
        assert told(result) == ("denied", "Ada refused t__erase")


@ERAS
async def test_a_call_of_a_client_that_cannot_ask_runs_when_somebody_else_answers_in_time(
    tmp_path: Path, mode: Mode
) -> None:
    results = list[mcp_types.CallToolResult]()

    async def call(gateway: Gateway) -> None:
        async with Client(f"{gateway.url}/flat", mode=mode) as client:
            results.append(await client.call_tool("t__erase", {"path": "a"}))

    async with serving(tmp_path, approvals={}, approval_wait=25) as gateway, anyio.create_task_group() as group:
        group.start_soon(call, gateway)
        await gateway.until("pending")
        await gateway.settle(Settlement(state="approved", verdict="yes", by="Ada"))

    assert [result.is_error for result in results] == [False]
    assert gateway.ran == ["a"]


@ERAS
async def test_a_call_of_a_client_that_cannot_ask_is_held_and_runs_once_after_the_yes(
    tmp_path: Path, mode: Mode
) -> None:
    async with serving(tmp_path, approvals={}, approval_wait=0.2) as gateway:
        async with Client(f"{gateway.url}/flat", mode=mode) as client:
            before = [await client.call_tool("t__erase", {"path": "a"}) for _ in range(2)]
            await gateway.settle(Settlement(state="approved", verdict="yes", by="Ada"))
            after = [await client.call_tool("t__erase", {"path": "a"}) for _ in range(2)]
        approvals = await gateway.approvals()

    assert [told(result)[0] for result in (*before, after[1])] == ["approval_pending"] * 3
    assert (after[0].is_error, gateway.ran) == (False, ["a"])
    assert [(one.state, one.by) for one in approvals] == [("pending", ""), ("used", "Ada")]
