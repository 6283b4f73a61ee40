"""`toolcrib connect` and `disconnect`: Toolcrib in a client's configuration, and out again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from ..claude_code.approve_tool import WithApprove
from ..claude_code.hook_messages import Unanswered
from ..config import Settings, load
from ..config import files as disk
from ..config.claude_files import connect_hook, has_hook, hook_file
from ..config.client_entries import RULES
from ..config.client_permissions import (
    META_TOOLS,
    READS,
    allow_in_gemini,
    carried_mode,
    client_files,
    client_permissions,
    disconnect_settings,
    entry_extras,
    is_settings_file,
    is_whole,
    mode_of,
    original_names,
    remove_mode,
    rename_opencode_keys,
    rename_settings,
    switch_off,
    trusted_servers,
    write_mode,
)
from ..config.clients import CLIENTS, Client, FoundServer, Places, discover, is_ours, servers_elsewhere
from ..config.connections import (
    NAME,
    Connection,
    Outcome,
    connection_of,
    connections,
    entries,
    project_entries,
    rewrite,
)
from ..config.connections import connect as write_connection
from ..config.connections import disconnect as undo
from ..config.directories import Trust
from ..config.loader import config_files, confirm, here, load_gateway, own_file, specs_of
from ..config.own_file import add_servers, read_servers
from ..core.json import loads
from ..core.tool import Tool
from ..core.yaml_document import parse_yaml
from ..crib import Toolcrib
from ..disclosure.profiles import load as load_profile
from ..errors import ConfigError, ToolcribError, UsageError
from ..server.backend import CribBackend
from ..sources.mcp.tool_list import ListingCache
from ..telemetry.tokens import Tokenizer, definition_tokens, tokenizer
from .clients import candidates, chosen_clients, identity, is_shared, portable_value
from .last_seen import remember
from .open_crib import opened
from .options import AsJson, run
from .output import emit_json, note, out
from .own_environment import entry_program, make_environment, own_program
from .server_probe import probe

__all__ = ["command_line", "connect", "disconnect"]

_CLAUDE: Final = "claude-code"
_ALSO: Final[Mapping[str, str]] = {"claude": _CLAUDE}
"""Short names."""
_WAIT: Final = 20.0
"""Seconds for servers that are moved behind us to list their tools."""

_Names = Annotated[list[str] | None, typer.Argument(metavar="CLIENT …", help=f"Any of {', '.join(CLIENTS)}.")]
_GUARD_OFF: Final = ("--guard", "off")
"""Options of an entry behind a client that guards its user itself."""
_MORE_TOKENS: Final = 100
_MORE_PART: Final = 0.02
"""Tokens and part by which definitions may cost more: names are longer by ours."""
_OWN_KINDS: Final = frozenset({"jobs", "plan", "resources", "verbs"})
"""Kinds of sources that no client could have itself."""
_NOTHING_ELSE: Final[Mapping[str, Any]] = {
    "openapi": (),
    "catalogs": (),
    "skills": None,
    "workflows": (),
    "builtins": False,
}
"""Settings of a crib that only lists servers."""

_InProject = Annotated[bool, typer.Option("--project", help="The client's file of this project, not the user's.")]


def connect(
    clients: _Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every client that has a configuration here.")] = False,
    project: _InProject = False,
    move: Annotated[bool, typer.Option("--replace", help="Move the client's other servers behind Toolcrib.")] = False,
    profile: Annotated[str | None, typer.Option(help="Instead of the one that suits the client.")] = None,
    guard: Annotated[
        bool, typer.Option("--guard", help="As strict as `toolcrib serve`: writes ask, unreviewed tools wait.")
    ] = False,
    approvals: Annotated[
        bool, typer.Option("--approvals", help="claude: let Toolcrib decide what Claude Code's own tools may do.")
    ] = False,
    unanswered: Annotated[
        Unanswered, typer.Option(help="With --approvals: what no answer means; ask is Claude Code's own dialog.")
    ] = "deny",
    command: Annotated[
        str | None, typer.Option("--command", help="The program that the entry starts, instead of this Toolcrib.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where the client's first request gets longer by it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be changed, change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put Toolcrib into a client's configuration.

    Calls run as they ran before: the client goes on asking its user what it asks about a tool by its name, Toolcrib
    asks about what runs through `call_tool` and what your rules say. What the client's own settings allow, ask and deny
    of the servers that `--replace` moves is carried over, and gets its new names there. `--guard` makes Toolcrib ask as
    `toolcrib serve` does, and so does `--approvals`. A client whose first request
    would get longer than the same servers make it without Toolcrib stays as it was, unless you say `--anyway`. The rest
    of the file stays as it is; `toolcrib disconnect` puts back every byte. From a clone, or under `uvx`, the entry
    starts a copy of this environment in your data folder, which stays when this one goes; to connect again brings the
    copy up to date.
    """
    places = here()
    if profile is not None:
        load_profile(profile)
    changes: list[_Change] = []
    program = _Program(places, command, dry_run=dry_run)

    def one(client: Client, file: Path) -> None:
        way = _Way(
            replace=move,
            profile=profile or client.profile,
            guard=guard or approvals,
            desk=approvals,
            project=project,
            shared=project and is_shared(file),
        )
        changes.append(_connect(client, file, places, way, named_profile=profile, program=program))

    chosen = _chosen(clients, all_, lambda client: _file(client, places, project), "connect")
    if approvals and [client.name for client, _ in chosen] != [_CLAUDE]:
        raise UsageError("--approvals is for Claude Code: `toolcrib connect claude --approvals`")
    worse: list[_Change] = []
    costs: Mapping[str, _Cost] = {}
    try:
        _each(chosen, one)
    finally:
        if dry_run:
            _preview(changes, program, places, as_json=as_json)
        else:
            costs = _costs([change for change in changes if change.is_new], places)
            worse = [] if anyway else [change for change in changes if _is_worse(change, costs)]
            for change in worse:
                for file in (*change.rewritten, change.file):
                    _put_back(change.client, file, places)
            _report([change for change in changes if change not in worse], costs, places, as_json=as_json)
    if worse:
        raise UsageError("; ".join(_refusal(change, costs[change.client.name]) for change in worse))
    if approvals and not dry_run:
        path = program.path
        _connect_desk(path, places, project=project, unanswered=unanswered, tell=note if as_json else out)


