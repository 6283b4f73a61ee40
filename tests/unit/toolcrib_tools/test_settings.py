"""The settings tools: what they show, what they write into the user's file, and what is not for them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib
from toolcrib.config import Directories, load
from toolcrib.config.keys import CHANGEABLE, FIXED, KEYS, SECRET
from toolcrib.config.trust import Trust
from toolcrib.core.result import ToolError
from toolcrib.crib.session import Session
from toolcrib.testing import RecordingApprover
from toolcrib_tools import settings as tools
from unit.toolcrib.telemetry.collector import collecting
from unit.toolcrib_tools.telling import failure_of, told

TEXT = """\
# Mine.
mode: autonomous  # quick
profile: tiered   # for the agent

results:
  keep: 12h  # half a day
token: sesame-open-4711
chat: {model: "anthropic:claude"}
tools:
  settings:
    backends: {small: "local:tiny@http://127.0.0.1:1/v1", big: "openai:large"}
"""


class User:
    """A user with a configuration, a crib made of it, and a session of it."""

    def __init__(self, home: Path, files: tuple[Path, ...] = ()) -> None:
        self.home, self.files, self.cwd = home, files, home
        self.file = home / ".config" / "toolcrib" / "config.yaml"
        self.environ: Mapping[str, str] = {"HOME": str(home), "PATH": ""}
        self.approver = RecordingApprover("yes")
        self.session: Session

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncGenerator[User]:
        async with Toolcrib(load(self.files, {"builtins": False}, self.environ, cwd=self.cwd)) as crib:
            crib.add(tools)
            given: dict[str, Any] = {"profile": "flat", "approver": self.approver, **options}
            self.session = crib.session(**given)
            yield self

    async def told(self, name: str, **arguments: Any) -> Any:
        return await told(self.session, name, **arguments)

    async def refused(self, name: str, **arguments: Any) -> ToolError:
        return await failure_of(self.session, name, **arguments)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.chdir(tmp_path)
    made = User(tmp_path)
    made.file.parent.mkdir(parents=True)
    made.file.write_text(TEXT)
    return made


def test_every_key_of_the_file_is_shown_fixed_or_secret_and_a_secret_one_is_nothing_else() -> None:
    known = {*KEYS, "servers", "mcpServers", "openapi"}
    changeable = {key.partition(".")[0] for key in CHANGEABLE}

    assert known == {*FIXED, *SECRET, *changeable}
    assert SECRET.isdisjoint(FIXED)
    assert SECRET.isdisjoint(changeable)


def test_nothing_that_decides_what_is_allowed_is_for_tools_to_change() -> None:
    policy = {
        *("accept", "approvals", "budgets", "identities", "limits", "lock", "mode", "modes"),
        *("no_prefix", "rules", "shell", "tool_permissions", "untrusted", "workspace"),
        *(
            "catalogs",
            "host",
            "hosts",
            "openapi",
            "origins",
            "plugins",
            "port",
            "profiles",
            "servers",
            "skills",
            "telemetry",
            "workflows",
        ),
    }

    assert policy <= FIXED.keys()
    assert policy.isdisjoint({key.partition(".")[0] for key in CHANGEABLE})
    assert {"chat.model", "chat.mode", "jobs.working", "jobs.waiting", "jobs.max_seconds"}.isdisjoint(CHANGEABLE)
    assert sorted(SECRET) == [
        *("admin_token", "mcpServers", "redact", "registration", "store", "token", "tokens", "tools"),
    ]


@pytest.mark.process
async def test_a_setting_is_told_with_whether_it_can_be_changed(user: User) -> None:
    async with user.open(mode="review"):
        keep = await user.told("get_setting", key="results.keep")
        mode = await user.told("get_setting", key="mode")
        whole = await user.told("get_config", section="results")
        attempts = await user.told("get_setting", key="jobs.retries.attempts")

    assert keep == {"key": "results.keep", "value": 43_200, "can_be_changed": True}
    assert mode == {
        "key": "mode",
        "value": "review",
        "configured": "autonomous",
        "can_be_changed": False,
        "why_not": "it decides what is allowed",
    }
    assert whole == {"results": {"pass_whole": 1 << 20, "keep": 43_200, "quota": 2 << 30, "each": 256 << 20}}
    assert attempts["value"] == 3
    assert user.approver.questions == []


@pytest.mark.process
async def test_the_whole_configuration_is_shown_without_what_holds_secrets(user: User) -> None:
    parts = {
        "plugins": "{config: {weather: {place: hidden-1}}, disabled: [rain]}",
        "approvals": "{webhook: {url: 'https://hooks.test/hidden-2', secret: hidden-3}}",
        "identities": "{ada: {rules: {allow: ['hidden_4']}}}",
        "servers": "{crm: {command: crm, args: [hidden-5], env: {PLACE: hidden-6}}}",
    }
    with collecting() as collector:  # a crib waits at its end for a collector that does not answer
        parts["telemetry"] = f"{{otlp: '{collector.url}/hidden-7', content: true}}"
        user.file.write_text(TEXT + "".join(f"{key}: {value}\n" for key, value in parts.items()))
        async with user.open():
            shown = await user.told("get_config")
            keys = ("token", "tools.settings", "store")
            refusals = [(await user.refused("get_setting", key=key)).code for key in keys]

    assert (shown["profile"], shown["chat"]["model"]) == ("tiered", "anthropic:claude")
    assert SECRET.isdisjoint(shown)
    assert not {"sesame", "hidden"} & set(re.findall("[a-z]+", json.dumps(shown)))
    assert (shown["plugins"]["disabled"], shown["identities"], shown["servers"]) == (["rain"], ["ada"], ["crm"])
    assert shown["telemetry"]["content"] is True
    assert refusals == ["denied", "denied", "denied"]


async def test_a_setting_is_written_where_it_stands_and_comments_stay(user: User) -> None:
    async with user.open():
        changed = await user.told("update_setting", key="results.keep", value="30d")
        await user.told("update_setting", key="profile", value="gateway")
        await user.told("update_setting", key="jobs.retries.attempts", value=5)
        now = await user.told("get_setting", key="results.keep")

    assert (changed["before"], changed["after"], changed["file"]) == (43_200, 2_592_000, str(user.file))
    assert now["value"] == 43_200
    assert user.file.read_text() == (
        TEXT.replace("12h ", "30d ").replace("profile: tiered ", "profile: gateway ")
        + "jobs:\n  retries:\n    attempts: 5\n"
    )
    again = load((), environ=user.environ, cwd=user.home)
    assert (again.disclosure.profile, again.results.keep, again.jobs.retries.attempts) == ("gateway", 2_592_000, 5)


async def test_the_user_is_asked_each_time_also_where_everything_runs_by_itself(user: User) -> None:
    async with user.open(mode="autonomous"):
        await user.told("update_setting", key="jobs.kept", value=10)
        await user.told("update_setting", key="jobs.kept", value=11)
        await user.told("switch_backend", profile="big")
    asked = [question.tool.name for question in user.approver.questions]
    before = user.file.read_text()

    user.approver = RecordingApprover("no")
    async with user.open(mode="autonomous"):
        refusal = await user.refused("update_setting", key="jobs.kept", value=12)

    assert asked == ["update_setting", "update_setting", "switch_backend"]
    assert refusal.code == "denied"
    assert user.file.read_text() == before


REFUSED: list[tuple[str, Any, str, str]] = [
    ("mode", "autonomous", "denied", "mode is not for tools to change: it decides what is allowed"),
    ("rules.allow", "run_command", "denied", "it decides what is allowed"),
    ("limits.calls", 100_000, "denied", "it limits what may be used"),
    ("chat.model", "openai:large", "denied", "which model is asked"),
    ("results", "30d", "denied", "it holds several values: name one of them"),
    ("token", "mine", "denied", "token holds secrets"),
    ("profil", "flat", "not_found", "did you mean 'profile'"),
    ("results.kep", "1d", "not_found", "results.kep"),
    ("profile", "introspective", "invalid_arguments", "there is no profile 'introspective', only adaptive"),
    ("profile", "./evil.yaml", "invalid_arguments", "there is no profile './evil.yaml'"),
    ("results.keep", "soon", "invalid_arguments", "a time such as 7d or 12h was expected"),
    ("versions.grep", "${HOME}", "invalid_arguments", "takes no variables"),
]


async def test_what_cannot_be_changed_is_refused_with_its_reason(user: User) -> None:
    async with user.open():
        for key, value, code, said in REFUSED:
            refusal = await user.refused("update_setting", key=key, value=value)
            assert (key, refusal.code, said in refusal.message) == (key, code, True), refusal.message
            assert user.file.read_text() == TEXT


async def test_only_a_listed_backend_can_be_chosen(user: User) -> None:
    async with user.open():
        chosen = await user.told("switch_backend", profile="small")
        refusal = await user.refused("switch_backend", profile="http://evil.test")

    assert (chosen["before"], chosen["model"]) == ("anthropic:claude", "local:tiny@http://127.0.0.1:1/v1")
    assert (refusal.code, refusal.hint) == ("not_found", "there are small, big")
    assert load((), environ=user.environ, cwd=user.home).chat.model == "local:tiny@http://127.0.0.1:1/v1"


async def test_without_listed_backends_the_setting_is_named(user: User) -> None:
    user.file.write_text("profile: flat\n")
    async with user.open():
        refusal = await user.refused("switch_backend", profile="small")

    assert refusal.code == "unavailable"
    assert "tools: {settings: {backends:" in (refusal.hint or "")


async def test_a_file_is_made_where_there_was_none(user: User) -> None:
    user.file.unlink()
    async with user.open():
        await user.told("update_setting", key="profile", value="flat")

    assert user.file.read_text() == "profile: flat\n"
    assert user.file.stat().st_mode & 0o777 == 0o600


async def test_the_file_that_was_named_is_changed_and_no_other(user: User) -> None:
    named = user.home / "mine.yaml"
    named.write_text("# named\nprofile: flat\n")
    user.files = (named,)
    async with user.open():
        await user.told("update_setting", key="profile", value="tiered")

    assert named.read_text() == "# named\nprofile: tiered\n"
    assert user.file.read_text() == TEXT


async def test_what_a_project_overrides_is_taken_back(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that would hold nowhere is no change: the file is as it was."""
    project = user.home / "work" / ".toolcrib" / "config.yaml"
    project.parent.mkdir(parents=True)
    project.write_text("jobs: {kept: 7}\n")
    Trust(Directories.of(user.environ)).confirm([(project, project.read_bytes())])
    user.cwd = project.parent.parent
    monkeypatch.chdir(user.cwd)
    async with user.open():
        refusal = await user.refused("update_setting", key="jobs.kept", value=9)
        await user.told("update_setting", key="jobs.age", value=60)

    assert (refusal.code, "another file says something else" in refusal.message) == ("tool_error", True)
    assert (user.file.read_text(), project.read_text()) == (f"{TEXT}jobs:\n  age: 60\n", "jobs: {kept: 7}\n")


