"""A server that breaks in the middle of a call: the call ends once, the next works, the neighbour notices nothing."""

from typing import Any

import pytest

from faults.harness import Harness, timed

NOISE_SECONDS = 2.0
"""What a busy machine may add to a time that the goal gives."""

DEADLINE_SECONDS = 3.0
SHORT_DEADLINE = {"limits": {"timeout": DEADLINE_SECONDS}}
"""Calls get three seconds, so that waiting for a deadline takes three."""


def assert_all_went_on(account: dict[str, Any]) -> None:
    assert timed(account["next_same_server"]).ok, account
    assert timed(account["next_good_server"]).ok, account
    assert account["gateway_alive"]
    assert account["executions_of_tool"] == 1, "nothing that may have run is sent twice"


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("malformed", "after garbage"),
        ("bad_utf8", "after bad utf8"),
        ("dup_response", "one"),
        ("stderr_flood", "flooded"),
        ("unsolicited", "asked"),
    ],
)
def test_noise_around_a_right_answer_does_not_hide_it(harness: Harness, case: str, text: str) -> None:
    account = harness.gw_faults(case)

    assert timed(account["call"]).told == f"HTTP 200 ok: {text}"
    assert account["downstream_processes_started"] == 1
    assert_all_went_on(account)


def test_twenty_thousand_notifications_delay_only_their_own_call(harness: Harness) -> None:
    account = harness.gw_faults("notify_flood")

    assert timed(account["call"]).told == "HTTP 200 ok: flooded"
    assert timed(account["call"]).seconds < 10
    assert_all_went_on(account)


def test_a_server_that_exits_in_mid_call_gives_an_error_at_once_and_is_started_again(harness: Harness) -> None:
    account = harness.gw_faults("die")

    assert "isError" in timed(account["call"]).told
    assert timed(account["call"]).seconds < NOISE_SECONDS
    assert account["downstream_processes_started"] == 2
    assert_all_went_on(account)


@pytest.mark.parametrize("case", ["malformed_only", "wrong_id"])
def test_an_answer_that_never_comes_is_an_error_at_the_deadline(harness: Harness, case: str) -> None:
    account = harness.gw_faults(case, settings=SHORT_DEADLINE)

    call = timed(account["call"])
    assert "isError" in call.told
    assert call.seconds < DEADLINE_SECONDS + 0.5 + NOISE_SECONDS
    assert_all_went_on(account)


def test_a_line_without_an_end_closes_that_connection_with_an_error(harness: Harness) -> None:
    account = harness.gw_faults("never_newline")

    call = timed(account["call"])
    assert "isError" in call.told
    assert call.seconds < 1 + NOISE_SECONDS
    assert_all_went_on(account)


def test_a_hanging_call_ends_at_its_deadline_the_server_is_told_and_others_go_on(harness: Harness) -> None:
    account = harness.gw_faults("hang", "--hang-s", "8", settings=SHORT_DEADLINE)

    hung = timed(account["hung_call"])
    assert "isError" in hung.told
    assert DEADLINE_SECONDS - 0.5 < hung.seconds < DEADLINE_SECONDS + 0.5 + NOISE_SECONDS
    assert account["downstream_saw_cancel_after_client_left"]
    for other in ("same_server_meanwhile", "good_server_meanwhile"):
        assert timed(account[other]).ok
        assert timed(account[other]).seconds < NOISE_SECONDS


@pytest.mark.parametrize(("case", "seconds"), [("big10", 3), ("big100", 3)])
def test_a_large_result_goes_to_disk_and_memory_stays_flat(harness: Harness, case: str, seconds: float) -> None:
    account = harness.gw_faults(case)

    call = timed(account["call"])
    resident, _ = account["rss_before"]
    _, peak = account["rss_after(now,peak MiB)"]
    assert call.ok
    assert call.seconds < seconds + NOISE_SECONDS
    assert peak - resident <= 64
    assert_all_went_on(account)


def test_what_is_wrong_in_a_call_is_stopped_before_the_server_sees_it(harness: Harness) -> None:
    account = harness.gw_faults("validation")

    stopped = {
        name: account[name][1]
        for name in ("string for int", "out of range", "missing", "extra property", "bool for int")
    }
    assert stopped == dict.fromkeys(stopped, "stopped at gateway")
    assert account["float 1.0"][1] == "REACHED DOWNSTREAM", "1.0 is an integer in JSON Schema 2020-12"
    assert "isError" in timed(account["bad structured output"]).told
    assert "hunter2SECRET" not in timed(account["secret in error"]).told


def test_no_secret_reaches_a_server_or_the_log(harness: Harness) -> None:
    account = harness.gw_faults("secrets")

    assert account == {
        "gateway_env_secrets_visible_downstream": [],
        "arg_secret_in_log": False,
        "error_secret_in_log": False,
    }


def test_calls_share_one_process_a_server_and_run_side_by_side(harness: Harness) -> None:
    account = harness.gw_faults("concurrency")

    median, worst = account["echo_latency_s(median,max of 20)"]
    assert (account["ok"], account["downstream_processes_started"]) == (20, 1)
    assert account["20 concurrent sleep(0.5): wall_s"] < 1 + NOISE_SECONDS
    assert median <= 0.05
    assert worst <= 0.05 + NOISE_SECONDS
