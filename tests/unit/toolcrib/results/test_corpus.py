"""C7: what part of made-up secrets is found in each wrapping, and how often the innocent are suspected."""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from toolcrib.results.redaction.redactor import Redactor
from unit.toolcrib.results.corpus import BENIGN, HANDLES, HASHES, KINDS, NEAR_MISSES, PASSWORDS, WRAPPINGS, b64, begin

EACH = 6
"""Secrets of one kind in one wrapping."""

redact_text = Redactor().text


def core(secret: str) -> str:
    """The part that must not be seen: of a URL the password or the last part, of a key one of its lines."""
    if secret.startswith("-----BEGIN"):
        return secret.splitlines()[3]
    if "://" in secret:
        return urlsplit(secret).password or secret.rpartition("/")[2]
    return secret


@pytest.fixture(scope="module")
def missed() -> Mapping[tuple[str, str], int]:
    """Return how many secrets of each kind are still seen in each wrapping."""
    counts: dict[tuple[str, str], int] = {}
    for kind, make in KINDS.items():
        begin(kind)
        for wrapping, wrap in WRAPPINGS.items():
            secrets = [make() for _ in range(EACH)]
            counts[wrapping, kind] = sum(core(secret) in redact_text(wrap(secret)) for secret in secrets)
    return counts


@pytest.mark.long
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_at_least_95_of_100_secrets_are_found_in_each_wrapping(
    wrapping: str, missed: Mapping[tuple[str, str], int]
) -> None:
    assert sum(missed[wrapping, kind] for kind in KINDS) <= 0.05 * EACH * len(KINDS)


@pytest.mark.long
def test_no_kind_is_unknown_wherever_it_stands(missed: Mapping[tuple[str, str], int]) -> None:
    """At most one of the six may look too plain by chance."""
    assert {place: count for place, count in missed.items() if count > 1} == {}


def test_at_least_60_kinds_are_tried() -> None:
    assert (len(KINDS) >= 60, len(WRAPPINGS)) == (True, 5)


def test_at_most_one_of_100_harmless_texts_is_suspected() -> None:
    assert [text for text in BENIGN if redact_text(text) is not text] == []


@pytest.mark.parametrize("texts", [NEAR_MISSES, HANDLES, HASHES], ids=["near misses", "handles", "hashes"])
def test_at_most_2_of_100_texts_that_only_look_like_secrets_are_suspected(texts: tuple[str, ...]) -> None:
    alarms = [text for text in texts if redact_text(text) is not text]
    assert len(alarms) <= 0.02 * len(texts), alarms


def test_at_least_97_of_100_passwords_are_found_in_prose_in_logs_and_in_commands() -> None:
    missed = [(line, password) for line, password in PASSWORDS if password in redact_text(line.format(password))]
    assert len(missed) <= 0.03 * len(PASSWORDS), missed


@pytest.mark.parametrize(
    "text",
    [
        "the password of user2 is required",
        "password is encrypted with AES256-GCM, at least 8characters",
        "the password was reset in release 2.4.1",
        "server --password PASSWORD --password-file /run/secrets/db_1",
        "tests: pass=1234567 fail=0, pass: 12",
        "mysql -u root -p$PASSWORD shop && mkdir -p build2 && sshpass -p ${PW1234} ssh host",
        "Password reset: write to ada7@mail.test, or see https://id.test/reset?user=1",
        "| password | required |",
    ],
)
def test_sentences_and_commands_about_passwords_stay(text: str) -> None:
    assert redact_text(text) is text


@pytest.mark.parametrize(
    "line",
    [
        "AZURE_STORAGE_KEY={}",
        "storage_key: {}",
        "s3_secret_key: {}",
        "file_access_token: {}",
        "EVENT_KEY={}",
        "upload_api_key: {}",
    ],
)
def test_a_credential_of_a_store_is_no_handle(line: str) -> None:
    begin(line)
    secret = b64(64)
    assert secret not in redact_text(line.format(secret))


@pytest.mark.slow
def test_a_mebibyte_of_mixed_text_takes_no_longer_than_ten_times_the_goal() -> None:
    """The goal is 0.2 s on a machine that does nothing else; measured in November 2026: 0.08 s."""
    text = "\n".join([*NEAR_MISSES, *BENIGN])
    text = (text * (1 + (1 << 20) // len(text)))[: 1 << 20]
    redact_text(text)
    begun = time.thread_time()
    redact_text(text)
    assert time.thread_time() - begun < 2.0


def test_structures_hide_what_texts_hide() -> None:
    begin("structures")
    redactor = Redactor()
    for kind, make in KINDS.items():
        secret = make()
        shown = repr(redactor.value({"items": [{"note": secret}, {"password": secret}]}))
        assert core(secret) not in shown, kind
