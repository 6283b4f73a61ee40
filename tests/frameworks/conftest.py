"""One mock model for all frameworks."""

from collections.abc import Generator

import pytest

from frameworks.mock import Mock, running


@pytest.fixture(scope="session")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Generator[Mock]:
    """A model that can be taught what to say."""
    with running(tmp_path_factory.mktemp("mock")) as one:
        yield one
