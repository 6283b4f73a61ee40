"""Permissions of single tools and limits of jobs, as the configuration file says them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rig import ROOT
from toolcrib.config import load
from toolcrib.errors import ConfigError
from toolcrib.jobs.settings import JobLimits, Retries


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_permissions_modes_and_jobs_of_two_files_are_put_together(tmp_path: Path) -> None:
    first = written(tmp_path, "a.yaml", "tool_permissions: {git_push: deny, '*': ask}\njobs: {working: 4, age: 60.5}\n")
    second = written(
        tmp_path, "b.yaml", "tool_permissions: {git_push: allow}\njobs: {working: 2}\nmodes: {m: {tools: {x: deny}}}\n"
    )
    settings = load([first, second], environ={}, cwd=tmp_path)
    assert settings.policy.tool_permissions == {"git_push": "allow", "*": "ask"}
    assert settings.jobs == JobLimits(working=2, age=60.5)
    assert settings.policy.modes["m"].tools == {"x": "deny"}


def test_everything_about_jobs_can_be_said(tmp_path: Path) -> None:
    text = "jobs: {engine: process, work: false, waiting: 5, max_seconds: 9.5, retries: {attempts: 4, backoff: 0.5}}\n"
    settings = load([written(tmp_path, "a.yaml", text)], environ={}, cwd=tmp_path)
    assert settings.jobs == JobLimits(
        engine="process", work=False, waiting=5, max_seconds=9.5, retries=Retries(attempts=4, backoff=0.5)
    )


def test_the_documented_defaults_of_jobs_are_the_defaults(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    block = page.partition("\n## jobs\n")[2].partition("```yaml\n")[2].partition("```")[0]
    assert load([written(tmp_path, "a.yaml", block)], environ={}, cwd=tmp_path).jobs == JobLimits()
    assert set(yaml.safe_load(block)["jobs"]) == set(JobLimits.model_fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tool_permissions: {git_push: never}", "tool_permissions.git_push: one of allow, ask, deny"),
        ("tool_permissions: [git_push]", "tool_permissions: a mapping was expected"),
        ("modes: {m: {tools: {git_push: no}}}", "modes.m.tools.git_push: one of allow, ask, deny"),
        ("jobs: {workers: 3}", "jobs.workers: unknown key"),
        ("jobs: {working: 0}", "jobs.working: a number above 0 was expected"),
        ("jobs: {engine: celery}", "jobs.engine: one of auto, process, durable was expected"),
        ("jobs: {work: 1}", "jobs.work: true or false was expected"),
        ("jobs: {retries: {times: 3}}", "jobs.retries.times: unknown key"),
        ("jobs: {retries: {attempts: 1.5}}", "jobs.retries.attempts: a whole number was expected"),
        ("jobs: {working: 1.5}", "jobs.working: a whole number was expected"),
    ],
)
def test_a_value_that_cannot_be_taken_is_named_with_its_line(text: str, reason: str, tmp_path: Path) -> None:
    file = written(tmp_path, "c.yaml", f"mode: manual\n{text}\n")
    with pytest.raises(ConfigError) as error:
        load([file], environ={}, cwd=tmp_path)
    assert f"{file}:2: " in str(error.value) and reason in str(error.value)


def test_what_they_say_is_part_of_the_digest(tmp_path: Path) -> None:
    texts = [
        "",
        "tool_permissions: {x: deny}",
        "tool_permissions: {x: ask}",
        "jobs: {working: 3}",
        "jobs: {engine: process}",
        "jobs: {retries: {attempts: 4}}",
        "modes: {m: {tools: {x: deny}}}",
        "modes: {m: {tools: {x: ask}}}",
    ]
    files = [written(tmp_path, f"{number}.yaml", f"{text}\nbuiltins: true\n") for number, text in enumerate(texts)]
    assert len({load([file], environ={}, cwd=tmp_path).digest() for file in files}) == len(texts)
