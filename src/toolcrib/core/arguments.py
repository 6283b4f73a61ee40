"""The two forms of a call's arguments, made here alone for every reader of a call.

    effective   what runs: the tool's own argument names, the values of the caller, then the context values of the
                session, then the schema's defaults. The tool's body, the grant, the hash of an approval, receipts and
                the detection of loops take this form. So does the policy: a rule that names an argument sees its value
                wherever that comes from
    canonical   the effective form without the arguments, at any depth, that are null because null is their default,
                whether the caller wrote it or not; a null that a context value would replace stays. People, records and
                telemetry get this form. Every other default stays: who approves a call sees what will run

Each form determines the other: completing the canonical form gives the effective one, to the byte of its JSON. Where
that does not hold (defaults that make a valid call invalid are not filled in, see `Validator.accept`), canonical is
effective. What reads commands, paths and links out of arguments takes any null for an argument that is not given.

The argument names of a profile become the tool's own before, in the step `resolve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from .schema import FieldError, ValidatorCache
from .tool import Tool

__all__ = ["canonical_arguments", "complete_arguments", "effective_arguments"]

_NO_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType({})
_VALIDATORS: Final = ValidatorCache()
"""By the digest of a tool's definition, so that every crib of a process may share it."""


def complete_arguments(
    tool: Tool, given: Any, defaults: Mapping[str, Any] = _NO_DEFAULTS
) -> tuple[Any, tuple[FieldError, ...]]:
    """Return the effective arguments, and every error of them; with an error, `given` comes back as it was.

    `defaults` are the session's context values, for declared arguments that the caller left out. Nothing is coerced.
    Raises `ValueError` for a tool whose schema cannot be compiled.
    """
    validator = _VALIDATORS.of(tool)
    if defaults:
        given = _with_context(tool, given, defaults)
    return validator.accept(given)


def effective_arguments(
    tool: Tool, given: Mapping[str, Any], defaults: Mapping[str, Any] = _NO_DEFAULTS
) -> Mapping[str, Any]:
    """Return the effective arguments of a call, valid or not, for a decision on it; effective ones come back unchanged.

    Defaults are filled into invalid arguments as well, although no call runs with them. Raises `ValueError` as
    `complete_arguments` does.
    """
    validator = _VALIDATORS.of(tool)
    if defaults:
        given = _with_context(tool, given, defaults)
    return validator.complete(given)


def canonical_arguments(tool: Tool, effective: Any, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> Any:
    """Return the canonical form of effective arguments; values without one (not JSON) unchanged.

    `defaults` are the session's context values: a null that one of them would replace stays, so that arguments which an
    approver edits and which are completed again have the meaning that the approver read.
    """
    try:
        stripped = _VALIDATORS.of(tool).strip_nulls(effective)
    except (TypeError, ValueError, RecursionError):  # a call that is refused for just that is recorded all the same
        return effective
    if stripped is effective or not defaults:
        return stripped
    return {name: value for name, value in effective.items() if name in stripped or name in defaults} | stripped


def _with_context(tool: Tool, given: Any, defaults: Mapping[str, Any]) -> Any:
    """Add context values for declared arguments that the caller left out, those in `tool.explicit` excepted."""
    if not isinstance(given, Mapping):
        return given
    sent = cast("Mapping[str, Any]", given)
    declared = tool.input_schema.get("properties", {})
    missing = {
        name: value
        for name, value in defaults.items()
        if name in declared and name not in sent and name not in tool.explicit
    }
    return {**sent, **missing} if missing else sent
