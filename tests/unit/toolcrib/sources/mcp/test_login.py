"""A server behind a login works once somebody logged in, stays so, and says what to do when nobody has.

The server and its authorization server are FastMCP's; the person is a browser without a screen.
"""

import dataclasses
import json
import logging
import stat
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from peers.auth import AuthPeer, Browser, auth_peer
from peers.opened import Opened, open_source
from rig import PATIENCE, eventually
from toolcrib.core.events import Problem, SourceState
from toolcrib.errors import ToolFailure
from toolcrib.mcp.auth.access import Access
from toolcrib.mcp.auth.login_store import FileLogins, NeedsLogin, login_key
from toolcrib.mcp.client.http_exchange import probe_auth_challenge
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.net.oauth.flow import Person
from toolcrib.net.oauth.login import Login
from toolcrib.net.oauth.spec import OAuthSpec

SPEC = OAuthSpec()


@pytest.fixture
async def peer() -> AsyncGenerator[AuthPeer]:
    async with auth_peer() as running:
        yield running


@pytest.fixture
def logins(tmp_path: Path) -> FileLogins:
    return FileLogins(tmp_path / "logins")


def access_to(peer: AuthPeer, logins: FileLogins, browser: Browser | None = None) -> Access:
    person = Person(show=browser.show, seconds=PATIENCE) if browser is not None else None
    return Access("peer", peer.url, SPEC, logins, person=person)


async def logged_in(peer: AuthPeer, logins: FileLogins, *scopes: str) -> Login:
    access = access_to(peer, logins, Browser())
    try:
        return await access.log_in(await probe_auth_challenge(spec_of(peer), "1"), scopes)
    finally:
        await access.aclose()


def spec_of(peer: AuthPeer) -> ServerSpec:
    return ServerSpec(name="peer", transport="http", url=peer.url, oauth=SPEC, timeout=PATIENCE)


@asynccontextmanager
async def opened(peer: AuthPeer, access: Access, folder: Path) -> AsyncGenerator[Opened]:
    async with open_source(spec_of(peer), folder, access=access) as source:
        yield source


def kept(peer: AuthPeer, logins: FileLogins) -> Login:
    login = logins.read(login_key(peer.url, SPEC))
    assert login is not None
    return login


def change(peer: AuthPeer, logins: FileLogins, login: Login) -> None:
    logins.write(login_key(peer.url, SPEC), login)


