"""Advice on errors: the type of an error in seed 004's terms, and the next step.

  CONTINUE          the same tool again: with right arguments, or after a while
  BACKTRACK         this way does not work: another tool, another approach
  FAIL_GRACEFULLY   no such tool will work: continue without it and report that
  ESCALATE          a person has to look at it

The seed's document names the four; the table is ours. Three errors of one type in a row escalate, of any type, and a
tool that failed three times in a row is to be avoided.

`Assess` puts the advice into the metadata (`recovery`); envelopes of profiles with such a field show it to the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from ..core.result import ToolError
from ..core.session import IN_A_ROW
from ..errors import CODES

Recovery = Literal["CONTINUE", "BACKTRACK", "FAIL_GRACEFULLY", "ESCALATE"]

ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CONTINUE": "",
        "BACKTRACK": "try another tool or another way",
        "FAIL_GRACEFULLY": "go on without it, and tell the user what could not be done",
        "ESCALATE": "stop here and ask the user: the last calls failed in the same way",
    }
)

_WAIT_SECONDS: Final = 30
"""Wait that a rate limit without a time advises (seed 004)."""

_TYPES_BY_STATUS: Final = MappingProxyType(
    {
        400: "VALIDATION_ERROR",
        401: "AUTH_FAILURE",
        403: "AUTH_FAILURE",
        404: "NOT_FOUND",
        408: "TIMEOUT",
        422: "VALIDATION_ERROR",
        504: "TIMEOUT",
    }
)
"""HTTP status of an endpoint behind a tool → type, for errors whose code is only `tool_error`."""

_TYPES: Final = ("TIMEOUT", "AUTH_FAILURE", "VALIDATION_ERROR", "EXECUTION_ERROR", "NOT_FOUND")

_TYPES_OF_TOOLS: Final[Mapping[str, tuple[str, Recovery]]] = MappingProxyType(
    {
        "permission_denied": ("AUTH_FAILURE", "ESCALATE"),
        "dependency_missing": ("EXECUTION_ERROR", "ESCALATE"),
        "timeout": ("TIMEOUT", "CONTINUE"),
        "input_invalid": ("VALIDATION_ERROR", "CONTINUE"),
        "rate_limited": ("EXECUTION_ERROR", "CONTINUE"),
        "auth_expired": ("AUTH_FAILURE", "ESCALATE"),
        "transient": ("EXECUTION_ERROR", "CONTINUE"),
        "permanent": ("EXECUTION_ERROR", "FAIL_GRACEFULLY"),
    }
)
"""Types of the original's later code, which its tools may put into their errors."""

_RECOVERY_BY_CODE: Final[Mapping[str, Recovery]] = MappingProxyType(
    {
        "invalid_arguments": "CONTINUE",
        "overloaded": "CONTINUE",
        "unavailable": "CONTINUE",
        "storage": "CONTINUE",
        "conflict": "CONTINUE",
        "timeout": "CONTINUE",
        "not_loaded": "BACKTRACK",
        "not_found": "BACKTRACK",
        "disabled": "BACKTRACK",
        "not_in_scope": "BACKTRACK",
        "tool_error": "BACKTRACK",
        "too_large": "BACKTRACK",
        "approval_pending": "ESCALATE",
        "denied": "FAIL_GRACEFULLY",
        "budget_exceeded": "FAIL_GRACEFULLY",
        "cancelled": "FAIL_GRACEFULLY",
        "internal": "FAIL_GRACEFULLY",
        "quarantined": "ESCALATE",
        "definition_changed": "ESCALATE",
        "outcome_unknown": "ESCALATE",
    }
)
_RECOVERY_BY_TYPE: Final[Mapping[str, Recovery]] = MappingProxyType(
    {"AUTH_FAILURE": "ESCALATE", "VALIDATION_ERROR": "CONTINUE", "TIMEOUT": "CONTINUE"}
)
"""Next step by type, for a tool's own error."""

_BLAMELESS_CODES: Final = frozenset(
    {"budget_exceeded", "cancelled", "definition_changed", "denied", "disabled", "not_found", "not_in_scope"}
    | {"not_loaded", "quarantined", "conflict", "approval_pending"}
)
"""Codes that do not reflect on the tool."""


def error_type(error: ToolError) -> str:
    """Return TIMEOUT, AUTH_FAILURE, VALIDATION_ERROR, EXECUTION_ERROR or NOT_FOUND."""
    if error.code != "tool_error":
        return CODES[error.code].selection
    own_type = str(error.details.get("error_type", ""))
    by_status = _TYPES_BY_STATUS.get(_status(error) or 0, "EXECUTION_ERROR")
    return (
        own_type if own_type in _TYPES else _TYPES_OF_TOOLS[own_type][0] if own_type in _TYPES_OF_TOOLS else by_status
    )


def retry_after(error: ToolError) -> float | None:
    """Return the seconds to wait before the same call may work; None where waiting does not help."""
    wait = error.details.get("retry_after_seconds", error.details.get("retry_after"))
    if isinstance(wait, str) and wait.strip().isdecimal():  # a header as it was sent; a date is not read
        wait = int(wait)
    if isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0:
        return wait
    is_limited = error.code == "overloaded" or _status(error) == 429
    is_limited = is_limited or error.details.get("error_type") == "rate_limited"
    return _WAIT_SECONDS if is_limited else None


def classify(error: ToolError, *, in_a_row: int = 1, failures: int = 1) -> Recovery:
    """Return the advice after `error`, the newest of `in_a_row` of its type, and of `failures` of its tool.

    Order: a series of equal errors, the code, for a tool's own error its type, then a series of failures of the tool.
    """
    if in_a_row >= IN_A_ROW:
        return "ESCALATE"
    usual = _RECOVERY_BY_CODE[error.code]
    if error.code == "tool_error":
        own_type = str(error.details.get("error_type", ""))
        by_type = _RECOVERY_BY_TYPE.get(error_type(error), "CONTINUE" if retry_after(error) is not None else usual)
        usual = _TYPES_OF_TOOLS[own_type][1] if own_type in _TYPES_OF_TOOLS else by_type
    if failures >= IN_A_ROW and usual == "CONTINUE":
        return "BACKTRACK"
    return usual


def _status(error: ToolError) -> int | None:
    """Return the HTTP status of the endpoint behind the tool, if the error carries it."""
    status = error.details.get("status")
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def is_failure(error: ToolError) -> bool:
    """Whether the error counts against the tool that was called."""
    return error.code not in _BLAMELESS_CODES
