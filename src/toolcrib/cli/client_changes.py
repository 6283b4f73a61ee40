"""Changes of a client's configuration: Toolcrib's entry, the servers that move, permissions carried over."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ..config import Settings, load
from ..config import files as disk
from ..config.client_discovery import FoundServer, discover, servers_elsewhere
from ..config.client_entries import RULES
from ..config.client_permissions.claude_code import switch_off, switched_off
from ..config.client_permissions.entries import entry_extras, is_whole, trusted_servers
from ..config.client_permissions.gemini import allow_in_gemini
from ..config.client_permissions.modes import carried_mode, mode_of, write_mode
from ..config.client_permissions.opencode import rename_opencode_keys
from ..config.client_permissions.permission import META_TOOLS, READS
from ..config.client_permissions.settings import client_files, client_permissions, rename_settings
from ..config.clients import Client, is_ours
from ..config.connections import (
    NAME,
    connection_of,
    connections,
    entries,
    project_entries,
    rewrite,
)
from ..config.connections import connect as write_connection
from ..config.directories import Places, config_files
from ..config.loader import confirm, own_file, specs_of
from ..config.own_file import add_servers, read_servers
from ..core.json import dumps
from ..core.yaml_document import parse_yaml
from ..disclosure.profiles import load as load_profile
from ..errors import ConfigError, UsageError
from ..sources.mcp.tool_list import ListingCache
from .clients import CLAUDE, candidates, identity, portable_value
from .disconnect import put_back
from .output import note
from .own_environment import entry_program, make_environment, own_program
from .server_probe import probe

__all__ = [
    "LIST_SECONDS",
    "ClientChange",
    "Program",
    "Way",
    "change_client",
    "command_line",
    "take_back",
]

LIST_SECONDS: Final = 20.0
"""Seconds for servers that are moved behind us to list their tools."""

_GUARD_OFF: Final = ("--guard", "off")
"""Options of an entry behind a client that guards its user itself."""


def command_line(
    program: str, profile: str, *, guard: bool = False, desk: bool = False, mode: str = ""
) -> tuple[str, list[str]]:
    """Return the command and arguments that start us: by absolute path, for desktop programs have another PATH."""
    options = [*(() if guard else _GUARD_OFF), *(["--desk"] if desk else []), *(["--mode", mode] if mode else [])]
    return program, ["serve", "--profile", profile, *options]


class Way(Struct, frozen=True, kw_only=True):
    """How a client is to be connected."""

    replace: bool
    profile: str
    guard: bool
    desk: bool
    project: bool
    shared: bool
    """The file is the project's, and tracked by git: it names no path of this machine, and neither does our file."""

    def own_file(self, places: Places) -> Path:
        """Return our configuration file that gets servers and rules. Raises `UsageError` for an unconfirmed one."""
        return own_file(places.directories, places.project, project=self.shared)

    def of_entry(self, entry: Mapping[str, Any]) -> Way:
        """Return the way in which the client is connected already, by our entry there."""
        words = _words(entry)
        profile = words[words.index("--profile") + 1] if "--profile" in words[:-1] else self.profile
        return replace(self, profile=profile, guard="--guard" not in words, desk="--desk" in words)


class ClientChange(Struct, frozen=True, kw_only=True):
    """What `connect` did to one client."""

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
    rules: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Rules that were carried over from the client's own settings."""
    rewritten: tuple[Path, ...] = ()
    """Other settings of the client that were changed."""
    notes: tuple[str, ...] = ()
    """New questions of the client or of Toolcrib, and permissions that are not carried over."""
    permissions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those of tools in our entry."""

    @property
    def moved(self) -> tuple[str, ...]:
        """The names there of the servers that were moved behind us."""
        return tuple(self.names)

    def carried_to_json(self) -> dict[str, Any]:
        """Return what is carried over from the client's own settings."""
        return {
            "rules": self.rules,
            "permissions": self.permissions,
            "rewritten": [str(file) for file in self.rewritten],
            "notes": self.notes,
        }


