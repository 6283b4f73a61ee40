"""Helpers for exceptions: several raised as one, the one inside a group, and where a guest raised one."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

from ..errors import ConfigError, ConfigErrors

_CALLERS_OF_GUESTS: Final = ("anyio", "importlib", "importlib_metadata", "toolcrib")
"""Packages whose lines say nothing about an error of a guest."""


class ErrorList:
    """Errors of one configuration that are raised together.

        errors = ErrorList()
        for section in sections:
            with errors.part():
                read(section)
        errors.raise_all()

    `raise_all` raises one error, which names each of them.
    """

    def __init__(self) -> None:
        """Start without an error."""
        self.found: list[ConfigError] = []

    @contextmanager
    def part(self) -> Generator[None]:
        """Take note of the `ConfigError` that ends the block."""
        try:
            yield
        except ConfigError as error:
            self.found += error.each

    def raise_all(self) -> None:
        """Raise the errors, if there are any."""
        if self.found:
            raise ConfigErrors.of(self.found)


def innermost(error: BaseException) -> BaseException:
    """Return the error that was raised inside task groups, which wrap it, if it is a single one."""
    inside = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    return innermost(inside[0]) if len(inside) == 1 else error


def reason_of(error: BaseException) -> str:
    """Return class, message and place of an exception in the code of a guest, for its author."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place, step = "", error.__traceback__
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _CALLERS_OF_GUESTS:
            place = f" ({step.tb_frame.f_code.co_filename}:{step.tb_lineno})"
        step = step.tb_next
    return reason + place
