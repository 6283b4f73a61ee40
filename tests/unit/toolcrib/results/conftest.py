"""What the suites of this folder share."""

from collections.abc import Iterator

import pytest

from toolcrib.results.artifacts import Artifacts
from toolcrib.results.limit import Limiter
from toolcrib.results.redaction.redactor import Redactor


@pytest.fixture
def artifacts() -> Iterator[Artifacts]:
    made = Artifacts(None)
    yield made
    made.close()


@pytest.fixture
def limiter(artifacts: Artifacts) -> Limiter:
    return Limiter(artifacts, Redactor())
