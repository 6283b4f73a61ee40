"""Choice of clients for the commands about them, and the servers found in them under names of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from msgspec import Struct
from msgspec.structs import replace

from ...config.clients.claude_files import claude_files, hook_words
from ...config.clients.connections import NAME, entries
from ...config.clients.discovery import FoundServer
from ...config.clients.table import CLIENTS, Client, is_ours, missing_program, words_of
from ...config.directories import Places
from ...config.files import FOREIGN_MAX_BYTES, read
from ...core.json import canonical_with_paths
from ...errors import ConfigError, ToolcribError, UsageError
from ..output import note

CLAUDE: Final = "claude-code"
_ALSO: Final[Mapping[str, str]] = {"claude": CLAUDE}
"""Short names."""

Names = Annotated[list[str] | None, typer.Argument(metavar="CLIENT …", help=f"Any of {', '.join(CLIENTS)}.")]
InProject = Annotated[bool, typer.Option("--project", help="The client's file of this project, not the user's.")]

_GIT_SECONDS: Final = 10.0

_NO_IDENTITY: Final = frozenset({"description", "disabled", "enabled", "inherit_env", "timeout"})
"""Keys that make no other server of one that is otherwise the same."""
_USUAL_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "command": frozenset({"local", "stdio"}),
    "url": frozenset({"http", "remote", "streamable-http", "streamableHttp", "streamable_http"}),
}
"""Default of `type`, by the key that an entry has."""


class Candidate(Struct, frozen=True, kw_only=True):
    """One server that may be taken over, under the name that it will have here."""

    name: str
    found: FoundServer
    others: tuple[FoundServer, ...] = ()
    """The same server in other places, under the same name."""
    known: bool = False
    """It is in our configuration already."""

    @property
    def trusted(self) -> bool:
        """Whether the user wrote the file; a project's file may be anybody's."""
        return self.found.scope != "project"

    @property
    def places(self) -> tuple[FoundServer, ...]:
        """Every place that it was found in."""
        return self.found, *self.others

    @property
    def clients(self) -> list[Client]:
        """The clients that have it."""
        return [found.client for found in self.places]

    @property
    def origin(self) -> str:
        """Origin of the server, for people."""
        return ", ".join(dict.fromkeys(f"{found.client.title} ({found.scope})" for found in self.places))

    @property
    def identity(self) -> bytes:
        """Identity of the server, independent of its name and of the spelling of its configuration."""
        return identity(self.found.value)


def chosen_clients(names: Iterable[str] | None) -> list[Client]:
    """Return the clients of these names, all for none; raises `UsageError` with those there are."""
    unknown = [name for name in names or () if name not in CLIENTS]
    if unknown:
        raise UsageError(f"there is no client {unknown[0]!r}; there are {', '.join(CLIENTS)}")
    return [CLIENTS[name] for name in names] if names else list(CLIENTS.values())


def is_shared(file: Path) -> bool:
    """Whether git tracks `file`, or will: it is in a work tree and not ignored. Without git every file of one is."""
    folder = next((folder for folder in file.parents if folder.is_dir()), file.parent)
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return False
    try:
        ignored = subprocess.run(
            ["git", "-C", str(folder), "check-ignore", "-q", "--", str(file)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return True
    return ignored.returncode != 0


def portable_value(value: Any, folder: str) -> Any:
    """Return the entry of a server with paths relative to `folder`, where it runs by default: no machine's path."""
    if isinstance(value, str):
        return "." if value == folder else value.replace(f"{folder}/", "./")
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        return {key: portable_value(one, folder) for key, one in entries if not (key == "cwd" and one == folder)}
    return [portable_value(one, folder) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def identity(value: Mapping[str, Any]) -> bytes:
    """Return the identity of an entry's server: its program or address, with arguments and credentials.

    A client's limit for it (`timeout`), that it is on (`enabled`), the `type` that an entry without one has, arguments
    in the list of `command`, and a choice of all tools (`*`) make no other server of it.
    """
    same = {key: item for key, item in value.items() if key not in _NO_IDENTITY and item not in ({}, [], "", None)}
    command, rest = same.get("command"), same.get("args", [])
    if isinstance(command, list) and isinstance(rest, list):
        program, *arguments = [*cast("list[Any]", command), *cast("list[Any]", rest)]
        same |= {"command": program, **({"args": arguments} if arguments else {})}
    if same.get("enabled_tools") == ["*"]:
        del same["enabled_tools"]
    if same.get("type") in _USUAL_TYPES["command" if "command" in same else "url"]:
        del same["type"]
    is_off = value.get("disabled") is True or value.get("enabled") is False
    return canonical_with_paths({**same, "off": True} if is_off else same)


def candidates(found: Iterable[FoundServer], known: Mapping[str, Any]) -> list[Candidate]:
    """Give each found server a name of its own; the same configuration in several places is one server."""
    taken: dict[str, bytes] = {name: identity(value) for name, value in known.items()}
    rows: dict[tuple[bytes, str], Candidate] = {}
    for server in found:
        value = identity(server.value)
        if (value, server.name) in rows:
            row = rows[value, server.name]
            rows[value, server.name] = replace(row, others=(*row.others, server))
            continue
        name = _free(server, value, taken)
        rows[value, server.name] = Candidate(name=name, found=server, known=taken.get(name) == value)
        taken[name] = value
    return list(rows.values())


def known_names(server: FoundServer) -> list[str]:
    """Return the names that a server may have here: its own, then with the project's or the client's, then numbered."""
    names = [server.name, *([f"{server.name}-{Path(server.base).name}"] if server.scope == "local" else [])]
    names += [f"{server.name}-{server.client.name}"]
    return names + [f"{server.name}-{server.client.name}-{number}" for number in range(2, 100)]


def _free(server: FoundServer, value: bytes, taken: Mapping[str, bytes]) -> str:
    """The name under which it is known already, of another client too, else the first of its names that is free."""
    names = known_names(server)
    of_others = (f"{server.name}-{client}" for client in CLIENTS)
    known = (name for name in [*names, *of_others] if taken.get(name) == value)
    return next(known, None) or next(name for name in names if name not in taken)


def chosen_files(
    names: Sequence[str] | None, every: bool, file: Callable[[Client], Path | None], verb: str
) -> list[tuple[Client, Path]]:
    """Return the clients that a command line names with their files; `every` takes those that have a file."""
    if every and names:
        raise UsageError(f"--all is every client: leave out {', '.join(names)}, or --all")
    if every:
        return [(client, path) for client in CLIENTS.values() if (path := file(client)) and path.is_file()]
    if not names:
        raise UsageError(f"which client? `toolcrib {verb} CLIENT` with one of {', '.join(CLIENTS)}, or --all")
    chosen = [(client, file(client)) for client in chosen_clients([_ALSO.get(name, name) for name in names])]
    for client, path in chosen:
        if path is None:
            raise UsageError(f"{client.title} has no configuration file of a project")
    return [(client, path) for client, path in chosen if path]


def client_file(client: Client, places: Places, project: bool) -> Path | None:
    """Return the client's file of the project, or of the user."""
    return client.project_file(places) if project else client.user_file(places)


def own_entries(places: Places) -> list[tuple[Client, Path]]:
    """Return the clients' files, of the user and of this project, that have an entry of ours."""
    return [(client, file) for client, file, _ in _own_entries(places)]


def broken_entries(places: Places) -> list[tuple[Client, str]]:
    """Return the clients whose entry of ours or whose hook starts a program that does not exist, and what helps."""
    found = [(client, file, words_of(entry), "") for client, file, entry in _own_entries(places)]
    for file in filter(Path.is_file, claude_files(places)):
        with suppress(ConfigError):
            found += [(CLIENTS[CLAUDE], file, words, " --approvals") for words in hook_words(file)]
    broken: list[tuple[Client, str]] = []
    for client, file, words, option in found:
        if missing := missing_program(words):
            which = "which" if str(missing) == words[0] else f"and {missing}"
            project = " --project" if file != client.user_file(places) else ""
            again = f"`toolcrib connect {client.name}{project}{option}` names the one that is here"
            broken.append((client, f"{file} starts {words[0]}, {which} does not exist: {again}"))
    return broken


def _own_entries(places: Places) -> list[tuple[Client, Path, Mapping[str, Any]]]:
    found: list[tuple[Client, Path, Mapping[str, Any]]] = []
    for client in CLIENTS.values():
        for file in dict.fromkeys((client.user_file(places), client.project_file(places))):
            if file is None or not file.is_file():
                continue
            with suppress(ConfigError):  # a file that cannot be read has no entry of ours that could be taken out
                there = entries(client, read(file, limit=FOREIGN_MAX_BYTES), str(file))
                if NAME in there and is_ours(there[NAME]):
                    found.append((client, file, there[NAME]))
    return found


def for_each(chosen: Sequence[tuple[Client, Path]], one: Callable[[Client, Path], None]) -> None:
    """Do all, also after one failed; then raise the first failure."""
    failed: list[ToolcribError] = []
    for client, file in chosen:
        try:
            one(client, file)
        except ToolcribError as error:
            failed.append(error)
            if len(chosen) > 1:
                note(f"{client.title}: {error}")
    if not chosen:
        note("nothing to do")
    if failed:
        raise failed[0] if len(chosen) == 1 else UsageError(f"{len(failed)} of {len(chosen)} clients failed")
