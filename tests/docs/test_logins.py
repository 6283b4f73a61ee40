"""The YAML of docs/how-to/logins.md is taken as it stands there."""

from __future__ import annotations

from pathlib import Path

from docs.documents import blocks
from toolcrib.config import load
from toolcrib.net.oauth.spec import OAuthSpec


def test_the_logins_of_the_document_are_what_it_says(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("yaml") if block.file.name == "logins.md")
    file = tmp_path / "config.yaml"
    file.write_text(block.text)
    variables = {"HOME": str(tmp_path), "TRACKER_SECRET": "a secret", "REPORTS_KEY": "a key"}

    settings = load([file], {}, variables, cwd=tmp_path)

    assert settings.problems == ()
    assert {spec.name: spec.oauth for spec in settings.sources.servers} == {
        "tracker": OAuthSpec(
            client_id="toolcrib-team", client_secret="a secret", redirect_port=8123, scopes=("read", "write")
        ),
        "reports": OAuthSpec(
            grant="client_credentials", client_id="reports-bot", private_key="a key", issuer="https://sso.example.com"
        ),
        "open": None,
    }
    assert {"a secret", "a key"} <= set(settings.secrets)
