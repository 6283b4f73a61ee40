"""FastMCP's proxy in front of the same servers, for the table: nothing is asserted of it but that it ran."""

import pytest

from faults.harness import Harness

QUICK = ("die", "big10", "dupnames", "secrets", "validation")
LONGER = ("big100", "bad_utf8", "concurrency", "exit_at_start", "hang_init", "notify_flood", "rugpull", "wrong_id")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", QUICK + (LONGER if metafunc.config.getoption("--full-size") else ()))


def test_the_peer_ran_the_same_case(harness: Harness, case: str) -> None:
    assert harness.gw_faults_of_fastmcp(case, "--hang-s", "20")


def test_the_peer_met_the_same_storm(harness: Harness) -> None:
    calls, servers = ("300", "8") if harness.full_size else ("24", "2")
    storm = harness.kill_storm_of_fastmcp("--servers", servers, "--calls", calls, "--clients", "4")

    assert storm["calls"] == int(calls)
