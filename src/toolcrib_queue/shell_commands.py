"""Commands of hooks and of evidence: calls of `run_command`, with the exit status that a command cannot make up."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.plugin import Context, ToolFailure

_UNKNOWN: Final = 128


async def run_shell(ctx: Context, command: str, folder: str, **more: Any) -> tuple[str, str, int]:
    """Run a command through the door, as it was written: rules and people see no other.

    Returns its stdout, its stderr and its exit status. Raises `ToolFailure` for one that did not run to its end.
    """
    result = await ctx.call("run_command", {"command": command, "working_dir": folder, **more})
    if result.error is not None:
        raise ToolFailure(result.error.code, f"run_command: {result.error.message}", hint=result.error.hint)
    lines = result.text.split("\n")
    first, last = result.meta.get("note_lines", (0, 0))
    text = "\n".join(lines[first : len(lines) - last])
    out, _, err = f"\n{text}".partition("\n[stderr]\n")
    return out[1:], err, result.meta.get("exit_status", _UNKNOWN)
