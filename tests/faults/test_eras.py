"""Clients of both protocol eras in front of servers of both eras."""

import re

from faults.harness import Harness


def test_every_client_sees_and_calls_every_server_whatever_their_eras(harness: Harness) -> None:
    lines = harness.era_bridge()
    for line in lines:
        harness.note("era_bridge", "toolcrib", 0.0, line)

    combinations = [re.findall(r"\['([a-z', ]+)'\] \| client ([0-9-]+)", line) for line in lines]
    calls = [re.findall(r"'mcp_([a-z]+)_echo': '(\w+)'", line) for line in lines]
    assert len(combinations) == 6
    assert sorted(len(found) for found in calls) == [1, 1, 1, 1, 2, 2], "8 of 8 tools listed"
    assert {state for found in calls for _, state in found} == {"ok"}
