"""Eight clients that nobody here wrote: each finds tools and runs them, is denied, approved, and outlives what hangs.

Each client runs over one transport, and with `--full-size` (`make clients-full`) over both. What is found is compared
with `works_with.json`, of which the table of docs/clients/index.md is made; `--record` writes both.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator

import pytest

from clients.record import Client, Record, load, save
from clients.runs import CLIENTS, Runs, all_runs
from clients.script import ATTENDED, CASES, UNATTENDED, Said, ran
from clients.world import CONNECTED, TRANSPORTS

USER = "the client's user"
"""Who is said to have approved what a client's own prompt was about."""
FIRST = {name: "stdio" if name in CONNECTED or name == "claude" else "http" for name in CLIENTS}
"""The transport of each client without `--full-size`: stdio where `toolcrib connect` writes its configuration."""
ONE_TRANSPORT_EACH = pytest.mark.parametrize(
    ("name", "transport"),
    [
        pytest.param(name, transport, marks=[] if transport == FIRST[name] else pytest.mark.full_size)
        for name in CLIENTS
        for transport in TRANSPORTS
    ],
)
NEVER_ASKED = "its user is not asked, and the call waits for an answer elsewhere"


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Runs]:
    """Begin the runs of all clients that some test of this run is about."""
    callspecs = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    wanted = [(spec.params["name"], spec.params["transport"]) for spec in callspecs if spec is not None]
    with all_runs(tmp_path_factory.mktemp("works-with"), wanted) as begun:
        yield begun


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Generator[dict[tuple[str, str, str], str]]:
    """Gather the cells (client, transport, case) of this run, and write them down when that is wanted."""
    cells: dict[tuple[str, str, str], str] = {}
    yield cells
    if request.config.getoption("--record", default=False):
        assert request.config.getoption("--full-size"), "--record needs --full-size: the table has both transports"
        save(_record(cells))


def _record(cells: dict[tuple[str, str, str], str]) -> Record:
    cases = (*CASES, ATTENDED, UNATTENDED)
    clients = [
        Client(
            title=client.title,
            version=client.version(),
            tool=f"{client.prefix}call_tool",
            cells={case: {where: cells[name, where, case] for where in TRANSPORTS} for case in cases},
        )
        for name, client in CLIENTS.items()
    ]
    return Record(date=datetime.datetime.now(datetime.UTC).date().isoformat(), clients=tuple(clients))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES)
@ONE_TRANSPORT_EACH
def test_the_client_can(
    name: str, transport: str, case: str, runs: Runs, found: dict[tuple[str, str, str], str]
) -> None:
    said = runs.said(name, transport, "tour")

    assert CASES[case](said), f"{dict(said.told)}\n{said.names}\n{said.output[-4000:]}"
    assert "tour" not in ran(runs.worlds[transport].home)  # what was denied
    found[name, transport, case] = ""


@pytest.mark.timeout(900)
@ONE_TRANSPORT_EACH
def test_what_is_asked_about_is_approved_at_the_client_or_elsewhere(
    request: pytest.FixtureRequest,
    name: str,
    transport: str,
    runs: Runs,
    found: dict[tuple[str, str, str], str],
) -> None:
    alone = _outcome(runs, name, transport, UNATTENDED)
    asked = _outcome(runs, name, transport, ATTENDED) if CLIENTS[name].asks else NEVER_ASKED
    found[name, transport, UNATTENDED], found[name, transport, ATTENDED] = alone, asked

    assert "" in (alone, asked), f"alone: {alone}\nasked: {asked}"
    if not request.config.getoption("--record", default=False):
        [known] = [client.cells for client in load().clients if client.title == CLIENTS[name].title]
        recorded = {case: known[case][transport] for case in (UNATTENDED, ATTENDED)}
        assert {UNATTENDED: alone, ATTENDED: asked} == recorded


def _outcome(runs: Runs, name: str, transport: str, part: str) -> str:
    """Return nothing when the call ran and its result was told, else what was told instead.

    What ran, ran once; whoever should have approved it did.
    """
    said, there, path = runs.said(name, transport, part), runs.worlds[transport], f"{part} {name}"
    told = said.told.get("approved", "")
    if "tool_output" not in told or path not in told:
        return _instead(said)
    assert ran(there.home).count(path) == 1
    by = there.watcher.approver(path)
    assert (by == USER) == (part == ATTENDED), by
    return ""


def _instead(said: Said) -> str:
    """Return the line that tells the model, or else the user, why nothing ran."""
    told = said.told.get("approved", "").splitlines()
    lines = [*told, *said.output.splitlines()]
    why = next((line for line in lines if line.startswith("denied:") or "Error:" in line), "nothing is said")
    return f"with nobody there: `{why[why.find('Error:') if 'Error:' in why else 0 :].strip()}`"
