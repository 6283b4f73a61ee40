"""Keys of the configuration file: each is in the settings as it is said, and a wrong one is named with its place."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from rig import ROOT
from toolcrib.cli.processes.server import http_options
from toolcrib.config import Settings
from toolcrib.config.settings import RegistrationSettings, ShellSpec, StoreSpec, TokenSpec, WorkspaceSpec
from toolcrib.crib import Toolcrib
from toolcrib.errors import ConfigError
from toolcrib.jobs.settings import JobLimits, Retries
from toolcrib.mcp.server.service import ServiceLimits
from toolcrib.policy.modes import MODES
from toolcrib.policy.settings import ApprovalSettings, Webhook
from toolcrib.policy.taint import Taint
from toolcrib.results.settings import RetentionSettings
from toolcrib.store.settings import Retention
from unit.toolcrib.config.written import read

KEY = base64.b64encode(bytes(range(32))).decode()
SECRETS = {"ROOT": "root-token", "PASSWORD": "hunter22", "KEY": KEY, "HOOK_KEY": "k3y-of-the-hook"}


def settings(folder: Path, *texts: str) -> Settings:
    return read(folder, *texts, HOME=str(folder), MIRROR="mirror.example", **SECRETS)


SAID: list[tuple[str, Callable[[Settings], object], object]] = [
    ("{}", lambda found: found.results, RetentionSettings()),
    (
        "results: {keep: 12h, quota: 1GiB, each: 512KiB}",
        lambda found: found.results,
        RetentionSettings(keep=43_200.0, quota=1 << 30, each=512 << 10),
    ),
    ("results: {pass_whole: 2MiB}", lambda found: found.results, RetentionSettings(pass_whole=2 << 20)),
    ("results: {keep: 90.5, quota: 5000}", lambda found: found.results, RetentionSettings(keep=90.5, quota=5000)),
    (
        "admin_token: ${ROOT}\ntokens: [{token: a, principal: ada, instances: [shop]}, {token: b, scope: admin}]",
        lambda found: (found.http.admin_token, *found.http.tokens),
        ("root-token", TokenSpec(token="a", principal="ada", instances=("shop",)), TokenSpec(token="b", scope="admin")),
    ),
    (
        "hosts: [Crib.example.org, '[::1]']\norigins: ['https://chat.example.org:8443']\ndrain: 30s",
        lambda found: (http_options(found).hosts, http_options(found).origins, http_options(found).limits.drain),
        (("Crib.example.org", "[::1]"), ("https://chat.example.org:8443",), 30.0),
    ),
    ("{}", lambda found: http_options(found).limits.drain, ServiceLimits().drain),
    ("{}", lambda found: found.http.registration, RegistrationSettings()),
    (
        "registration: {accept: true, commands: true, private_hosts: ['10.0.0.7:8080']}",
        lambda found: found.http.registration,
        RegistrationSettings(accept=True, commands=True, private_hosts=("10.0.0.7:8080",)),
    ),
    ("{}", lambda found: found.store, StoreSpec()),
    (
        "store: postgresql://ada:${PASSWORD}@db/crib",
        lambda found: found.store,
        StoreSpec(url="postgresql://ada:hunter22@db/crib"),
    ),
    (
        "store: {url: 'postgres://db/crib', key: '${KEY}'}",
        lambda found: found.store,
        StoreSpec(url="postgres://db/crib", key=bytes(range(32))),
    ),
    ("store: {key: '${KEY}'}", lambda found: found.store, StoreSpec(key=bytes(range(32)))),
    ("{}", lambda found: found.records, Retention()),
    (
        "records: {keep: 90d, max_rows: 1000000}",
        lambda found: found.records,
        Retention(keep=90 * 86_400, max_rows=1_000_000),
    ),
    ("records: {keep: 172800}", lambda found: found.records, Retention(keep=172_800)),
    ("{}", lambda found: found.workspace, WorkspaceSpec()),
    (
        "workspace: {roots: [., '~'], guarded: ['*.secret'], hard_links: [vendor]}",
        lambda found: (found.workspace.guarded, found.workspace.hard_links, len(found.workspace.roots)),
        (("*.secret",), ("vendor",), 2),
    ),
    (
        "jobs: {engine: process, work: false, waiting: 5, max_seconds: 9.5, retries: {attempts: 4, backoff: 0.5}}",
        lambda found: found.jobs,
        JobLimits(engine="process", work=False, waiting=5, max_seconds=9.5, retries=Retries(attempts=4, backoff=0.5)),
    ),
    (
        "shell: {unsandboxed: true, network: true, memory_mb: 512, processes: 64}",
        lambda found: found.shell,
        ShellSpec(unsandboxed=True, network=True, memory_mb=512, processes=64),
    ),
    (
        "shell: {network: [pypi.org, '*.pythonhosted.org', '${MIRROR}:443'], private_hosts: ['db:5432']}",
        lambda found: found.shell,
        ShellSpec(network=("pypi.org", "*.pythonhosted.org", "mirror.example:443"), private_hosts=("db:5432",)),
    ),
    (
        "{}",
        lambda found: found.approvals,
        ApprovalSettings(expires=600.0, idle=300.0, pending=100, wait=False, when_gone="drop", webhook=None),
    ),
    (
        "servers: {wiki: {command: wiki, trusted: true}, web: {command: web}}",
        lambda found: {spec.name: spec.trusted for spec in found.sources.servers},
        {"wiki": True, "web": False},
    ),
]


@pytest.mark.parametrize(("text", "part", "expected"), SAID, ids=[f"{n}-{row[0][:40]}" for n, row in enumerate(SAID)])
def test_what_a_key_says_is_in_the_settings(
    tmp_path: Path, text: str, part: Callable[[Settings], object], expected: object
) -> None:
    assert part(settings(tmp_path, f"{text}\n")) == expected


WRONG = [
    ("results: {keep: 7 days}", "results.keep: a time such as 7d or 12h was expected"),
    ("results: {quota: 2GB}", "results.quota: a size such as 256MiB or 2GiB was expected"),
    ("results: {pass_whole: 17MiB}", "results.pass_whole: at most 16MiB was expected"),
    ("results: {each: 0}", "results.each: a number above 0 was expected"),
    ("results: {kep: 7d}", "did you mean 'keep'?"),
    ("untrusted: {ask: maybe}", "untrusted.ask: true or false was expected"),
    ("untrusted: {trusted: wiki}", "untrusted.trusted: a list of strings was expected"),
    ("untrusted: {trust: [wiki]}", "did you mean 'trusted'?"),
    ("tokens: x", "tokens: a list of tokens was expected"),
    ("tokens: [{scope: admin}]", "tokens.0.token: is required"),
    ("tokens: [{token: a, scope: root}]", "tokens.0.scope: one of call, admin was expected"),
    ("tokens: [{token: a, instance: b}]", "tokens.0.instance: unknown key; did you mean 'instances'?"),
    ("hosts: ['https://a.example']", "hosts.0: 'https://a.example' is not the name of a host"),
    ("hosts: ['a.example:8443']", "hosts.0: 'a.example:8443' is not the name of a host"),
    ("origins: [a.example]", "origins.0: 'a.example' is not a web origin"),
    ("registration: {accept: maybe}", "registration.accept: true or false was expected"),
    ("registration:\n  private_hosts: ['a/b']", "registration.private_hosts.0: 'a/b' is not a host"),
    ("store: mysql://db", "store: a URL postgresql://user:password@host/database, or the path of a SQLite file, was"),
    ("store: ':memory:'", "keeps everything in memory) was expected"),
    ("store: 3", "store: a string was expected"),
    ("tokens: [{token: ''}]", "tokens.0.token: a string that is not blank was expected"),
    ("store: {ur: x}", "store.ur: unknown key"),
    ("store: {key: c2hvcnQ=}", "store.key: 32 bytes in base64, such as `openssl rand -base64 32` makes, was expected"),
    ("store: {key: hunter22}", "store.key: 32 bytes in base64"),
    ("records: 90d", "records: a mapping was expected"),
    ("records: {keep: soon}", "records.keep: a time such as 7d or 12h was expected"),
    ("records: {keep: 1h}", "records.keep: at least 1d was expected"),
    ("records: {keep: true}", "records.keep: a number was expected"),
    ("records: {max_rows: 10}", "records.max_rows: at least 1000 rows was expected"),
    ("records: {max_rows: 1e6}", "records.max_rows: a whole number was expected"),
    ("records: {days: 3}", "records.days: unknown key"),
    ("workspace: {root: [.]}", "workspace.root: unknown key; did you mean 'roots'?"),
    ("workspace: [.]", "workspace: a string was expected"),
    ("workspace: {roots: .}", "workspace.roots: a list of strings was expected"),
    ("modes:\n  a: {files: both}", "modes.a.files: one of direct, review, audit was expected"),
    ("modes: {a: {extends: b}, b: {extends: a}}", "modes.a.extends: these modes extend one another: a, b"),
    ("modes: {a: {extends: nobody}}", "modes.a.extends: unknown mode 'nobody'"),
    ("modes: {m: {tools: {git_push: no}}}", "modes.m.tools.git_push: one of allow, ask, deny"),
    ("tool_permissions: {git_push: never}", "tool_permissions.git_push: one of allow, ask, deny"),
    ("tool_permissions: [git_push]", "tool_permissions: a mapping was expected"),
    ("jobs: {workers: 3}", "jobs.workers: unknown key"),
    ("jobs: {working: 0}", "jobs.working: a number above 0 was expected"),
    ("jobs: {engine: celery}", "jobs.engine: one of auto, process, durable was expected"),
    ("jobs: {work: 1}", "jobs.work: true or false was expected"),
    ("jobs: {retries: {times: 3}}", "jobs.retries.times: unknown key"),
    ("jobs: {retries: {attempts: 1.5}}", "jobs.retries.attempts: a whole number was expected"),
    ("jobs: {working: 1.5}", "jobs.working: a whole number was expected"),
    ("shell: {unsandboxd: true}", "did you mean"),
    ("shell: {network: 1}", "shell.network: true, false or a list of hosts was expected"),
    ("shell: {unsandboxed: 1}", "shell.unsandboxed: true or false was expected"),
    ("shell: {network: [pypi.org, 'https://x.org/']}", "shell.network.1: 'https://x.org/' is not a host"),
    ("shell: {network: [127.0.0.1]}", "is not a host"),
    ("shell: {private_hosts: [localhost]}", "shell.private_hosts.0: 'localhost' is not `host:port`"),
    ("shell: {private_hosts: true}", "a list of hosts with their ports was expected"),
    ("shell: {network: true, private_hosts: ['a:1']}", "`network: true` reaches every host"),
    ("shell: {memory_mb: -1}", "a number above 0 was expected"),
    ("shell: [x]", "shell: a mapping was expected"),
    ("approvals: {expire: 1}", "did you mean 'expires'"),
    ("approvals: {expires: 0}", "approvals.expires: a number above 0"),
    ("approvals: {expires: 90000}", "approvals.expires: at most 86400 seconds"),
    ("approvals: {pending: 1.5}", "approvals.pending: a whole number"),
    ("approvals: {wait: 1}", "approvals.wait: true or false"),
    ("approvals: {when_gone: maybe}", "approvals.when_gone: one of drop, run"),
    ("approvals: {webhook: {url: 'ftp://x'}}", "approvals.webhook.url: an http:// or https:// URL"),
    ("approvals: {webhook: {uri: 'x'}}", "did you mean 'url'"),
    ("approvals: []", "approvals: a mapping"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG)
def test_a_wrong_value_is_named_with_its_file_line_and_key(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(tmp_path, f"mode: manual\n{text}\n")
    assert f"{tmp_path / '0.yaml'}:{2 + text.count(chr(10))}: " in str(error.value)
    assert reason in str(error.value)
    assert "hunter22" not in str(error.value)


SERVED = [
    "{}",
    "hosts: [a]",
    "origins: ['http://a']",
    "admin_token: a",
    "tokens: [{token: a}]",
    "registration: {accept: true}",
    "store: postgresql://db/a",
    "store: postgresql://db/b",
    f"store: {{key: '{KEY}'}}",
    "records: {keep: 1d}",
    "records: {max_rows: 1000}",
    "workspace: .",
    "tool_permissions: {x: deny}",
    "tool_permissions: {x: ask}",
    "jobs: {working: 3}",
    "jobs: {engine: process}",
    "jobs: {retries: {attempts: 4}}",
    "modes: {m: {tools: {x: deny}}}",
    "modes: {m: {tools: {x: ask}}}",
    "approvals: {wait: true}",
    "budgets: {session: {calls: 1}}",
    "budgets: {identity: {calls: 1}}",
    "budgets: {tools: {a: {calls: 1}}}",
]


def test_configurations_that_differ_in_any_of_these_share_no_daemon(tmp_path: Path) -> None:
    assert len({settings(tmp_path, f"{text}\n").digest() for text in SERVED}) == len(SERVED)


def test_a_later_file_changes_single_entries(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "results: {keep: 1d, quota: 1GiB}\nuntrusted: {trusted: [a], private: [p]}\n"
        "tool_permissions: {git_push: deny, '*': ask}\njobs: {working: 4, age: 60.5}\n"
        "approvals: {expires: 60, idle: 30, pending: 5, wait: true, when_gone: run, timeout: 20}\n"
        "modes: {b: {extends: a, write: deny}}\n",
        "results: {quota: 2GiB}\nuntrusted: {trusted: [b], ask: false}\n"
        "tool_permissions: {git_push: allow}\njobs: {working: 2}\n"
        "approvals: {wait: false, webhook: {url: 'https://hook.example/ask', secret: '${HOOK_KEY}'}}\n"
        "modes: {a: {extends: review}}\nmode: b\n",
    )
    assert found.results == RetentionSettings(keep=86_400.0, quota=2 << 30)
    assert found.policy.untrusted == Taint(ask=False, trusted=("b",), private=("p",))
    assert found.policy.tool_permissions == {"git_push": "allow", "*": "ask"}
    assert found.jobs == JobLimits(working=2, age=60.5)
    webhook = Webhook(url="https://hook.example/ask", secret="k3y-of-the-hook")
    assert found.approvals == ApprovalSettings(
        expires=60, idle=30, pending=5, wait=False, when_gone="run", timeout=20, webhook=webhook
    )
    assert (found.policy.mode, found.policy.modes["b"]) == ("b", replace(MODES["review"], name="b", write="deny"))


def test_secrets_of_every_key_are_masked_and_never_printed(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "store: {url: 'postgresql://ada:${PASSWORD}@db/crib', key: '${KEY}'}\nadmin_token: ${ROOT}\n"
        "approvals: {webhook: {url: 'https://hook.example/ask', secret: '${HOOK_KEY}'}}\n",
    )
    assert set(SECRETS.values()) <= set(found.secrets)
    assert [secret for secret in SECRETS.values() if secret in repr(found)] == []


def test_the_documented_defaults_of_jobs_are_the_defaults(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    block = page.partition("\n## jobs\n")[2].partition("```yaml\n")[2].partition("```")[0]
    assert settings(tmp_path, block).jobs == JobLimits()
    assert set(yaml.safe_load(block)["jobs"]) == set(JobLimits.model_fields)


def test_a_folder_alone_is_the_workspace_and_one_that_is_not_there_is_a_problem_and_hides_no_other(
    tmp_path: Path,
) -> None:
    assert settings(tmp_path, "workspace: .").workspace == WorkspaceSpec(roots=(tmp_path,))
    found = settings(tmp_path, "workspace: {roots: [nowhere, .]}")
    assert found.workspace.roots == (tmp_path,)
    assert [(problem.source, "nowhere" in problem.message) for problem in found.problems] == [("workspace", True)]


async def test_the_settings_are_those_of_the_running_crib(tmp_path: Path) -> None:
    async with Toolcrib(settings(tmp_path, "results: {each: 5000}\nbuiltins: false\n"), memory=True) as crib:
        crib.add(long_words)
        result = await crib.session(mode="autonomous").call("long_words")
    assert "The rest is lost: the output has more than 5000 bytes" in result.text


def long_words() -> str:
    """Return more than is kept."""
    return "word " * 20_000


def background(folder: Path, said: str) -> Settings:
    return settings(folder, f"servers: {{builder: {{command: x, background_after: {said}}}, other: {{command: y}}}}\n")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("10", {"build": 10.0, "test": 10.0}),
        ("{build: 0}", {"build": 0.0, "test": None}),
        ("{build: 0, '*': 2.5}", {"build": 0.0, "test": 2.5}),
    ],
)
def test_a_server_says_for_all_tools_or_by_tool_when_one_goes_on_in_the_background(
    tmp_path: Path, said: str, seconds: dict[str, float | None]
) -> None:
    builder, other = background(tmp_path, said).sources.servers

    assert {tool: builder.goes_on_after(tool) for tool in seconds} == seconds
    assert {tool: other.goes_on_after(tool) for tool in seconds} == dict.fromkeys(seconds)
    assert builder.key() != background(tmp_path, "99").sources.servers[0].key(), (
        "a list that was kept on disk is not taken for it"
    )


@pytest.mark.parametrize("said", ["soon", "-1", "true", ".inf", "{build: later}"])
def test_what_is_no_number_of_seconds_is_named_and_hides_no_other_server(tmp_path: Path, said: str) -> None:
    found: Any = background(tmp_path, said)
    key = "background_after.build" if said.startswith("{") else "background_after"

    assert [spec.name for spec in found.sources.servers] == ["other"]
    assert [problem.message for problem in found.problems if key in problem.message] != []
