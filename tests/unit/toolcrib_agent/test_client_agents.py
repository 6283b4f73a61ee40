"""Sub-agents of MCP clients: offered where a model is configured, and never more than what a client is asked about."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolcrib import Session, Toolcrib
from toolcrib.crib.agents import mount_agent_tools
from toolcrib.testing.models import Hold, Reply, ScriptedModel, Step, calls
from toolcrib_agent.client_agents import open_client_agents
from toolcrib_agent.sub_agents.registry import registry_of
from unit.toolcrib_agent.workroom import World

TOOLS = {
    "cancel_subagent",
    "close_subagent",
    "list_active_subagents",
    "list_subagent_profiles",
    "send_to_subagent",
    "spawn_agent",
    "spawn_subagent",
    "validate_subagent_profile",
}
MODEL = {"model": "local:none@http://127.0.0.1:9/v1"}


@asynccontextmanager
async def served(*steps: Step, **settings: Any) -> AsyncGenerator[tuple[Session, World, ScriptedModel]]:
    """The session of a client of a crib that serves with a scripted model."""
    world, model = World(), ScriptedModel(*steps)
    async with Toolcrib(profile="flat", **settings) as crib:
        crib.add(world)
        for source in open_client_agents(crib.parts, None, model=model):
            await crib.tools.mount_source(source, prefix=False, trusted=True)
        crib.sessions.conditions_of_clients = frozenset({"spawning"})
        async with crib.session(key="client", for_client=True, mode="autonomous") as session:
            yield session, world, model


def names(session: Session) -> set[str]:
    return {shown.name for shown in session.tools if shown.category == "agents"}


@pytest.mark.parametrize(
    ("builtins", "chat", "offered"),
    [
        (("time", "agents"), MODEL, TOOLS),
        (("time", "spawn_agent"), MODEL, {"spawn_agent"}),
        (("time",), MODEL, set[str]()),
        (("time", "agents"), {}, set[str]()),
        (False, MODEL, set[str]()),
    ],
    ids=["category", "one", "others", "no model", "no built-in tools"],
)
async def test_clients_have_the_tools_where_a_model_is_configured_and_built_in_tools_are(
    builtins: Any, chat: Any, offered: set[str]
) -> None:
    async with Toolcrib(builtins=builtins, chat=chat, profile="flat") as crib:
        await mount_agent_tools(crib.parts)
        client, own = crib.session(for_client=True), crib.session()

        assert (names(client), names(own), crib.problems) == (offered, set(), ())


async def test_a_client_gets_what_its_sub_agent_answers_with_its_next_result() -> None:
    async with served("It is there.") as (session, _, _model):
        begun = json.loads((await session.call("spawn_subagent", {"task": "Look", "name": "looker"})).text)
        await registry_of(session).wait_idle()
        result = await session.call("look", {"at": "x"})
        again = await session.call("look", {"at": "x"})

        assert (begun["status"], result.content[0]["text"], again.text) == ("spawned", "x is there", "x is there")
        (told,) = [block["text"] for block in result.content[1:]]
        assert told.startswith(f"[Sub-agent {begun['subagent_id']} answers:]") and "It is there." in told


async def test_the_agent_that_a_client_waits_for_answers_in_its_result() -> None:
    async with served(calls("look", at="x"), "x is there.") as (session, _, model):
        assert (await session.call("spawn_agent", {"task": "Is x there?"})).text == "x is there."
        assert model.seen[1].results == ["x is there"]


async def test_writes_of_a_sub_agent_do_not_run_unasked_where_clients_approve_calls_themselves() -> None:
    async with served(calls("write", text="a"), "Not done.", guard=False) as (session, world, model):
        await session.call("spawn_agent", {"task": "Write"})

        assert (world.written, model.seen[1].results[0].split(":")[0]) == ([], "Tool call denied")


async def test_closing_the_clients_session_ends_its_sub_agents() -> None:
    hold = Hold()
    async with served(Reply(hold=hold, text="x")) as (session, _, _model):
        await session.call("spawn_subagent", {"task": "Work"})
        await hold.reached.wait()
        registry = registry_of(session)
    assert registry.describe()["count"] == 0
