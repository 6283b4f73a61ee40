"""Steps of hooks: calls of the session that gather context, and the prompt that they fill."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from toolcrib.plugin import Context, Row, ToolFailure, as_mapping, fenced_text, invalid_argument
from toolcrib_tools._http import MOST_SECONDS

from ..operations import storage_of
from ..shell_commands import run_shell
from ..state import date_of

_LARGE: Final = 50_000
_STEPS: Final[Mapping[str, str]] = {
    "shell": "command",
    "read_file": "path",
    "http": "url",
    "db_query": "query",
    "git_diff": "workspace",
}
"""Type of a step → the key that it needs."""
_QUERIES: Final[Mapping[str, str]] = {
    "recent_task_results": (
        "SELECT task_id, agent_id, result, summary, error_message, tokens_used FROM {results} AS r"
        " WHERE project_id = ? ORDER BY created_at DESC LIMIT 20"
    ),
    "task_detail": (
        "SELECT id, title, description, status, error_message FROM {tasks} AS t WHERE project_id = ? AND id = ?"
    ),
    "hook_runs": (
        "SELECT hook_id, trigger_reason, status, skipped_reason FROM {hook_runs} AS h"
        " WHERE project_id = ? ORDER BY created_at DESC LIMIT 20"
    ),
}
"""Queries that a step may name; `recent_events` reads the log."""
_SKIPS: Final = ("skip_llm_if_exit_zero", "skip_llm_if_empty", "skip_llm_if_status_ok")
_FIELD: Final = re.compile(r"\{\{\s*(\w+)((?:\.\w+){0,8})\s*\}\}")
_OWN_FIELDS: Final = ("type", "project_id", "task_id", "event")
"""Fields of an event that the queue wrote itself."""
_EMPTY: Final = ("[the file is empty]", "[no difference]")
"""Texts of `read_file` and `git_diff` where there is nothing."""

CONTEXT_STEPS: Final = {
    "type": "array",
    "maxItems": 20,
    "items": {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": [*_STEPS]},
            "command": {"type": "string", "maxLength": 4000},
            "timeout": {"type": "number", "minimum": 1, "maximum": 300},
            "path": {"type": "string", "maxLength": 1000},
            "max_lines": {"type": "integer", "minimum": 1, "maximum": 2000},
            "url": {"type": "string", "maxLength": 2000},
            "query": {"type": "string", "enum": [*_QUERIES, "recent_events"]},
            "params": {"type": "object"},
            "workspace": {"type": "string", "maxLength": 1000},
            "base_branch": {"type": "string", "maxLength": 200},
            **{name: {"type": "boolean"} for name in _SKIPS},
        },
        "required": ["type"],
        "additionalProperties": False,
    },
}


def check_steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ToolFailure` for a step without the key that its type needs."""
    for number, step in enumerate(steps):
        key = _STEPS[step["type"]]
        if not step.get(key):
            raise invalid_argument(
                f"context_steps[{number}].{key}", f"a step of type {step['type']} needs it", keyword="required"
            )


async def make_steps(ctx: Context, hook: Row) -> tuple[list[dict[str, Any]], str, str]:
    """Make the steps of a hook in their order; return their results, and why it was skipped or failed."""
    results: list[dict[str, Any]] = []
    for number, step in enumerate(hook["context_steps"]):
        try:
            results.append(await make_step(ctx, hook, step))
        except ToolFailure as failure:
            return results, "", f"step {number}: {failure.message}"
        if skipped := _skip_reason(step, results[-1]):
            return results, skipped, ""
    return results, "", ""


async def make_step(ctx: Context, hook: Row, step: Mapping[str, Any], *, folder: str = ".") -> dict[str, Any]:
    """Make one step as a call of this session; return its fields.

    `folder` is where commands run, and what paths of files begin at.
    """
    kind = step["type"]
    if kind == "db_query":
        return await _query(ctx, hook, step)
    if kind == "shell":
        out, err, status = await run_shell(ctx, step["command"], folder, timeout=step.get("timeout", 60))
        return {"stdout": out[:_LARGE], "stderr": err[:10_000], "exit_code": status}
    name, arguments = {
        "read_file": ("read_file", {"path": f"{folder}/{step.get('path')}", "limit": step.get("max_lines", 500)}),
        "http": ("web_fetch", {"url": step.get("url"), "timeout_seconds": min(step.get("timeout", 30), MOST_SECONDS)}),
        "git_diff": ("git_diff", {"repo": step.get("workspace"), "ref1": step.get("base_branch") or ""}),
    }[kind]
    result = await ctx.call(name, arguments)
    text = "" if result.text in _EMPTY else result.text[:_LARGE]
    if kind == "http":
        details = as_mapping(result.error.details) if result.error is not None else {"status": 200}
        return {"body": text, "status_code": details.get("status", 0)}
    if result.error is not None:
        raise ToolFailure(result.error.code, f"{name}: {result.error.message}", hint=result.error.hint)
    return {"content" if kind == "read_file" else "diff": text}


async def _query(ctx: Context, hook: Row, step: Mapping[str, Any]) -> dict[str, Any]:
    query = step["query"]
    params: Mapping[str, Any] = step.get("params") or {}
    if query == "recent_events":
        events = await ctx.events(project_id=hook["project_id"], limit=20)
        found = [{"type": one.type, "payload": dict(one.payload), "time": date_of(one.time)} for one in events]
    else:
        given = (hook["project_id"], *([str(params.get("task_id", ""))] if query == "task_detail" else []))
        found = await storage_of(ctx).read(lambda rows: rows.select(_QUERIES[query], given))
    return {"rows": found, "count": len(found)}


def _skip_reason(step: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return why no prompt is needed after this step; empty where it goes on."""
    if step.get("skip_llm_if_exit_zero") and result.get("exit_code") == 0:
        return "skip_llm_if_exit_zero"
    if step.get("skip_llm_if_status_ok") and result.get("status_code") == 200:
        return "skip_llm_if_status_ok"
    content = next((result[name] for name in ("stdout", "content", "body", "rows", "diff") if name in result), "")
    is_empty = not content.strip() if isinstance(content, str) else not content
    return "skip_llm_if_empty" if step.get("skip_llm_if_empty") and is_empty else ""


def fill(template: str, results: Mapping[str, Mapping[str, Any]], event: Mapping[str, Any]) -> str:
    """Return a prompt with its places filled by the name of a result; a place without a value stays empty.

    Outputs of steps, and texts of events that people and agents wrote, stand in a fence: an agent reads them as data.
    """
    room = _LARGE // max(1, len(_FIELD.findall(template)))
    known: dict[str, Any] = {**results, "event": event}

    def value(match: re.Match[str]) -> str:
        found: Any = known.get(match[1], "")
        path = match[2].split(".")[1:]
        for name in path:
            found = found[int(name)] if _is_place(found, name) else as_mapping(found).get(name, "")
        if not path and match[1] != "event":
            found = next(iter(as_mapping(found).values()), "")
        if not found or isinstance(found, int | float) or (match[1] == "event" and match[2][1:] in _OWN_FIELDS):
            return str(found)
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
        return fenced_text(text[:room], match[0].strip("{} "))

    return _FIELD.sub(value, template)


def _is_place(found: Any, name: str) -> bool:
    return isinstance(found, list) and name.isdecimal() and len(name) < 9 and int(name) < len(cast("list[Any]", found))
