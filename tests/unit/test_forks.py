"""`--forks`: every test runs once, in some child, and its outcome is that of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rig import ROOT

pytestmark = pytest.mark.process

CONFTEST = """
import pytest
from rig.forks import Forks

def pytest_configure(config):
    config.pluginmanager.register(Forks(3))

@pytest.fixture(scope="module")
def shared(request):
    with open("log", "a") as log:
        log.write(f"+{request.module.__name__} ")
    yield
    with open("log", "a") as log:
        log.write(f"-{request.module.__name__} ")
"""
FILE = """
import os, pytest

@pytest.mark.parametrize("number", range(5))
def test_passes(shared, number, tmp_path):
    with open("log", "a") as log:
        log.write(f"{__name__}{number} ")
    assert os.getpid() != int(os.environ["PARENT"])
"""
WRONG = """
import os, pytest, warnings

def test_wrong():
    print("printed before")
    assert 1 == 2

@pytest.fixture
def broken():
    raise RuntimeError("no fixture")

def test_error(broken): pass

@pytest.mark.timeout(0.5)
def test_hangs():
    while True: pass

def test_warns():
    warnings.warn("mind the gap")
"""
DEATH = """
import os
def test_dies(): os._exit(7)
"""


def run(folder: Path, *options: str, **files: str) -> tuple[int, str, list[str]]:
    """Run the files in a process of pytest; return its status, what it printed, and the log."""
    for name, text in {"conftest": CONFTEST, **files}.items():
        (folder / f"{name}.py").write_text(text)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "tests"), "PARENT": "0"}
    script = "import os, sys, pytest; os.environ['PARENT'] = str(os.getpid()); sys.exit(pytest.main(sys.argv[1:]))"
    words = [sys.executable, "-c", script, "-q", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin", *options]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    log = folder / "log"
    return done.returncode, done.stdout + done.stderr, log.read_text().split() if log.exists() else []


def test_every_test_runs_once_and_a_shared_fixture_ends(tmp_path: Path) -> None:
    status, said, log = run(tmp_path, test_a=FILE, test_b=FILE, test_c=FILE, test_d=FILE)

    assert (status, said.splitlines()[-1].partition(" in ")[0]) == (0, "20 passed")
    expected = [f"test_{name}{number}" for name in "abcd" for number in range(5)]
    assert sorted(word for word in log if word[0] not in "+-") == expected
    assert sorted(word for word in log if word[0] in "+-") == sorted(
        f"{sign}test_{name}" for name in "abcd" for sign in "+-"
    )


def test_failures_errors_and_warnings_are_those_of_the_run(tmp_path: Path) -> None:
    status, said, _ = run(tmp_path, test_a=FILE, test_wrong=WRONG, test_b=FILE)

    assert (status, said.splitlines()[-1].partition(" in ")[0]) == (1, "2 failed, 11 passed, 1 warning, 1 error")
    assert all(
        words in said for words in ("assert 1 == 2", "printed before", "no fixture", "mind the gap", "Timeout (>0.5s)")
    )


def test_what_is_not_closed_by_the_end_fails_the_run(tmp_path: Path) -> None:
    leak = "import gc\ndef test_leaks():\n    gc.disable()\n    loop = [open(__file__)]\n    loop.append(loop)\n"
    status, said, _ = run(tmp_path, "-W", "error", test_a=FILE, test_leak=leak)

    assert (status, said.splitlines()[-1].partition(" in ")[0]) == (1, "1 failed, 6 passed")
    assert "unclosed file" in said


def test_the_first_failure_ends_the_run_when_that_is_asked_for(tmp_path: Path) -> None:
    status, said, log = run(tmp_path, "-x", test_a=FILE, test_wrong=WRONG)

    assert (status, "1 failed" in said, "stopping after 1 failures" in said) == (1, True, True)
    assert log.count("+test_a") == log.count("-test_a") <= 1


def test_a_child_that_dies_fails_the_run(tmp_path: Path) -> None:
    status, said, _ = run(tmp_path, test_a=FILE, test_death=DEATH)

    assert (status, said.splitlines()[-1].partition(" in ")[0]) == (1, "1 failed, 5 passed")
    assert "FAILED test_death.py::test_dies - the process died" in said
