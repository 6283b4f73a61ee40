"""What every client is made to do, and what must be true of it: the same for all, whatever they are.

A *tour* is one conversation: find a tool, run it, run one with letters beyond ASCII, meet a rule that denies, get a
result that is too long and look into it, wait for a server that hangs, and go on. An approval is a conversation of its
own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from peers import LEDGER
from peers.ledger_server import BIG
from rig import ROOT, node, npm_package_main

ATTENDED: Final = "asked"
UNATTENDED: Final = "alone"
"""What the path of a call that asks begins with. Asked: the client's user answers; alone: somebody elsewhere does."""
CLIENT_VERBS: Final = ("call_tool", "call_tool_readonly", "describe_tools", "read_artifact", "search_tools")
_SLOW_SECONDS: Final = 2
"""After which the gateway gives up on the server that hangs."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call that the model makes of one of our verbs."""

    key: str
    verb: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What came of one conversation."""

    names: tuple[str, ...] = ()
    """Our verbs as the client names them to its model, sorted."""
    told: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the key of a step: what the model read, or what a command line printed."""
    output: str = ""
    """What the client itself said, to be read when something is wrong."""


def tour(artifact: str) -> list[Step]:
    """Return the steps of the tour; `artifact` is the identity of the long result."""
    return [
        Step(key="find", verb="search_tools", arguments={"query": "sum of two numbers"}),
        _call("found", "everything__get-sum", a=2, b=3),
        _call("call", "everything__echo", message="hé 你好"),
        _call("denied", "ledger__put", path="tour"),
        _call("big", "ledger__flood"),
        Step(key="page", verb="read_artifact", arguments={"id": artifact, "find": "line 1000 "}),
        _call("hung", "slow__hang"),
        _call("after", "everything__echo", message="still here"),
    ]


def approval(path: str) -> list[Step]:
    """Return the one step that somebody is asked about; its arguments name who asks and how."""
    return [_call("approved", "ledger__erase", path=path)]


def _call(key: str, tool: str, **arguments: Any) -> Step:
    return Step(key=key, verb="call_tool", arguments={"name": tool, "arguments": arguments})


def verbs_in(names: Iterable[str]) -> tuple[str, ...]:
    """Return those names that end with a verb of ours, in the order of `CLIENT_VERBS`."""
    return tuple(sorted((name for name in names if name.endswith(CLIENT_VERBS)), key=_verb))


def _verb(name: str) -> str:
    return next(verb for verb in CLIENT_VERBS if name.endswith(verb))


Check = Callable[[Said], bool]


def _says(key: str, *words: str) -> Check:
    return lambda said: all(word in said.told.get(key, "") for word in words)


def _listed(said: Said) -> bool:
    """All our verbs, and nothing of what is behind them."""
    return len(said.names) == len(CLIENT_VERBS) and all(
        name.endswith(verb) for name, verb in zip(said.names, CLIENT_VERBS, strict=True)
    )


def _short(said: Said) -> bool:
    """Beginning and end of the long result, without its middle, and the middle when it is asked for."""
    shown, page = said.told.get("big", ""), said.told.get("page", "")
    ends = "line 0 of many" in shown and "line 1999 of many" in shown
    return ends and len(shown) < len(BIG) and "line 1000 of" not in shown and "line 1000 of many" in page


CASES: Final[Mapping[str, Check]] = {
    "list": _listed,
    "find": lambda said: (
        _says("find", "everything__get-sum(")(said) and _says("found", "The sum of 2 and 3 is 5.")(said)
    ),
    "call": _says("call", "Echo: hé 你好"),
    "denied": _says("denied", "ledger__put is denied by deny ledger__put"),
    "big result": _short,
    "hung server": lambda said: (
        _says("hung", "timeout: server 'slow' did not answer within")(said) and _says("after", "Echo: still here")(said)
    ),
}
"""What must hold of every client over every transport."""


def config(home: Path) -> dict[str, Any]:
    """Return the configuration of the gateway: a real server, three that are bad on purpose, and what may run.

    `stuck` never answers `initialize`: nothing that a client does may wait for it or fail because of it.
    """
    main = str(npm_package_main("@modelcontextprotocol/server-everything"))

    def python(script: str, *arguments: str, **more: Any) -> dict[str, Any]:
        return {"command": sys.executable, "args": ["-IS", script, *arguments], **more}

    scripted = str(ROOT / "tests" / "peers" / "scripted.py")
    return {
        "mcpServers": {
            "everything": {"command": str(node()), "args": [main, "stdio"]},
            "ledger": python(LEDGER, str(home / "ledger.jsonl")),
            "slow": python(LEDGER, str(home / "slow.jsonl"), timeout=_SLOW_SECONDS),
            "stuck": python(scripted, str(home / "stuck.jsonl"), "hang-initialize"),
        },
        "mode": "autonomous",
        "accept": True,
        "builtins": False,
        "untrusted": {"ask": False},
        "rules": {"deny": ["ledger__put"], "ask": ["ledger__erase"]},
        "approvals": {"wait": True},
        "results": {"pass_whole": 16384},  # `flood` is longer: its rest is read by the handle
    }


def ran(home: Path) -> list[str]:
    """Return the path of every call that reached the ledger behind the gateway and takes one."""
    try:
        lines = (home / "ledger.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    calls: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [str(call["arguments"]["path"]) for call in calls if "path" in call["arguments"]]


def printed(command: list[str], env: Mapping[str, str], cwd: Path, seconds: float = 120) -> str:
    """Return what a command prints; raises RuntimeError with both its streams when it fails."""
    done = subprocess.run(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command[:3]} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
