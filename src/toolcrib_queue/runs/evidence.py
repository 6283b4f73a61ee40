"""Evidence: what a task declares as proof of its completion, taken when work begins and checked at its end.

Nothing that the worker says counts: commands run again, files are hashed again, calls are looked up in the record.

The baseline of a task has what the checks compare with: hashes by path, and `commit`. A run in a repository also keeps
`begin`, the ground of its branch (`branches`), which a later attempt goes on from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from toolcrib.plugin import Context, Row, ToolFailure, invalid_argument, unshown
from toolcrib_tools.git.repository import Repository, repository_at

from ..shell_commands import run_shell

_KEYS: Final[Mapping[str, str]] = {
    "command": "command",
    "tests": "",
    "changed": "path",
    "unchanged": "path",
    "file": "path",
    "call": "tool",
    "commit": "",
}
"""Type of evidence → the key that it needs."""
_CALLS: Final = 500
"""Newest calls of the record that are looked through."""
_TOO_BIG: Final = 20_000_000
_SHOWN: Final = 2000
_TICK: Final = 0.001
"""Resolution of the times of the record, in seconds."""

ACCEPTANCE: Final[Mapping[str, Any]] = {
    "type": "array",
    "maxItems": 20,
    "description": "What must be shown before the task is completed; each entry is checked again by the queue",
    "items": {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": [*_KEYS]},
            "command": {
                "type": "string",
                "maxLength": 2000,
                "description": "command: ends with exit status 0; tests finds the project's own",
            },
            "path": {
                "type": "string",
                "maxLength": 1000,
                "description": "changed or unchanged since the work began; file: exists, with this sha256",
            },
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "tool": {"type": "string", "maxLength": 200, "description": "call: succeeded since the work began"},
        },
        "required": ["type"],
        "additionalProperties": False,
    },
}


def check_declared(acceptance: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ToolFailure` for an entry without the key that its type needs."""
    for number, entry in enumerate(acceptance):
        key = _KEYS[entry["type"]]
        if key and not str(entry.get(key, "")).strip():
            raise invalid_argument(
                f"acceptance[{number}].{key}", f"evidence of type {entry['type']} needs it", keyword="required"
            )


def missing_evidence(task: Row) -> str:
    """Return why a task cannot simply be called COMPLETED; empty where nothing is to be shown."""
    if task["acceptance"]:
        return f"it declares {len(task['acceptance'])} pieces of evidence"
    if task["verification_type"] == "auto_test":
        return "its tests run first"
    if task["requires_approval"] or task["verification_type"] == "human":
        return "a person approves its result"
    if task["verification_type"] == "qa_agent":
        return "a second agent verifies its result"
    return ""


async def baseline_of(ctx: Context, task: Row, folder: str) -> dict[str, Any]:
    """Return hashes of the files that the evidence names, and the commit, before work begins in a folder."""
    baseline: dict[str, Any] = {}
    for entry in task["acceptance"]:
        if entry["type"] in ("changed", "unchanged"):
            baseline[entry["path"]] = await _hash(ctx, folder, entry["path"])
        elif entry["type"] == "commit":
            baseline["commit"] = await (await repository_at(ctx, folder)).commit_of("HEAD")
    return baseline


async def baseline_at(repository: Repository, task: Row, folder: Path, commit: str) -> dict[str, Any]:
    """Return the baseline of a task whose work in a folder of a repository began at a commit.

    Attempts before this one count as work. Files that git ignores keep the hash that they had at the claim.
    """
    if not commit:
        return {**task["baseline"]}
    baseline: dict[str, Any] = {**task["baseline"], "begin": commit, "commit": commit}
    for path in [entry["path"] for entry in task["acceptance"] if entry["type"] in ("changed", "unchanged")]:
        file = Path(f"{folder}/{path}")  # as `_hash` has it: `/` alone at its beginning is not a path outside
        name = file.relative_to(repository.tree).as_posix()
        if (await repository.run("check-ignore", "--quiet", "--", name)).status:
            found = await repository.run("cat-file", "--filters", f"{commit}:{name}")
            is_there = found.status == 0 and bool(found.stdout)
            baseline[path] = hashlib.sha256(found.stdout).hexdigest() if is_there else ""
    return baseline


