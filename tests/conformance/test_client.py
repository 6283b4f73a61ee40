"""The official MCP conformance suite on our MCP source as a client, logins above all: `client.py` is what it starts.

A scenario that fails and is not listed in `expected/client/`, or one that is listed and passes, fails here.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from rig import ROOT, node, node_env, npm_package_main

HERE = Path(__file__).parent
EXPECTED = HERE / "expected" / "client"
SUITE = "@modelcontextprotocol/conformance"
REVISIONS = ("2025-11-25", "2026-07-28")
SECONDS = 250


@pytest.mark.timeout(SECONDS * 4)
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_official_suite_finds_exactly_the_listed_failures_of_our_client(revision: str, tmp_path: Path) -> None:
    required, others = _scenarios(revision)

    # One after the other: the suite itself starts all clients at once, which no busy machine takes well.
    found = {scenario: _failures(scenario, revision, tmp_path) for scenario in (*required, *others)}

    told = "\n".join(failure for failures in found.values() for failure in failures)
    assert {scenario for scenario in required if found[scenario]} == _listed(revision, "client"), told
    assert {scenario for scenario in others if found[scenario]} == _listed(revision, "not_scored"), told


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_expected_failure_of_our_client_tells_its_reason(revision: str) -> None:
    lines = (EXPECTED / f"{revision}.yaml").read_text(encoding="utf-8").splitlines()

    entries = [line for line in lines if line.lstrip().startswith("- ")]

    assert [line for line in entries if not re.fullmatch(r"  - [\w:/-]+  # \S.{10,}", line)] == []


@cache
def _scenarios(revision: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the revision requires of a client, and what the suite runs beyond that."""
    lists = yaml.safe_load((npm_package_main(SUITE).parents[1] / "requirements" / f"{revision}.yaml").read_text())
    others = (entry["scenario"] for entry in lists["not_scored"] if entry["leg"] == "client")
    return tuple(lists["client"]), tuple(others)


def _failures(scenario: str, revision: str, results: Path) -> list[str]:
    """Run one scenario; return what failed in it."""
    client = f"{sys.executable} {HERE / 'client.py'}"
    options = ("--spec-version", revision, "--force", "--timeout", str(SECONDS * 1000), "-o", str(results))
    done = subprocess.run(
        [node(), npm_package_main(SUITE), "client", "--command", client, "--scenario", scenario, *options],
        cwd=ROOT,
        env=node_env({"NO_COLOR": "1"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS + 30,
        check=False,
    )
    checks = list(_checks(results, scenario))
    assert checks, f"{scenario} was not run:\n{done.stdout[-3000:]}{done.stderr[-1000:]}"
    return [f"{scenario}: {check['id']}: {check['description']}" for check in checks if check["status"] == "FAILURE"]


def _checks(results: Path, scenario: str) -> Iterator[dict[str, str]]:
    for path in sorted(results.rglob("checks.json")):
        if re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", path.parent.relative_to(results).as_posix()) == scenario:
            yield from json.loads(path.read_text(encoding="utf-8"))


def _listed(revision: str, section: str) -> set[str]:
    lists: dict[str, list[str] | None] = yaml.safe_load((EXPECTED / f"{revision}.yaml").read_text(encoding="utf-8"))
    return set(lists[section] or ())
