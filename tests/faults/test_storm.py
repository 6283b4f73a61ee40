"""Servers killed at random under load: every call ends once, and nothing that may have run is sent twice."""

import re
from typing import Any

from faults.harness import Harness

SMALL = ("--servers", "4", "--calls", "200", "--clients", "8", "--kill-every", "0.1")
FULL = ("--servers", "8", "--calls", "4000", "--clients", "16", "--kill-every", "0.1")


SERVER = re.compile(r"\bs\d")
"""A server of the storm, or a tool of it: every failure says whose it is. (`flat` tells no codes.)"""


def assert_every_call_ended_once(storm: dict[str, Any]) -> None:
    assert (storm["LOST_ACK"], storm["DUPLICATED"], storm["HUNG"]) == (0, 0, 0)
    assert storm["servers_recovered"] == f"{storm['servers']}/{storm['servers']}"
    assert storm["gateway_alive"]
    told = [message for message, _ in storm["error_messages"]]
    assert [message for message in told if not SERVER.search(message) or "inside Toolcrib" in message] == []


def test_every_call_ends_once_while_servers_are_killed(harness: Harness) -> None:
    storm = harness.kill_storm(*(FULL if harness.full_size else SMALL))

    assert_every_call_ended_once(storm)
    assert storm["kills"] >= 5
    assert storm["exact_ok"] > 0


def test_many_clients_at_once_lose_nothing(harness: Harness) -> None:
    clients = "1000" if harness.full_size else "96"
    storm = harness.kill_storm("--servers", "2", "--calls", "600", "--clients", clients, "--kill-every", "999")

    assert_every_call_ended_once(storm)
    assert storm["exact_ok"] + storm["clean_failure"] == 600
