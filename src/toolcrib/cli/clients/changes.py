"""Changes of a client's configuration: Toolcrib's entry, the servers that move, permissions carried over.

    _planned   reads the client's file; lists the servers that are to move, and writes those that answer into our file
    _write     our mode with the carried rules ─> the client's file, with a record ─> its other settings, with a record

The records are what `disconnect` puts back. A failure on the way takes back what was written before it; a dry run
ends after the plan, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ...config import files as disk
from ...config import load
from ...config.clients.connections import NAME, Moved, connection_of, entries, project_entries, rewrite
from ...config.clients.connections import connect as write_connection
from ...config.clients.discovery import FoundServer
from ...config.clients.permissions.modes import mode_of, write_mode
from ...config.clients.permissions.permission import META_TOOLS, READS
from ...config.clients.permissions.setting_keys import rename_keys
from ...config.clients.permissions.setting_lists import allow_in_gemini
from ...config.clients.table import Client, is_ours, missing_program, words_of
from ...config.confirmation import confirm
from ...config.directories import Places
from ...config.own_file import read_servers
from ...disclosure.profiles import load as load_profile
from ...errors import ConfigError, ToolcribError, UsageError
from ..commands.disconnect import put_back, remove_servers, take_back_failed
from .carried_permissions import (
    CarriedOver,
    ChangedSettings,
    Verbs,
    carry_over,
    changed_settings,
    listed_before,
    with_rules_of,
)
from .moved_servers import brought, found_servers, kept_names, movable_servers, move, servers_behind_us
from .own_entry import Program, Way, command_line, with_mode, with_program, with_variables


class ClientChange(Struct, frozen=True, kw_only=True):
    """Result of `connect` for one client."""

    client: Client
    file: Path
    way: Way
    is_new: bool
    is_more: bool = False
    """It was connected before, and servers of another project were moved now."""
    before: tuple[FoundServer, ...] = ()
    """The servers in its file before."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Our names of those that were moved behind us, by their names there."""
    added: tuple[str, ...] = ()
    """Our names of the servers that our configuration did not have before."""
    kept: tuple[str, ...] = ()
    """The names there of servers that were to move and stayed, for they list nothing."""
    rules: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Rules that were carried over from the client's own settings."""
    rewritten: tuple[Path, ...] = ()
    """Other settings of the client that were changed."""
    notes: tuple[str, ...] = ()
    """New questions of the client or of Toolcrib, and permissions that are not carried over."""
    permissions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Permissions of tools in our entry."""

    @property
    def moved(self) -> tuple[str, ...]:
        """The names there of the servers that were moved behind us."""
        return tuple(self.names)

    def carried_to_json(self) -> dict[str, Any]:
        """Return the part that is carried over from the client's own settings."""
        return {
            "rules": self.rules,
            "permissions": self.permissions,
            "rewritten": [str(file) for file in self.rewritten],
            "notes": self.notes,
        }


class _ClientPlan(Struct, frozen=True, kw_only=True):
    """Planned change of one client; our list of servers has those that move by then."""

    client: Client
    file: Path
    places: Places
    way: Way
    own: Path
    """Our configuration file."""
    program: str
    entry: Mapping[str, Any] | None
    """Our entry that is there already."""
    before: tuple[FoundServer, ...]
    names: Mapping[str, str]
    """Our names of the servers that move, by their names there."""
    moved_here: Sequence[str]
    """Moved servers that the client has for this project alone."""
    added: tuple[str, ...]
    kept: tuple[str, ...]
    behind_us: Mapping[str, str]
    """Our names of the project's servers that its client and we have both."""
    carried: CarriedOver
    settings: Callable[[], Sequence[ChangedSettings]]
    """Other settings of the client, as they are to be after what is in their files now."""

    @property
    def known(self) -> Mapping[str, str]:
        """Our names of all servers behind us that the client knows, by their names there."""
        return {**self.behind_us, **self.names}

    def change(self, rewritten: Iterable[ChangedSettings]) -> ClientChange:
        """Return the change of the client, together with the other settings that are rewritten."""
        return ClientChange(
            client=self.client,
            file=self.file,
            way=self.way,
            is_new=True,
            is_more=self.entry is not None,
            before=self.before,
            names=self.names,
            added=self.added,
            kept=self.kept,
            rules=self.carried.mode.get("rules", {}),
            rewritten=tuple(one.file for one in rewritten),
            notes=self.carried.notes,
            permissions=self.carried.extras,
        )


