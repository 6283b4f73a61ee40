"""A server on a real loopback socket, with a fake desk behind it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.fake_desk import FakeDesk
from unit.toolcrib.server.wire_client import Site, serving

__all__ = ["Serve", "desk", "serve", "site"]

Serve = Callable[[HttpOptions], AbstractAsyncContextManager[Site]]


@pytest.fixture
def desk() -> FakeDesk:
    """The desk of this test."""
    return FakeDesk()


@pytest.fixture
def serve(desk: FakeDesk) -> Serve:
    """Serve the desk with other options than `site` has."""

    @asynccontextmanager
    async def run(options: HttpOptions) -> AsyncGenerator[Site]:
        async with serving(desk, options) as site:
            yield site

    return run


@pytest.fixture
async def site(desk: FakeDesk) -> AsyncGenerator[Site]:
    """The desk, served with default options."""
    async with serving(desk, HttpOptions()) as running:
        yield running
