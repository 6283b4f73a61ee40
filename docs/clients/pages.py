"""The pages of the clients, from the client table (`toolcrib.config.clients.table`) and the record of the test run.

python docs/clients/pages.py    writes a page a client beside this file, and the table of index.md
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from toolcrib.cli.clients.own_entry import command_line
from toolcrib.config.clients.connections import NAME, connect
from toolcrib.config.clients.table import CLIENTS, Client
from toolcrib.config.directories import Directories, Places

__all__ = ["ENTRY_KEYS", "FOLDER", "index", "pages"]

FOLDER: Final = Path(__file__).parent
RECORD: Final = FOLDER.parents[1] / "tests" / "clients" / "works_with.json"
ENTRY_KEYS: Final = (
    "autoApprove",
    "alwaysAllow",
    "autoApproveAll",
    "trust",
    "default_tools_approval_mode",
    "tools.TOOL.approval_mode",
)
"""Keys of a server's entry that say what the client allows; `connect --replace` carries them over from every client."""

_BEGIN: Final = "<!-- clients: made by `python docs/clients/pages.py` -->\n"
_END: Final = "<!-- clients: end -->"
_MADE: Final = (
    "<!-- made by `python docs/clients/pages.py` from the client table in src/toolcrib/config/clients/table.py -->"
)
_SYSTEMS: Final[Mapping[str, str]] = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
_PROGRAM: Final = "/path/to/toolcrib"
_PROFILES: Final[Mapping[str, str]] = {
    "adaptive": "`adaptive`: every tool while the definitions are small, else search, describe and call",
}


def pages() -> Mapping[str, str]:
    """Return the text of every page by its file name."""
    versions = {one["title"]: one["version"] for one in _record()["clients"]}
    return {f"{name}.md": "\n".join(_page(client, versions)) + "\n" for name, client in CLIENTS.items()}


def index(text: str) -> str:
    """Return the overview with its table anew."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    versions = {one["title"]: one["version"] for one in _record()["clients"]}
    head = ["client", "name for `connect`", "configuration file", "tested version"]
    rows = [
        [f"[{client.title}]({name}.md)", f"`{name}`", _files(client)["linux"], versions.get(client.title, "")]
        for name, client in CLIENTS.items()
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join([f"{before}{_BEGIN}", *lines, "", f"{_END}{after}"])


def _page(client: Client, versions: Mapping[str, str]) -> Iterator[str]:
    tested = versions.get(client.title)
    yield from (f"# {client.title}", "", _MADE, "")
    yield f"One entry takes the place of the MCP servers in the configuration of {client.title}. Restart the client"
    yield from ("after `connect` and `disconnect`: it reads the file when it starts.", "")
    yield from ("```text", f"toolcrib connect {client.name} --replace --dry-run    # shows what would change")
    yield from (f"toolcrib connect {client.name} --replace", f"toolcrib disconnect {client.name}", "```", "")
    yield from ("## Files", "", "| | |", "|---|---|")
    files = _files(client)
    if len(set(files.values())) == 1:
        yield f"| configuration | {files['linux']} |"
    else:
        yield from (f"| configuration on {system} | {files[name]} |" for name, system in _SYSTEMS.items())
    if client.project:
        yield f"| of a project, with `--project` | {' or '.join(f'`{path}`' for path in client.project)} |"
    yield f"| key of the servers | `{'.'.join(client.path)}` |"
    yield f"| profile | {_PROFILES[client.profile]} |"
    yield f"| name of a tool | `{client.declared(NAME, 'github__create_issue')}` |"
    tested = f"version {tested}, by script" if tested else "not run here; its file follows its documentation"
    yield f"| tested | {tested} |"
    yield from ("", "## The entry", "", "```text", _entry(client).rstrip(), "```", "")
    yield "The path is that of your installation ([how it is chosen](../how-to/connect.md#the-program-of-an-entry))."
    yield from ("", "## What is carried over", "")
    yield "`connect --replace` moves the servers that answer, with their variables, working folders, headers, timeouts"
    yield "and tool filters. What the client allows, asks and denies becomes rules of Toolcrib:"
    yield ""
    yield f"- keys of an entry: {', '.join(f'`{key}`' for key in ENTRY_KEYS)}{';' if client.permissions else '.'}"
    yield from (f"- {text}{'.' if text is client.permissions[-1] else ';'}" for text in client.permissions)
    yield from ("", "## Undo", "")
    yield f"`toolcrib disconnect {client.name}` restores the file byte for byte. If the file changed since, it removes"
    yield "the entry, puts the servers back, and keeps every other change."
    if client.notes:
        yield from ("", "## Restrictions and differences", "")
        yield from (f"- {note}" for note in client.notes)


def _files(client: Client) -> Mapping[str, str]:
    """Return the file of the user by system, with `~` for the home."""
    home = Path("/path/to/home")
    directories = Directories.of({"HOME": str(home)})
    found: dict[str, str] = {}
    for system in _SYSTEMS:
        places = Places(directories=directories, environ={}, project=home / "project", platform=system)
        found[system] = f"`~/{client.user(places)[0].relative_to(home)}`"
    return found


def _entry(client: Client) -> str:
    """Return the file of a client without servers once Toolcrib is connected."""
    command, args = command_line(_PROGRAM, client.profile)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        connect(client, file, client.entry(command, args), state=Path(folder))
        return file.read_text("utf-8")


def _record() -> dict[str, list[dict[str, str]]]:
    return json.loads(RECORD.read_text("utf-8"))


if __name__ == "__main__":
    for _name, _text in pages().items():
        (FOLDER / _name).write_text(_text, "utf-8")
    _index = FOLDER / "index.md"
    _index.write_text(index(_index.read_text("utf-8")), "utf-8")
