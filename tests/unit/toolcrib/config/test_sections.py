"""Settings models: one field is a key's validation, default, digest and line of the reference; errors come together."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toolcrib
from rig import ROOT
from toolcrib.config import load
from toolcrib.core.settings import Section
from toolcrib.errors import ConfigError, ConfigErrors
from toolcrib.jobs.settings import JobLimits, Retries

SECRETS = ("hunter22", "pl4in-s3cret", "w3bhook-s3cret")

WRONG = """\
store:
  key: hunter22
  ur: postgresql://db
jobs:
  wroking: 1
  retries: {attempts: 1.5, back: 2}
  engine: celery
colour: red
tokens:
  - {token: pl4in-s3cret, scope: root}
  - {scope: call}
shell:
  private_hosts: [localhost]
  memory_mb: ${MEMORY}
  processes: many
approvals:
  webhook: {secret: w3bhook-s3cret, url: 3}
mode: manual
"""

KEYS_PAGE = ROOT / "docs" / "reference" / "configuration.py"

PROGRAM = """\
import runpy
import sys
from pathlib import Path
from toolcrib.config import load
from toolcrib.config.keys import fixed_by
from toolcrib.errors import ConfigError

def settings(text):
    file = Path(sys.argv[1]) / "toolcrib.yaml"
    file.write_text(text)
    return load([file], environ={"HOME": sys.argv[1]}, cwd=sys.argv[1])

def refused(text):
    try:
        settings(text)
    except ConfigError as error:
        return str(error).partition("toolcrib.yaml:")[2]

