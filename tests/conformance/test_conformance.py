"""The official MCP conformance suite, both eras: on our everything server, and on the gateway in front of it.

The suite decides: a check that fails and is not in the list of expected failures, or one in the list that passes,
ends with a status that is not 0. Each list is in `expected/`, a reason beside each entry: `server` for what the
revision requires, `not_scored` for what the suite runs beyond that (extensions, newer scenarios), compared here.
"""

import json
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rig import ROOT, free_port, node, node_env, npm_package_main, serving

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
TASKS = ("slow_compute", "failing_job", "protocol_error_job")
"""The tools that the gateway is told to let go on in the background."""
SUITE = "@modelcontextprotocol/conformance"
SUITE_SECONDS = 300
RUNS = sorted(path.stem for path in EXPECTED.glob("*.yaml"))
"""What is run: a subject, two dashes, a revision."""


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running everything server, which speaks both eras."""
    with _everything(tmp_path_factory.mktemp("everything")) as url:
        yield url


@pytest.fixture(scope="session")
def gateway(everything: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway in front of the everything server; the two speak 2026-07-28 with each other."""
    with _gateway(everything, tmp_path_factory.mktemp("gateway")) as url:
        yield url


@pytest.fixture(scope="session")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway in front of an everything server that knows no revision after 2025-11-25."""
    home = tmp_path_factory.mktemp("bridge")
    with _everything(home, "--legacy") as url, _gateway(url, home) as bridged:
        yield bridged


@contextmanager
def _everything(home: Path, *options: str) -> Generator[str]:
    port = free_port()
    command = [sys.executable, HERE / "everything_server.py", "--port", str(port), *options]
    with serving(command, port=port, log=home / "everything.log"):
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def _gateway(downstream: str, home: Path) -> Generator[str]:
    port = free_port()
    config = home / "gateway.yaml"
    entry = {"type": "http", "url": downstream, "background_after": dict.fromkeys(TASKS, 0)}
    # The suite calls one tool after another in one conversation, and answers no question about that.
    config.write_text(json.dumps({"servers": {"everything": entry}, "untrusted": {"ask": False}}))
    command = [Path(sys.executable).with_name("toolcrib"), "serve", "--http", "--port", str(port)]
    command += ["--config", str(config), "--no-prefix", "--profile", "flat", "--mode", "autonomous", "--accept"]
    with serving(command, port=port, log=home / "gateway.log", env=_own_folders(home)):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.timeout(SUITE_SECONDS + 60)
@pytest.mark.parametrize("run", RUNS)
def test_the_official_suite_finds_exactly_the_listed_failures(
    run: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    subject, _, revision = run.partition("--")
    url = str(request.getfixturevalue(subject))
    expected = EXPECTED / f"{run}.yaml"

    done = _run_suite("--url", url, "--requirements", revision, "--expected-failures", expected, "-o", tmp_path)

    failures = _failures(tmp_path)
    assert done.returncode == 0, "\n".join((_verdict(done.stdout), *failures, done.stderr[-2000:]))
    assert _not_scored(tmp_path, revision) == _listed(expected, "not_scored"), "\n".join(failures)


@pytest.mark.parametrize("run", RUNS)
def test_every_expected_failure_tells_its_reason(run: str) -> None:
    entries = [
        line
        for line in (EXPECTED / f"{run}.yaml").read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith("- ")
    ]

    assert [line for line in entries if not re.fullmatch(r"  - [\w:-]+  # \S.{10,}", line)] == []


def _run_suite(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    main = npm_package_main(SUITE)
    return subprocess.run(
        [node(), main, "server", *arguments],
        cwd=ROOT,
        env=node_env({"NO_COLOR": "1"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )


def _own_folders(home: Path) -> dict[str, str]:
    """An environment in which the gateway reads and writes nothing outside `home`."""
    folders = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA", "STATE")}
    return node_env({"HOME": str(home), "XDG_RUNTIME_DIR": str(home), **folders})


def _verdict(output: str) -> str:
    _, _, verdict = output.partition("=== SUMMARY ===")
    return verdict or output[-4000:]


def _not_scored(results: Path, revision: str) -> set[str]:
    """The scenarios that failed without counting: those the revision does not require."""
    required = npm_package_main(SUITE).parents[1] / "requirements" / f"{revision}.yaml"
    failed = {scenario for scenario, check in _checks(results) if check["status"] == "FAILURE"}
    return failed - _listed(required, "server")


def _listed(path: Path, section: str) -> set[str]:
    lists: dict[str, list[str] | None] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return set(lists[section] or ())


def _failures(results: Path) -> list[str]:
    """Each failed or warned check: scenario, check id, and what the suite says of it."""
    return [
        f"{scenario}:{check['id']}: {check.get('errorMessage', '')}"
        for scenario, check in _checks(results)
        if check["status"] in ("FAILURE", "WARNING")
    ]


def _checks(results: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(results.glob("*/checks.json")):
        scenario = re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", path.parent.name)
        checks: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        yield from ((scenario, check) for check in checks)
