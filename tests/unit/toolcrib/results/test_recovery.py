"""What an error means for whoever goes on."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.result import ToolError
from toolcrib.errors import CODES
from toolcrib.results.error_advice import ADVICE, classify, error_type, is_failure, retry_after

TYPES = {"TIMEOUT", "AUTH_FAILURE", "VALIDATION_ERROR", "EXECUTION_ERROR", "NOT_FOUND"}


def error(code: str, **details: Any) -> ToolError:
    return ToolError(code=code, message="it did not work", details=details)


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_one_of_the_five_types_and_a_way_on(code: str) -> None:
    assert (error_type(error(code)) in TYPES, classify(error(code)) in ADVICE) == (True, True)


@pytest.mark.parametrize(
    ("status", "kind", "recovery"),
    [
        (400, "VALIDATION_ERROR", "CONTINUE"),
        (401, "AUTH_FAILURE", "ESCALATE"),
        (403, "AUTH_FAILURE", "ESCALATE"),
        (404, "NOT_FOUND", "BACKTRACK"),
        (408, "TIMEOUT", "CONTINUE"),
        (422, "VALIDATION_ERROR", "CONTINUE"),
        (429, "EXECUTION_ERROR", "CONTINUE"),
        (500, "EXECUTION_ERROR", "BACKTRACK"),
        (504, "TIMEOUT", "CONTINUE"),
    ],
)
def test_the_status_of_an_endpoint_says_what_kind_of_error_it_is(status: int, kind: str, recovery: str) -> None:
    failure = error("tool_error", status=status)
    assert (error_type(failure), classify(failure)) == (kind, recovery)


@pytest.mark.parametrize(
    ("word", "kind", "recovery"),
    [
        ("permission_denied", "AUTH_FAILURE", "ESCALATE"),
        ("dependency_missing", "EXECUTION_ERROR", "ESCALATE"),
        ("timeout", "TIMEOUT", "CONTINUE"),
        ("input_invalid", "VALIDATION_ERROR", "CONTINUE"),
        ("rate_limited", "EXECUTION_ERROR", "CONTINUE"),
        ("auth_expired", "AUTH_FAILURE", "ESCALATE"),
        ("transient", "EXECUTION_ERROR", "CONTINUE"),
        ("permanent", "EXECUTION_ERROR", "FAIL_GRACEFULLY"),
        ("NOT_FOUND", "NOT_FOUND", "BACKTRACK"),
        ("whatever", "EXECUTION_ERROR", "BACKTRACK"),
    ],
)
def test_a_tool_may_say_itself_what_kind_of_error_it_has(word: str, kind: str, recovery: str) -> None:
    failure = error("tool_error", error_type=word)
    assert (error_type(failure), classify(failure)) == (kind, recovery)


@pytest.mark.parametrize(
    ("code", "recovery"),
    [
        ("invalid_arguments", "CONTINUE"),
        ("timeout", "CONTINUE"),
        ("not_found", "BACKTRACK"),
        ("not_loaded", "BACKTRACK"),
        ("tool_error", "BACKTRACK"),
        ("denied", "FAIL_GRACEFULLY"),
        ("budget_exceeded", "FAIL_GRACEFULLY"),
        ("internal", "FAIL_GRACEFULLY"),
        ("outcome_unknown", "ESCALATE"),
        ("quarantined", "ESCALATE"),
    ],
)
def test_a_first_error_is_met_by_what_it_is(code: str, recovery: str) -> None:
    assert classify(error(code)) == recovery


@pytest.mark.parametrize("code", CODES)
def test_three_errors_of_one_type_in_a_row_escalate(code: str) -> None:
    assert classify(error(code), in_a_row=3) == "ESCALATE"


def test_a_tool_that_failed_three_times_is_not_tried_a_fourth_time() -> None:
    assert [classify(error("timeout"), failures=failures) for failures in (1, 2, 3)] == [
        "CONTINUE",
        "CONTINUE",
        "BACKTRACK",
    ]


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (error("tool_error", retry_after_seconds=7), 7),
        (error("tool_error", status=429, retry_after=12.5), 12.5),
        (error("tool_error", status=503, retry_after="60"), 60),
        (error("tool_error", status=429), 30),
        (error("tool_error", error_type="rate_limited"), 30),
        (error("overloaded"), 30),
        (error("tool_error", retry_after="Wed, 21 Oct 2026 07:28:00 GMT"), None),
        (error("tool_error", retry_after=True), None),
        (error("budget_exceeded"), None),
        (error("tool_error"), None),
    ],
)
def test_where_waiting_helps_the_error_says_how_long(failure: ToolError, seconds: float | None) -> None:
    assert retry_after(failure) == seconds


def test_refusals_and_cancellations_do_not_count_against_a_tool() -> None:
    assert {code for code in CODES if is_failure(error(code))} == {
        "internal",
        "invalid_arguments",
        "outcome_unknown",
        "overloaded",
        "storage",
        "timeout",
        "too_large",
        "tool_error",
        "unavailable",
    }