print(settings("mode: manual").jobs.priority, settings("jobs: {priority: 7}").jobs.priority)
print(refused("mode: manual\\njobs: {priority: high}"))
print(refused("mode: manual\\njobs: {priorty: 7}"))
print(len({settings(text).digest() for text in ("mode: manual", "mode: manual\\njobs: {priority: 7}")}))
print(repr(fixed_by("jobs.priority")), "|", fixed_by("jobs.working"))
table = runpy.run_path(sys.argv[2])["key_table"]()
print(next(row for row in table.splitlines() if "jobs.priority" in row))
"""


def refused(folder: Path, text: str) -> ConfigError:
    file = folder / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load([file], environ={"HOME": str(folder)}, cwd=folder)
    return caught.value


def test_all_errors_of_a_file_come_at_once_in_its_order_without_a_secret(tmp_path: Path) -> None:
    error = refused(tmp_path, WRONG)

    assert isinstance(error, ConfigErrors)
    assert [(one.file.rpartition(":")[2], one.key) for one in error.errors] == [
        ("2", "store.key"),
        ("3", "store.ur"),
        ("5", "jobs.wroking"),
        ("6", "jobs.retries.attempts"),
        ("6", "jobs.retries.back"),
        ("7", "jobs.engine"),
        ("8", "colour"),
        ("10", "tokens.0.scope"),
        ("11", "tokens.1.token"),
        ("13", "shell.private_hosts.0"),
        ("14", "shell.memory_mb"),
        ("15", "shell.processes"),
        ("17", "approvals.webhook.url"),
    ]
    assert "did you mean 'working'?" in str(error) and "did you mean 'backoff'?" in str(error)
    assert not [secret for secret in SECRETS if secret in str(error)]


def test_one_error_is_raised_as_it_is(tmp_path: Path) -> None:
    error = refused(tmp_path, "jobs:\n  seconds: 0\n")

    assert (type(error), error.file, error.key) == (ConfigError, f"{tmp_path / 'c.yaml'}:2", "jobs.seconds")


def test_an_object_that_only_a_program_can_set_is_no_key_of_a_file(tmp_path: Path) -> None:
    error = refused(tmp_path, "telemetry: {tracers: null, meters: 3}\n")

    assert (error.key, "unknown key" in str(error)) == ("telemetry.meters", True)


def test_a_key_without_a_value_sets_nothing_and_a_later_section_changes_single_keys(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("jobs: {working: 3, retries: {attempts: 9}}\n")
    second.write_text("jobs: {working: null, waiting: 5, retries: {backoff: 0.5}}\n")

    jobs = load([first, second], environ={}, cwd=tmp_path).jobs

    assert jobs == JobLimits(working=3, waiting=5, retries=Retries(attempts=9, backoff=0.5))


def test_a_section_that_is_replaced_whole_keeps_nothing_of_an_earlier_file(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("shell: {network: true, memory_mb: 9}\n")
    second.write_text("shell: {memory_mb: 8}\n")

    shell = load([first, second], environ={}, cwd=tmp_path).shell

    assert (shell.network, shell.memory_mb) == (False, 8)


@pytest.mark.parametrize(
    ("content", "key"),
    [(b"\xff\xfe\x00m", "UTF-8"), (b"# " + b"x" * (1 << 20), "larger than 1024 KiB")],
    ids=["encoding", "size"],
)
def test_a_file_that_cannot_be_read_as_text_is_one_error_with_its_path(
    tmp_path: Path, content: bytes, key: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load([file], environ={}, cwd=tmp_path)

    assert (type(caught.value), caught.value.file.removesuffix(":1"), key in str(caught.value)) == (
        ConfigError,
        str(file),
        True,
    )


def test_the_value_of_a_secret_key_is_masked_and_not_in_how_settings_look(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "tokens: [{token: pl4in-s3cret}]\napprovals: {webhook: {url: 'https://h', secret: w3bhook-s3cret}}\n"
    )

    settings = load([file], environ={}, cwd=tmp_path)

    assert {"pl4in-s3cret", "w3bhook-s3cret"} <= set(settings.secrets)
    assert not [secret for secret in SECRETS if secret in repr(settings)]


@pytest.mark.parametrize("name", ["missing.yaml", "folder"])
def test_a_file_that_cannot_be_opened_is_one_error_with_its_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(ConfigError) as caught:
        load([tmp_path / name], environ={}, cwd=tmp_path)

    assert (type(caught.value), caught.value.file) == (ConfigError, str(tmp_path / name))


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("rules: {allow: [a]}\n")
    stat = os.fstat

    def write_between(descriptor: int) -> os.stat_result:
        found = stat(descriptor)
        with file.open("a") as other:
            other.write("mode: manual\n")
        return found

    monkeypatch.setattr(os, "fstat", write_between)
    with pytest.raises(ConfigError) as caught:
        load([file], environ={}, cwd=tmp_path)

    assert (caught.value.file, "changed while it was read" in str(caught.value)) == (str(file), True)


def sections(kind: type[Section] = Section) -> list[type[Section]]:
    return [one for sub in kind.__subclasses__() for one in (sub, *sections(sub))]


def test_no_section_can_be_changed_or_takes_an_unknown_key() -> None:
    for kind in sections():
        config: Any = kind.model_config
        assert (config.get("frozen"), config.get("extra")) == (True, "forbid"), kind


@pytest.mark.process
def test_a_new_key_is_one_line_in_its_model(tmp_path: Path) -> None:
    tree = tmp_path / "tree" / "toolcrib"
    shutil.copytree(Path(toolcrib.__file__).parent, tree, ignore=shutil.ignore_patterns("__pycache__"))
    module = tree / "jobs" / "settings.py"
    line = '    priority: Count = setting(3, changed_by="tool")\n    """Place in the queue."""\n'
    module.write_text(module.read_text("utf-8").replace("    working: Count", line + "    working: Count"), "utf-8")

    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(KEYS_PAGE)]
    environment = {**os.environ, "PYTHONPATH": str(tree.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "3 7",
        "2: jobs.priority: a whole number was expected",
        "2: jobs.priorty: unknown key; did you mean 'priority'?",
        "2",
        "'' | it limits what may be used",
        "| `jobs.priority` * | whole number | `3` | Place in the queue. |",
    ]


EVERY_READER = """\
servers:
  git: {comand: x, args: y, timeout: soon, annotations: {t: reed}}
  web: {url: "ftp://h", auth: {grant: password, scopes: 3}, headers: {A: "${UNSET}"}}
  good: {command: x}
sources:
  openapi:
    bad: {base_url: "https://h?x=1", auth: [{type: beare}, {type: basic, user: u}], hedaers: {}}
    fine: {spec: a.json}
"""

EVERY_KEY = """\
profiles: {mine: 3, other: [x]}
guard: maybe
modes:
  a: {raed: allow, write: maybe, rules: {deny: [3]}}
  b: {plan: 1, rules: {ask: ["x(", "y"], allow: ["z("]}}
rules: {dney: [x], ask: y, allow: [""]}
identities:
  ann: {moed: x, limits: {calls: -1}, allowed_tools: y, rules: {deny: {}}}
  bob: 3
