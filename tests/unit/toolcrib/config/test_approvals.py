"""The key `approvals`: what it takes, where it is put together, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.config import Settings
from toolcrib.errors import ConfigError
from toolcrib.policy.settings import ApprovalSettings, Webhook
from unit.toolcrib.config.written import read


def loaded(folder: Path, *texts: str) -> Settings:
    return read(folder, *texts, HOME=str(folder), HOOK_KEY="k3y-of-the-hook")


def test_every_key_is_taken_and_a_later_file_adds_its_own(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "approvals: {expires: 60, idle: 30, pending: 5, wait: true, when_gone: run, timeout: 20}\n",
        "approvals: {wait: false, webhook: {url: 'https://hook.example/ask', secret: '${HOOK_KEY}'}}\n",
    )

    assert settings.approvals == ApprovalSettings(
        expires=60,
        idle=30,
        pending=5,
        wait=False,
        when_gone="run",
        timeout=20,
        webhook=Webhook(url="https://hook.example/ask", secret="k3y-of-the-hook"),
    )
    assert "k3y-of-the-hook" in settings.secrets, "it is masked wherever it turns up"


def test_without_the_key_a_question_stands_for_ten_minutes_and_nobody_waits(tmp_path: Path) -> None:
    assert loaded(tmp_path, "mode: cautious\n").approvals == ApprovalSettings(
        expires=600.0, idle=300.0, pending=100, wait=False, when_gone="drop", webhook=None
    )


def test_a_change_of_it_is_another_configuration_for_the_local_daemon(tmp_path: Path) -> None:
    digests = {loaded(tmp_path, text).digest() for text in ("approvals: {}\n", "approvals: {wait: true}\n")}

    assert len(digests) == 2


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("{expire: 1}", "approvals.expire", "did you mean 'expires'"),
        ("{expires: 0}", "approvals.expires", "a number above 0"),
        ("{expires: 90000}", "approvals.expires", "at most 86400 seconds"),
        ("{pending: 1.5}", "approvals.pending", "a whole number"),
        ("{wait: 1}", "approvals.wait", "true or false"),
        ("{when_gone: maybe}", "approvals.when_gone", "one of drop, run"),
        ("{webhook: {url: 'ftp://x'}}", "approvals.webhook.url", "an http:// or https:// URL"),
        ("{webhook: {uri: 'x'}}", "approvals.webhook.uri", "did you mean 'url'"),
        ("[]", "approvals", "a mapping"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_line_and_key(tmp_path: Path, text: str, where: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, f"mode: cautious\napprovals: {text}\n")

    assert said in str(error.value)
    assert f"0.yaml:2: {where}: " in str(error.value)
