"""Regular expressions whose matching takes time linear in the text, whatever the pattern: RE2's."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from toolcrib.plugin import ToolFailure

__all__ = ["compiled", "quoted"]

_RE2: Final[Any] = import_module("re2")
_LONGEST: Final = 10_000
"""Characters of one pattern."""
_SAID: Final = 500
"""Characters of what RE2 says of a pattern, which it repeats."""
_STEPS: Final = 20_000
"""Of a compiled pattern: each may be tried at each character."""


def compiled(pattern: str | bytes, *, any_case: bool = False, literal: bool = False, within_lines: bool = False) -> Any:
    """Return the pattern ready to search, with the methods of `re.Pattern`.

    A pattern of bytes searches bytes that are UTF-8. `within_lines`: nothing in it matches a line end. Raises
    `ToolFailure` saying what is wrong with it.
    """
    options = _RE2.Options()
    options.log_errors = False
    options.case_sensitive = not any_case
    options.literal = literal
    options.never_nl = within_lines
    try:
        if len(pattern) > _LONGEST:
            raise ToolFailure("invalid_arguments", f"the pattern has {len(pattern)} characters, {_LONGEST} at most")
        regex = _RE2.compile(pattern, options)
    except _RE2.error as error:
        said = error.args[0] if error.args else ""
        reason = (said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said))[:_SAID]
        reason = reason if reason.isprintable() else ascii(reason)
        raise ToolFailure(
            "invalid_arguments",
            f"the pattern is no regular expression that is known here: {reason}",
            hint="there are no look-arounds and no backreferences; set literal to search for the text itself",
        ) from None
    return _checked(regex)


def _checked(regex: Any) -> Any:
    """Return it; raises `ToolFailure` for one of so many steps that a megabyte would take minutes."""
    if regex.programsize > _STEPS:
        raise ToolFailure("invalid_arguments", "the pattern repeats too much", hint="write smaller numbers in { }")
    return regex


def quoted(text: str) -> str:
    """Return the pattern that matches just this text."""
    escaped: str = _RE2.escape(text)
    return escaped
