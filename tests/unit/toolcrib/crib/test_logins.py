"""A crib with a server behind a login: what the server repeats of our token is masked for whoever reads the result."""

from pathlib import Path

import pytest

from peers.auth import Browser, auth_peer
from rig import PATIENCE, eventually
from toolcrib import Toolcrib
from toolcrib.config import load
from toolcrib.crib.storage import logins_in
from toolcrib.mcp.auth.access import Access
from toolcrib.net.oauth.flow import Person
from toolcrib.net.oauth.spec import OAuthSpec

__all__: list[str] = []


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
