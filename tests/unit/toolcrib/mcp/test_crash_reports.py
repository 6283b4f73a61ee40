"""Of what a server wrote when it crashed, the line that says why is shown."""

from pathlib import Path

import pytest

from toolcrib.mcp.client.crash_reports import crash_reason

CRASHES = Path(__file__).with_name("crashes.txt").read_text("utf-8").split("=== ")[1:]
"""Outputs of real crashes: a name, the line that says why, the output."""


def test_the_line_that_says_why_is_found() -> None:
    cases = [crash.split("\n", 2) for crash in CRASHES]

    assert len(cases) > 25
    assert [(name, f">>> {crash_reason(output)}") for name, _, output in cases] == [
        (name, reason) for name, reason, _ in cases
    ]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("no key in ~/.shop\n", "no key in ~/.shop"),
        ("  first\n  second\n", "second"),
        ("Usage:\n", "Usage:"),
        ("Node.js v20.20.2\n", "Node.js v20.20.2"),
        ("npm error code E1\n", "npm error code E1"),
        ("goroutine 1 [running]:\n", "goroutine 1 [running]:"),
        ("\n \n", ""),
        ("", ""),
    ],
)
def test_without_a_report_it_is_the_last_line(output: str, line: str) -> None:
    assert crash_reason(output) == line


@pytest.mark.parametrize("piece", ["    at f (x.js:1:1)\n", "|", "npm error ", "Error: ", "  | ", "a:\n", "-", " +-"])
def test_a_report_without_end_is_read_in_no_time(piece: str) -> None:
    assert len(crash_reason(piece * 100_000)) <= 16 * 1024
