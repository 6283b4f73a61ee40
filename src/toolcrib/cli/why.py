"""`toolcrib why`: whether a tool can be called here and now and, if not, what stops it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from ..core.permission import Answer, NoApprover, Question
from ..crib.explainer import Why
from ..errors import CODES
from .call import parse_arguments
from .open_crib import only_for, opened
from .options import AsJson, ConfigFiles, Wait, run, settings_of
from .output import emit_json, escape, out

__all__ = ["why"]


def why(
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Its name, or SERVER/NAME as the server calls it.")],
    args: Annotated[str | None, typer.Option("--args", help="Arguments as a JSON object; - reads it.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Of the session; see `toolcrib profile`.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="cautious, autonomous, plan … or your own.")] = None,
    principal: Annotated[str | None, typer.Option("--principal", help="Whose session; local by default.")] = None,
    config: ConfigFiles = None,
    as_json: AsJson = False,
    wait: Wait = 10.0,
) -> None:
    """Say whether a tool can be called here and now and, if not, what stops it. Runs nothing.

    Ends with the status that the call would end with; `asks` counts as one that runs.
    """

    async def main() -> Why:
        async with opened(only_for(settings_of(config, mode=mode), name), wait=wait, fresh=True) as crib:
            options: dict[str, Any] = {"profile": profile, "principal": principal}
            given = {key: value for key, value in options.items() if value}
            arguments = parse_arguments((), args, crib.catalog.find(name))
            return crib.explainer.why(name, crib.session(approver=_nobody, **given), arguments)

    answer = run(main)
    if as_json:
        emit_json(asdict(answer))
    else:
        _print(answer)
    if answer.code:
        raise typer.Exit(CODES[answer.code].exit)


async def _nobody(question: Question) -> Answer:
    """Approver that never answers: a call that asks is reported as such, and nothing runs."""
    raise NoApprover(question.tool.name)


def _print(answer: Why) -> None:
    rows = {
        "verdict": answer.verdict,
        "tool": answer.tool if answer.tool != answer.asked else "",
        "source": answer.source,
        "stopped by": answer.stopped_by,
        "reason": answer.reason,
        "hint": answer.hint,
        "version": answer.version,
        "deprecated": answer.deprecated,
    }
    for key, value in rows.items():
        if value:
            out(f"{key + ':':<12}{escape(value)}")
