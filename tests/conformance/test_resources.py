"""Resources, prompts and completion of real servers, through a crib: named, scoped, reviewed, recorded."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest

from peers import plain_server
from rig import PATIENCE, ROOT
from toolcrib import Session, Toolcrib
from toolcrib.core.json import loads
from toolcrib.core.server_features import WATCHED
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client import features
from toolcrib.mcp.server.dispatch import ResourceWatches
from toolcrib.plugin import LOCAL

SERVER: Mapping[str, Any] = {
    "command": sys.executable,
    "args": [str(ROOT / "tests" / "conformance" / "everything_server.py")],
}
TEXT = "This is the content of the static text resource."
TOOLS = ["list_resources", "read_resource", "list_prompts", "get_prompt"]


@asynccontextmanager
async def mounted(*names: str, accept: bool = True, trusted: bool = False) -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(untrusted={"trusted": names if trusted else ()}) as crib:
        await crib.mount({"mcpServers": dict.fromkeys(names, SERVER)}, accept=accept)
        await crib.tools.wait_ready(PATIENCE)
        yield crib


async def test_a_resource_is_read_with_its_source_and_leaves_an_audit_row() -> None:
    async with mounted("one") as crib:
        session = crib.session(profile="flat", mode="autonomous")

        result = await session.resources.read("test://static-text")

        assert result.content == (
            {"type": "resource", "resource": {"uri": "test://static-text", "mimeType": "text/plain", "text": TEXT}},
        )
        assert (result.meta["source"], result.meta["trust"]) == ("one", "untrusted")
        rows = await crib.store.calls.list()
        assert [(row.tool, row.outcome) for row in rows] == [("read_resource", "ok")]


async def test_what_a_server_says_that_nobody_vouches_for_taints_and_says_so() -> None:
    async with mounted("one") as crib:
        session = crib.session(profile="flat", mode="autonomous")

        result = await session.resources.get("one__test_simple_prompt", {})

        assert (result.meta["source"], result.meta["trust"]) == ("one", "untrusted")
        assert session.state.taint.source == "get_prompt"


async def test_models_have_tools_for_what_servers_offer_only_while_some_do() -> None:
    async with mounted("one") as crib:
        assert [tool.name for tool in crib.catalog.tools.values() if tool.source == "resources"] == TOOLS

        await crib.tools.unmount("one")

        assert [tool.name for tool in crib.catalog.tools.values() if tool.source == "resources"] == []


async def test_a_server_that_declares_resources_and_lists_none_brings_no_tool_that_lists_them() -> None:
    time = {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
    async with Toolcrib() as crib:
        await crib.mount({"mcpServers": {"time": time}})
        await crib.tools.wait_ready(PATIENCE)

        assert [tool.name for tool in crib.session().tools if tool.source == "resources"] == ["read_resource"]


async def test_two_servers_with_the_same_uris_and_prompts_are_told_apart() -> None:
    async with mounted("one", "two") as crib:
        session = crib.session(profile="flat", mode="autonomous")
        bare = await session.call("read_resource", {"resource": "test://static-text"})
        named = await session.resources.read("toolcrib://two/test://template/7/data")

        assert bare.error is not None
        assert bare.error.hint.startswith("Read toolcrib://one/test://static-text or toolcrib://two/")
        assert named.meta["source"] == "two"
        assert [block["resource"]["uri"] for block in named.content] == ["toolcrib://two/test://template/7/data"]
        assert loads(named.content[0]["resource"]["text"])["id"] == "7"


async def test_a_server_of_which_nothing_was_reviewed_offers_nothing_until_it_is_accepted() -> None:
    async with mounted("one", accept=False) as crib:
        session = crib.session(profile="flat", mode="autonomous")
        before = session.resources.features
        refused = await session.resources.read("test://static-text")

        await crib.tools.accept("one")

        assert (before.resources, before.prompts, refused.is_error) == ((), (), True)
        assert [entry["uri"] for entry in session.resources.features.resources][:1] == ["test://static-text"]


@pytest.mark.parametrize(
    ("allowed", "readable"),
    [
        (["one__test_simple_text"], False),
        (["read_resource"], False),
        (["read_resource", "one__test_simple_text"], True),
    ],
)
async def test_a_session_cut_down_to_some_tools_reads_only_what_their_servers_have(
    allowed: list[str], readable: bool
) -> None:
    async with mounted("one") as crib:
        session = crib.session(profile="flat", mode="autonomous", allowed_tools=allowed)

        result = await session.resources.read("test://static-text")

        assert (bool(session.resources.features.resources), not result.is_error) == (readable, readable)


async def test_resources_and_prompts_of_a_server_that_a_rule_denies_are_unknown() -> None:
    async with mounted("one") as crib:
        session = crib.session(profile="flat", mode="autonomous", rules={"deny": ["one__*"]})

        outcomes = [
            await session.resources.read("test://static-text"),
            await session.resources.get("one__test_simple_prompt", {}),
        ]

        assert [result.error and result.error.code for result in outcomes] == ["not_found", "not_found"]


async def test_prompts_keep_their_roles_and_arguments_are_completed() -> None:
    async with mounted("one") as crib:
        session = crib.session(profile="flat", mode="autonomous")

        prompt = await session.resources.get("one__test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        asked = {"argument": {"name": "arg1", "value": "par"}}
        completion = await session.resources.complete("ref/prompt", "one__test_prompt_with_arguments", asked)

        text = "Prompt with arguments: arg1='a', arg2='b'"
        (message,) = prompt.content
        assert (message["text"], message["_meta"]["io.toolcrib/role"]) == (text, "user")
        assert completion == {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}


async def test_a_prompt_that_comes_is_offered_and_told_of() -> None:
    async with mounted("one") as crib:
        session = crib.session(profile="flat", mode="autonomous")
        told = anyio.Event()

        def look(_: object) -> None:
            if any(entry["name"] == "one__test_passing_prompt" for entry in session.resources.features.prompts):
                told.set()

        crib.tools.on_change(look)

        await session.call("one__test_trigger_prompt_change", {})

        with anyio.fail_after(PATIENCE):
            await told.wait()


async def test_a_model_lists_resources_by_server() -> None:
    async with mounted("one") as crib:
        listed = await crib.session(profile="flat", mode="autonomous").call("list_resources", {"server": "one"})
        nobody = await crib.session(profile="flat", mode="autonomous").call("list_resources", {"server": "two"})

        assert listed.structured_content["resources"][0]["uri"] == "test://static-text"
        assert nobody.structured_content == {"resources": [], "templates": []}


def nothing() -> None:
    """Listen to nothing."""


async def test_one_principal_watches_half_of_what_is_watched_of_a_server() -> None:
    async with mounted("one") as crib:
        bob, ann, user = (
            crib.session(profile="flat", mode="autonomous", principal=who).resources for who in ("bob", "ann", LOCAL)
        )
        stops = [await bob.watch(f"test://template/{number}/data", nothing) for number in range(WATCHED // 2)]

        with pytest.raises(ToolFailure) as refused:
            await bob.watch("test://watched-resource", nothing)
        await bob.watch("test://template/0/data", nothing)
        await ann.watch("test://watched-resource", nothing)
        await stops[1]()
        await bob.watch("test://watched-resource", nothing)
        for number in range(WATCHED // 2):
            await user.watch(f"test://template/of-{number}/data", nothing)

    assert (refused.value.code, "500 resources of one" in refused.value.message) == ("overloaded", True)


@asynccontextmanager
async def plain_session(principal: str, role: str = "resource") -> AsyncGenerator[Session]:
    """A session in front of a server that is asked for each subscription."""
    async with Toolcrib() as crib:
        server = {"command": sys.executable, "args": [plain_server.__file__, role]}
        await crib.mount({"mcpServers": {"plain": server}}, accept=True)
        await crib.tools.wait_ready(PATIENCE)
        session = crib.session(profile="flat", mode="autonomous", principal=principal)
        assert (await session.resources.read("plain://one")).error is None  # it is connected
        yield session


async def test_a_client_that_leaves_while_it_subscribes_leaves_no_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "WATCHED", 10)
    async with plain_session(LOCAL) as session:
        for number in range(10):
            left = anyio.CancelScope()
            left.cancel()
            with left:
                stop = await session.resources.watch(f"plain://{number}", nothing)
                await stop()  # the answer was faster than the client's leave

        await session.resources.watch("plain://one", nothing)


async def test_a_subscription_that_is_sent_twice_at_a_time_is_one() -> None:
    async with plain_session("bob") as session:
        watches = ResourceWatches(cast("Any", session), nothing)
        for number in range(WATCHED // 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watches.add, f"plain://{number}")
                tasks.start_soon(watches.add, f"plain://{number}")
            await watches.remove(f"plain://{number}")

        await session.resources.watch("plain://one", nothing)


async def test_a_server_without_subscriptions_says_so() -> None:
    async with plain_session("bob", "resource-unwatched") as session:
        with pytest.raises(ToolFailure) as refused:
            await session.resources.watch("plain://one", nothing)

    assert refused.value.code == "unavailable"


async def test_a_server_s_refusal_reaches_its_client_without_the_secrets_in_it() -> None:
    async with plain_session("bob") as session:
        with pytest.raises(ToolFailure) as watched:
            await session.resources.watch(plain_server.REFUSED, nothing)
        with pytest.raises(ToolFailure) as completed:
            await session.resources.complete("ref/prompt", "plain__one", {"argument": {"name": "a", "value": "b"}})

    for failure in (watched.value, completed.value):
        assert (failure.code, "no method" in failure.message) == ("unavailable", True)
        assert (plain_server.SECRET in failure.message, failure.message.isprintable()) == (False, True)
