"""What every suite shares."""

import gc

import pytest
from hypothesis import settings

from rig.postgres import postgres_server, postgres_url

__all__ = [
    "anyio_backend",
    "full_size",
    "postgres_server",
    "postgres_url",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
]

gc.disable()  # until everything is collected: nothing of it is garbage, and looking takes a quarter of the time

# The same examples every time: a gate that fails says so to whoever broke it, not to whoever comes next.
settings.register_profile("gate", deadline=None, database=None, derandomize=True)
settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make soak` ask for the full sizes; everything else runs the small ones."""
    parser.addoption("--full-size", action="store_true", help="run the fault harness at its full sizes (make soak)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse test names that differ from process to process: with them pytest-xdist runs nothing at all."""
    changing = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if changing:
        raise pytest.UsageError(f"give the parameter a name of its own (ids=, or pytest.param): {changing}")


def pytest_collection_finish() -> None:
    """Collect garbage again, but not in what was imported: it is large, and there to the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, the loop that the server runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def full_size(request: pytest.FixtureRequest) -> bool:
    """Whether the run is `make soak`."""
    return bool(request.config.getoption("--full-size"))
