"""A crib with a server behind a login: what the server repeats of our token is masked for whoever reads the result."""

import json
from pathlib import Path

import pytest

from peers.auth import Browser, auth_peer
from rig import PATIENCE, eventually
from toolcrib import Toolcrib
from toolcrib.config import load
from toolcrib.crib.storage import logins_in
from toolcrib.mcp.auth.access import Access
from toolcrib.mcp.auth.login_store import FileLogins
from toolcrib.mcp.client.http_exchange import probe_auth_challenge
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.net.oauth.flow import Person
from toolcrib.net.oauth.spec import OAuthSpec


@pytest.mark.slow
async def test_a_token_of_a_login_is_masked_in_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    async with auth_peer() as peer:
        file = tmp_path / "config.yaml"
        file.write_text(f"servers: {{peer: {{url: '{peer.url}'}}}}\n")
        environ = {"HOME": str(tmp_path)}
        settings = load([file], {"accept": True, "builtins": False, "mode": "autonomous"}, environ, cwd=tmp_path)
        person = Person(show=Browser().show, seconds=PATIENCE)
        access = Access("peer", peer.url, OAuthSpec(), logins_in(settings.directories), person=person)
        login = await access.log_in(None)
        await access.aclose()

        async with Toolcrib(settings=settings) as crib:
            await eventually(lambda: crib.catalog.find("peer__tell_token"))
            result = await crib.session(profile="flat").call("peer__tell_token", {})

    assert not result.is_error
    assert login.tokens.access not in repr(result)
    assert "[redacted:" in result.text


@pytest.mark.slow
async def test_a_client_secret_that_is_rotated_while_the_crib_runs_needs_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    secret, environ = tmp_path / "secret", {"HOME": str(tmp_path)}
    secret.write_text("secret-of-yesterday")
    async with auth_peer() as peer:
        person = Person(show=Browser().show, seconds=PATIENCE)
        logins = FileLogins(tmp_path / "other")
        ours = Access("peer", peer.url, OAuthSpec(), logins, person=person)
        challenge = await probe_auth_challenge(ServerSpec(name="peer", transport="http", url=peer.url), "1")
        client = (await ours.log_in(challenge)).client
        await ours.aclose()
        account = peer.accounts.clients[client.id]
        account.client_secret, account.token_endpoint_auth_method = "secret-of-yesterday", "client_secret_post"
        auth = {
            "type": "oauth",
            "client_id": client.id,
            "client_secret": f"${{file:{secret}}}",
            "client_auth": "post",
            "scopes": ["read"],
            "redirect_port": int(client.redirect_uri.rpartition(":")[2].partition("/")[0]),
        }
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps({"servers": {"peer": {"url": peer.url, "auth": auth}}}))
        settings = load([file], {"accept": True, "builtins": False, "mode": "autonomous"}, environ, cwd=tmp_path)
        (spec,) = settings.sources.servers
        assert spec.oauth is not None
        access = Access("peer", peer.url, spec.oauth, logins_in(settings.directories), person=person)
        await access.log_in(None)
        await access.aclose()

        async with Toolcrib(settings=settings) as crib:
            await eventually(lambda: crib.catalog.find("peer__add"))
            session = crib.session(profile="flat")
            before = await session.call("peer__add", {"a": 1, "b": 2})
            account.client_secret = "secret-of-today"
            peer.forget_access()
            refused = await session.call("peer__add", {"a": 1, "b": 2})
            secret.write_text("secret-of-today")
            after = await session.call("peer__add", {"a": 1, "b": 2})

    assert (before.structured_content, after.structured_content) == ({"result": 3}, {"result": 3})
    assert refused.error is not None
    assert (refused.error.code, "`auth`" in refused.error.hint) == ("denied", True)
