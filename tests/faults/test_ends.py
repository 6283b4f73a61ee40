"""Calls that are taken back, and a gateway that is stopped or killed."""

import pytest

from faults.harness import Harness, timed


def test_a_cancelled_call_ends_at_once_and_the_server_is_told(harness: Harness) -> None:
    account = harness.gw_faults("cancel")

    assert account["downstream_saw_cancel"]
    assert account["downstream_saw_cancel_on_disconnect"]
    assert timed(account["next"]).ok


def test_a_closed_response_stream_cancels_the_call(harness: Harness) -> None:
    account = harness.gw_faults("cancel_modern")

    assert account["reached_downstream"]
    assert "cancelled" in account["after_disconnect"]
    assert account["s"] <= 0.5 + 1


@pytest.fixture(scope="module")
def _seen() -> dict[str, dict[str, float]]:
    return {}


@pytest.mark.parametrize("end", ["normal/SIGTERM", "normal/SIGKILL", "ignoreterm/SIGTERM", "ignoreterm/SIGKILL"])
def test_no_process_outlives_the_gateway(harness: Harness, _seen: dict[str, dict[str, float]], end: str) -> None:
    if not _seen:
        _seen.update(harness.gw_faults("orphans"))
    found = _seen[end]

    assert found["children_left_3s_later"] == 0
    assert found["children_live_before"] >= 2
    assert float(found["gateway_gone_s"]) <= 5
