"""A renewal that nobody waits for any more: a close, or a call that is cancelled, neither hangs nor loses the login."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from peers.api import Api, api
from rig import PATIENCE, eventually
from toolcrib.mcp.auth import access as accesses
from toolcrib.mcp.auth.access import Access
from toolcrib.mcp.auth.login_store import FileLogins, login_key
from toolcrib.net.oauth.login import Login, RegisteredClient, Tokens
from toolcrib.net.oauth.spec import OAuthSpec

__all__: list[str] = []

OLD = Tokens(access="old-access", refresh="old-refresh", expires=1.0)


@asynccontextmanager
async def renewing(folder: Path, answers: anyio.Event) -> AsyncGenerator[tuple[Api, Callable[[], Tokens], Access]]:
    """Run a token endpoint that waits for `answers`, and yield it, what is kept, and a login that has run out."""

    async def token(request: Request) -> Response:
        await answers.wait()
        return JSONResponse({"access_token": "new-access", "token_type": "Bearer", "refresh_token": "new-refresh"})

    async with api({"POST /token": token}) as running:
        logins, url = FileLogins(folder), f"{running.origin}/mcp"
        key = login_key(url, OAuthSpec())
        endpoint = f"{running.origin}/token"
        login = Login(
            resource=url, issuer=running.origin, token_endpoint=endpoint, client=RegisteredClient(id="we"), tokens=OLD
        )
        logins.write(key, login)
        access = Access("peer", url, OAuthSpec(), logins)

        def kept() -> Tokens:
            found = logins.read(key)
            assert found is not None
            return found.tokens

        try:
            yield running, kept, access
        finally:
            answers.set()
            await access.aclose()


@pytest.mark.slow
async def test_an_authorization_server_that_says_nothing_holds_up_no_close(tmp_path: Path) -> None:
    async with renewing(tmp_path, anyio.Event()) as (running, kept, access):
        began = time.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(access.header)
            await eventually(lambda: running.received)
            group.cancel_scope.cancel()
        took = time.monotonic() - began

    assert took < 15, "less than the 20 s that a request to an authorization server may take"
    assert kept() == OLD


async def test_tokens_that_come_after_the_caller_was_cancelled_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accesses, "_GRACE", PATIENCE)
    answers = anyio.Event()
    async with renewing(tmp_path, answers) as (running, kept, access):
        async with anyio.create_task_group() as group:
            group.start_soon(access.header)
            await eventually(lambda: running.received)
            group.cancel_scope.cancel()
            answers.set()

        assert kept() == Tokens(access="new-access", refresh="new-refresh")
