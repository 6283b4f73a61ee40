"""A server on a real loopback socket, with a fake backend behind it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from toolcrib.server.http import HttpOptions
from unit.toolcrib.server.fake_backend import FakeBackend
from unit.toolcrib.server.wire_client import Site, serving

Serve = Callable[[HttpOptions], AbstractAsyncContextManager[Site]]


@pytest.fixture
def backend() -> FakeBackend:
    """The backend of this test."""
    return FakeBackend()


@pytest.fixture
def serve(backend: FakeBackend) -> Serve:
    """Serve the backend with other options than `site` has."""

    @asynccontextmanager
    async def run(options: HttpOptions) -> AsyncGenerator[Site]:
        async with serving(backend, options) as site:
            yield site

    return run


@pytest.fixture
async def site(backend: FakeBackend) -> AsyncGenerator[Site]:
    """The backend, served with default options."""
    async with serving(backend, HttpOptions()) as running:
        yield running
