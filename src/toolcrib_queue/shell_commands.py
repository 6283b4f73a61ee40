"""Commands of hooks and of evidence: calls of `run_command` whose end the command itself cannot make up."""

from __future__ import annotations

import secrets
from typing import Any, Final

from toolcrib.plugin import Context, ToolFailure

__all__ = ["run_shell"]

_UNKNOWN: Final = 128


async def run_shell(ctx: Context, command: str, folder: str, **more: Any) -> tuple[str, str, int]:
    """Run a command through the door; return its stdout, stderr and exit status, 128 where its shell was ended.

    An unguessable word at the end of stderr has the status: the rest of the text is written by the command itself, and
    of a long one only beginning and end are shown. Raises `ToolFailure` for one that did not run to its end.
    """
    word = f"ended-{secrets.token_hex(4)}"
    marked = f"( {command}\n); printf '\\n%s %d' {word} $? >&2"
    result = await ctx.call("run_command", {"command": marked, "working_dir": folder, **more})
    if result.error is not None:
        raise ToolFailure(result.error.code, f"run_command: {result.error.message}", hint=result.error.hint)
    text, is_there, end = result.text.rpartition(f"\n{word} ")
    out, _, err = f"\n{text if is_there else end}".partition("\n[stderr]\n")
    return out[1:], err.strip("\n"), int(end.partition("\n")[0]) if is_there else _UNKNOWN
