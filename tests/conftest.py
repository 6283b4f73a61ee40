"""What every suite shares."""

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from rig.postgres import empty_postgres_url, postgres_server, postgres_template, postgres_url

__all__ = [
    "anyio_backend",
    "empty_postgres_url",
    "full_size",
    "postgres_server",
    "postgres_template",
    "postgres_url",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_fixture_setup",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_sessionfinish",
]

for variable in ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"):
    os.environ.pop(variable, None)  # questions of the tests are not for the desktop of whoever runs them

gc.disable()  # until everything is collected: nothing of it is garbage, and looking takes a quarter of the time

# The same examples every time, however slow the machine is: a gate that fails says so to whoever broke it, not to
# whoever comes next.
settings.register_profile(
    "gate",
    deadline=None,
    database=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("full size", settings.get_profile("gate"), max_examples=1_000)
settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make soak` and `make clients-full` ask for the full sizes; everything else runs the small ones."""
    parser.addoption("--full-size", action="store_true", help="run every case at its full size (make soak)")


def pytest_configure(config: pytest.Config) -> None:
    """Give each property more examples in a run of full size."""
    if config.getoption("--full-size"):
        settings.load_profile("full size")


# Files that take more than some ten seconds carry the marker `long`, as does a test of more than one second by itself:
# `make long` and CI run them, `make test` does not.
_LONG_FILES = frozenset(
    """
    contract/test_behind_the_gateway.py contract/test_decisions.py contract/test_injections.py contract/test_ways_in.py
    scenarios/test_eval.py scenarios/test_scripted.py
    seeds/test_builtin_arguments.py seeds/test_builtin_inventories.py
    unit/toolcrib/cli/test_approvals.py unit/toolcrib/cli/test_commands.py unit/toolcrib/cli/test_connected.py
    unit/toolcrib/cli/test_lock.py unit/toolcrib/registration/test_rest_fuzz.py unit/toolcrib/server/test_serve.py
    unit/toolcrib/store/test_postgres.py unit/toolcrib/workspace/test_overlay_property.py
    unit/toolcrib_tools/test_git.py unit/toolcrib_tools/test_git_attacks.py unit/toolcrib_tools/test_git_remotes.py
    unit/toolcrib_tools/test_lsp_edits.py unit/toolcrib_tools/test_lsp_faults.py
    unit/toolcrib_tools/test_lsp_servers.py unit/toolcrib_tools/test_notebook.py
    unit/toolcrib_tools/test_notebook_bounds.py unit/toolcrib_tools/test_services_github.py
    unit/toolcrib_tools/test_shell.py
    unit/toolcrib_tools/test_windows.py
    """.split()
)
# Tests in these folders carry the marker `process` without saying so.
_PROCESS_SUITES = ("clients", "conformance", "docs", "durable", "faults", "frameworks")
# So do tests with these fixtures, which one test starts for all.
_PROCESS_FIXTURES = frozenset({"furnished", "origin", "postgres_server", "repo"})
_RECORDED_EVENTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "sqlite3.connect", "subprocess.Popen"})
# Started once per pytest process, by whichever test comes first: `platform`, the trial of the sandbox, and the library
# that radicale looks for.
_ONCE_PROGRAMS = frozenset({"/sbin/ldconfig", "file", "uname"})
_ONCE_LAST_WORD = "/bin/true"
# So is the repository that others are copies of, in a folder of this prefix (`tempfile`).
_ONCE_FOLDER = "toolcrib-test-"

# The store of the user who runs the tests: no test may open it, for it may be newer, and it is not the test's to fill.
_OWN_STORE = os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "toolcrib")

_started: list[str] = []
_opened: list[str] = []
# Fixtures that started a process, by name and by the folder or file that they are for. What a shared fixture starts
# counts for every test that asks for it: the order of the tests must not decide which of them fails.
_starting: dict[tuple[str, str], str] = {}
_started_before = pytest.StashKey[int]()
_opened_before = pytest.StashKey[int]()


def _record_event(
    event: str, arguments: tuple[Any, ...], events: frozenset[str] = _RECORDED_EVENTS, own_store: str = _OWN_STORE
) -> None:
    # Default values, for the interpreter clears the globals of a module before it ends.
    if event not in events:
        return
    if event == "sqlite3.connect":
        if own_store in str(arguments[0]):
            _opened.append(str(arguments[0]))
        return
    words = [str(word) for word in arguments[1]] if event == "subprocess.Popen" else [event]
    if event == "subprocess.Popen" and _ONCE_FOLDER in str(arguments[2]):
        return
    if words[0] not in _ONCE_PROGRAMS and words[-1] != _ONCE_LAST_WORD:
        _started.append(" ".join(words)[:200])


sys.addaudithook(_record_event)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember how many processes were started, and own stores opened, before the fixtures of the test."""
    item.stash[_started_before] = len(_started)
    item.stash[_opened_before] = len(_opened)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Remember the shared fixtures that start a process."""
    before = len(_started)
    result = yield
    if len(_started) > before and fixturedef.scope != "function":
        _starting[fixturedef.argname, fixturedef.baseid] = _started[before]
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that opens the store of the user, or starts a process without the marker that `make quick` needs."""
    result = yield
    if len(_opened) > item.stash[_opened_before]:
        pytest.fail(f"opens {_opened[-1]}, the store of the user: give it `memory=True` or a `store`", pytrace=False)
    asked = getattr(item, "fixturenames", ())
    shared = [one for (name, where), one in _starting.items() if name in asked and item.nodeid.startswith(where)]
    own = [*_started[item.stash[_started_before] :], *shared]
    if own and item.get_closest_marker("process") is None:
        pytest.fail(f"starts a process ({own[0]}): mark it with `@pytest.mark.process`", pytrace=False)
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what starts processes by its suite or its fixtures, and leave out what only `--full-size` runs.

    Names that differ from process to process are refused: with them pytest-xdist runs nothing at all.
    """
    if not config.getoption("--full-size"):
        repeated = [item for item in items if item.get_closest_marker("full_size")]
        items[:] = [item for item in items if not item.get_closest_marker("full_size")]
        config.hook.pytest_deselected(items=repeated)
    tests = Path(__file__).parent
    for item in items:
        file = item.path.relative_to(tests) if item.path.is_relative_to(tests) else item.path
        if file.as_posix() in _LONG_FILES:
            item.add_marker(pytest.mark.long)
        if file.parts[0] in _PROCESS_SUITES or not _PROCESS_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.process)
    changing = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if changing:
        raise pytest.UsageError(f"give the parameter a name of its own (ids=, or pytest.param): {changing}")


def pytest_collection_finish() -> None:
    """Collect garbage again, seldom, and not in what was imported: it is large, and there to the end.

    With the interpreter's thresholds it takes a tenth of the time of a run.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once, to find what ends with an error: pytest does it five times, which takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, the loop that the server runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def full_size(request: pytest.FixtureRequest) -> bool:
    """Whether the run is `make soak` or `make clients-full`."""
    return bool(request.config.getoption("--full-size"))
