"""Batch of helps and calls (`tool_batch`): one result an entry, each call through the pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import anyio
from msgspec.structs import replace

from ...core.result import ToolError, ToolResult
from ..base import VerbContext, VisibleCatalog, answer
from ..meta_tools import SOURCE
from .exec_arguments import op_of


async def run_batch(visible: VisibleCatalog, arguments: Mapping[str, Any], context: VerbContext) -> ToolResult:
    """Run `tool_batch`: one result an entry, in the order of the entries.

    `sequential` starts an entry when the one before has ended, `parallel` all at once, up to the profile's limit. A
    failed entry leaves the others alone, and makes the whole a failure that carries all results.

    Entries are calls of their own, decided and recorded one by one; the batch itself needs no approval.
    """
    entries = cast("list[Mapping[str, Any]]", arguments["ops"])
    results: dict[int, dict[str, Any]] = {}
    trusts: set[str] = set()
    at_once = visible.profile.parallel or math.inf
    places = anyio.CapacityLimiter(1 if arguments["mode"] == "sequential" else at_once)

    async def one(number: int, entry: Mapping[str, Any]) -> None:
        async with places:
            results[number], trust = await _run(visible, entry, context)
            trusts.add(trust)

    if arguments["mode"] == "sequential":
        for number, entry in enumerate(entries):
            await one(number, entry)
    else:
        async with anyio.create_task_group() as group:
            for number, entry in enumerate(entries):
                group.start_soon(one, number, entry)
    summed = _summed([results[number] for number in range(len(entries))])
    return summed.with_meta(source=SOURCE, trust="untrusted") if "untrusted" in trusts else summed


def _summed(results: list[dict[str, Any]]) -> ToolResult:
    failed = sum(not result["ok"] for result in results)
    summary = {"total": len(results), "succeeded": len(results) - failed, "failed": failed}
    outcome = answer({"ok": not failed, "summary": summary, "results": results})
    if not failed:
        return outcome
    error = ToolError(code="tool_error", message=f"{failed} of {len(results)} ops failed", details=summary)
    return replace(outcome, error=error)


async def _run(visible: VisibleCatalog, entry: Mapping[str, Any], context: VerbContext) -> tuple[dict[str, Any], str]:
    """Return the outcome of an entry, and its trust."""
    verbs = visible.profile.verbs
    values = {name: value for name, value in entry.items() if name != "type"}
    type = entry.get("type") or ("help" if "path" in entry else "exec")  # models leave it out
    result = await context.run(verbs[type], values)
    trust = str(result.meta.get("trust", ""))
    if type == "help":
        body, path = _body(result), entry.get("path", "")
        if result.error is None:
            return {"type": "help", "path": path, "ok": True, "result": body}, trust
        return {"type": "help", "path": path, "ok": False, "error": body.get("error", body)}, trust
    if result.input_required is not None:
        message = "the tool asks for input first: run it alone"
        op = op_of(values)[1] or "root"
        error = {"code": "INTERNAL", "message": message, "help_path": op}
        return {"type": "exec", "op": op, "ok": False, "error": error}, trust
    return {"type": "exec", **_body(result)}, trust


def _body(result: ToolResult) -> dict[str, Any]:
    """Return a result in the words of the envelope; one that was too long for them as the text that is left of it."""
    body = result.structured_content
    if isinstance(body, dict):
        return cast("dict[str, Any]", body)
    return {"ok": result.error is None, "result": result.text}