async def evidence_of(ctx: Context, task: Row, folder: str) -> list[dict[str, Any]]:
    """Check each piece of declared evidence; return it with `is_shown` and what was found."""
    found: list[dict[str, Any]] = []
    declared: list[dict[str, Any]] = [*task["acceptance"]]
    if task["verification_type"] == "auto_test" and not any(one["type"] in ("command", "tests") for one in declared):
        declared.append({"type": "tests"})
    for entry in declared:
        try:
            is_shown, detail = await _CHECKS[entry["type"]](ctx, task, folder, entry)
        except ToolFailure as failure:
            is_shown, detail = False, failure.message
        found.append({**entry, "is_shown": is_shown, "detail": detail[-_SHOWN:]})
    return found


async def _command(ctx: Context, task: Row, folder: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    """Run a command through the door."""
    out, err, status = await run_shell(ctx, entry["command"], folder)
    return not status, "\n".join(filter(None, (out, err, f"exit status {status}")))


async def _tests(ctx: Context, task: Row, folder: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    """Run the project's own tests through the door."""
    result = await ctx.call("run_tests", {"working_dir": folder})
    return result.meta.get("exit_status") == 0, result.text


async def _changed(ctx: Context, task: Row, folder: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    before, now = task["baseline"].get(entry["path"], ""), await _hash(ctx, folder, entry["path"])
    if not now:
        return False, "there is no such file"
    return now != before, now if now != before else "it is as it was when the work began"


async def _unchanged(ctx: Context, task: Row, folder: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    before, now = task["baseline"].get(entry["path"], ""), await _hash(ctx, folder, entry["path"])
    is_same = bool(before) and now == before
    return is_same, now if is_same else "it was changed since the work began" if before else "it was not there before"


async def _file(ctx: Context, task: Row, folder: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    now = await _hash(ctx, folder, entry["path"])
    if not now:
        return False, "there is no such file, or it is empty"
    is_same = entry.get("sha256", now) == now
    return is_same, now if is_same else f"its hash is {now}"


async def _call(ctx: Context, task: Row, folder: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    insight = ctx.lent.insight(ctx.principal, ctx.session_key)
    events = await insight.events(limit=_CALLS, tool=entry["tool"], outcome="ok")
    since = task["claimed_at"] or task["created_at"]
    for event in events:
        if datetime.fromisoformat(event["time"]).timestamp() >= since - _TICK:
            return True, f"call {event['call_id']}"
    return False, f"the record has no successful call of {entry['tool']} since the work began"


async def _commit(ctx: Context, task: Row, folder: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    repository = await repository_at(ctx, folder)
    before, now = task["baseline"].get("commit", ""), await repository.commit_of("HEAD")
    if not before or now == before:
        return False, "there is no new commit"
    names = await repository.ask("diff", "--name-only", before, now)
    return bool(names.strip()), f"{now[:12]}: {names}" if names.strip() else "the new commits change no file"


_CHECKS: Final = {
    "command": _command,
    "tests": _tests,
    "changed": _changed,
    "unchanged": _unchanged,
    "file": _file,
    "call": _call,
    "commit": _commit,
}


async def _hash(ctx: Context, folder: str, path: str) -> str:
    """Return the SHA-256 of a file; empty for one that is missing or empty."""
    if ctx.workspace is None:
        raise ToolFailure("unavailable", "evidence in files needs a session with a workspace")
    place = f"{folder}/{path}"
    entry = await ctx.workspace.stat(place)
    if entry is None or entry.kind != "file" or not entry.size:
        return ""
    return hashlib.sha256(await unshown(ctx.workspace).read(place, limit=_TOO_BIG)).hexdigest()
