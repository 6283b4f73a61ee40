"""Permissions of a client carried over: into our rules, into keys of our entry, and under the new names of tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...config import Settings
from ...config import files as disk
from ...config.clients.permissions.claude_code import switch_off
from ...config.clients.permissions.entries import entry_extras, is_whole, trusted_servers
from ...config.clients.permissions.modes import carried_mode
from ...config.clients.permissions.settings import client_files, client_permissions, rename_settings
from ...config.clients.table import Client
from ...config.directories import Places
from ...config.own_file import read_servers
from ...core.documents.yaml import parse_yaml
from ...sources.mcp.tool_list import ListingCache
from .moved_servers import text_of
from .own_entry import Way


def with_rules_of(own: Path, name: str, mode: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `mode` with the rules that our file `own` has in the mode `name` already."""
    known = parse_yaml(disk.decode(disk.read(own), str(own)), str(own)).find(("modes", name)) if own.is_file() else None
    if known is None:
        return mode
    before: Mapping[str, Any] = known.plain()
    rules = {effect: list(texts) for effect, texts in before.get("rules", {}).items()}
    for effect, texts in mode.get("rules", {}).items():
        rules[effect] = list(dict.fromkeys([*rules.get(effect, []), *texts]))
    return {**before, "rules": rules}


class CarriedOver(Struct, frozen=True, kw_only=True):
    """The equivalent here of what a client's settings say of the servers that are moved."""

    mode: Mapping[str, Any]
    extras: Mapping[str, Any]
    """Keys of our entry in the client."""
    notes: tuple[str, ...]
    """Differences from the client's permissions, one sentence each."""
    wholly: Collection[str]
    """Our names of the moved servers, if the client's settings allowed every tool of them and asked and denied none."""


def carry_over(
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
) -> CarriedOver:
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
    extras = entry_extras(entries, names, whole=is_trusted, listed=listed_before(settings, names), allow=allow)
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
    return CarriedOver(mode=mode, extras=extras, notes=tuple(notes), wholly=wholly)


class Verbs(Struct, frozen=True, kw_only=True):
    """Our meta-tools that the client's settings allow from now on, and those that they allow no longer."""

    allow: Sequence[str] = ()
    ask: Sequence[str] = ()


def listed_before(settings: Settings, names: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return the tools that each moved server listed last, by its name here."""
    ours = set(names.values())
    specs = [spec for spec in settings.sources.servers if spec.name in ours]
    cached = {spec.name: ListingCache(settings.directories.cache, spec).read() for spec in specs}
    return {name: [tool.local_name for tool in one.listing.tools] for name, one in cached.items() if one}


class ChangedSettings(Struct, frozen=True, kw_only=True):
    """A settings file of a client, as it is to be."""

    file: Path
    text: str
    off: Sequence[str]
    """Servers of the project that it switches off."""


def changed_settings(
    client: Client,
    places: Places,
    names: Mapping[str, str],
    way: Way,
    listed: Mapping[str, Sequence[str]],
    *,
    verbs: Verbs,
    kept: Collection[str],
    off: Collection[str],
) -> list[ChangedSettings]:
    """Return the settings files that change; the last one switches off the project's servers `off`.

    Permissions of moved servers get their new names, of those in `kept` beside the old ones. Our meta-tools that ask
    here (`verbs`) are allowed there; of a project in the local file, not in the one that git tracks.
    """
    settings = client_files(client, places, project=way.project)
    personal = settings[1:] if way.project else settings[:1]
    changed: list[ChangedSettings] = []
    for file in settings:
        before, of_file = text_of(file), verbs if file in personal else Verbs()
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
        if after != before:
            changed.append(ChangedSettings(file=file, text=after, off=switched))
    return changed