def disconnect(
    clients: _Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every client that is connected.")] = False,
    project: _InProject = False,
) -> None:
    """Put a client's configuration back as it was, byte for byte.

    Of a file that changed since, Toolcrib's entry is taken out, the servers are put back, and the changes stay.
    """
    places = here()
    state = places.directories.state

    def one(client: Client, file: Path) -> None:
        text = {
            "restored": "is as it was",
            "deleted": "is gone again",
            "removed": "no longer has Toolcrib; what else changed since is kept",
        }[_put_back(client, file, places)]
        out(f"{client.title}: {file} {text}")

    if all_ and not clients:
        chosen = [(CLIENTS[done.client], Path(done.file)) for done in connections(state) if done.client in CLIENTS]
    else:
        chosen = _chosen(clients, all_, lambda client: _file(client, places, project), "disconnect")
        for client in dict.fromkeys(client for client, _ in chosen):
            beside = client_files(client, places, project=project)
            beside += [] if project else [file for file in _settings_elsewhere(client, places) if file not in beside]
            chosen += [
                (client, file)
                for file in beside
                if connection_of(state, file) is not None or (client.name == _CLAUDE and has_hook(file))
            ]
    _each(chosen, one)


def _settings_elsewhere(client: Client, places: Places) -> list[Path]:
    """Return the settings of projects that changed with the client's own file, not by a `connect --project`."""
    state, found = places.directories.state, list[Path]()
    for file in (Path(done.file) for done in connections(state) if done.client == client.name):
        if is_settings_file(client.name, file):
            shared = client.project_file(replace(places, project=file.parent.parent))
            found += [file] if shared is None or connection_of(state, shared) is None else []
    return found


def _remove_mode(own: Path, mode: str, places: Places) -> None:
    """Take the mode out of one of our files; one that was confirmed stays so."""
    trust = Trust(places.directories)
    before = disk.read(own) if own.is_file() else b""
    remove_mode(own, mode)
    if before and trust.covers(own, before) and (after := disk.read(own)) != before:
        confirm(places.directories, [(own, after)], places.environ)


