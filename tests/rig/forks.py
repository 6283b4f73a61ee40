"""Tests in several processes that are forked after everything was imported and collected, which happens once.

pytest-xdist imports and collects in each of its workers. Here `--forks N` starts N children of the process that
collected: they cost nothing to start, so that there can be more of them than processors and one computes while another
waits. Each takes the next file of tests when it is through with one, the most expensive ones first.
"""

from __future__ import annotations

import atexit
import itertools
import mmap
import os
import random
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any, Final

import pytest

__all__ = ["Forks"]

_TEST_COST: Final = {"process": 20, "slow": 20}
"""What a test with the marker takes, in tests without one."""
_RECORD: Final = 4
"""Bytes of the number of a file of tests, in the pipe that hands them out."""


class Forks:
    """The plugin that runs the collected tests in `count` children."""

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of `session` in children and report what they report."""
        option = session.config.option
        files = _files(session.items)
        count = min(self._count, len(files))
        if count < 2 or option.collectonly or option.usepdb or session.testsfailed:
            return None  # pytest's own loop does it
        vars(session.config)["_tmp_path_factory"].getbasetemp()  # one folder for all children, and three runs are kept
        stopping = mmap.mmap(-1, 1)
        turns = _turns(len(files))
        children: dict[Connection[Any, Any], int] = {}
        for _ in range(count):
            hearing, pid = _fork(session, files, turns, stopping, children)
            children[hearing] = pid
        os.close(turns)
        try:
            _listen(session, set(children))
        finally:
            stopping[0] = 1
            for hearing, pid in children.items():
                _drain(hearing)
                os.waitpid(pid, 0)
        return True


def _files(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests of each file, the files that take longest first."""
    files = [list(group) for _, group in itertools.groupby(items, key=lambda item: item.path)]
    return sorted(files, key=lambda tests: -sum(map(_cost, tests)))


def _cost(item: pytest.Item) -> int:
    return max((_TEST_COST.get(mark.name, 1) for mark in item.iter_markers()), default=1)


def _turns(count: int) -> int:
    """Return a pipe to read from whose turn it is: reads of one record each are never mixed."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(number.to_bytes(_RECORD, "big") for number in range(count)))
    os.close(writing)
    return reading


def _fork(
    session: pytest.Session,
    files: Sequence[Sequence[pytest.Item]],
    turns: int,
    stopping: mmap.mmap,
    others: Iterable[Connection[Any, Any]],
) -> tuple[Connection[Any, Any], int]:
    hearing, telling = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        telling.close()
        return hearing, pid
    for connection in (hearing, *others):  # or it would not notice that the parent is gone
        connection.close()
    status = 1
    try:
        _run(session, _in_turn(files, turns, stopping), _Child(session, telling, stopping))
        status = 0
    except KeyboardInterrupt:
        pass  # the parent has it, too
    except BaseException:  # noqa: BLE001 - a child must never go on as its parent would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _in_turn(files: Sequence[Sequence[pytest.Item]], turns: int, stopping: mmap.mmap) -> Iterator[pytest.Item]:
    while not stopping[0] and (turn := os.read(turns, _RECORD)):
        yield from files[int.from_bytes(turn, "big")]


class _Child:
    """The plugin of a child: tells the parent what is reported."""

    def __init__(self, session: pytest.Session, parent: Connection[Any, Any], stopping: mmap.mmap) -> None:
        self._session = session
        self._parent = parent
        self._stopping = stopping

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Tell which test begins, for the case that the child dies in it."""
        self.tell("start", (nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a phase of a test, and hear whether it is to be the last."""
        config = self._session.config
        self.tell("report", config.hook.pytest_report_to_serializable(config=config, report=report))
        if self._stopping[0] and report.when != "teardown":  # now the teardown ends the shared fixtures, too
            self._session.shouldstop = "the run ends"

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Tell of a warning, by its words: not every one can be sent."""
        seen = warning_message
        self.tell("warning", (str(seen.message), seen.category.__name__, seen.filename, seen.lineno, when, nodeid))

    def tell(self, what: str, value: Any) -> None:
        """Send to the parent; if it is gone, end."""
        try:
            self._parent.send((what, value))
        except BrokenPipeError:
            self._stopping[0] = 1


def _run(session: pytest.Session, items: Iterator[pytest.Item], child: _Child) -> None:
    """Run `items` in this child, then end it as a process of pytest's own ends."""
    config = session.config
    plugins = config.pluginmanager
    capture: Any = plugins.get_plugin("capturemanager")
    capture.stop_global_capturing()  # the file that it writes to is the parent's, and so is the place in it
    capture.start_global_capturing()
    folders: Any = vars(config)["_tmp_path_factory"]
    folders._exit_stack.pop_all()  # the parent removes the folders of earlier runs
    writer = config.get_terminal_writer()  # pytest-timeout writes with it where the threads are
    vars(writer)["_file"] = sys.stderr
    plugins.unregister(name="terminalreporter")
    plugins.register(SimpleNamespace(_tw=writer), "terminalreporter")
    plugins.register(child)
    random.seed()
    running: Any = plugins.get_plugin("runner")
    try:
        item = next(items, None)
        while item is not None and not session.shouldstop:
            after = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            item = after
    finally:
        running.pytest_sessionfinish(session)  # ends what is left of the shared fixtures
        plugins.unregister(child)
    left = ""
    try:
        # There pytest looks for what was not closed.
        config._ensure_unconfigure()  # pyright: ignore[reportPrivateUsage]
    except Exception:  # noqa: BLE001 - it fails the run, whatever it is
        left = traceback.format_exc()
    child.tell("end", left)
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # it ends by `_exit`, not as its parent


def _listen(session: pytest.Session, children: set[Connection[Any, Any]]) -> None:
    """Report what the children tell until all have ended or the run is to stop."""
    hook = session.config.hook
    begun: dict[Connection[Any, Any], tuple[str, tuple[str, int | None, str]]] = {}
    while children:
        for child in wait(list(children)):
            assert isinstance(child, Connection)
            what, value = _heard(child)
            if what == "start":
                begun[child] = value
            elif what == "report":
                report = hook.pytest_report_from_serializable(config=session.config, data=value)
                hook.pytest_runtest_logreport(report=report)
            elif what == "warning":
                words, category, filename, line, when, nodeid = value
                message = warnings.WarningMessage(f"{category}: {words}", UserWarning, filename, line)
                hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": message, "nodeid": nodeid, "when": when, "location": None}
                )
            else:
                children.discard(child)
                words = "the process died; tests that were its own did not run" if what == "death" else value
                if words:
                    nodeid, location = begun.get(child, ("tests/rig/forks.py", ("", None, "")))
                    hook.pytest_runtest_logreport(
                        report=pytest.TestReport(nodeid, location, {}, "failed", words, "call")
                    )
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)


def _heard(child: Connection[Any, Any]) -> tuple[str, Any]:
    try:
        return child.recv()
    except (EOFError, ConnectionError):
        return "death", None


def _drain(child: Connection[Any, Any]) -> None:
    """Hear `child` to its end, so that it can say what it has to."""
    while _heard(child)[0] not in ("end", "death"):
        pass
    child.close()
