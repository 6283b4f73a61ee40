"""Behind a client that asks its user itself: its prompt counts for tools that it was shown by their names."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from rig import PATIENCE
from toolcrib.catalog.registry import Registry
from toolcrib.config import Directories, bare
from toolcrib.core.call import Call, Options, Route
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.session import Audience, SessionState
from toolcrib.core.tool import Annotations, Tool
from toolcrib.crib import Toolcrib
from toolcrib.dispatch.steps.permission import Decide
from toolcrib.mcp.server.connection import Connection
from toolcrib.mcp.server.service import Service
from toolcrib.policy.decision import Policy
from toolcrib.policy.modes import MODES
from toolcrib.policy.rule_layers import RuleLayers
from toolcrib.policy.rules import RuleTexts, parse_rules
from toolcrib.policy.settings import ApprovalSettings
from toolcrib.server.backend import CribBackend
from toolcrib.testing import ScriptedSource
from unit.toolcrib.server.wire_client import META, initialize
from unit.toolcrib.server.wire_client import call as call_message

DROP = Tool(
    name="db__drop",
    source="db",
    local_name="drop",
    origin="mcp",
    annotations=Annotations(destructive=True),
    aliases=("erase",),
)
LOOK = replace(
    DROP, name="db__look", local_name="look", aliases=(), annotations=Annotations(read_only=True, destructive=False)
)


def call(tool: Tool, verb: str = "call", *, only: Any = None, is_client: bool = True) -> Call:
    session = SessionState(key="k", mode="autonomous", audience=Audience(is_client=is_client))
    return Call(
        id="c",
        name=tool.name,
        arguments={},
        session=session,
        tool=tool,
        route=Route(verb=verb),
        options=Options(only=only),
    )


def effect(made: Call, *, behind_client: bool = True, rules: RuleTexts | None = None) -> str:
    return Policy(RuleLayers(parse_rules(rules or {})), behind_client=behind_client).decide_call(made).effect


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(DROP), "ask"),
        (call(LOOK), "ask"),
        (call(LOOK, only="read"), "allow"),
        (call(DROP, verb=""), "allow"),
        (call(DROP, is_client=False), "allow"),
        (call(replace(LOOK, origin="python")), "allow"),
        (call(replace(DROP, approval="never")), "allow"),
    ],
    ids=["drop", "look", "look, read only", "by its name", "no client", "a local read", "asks never"],
)
def test_a_call_through_a_meta_tool_asks_where_the_clients_prompt_was_not_about_the_tool(
    made: Call, expected: str
) -> None:
    assert effect(made) == expected
    assert effect(made, behind_client=False) == "allow"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"allow": ["call_tool(name=db__*)"]}, "allow"),
        ({"allow": ["call_tool(name=other__*)"]}, "ask"),
        ({"allow": ["call_tool(name=db__*)"], "ask": ["call_tool(name=db__drop)"]}, "ask"),
        ({"deny": ["call_tool(name=db__drop)"]}, "deny"),
        ({"deny": ["call_tool(name=erase)"]}, "deny"),
        ({"allow": ["call_tool(name=erase)"]}, "ask"),
        ({"allow": ["db__drop"]}, "allow"),
        ({"allow": ["db__*"], "ask": ["call_tool(name=db__drop)"]}, "ask"),
        ({"allow": ["db__*"], "deny": ["call_tool(name=db__drop)"]}, "deny"),
        ({"deny": ["kind:read"]}, "ask"),
    ],
)
def test_rules_about_call_tool_and_about_the_tool_decide_before(rules: RuleTexts, expected: str) -> None:
    assert effect(call(DROP), rules=rules) == expected


@pytest.mark.parametrize(("job_seconds", "expected"), [(None, "ask"), (60.0, "allow")])
async def test_a_job_was_decided_on_by_the_list_that_its_client_had_when_it_was_accepted(
    job_seconds: float | None, expected: str
) -> None:
    registry = Registry()
    registry.put("db", [DROP])
    (drop,) = registry.catalog.tools.values()
    step = Decide(Policy(behind_client=True), lambda tool: False, lambda session: registry.catalog, lambda session: [])
    decided = step(replace(call(drop, verb=""), origin="mcp", options=Options(job_seconds=job_seconds)))

    assert isinstance(decided, Call)
    assert decided.decision is not None
    assert decided.decision.effect == expected


def test_a_mode_that_denies_is_not_softened() -> None:
    modes = {**MODES, "autonomous": replace(MODES["autonomous"], destructive="deny")}

    assert Policy(modes=modes, behind_client=True).decide_call(call(DROP)).effect == "deny"


Ask = Callable[..., Any]
LIST: Mapping[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ERAS = ("2025-11-25", "2026-07-28")


async def done(arguments: Mapping[str, Any], context: Context) -> ToolResult:
    return ToolResult.of_text("done")


class Gateway:
    """The server `db` behind an entry of a client, and clients that ask nobody here, so that what asks is held."""

    def __init__(self, service: Service, db: ScriptedSource) -> None:
        self._service = service
        self._db = db

    def shorten(self) -> None:
        """Let the server have tools for which its list is too long, so that it holds meta-tools in place of all."""
        self.add("report", "long " * 3_000)

    def add(self, name: str, description: str = "") -> None:
        """Let the server have a tool more, like `drop`."""
        self._db.set(name, done, replace(DROP, name=name, local_name=name, aliases=(), description=description))

    @asynccontextmanager
    async def client(self, era: str) -> AsyncGenerator[Ask]:
        """Connect a client; it returns the result of one request."""
        out, answers = anyio.create_memory_object_stream[bytes](100)
        async with Connection(self._service, out.send) as connection, out, answers:

            async def ask(message: Mapping[str, Any]) -> Any:
                params = {**message["params"], **({"_meta": META} if era == ERAS[1] else {})}
                await connection.feed(json.dumps({**message, "params": params}).encode())
                with anyio.fail_after(PATIENCE):
                    while "id" not in (answer := json.loads(await answers.receive())):
                        pass
                return answer["result"]

            if era == ERAS[0]:
                await ask(initialize(era))
            yield ask


Open = Callable[..., AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def gateway(tmp_path: Path) -> Open:
    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncGenerator[Gateway]:
        values = bare().with_values(
            directories=Directories.of({"HOME": str(tmp_path)}),
            approvals=ApprovalSettings(wait=True),
            approval_wait=0.0,
            **{"guard": False, **settings},
        )
        db = ScriptedSource("db", {"drop": done}, listed=[DROP])
        async with (
            Toolcrib(values, memory=True) as crib,
            Service(CribBackend(crib), profile="adaptive", mode="autonomous") as service,
        ):
            await crib.tools.mount_source(db)
            yield Gateway(service, db)

    return opened


async def outcome(ask: Ask, name: str = "db__drop", /, **arguments: Any) -> str:
    """Call a tool; return the code of its failure, or `ok`."""
    result = await ask(call_message(name, arguments))
    return result["_meta"]["io.toolcrib/error"]["code"] if result.get("isError") else "ok"


async def names(ask: Ask) -> list[str]:
    return [tool["name"] for tool in (await ask(LIST))["tools"]]


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_a_client_calls_by_its_name_without_having_been_listed_it_is_held(
    gateway: Open, era: str
) -> None:
    async with gateway() as one, one.client(era) as ask:
        one.shorten()
        assert "db__drop" not in await names(ask)
        outcomes = [await outcome(ask), await outcome(ask, "call_tool", name="db__drop")]

    assert outcomes == ["approval_pending"] * 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_of_any_list_of_the_session_runs_by_its_name_after_the_list_was_shortened(
    gateway: Open, era: str
) -> None:
    async with gateway() as one, one.client(era) as ask:
        long = await names(ask)
        one.shorten()
        short = await names(ask)
        assert ("db__drop" in long, "db__drop" in short) == (True, False)
        assert await outcome(ask) == "ok"


@pytest.mark.parametrize("era", ERAS)
async def test_a_session_that_asks_for_no_list_counts_what_it_would_be_listed(gateway: Open, era: str) -> None:
    async with gateway() as one:
        one.add("wipe")
        async with one.client(era) as ask:
            before = await outcome(ask)
        one.shorten()
        async with one.client(era) as ask:
            after = await outcome(ask)

    assert (before, after) == ("ok", "approval_pending")


async def test_a_tool_that_joins_the_list_counts_once_the_client_has_read_the_list_again(gateway: Open) -> None:
    async with gateway() as one, one.client(ERAS[0]) as ask:
        await names(ask)
        one.add("wipe")
        outcomes = [await outcome(ask, "db__wipe")]
        assert "db__wipe" in await names(ask)
        outcomes.append(await outcome(ask, "db__wipe"))

    assert outcomes == ["approval_pending", "ok"]


@pytest.mark.parametrize("rule", ["db__drop", "call_tool(name=db__*)"])
async def test_a_rule_that_allows_a_tool_lets_it_run_by_a_name_that_was_not_listed(gateway: Open, rule: str) -> None:
    async with gateway(rules={"allow": [rule]}) as one, one.client(ERAS[0]) as ask:
        one.shorten()
        await names(ask)
        assert await outcome(ask) == "ok"


async def test_where_the_guard_is_on_the_mode_decides_about_names_that_were_not_listed(gateway: Open) -> None:
    async with gateway(guard=True, mode="autonomous") as one, one.client(ERAS[0]) as ask:
        one.shorten()
        await names(ask)
        assert await outcome(ask) == "ok"
