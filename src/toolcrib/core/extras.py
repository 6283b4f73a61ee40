"""Extras of this distribution: how a missing one is installed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str) -> Generator[None]:
    """Add to the error of an import in the block how the extra that brings the module is installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; {install_extra(extra)}", name=error.name) from None


def install_extra(extra: str) -> str:
    """Return the words that tell an operator how to install an extra of this distribution here."""
    return f"install the extra `{extra}`: {shlex.quote(sys.executable)} -m pip install 'toolcrib[{extra}]'"
