"""Results of the client suite: the record `works_with.json`, and the table of the page "Works with" made from it.

    PYTHONPATH=tests python -m clients.record     write the table anew
    pytest tests/clients/test_works_with.py --full-size --record     run the clients, write record and table

Both files are committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rig import ROOT

FILE: Final = Path(__file__).with_name("works_with.json")
PAGE: Final = ROOT / "docs" / "clients" / "index.md"
_BEGIN: Final = "<!-- works with: made by `pytest tests/clients/test_works_with.py --full-size --record` -->\n"
_END: Final = "<!-- works with: end -->"

Cell = Mapping[str, str]
"""By transport: empty when it works, else what it says instead."""

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "list, find, call": ("list", "find", "call"),
    "denied by a rule": ("denied",),
    "long result": ("big result",),
    "hung server": ("hung server",),
    "approved at its own prompt": ("asked",),
    "approved in another terminal, nobody at the client": ("alone",),
}
"""The columns of the table, and the cases that each stands for."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """What was found of one client."""

    title: str
    version: str
    tool: str
    """How its model is told of the verb `call_tool`."""
    cells: Mapping[str, Cell]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one run of the whole suite found."""

    date: str
    clients: tuple[Client, ...]


def load() -> Record:
    """Return the record."""
    kept = json.loads(FILE.read_text("utf-8"))
    return Record(date=kept["date"], clients=tuple(Client(**client) for client in kept["clients"]))


def save(record: Record) -> None:
    """Write the record, and the page with its table."""
    FILE.write_text(json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(replaced(PAGE.read_text("utf-8"), record), "utf-8")


def replaced(text: str, record: Record) -> str:
    """Return `text` with the table between its two marks. Raises ValueError when they are not there."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"no {_BEGIN.strip()} … {_END} in the text")
    return f"{before}{begin}{table(record)}{end}{after}"


def table(record: Record) -> str:
    """Return the table and its notes, as Markdown."""
    notes: dict[str, list[str]] = {}
    rows = [_row(client, notes) for client in record.clients]
    head = ["client", *_COLUMNS]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    transports = " and ".join(_named(transport) for transport in record.clients[0].cells["list"])
    said = f"Found on {record.date}, over {transports}; `tests/clients` is the run."
    numbered = [f"{number}. {', '.join(who)}: {why}." for number, (why, who) in enumerate(notes.items(), 1)]
    return "\n".join(["", *lines, "", said, "", *numbered, "", ""])


def _row(client: Client, notes: dict[str, list[str]]) -> list[str]:
    return [f"{client.title} {client.version}", *(_cell(client, cases, notes) for cases in _COLUMNS.values())]


def _cell(client: Client, cases: tuple[str, ...], notes: dict[str, list[str]]) -> str:
    """Return ✔, or the number of a note that says what came instead, which gets this client's title."""
    failed: dict[str, list[str]] = {}
    for case in cases:
        for transport, instead in client.cells[case].items():
            if instead:
                failed.setdefault(instead, []).append(transport)
    if not failed:
        return "✔"
    told = "; ".join(_instead(client, cases, where, instead) for instead, where in failed.items())
    notes.setdefault(told, []).append(client.title)
    return f"– ({list(notes).index(told) + 1})"


def _instead(client: Client, cases: tuple[str, ...], where: list[str], instead: str) -> str:
    everywhere = set(where) == set(client.cells[cases[0]])
    return instead if everywhere else f"over {' and '.join(map(_named, where))} {instead}"


def _named(transport: str) -> str:
    return transport.upper() if transport == "http" else transport


if __name__ == "__main__":
    save(load())
