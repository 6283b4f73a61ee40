"""Runs the fault harness that lies beside the clone against our gateway, or against FastMCP's proxy.

The harness is not part of the repository: it is read from `$TOOLCRIB_SHARED/harness`, by default `../shared/harness`.
Every driver starts the gateway itself, on loopback, with hostile servers behind it, and ends every process it started.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig import ROOT

DRIVER_SECONDS = 900


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What a client got, and after how many seconds."""

    told: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it was a success."""
        return is_ok(self.told)


def timed(pair: Sequence[Any]) -> Timed:
    """Read the harness's pair of text and seconds."""
    return Timed(told=str(pair[0]), seconds=float(pair[1]))


def is_ok(told: str) -> bool:
    """Whether the harness's account of an answer tells of a success."""
    return told.startswith("HTTP 200 ok:")


@dataclass(kw_only=True)
class Harness:
    """The drivers, and the table of what they found."""

    folder: Path
    home: Path
    """Where the gateway under test keeps everything: cache, database, logs."""
    full_size: bool
    rows: list[tuple[str, str, str, str]] = field(default_factory=list[tuple[str, str, str, str]])
    """Case, subject, seconds, and what happened in short."""

    @classmethod
    def find(cls, home: Path, *, full_size: bool) -> Harness:
        """Return the harness; raises `RuntimeError` saying where it was looked for."""
        shared = Path(os.environ.get("TOOLCRIB_SHARED", str(ROOT.parent / "shared")))
        folder = shared / "harness"
        if not (folder / "gw_faults.py").is_file():
            raise RuntimeError(
                f"the fault harness is not in {folder}: put the folder `shared` beside the clone, or name it in "
                "TOOLCRIB_SHARED"
            )
        return cls(folder=folder, home=home, full_size=full_size)

    def gw_faults(self, case: str, *options: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run one case of gw_faults against our gateway and return its account."""
        return self._gw_faults(case, "toolcrib", ["--gateway-cmd", self.gateway(settings), *options])

    def gw_faults_of_fastmcp(self, case: str, *options: str) -> dict[str, Any]:
        """Run the same against FastMCP's proxy."""
        return self._gw_faults(case, "fastmcp proxy", ["--gateway", "fastmcp", *options])

    def kill_storm(self, *options: str) -> dict[str, Any]:
        """Kill servers under load, behind our gateway."""
        return self._storm("toolcrib", ["--gateway-cmd", self.gateway(), *options])

    def kill_storm_of_fastmcp(self, *options: str) -> dict[str, Any]:
        """The same behind FastMCP's proxy."""
        return self._storm("fastmcp proxy", ["--gateway", "fastmcp", *options])

    def era_bridge(self) -> list[str]:
        """Return a line for every combination of servers and client era."""
        return self._run("era_bridge", ["--gateway-cmd", self.gateway()]).splitlines()

    def http_checks(self, port: int, pid: int, *options: str) -> dict[str, dict[str, Any]]:
        """Send hostile requests to a gateway that runs on `port`; return what was wanted and got, by row."""
        out = self.home / "http.json"
        self._run("http_checks", ["--port", str(port), "--pid", str(pid), "--out", str(out), *options])
        return json.loads(out.read_text())

    def gateway(self, settings: Mapping[str, Any] | None = None) -> str:
        """Return the command of our gateway; `settings` is one more configuration file."""
        more: list[str] = []
        if settings is not None:
            path = self.home / "settings.yaml"
            path.write_text(json.dumps(settings))
            more = ["--config", str(path)]
        command = [str(Path(sys.executable).with_name("toolcrib")), "serve", "--http", "--port", "PORT"]
        command += ["--config", "CONFIG", "--profile", "flat", "--mode", "autonomous", "--accept", *more]
        return shlex.join(command).replace("PORT", "{port}").replace("CONFIG", "{config}")

    def environment(self) -> dict[str, str]:
        """Return this environment with everything that is kept going to a place of the test's own."""
        kept = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        return {**os.environ, **kept, "XDG_RUNTIME_DIR": str(self.home)}

    def note(self, case: str, subject: str, seconds: float, told: str) -> None:
        """Add a row to the table."""
        self.rows.append((case, subject, f"{seconds:.1f}", " ".join(told.split())))

    def _gw_faults(self, case: str, subject: str, options: Sequence[str]) -> dict[str, Any]:
        out = self.home / f"{case}.json"
        self._run("gw_faults", ["--cases", case, "--out", str(out), *options])
        account: dict[str, Any] = json.loads(out.read_text())[case]
        seconds = account.pop("case_s")
        self.note(case, subject, seconds, json.dumps(account))
        if "HARNESS" in account:
            raise AssertionError(f"{case}: the driver gave up: {account['HARNESS']}")
        return account

    def _storm(self, subject: str, options: Sequence[str]) -> dict[str, Any]:
        out = self.home / "storm.json"
        started = time.monotonic()
        self._run("kill_storm", ["--out", str(out), *options])
        account: dict[str, Any] = json.loads(out.read_text())
        self.note("kill_storm", subject, time.monotonic() - started, json.dumps(account))
        return account

    def _run(self, driver: str, options: Sequence[str]) -> str:
        done = subprocess.run(
            [sys.executable, str(self.folder / f"{driver}.py"), *options],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{driver} ended with status {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout
