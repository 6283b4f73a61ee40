"""What is sealed can be opened with the same key for the same purpose, and with nothing else."""

import stat
from pathlib import Path

import pytest

from toolcrib.errors import ToolFailure
from toolcrib.store.vault import Vault

_VALUE = {"path": "a", "token": "s3cret", "n": [1, None, 2.5]}


def test_another_process_with_the_same_key_file_opens_what_was_sealed(tmp_path: Path) -> None:
    sealed = Vault(file=tmp_path / "key").seal(_VALUE, "job")

    assert Vault(file=tmp_path / "key").open(sealed, "job") == _VALUE


def test_the_key_file_is_private_and_nothing_else_is_left_beside_it(tmp_path: Path) -> None:
    Vault(file=tmp_path / "keys" / "key").seal(_VALUE, "job")

    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()}
    assert files == {"key": 0o600}


def test_the_same_value_is_never_sealed_to_the_same_text_and_shows_nothing_of_itself() -> None:
    vault = Vault()

    first, second = vault.seal(_VALUE, "job"), vault.seal(_VALUE, "job")

    assert first != second
    assert "s3cret" not in first


def test_another_key_another_purpose_and_a_changed_text_open_nothing(tmp_path: Path) -> None:
    vault = Vault(b"k" * 32)
    sealed = vault.seal(_VALUE, "job")

    for attempt, purpose, text in (
        (Vault(b"j" * 32), "job", sealed),
        (vault, "approval", sealed),
        (vault, "job", sealed[:-4] + "AAAA"),
        (vault, "job", "no base64!"),
    ):
        with pytest.raises(ToolFailure, match="cannot be opened"):
            attempt.open(text, purpose)


def test_opening_makes_no_key_and_a_key_that_comes_back_opens(tmp_path: Path) -> None:
    key = tmp_path / "key"
    sealed, saved = Vault(file=key).seal(_VALUE, "job"), key.read_bytes()
    key.unlink()
    vault = Vault(file=key)

    with pytest.raises(ToolFailure, match="cannot be opened"):
        vault.open(sealed, "job")
    made = key.exists()
    key.write_bytes(saved)

    assert (made, vault.open(sealed, "job")) == (False, _VALUE)


@pytest.mark.parametrize("content", [b"c2hvcnQ=", b"abc"])
def test_a_key_file_that_holds_no_key_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)

    with pytest.raises(ToolFailure, match=r"key holds no key of 32 bytes"):
        Vault(file=tmp_path / "key").seal(_VALUE, "job")


def test_a_check_makes_no_key_and_names_a_file_that_holds_none(tmp_path: Path) -> None:
    key = tmp_path / "key"
    checks = [Vault(b"k" * 32, file=key).check(), Vault(file=key).check()]
    made = key.exists()
    Vault(file=key).seal(_VALUE, "job")
    checks.append(Vault(file=key).check())
    key.write_text("cut off")

    assert (checks, made) == (["", "", ""], False)
    assert str(key) in Vault(file=key).check()
