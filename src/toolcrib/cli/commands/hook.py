"""`toolcrib hook claude` as the command line reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...claude_code.hook_messages import Unanswered
from ...errors import UsageError
from ..options import ConfigFiles
from ..processes.hook import SECONDS, HookOptions, answer


def hook(
    client: Annotated[str, typer.Argument(help="Whose hook this is: claude.")],
    config: ConfigFiles = None,
    mode: Annotated[str, typer.Option(help="What runs unasked: cautious, autonomous, plan …")] = "",
    unanswered: Annotated[
        Unanswered, typer.Option(help="What no answer in time means: deny, or ask, so that Claude Code asks itself.")
    ] = "deny",
    seconds: Annotated[float, typer.Option(help="After so long it is a deny in any case.", min=1)] = SECONDS,
) -> None:
    """Answer a hook of Claude Code (PreToolUse, PermissionRequest): the event on standard input, the answer on output.

    `toolcrib connect claude --approvals` puts it into Claude Code's settings.
    """
    if client != "claude":
        raise UsageError(f"there are hooks of claude only, not of {client!r}")
    files: tuple[Path, ...] = tuple(config or ())
    answer(HookOptions(tuple(map(str, files)), mode, unanswered, seconds))
