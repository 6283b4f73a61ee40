"""Commands of hooks and of evidence: calls of `run_command` whose end the command itself cannot make up."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

from toolcrib.plugin import Context, ToolFailure

__all__ = ["run_shell"]

_UNKNOWN: Final = 128
_FAILED: Final = re.compile(r"^\[(?:exit status (\d+)|ended by )", re.MULTILINE)


async def run_shell(ctx: Context, command: str, folder: str, **more: Any) -> tuple[str, str, int]:
    """Run a command through the door; return its stdout, stderr and exit status, 128 where its shell was ended.

    An unguessable word ends the stderr of one that succeeds, and a note of `run_command` the text of one that fails:
    all else in the text is written by the command itself. Raises `ToolFailure` for one that did not run to its end.
    """
    word = f"shown-{secrets.token_hex(4)}"
    marked = f"( {command}\n) && printf '\\n%s' {word} >&2"
    result = await ctx.call("run_command", {"command": marked, "working_dir": folder, **more})
    if result.error is not None:
        raise ToolFailure(result.error.code, f"run_command: {result.error.message}", hint=result.error.hint)
    text, is_there, end = result.text.rpartition(f"\n{word}")
    failed = [*_FAILED.finditer(end)][-1:]  # the last one: the command can print such a line, too
    if not is_there:
        text = end[: failed[0].start()] if failed else end
    out, _, err = f"\n{text}".partition("\n[stderr]\n")
    status = int(failed[0][1] or _UNKNOWN) if failed else 0 if is_there else _UNKNOWN
    return out.strip("\n"), err.strip("\n"), status