class Program:
    """The program that the entries of one `connect` start. An environment is made when the first entry needs it."""

    def __init__(self, places: Places, command: str | None, *, dry_run: bool) -> None:
        self._places, self.dry_run = places, dry_run
        self.entry = entry_program(places, command)
        self.own = own_program(places)
        self.planned: dict[str, Any] = {}
        """In a dry run: what clients before this one would have moved into our configuration."""
        self._made: str | None = None

    @property
    def path(self) -> str:
        """The absolute path. Raises `UsageError` where the environment that runs is temporary and cannot be copied."""
        if self._made is None:
            self._made = self._lasting()
        return self._made

    def refresh(self, entry: Mapping[str, Any]) -> None:
        """Bring the copy up to date that `entry` of a connected client starts."""
        if not self.entry.is_lasting and str(self.own) in [entry.get("command"), *_words(entry)]:
            _ = self.path

    def _lasting(self) -> str:
        if self.entry.is_lasting:
            return self.entry.path
        if self.dry_run:
            return str(self.own)
        try:
            return str(make_environment(self._places))
        except UsageError as error:
            install = "install Toolcrib with `uv tool`, `pipx` or `pip` (docs/how-to/install.md)"
            if self.entry.kind == "temporary":
                raise UsageError(f"{error}; this one is temporary, so an entry cannot name it: {install}") from error
            note(f"{error}; the entry works as long as {self.entry.path} stays where it is: {install}")
            return self.entry.path


