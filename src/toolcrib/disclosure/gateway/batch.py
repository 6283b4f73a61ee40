"""`tool_batch`: several helps and calls in one round trip, each through the one door."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

import anyio

from ...core.result import ToolError, ToolResult
from ..base import Desk, Scene, answer

__all__ = ["MAX_OPS", "run_batch"]

MAX_OPS: Final = 50
"""Entries of one batch."""


async def run_batch(scene: Scene, arguments: Mapping[str, Any], desk: Desk) -> ToolResult:
    """Carry out `tool_batch`: one result an entry, in the order of the entries, whatever becomes of each.

    `sequential` starts an entry when the one before has ended, `parallel` all at once, as many as the profile lets.
    One that fails leaves the others alone, and makes the whole a failure that carries all results.
    """
    entries = cast("list[Mapping[str, Any]]", arguments["ops"])
    results: dict[int, dict[str, Any]] = {}
    at_once = scene.profile.parallel or math.inf
    places = anyio.CapacityLimiter(1 if arguments["mode"] == "sequential" else at_once)

    async def one(number: int, entry: Mapping[str, Any]) -> None:
        async with places:
            results[number] = await _run(scene, entry, desk)

    if arguments["mode"] == "sequential":
        for number, entry in enumerate(entries):
            await one(number, entry)
    else:
        async with anyio.create_task_group() as group:
            for number, entry in enumerate(entries):
                group.start_soon(one, number, entry)
    return _summed([results[number] for number in range(len(entries))])


def _summed(results: list[dict[str, Any]]) -> ToolResult:
    failed = sum(not result["ok"] for result in results)
    summary = {"total": len(results), "succeeded": len(results) - failed, "failed": failed}
    told = answer({"ok": not failed, "summary": summary, "results": results})
    if not failed:
        return told
    error = ToolError(code="tool_error", message=f"{failed} of {len(results)} ops failed", details=summary)
    return replace(told, error=error)


async def _run(scene: Scene, entry: Mapping[str, Any], desk: Desk) -> dict[str, Any]:
    verbs = scene.profile.verbs
    said = {name: value for name, value in entry.items() if name != "type"}
    if entry["type"] == "help":
        result = await desk.run(verbs["help"], said)
        body, path = _body(result), entry.get("path", "")
        if result.error is None:
            return {"type": "help", "path": path, "ok": True, "result": body}
        return {"type": "help", "path": path, "ok": False, "error": body.get("error", body)}
    result = await desk.run(verbs["exec"], said)
    if result.input_required is not None:
        message = "the tool asks for input first: run it alone"
        error = {"code": "INTERNAL", "message": message, "help_path": entry["op"]}
        return {"type": "exec", "op": entry["op"], "ok": False, "error": error}
    return {"type": "exec", **_body(result)}


def _body(result: ToolResult) -> dict[str, Any]:
    """Return a result in the words of the envelope; one that was too long for them as the text that is left of it."""
    body = result.structured_content
    if isinstance(body, dict):
        return cast("dict[str, Any]", body)
    return {"ok": result.error is None, "result": result.text}