async def test_a_file_that_cannot_be_read_any_more_is_left_as_it_is(user: User) -> None:
    async with user.open():
        user.file.write_text("profile: flat\nbad_key: 1\n")
        refusal = await user.refused("update_setting", key="jobs.kept", value=9)

    assert (refusal.code, "unknown key" in refusal.message) == ("tool_error", True)
    assert user.file.read_text() == "profile: flat\nbad_key: 1\n"


async def test_a_client_that_does_not_run_the_crib_sees_and_changes_nothing(user: User) -> None:
    async with user.open(principal="guest"):
        codes = [
            (await user.refused("get_config")).code,
            (await user.refused("get_setting", key="profile")).code,
            (await user.refused("update_setting", key="profile", value="flat")).code,
            (await user.refused("switch_backend", profile="big")).code,
        ]

    assert codes == ["denied"] * 4
    assert user.file.read_text() == TEXT


async def test_a_crib_that_a_program_made_writes_no_files_of_its_user(user: User) -> None:
    async with Toolcrib(load((), environ=user.environ, cwd=user.home), memory=True) as crib:
        crib.add(tools)
        result = await crib.session(profile="flat", approver=user.approver).call(
            "update_setting", {"key": "profile", "value": "flat"}
        )

    assert result.error is not None
    assert (result.error.code, user.file.read_text()) == ("unavailable", TEXT)
