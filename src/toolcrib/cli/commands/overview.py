"""`toolcrib` alone: one screen of clients, servers, what they cost, and what there is to do about them.

No server is started: tools are those that were listed before, and the state of a server is the one that was last
seen. The facts are kept in the cache folder with the stamps of every file that they come from (`overview_facts`
gathers them); as long as none changed, the screen is printed from there, without loading the configuration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...config.directories import Places, here
from ...core.json import as_mapping, dumps, loads
from ...daemon.caller import is_interactive
from ...system.private_files import replace_private
from ..output import Column, confirm, emit_json, escape, out, table

_FORMAT: Final = 2
_FILE: Final = "overview.json"
_CLIENTS: Final[tuple[Column, ...]] = (
    ("CLIENT", "<"),
    ("SERVERS", ">"),
    ("TOOLS", ">"),
    ("TOKENS A TURN", ">"),
    ("STATE", "<"),
)
_TITLES: Final[Mapping[str, str]] = {
    "duplicate": "duplicates",
    "login": "logins needed",
    "silent": "do not answer",
    "risky": "risky",
    "unknown": "not listed yet",
    "entry": "broken entries",
    "problem": "problems",
}
"""Kinds of findings, in the order of the screen, and their titles."""
_FIRST_STEPS: Final = (
    "no servers yet:",
    "  `toolcrib demo --once` shows the gateway at work on sample servers",
    "  `toolcrib add NAME -- COMMAND …` or `toolcrib add NAME URL` adds an MCP server",
    "  `toolcrib connect CLIENT` then puts Toolcrib into your client",
)
_SHOWN: Final = 6
"""Findings of one kind that the screen has; `--json` has all."""


def overview(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show clients, servers, tokens a turn, duplicates, logins needed and risky servers; offer to fix what can be.

    No server is started. The same as `toolcrib` without a command.
    """
    print_overview(here(), as_json=as_json)


def print_overview(places: Places, *, as_json: bool) -> None:
    """Print the screen and, at a terminal, offer to connect the clients that have servers of their own."""
    facts = _facts(places)
    if as_json:
        emit_json({name: value for name, value in facts.items() if name not in ("format", "stamps", "place")})
        return
    for line in _screen(facts):
        out(line)
    fixable: list[str] = facts["fixable"]
    if not fixable:
        return
    command = f"toolcrib connect {' '.join(fixable)} --replace"
    if not is_interactive("stdout"):
        out(f"\nto fix it:  {command}   (--dry-run shows what would change)")
        return
    from .connect import connect  # loaded for the question only

    out(f"\n{command} --dry-run")
    connect(fixable, move=True, dry_run=True)
    if confirm("Fix it?"):
        connect(fixable, move=True)


def _screen(facts: Mapping[str, Any]) -> Sequence[str]:
    """Return the lines of the screen after printing the table, which measures the terminal itself."""
    rows = [
        (
            client["title"],
            str(client["servers"]),
            str(client["tools"]),
            _tokens(client),
            _state(client),
        )
        for client in facts["clients"]
    ]
    own = facts["own"]
    rows.append(("Toolcrib itself", str(own["servers"]), str(own["tools"]), _tokens(own), own["file"]))
    table(_CLIENTS, rows)
    lines = ["", f"tokens: {facts['tokenizer']}, of the definitions that were listed before"]
    for kind, title in _TITLES.items():
        found = [finding for finding in facts["findings"] if finding["kind"] == kind]
        if kind == "unknown":  # one command for all
            found = _by_detail(found)
        if not found:
            continue
        lines += ["", f"{title}:"]
        for one in found[:_SHOWN]:
            lines.append(f"  {escape(one['subject'])}: {escape(one['detail'])}")
        lines += [f"  … {len(found) - _SHOWN} more: `toolcrib overview --json`"] if len(found) > _SHOWN else []
    if not (facts["findings"] or facts["fixable"]):
        has_servers = own["servers"] or any(client["servers"] for client in facts["clients"])
        lines += ["", "nothing to do"] if has_servers else ["", *_FIRST_STEPS]
    return [*lines, "", "`toolcrib --help` lists the commands, `toolcrib doctor` checks servers and machine"]


def _state(client: Mapping[str, Any]) -> str:
    """Return the state of a client, with the reason why `connect` left it alone."""
    if client["refused"]:
        return f"shorter without ({client['refused']:,} tokens with)"
    return "connected" if client["connected"] else "not connected"


def _by_detail(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return findings with the same detail as one."""
    subjects: dict[str, list[str]] = {}
    for finding in findings:
        subjects.setdefault(finding["detail"], []).append(finding["subject"])
    return [
        {"subject": ", ".join(names[:_SHOWN]) + (f" and {more} more" if more else ""), "detail": detail}
        for detail, names in subjects.items()
        for more in [max(0, len(names) - _SHOWN)]
    ]


def _tokens(row: Mapping[str, Any]) -> str:
    """Return a figure for people; one that lacks servers that were never listed says so."""
    if row["tokens"] is None or (row["unlisted"] and not row["tokens"]):
        return "not listed yet"
    mark = "" if row["exact"] else "≈"
    return f"{mark}{row['tokens']:,}{' and more' if row['unlisted'] else ''}"


def _facts(places: Places) -> Mapping[str, Any]:
    """Return the facts, from the cache while nothing that they come from has changed."""
    path = places.directories.cache / _FILE
    place = [str(places.project), str(places.directories.config), __file__]
    kept = _read(path)
    if kept.get("place") == place and all(_stamp(file) == stamp for file, stamp in kept["stamps"].items()):
        return kept
    from .overview_facts import gather  # it loads the configuration

    facts, files = gather(places)
    stamps = {file: _stamp(file) for file in (*map(str, files), *_program_files())}
    fresh = {**facts, "format": _FORMAT, "place": place, "stamps": stamps}
    with suppress(OSError, TypeError):  # the next screen takes a little longer; a path may be no JSON
        replace_private(path, dumps(fresh))
    return fresh


def _read(path: Path) -> Mapping[str, Any]:
    try:
        kept: Any = loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    found = as_mapping(kept)
    return found if found.get("format") == _FORMAT else {}


def _stamp(file: str) -> list[int] | None:
    """Return a stamp that changes with the content of a file, or with the names in a folder."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]


def _program_files() -> list[str]:
    """Return the files of the program that made the facts, and the folders of packages: an upgrade changes one."""
    mine = [
        str(module.__file__)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "toolcrib" and getattr(module, "__file__", None)
    ]
    return [*mine, *(folder for folder in sys.path if folder.endswith("site-packages"))]
