"""Every failure has one of three readers, and the class says which.

    ToolcribError
    ├── ToolFailure     the model reads it: a stable code, a message, a hint; it becomes a `ToolResult`
    └── UsageError      the developer or operator reads it: a wrong argument, a broken config file
        └── ConfigError     ... with the file and the key where it is wrong

Anything else that escapes is `internal`: logged with its traceback and not shown to any caller.

`CODES` is the one table from an error code to what each way in and each profile says: a JSON-RPC error is never used
for a tool's failure (MCP wants `isError`), so it holds the HTTP status, the exit status of the command line, whether
the same call may succeed when it is sent again unchanged, and the words of the two seeds that have codes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

__all__ = ["CODES", "CodeInfo", "ConfigError", "ConfigErrors", "ToolFailure", "ToolcribError", "UsageError"]


class CodeInfo(NamedTuple):
    """Meaning of one error code: status of HTTP, exit status, and the words of two envelopes."""

    http: int
    exit: int
    retryable: bool = False
    gateway: str = "INTERNAL"
    """Seed 001: VALIDATION_ERROR, PERMISSION_DENIED, NOT_FOUND, CONFLICT or INTERNAL."""
    selection: str = "EXECUTION_ERROR"
    """Seed 004: TIMEOUT, AUTH_FAILURE, VALIDATION_ERROR, EXECUTION_ERROR or NOT_FOUND."""


CODES: Final[Mapping[str, CodeInfo]] = MappingProxyType(
    {
        "not_found": CodeInfo(http=404, exit=3, gateway="NOT_FOUND", selection="NOT_FOUND"),
        "invalid_arguments": CodeInfo(http=400, exit=4, gateway="VALIDATION_ERROR", selection="VALIDATION_ERROR"),
        "not_in_scope": CodeInfo(http=403, exit=5, gateway="PERMISSION_DENIED", selection="AUTH_FAILURE"),
        "not_loaded": CodeInfo(http=409, exit=5, gateway="NOT_FOUND", selection="NOT_FOUND"),
        "disabled": CodeInfo(http=403, exit=5, gateway="PERMISSION_DENIED", selection="AUTH_FAILURE"),
        "quarantined": CodeInfo(http=403, exit=5, gateway="PERMISSION_DENIED", selection="AUTH_FAILURE"),
        "definition_changed": CodeInfo(http=409, exit=5, gateway="PERMISSION_DENIED", selection="AUTH_FAILURE"),
        "denied": CodeInfo(http=403, exit=5, gateway="PERMISSION_DENIED", selection="AUTH_FAILURE"),
        "approval_pending": CodeInfo(http=403, exit=5, gateway="PERMISSION_DENIED", selection="AUTH_FAILURE"),
        "budget_exceeded": CodeInfo(http=429, exit=6),
        "overloaded": CodeInfo(http=429, exit=6, retryable=True),
        "conflict": CodeInfo(http=409, exit=6, gateway="CONFLICT"),
        "unavailable": CodeInfo(http=503, exit=7, retryable=True),
        "timeout": CodeInfo(http=504, exit=8, retryable=True, selection="TIMEOUT"),
        "cancelled": CodeInfo(http=499, exit=8),
        "outcome_unknown": CodeInfo(http=502, exit=8, selection="TIMEOUT"),
        "too_large": CodeInfo(http=413, exit=9),
        "storage": CodeInfo(http=507, exit=9, retryable=True),
        "tool_error": CodeInfo(http=200, exit=1),
        "internal": CodeInfo(http=500, exit=70),
    }
)
"""`tool_error` is the tool's own answer "it did not work"; every other code is Toolcrib's. Exit 70 is EX_SOFTWARE."""


class ToolcribError(Exception):
    """The root of everything Toolcrib raises on purpose. It can be copied and pickled, for pools of processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made: without `__init__`, whose arguments are others than `args`."""
        return _without_init, (type(self), self.args), self.__dict__


class ToolFailure(ToolcribError):
    """A call that cannot succeed, reported to the model: what happened, and what to do instead.

        raise ToolFailure("not_found", f"there is no invoice {number}", hint="list_invoices names them")

    For tools to raise, and never raised out of `Session.call`, where it is the `error` of the result. `code` is a key
    of `CODES`, which has the exit status and the HTTP status of each. `details` is JSON for programs: field errors,
    nearest names, a valid example.

        raised by          a tool, a source, a step; `ToolResult.of_failure` makes the result
        code ──► CODES     HTTP status, exit status, whether the same call may be repeated
    """

    sent = True
    """Whether a request may have left before it. Without one a refusal says nothing that others wrote: no taint."""

    def __init__(self, code: str, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None) -> None:
        """Raise `KeyError` for a code that the table does not know: a new code is a decision."""
        if code not in CODES:
            raise KeyError(
                f"there is no error code {code!r}; a tool's own failure is 'tool_error', others are in CODES"
            )
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.details: Mapping[str, Any] = details or {}

    @property
    def whole(self) -> str:
        """The message and the hint as text for a person."""
        end = "" if self.message.endswith((".", "!", "?")) else "."
        return f"{self.message}{end} {self.hint}" if self.hint else self.message


class UsageError(ToolcribError):
    """The caller of the library or the operator did something that cannot work."""


class ConfigError(UsageError):
    """A configuration file says something that cannot be taken; names the file and the key."""

    def __init__(self, message: str, *, file: str = "", key: str = "") -> None:
        """`file` is a path as the user gave it, `key` a dotted path inside it."""
        where = ": ".join(part for part in (file, key) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.file = file
        self.key = key

    @property
    def each(self) -> tuple[ConfigError, ...]:
        """The single errors: of several in one (`ConfigErrors`) each, else this one."""
        return (self,)


class ConfigErrors(ConfigError):
    """Several errors of one file, in the order of the file; `file` and `key` are those of the first."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        """`errors` has at least two; one error is raised as it is."""
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.file = errors[0].file
        self.key = errors[0].key

    @staticmethod
    def of(errors: Iterable[ConfigError]) -> ConfigError:
        """Return the errors as one: itself where it is the only one, all of them where one stands for several."""
        flat = [one for error in errors for one in error.each]
        return flat[0] if len(flat) == 1 else ConfigErrors(flat)

    @property
    def each(self) -> tuple[ConfigError, ...]:
        """The single errors."""
        return self.errors


def _without_init(kind: type[ToolcribError], args: tuple[object, ...]) -> ToolcribError:
    return kind.__new__(kind, *args)