tool_permissions: {a: alow, b: 1}
redact: [1, "${UNSET}"]
catalogs: [3, {name: x}, {file: f, code: 3}]
skills: {project: 1, user: x, paths: y}
ranking: {embeder: x}
tools: {web: {robot: x, serach: {}}, lsp: 3}
workflows: 3
versions: {a: 1}
servers: 3
sources: {opnapi: 1, openapi: [x]}
"""


def test_every_reader_names_all_that_is_wrong_in_its_part_in_the_order_of_the_file(tmp_path: Path) -> None:
    error = refused(tmp_path, EVERY_KEY)

    assert isinstance(error, ConfigErrors)
    assert [(int(one.file.rpartition(":")[2]), one.key) for one in error.errors] == [
        (1, "profiles.mine"),
        (1, "profiles.other"),
        (2, "guard"),
        (4, "modes.a.raed"),
        (4, "modes.a.write"),
        (4, "modes.a.rules.deny.0"),
        (5, "modes.b.plan"),
        (6, "rules.dney"),
        (6, "rules.ask"),
        (6, "rules.allow.0"),
        (8, "identities.ann.moed"),
        (8, "identities.ann.limits.calls"),
        (8, "identities.ann.allowed_tools"),
        (8, "identities.ann.rules.deny"),
        (9, "identities.bob"),
        (10, "tool_permissions.a"),
        (10, "tool_permissions.b"),
        (11, "redact.0"),
        (11, "redact.1"),
        (12, "catalogs.0"),
        (12, "catalogs.1.file"),
        (12, "catalogs.2.code"),
        (13, "skills.project"),
        (13, "skills.user"),
        (13, "skills.paths"),
        (14, "ranking.embeder"),
        (15, "tools.web.robot"),
        (15, "tools.web.serach"),
        (15, "tools.lsp"),
        (16, "workflows"),
        (17, "versions.a"),
        (18, "servers"),
        (19, "sources.opnapi"),
        (19, "sources.openapi"),
    ]


def test_every_entry_names_all_that_is_wrong_in_it_and_hides_no_other(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(EVERY_READER)

    settings = load([file], environ={"HOME": str(tmp_path)}, cwd=tmp_path)

    assert [spec.name for spec in settings.sources.servers] == ["good"]
    assert [spec.name for spec in settings.sources.openapi] == ["fine"]
    places = [(one.source, *one.message.removeprefix(f"{file}:").split(": ")[:2]) for one in settings.problems]
    assert places == [
        ("git", "2", "servers.git.comand"),
        ("git", "2", "servers.git.args"),
        ("git", "2", "servers.git.timeout"),
        ("git", "2", "servers.git.annotations.t"),
        ("web", "3", "servers.web.url"),
        ("web", "3", "servers.web.auth.grant"),
        ("web", "3", "servers.web.auth.scopes"),
        ("web", "3", "servers.web.headers.A"),
        ("bad", "7", "sources.openapi.bad.base_url"),
        ("bad", "7", "sources.openapi.bad.auth.0.type"),
        ("bad", "7", "sources.openapi.bad.auth.1.user"),
        ("bad", "7", "sources.openapi.bad.hedaers"),
        ("bad", "7", "sources.openapi.bad.spec"),
    ]


def test_modes_that_cannot_be_built_or_found_are_named_together_with_their_place(tmp_path: Path) -> None:
    error = refused(
        tmp_path, "mode: x\nmodes:\n  a: {extends: nothing}\n  b: {rules: {ask: ['x(', y], allow: ['z(']}}\n"
    )
    assert [one.key for one in error.each] == ["modes.b.rules.ask.0", "modes.b.rules.allow.0"]

    error = refused(tmp_path, "mode: x\nmodes:\n  a: {extends: nothing}\nidentities: {ann: {mode: y}}\n")
    assert [(one.file.rpartition(":")[2], one.key) for one in error.each][:1] == [("3", "modes.a.extends")]
    assert [one.key for one in error.each] == ["modes.a.extends", "mode", "identities.ann.mode"]


def test_the_errors_of_several_files_come_together(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("modee: x\n")
    second.write_text("port: x\njobs: {}\nhots: y\n")

    with pytest.raises(ConfigErrors) as caught:
        load([first, second], environ={}, cwd=tmp_path)

    assert [(one.file, one.key) for one in caught.value.errors] == [
        (f"{first}:1", "modee"),
        (f"{second}:1", "port"),
        (f"{second}:3", "hots"),
    ]