def _put_back(client: Client, file: Path, places: Places) -> Outcome:
    """Put one file of a client back, and take its mode out of our configuration; return what was done."""
    state = places.directories.state
    if is_settings_file(client.name, file):
        return disconnect_settings(file, state=state, client=client.name)

    def also(text: str, done: Connection) -> str:
        return original_names(client, text, done, str(file))

    outcome = undo(client, file, state=state, also=also)
    is_project = file == client.project_file(places)
    for own in config_files(places.directories, places.project):
        _remove_mode(own, mode_of(client, project=is_project), places)
    return outcome


def command_line(
    program: str, profile: str, *, guard: bool = False, desk: bool = False, mode: str = ""
) -> tuple[str, list[str]]:
    """Return the command and arguments that start us: by absolute path, for desktop programs have another PATH."""
    options = [*(() if guard else _GUARD_OFF), *(["--desk"] if desk else []), *(["--mode", mode] if mode else [])]
    return program, ["serve", "--profile", profile, *options]


class _Program:
    """The program that the entries of one `connect` start. An environment is made when the first entry needs it."""

    def __init__(self, places: Places, command: str | None, *, dry_run: bool) -> None:
        self._places, self.dry_run = places, dry_run
        self.entry = entry_program(places, command)
        self.own = own_program(places)
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


def _chosen(
    names: Sequence[str] | None, every: bool, file: Callable[[Client], Path | None], verb: str
) -> list[tuple[Client, Path]]:
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


def _file(client: Client, places: Places, project: bool) -> Path | None:
    return client.project_file(places) if project else client.user_file(places)


