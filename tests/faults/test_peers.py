"""FastMCP's proxy in front of the same servers, for the table: nothing is asserted of it but that it ran."""

import pytest

from faults.harness import Harness

pytestmark = pytest.mark.full_size
CASES = (
    *("big10", "big100", "bad_utf8", "concurrency", "die", "dupnames", "exit_at_start", "hang_init", "notify_flood"),
    *("rugpull", "secrets", "validation", "wrong_id"),
)


@pytest.mark.parametrize("case", CASES)
def test_the_peer_ran_the_same_case(harness: Harness, case: str) -> None:
    assert harness.gw_faults_of_fastmcp(case, "--hang-s", "20")


def test_the_peer_met_the_same_storm(harness: Harness) -> None:
    storm = harness.kill_storm_of_fastmcp("--servers", "8", "--calls", "300", "--clients", "4")

    assert storm["calls"] == 300
