"""`toolcrib approvals`: look at calls that wait for a yes, and answer them, from any terminal."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...config import Settings
from ...core.json import fields_of, loads
from ...core.permission import HELD, RESUMED, Answer, Approval, Verdict
from ...crib.approvals import ApprovalService
from ...crib.storage import has_store, place_of, store_of
from ...errors import ToolFailure, UsageError
from ...policy.approval_options import ApprovalNotices
from ...policy.questions import confirmation_word
from ...results.redaction.redactor import Redactor
from ..actions import action_group
from ..options import AsJson, ConfigFiles, find_by_id, read_object, run, settings_of
from ..output import Column, emit_json, escape, local_time, note, out, table
from ..prompts import ask_person

_COLUMNS: Final[tuple[Column, ...]] = (
    ("ID", "<"),
    ("TIME", "<"),
    ("STATE", "<"),
    ("TOOL", "<"),
    ("PRINCIPAL", "<"),
    ("BY", "<"),
    ("ARGUMENTS", "<"),
)
_ANSWERS: Final[Mapping[Verdict, str]] = {
    "yes": "Allow this call.",
    "once": "Allow this call, as `yes` does.",
    "always": "Allow this definition of the tool for the rest of the session.",
    "turn": "Allow every call until the next interaction.",
    "idle": "Allow every call until the session rests.",
    "all": "Allow every call of the session.",
    "no": "Deny this call.",
    "comment": "Deny this call with a comment that the model reads.",
    "never": "Deny the tool for the rest of the session.",
}
"""Every verdict but `edit`, and the help of its action."""
_PREFIX: Final = "approval_"

approvals = action_group(
    "List the calls that wait for an approval, show one, answer one, or watch them come.\n\n"
    "The first answer counts, wherever it is given; a later one changes nothing.",
    default="list",
)

_Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a question, or its beginning.")]
_Hash = Annotated[str, typer.Option("--hash", help="Answer only if this is still the question's hash (`show`).")]
_Comment = Annotated[str, typer.Option("--comment", "-m", help="A comment that the model reads with the answer.")]


@approvals.command("list")
def list_approvals(
    everything: Annotated[bool, typer.Option("--all", help="List settled questions too.")] = False,
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """List the calls that wait for an approval."""
    found = run(lambda: _list(settings_of(config), everything))
    if as_json:
        emit_json([fields_of(approval) for approval in found])
    elif found:
        table(_COLUMNS, (_cells(approval) for approval in found))
    else:
        note(f"nothing waits for an approval in {_place(config)}")


@approvals.command("show")
def show_approval(id: _Id, config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Show one question whole: arguments, rule, diff and hash; and the result of its call."""
    with _naming_the_store(config):
        _print(*run(lambda: _show(settings_of(config), id)), as_json=as_json)


@approvals.command("watch")
def watch_approvals(config: ConfigFiles = None, as_json: AsJson = False) -> None:
    """Print every question as it comes, and its answer; on a terminal, ask for the answer."""
    run(lambda: _watch(settings_of(config), as_json=as_json))


def _add_answer(verdict: Verdict, help: str) -> None:
    @approvals.command(verdict, help=help)
    def answer(
        id: _Id, comment: _Comment = "", hash: _Hash = "", config: ConfigFiles = None, as_json: AsJson = False
    ) -> None:
        if verdict == "comment" and not comment:
            raise UsageError("the comment is missing: toolcrib approvals comment ID -m 'not on Fridays'")
        _answer(id, Answer(verdict=verdict, by=_person(), comment=comment), hash, config, as_json=as_json)


for _verdict, _help in _ANSWERS.items():
    _add_answer(_verdict, _help)


@approvals.command("edit")
def edit_approval(
    id: _Id,
    args: Annotated[str, typer.Option("--args", help="All arguments, as a JSON object.")],
    comment: _Comment = "",
    hash: _Hash = "",
    config: ConfigFiles = None,
    as_json: AsJson = False,
) -> None:
    """Allow this call with other arguments, which are validated and decided on anew."""
    given = Answer(verdict="edit", by=_person(), comment=comment, arguments=read_object(args))
    _answer(id, given, hash, config, as_json=as_json)


def _answer(id: str, answer: Answer, hash: str, config: list[Path] | None, *, as_json: bool) -> None:
    with _naming_the_store(config):
        _print(run(lambda: _decide(settings_of(config), id, answer, hash)), None, as_json=as_json)


