"""What the tests of MCP servers share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """What the servers of a test tell."""
    journal = Journal(tmp_path / "journal")
    yield journal
    journal.close()
