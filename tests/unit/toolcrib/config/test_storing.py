"""Where the store is and how long records are kept, as the configuration file says it."""

import base64
from pathlib import Path

import pytest

from toolcrib.config.settings import StoreSpec
from toolcrib.errors import ConfigError
from toolcrib.store.settings import Retention
from unit.toolcrib.config.written import read

KEY = base64.b64encode(bytes(range(32))).decode()


def test_a_store_is_a_url_or_a_url_and_a_key_and_both_take_variables(tmp_path: Path) -> None:
    environ = {"PASSWORD": "hunter22", "KEY": KEY}

    plain = read(tmp_path, "store: postgresql://ada:${PASSWORD}@db/crib\n", **environ)
    both = read(tmp_path, "store: {url: 'postgres://db/crib', key: '${KEY}'}\n", **environ)
    key = read(tmp_path, "store: {key: '${KEY}'}\n", **environ)

    assert plain.store == StoreSpec(url="postgresql://ada:hunter22@db/crib")
    assert both.store == StoreSpec(url="postgres://db/crib", key=bytes(range(32)))
    assert key.store == StoreSpec(key=bytes(range(32)))
    assert read(tmp_path, "mode: manual\n").store == StoreSpec()


def test_its_password_and_its_key_are_masked_and_never_printed(tmp_path: Path) -> None:
    settings = read(tmp_path, f"store: {{url: 'postgresql://ada:hunter22@db/crib', key: '{KEY}'}}\n")

    assert {"hunter22", KEY} <= set(settings.secrets)
    assert "hunter22" not in repr(settings)
    assert KEY not in repr(settings)


def test_records_are_kept_for_a_time_or_up_to_a_number(tmp_path: Path) -> None:
    assert read(tmp_path, "records: {keep: 90d, max_rows: 1000000}\n").records == Retention(
        keep=90 * 86_400, max_rows=1_000_000
    )
    assert read(tmp_path, "records: {keep: 172800}\n").records == Retention(keep=172_800)
    assert read(tmp_path, "mode: manual\n").records == Retention()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "store: mysql://db",
            "store: a URL postgresql://user:password@host/database, or the path of a SQLite file, was expected",
        ),
        ("store: ':memory:'", "keeps everything in memory) was expected"),
        ("store: 3", "store: a string was expected"),
        ("store: {ur: x}", "store.ur: unknown key"),
        (
            "store: {key: c2hvcnQ=}",
            "store.key: 32 bytes in base64, such as `openssl rand -base64 32` makes, was expected",
        ),
        ("store: {key: hunter22}", "store.key: 32 bytes in base64"),
        ("records: 90d", "records: a mapping was expected"),
        ("records: {keep: soon}", "records.keep: a time such as 7d or 12h was expected"),
        ("records: {keep: 1h}", "records.keep: at least 1d was expected"),
        ("records: {keep: true}", "records.keep: a number was expected"),
        ("records: {max_rows: 10}", "records.max_rows: at least 1000 rows was expected"),
        ("records: {max_rows: 1e6}", "records.max_rows: a whole number was expected"),
        ("records: {days: 3}", "records.days: unknown key"),
    ],
)
def test_a_value_that_cannot_be_taken_is_named_with_its_line(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, f"mode: manual\n{text}\n")

    assert f"{tmp_path / '0.yaml'}:2" in str(error.value)
    assert reason in str(error.value)
    assert "hunter22" not in str(error.value)


def test_what_they_say_is_part_of_the_digest(tmp_path: Path) -> None:
    texts = [
        "",
        "store: postgresql://db/a",
        "store: postgresql://db/b",
        f"store: {{key: '{KEY}'}}",
        "records: {keep: 1d}",
        "records: {max_rows: 1000}",
    ]

    assert len({read(tmp_path, f"{text}\nbuiltins: true\n").digest() for text in texts}) == len(texts)
