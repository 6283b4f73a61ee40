"""`toolcrib call`: run one tool from the command line, through the same pipeline as everybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, cast

import typer
from msgspec import Struct

from ...core.json import MESSAGE_BYTES, as_list
from ...core.permission import Answer, Question
from ...core.result import ToolResult
from ...core.schema.nodes import Node, properties_of, types_of, value_of
from ...core.tool import Tool
from ...crib import CallOptions, Session, Toolcrib
from ...crib.plugins import GUESTS
from ...daemon.caller import LeftToCaller, current_caller, is_interactive
from ...disclosure.settings import BY_CATALOG
from ...errors import CODES, UsageError
from ...policy.questions import NO_OTHER_WAY
from ..open_crib import only_for, opened, patience, report, report_missing
from ..options import ConfigFiles, Wait, read_object, read_option, run, settings_of
from ..output import emit_json, escape, note, out, print_raw, read_input
from ..prompts import Terminal

_SERVERS: Final = frozenset({"mcp", "openapi"})
"""Origins of the tools of servers."""

HOW_TO_SAY_YES: Final = "here: `--yes` says yes to it, and in a terminal it is asked"
"""Hint of a command for a denial for want of an approver."""


class GivenArgument(Struct, frozen=True):
    """One argument of a command line."""

    name: str
    value: Any
    is_text: bool = False
    """The schema gives its type."""


def call(
    name: Annotated[str, typer.Argument(metavar="TOOL")],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="k=v …", help="`k:=JSON` is JSON, `{…}` is all of them.")
    ] = None,
    args: Annotated[str | None, typer.Option("--args", help="All arguments as a JSON object; - reads it.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="cautious, autonomous, plan … or your own.")] = None,
    task: Annotated[
        str, typer.Option("--task", metavar="ID", help="Go on with the pending changes, or the shadow, of this task.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Say yes to what would be asked.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, run nothing.")] = False,
    version: Annotated[
        str, typer.Option("--tool-version", help="Of the tool; else the newest, or what is pinned.")
    ] = "",
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds.", min=0.001)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print text as it came, control characters too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    config: ConfigFiles = None,
    wait: Wait = 10.0,
) -> None:
    """Run one tool and print what it answers. What must be asked is asked on the terminal, else denied."""

    async def main() -> ToolResult | None:
        given = read_arguments(pairs or (), None if args == "-" else args)  # refused before a server starts
        async with opened(only_for(settings_of(config, mode=mode), name), wait=wait) as crib:
            tool = crib.catalog.find(name)
            if current_caller() is not None and tool is not None and not _is_of_daemon(tool):
                return None
            if args == "-":  # now: a process that the call is left to reads its input itself
                given = read_arguments(pairs or (), args)
            arguments = typed_arguments(given, tool)
            terminal = Terminal()
            asks = terminal if is_interactive() else None
            session = crib.session(profile=BY_CATALOG, approver=say_yes if yes else asks, task=task)
            async with session, patience(lambda: "" if terminal.asked else f"running {name} …"):
                options: CallOptions = {"origin": "cli", "timeout": timeout, "dry_run": dry_run, "version": version}
                answer = await session.call(name, arguments, **options)
            if answer.error is not None:
                _report_cause(crib, session, name, answer.error.code)
            return answer

    result = run(main)
    if result is None:
        raise LeftToCaller
    if as_json:
        emit_json(result.to_json())
    else:
        _print(result, raw=raw)
    if result.error is not None and result.error.details.get("nearest") == []:  # an unknown name like no other
        note("`toolcrib tools` lists all, `toolcrib find` searches")
    if result.error is not None and result.error.details.get("reason") == "no_approver":
        note(HOW_TO_SAY_YES)
    if result.error is not None:
        raise typer.Exit(CODES[result.error.code].exit)


def _report_cause(crib: Toolcrib, session: Session, name: str, code: str) -> None:
    """Print on standard error what a person may know about a failed call and a model may not."""
    if code in ("not_found", "not_in_scope"):
        report_missing(crib, session, name)
    elif code == "unavailable":
        report(crib)


def _is_of_daemon(tool: Tool) -> bool:
    """Whether a daemon runs the tool as this process would: code of the user sees the process and its variables."""
    return tool.origin in _SERVERS or tool.source == GUESTS


def parse_arguments(pairs: Iterable[str], whole: str | None, tool: Tool | None) -> dict[str, Any]:
    """Return the arguments that `k=v`, `k:=JSON`, a JSON object and `--args` say, read by the types of the schema.

    A value stays text where the schema admits text, or says nothing. Raises `UsageError` for what cannot be read.
    """
    return typed_arguments(read_arguments(pairs, whole), tool)


def read_arguments(pairs: Iterable[str], whole: str | None) -> Sequence[GivenArgument]:
    """Return the arguments in their order. Raises `UsageError` for what no tool could take."""
    given = _object(whole) if whole is not None else []
    for pair in pairs:
        if pair.startswith("{"):  # no argument has such a name
            given += _object(pair)
            continue
        key, equals, value = pair.partition("=")
        if not equals or not key.rstrip(":"):
            raise UsageError(f"{pair!r} is not an argument: write name=value, name:=JSON, or '{{…}}' for all")
        if key.endswith(":"):
            given.append(GivenArgument(key[:-1], read_option(value, key[:-1])))
        else:
            given.append(GivenArgument(key, value, is_text=True))
    return given


def typed_arguments(given: Iterable[GivenArgument], tool: Tool | None) -> dict[str, Any]:
    """Return the arguments by the types of the schema."""
    schema: Node = dict(tool.input_schema) if tool else {}
    declared = properties_of(schema, schema) if tool else {}
    arguments: dict[str, Any] = {}
    for one in given:
        if one.is_text and one.name in declared:
            _put(arguments, one.name, one.value, types_of(declared[one.name], schema))
        else:
            arguments[one.name] = one.value
    return arguments


def _put(arguments: dict[str, Any], key: str, value: str, types: frozenset[str]) -> None:
    """One value by its type; a list may also be given item by item."""
    parsed = value_of(value, types)
    if "array" in types and "string" not in types and not isinstance(parsed, list):
        items = as_list(arguments.get(key))
        parsed = [*items, parsed]
    elif key in arguments:
        raise UsageError(f"{key} is given twice, and takes one value")
    arguments[key] = parsed


def _object(text: str) -> list[GivenArgument]:
    given = read_object(read_input(MESSAGE_BYTES + 1) if text == "-" else text)
    return [GivenArgument(name, one) for name, one in given.items()]


async def say_yes(question: Question) -> Answer:
    """Approve a call and report that it runs (`--yes`)."""
    note(f"running {question.tool.name}: {question.decision.rule} (--yes)")
    return Answer(verdict="yes", by="--yes")


def _print(result: ToolResult, *, raw: bool) -> None:
    """Text on standard output, an error on standard error; other content is named."""
    for block in result.content:
        text = str(block.get("text", "")) if block.get("type") == "text" else _named(block)
        is_ours = result.error is not None and result.error.code != "tool_error"  # a tool's own text keeps its lines
        if is_ours and not raw:
            note(text.replace(NO_OTHER_WAY, "").rstrip())
        else:
            print_raw(f"{text if raw else escape(text, lines=True)}\n", is_error=result.is_error)
    if not result.content and result.structured_content is not None:
        emit_json(result.structured_content)
    if result.input_required is not None:
        out("the tool asks for input first, which the command line cannot give: call it through an MCP client")


def _named(block: Mapping[str, Any]) -> str:
    resource = block.get("resource")
    about: Mapping[str, Any] = cast("Mapping[str, Any]", resource) if isinstance(resource, Mapping) else block
    parts = [str(block.get("type")), *(str(about[key]) for key in ("mimeType", "uri") if key in about)]
    return f"[{' '.join(parts)}; --json has it whole]"
