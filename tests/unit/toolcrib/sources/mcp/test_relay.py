"""What a server says unasked reaches the client of the call it belongs to, and nobody else."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from peers import scripted
from peers.journal import Journal
from peers.opened import open_source
from rig import PATIENCE
from toolcrib import Clarification, Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.server_requests import elicitation_from
from toolcrib.mcp.client.session import asked_for_input
from toolcrib.mcp.client.spec import McpLimits

pytestmark = pytest.mark.process


class Client:
    takes_requests = True

    def __init__(self, *capabilities: str, refuses: bool = False, waits: bool = False) -> None:
        self.capabilities: Mapping[str, Any] = {name: {} for name in capabilities}
        self.heard: list[tuple[str, Mapping[str, Any]]] = []
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self._refuses = refuses
        self._waits = waits

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.heard.append((method, params))

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((method, params))
        if self._waits:
            await anyio.sleep_forever()
        if self._refuses:
            raise ToolFailure("denied", "the person said no")
        return {"action": "accept", "content": {"name": "Ada"}}


async def test_progress_and_log_messages_arrive_before_the_result_with_the_callers_token(
    tmp_path: Path, journal: Journal
) -> None:
    client = Client()
    async with open_source(scripted(journal.path), tmp_path) as peer:
        assert (await peer.call("progress", peer=client)).text == "there"

    assert client.heard == [
        ("notifications/progress", {"progressToken": "mine", "progress": 1, "total": 2}),
        ("notifications/message", {"level": "info", "logger": "peer", "data": "half way"}),
    ]


async def test_a_question_carries_the_servers_name_and_its_answer_comes_back(tmp_path: Path, journal: Journal) -> None:
    client = Client("elicitation")
    async with open_source(scripted(journal.path), tmp_path) as peer:
        result = await peer.call("ask", peer=client, method="elicitation/create")

    assert client.asked == [("elicitation/create", {"message": "[peer] your name?"})]
    assert json.loads(result.text) == {"action": "accept", "content": {"name": "Ada"}}


@pytest.mark.parametrize(
    ("client", "relay", "method"),
    [
        (Client(), True, "elicitation/create"),
        (Client("elicitation"), False, "elicitation/create"),
        (Client("elicitation"), True, "sampling/createMessage"),
        (Client("elicitation"), True, "tools/call"),
        (None, True, "roots/list"),
    ],
)
async def test_a_request_that_may_not_pass_is_refused_at_once(
    tmp_path: Path, journal: Journal, client: Client | None, relay: bool, method: str
) -> None:
    spec = replace(scripted(journal.path), relay=relay)
    async with open_source(spec, tmp_path) as peer:
        with anyio.fail_after(PATIENCE):
            result = await peer.call("ask", peer=client, method=method)

    assert json.loads(result.text) == {"code": -32601, "message": f"{method} is not available here"}
    assert client is None or client.asked == []


async def test_only_so_many_requests_of_one_burst_pass(tmp_path: Path, journal: Journal) -> None:
    client = Client("elicitation", waits=True)
    async with open_source(scripted(journal.path), tmp_path) as peer:
        result = await peer.call("ask", peer=client, method="elicitation/create", times=20)

    assert (json.loads(result.text)["code"], len(client.asked)) == (-32601, McpLimits().relays)


async def test_a_clients_refusal_is_an_error_for_the_server(tmp_path: Path, journal: Journal) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        result = await peer.call("ask", peer=Client("sampling", refuses=True), method="sampling/createMessage")

    assert json.loads(result.text) == {"code": -32603, "message": "the person said no"}


async def test_when_calls_of_two_clients_are_in_flight_nobody_is_asked(tmp_path: Path, journal: Journal) -> None:
    one, other = Client("elicitation"), Client("elicitation")
    async with open_source(scripted(journal.path), tmp_path) as peer, anyio.create_task_group() as group:
        group.start_soon(peer.call, "hang", 20, other)
        await journal.until("hanging")
        with pytest.raises(ToolFailure) as raised:
            await peer.call("ask", peer=one, method="elicitation/create", fails=True)
        failure = raised.value
        assert (failure.code, failure.details["rpc_code"]) == ("tool_error", -32603)
        assert ("several clients" in failure.message, "no other client" in failure.hint) == (True, True)
        group.cancel_scope.cancel()

    assert (one.asked, other.asked) == ([], [])


async def test_elicitors_are_asked_for_calls_of_their_own_session_alone(journal: Journal) -> None:
    asked: list[tuple[str, str]] = []

    def elicitor(name: str) -> Callable[[Clarification], str]:
        def answer(question: Clarification) -> str:
            asked.append((name, question.question))
            return "yes"

        return answer

    spec = scripted(journal.path)
    server = {"command": spec.command, "args": [*spec.args], "env": {**spec.env}, "trusted": True}
    crib = Toolcrib(servers={"peer": server}, accept=True, mode="autonomous")
    async with crib, crib.session(elicitor=elicitor("one")) as one, crib.session(elicitor=elicitor("other")) as other:
        answered = await one.call("peer__ask", {"method": "elicitation/create"})
        async with anyio.create_task_group() as group:
            group.start_soon(other.call, "peer__hang")
            await journal.until("hanging")
            refused = json.loads((await one.call("peer__ask", {"method": "elicitation/create"})).text)
            assert refused["code"] == -32603
            group.cancel_scope.cancel()

    assert json.loads(answered.text) == {"action": "accept", "content": {}}
    assert asked == [("one", "[peer] your name?")]


async def test_a_tool_that_fails_because_its_client_cannot_be_asked_is_still_a_tool_of_the_server(
    tmp_path: Path, journal: Journal
) -> None:
    async with open_source(scripted(journal.path), tmp_path) as peer:
        with pytest.raises(ToolFailure) as raised:
            await peer.call("ask", peer=Client(), method="elicitation/create", fails=True)

    failure = raised.value
    assert (failure.code, failure.details["rpc_code"], failure.hint) == ("tool_error", -32601, "")
    assert "elicitation/create" in failure.message


def test_requests_of_every_kind_have_no_hidden_characters(journal: Journal) -> None:
    hidden = {"text": "Si\u202egn\U000e0061\x1b[2J", "requestedSchema": {"title": "a\u200bb"}}
    requests = {"q": {"method": "sampling/createMessage", "params": hidden}}
    asked = asked_for_input({"resultType": "input_required", "inputRequests": requests}, scripted(journal.path))

    assert asked is not None
    assert asked.input_required is not None
    shown = {"text": "Sign", "requestedSchema": {"title": "ab"}}
    assert asked.input_required["inputRequests"]["q"]["params"] == shown


def test_a_link_must_be_https_and_shows_where_it_leads() -> None:
    good = {"mode": "url", "url": "https://login.example/x", "message": "Sign in"}

    assert elicitation_from("srv", good)["message"] == "[srv → login.example] Sign in"
    assert elicitation_from("srv", {**good, "url": "https://Login.example:8443?a=ü"})["message"].startswith(
        "[srv → login.example]"
    )
    otherwise_read = (
        "https://evil.example\\@login.example/",
        "https://evil.example\\.login.example/",
        "https://\u0430pple.com",
    )
    otherwise_read += (
        "https://login.example@evil.example/",
        "https://login.example\t.evil.example",
        "https://\u202elogin.example",
    )
    for url in ("http://login.example", "javascript:alert(1)", "", *otherwise_read, "https://login\u212a.example"):
        with pytest.raises(ToolFailure):
            elicitation_from("srv", {**good, "url": url})
