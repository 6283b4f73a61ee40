"""Kill the program of `crash_program.py` again and again, and read what became of its jobs."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_PROGRAM: Final = Path(__file__).with_name("crash_program.py")
_PATIENCE: Final = 120.0
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What the last start of the program found, and what its tools have done in all starts."""

    accepted: dict[int, str]
    """Number → id of the job that the program was told."""
    jobs: dict[str, list[str]]
    """Id → tool, status, outcome."""
    rows: list[list[str]]
    problem: str
    begun: Counter[str] = field(default_factory=Counter[str])
    """How often each tool's body began: `charge 3` → 1."""
    ended: Counter[str] = field(default_factory=Counter[str])


class Crashes:
    """Runs of the program on one store, one after another or at the same time."""

    def __init__(self, folder: Path, *, count: int, what: str = "tools", url: str = "", seed: int = 4) -> None:
        self._data, self._ledger = folder / "data", folder / "ledger"
        self._ledger.touch()
        self._log = folder / "log"
        self._count = count
        self._what = what
        self._url = url
        self._random = random.Random(seed)

    def start(self, *, kill_after: str = "") -> subprocess.Popen[bytes]:
        """Start the program; it kills itself at the first line of a tool that begins with `kill_after`."""
        with self._log.open("ab") as log:
            arguments = (self._data, self._ledger, self._count, self._what, self._url, kill_after)
            command = [sys.executable, _PROGRAM, *arguments]
            return subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, times: int, *, most: int) -> int:
        """Start and kill -9 it so often, each time after some more lines; return how often it was killed in truth."""
        for killed in range(times):
            program = self.start()
            try:
                wanted = self._lines() + self._random.randint(1, most)
                if not self._reached(program, wanted):
                    return killed
            finally:
                program.kill()
                program.wait()
        return times

    def kill_after(self, beginning: str) -> None:
        """Start it, and have it kill -9 itself at the first line of a tool with this beginning: not a moment later."""
        program = self.start(kill_after=beginning)
        try:
            assert program.wait(_PATIENCE) == -signal.SIGKILL, self._log.read_text()[-4000:]
        finally:
            program.kill()
            program.wait()

    def kill_one_of(self, programs: int, *, after: int) -> Aftermath:
        """Start so many at the same time, kill -9 the first after so many lines, and let the others end."""
        started = [self.start() for _ in range(programs)]
        try:
            self._reached(started[0], self._lines() + after)
            started[0].kill()
            for program in started[1:]:
                assert program.wait(_PATIENCE) == 0, self._log.read_text()[-4000:]
        finally:
            for program in started:
                program.kill()
                program.wait()
        return self.aftermath()

    def finish(self) -> Aftermath:
        """Start it once more and let it end."""
        program = self.start()
        try:
            assert program.wait(_PATIENCE) == 0, self._log.read_text()[-4000:]
        finally:
            program.kill()
            program.wait()
        return self.aftermath()

    def aftermath(self) -> Aftermath:
        """Return what the last program that ended has written: it has waited for every job."""
        end: dict[str, Any] = json.loads(Path(f"{self._ledger}.end").read_text().splitlines()[-1])
        accepted = (line.split() for line in Path(f"{self._ledger}.accepted").read_text().splitlines())
        begun, ended = Counter[str](), Counter[str]()
        for line in self._ledger.read_text().splitlines():
            word, _, body = line.partition(" ")
            (begun if word == "begin" else ended)[body] += 1
        return Aftermath(
            accepted={int(n): id for n, id in accepted if id != "?"},
            jobs=end["jobs"],
            rows=end["rows"],
            problem=end["problem"],
            begun=begun,
            ended=ended,
        )

    def _reached(self, program: subprocess.Popen[bytes], wanted: int) -> bool:
        deadline = time.monotonic() + _PATIENCE
        while self._lines() < wanted:
            if program.poll() is not None:
                assert program.returncode == 0, self._log.read_text()[-4000:]
                return False
            assert time.monotonic() < deadline, self._log.read_text()[-4000:]
            time.sleep(_POLL_SECONDS)
        return True

    def _lines(self) -> int:
        return self._ledger.read_bytes().count(b"\n")
