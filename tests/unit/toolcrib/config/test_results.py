"""How long results are kept and whose words are not trusted, as the configuration file says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.crib import Toolcrib
from toolcrib.errors import ConfigError
from toolcrib.policy.taint import Taint
from toolcrib.results.settings import RetentionSettings
from unit.toolcrib.config.written import read


def test_times_and_sizes_are_written_with_their_units_or_as_seconds_and_bytes(tmp_path: Path) -> None:
    assert read(tmp_path, "results: {keep: 12h, quota: 1GiB, each: 512KiB}\n").results == RetentionSettings(
        keep=43_200.0, quota=1 << 30, each=512 << 10
    )
    assert read(tmp_path, "results: {pass_whole: 2MiB}\n").results == RetentionSettings(pass_whole=2 << 20)
    assert read(tmp_path, "results: {keep: 90.5, quota: 5000}\n").results == RetentionSettings(keep=90.5, quota=5000)
    assert read(tmp_path, "mode: manual\n").results == RetentionSettings()


def test_a_later_file_changes_single_entries(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "results: {keep: 1d, quota: 1GiB}\nuntrusted: {trusted: [a], private: [p]}\n",
        "results: {quota: 2GiB}\nuntrusted: {trusted: [b], ask: false}\n",
    )
    assert found.results == RetentionSettings(keep=86_400.0, quota=2 << 30)
    assert found.policy.untrusted == Taint(ask=False, trusted=("b",), private=("p",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("results: {keep: 7 days}", "results.keep: a time such as 7d or 12h was expected"),
        ("results: {quota: 2GB}", "results.quota: a size such as 256MiB or 2GiB was expected"),
        ("results: {pass_whole: 17MiB}", "results.pass_whole: at most 16MiB was expected"),
        ("results: {each: 0}", "results.each: a number above 0 was expected"),
        ("results: {kep: 7d}", "did you mean 'keep'?"),
        ("untrusted: {ask: maybe}", "untrusted.ask: true or false was expected"),
        ("untrusted: {trusted: wiki}", "untrusted.trusted: a list of strings was expected"),
        ("untrusted: {trust: [wiki]}", "did you mean 'trusted'?"),
    ],
)
def test_what_cannot_be_taken_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_server_is_vouched_for_in_its_own_entry(tmp_path: Path) -> None:
    ours = read(tmp_path, "servers: {wiki: {command: wiki, trusted: true}, web: {command: web}}\n")
    assert {spec.name: spec.trusted for spec in ours.sources.servers} == {"wiki": True, "web": False}


async def test_the_settings_are_those_of_the_running_crib(tmp_path: Path) -> None:
    settings = read(tmp_path, "results: {each: 5000}\nbuiltins: false\n")
    async with Toolcrib(settings, memory=True) as crib:
        crib.add(long_words)
        result = await crib.session(mode="autonomous").call("long_words")
    assert "The rest is lost: the output has more than 5000 bytes" in result.text


def long_words() -> str:
    """Return more than is kept."""
    return "word " * 20_000
