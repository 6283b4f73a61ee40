"""`toolcrib hook claude` as the command line reads it, and the desk in this process where there can be no daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import anyio
import typer

from ..claude_code.gate import gate_of
from ..claude_code.hook import answer_hook
from ..claude_code.hook_messages import HookRequest, Unanswered
from ..config import Settings
from ..crib import Toolcrib
from ..errors import UsageError
from ..sources.settings import SourceSettings
from .hook import SECONDS, HookOptions, answer
from .open_crib import ConfigFiles, run

__all__ = ["decide_here", "hook"]


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


def decide_here(settings: Settings, request: HookRequest, seconds: float) -> str:
    """Decide in this process: the question is in the store as always, answers that last are not remembered.

    Raises `UsageError` when there is no answer within `seconds`.
    """

    async def main() -> str:
        bare = replace(settings, sources=SourceSettings.model_construct(builtins=False))
        with anyio.move_on_after(seconds):
            async with Toolcrib(bare) as crib:
                return await answer_hook(gate_of(crib), request)
        raise UsageError("nobody answered in time")

    return run(main)
