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

SHORT = 20
"""Seconds: less than the time before its end at which a token is renewed."""
OLD = Tokens(access="old-access", refresh="old-refresh", expires=1.0)


@asynccontextmanager
async def renewing(folder: Path, answers: anyio.Event) -> AsyncGenerator[tuple[Api, Callable[[], Tokens], Access]]:
    """Run a token endpoint that waits for `answers`, and yield it, what is kept, and a login that has run out."""

    async def token(request: Request) -> Response:
        await answers.wait()
        new = {"access_token": "new-access", "token_type": "Bearer", "refresh_token": "new-refresh"}
        return JSONResponse({**new, "expires_in": SHORT})

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


async def test_a_token_of_a_short_life_is_not_renewed_for_every_request(tmp_path: Path) -> None:
    answers = anyio.Event()
    answers.set()
    async with renewing(tmp_path, answers) as (running, _, access):
        headers = [await access.header() for _ in range(3)]

    assert headers == ["Bearer new-access"] * 3
    assert len(running.received) == 1
