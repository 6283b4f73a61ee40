"""What a conversation keeps: the same after a restart and in every process, and nobody else's."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE
from toolcrib.config import Directories, bare
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib.jobs.settings import Engine, JobLimits
from toolcrib.mcp.server.backend import SessionRequest
from toolcrib.plugin import tool
from toolcrib.server.backend import CribBackend
from toolcrib.store.conversations import SavedState
from toolcrib.testing import RecordingApprover, ScriptedSource

Replica = Callable[[], AbstractAsyncContextManager[Toolcrib]]


@tool(kind="write")
def save() -> str:
    """Save something."""
    return "saved"


@tool(kind="write")
def drop() -> str:
    """Drop something."""
    return "dropped"


@tool(kind="read", traits=["private"])
def diary() -> str:
    """Read the diary."""
    return "dear diary"


async def page(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("a page")


PAGE = Tool(
    name="page",
    local_name="page",
    source="web",
    origin="mcp",
    annotations=Annotations(read_only=True, destructive=False),
)


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    settings = bare().with_values(directories=Directories.of({"HOME": str(tmp_path)}), mode="autonomous")

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Toolcrib]:
        async with Toolcrib(settings) as crib:
            crib.add(save, drop, diary)
            await crib.tools.mount_source(ScriptedSource("web", {"page": page}, listed=[PAGE]))
            yield crib

    return opened


def talk(crib: Toolcrib, key: str = "k", **options: Any) -> Session:
    return crib.session(key=key, principal=options.pop("principal", "ada"), **options)


@contextmanager
def away(directories: Directories) -> Generator[None]:
    """Take the conversations away from a store that goes on taking the intents of calls."""
    with closing(sqlite3.connect(directories.data / "toolcrib.db")) as connection:
        connection.execute("ALTER TABLE conversations RENAME TO away")
        yield
        connection.execute("ALTER TABLE away RENAME TO conversations")


async def refusal(session: Session, name: str = "save") -> str:
    error = (await session.call(name)).error
    return error.code if error is not None else ""


async def test_taint_and_private_data_survive_a_restart(replica: Replica) -> None:
    async with replica() as crib:
        session = talk(crib)
        await session.call("diary")
        await session.call("web__page")
    async with replica() as crib:
        again = talk(crib)
        assert await refusal(again) == "denied"
        assert (again.state.taint.source, again.state.taint.private_read_by) == ("web__page", "diary")


async def test_taint_of_one_replica_holds_at_the_next_call_of_another(replica: Replica) -> None:
    async with replica() as one, replica() as other:
        here, there = talk(one), talk(other)
        assert (await refusal(here), await refusal(there)) == ("", "")
        await here.call("web__page")
        assert (await refusal(there), await refusal(here)) == ("denied", "denied")


@pytest.mark.parametrize("engine", ["process", "durable"])
async def test_a_job_taints_its_conversation_before_the_next_call_of_it(tmp_path: Path, engine: Engine) -> None:
    gate = anyio.Event()

    async def slow_page(arguments: Mapping[str, Any], context: Context) -> ToolResult:
        await gate.wait()
        return ToolResult.of_text("a page")

    directories = Directories.of({"HOME": str(tmp_path)})
    settings = bare().with_values(directories=directories, mode="autonomous", jobs=JobLimits(engine=engine))
    async with Toolcrib(settings) as crib:
        crib.add(save)
        await crib.tools.mount_source(ScriptedSource("web", {"page": slow_page}, listed=[PAGE]))
        started = await talk(crib).call("web__page", {}, background=True)
        gate.set()
        assert (await crib.jobs.result(started.meta["job"], "ada", PATIENCE)).error is None
    async with Toolcrib(settings) as crib:
        crib.add(save)
        assert [await refusal(talk(crib, key)) for key in ("k", "another")] == ["denied", ""]


async def test_another_conversation_and_another_principal_have_none_of_it(replica: Replica) -> None:
    async with replica() as one:
        await talk(one).call("web__page")
    async with replica() as other:
        sessions = [talk(other, "l"), talk(other, principal="bob"), other.session(), other.session()]
        assert [await refusal(session) for session in sessions] == [""] * 4


async def test_answers_hold_on_every_replica_and_after_a_restart(replica: Replica) -> None:
    always, never = RecordingApprover("always"), RecordingApprover("never")
    async with replica() as one, replica() as other:
        here, there = (talk(crib, mode="cautious") for crib in (one, other))
        here.state.approvals.approver = always
        await here.call("save")
        here.state.approvals.approver = never
        await here.call("drop")
        assert (await refusal(there), await refusal(there, "drop")) == ("", "denied")
    async with replica() as crib:
        again = talk(crib, mode="cautious")
        assert (await refusal(again), await refusal(again, "drop")) == ("", "denied")
    assert (len(always.questions), len(never.questions)) == (1, 1)


@pytest.mark.parametrize(("resumable", "asked"), [(True, 1), (False, 2)])
async def test_all_holds_at_the_next_daemon_for_the_session_of_one_connection_only(
    replica: Replica, resumable: bool, asked: int
) -> None:
    approver = RecordingApprover("all")
    for _ in range(2):
        async with replica() as crib:
            session = talk(crib, mode="cautious", approver=approver)
            session.state.is_alone = resumable
            await crib.calls.restore(session.state)
            assert (await refusal(session), await refusal(session, "drop")) == ("", "")

    assert len(approver.questions) == asked


async def test_an_answer_that_was_given_before_the_taint_holds_on_no_replica(replica: Replica) -> None:
    async with replica() as one, replica() as other:
        here, there = (talk(crib, mode="cautious", approver=RecordingApprover("always")) for crib in (one, other))
        await there.call("save")
        await here.call("web__page")
        there.state.approvals.approver = None
        assert await refusal(there) == "denied"
        assert there.state.approvals.remembered.keys() == here.state.approvals.remembered.keys()


async def test_a_session_that_is_closed_forgets_its_answers_and_keeps_its_taint(replica: Replica) -> None:
    async with replica() as crib, talk(crib, mode="cautious", approver=RecordingApprover("always")) as session:
        await session.call("web__page")
        await session.call("save")
    async with replica() as crib:
        again = talk(crib, mode="cautious")
        await again.call("diary")
        assert (again.state.taint.source, dict(again.state.approvals.remembered)) == ("web__page", {})


async def test_loaded_tools_are_there_again(replica: Replica) -> None:
    async with replica() as crib:
        await talk(crib, profile="introspection").call("get_tool_schemas", {"names": ["save"]})
    async with replica() as crib:
        again = talk(crib, profile="introspection")
        assert await refusal(again) == ""
        assert "save" in {shown.name for shown in again.tools}


async def test_what_an_interaction_loaded_ends_with_the_process(replica: Replica) -> None:
    async with replica() as crib:
        session = talk(crib, profile="tiered")
        session.state.history.loaded["save"] = None
        await session.call("diary")
    async with replica() as crib:
        again = talk(crib, profile="tiered")
        await again.call("diary")
        assert "save" not in again.state.history.loaded


async def test_a_session_without_a_key_stores_nothing(replica: Replica) -> None:
    async with replica() as crib:
        session = crib.session()
        await session.call("web__page")
        assert await crib.store.conversations.get(session.state.principal, session.state.key) is None


async def test_a_client_without_a_key_has_one_conversation_for_its_principal_until_it_rests(replica: Replica) -> None:
    def open_session(crib: Toolcrib) -> Any:
        named: dict[str, Any] = {
            "key": "adaptive/autonomous/",
            "principal": "ada",
            "profile": "adaptive",
            "mode": "autonomous",
        }
        wanted = SessionRequest(**named, instance="", is_stateless=True, is_shared=True)
        return CribBackend(crib).open_session(wanted).session

    async with replica() as one, replica() as other:
        await open_session(one).call("web__page")
        session = open_session(other)
        await session.call("diary")
        assert session.state.taint.source == "web__page"
        rows, key = other.store.conversations, session.state.key
        rows.touch("ada", key, 1.0)
        await other.store.flush()
        await session.call("diary")
        assert (session.state.taint.source, session.state.taint.private_read_by) == ("", "diary")
        row = await rows.get("ada", key)
        assert row is not None
        assert row.state == SavedState(private="diary")


async def test_an_unreadable_store_leaves_the_session_as_it_was(replica: Replica) -> None:
    async with replica() as crib:
        session = talk(crib)
        await session.call("web__page")
        await crib.store.close()
        assert (await refusal(session), session.state.taint.source) == ("denied", "web__page")


async def test_while_a_conversation_cannot_be_read_its_side_effects_ask_and_reads_go_on(
    replica: Replica, tmp_path: Path
) -> None:
    async with replica() as one, replica() as other:
        await talk(one).call("web__page")
        there, clean = talk(other), talk(other, "clean")
        with away(Directories.of({"HOME": str(tmp_path)})):
            outcomes = [await refusal(session, name) for session in (there, clean) for name in ("save", "diary")]
            assert outcomes == ["denied", ""] * 2
        assert (await refusal(there), await refusal(clean)) == ("denied", "")
        assert (there.state.taint.source, clean.state.taint.source) == ("web__page", "")


async def test_the_log_has_an_outage_of_the_store_once_however_many_calls_it_meets(
    replica: Replica, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with replica() as crib:
        session = talk(crib)
        with away(Directories.of({"HOME": str(tmp_path)})):
            for _ in range(3):
                await session.call("web__page")
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    assert any("the store cannot be read" in line for line in warnings)
    assert len({*warnings}) == len(warnings)


ALLOW, DENY = "allow", "deny"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ({}, {"tainted": "a"}, {"private": "b"}, {"tainted": "a", "private": "b"}),
        ({}, {"tainted": "a"}, {"tainted": "b"}, {"tainted": "b"}),
        ({}, {"answers": {"x": ALLOW}}, {"answers": {"y": DENY}}, {"answers": {"x": ALLOW, "y": DENY}}),
        ({}, {"answers": {"x": ALLOW}}, {"tainted": "t"}, {"tainted": "t"}),
        ({}, {"tainted": "t"}, {"answers": {"x": ALLOW, "y": DENY}}, {"tainted": "t", "answers": {"y": DENY}}),
        ({"answers": {"x": ALLOW}}, {}, {"answers": {"x": ALLOW}}, {}),
        ({"answers": {"x": ALLOW}}, {"answers": {"x": ALLOW}}, {}, {}),
        ({"loaded": ("a",)}, {"loaded": ("a", "b")}, {"loaded": ("a", "c")}, {"loaded": ("a", "c", "b")}),
        ({"loaded": ("a",)}, {}, {"loaded": ("a", "c")}, {"loaded": ("c",)}),
    ],
)
def test_changes_of_two_processes_are_merged(base: Any, ours: Any, theirs: Any, merged: Any) -> None:
    assert SavedState(**ours).merge(SavedState(**base), SavedState(**theirs)) == SavedState(**merged)