def _place(config: list[Path] | None) -> str:
    """Return the store that was read, and the option that names another one: each gateway may have its own."""
    settings = settings_of(config)
    place = "PostgreSQL" if settings.store.url else str(place_of(settings))  # a URL may hold a password
    return f"{place}; `--config FILE` reads that of a gateway" if config is None else place


@contextmanager
def _naming_the_store(config: list[Path] | None) -> Generator[None]:
    try:
        yield
    except ToolFailure as failure:
        if failure.code != "not_found":
            raise
        raise ToolFailure(failure.code, f"{failure.message} in {_place(config)}") from None


@asynccontextmanager
async def _service(settings: Settings, *, is_watched: bool = False) -> AsyncGenerator[ApprovalService]:
    """Open the store; what the arguments of an edit must be, the process knows that asked.

    A missing store is made only where its first question is watched for.
    """
    redact = Redactor(settings.secrets).value
    store = store_of(settings, memory=not is_watched and not has_store(settings))
    store.start()
    async with store:
        yield ApprovalService(store.approvals, ApprovalNotices(), redact, lambda name: None)


async def _list(settings: Settings, everything: bool) -> list[Approval]:
    async with _service(settings) as service:
        return await service.list() if everything else await service.pending()


async def _show(settings: Settings, id: str) -> tuple[Approval, Any]:
    async with _service(settings) as service:
        approval = await _find(service, id)
        result = await service.result(approval.id)
        return approval, None if result is None else {"text": result.text, "is_error": result.is_error}


async def _decide(settings: Settings, id: str, answer: Answer, hash: str) -> Approval:
    async with _service(settings) as service:
        return await service.decide((await _find(service, id)).id, answer, hash=hash)


async def _watch(settings: Settings, *, as_json: bool) -> None:
    """Print every question and what becomes of it; at a terminal, ask about each."""
    asks = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    async with _service(settings, is_watched=True) as service:
        async for approval in service.watch():
            if as_json:
                emit_json(fields_of(approval))
            elif approval.state != "pending":
                note(f"{approval.id} {approval.state}{f' by {approval.by}' if approval.by else ''}")
            else:
                _print(approval, None, as_json=False)
                if asks:
                    await _ask(service, approval)
            sys.stdout.flush()


async def _ask(service: ApprovalService, approval: Approval) -> None:
    arguments: Any = loads(approval.arguments)
    answer = await ask_person(confirmation_word(approval.tool, approval.kind, approval.rule, arguments))
    try:
        await service.decide(approval.id, answer, hash=approval.hash)
    except ToolFailure as failure:
        note(failure.message)


async def _find(service: ApprovalService, id: str) -> Approval:
    """Return the approval of that id, or the only one whose id begins so. Raises `ToolFailure("not_found")`."""
    return find_by_id(await service.list(limit=1000), id, _PREFIX) or await service.get(id)


def _person() -> str:
    return f"{pwd.getpwuid(os.getuid()).pw_name} (command line)"


def _cells(approval: Approval) -> tuple[str, ...]:
    one = approval
    return (one.id, local_time(one.created), one.state, one.tool, one.principal, one.by, one.arguments)


def _print(approval: Approval, result: Any, *, as_json: bool) -> None:
    """All of it: nothing is cut, so that nothing hides behind the cut."""
    if as_json:
        emit_json(fields_of(approval) | ({"result": result} if result is not None else {}))
        return
    out(escape(f"{approval.id} is {approval.state}{f' by {approval.by}' if approval.by else ''}"))
    out(escape(f"{approval.tool} ({approval.kind}) of {approval.source}, for {approval.principal}"))
    if approval.folder:
        out(escape(f"in {approval.folder}"))
    out(escape(approval.arguments, lines=True), verbatim=True)
    if approval.diff:
        out(escape(approval.diff.rstrip(), lines=True), verbatim=True)
    out(escape(f"asked because of: {approval.rule}"))
    out(escape(f"call {approval.call_id}, hash {approval.hash}, expires {local_time(approval.expires)}"))
    if approval.comment:
        out(escape(f"comment: {approval.comment}", lines=True))
    if approval.gone:
        job = "" if approval.job in ("", RESUMED) else f" (job {approval.job})"
        out(f"its caller left: it runs later, after a yes{job}")
    if approval.job == HELD:
        out("the call ended as approval_pending: after a yes the same call, made again, runs once")
    if result is not None:
        out(f"it came to:\n{escape(result['text'], lines=True)}", verbatim=True)