def change_client(
    client: Client, file: Path, places: Places, way: Way, *, named_profile: str | None, program: Program
) -> ClientChange:
    """Put the entry into `file`; `named_profile` is that of the command line."""
    plan = _planned(client, file, places, way, named_profile=named_profile, program=program)
    if plan is None:
        return ClientChange(client=client, file=file, way=way, is_new=False)
    if program.dry_run:
        return plan.change(plan.settings())
    with _undone_when_it_fails(client, file, places, own=plan.own, added=plan.added, is_more=plan.entry is not None):
        return plan.change(_write(plan))


@contextmanager
def _undone_when_it_fails(
    client: Client, file: Path, places: Places, *, own: Path, added: Sequence[str], is_more: bool = True
) -> Generator[None]:
    """Leave nothing of a change that fails; with `is_more`, the connection that was there stays."""
    try:
        yield
    except ToolcribError:
        if not is_more:
            take_back_failed(client, file, places, own=own)
        remove_servers(own, added, places)
        raise


def _planned(
    client: Client, file: Path, places: Places, way: Way, *, named_profile: str | None, program: Program
) -> _ClientPlan | None:
    """Move servers behind us, and return what is to be written then; None if the client is connected so already."""
    content = disk.read(file, limit=disk.FOREIGN_MAX_BYTES) if file.exists() else b""
    there = entries(client, content, str(file))
    entry = there.get(NAME)
    found = found_servers(client, file, places, way)
    movable = movable_servers(found, client, after_another=entry is not None) if way.replace else []
    if entry is not None:
        _check_connected(client, file, there, way, named_profile=named_profile, movable=movable, places=places)
        program.refresh(entry)
        way = way.of_entry(entry)
        if missing_program(words_of(entry)):
            entry = with_program(entry, program.path)
    own = way.own_file(places)
    path = NAME if way.shared else program.path
    moved = move(client, movable, own, places, program)
    names = moved.names
    with _undone_when_it_fails(client, file, places, own=own, added=moved.added):
        behind_us, off = (
            servers_behind_us(client, places) if way.replace and not way.project else (dict[str, str](), set[str]())
        )
        if entry is not None and entry == there[NAME] and not names and not behind_us.keys() - off:
            return None
        known = {**behind_us, **names}
        moved_here = [server.name for server in movable if server.scope == "local" and server.name in names]
        settings = load((), {"guard": "on" if way.guard else "off"})
        has_call_tool = "call" in load_profile(way.profile).verbs
        carried = carry_over(
            client,
            file,
            places,
            way,
            names=known,
            only_here=[*moved_here, *behind_us],
            entries={**there, **project_entries(client, content, str(places.project), str(file))},
            settings=settings,
            allow=["call_tool"] if client.name == "codex" and has_call_tool else [],
        )
        behind = {*names.values(), *(() if entry is not None else read_servers(own))}
        is_unasked = not way.guard and behind <= {*carried.wholly}
        return _ClientPlan(
            client=client,
            file=file,
            places=places,
            way=way,
            own=own,
            program=path,
            entry=entry,
            before=tuple(found),
            names=names,
            moved_here=moved_here,
            added=moved.added,
            kept=moved.kept,
            behind_us=behind_us,
            carried=carried,
            settings=partial(
                changed_settings,
                client,
                places,
                known,
                way,
                listed_before(settings, names),
                verbs=_verbs(is_more=entry is not None, is_unasked=is_unasked) if has_call_tool else Verbs(),
                kept=kept_names(
                    client, file, places, way, stay=[one for one in found if one not in movable], off=behind_us
                ),
                off=behind_us,
            ),
        )


