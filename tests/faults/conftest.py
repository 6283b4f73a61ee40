"""The fault suite: our gateway in front of servers that die, hang, flood and lie (security.md, R1 to R16)."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.harness import Harness

_TABLE = pytest.StashKey[Harness]()
_CELL = 230


@pytest.fixture(scope="session")
def _found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, full_size: bool) -> Harness:
    found = Harness.find(tmp_path_factory.mktemp("faults"), full_size=full_size)
    request.config.stash[_TABLE] = found
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A place of one test's own, short enough for a socket."""
    return tmp_path


@pytest.fixture
def harness(_found: Harness, home: Path) -> Harness:
    """The harness with a gateway that has never run before."""
    return Harness(folder=_found.folder, home=home, full_size=_found.full_size, rows=_found.rows)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what every case found, ours and FastMCP's one below the other."""
    found = config.stash.get(_TABLE, None)
    if found is None or not found.rows:
        return
    terminalreporter.section("faults")
    for case, subject, seconds, told in sorted(found.rows):
        terminalreporter.write_line(f"{case:15} {subject:14} {seconds:>6} s  {told[:_CELL]}")
