"""A server of both eras asks the client of a call in the era of that client, and nobody else."""

import os
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from peers import script, scripted
from peers.journal import Journal
from peers.opened import Opened, open_source
from rig import ROOT, free_port, serving
from toolcrib import Clarification, Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.spec import ServerSpec

pytestmark = [pytest.mark.process, pytest.mark.slow]

EVERYTHING = script(str(ROOT / "tests" / "conformance" / "everything_server.py"), name="all")
"""A server of the MCP SDK that speaks both eras; its tool `test_elicitation` asks in the handshake era only."""


class Client:
    def __init__(self, name: str, *, takes_requests: bool = True, answers: bool = True) -> None:
        self.capabilities: Mapping[str, Any] = {"elicitation": {}} if answers else {}
        self.takes_requests = takes_requests
        self.asked = 0
        self._name = name

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        raise AssertionError(method)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked += 1
        return {"action": "accept", "content": {"username": self._name, "email": "x@example.org"}}


async def asked(opened: Opened, client: Client) -> str:
    try:
        return (await opened.call("test_elicitation", peer=client, message="Who are you?")).text
    except ToolFailure as failure:
        return failure.message


def programs() -> int:
    """Return how many children of this process run the server over stdio."""
    own = Path(f"/proc/{os.getpid()}/task")
    children = {child for task in own.glob("*/children") for child in task.read_text().split()}
    lines = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    return sum(line.rstrip(b"\0").endswith(b"everything_server.py") for line in lines)


@pytest.mark.long
async def test_a_program_that_could_not_ask_begins_in_the_era_of_its_clients_and_is_one_process(tmp_path: Path) -> None:
    ada, eve = Client("Ada"), Client("Eve", takes_requests=False)
    async with open_source(EVERYTHING, tmp_path, cache=True) as opened:
        await opened.call("test_simple_text", peer=ada)
        first = await asked(opened, ada)
        before = programs()
    async with open_source(EVERYTHING, tmp_path, cache=True) as opened:
        heard = [await asked(opened, one) for one in (ada, eve)]
        after = programs()

    assert ("elicitation/create" in first, before, after) == (True, 1, 1)
    assert ["Ada" in heard[0], "Eve" in heard[1]] == [True, True]


@pytest.mark.long
async def test_a_failure_of_another_kind_changes_no_era(tmp_path: Path) -> None:
    async with open_source(EVERYTHING, tmp_path, cache=True) as opened:
        await opened.call("test_error_handling", peer=Client("Ada"))
        await asked(opened, Client("Eve", takes_requests=False))
    async with open_source(EVERYTHING, tmp_path, cache=True) as opened:
        text = await asked(opened, Client("Ada"))

    assert "elicitation/create" in text


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerSpec]:
    port = free_port()
    command = [sys.executable, EVERYTHING.args[0], "--port", str(port)]
    with serving(command, port=port, log=tmp_path_factory.mktemp("remote") / "everything.log"):
        yield ServerSpec(name="all", transport="http", url=f"http://127.0.0.1:{port}/mcp")


async def test_a_remote_server_asks_each_client_in_its_own_era(tmp_path: Path, remote: ServerSpec) -> None:
    clients = [Client(f"Client{number}") for number in range(4)]
    heard: dict[int, str] = {}

    async def ask(number: int) -> None:
        heard[number] = await asked(opened, clients[number])

    async with open_source(remote, tmp_path) as opened, anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(ask, number)

    assert [f"Client{number}" in heard[number] for number in range(4)] == [True] * 4
    assert [client.asked for client in clients] == [1] * 4


async def test_a_tool_that_ends_its_call_with_questions_stays_with_the_first_connection(
    tmp_path: Path, remote: ServerSpec
) -> None:
    ada, eve = Client("Ada"), Client("Eve", takes_requests=False)
    async with open_source(remote, tmp_path) as opened:
        modern = await opened.call("test_questions_at_the_end", peer=eve)
        known = await opened.call("test_questions_at_the_end", peer=ada)
    async with open_source(remote, tmp_path) as opened:
        unknown = await opened.call("test_questions_at_the_end", peer=ada)

    assert [one.input_required is not None for one in (modern, known, unknown)] == [True] * 3


@pytest.mark.parametrize(
    ("tool", "arguments", "questions"),
    [
        ("test_elicitation", {"message": "Who?"}, ["[all] Who?", "User's email address (2 of 2)"]),
        ("test_input_required_result_elicitation", {}, ["[all] What is your name?"]),
    ],
)
async def test_the_elicitor_of_a_session_answers_where_no_client_calls(
    remote: ServerSpec, tool: str, arguments: Mapping[str, str], questions: list[str]
) -> None:
    asked: list[str] = []

    def answer(question: Clarification) -> str:
        asked.append(question.question.partition("\n")[0])
        return "Ada"

    crib = Toolcrib(servers={"all": remote.url}, accept=True, mode="autonomous")
    async with crib, crib.session(elicitor=answer) as session:
        result = await session.call(f"all__{tool}", arguments)

    assert ("Ada" in result.text, result.input_required, asked) == (True, None, questions)


async def test_servers_that_may_not_ask_have_one_connection(tmp_path: Path, remote: ServerSpec) -> None:
    async with open_source(replace(remote, relay=False), tmp_path) as opened:
        ada = Client("Ada")
        text = await asked(opened, ada)

    assert ("elicitation/create" in text, ada.asked) == (True, 0)


@pytest.mark.long
async def test_a_server_of_the_handshake_era_alone_has_one_connection(tmp_path: Path, journal: Journal) -> None:
    client = Client("Ada")
    async with open_source(scripted(journal.path), tmp_path) as opened:
        result = await opened.call("ask", peer=client, method="elicitation/create")

    assert ("Ada" in result.text, client.asked) == (True, 1)