def _verbs(*, is_more: bool, is_unasked: bool) -> Verbs:
    """Return which meta-tools the client's settings allow: the one that reads only while all tools run unasked."""
    if is_more:
        return Verbs(allow=META_TOOLS, ask=() if is_unasked else (READS,))
    return Verbs(allow=(*META_TOOLS, READS) if is_unasked else META_TOOLS)


def _write(plan: _ClientPlan) -> Sequence[ChangedSettings]:
    """Write our mode, the client's file and its other settings; return those settings."""
    client, way, own, state = plan.client, plan.way, plan.own, plan.places.directories.state
    mode = mode_of(client, project=way.project) if plan.carried.mode else ""
    if mode:
        write_mode(own, mode, with_rules_of(own, mode, plan.carried.mode) if plan.entry else plan.carried.mode)
        if way.shared:  # the user has just changed the project's file, and had confirmed the rest
            confirm(plan.places.directories, [(own, disk.read(own))], plan.places.environ)
    if plan.entry is None:
        command, args = command_line(plan.program, way.profile, guard=way.guard, desk=way.desk, mode=mode)
        entry = {**client.entry(command, args), **plan.carried.extras}
    else:
        entry = with_mode(plan.entry, mode)
    write_connection(
        client,
        plan.file,
        with_variables(entry, own),
        Moved(
            servers=[one for one in plan.names if one not in plan.moved_here],
            project=str(plan.places.project),
            here=plan.moved_here,
            names=plan.known,
            own=own,
            added=brought(plan.added, plan.names, own, state),
        ),
        also=partial(_with_new_names, client, plan.names, str(plan.file)),
        state=state,
    )
    others = plan.settings()  # after the connection, which may have changed one of these files
    for one in others:
        off = Moved(servers=one.off, names=plan.known)
        rewrite(client.name, one.file, lambda _, text=one.text: text, off, state=state)
    return others


def _with_new_names(client: Client, names: Mapping[str, str], file: str, text: str) -> str:
    """Return the file of a client's servers with its permissions beside them under the new names."""
    text = allow_in_gemini(text, file) if client.name == "gemini" else text
    return rename_keys(client.name, text, names, file)


def _check_connected(
    client: Client,
    file: Path,
    there: Mapping[str, Any],
    way: Way,
    *,
    named_profile: str | None,
    movable: Sequence[FoundServer],
    places: Places,
) -> None:
    """Raise unless the entry under our name is ours, and connected in the same way."""
    if connection_of(places.directories.state, file) is None and not is_ours(there[NAME]):
        raise ConfigError(f"has another server of the name {NAME}: rename or remove it first", file=str(file))
    words = words_of(there[NAME])
    if way.replace and len(there) > 1 and not movable:
        beside = ", ".join(name for name in there if name != NAME)
        again = f"`toolcrib disconnect {client.name} && toolcrib connect {client.name} --replace`"
        raise UsageError(f"{file} has Toolcrib already, and beside it {beside}: {again} moves what answers")
    is_other = (named_profile and named_profile not in words) or (way.desk and "--desk" not in words)
    if is_other or (way.guard and "--guard" in words):
        again = f"`toolcrib disconnect {client.name}` first, then connect it again"
        raise UsageError(f"{file} has Toolcrib already, connected in another way: {again}")


def take_back(changes: Sequence[ClientChange], places: Places) -> None:
    """Put the clients of `changes` back, and take the servers out of our files that came with them alone."""
    for change in changes:
        for file in (*change.rewritten, change.file):
            put_back(change.client, file, places)
