"""What a configuration says of commands, and what is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.config import load
from toolcrib.config.settings import ShellSpec
from toolcrib.errors import ConfigError


def test_the_configuration_of_the_shell_is_read(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.yaml"
    file.write_text("shell: {unsandboxed: true, network: true, memory_mb: 512, processes: 64}\n")

    spec = load([file], environ={"HOME": str(tmp_path)}).shell

    assert spec == ShellSpec(unsandboxed=True, network=True, memory_mb=512, processes=64)


def test_hosts_that_commands_may_reach_are_read(tmp_path: Path) -> None:
    file = tmp_path / "toolcrib.yaml"
    file.write_text("shell: {network: [pypi.org, '*.pythonhosted.org', '${MIRROR}:443'], private_hosts: ['db:5432']}\n")

    spec = load([file], environ={"HOME": str(tmp_path), "MIRROR": "mirror.example"}).shell

    assert spec == ShellSpec(
        network=("pypi.org", "*.pythonhosted.org", "mirror.example:443"), private_hosts=("db:5432",)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shell: {unsandboxd: true}", "did you mean"),
        ("shell: {network: 1}", "shell.network: true, false or a list of hosts was expected"),
        ("shell: {unsandboxed: 1}", "true or false was expected"),
        ("shell: {network: [pypi.org, 'https://x.org/']}", r"shell.network.1: 'https://x.org/' is not a host"),
        ("shell: {network: [127.0.0.1]}", "is not a host"),
        ("shell: {private_hosts: [localhost]}", r"shell.private_hosts.0: 'localhost' is no `host:port`"),
        ("shell: {private_hosts: true}", "a list of hosts with their ports was expected"),
        ("shell: {network: true, private_hosts: ['a:1']}", "`network: true` reaches every host"),
        ("shell: {memory_mb: -1}", "a number above 0 was expected"),
        ("shell: [x]", "a mapping was expected"),
    ],
)
def test_what_is_wrong_in_it_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "toolcrib.yaml"
    file.write_text(f"{text}\n")

    with pytest.raises(ConfigError, match=message):
        load([file], environ={"HOME": str(tmp_path)})
