"""The option that writes down what the clients did."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let whoever moved a pin write the record and the table of the page anew."""
    parser.addoption("--record", action="store_true", help="write the outcome into docs/clients/index.md")