def _each(chosen: Sequence[tuple[Client, Path]], one: Callable[[Client, Path], None]) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
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

    def of_entry(self, entry: Mapping[str, Any]) -> _Way:
        """Return the way in which the client is connected already, by our entry there."""
        words = _words(entry)
        profile = words[words.index("--profile") + 1] if "--profile" in words[:-1] else self.profile
        return replace(self, profile=profile, guard="--guard" not in words, desk="--desk" in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What `connect` did to one client."""

    client: Client
    file: Path
    way: _Way
    is_new: bool
    is_more: bool = False
    """It was connected before, and servers of another project were moved now."""
    before: tuple[FoundServer, ...] = ()
    """The servers in its file before."""
    moved: tuple[str, ...] = ()
    """The names of those that were moved behind us."""
    rules: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Rules that were carried over from the client's own settings."""
    rewritten: tuple[Path, ...] = ()
    """Other settings of the client that were changed."""
    notes: tuple[str, ...] = ()
    """New questions of the client or of Toolcrib, and permissions that are not carried over."""
    permissions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those of tools in our entry."""

    def carried_to_json(self) -> dict[str, Any]:
        """Return what is carried over from the client's own settings."""
        return {
            "rules": self.rules,
            "permissions": self.permissions,
            "rewritten": [str(file) for file in self.rewritten],
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """What one server lists, by its own names."""

    tools: tuple[Tool, ...]
    instructions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Tokens of the definitions in a client's first request."""

    before: int
    after: int
    direct: int
    """Of the servers that can be reached after, if the client had all of them itself."""
    silent: tuple[str, ...]
    """Servers that listed nothing in time, and are in neither figure."""


def _connect(
    client: Client, file: Path, places: Places, way: _Way, *, named_profile: str | None, program: _Program
) -> _Change:
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
    names = _move(client, movable, own, places, dry_run=program.dry_run)
    if is_more and not names:
        return _Change(client=client, file=file, way=way, is_new=False)
    moved_here = [server.name for server in movable if server.scope == "local" and server.name in names]
    settings = load((), {"guard": "on" if way.guard else "off"})
    has_call_tool = "call" in load_profile(way.profile).verbs
    carried = _carry_over(
        client,
        file,
        places,
        way,
        names=names,
        only_here=moved_here,
        entries={**there, **project_entries(client, content, str(places.project), str(file))},
        settings=settings,
        allow=["call_tool"] if client.name == "codex" and has_call_tool else [],
    )
    change = _Change(
        client=client,
        file=file,
        way=way,
        is_new=True,
        is_more=is_more,
        before=tuple(found),
        moved=tuple(names),
        rules=carried.mode.get("rules", {}),
        notes=carried.notes,
        permissions=carried.extras,
    )
    listed = _listed_before(settings, names)
    behind = {*names.values(), *(() if is_more else read_servers(own))}
    is_unasked = not way.guard and behind <= {*carried.wholly}
    verbs = _Verbs(
        allow=(*META_TOOLS, *([READS] if is_unasked and not is_more else [])) if has_call_tool else (),
        ask=(READS,) if is_more and not is_unasked else (),
    )
    elsewhere = servers_elsewhere(client, file, places)
    kept = {server.name for server in found if server not in movable}.union(*elsewhere.values())
    if way.replace and (others_with := [folder for folder in elsewhere if folder != places.project]):
        note(f"{client.title} keeps the servers of {', '.join(map(str, others_with))}: connect it again in that folder")
    if program.dry_run:
        others = _rewritten_settings(client, places, names, way, listed, verbs=verbs, kept=kept)
        return replace(change, rewritten=tuple(file for file, _, _ in others))
    name = mode_of(client, project=way.project) if carried.mode else ""
    if name:
        write_mode(own, name, _with_rules_of(own, name, carried.mode) if is_more else carried.mode)
        _confirm(own, way, places)
    command, args = command_line(path, way.profile, guard=way.guard, desk=way.desk, mode=name)

    def rename(text: str) -> str:
        text = allow_in_gemini(text, str(file)) if client.name == "gemini" else text
        return rename_opencode_keys(text, names, str(file)) if client.name == "opencode" and names else text

    write_connection(
        client,
        file,
        _with_mode(there[NAME], name) if is_more else {**client.entry(command, args), **carried.extras},
        moved=[one for one in names if one not in moved_here],
        moved_here=moved_here,
        project=str(places.project),
        names=names,
        also=rename,
        state=state,
    )
    others = _rewritten_settings(client, places, names, way, listed, verbs=verbs, kept=kept)
    for settings_file, text, off in others:
        rewrite(client.name, settings_file, lambda _, text=text: text, moved=off, names=names, state=state)
    return replace(change, rewritten=tuple(settings_file for settings_file, _, _ in others))


def _check_connected(
    client: Client,
    file: Path,
    there: Mapping[str, Any],
    way: _Way,
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


def _found_servers(client: Client, file: Path, places: Places, way: _Way) -> list[FoundServer]:
    """Return the servers in the client's `file`, and report what of them has no effect here."""
    discovery = discover(places, [client])
    for problem in discovery.problems:
        if way.replace and problem.hint == RULES:  # it is carried over
            continue
        note(f"{problem.source}: {problem.message}" + (f"; {problem.hint}" if problem.hint else ""))
    found = [server for server in discovery.servers if server.file == file]
    if not way.shared:
        return found
    return [replace(server, value=portable_value(server.value, str(places.project))) for server in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CarriedOver:
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
    way: _Way,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verbs:
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
    way: _Way,
    listed: Mapping[str, Sequence[str]],
    *,
    verbs: _Verbs,
    kept: Collection[str],
) -> list[tuple[Path, str, Sequence[str]]]:
    """Return the settings files that change, their new text, and the servers of the project that it switches off.

    Permissions of moved servers get their new names, of those in `kept` beside the old ones. Our meta-tools that ask
    here (`verbs`) are allowed there; of a project in the local file, not in the one that git tracks.
    """
    settings = client_files(client, places, project=way.project)
    personal = settings[1:] if way.project else settings[:1]
    off = _behind_us(client, places) if way.replace and not way.project else []
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
        switched = off if file == settings[-1] else []
        after = switch_off(after, switched, str(file)) if switched else after
        changed += [(file, after, switched)] if after != before else []
    return changed


def _behind_us(client: Client, places: Places) -> list[str]:
    """Return the servers of the project's `.mcp.json` that are behind Toolcrib, too."""
    file = client.project_file(places) if client.name == _CLAUDE else None
    if file is None or not file.is_file():
        return []
    found = [server for server in discover(places, [client]).servers if server.file == file]
    known = {identity(value) for value in read_servers(config_files(places.directories, places.project)[0]).values()}
    return [server.name for server in found if identity(server.value) in known]


def _text_of(file: Path) -> str:
    """Return the text of a client's file, empty for one that does not exist."""
    content = disk.read(file, limit=disk.FOREIGN_MAX_BYTES) if file.is_file() else b""
    return disk.decode(content, str(file))


def _preview(changes: Sequence[_Change], program: _Program, places: Places, *, as_json: bool) -> None:
    """Print what `connect` would do; no server is started and no file is written."""
    new = [change for change in changes if change.is_new]
    copied = bool(new) and not program.entry.is_lasting
    if as_json:
        rows = [
            {
                "client": change.client.name,
                "file": str(change.file),
                "connected": change.is_new,
                "profile": change.way.profile,
                "guard": "on" if change.way.guard else "off",
                "moved": change.moved,
                "kept": [server.name for server in change.before if server.name not in change.moved],
                "command": NAME if change.way.shared else program.path,
                "copies_environment": copied,
                **change.carried_to_json(),
            }
            for change in changes
        ]
        emit_json(rows)
        return
    for change in changes:
        if not change.is_new:
            out(f"{change.client.title}: {change.file} has Toolcrib already")
            continue
        instead = f", instead of {', '.join(change.moved)}" if change.moved else ""
        guard = "on" if change.way.guard else "off"
        out(
            f"{change.client.title}: would put Toolcrib into {change.file}, profile {change.way.profile}, "
            f"guard {guard}{instead}"
        )
        _tell_rest(change, change.way.own_file(places))
    if any(change.moved for change in new):
        out("a server that does not answer then stays in its client")
    own_entries = [change for change in new if not change.way.shared]
    if own_entries:
        out(f"the entry would start {program.path}")
    if len(own_entries) < len(new):
        out(f"the entry in a file that git tracks would start `{NAME}`, which has to be on the path")
    if copied and own_entries:
        why = "is a cache" if program.entry.kind == "temporary" else "belongs to a clone, which may move"
        out(f"this environment ({sys.prefix}) {why}: it would be copied there")


def _is_worse(change: _Change, costs: Mapping[str, _Cost]) -> bool:
    """Whether the first request gets longer by more than longer names explain. A guarded entry has tools of its own."""
    cost = costs.get(change.client.name)
    if cost is None or change.way.guard or change.is_more:
        return False
    return cost.after > cost.direct + max(_MORE_TOKENS, _MORE_PART * cost.direct)


def _refusal(change: _Change, cost: _Cost) -> str:
    """Return why a client was left as it was, and what helps."""
    counter = tokenizer()
    figures = f"{counter.shown(cost.after)} tokens instead of {counter.shown(cost.direct)} ({counter.name})"
    again = f"`toolcrib connect {change.client.name}"
    move = f"{again} --replace` moves its servers behind Toolcrib, " if len(change.before) > len(change.moved) else ""
    return (
        f"{change.client.title} is as it was: the definitions of its first request would be {figures} for the same "
        f"servers; {move}{again} --anyway` connects all the same"
    )


def _tell_rest(change: _Change, own: Path) -> None:
    """Print what `connect` would change beside the entry: rules and servers in our file, the client's other files."""
    title = change.client.title
    if change.moved:
        out(f"{title}: {own} would have its servers")
    rules = [f"{effect} {text}" for effect, texts in change.rules.items() for text in texts]
    if rules:
        out(f"{title}: {own} would have its rules, in mode {mode_of(change.client, project=change.way.project)}:")
    for rule in rules:
        out(f"  {rule}")
    for file in change.rewritten:
        out(f"{title}: would change {file} as well")
    for line in change.notes:
        note(f"{title}: {line}")


def _report(changes: Sequence[_Change], costs: Mapping[str, _Cost], places: Places, *, as_json: bool) -> None:
    """Print what was done to each client, and what the definitions of its first request cost before and after."""
    counter = tokenizer()
    paid = {
        str(change.file): {"tokens": costs[change.client.name].after, "exact": counter.exact}
        for change in changes
        if change.client.name in costs
    }
    remember(places.directories.cache, clients=paid)
    rows: list[dict[str, Any]] = []
    for change in changes:
        client, way, cost = change.client, change.way, costs.get(change.client.name)
        row: dict[str, Any] = {"client": client.name, "file": str(change.file), "connected": change.is_new}
        if cost is None:
            rows.append(row)
            if not as_json:
                out(f"{client.title}: {change.file} has Toolcrib already")
            continue
        tokens = {"before": cost.before, "after": cost.after, "tokenizer": counter.name, "unanswered": cost.silent}
        guard = "on" if way.guard else "off"
        carried = change.carried_to_json()
        rows.append({**row, "profile": way.profile, "guard": guard, "moved": change.moved, "tokens": tokens, **carried})
        if not as_json:
            instead = f", instead of {', '.join(change.moved)}" if change.moved else ""
            figures = f"{counter.shown(cost.before)} tokens before, {counter.shown(cost.after)} after ({counter.name})"
            out(
                f"{client.title}: Toolcrib is in {change.file}, profile {way.profile}, guard {guard}{instead}; "
                f"definitions of the first request: {figures}"
            )
            if number := sum(map(len, change.rules.values())):
                mode = mode_of(client, project=way.project)
                out(f"{client.title}: {number} rules of its own settings are carried over (mode {mode})")
            if change.rewritten:
                out(f"{client.title}: changed as well: {', '.join(map(str, change.rewritten))}")
            for line in change.notes:
                note(f"{client.title}: {line}")
        if cost.silent:
            note(f"{client.title}: not counted, for they did not answer: {', '.join(cost.silent)}")
    if as_json:
        emit_json(rows)


def _costs(changes: Sequence[_Change], places: Places) -> dict[str, _Cost]:
    """Return what each client's definitions cost, by the client's name. Each server is started once."""
    if not changes:
        return {}
    way = changes[0].way
    overrides = {"guard": "on"} if way.desk else {} if way.guard else {"guard": "off"}
    settings = load_gateway((), {**overrides, "profile": way.profile})
    found = [server for change in changes for server in change.before]
    rows = candidates(found, read_servers(way.own_file(places)))
    ours = [row for row in rows if row.known]
    others, _ = specs_of([row.found.entry(row.name) for row in rows if not row.known])
    if not settings.policy.guard:
        _warn_of_questions(settings)

    async def main() -> dict[str, _Cost]:
        counter = tokenizer()
        lists: dict[bytes, _Listed | None] = {}
        async with opened(settings, wait=_WAIT) as crib:
            served = {change.client.name: _served(crib, change, counter) for change in changes}
            lists |= {row.identity: _listed(crib, row.name) for row in ours}
            shared = {row.name for row in ours}
            added = {
                change.client.name: sum(
                    _tokens(change.client, state.source, listed.tools, counter) + counter.count(listed.instructions)
                    for state in crib.tools.sources
                    if state.kind not in _OWN_KINDS and state.source not in shared
                    if (listed := _listed(crib, state.source)) is not None
                )
                for change in changes
            }
        if others:
            async with opened(settings.with_values(servers=tuple(others), **_NOTHING_ELSE), wait=_WAIT) as crib:
                there = {spec.name for spec in others}
                rest = [row for row in rows if row.name in there]
                lists |= {row.identity: _listed(crib, row.name) for row in rest}
        return {
            name: replace(cost, direct=cost.before + added[name])
            for change in changes
            for name, cost in [(change.client.name, _cost(change, served[change.client.name], lists, counter))]
        }

    return run(main)


def _warn_of_questions(settings: Settings) -> None:
    """Name the keys of the user's configuration by which calls are asked about although the guard is off."""
    mode = settings.policy.modes[settings.policy.mode]
    asking = [f"mode: {mode.name}"] if {mode.read, mode.write, mode.destructive} != {"allow"} or mode.plan else []
    asking += ["untrusted: {ask: true}"] if settings.policy.untrusted.ask else []
    if asking:
        note(f"calls that worked before may wait for an answer: your configuration says `{'` and `'.join(asking)}`")


def _served(crib: Toolcrib, change: _Change, counter: Tokenizer) -> int:
    """Return the tokens of what the new entry shows the client at first."""
    backend = WithApprove(crib) if change.way.desk else CribBackend(crib)
    session = backend.serve(crib.session(profile=change.way.profile, grows=False))
    shown: list[dict[str, Any]] = loads(session.listing)
    tools = (
        Tool(
            name=tool["name"],
            local_name=tool["name"],
            source=NAME,
            description=tool.get("description", ""),
            input_schema=tool["inputSchema"],
        )
        for tool in shown
    )
    return _tokens(change.client, NAME, tools, counter) + counter.count(session.instructions)


def _listed(crib: Toolcrib, source: str) -> _Listed | None:
    """Return what a server lists; None for one that did not answer."""
    answers = any(state.source == source and state.state in ("ready", "cached") for state in crib.tools.sources)
    if not answers:
        return None
    about = crib.catalog.about.get(source)
    tools = (replace(tool, name=tool.local_name) for tool in crib.tools.listed(source))
    return _Listed(tools=tuple(tools), instructions=about.instructions if about else "")


def _cost(change: _Change, served: int, lists: Mapping[bytes, _Listed | None], counter: Tokenizer) -> _Cost:
    """Add up the servers that the client had, and those that it keeps beside us."""
    before, kept, silent = 0, 0, list[str]()
    for server in change.before:
        listed = lists.get(identity(server.value))
        if listed is None:
            silent.append(server.name)
            continue
        tokens = _tokens(change.client, server.name, listed.tools, counter) + counter.count(listed.instructions)
        before += tokens
        kept += 0 if server.name in change.moved else tokens
    before += served if change.is_more else 0
    return _Cost(before=before, after=served + kept, direct=before, silent=tuple(silent))


def _tokens(client: Client, server: str, tools: Iterable[Tool], counter: Tokenizer) -> int:
    declared = (replace(tool, name=client.declared(server, tool.name)) for tool in tools)
    return sum(definition_tokens(tool, counter) for tool in declared)


def _connect_desk(
    program: str, places: Places, *, project: bool, unanswered: Unanswered, tell: Callable[[str], None]
) -> None:
    """Put our hook into Claude Code's settings and say what else there is to do."""
    file = hook_file(places, project=project)
    file = file.with_name("settings.local.json") if project and is_shared(file) else file
    options = ["--unanswered", unanswered] if unanswered != "deny" else []
    done = connect_hook(file, program, options, state=places.directories.state)
    tell(f"Claude Code: Toolcrib's hook is in {file}{'' if done else ' already'}")
    tell("Questions wait in `toolcrib approvals watch`; the rules stand in your configuration (`toolcrib policy`).")
    tell("Without settings: claude -p … --permission-prompt-tool mcp__toolcrib__approve")


def _words(entry: Mapping[str, Any]) -> list[Any]:
    """What an entry starts: clients keep arguments in `args`, some with the program in `command`."""
    given: list[Any] = [entry.get("args"), entry.get("command")]
    return [word for part in given if isinstance(part, list) for word in cast("list[Any]", part)]


def _confirm(own: Path, way: _Way, places: Places) -> None:
    """Confirm the project's file of ours: the user has just changed it, and had confirmed the rest."""
    if way.shared:
        confirm(places.directories, [(own, disk.read(own))], places.environ)


def _move(
    client: Client, found: Sequence[FoundServer], target: Path, places: Places, *, dry_run: bool
) -> dict[str, str]:
    """Make sure that the servers `found` are in our file `target`, reviewed as they are now; not in a dry run.

    Return the names here of those that may leave the client, by their names there: a new one that does not answer stays
    in the client, where it works or fails as before, and a note says what there is to do. A dry run expects answers.
    """
    rows = candidates(found, read_servers(target))
    if dry_run:
        return {place.name: row.name for row in rows for place in row.places}
    new = [row for row in rows if not row.known]
    specs, problems = specs_of([row.found.entry(row.name) for row in new])
    probes = probe(load(), specs, wait=_WAIT, accept=True)
    answering = [row for row in new if row.name in probes and probes[row.name].state == "ready"]
    if answering:
        written = add_servers(target, {row.name: row.found.value for row in answering})
        if target != config_files(places.directories, places.project)[0]:
            confirm(places.directories, [(target, written)], places.environ)
        note(f"{len(answering)} servers of {client.title} are in {target} now")
    reasons = {problem.source: problem.message for problem in problems}
    for row in new:
        if row not in answering:
            state = probes[row.name].state if row.name in probes else reasons.get(row.name, "it is switched off")
            names = ", ".join(place.name for place in row.places)
            note(f"{client.title} keeps {names}: {state}. To do: {_to_do(client, row.name, state)}")
    return {place.name: row.name for row in rows if row.known or row in answering for place in row.places}


def _to_do(client: Client, server: str, state: str) -> str:
    """Return the one command line after which a server that stayed in the client can be moved, or has been."""
    if state.startswith("needs_login"):
        return f"`toolcrib import && toolcrib login {server}`"
    again = f"`toolcrib disconnect {client.name} && toolcrib connect {client.name} --replace`"
    return f"once it answers there, {again}"