def change_client(
    client: Client, file: Path, places: Places, way: Way, *, named_profile: str | None, program: Program
) -> ClientChange:
    """Put the entry into `file`; `named_profile` is that of the command line."""
    state = places.directories.state
    content = disk.read(file, limit=disk.FOREIGN_MAX_BYTES) if file.exists() else b""
    there = entries(client, content, str(file))
    is_more = NAME in there
    found = _found_servers(client, file, places, way)
    movable = _movable(found, client, after_another=is_more) if way.replace else []
    if is_more:
        _check_connected(client, file, there, way, named_profile=named_profile, movable=movable, state=state)
        program.refresh(there[NAME])
        way = way.of_entry(there[NAME])
    own = way.own_file(places)
    path = NAME if way.shared else program.path
    names, added = _move(client, movable, own, places, program)
    behind_us, off = _behind_us(client, places) if way.replace and not way.project else (dict[str, str](), set[str]())
    if is_more and not names and not behind_us.keys() - off:
        return ClientChange(client=client, file=file, way=way, is_new=False)
    known = {**behind_us, **names}
    moved_here = [server.name for server in movable if server.scope == "local" and server.name in names]
    settings = load((), {"guard": "on" if way.guard else "off"})
    has_call_tool = "call" in load_profile(way.profile).verbs
    carried = _carry_over(
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
    change = ClientChange(
        client=client,
        file=file,
        way=way,
        is_new=True,
        is_more=is_more,
        before=tuple(found),
        names=names,
        added=added,
        rules=carried.mode.get("rules", {}),
        notes=carried.notes,
        permissions=carried.extras,
    )
    behind = {*names.values(), *(() if is_more else read_servers(own))}
    is_unasked = not way.guard and behind <= {*carried.wholly}
    rewritten_settings = partial(
        _rewritten_settings,
        client,
        places,
        known,
        way,
        _listed_before(settings, names),
        verbs=_Verbs(
            allow=(*META_TOOLS, *([READS] if is_unasked and not is_more else [])) if has_call_tool else (),
            ask=(READS,) if is_more and not is_unasked else (),
        ),
        kept=_kept_names(client, file, places, way, stay=[one for one in found if one not in movable], off=behind_us),
        off=behind_us,
    )
    if program.dry_run:
        return replace(change, rewritten=tuple(file for file, _, _ in rewritten_settings()))
    name = mode_of(client, project=way.project) if carried.mode else ""
    if name:
        write_mode(own, name, _with_rules_of(own, name, carried.mode) if is_more else carried.mode)
        _confirm(own, way, places)
    command, args = command_line(path, way.profile, guard=way.guard, desk=way.desk, mode=name)
    entry = _with_mode(there[NAME], name) if is_more else {**client.entry(command, args), **carried.extras}
    write_connection(
        client,
        file,
        _with_variables(entry, own),
        moved=[one for one in names if one not in moved_here],
        moved_here=moved_here,
        project=str(places.project),
        names=known,
        own=own,
        added=_brought(added, names, own, state),
        also=partial(_with_new_names, client, names, str(file)),
        state=state,
    )
    others = rewritten_settings()  # anew: the connection may have changed one of these files
    for settings_file, text, gone in others:
        rewrite(client.name, settings_file, lambda _, text=text: text, moved=gone, names=known, state=state)
    return replace(change, rewritten=tuple(settings_file for settings_file, _, _ in others))


def _kept_names(
    client: Client, file: Path, places: Places, way: Way, *, stay: Iterable[FoundServer], off: Collection[str]
) -> set[str]:
    """Return the names of the client's servers that are not behind us: those that `stay`, and those of other folders.

    `off` are servers of this project's `.mcp.json` that are switched off, as they are behind us.
    """
    elsewhere = servers_elsewhere(client, file, places)
    others = [folder for folder in elsewhere if folder != places.project]
    if way.replace and others:
        note(f"{client.title} keeps the servers of {', '.join(map(str, others))}: connect it again in that folder")
    here = {*elsewhere.get(places.project, ())} - {*off}
    return {server.name for server in stay}.union(here, *(elsewhere[folder] for folder in others))


def _with_new_names(client: Client, names: Mapping[str, str], file: str, text: str) -> str:
    """Return the file of a client's servers with its permissions beside them under the new names."""
    text = allow_in_gemini(text, file) if client.name == "gemini" else text
    return rename_opencode_keys(text, names, file) if client.name == "opencode" and names else text


def _check_connected(
    client: Client,
    file: Path,
    there: Mapping[str, Any],
    way: Way,
    *,
    named_profile: str | None,
    movable: Sequence[FoundServer],
    state: Path,
) -> None:
    """Raise unless the entry under our name is ours, and connected in the same way."""
    if connection_of(state, file) is None and not is_ours(there[NAME]):
        raise ConfigError(f"has another server of the name {NAME}: rename or remove it first", file=str(file))
    words = _words(there[NAME])
    is_other = (
        (way.replace and len(there) > 1 and not movable)
        or (named_profile and named_profile not in words)
        or (way.desk and "--desk" not in words)
    )
    if is_other or (way.guard and "--guard" in words):
        again = f"`toolcrib disconnect {client.name}` first, then connect it again"
        raise UsageError(f"{file} has Toolcrib already, connected in another way: {again}")


def _movable(found: Sequence[FoundServer], client: Client, *, after_another: bool) -> list[FoundServer]:
    """Return the servers to move: with `after_another` connection those of this project that were not there then.

    A project's server that has the name of one of everywhere stays, for rules of the client are about both.
    """
    everywhere = {server.name for server in found if server.scope != "local"}
    movable = [] if after_another else [server for server in found if server.scope != "local"]
    for server in [one for one in movable if one.works_in_its_folder]:
        movable.remove(server)
        reason = "it works in the folder that the client starts it in"
        note(f"{client.title} keeps {server.name}: {reason}. To do: write whole paths, or a `cwd`, into its entry")
    for server in found:
        if server.scope == "local" and server.name in everywhere:
            note(f"{client.title} keeps {server.name} of this project: another server has this name. To do: rename one")
        elif server.scope == "local":
            movable.append(server)
    return movable


def _with_mode(entry: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
    """Return our entry in a client's file with the mode that was carried over."""
    given: list[Any] = list(entry["args"])
    return entry if not mode or mode in given else {**entry, "args": [*given, "--mode", mode]}


def _with_variables(entry: Mapping[str, Any], own: Path) -> Mapping[str, Any]:
    """Return our entry with the variables that our servers name, for a client that passes those of a list alone."""
    if "env_vars" not in entry:
        return entry
    named = re.findall(r"\$\{(\w+)(?:\}|:-)", dumps(read_servers(own)).decode())
    return {**entry, "env_vars": list(dict.fromkeys((*entry["env_vars"], *named)))}


def _with_rules_of(own: Path, name: str, mode: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `mode` with the rules that our file `own` has in the mode `name` already."""
    known = parse_yaml(disk.decode(disk.read(own), str(own)), str(own)).find(("modes", name)) if own.is_file() else None
    if known is None:
        return mode
    before: Mapping[str, Any] = known.plain()
    rules = {effect: list(texts) for effect, texts in before.get("rules", {}).items()}
    for effect, texts in mode.get("rules", {}).items():
        rules[effect] = list(dict.fromkeys([*rules.get(effect, []), *texts]))
    return {**before, "rules": rules}


def _found_servers(client: Client, file: Path, places: Places, way: Way) -> list[FoundServer]:
    """Return the servers in the client's `file`, and report what of them has no effect here."""
    discovery = discover(places, [client])
    for problem in discovery.problems:
        if way.replace and problem.hint == RULES:  # it is carried over
            continue
        note(f"{problem.source}: {problem.message}" + (f"; {problem.hint}" if problem.hint else ""))
    found = [server for server in discovery.servers if server.file == file]
    if not way.shared:
        return found
    values = [{key: one for key, one in server.value.items() if key != "projects"} for server in found]
    return [
        replace(server, value=portable_value(value, str(places.project)))
        for server, value in zip(found, values, strict=True)
    ]


class _CarriedOver(Struct, frozen=True, kw_only=True):
    """The equivalent here of what a client's settings say of the servers that are moved."""

    mode: Mapping[str, Any]
    extras: Mapping[str, Any]
    """Keys of our entry in the client."""
    notes: tuple[str, ...]
    """What is not as it was, one sentence each."""
    wholly: Collection[str]
    """Our names of the moved servers, if the client's settings allowed every tool of them and asked and denied none."""


def _carry_over(
    client: Client,
    file: Path,
    places: Places,
    way: Way,
    *,
    names: Mapping[str, str],
    only_here: Collection[str],
    entries: Mapping[str, Any],
    settings: Settings,
    allow: Sequence[str],
) -> _CarriedOver:
    """Return the mode and the keys of our entry that carry over the permissions of the moved servers.

    The client trusts our entry as a whole only if it trusted every server behind us. Our mode then asks about servers
    that are added later, which takes a mode that allows everything: another one of the user is not loosened.
    """
    permissions = client_permissions(client, file, places, tuple(names), project=way.project, only_here=only_here)
    kept = [one for one in permissions if one.effect == "deny" or not way.guard]
    base = settings.policy.modes[settings.policy.mode]
    asks_nothing = {base.read, base.write, base.destructive} == {"allow"} and not base.plan
    trusted = trusted_servers(entries, names)
    behind = {*read_servers(way.own_file(places)), *names.values()}
    _, lost = carried_mode(kept, names)
    is_trusted = behind <= {names[name] for name in trusted} and not lost and (way.guard or asks_nothing)
    extras = entry_extras(entries, names, whole=is_trusted, listed=_listed_before(settings, names), allow=allow)
    trusts_entry = is_whole(extras)
    mode, lost = carried_mode(kept, names, extends=settings.policy.mode, trusts_entry=trusts_entry and not way.guard)
    notes = [f"not carried over, for no rule expresses it: {one.effect} {one.server} {one.tool}" for one in lost]
    if trusts_entry:
        notes.append(
            f"it trusts the entry of Toolcrib, as it trusted {', '.join(trusted)}; "
            "about tools of servers that are added later Toolcrib asks"
        )
    elif trusted and not way.guard:
        listed = [name for name in trusted if entries[name].get("trust") or entries[name].get("autoApproveAll")]
        if listed:
            notes.append(
                f"it asks about tools of {', '.join(listed)}, which it trusted: one switch of its entry is for all "
                "servers behind Toolcrib, and not all of them were trusted"
            )
    wholly = {names[one.server] for one in permissions if one.tool == "*"}
    if any(one.effect != "allow" for one in permissions):
        wholly = set[str]()
    return _CarriedOver(mode=mode, extras=extras, notes=tuple(notes), wholly=wholly)


class _Verbs(Struct, frozen=True, kw_only=True):
    """Our meta-tools that the client's settings allow from now on, and those that they allow no longer."""

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()


def _listed_before(settings: Settings, names: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return the tools that each moved server listed last, by its name here."""
    ours = set(names.values())
    specs = [spec for spec in settings.sources.servers if spec.name in ours]
    cached = {spec.name: ListingCache(settings.directories.cache, spec).read() for spec in specs}
    return {name: [tool.local_name for tool in one.listing.tools] for name, one in cached.items() if one}


def _rewritten_settings(
    client: Client,
    places: Places,
    names: Mapping[str, str],
    way: Way,
    listed: Mapping[str, Sequence[str]],
    *,
    verbs: _Verbs,
    kept: Collection[str],
    off: Collection[str],
) -> list[tuple[Path, str, Sequence[str]]]:
    """Return the settings files that change, their new text, and which of the project's servers `off` it switches off.

    Permissions of moved servers get their new names, of those in `kept` beside the old ones. Our meta-tools that ask
    here (`verbs`) are allowed there; of a project in the local file, not in the one that git tracks.
    """
    settings = client_files(client, places, project=way.project)
    personal = settings[1:] if way.project else settings[:1]
    changed: list[tuple[Path, str, Sequence[str]]] = []
    for file in settings:
        before, of_file = _text_of(file), verbs if file in personal else _Verbs()
        after = before
        if before or of_file.allow:
            after = rename_settings(
                client,
                before,
                names,
                listed=listed,
                allow=of_file.allow,
                ask=of_file.ask,
                kept=kept,
                file=str(file),
            )
        switched = [*off] if file == settings[-1] else []
        after = switch_off(after, switched, str(file)) if switched else after
        changed += [(file, after, switched)] if after != before else []
    return changed


def _behind_us(client: Client, places: Places) -> tuple[Mapping[str, str], set[str]]:
    """Return our names of the servers of the project's `.mcp.json` that are behind Toolcrib, too, and what is off.

    Those are the names that personal settings switch off already. A note names the servers that are neither.
    """
    file = client.project_file(places) if client.name == CLAUDE else None
    if file is None or not file.is_file():
        return {}, set()
    found = [server for server in discover(places, [client]).servers if server.file == file]
    own = read_servers(config_files(places.directories, places.project)[0])
    ours = {_started(value): name for name, value in own.items()}
    off = {
        name
        for settings in client_files(client, places, project=False)
        for name in switched_off(_text_of(settings), str(settings))
    }
    others = [server.name for server in found if _started(server.value) not in ours and server.name not in off]
    if others:
        again = f"`toolcrib import {client.name} --trust && toolcrib connect {client.name} --replace`"
        note(f"{client.title} keeps {', '.join(others)} of {file}, which came with the project. To do: {again}")
    return {server.name: ours[_started(server.value)] for server in found if _started(server.value) in ours}, off


def _started(value: Mapping[str, Any]) -> bytes:
    """Return the identity of a server, whatever folders it is used in."""
    return identity({key: one for key, one in value.items() if key != "projects"})


def _brought(added: Iterable[str], names: Mapping[str, str], own: Path, state: Path) -> list[str]:
    """Return the servers of `names` that our file `own` has for connections alone: those `added` now, and earlier."""
    earlier = {name for done in connections(state) if done.own == str(own) for name in done.added}
    return [*added, *(name for name in names.values() if name in earlier)]


def _text_of(file: Path) -> str:
    """Return the text of a client's file, empty for one that does not exist."""
    content = disk.read(file, limit=disk.FOREIGN_MAX_BYTES) if file.is_file() else b""
    return disk.decode(content, str(file))


def _words(entry: Mapping[str, Any]) -> list[Any]:
    """What an entry starts: clients keep arguments in `args`, some with the program in `command`."""
    given: list[Any] = [entry.get("args"), entry.get("command")]
    return [word for part in given if isinstance(part, list) for word in cast("list[Any]", part)]


def take_back(changes: Sequence[ClientChange], places: Places) -> None:
    """Put the clients of `changes` back, and take the servers out of our files that came with them alone."""
    for change in changes:
        for file in (*change.rewritten, change.file):
            put_back(change.client, file, places)


def _confirm(own: Path, way: Way, places: Places) -> None:
    """Confirm the project's file of ours: the user has just changed it, and had confirmed the rest."""
    if way.shared:
        confirm(places.directories, [(own, disk.read(own))], places.environ)


def _move(
    client: Client, found: Sequence[FoundServer], target: Path, places: Places, program: Program
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Make sure that the servers `found` are in our file `target`, reviewed as they are now; not in a dry run.

    Return the names here of those that may leave the client, by their names there, and the names that are new here. A
    new one that does not answer stays in the client, where it works or fails as before, and a note says what there is
    to do. A dry run expects answers.
    """
    rows = candidates(found, {**read_servers(target), **program.planned})
    if program.dry_run:
        program.planned |= {row.name: row.found.value for row in rows}
        return {place.name: row.name for row in rows for place in row.places}, ()
    new = [row for row in rows if not row.known]
    specs, problems = specs_of([row.found.entry(row.name) for row in new])
    probes = probe(load(), specs, wait=LIST_SECONDS, accept=True)
    answering = [row for row in new if row.name in probes and probes[row.name].state == "ready"]
    if answering:
        written = add_servers(target, {row.name: row.found.value for row in answering})
        if target != config_files(places.directories, places.project)[0]:
            confirm(places.directories, [(target, written)], places.environ)
    reasons = {problem.source: problem.message for problem in problems}
    for row in new:
        if row not in answering:
            state = probes[row.name].state if row.name in probes else reasons.get(row.name, "it is switched off")
            names = ", ".join(place.name for place in row.places)
            note(f"{client.title} keeps {names}: {state}. To do: {_to_do(client, row.name, state)}")
    names = {place.name: row.name for row in rows if row.known or row in answering for place in row.places}
    return names, tuple(row.name for row in answering)


def _to_do(client: Client, server: str, state: str) -> str:
    """Return the one command line after which a server that stayed in the client can be moved, or has been."""
    if state.startswith("needs_login"):
        return f"`toolcrib import && toolcrib login {server}`"
    again = f"`toolcrib disconnect {client.name} && toolcrib connect {client.name} --replace`"
    return f"once it answers there, {again}"
