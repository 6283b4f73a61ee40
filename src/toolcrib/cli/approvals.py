"""`toolcrib approvals`: look at calls that wait for a yes, and answer them, from any terminal."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, cast, get_args

import typer

from ..config import Settings
from ..core.approval import HELD, RESUMED, Approval
from ..core.json import loads, read_json
from ..core.permission import Answer, Verdict
from ..crib.approvals import ApprovalService
from ..crib.storage import open_store
from ..errors import ToolFailure, UsageError
from ..policy.asking.confirmation import confirmation_word
from ..policy.asking.notifications import Board
from ..results.redact import Redactor
from .open_crib import AsJson, ConfigFiles, run, settings_of
from .output import Column, emit_json, escape, note, out, table
from .prompts import ask_person

__all__ = ["approvals"]

_VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
_ACTIONS: Final = ("list", "show", "watch", *_VERDICTS)
_COLUMNS: Final[tuple[Column, ...]] = (
    ("ID", "<"),
    ("TIME", "<"),
    ("STATE", "<"),
    ("TOOL", "<"),
    ("PRINCIPAL", "<"),
    ("BY", "<"),
    ("ARGUMENTS", "<"),
)
_SHORTEST: Final = 4
"""Characters of an id that are taken for the whole, when only one question begins so."""


def approvals(
    action: Annotated[
        str, typer.Argument(help=f"{', '.join(_ACTIONS[:3])}, or an answer: {', '.join(_VERDICTS)}.")
    ] = "list",
    id: Annotated[str, typer.Argument(metavar="[ID]", help="Which one; its beginning will do.")] = "",
    comment: Annotated[str, typer.Option("--comment", "-m", help="What the model is told, with a no.")] = "",
    args: Annotated[str, typer.Option("--args", help="With edit: all arguments, as a JSON object.")] = "",
    hash: Annotated[str, typer.Option("--hash", help="Answer only if this is still what is asked (show).")] = "",
    everything: Annotated[bool, typer.Option("--all", help="List those that are settled, too.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the calls that wait for an approval, show one, answer one, or watch them come.

    The first answer counts, wherever it is given; one that comes too late changes nothing.
    """
    if action not in _ACTIONS:
        raise UsageError(f"there is no {action!r}, only {', '.join(_ACTIONS)}")
    settings = settings_of(config)
    if action == "list":
        _print_list(run(lambda: _list(settings, everything)), as_json=as_json)
    elif action == "watch":
        run(lambda: _watch(settings, as_json=as_json))
    elif not id:
        raise UsageError(f"which one? toolcrib approvals {action} ID; `toolcrib approvals` lists them")
    elif action == "show":
        _print(*run(lambda: _show(settings, id)), as_json=as_json)
    else:
        answer = _answer(action, comment, args)
        _print(run(lambda: _decide(settings, id, answer, hash)), None, as_json=as_json)


@asynccontextmanager
async def _desk(settings: Settings) -> AsyncGenerator[ApprovalService]:
    """Open the store; what the arguments of an edit must be, the process knows that asked."""
    redact = Redactor(settings.secrets).value
    async with open_store(settings) as store:
        yield ApprovalService(store.approvals, Board(), redact, lambda name: None)


async def _list(settings: Settings, everything: bool) -> list[Approval]:
    async with _desk(settings) as desk:
        return await desk.list() if everything else await desk.pending()


async def _show(settings: Settings, id: str) -> tuple[Approval, Any]:
    async with _desk(settings) as desk:
        approval = await _find(desk, id)
        result = await desk.result(approval.id)
        return approval, None if result is None else {"text": result.text, "is_error": result.is_error}


async def _decide(settings: Settings, id: str, answer: Answer, hash: str) -> Approval:
    async with _desk(settings) as desk:
        return await desk.decide((await _find(desk, id)).id, answer, hash=hash)


async def _watch(settings: Settings, *, as_json: bool) -> None:
    """Print every question and what becomes of it; at a terminal, ask about each."""
    asks = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    async with _desk(settings) as desk:
        async for approval in desk.watch():
            if as_json:
                emit_json(asdict(approval))
            elif approval.state != "pending":
                note(f"{approval.id} {approval.state}{f' by {approval.by}' if approval.by else ''}")
            else:
                _print(approval, None, as_json=False)
                if asks:
                    await _ask(desk, approval)
            sys.stdout.flush()


async def _ask(desk: ApprovalService, approval: Approval) -> None:
    arguments: Any = loads(approval.arguments)
    answer = await ask_person(confirmation_word(approval.tool, approval.kind, approval.rule, arguments))
    try:
        await desk.decide(approval.id, answer, hash=approval.hash)
    except ToolFailure as failure:
        note(failure.message)


async def _find(desk: ApprovalService, id: str) -> Approval:
    """Return the approval of that id, or the only one whose id begins so. Raises `ToolFailure("not_found")`."""
    known = await desk.list(limit=1000)
    short = id.removeprefix("approval_")
    found = [one for one in known if len(short) >= _SHORTEST and one.id.removeprefix("approval_").startswith(short)]
    if len(found) > 1:
        raise UsageError(f"{id} is the beginning of {len(found)} ids: write more of it")
    return found[0] if found else await desk.get(id)


def _answer(verdict: Verdict, comment: str, args: str) -> Answer:
    by = f"{pwd.getpwuid(os.getuid()).pw_name} (command line)"
    if verdict == "comment" and not comment:
        raise UsageError("what is the model told? toolcrib approvals comment ID -m 'not on Fridays'")
    if (verdict == "edit") != bool(args):
        raise UsageError('edit takes all arguments: toolcrib approvals edit ID --args \'{"path": "a"}\'')
    return Answer(verdict=verdict, by=by, comment=comment, arguments=_object(args) if args else None)


def _object(text: str) -> dict[str, Any]:
    try:
        value = read_json(text, strict=True)
    except ValueError as error:
        raise UsageError(f"--args: {text[:80]!r} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError("--args takes a JSON object")
    return cast("dict[str, Any]", value)


def _print_list(found: list[Approval], *, as_json: bool) -> None:
    if as_json:
        emit_json([asdict(approval) for approval in found])
    elif found:
        table(_COLUMNS, (_cells(approval) for approval in found))
    else:
        note("nothing waits for an approval")


def _cells(approval: Approval) -> tuple[str, ...]:
    one = approval
    return (one.id, _time(one.created), one.state, one.tool, one.principal, one.by, one.arguments)


def _print(approval: Approval, result: Any, *, as_json: bool) -> None:
    """All of it: nothing is cut, so that nothing hides behind the cut."""
    if as_json:
        emit_json(asdict(approval) | ({"result": result} if result is not None else {}))
        return
    out(escape(f"{approval.id} is {approval.state}{f' by {approval.by}' if approval.by else ''}"))
    out(escape(f"{approval.tool} ({approval.kind}) of {approval.source}, for {approval.principal}"))
    out(escape(approval.arguments, lines=True))
    if approval.diff:
        out(escape(approval.diff.rstrip(), lines=True))
    out(escape(f"asked because of: {approval.rule}"))
    out(escape(f"call {approval.call_id}, hash {approval.hash}, expires {_time(approval.expires)}"))
    if approval.comment:
        out(escape(f"comment: {approval.comment}", lines=True))
    if approval.gone:
        job = "" if approval.job in ("", RESUMED) else f" (job {approval.job})"
        out(f"its caller left: it runs later, after a yes{job}")
    if approval.job == HELD:
        out("the call ended as approval_pending: after a yes the same call, made again, runs once")
    if result is not None:
        out(f"it came to:\n{escape(result['text'], lines=True)}")


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