async def test_a_refused_request_leads_to_a_login_and_then_runs(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    browser = Browser()

    async with opened(peer, access_to(peer, logins, browser), tmp_path) as source:
        result = await source.call("add", a=1, b=2)

    assert result.structured_content == {"result": 3}
    assert [url.partition("?")[0] for url in browser.visited] == [
        f"{peer.issuer}authorize",
        kept(peer, logins).client.redirect_uri,
    ]
    assert [path for path in peer.paths() if not path.startswith(("/mcp", "/authorize"))] == [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/register",
        "/token",
    ]


async def test_a_token_travels_in_the_header_of_requests_to_the_server_and_nowhere_else(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    async with opened(peer, access_to(peer, logins, Browser()), tmp_path) as source:
        await source.call("add", a=1, b=2)
    tokens = kept(peer, logins).tokens

    bearing = {path.partition("?")[0] for path, headers in peer.requests if tokens.access in json.dumps(headers)}
    assert bearing == {"/mcp"}
    assert [path for path in peer.paths() if tokens.access in path or tokens.refresh in path] == []


async def test_without_a_login_the_source_says_which_command_to_run_and_asks_nobody(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        said = "server 'peer' needs a login: it has no login yet"
        assert source.source.state == SourceState(
            source="peer",
            kind="mcp",
            state="needs_login",
            detail=f"{said}. Run `toolcrib login peer`.",
            outage=said,
            hint="Run `toolcrib login peer`.",
        )
        assert source.listings[-1].problems == (
            Problem(source="peer", code="needs_login", message=said, hint="Run `toolcrib login peer`."),
        )

    assert set(peer.paths()) == {"/mcp"}


@pytest.mark.slow
async def test_a_login_in_another_process_brings_the_server_to_life_without_a_restart(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        await logged_in(peer, FileLogins(tmp_path / "logins"))

        await source.until(lambda listing: bool(listing.tools))
        result = await source.call("add", a=2, b=2)

    assert result.structured_content == {"result": 4}


async def test_a_logout_in_another_process_ends_the_calls_and_keeps_the_tools_listed(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    await logged_in(peer, logins)
    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        elsewhere = access_to(peer, logins)
        assert await elsewhere.log_out()
        await elsewhere.aclose()

        failure = await source.failing("add", a=1, b=2)
        await eventually(lambda: source.source.state.state == "needs_login")
        again = await source.failing("add", a=1, b=2)

        assert isinstance(failure, NeedsLogin)
        assert (again.code, again.hint) == ("unavailable", "Run `toolcrib login peer`.")
        assert sorted(source.tools) == ["add", "tell_token"]
    assert peer.accounts.refresh_tokens == {}, "the authorization server was told"


async def test_a_token_that_runs_out_is_renewed_before_it_is_used(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    login = await logged_in(peer, logins)
    change(peer, logins, dataclasses.replace(login, tokens=dataclasses.replace(login.tokens, expires=time.time() + 5)))

    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        await source.call("add", a=1, b=2)

    renewed = kept(peer, logins).tokens
    assert renewed.refresh not in ("", login.tokens.refresh), "the authorization server rotates refresh tokens"
    assert renewed.access in peer.accounts.access_tokens
    used = {
        headers["authorization"] for path, headers in peer.requests if path == "/mcp" and "authorization" in headers
    }
    assert used == {f"Bearer {renewed.access}"}


async def test_a_token_that_is_refused_is_renewed_and_the_call_runs_once(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    await logged_in(peer, logins)
    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        peer.forget_access()

        result = await source.call("add", a=3, b=4)

    assert result.structured_content == {"result": 7}
    assert len(peer.paths("/token")) == 2


async def test_a_login_that_cannot_be_renewed_asks_for_the_command_and_keeps_no_token(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    login = await logged_in(peer, logins)
    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        peer.forget_everybody()

        failures = [await source.failing("add", a=3, b=4) for _ in range(2)]

    assert {failure.message for failure in failures} == {"server 'peer' needs a login: its login is no longer valid"}
    left = kept(peer, logins)
    assert (left.tokens.access, left.tokens.refresh, left.client) == ("", "", login.client)


async def test_two_processes_that_are_refused_at_once_use_a_refresh_token_once(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    login = await logged_in(peer, logins)
    both = [access_to(peer, FileLogins(tmp_path / "logins")) for _ in range(2)]
    used = [await access.header() for access in both]
    peer.forget_access()

    async with anyio.create_task_group() as group:
        for access, header in zip(both, used, strict=True):
            group.start_soon(access.refused, 401, "Bearer", header)
    headers = {await access.header() for access in both}
    for access in both:
        await access.aclose()

    assert set(used) == {f"Bearer {login.tokens.access}"}
    assert headers == {f"Bearer {kept(peer, logins).tokens.access}"}
    assert len(peer.paths("/token")) == 2, "one for the login, one for both"


async def test_rights_that_are_missing_are_named_with_the_command_that_gets_them(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    await logged_in(peer, logins)
    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        peer.require("read", "write")
        failure = await source.failing("add", a=1, b=2)
        peer.require("read")
        after = await source.call("add", a=1, b=2)

    assert (failure.code, failure.hint) == ("denied", "The user runs `toolcrib login peer --scope 'read write'`.")
    assert after.structured_content == {"result": 3}, "what the login allows still works"


async def test_a_person_who_is_there_grants_the_missing_rights_in_the_middle_of_a_call(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    browser = Browser()
    async with opened(peer, access_to(peer, logins, browser), tmp_path) as source:
        peer.require("read", "write")
        result = await source.call("add", a=1, b=2)

    assert result.structured_content == {"result": 3}
    assert kept(peer, logins).tokens.scopes == ("read", "write")
    assert len(browser.visited) == 4


async def test_more_rights_are_asked_for_beside_those_that_the_server_names(peer: AuthPeer, logins: FileLogins) -> None:
    login = await logged_in(peer, logins, "write")

    assert login.tokens.scopes == ("read", "write")


async def test_a_second_login_uses_the_client_of_the_first_again(peer: AuthPeer, logins: FileLogins) -> None:
    first = await logged_in(peer, logins)
    second = await logged_in(peer, logins)

    assert second.client == first.client
    assert second.tokens.access != first.tokens.access
    assert len(peer.paths("/register")) == 1


async def test_a_configured_client_is_never_registered(peer: AuthPeer, tmp_path: Path) -> None:
    logins = FileLogins(tmp_path / "logins")
    registered = (await logged_in(peer, logins)).client
    port = int(registered.redirect_uri.rpartition(":")[2].partition("/")[0])
    spec = OAuthSpec(
        client_id=registered.id,
        client_secret=registered.secret,
        client_auth=registered.auth,
        redirect_port=port,
        scopes=("read",),
    )
    access = Access("peer", peer.url, spec, logins, person=Person(show=Browser().show, seconds=PATIENCE))

    login = await access.log_in(None)
    await access.aclose()

    assert (login.client.id, len(peer.paths("/register"))) == (registered.id, 1)
    assert logins.read(login_key(peer.url, spec)) != logins.read(login_key(peer.url, SPEC)), "each has its own login"


async def rotated(peer: AuthPeer, logins: FileLogins) -> tuple[OAuthSpec, OAuthSpec]:
    """Log in with a configured client, and give it another secret; return its settings before and after."""
    registered = (await logged_in(peer, logins)).client
    account = peer.accounts.clients[registered.id]
    account.client_secret, account.token_endpoint_auth_method = "secret-of-yesterday", "client_secret_post"
    port = int(registered.redirect_uri.rpartition(":")[2].partition("/")[0])
    same: dict[str, Any] = {
        "client_id": registered.id,
        "client_auth": "post",
        "redirect_port": port,
        "scopes": ("read",),
    }
    before, after = (OAuthSpec(client_secret=secret, **same) for secret in ("secret-of-yesterday", "secret-of-today"))
    access = Access("peer", peer.url, before, logins, person=Person(show=Browser().show, seconds=PATIENCE))
    await access.log_in(None)
    await access.aclose()
    account.client_secret = "secret-of-today"
    peer.forget_access()
    return before, after


async def test_a_secret_that_was_rotated_is_read_anew_and_the_call_runs_without_a_restart_or_a_person(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    before, after = await rotated(peer, logins)
    learned: list[str] = []
    access = Access("peer", peer.url, before, logins, learn=learned.extend, configured=lambda: after)

    async with opened(peer, access, tmp_path) as source:
        result = await source.call("add", a=3, b=4)

    assert result.structured_content == {"result": 7}
    assert "secret-of-today" in learned


async def test_a_secret_that_was_rotated_and_not_configured_yet_is_named_and_the_login_outlives_it(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    before, after = await rotated(peer, logins)
    access = Access("peer", peer.url, before, logins, configured=lambda: before)
    with pytest.raises(ToolFailure) as refused:
        await access.refused(401, "", access.current or await access.header())
    await access.aclose()

    restarted = Access("peer", peer.url, after, logins)
    async with opened(peer, restarted, tmp_path) as source:
        result = await source.call("add", a=3, b=4)

    assert (refused.value.code, "client credentials" in refused.value.message) == ("denied", True)
    assert ("`auth`" in refused.value.hint, isinstance(refused.value, NeedsLogin)) == (True, False)
    assert result.structured_content == {"result": 7}, "a restart with the new secret asks nobody"


async def test_logins_are_kept_where_only_their_user_can_read_them(peer: AuthPeer, tmp_path: Path) -> None:
    logins = FileLogins(tmp_path / "logins")
    await logged_in(peer, logins)

    path = Path(logins.where(login_key(peer.url, SPEC)))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_nothing_that_is_logged_or_told_holds_a_secret(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    login = await logged_in(peer, logins)
    async with opened(peer, access_to(peer, logins), tmp_path) as source:
        peer.forget_everybody()
        failure = await source.failing("add", a=3, b=4)
        told += [failure.message, failure.hint, repr(source.source.state), repr(source.listings[-1].problems)]

    told += [repr(login), repr(kept(peer, logins)), *(record.getMessage() for record in caplog.records if ours(record))]
    secrets = (*login.tokens.secrets(), login.client.secret)
    assert [text for text in told if any(secret in text for secret in secrets)] == []


def ours(record: logging.LogRecord) -> bool:
    return record.name.startswith(("toolcrib", "httpx2", "httpcore2"))


async def test_every_secret_is_told_to_whoever_masks_before_it_is_used(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    learnt: set[str] = set()

    def learn(secrets: Iterable[str]) -> None:
        learnt.update(secrets)

    await logged_in(peer, logins)
    access = Access("peer", peer.url, SPEC, logins, learn=learn)
    async with opened(peer, access, tmp_path) as source:
        peer.forget_access()
        told = await source.call("tell_token")

    assert told.structured_content is not None
    assert told.structured_content["result"] in learnt
    assert kept(peer, logins).client.secret in learnt


async def test_a_server_that_is_away_for_its_tokens_leaves_a_good_token_good_where_the_clock_is_wrong_too(
    peer: AuthPeer, logins: FileLogins, tmp_path: Path
) -> None:
    login = await logged_in(peer, logins)
    away = dataclasses.replace(login, token_endpoint="http://127.0.0.1:9/token")
    for left in (20, -86400):  # the second: by a clock that is a day ahead, or in fact
        change(peer, logins, replace(away, tokens=dataclasses.replace(login.tokens, expires=time.time() + left)))
        async with opened(peer, access_to(peer, logins), tmp_path / str(left)) as source:
            assert (await source.call("add", a=1, b=2)).structured_content == {"result": 3}
    peer.forget_access()
    access = access_to(peer, logins)
    with pytest.raises(ToolFailure) as caught:
        await access.refused(401, "", await access.header())
    await access.aclose()

    assert caught.value.code == "unavailable"
    assert kept(peer, logins).tokens.refresh == login.tokens.refresh, "it is tried again"
