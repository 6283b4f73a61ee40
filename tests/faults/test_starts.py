"""One of two servers is broken from the start: the gateway is up at once and the other one is not disturbed."""

import pytest

from faults.harness import Harness, timed

NOISE_SECONDS = 2.0
COLD_SECONDS = 10.0
"""What the first list waits for a server that was never seen before."""
GOOD_TOOLS = 18
OWN_TOOLS = 1
"""The gateway's reader of long results."""


@pytest.mark.parametrize("case", ["hang_init", "hang_list", "exit_at_start", "endless_pages"])
def test_a_server_that_never_lists_delays_only_the_first_list(harness: Harness, case: str) -> None:
    account = harness.gw_faults(case)

    state, seconds = account["initialize"]
    assert (state, account["gateway_alive"]) == ("ok", True)
    assert seconds < 0.5 + NOISE_SECONDS
    assert account["tools_list"][1] < COLD_SECONDS + NOISE_SECONDS
    assert account["good_tools_listed"] == GOOD_TOOLS
    assert timed(account["call_good"]).ok
    assert timed(account["call_good"]).seconds < NOISE_SECONDS


@pytest.mark.parametrize("case", ["slow_init", "noise"])
def test_a_slow_or_noisy_server_is_served_when_it_is_there(harness: Harness, case: str) -> None:
    account = harness.gw_faults(case)

    assert account["initialize"][1] < 0.5 + NOISE_SECONDS
    assert timed(account["call_good"]).ok
    assert timed(account["call_evil"]).ok


def test_pages_without_an_end_stop_at_a_hundred(harness: Harness) -> None:
    assert harness.gw_faults("endless_pages")["pages_fetched"] <= 100


def test_ten_thousand_tools_are_cut_to_the_cap_and_stay_small_in_memory(harness: Harness) -> None:
    account = harness.gw_faults("biglist", settings={"builtins": False})

    listed, seconds = account["tools_list"]
    assert listed <= 2000 + GOOD_TOOLS + OWN_TOOLS
    assert account["good_tools_listed"] == GOOD_TOOLS
    assert seconds < 2 + 2 * NOISE_SECONDS
    assert account["rss(now,peak)"][1] <= 250
    assert timed(account["call_good"]).ok


def test_of_two_tools_with_one_name_none_is_offered(harness: Harness) -> None:
    account = harness.gw_faults("dupnames")

    assert account["echo_names"] == ["mcp_good_echo"]
    assert timed(account["call_good"]).ok


def test_hidden_characters_are_taken_out_of_names_and_descriptions(harness: Harness) -> None:
    account = harness.gw_faults("hidden")

    shown = [int(code, 16) for code in account["evil_echo_descr_codepoints"]]
    assert all(code < 0x2000 and (code >= 0x20 or code == 0x0A) for code in shown)
    assert account["odd_names"] == []
    assert timed(account["call_good"]).ok


def test_a_definition_that_changes_after_review_is_withheld(harness: Harness) -> None:
    account = harness.gw_faults("rugpull")

    assert account["before"] == ["Echo text"]
    assert timed(account["call_before"]).ok
    assert not any("IMPORTANT" in text for text in (*account["after"], *account["new_session_after"]))
    assert not timed(account["call_after"]).ok
