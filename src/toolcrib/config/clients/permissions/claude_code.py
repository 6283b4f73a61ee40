"""Claude Code: `permissions` of its settings files, and the servers of a project that it does not start."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ....core.documents.tree import Node
from ....core.json import as_list, as_mapping
from ....errors import ConfigError
from ... import files
from ...directories import Places
from ...edits import check_edit, check_json_edit, insert_items, insert_json, remove_item, remove_json
from ...files import parse_json
from ..claude_files import claude_files
from ..connections import NAME, ClientConnection
from .permission import (
    ALL,
    EFFECTS,
    META_TOOLS,
    READS,
    Names,
    Permission,
    claude_name,
    data_of,
    declared_name,
    longest_first,
    pattern_rests,
    settings_of,
    texts,
)

_OFF: Final = "disabledMcpjsonServers"
"""Servers of the project's `.mcp.json` that Claude Code does not start for this user."""


def settings_files(places: Places, *, project: bool) -> list[Path]:
    """Return the files in which Claude Code keeps permissions; a project's shared file is one with `project` only."""
    user, shared, local = claude_files(places)
    return [shared, local] if project else [user, local]


def claude_permissions(
    places: Places, servers: Sequence[str], *, project: bool, only_here: Collection[str]
) -> tuple[list[Permission], bool]:
    """Return the permissions in the settings files of Claude Code, and whether it asks about other tools."""
    found: list[Permission] = []
    asks = True
    for settings in settings_files(places, project=project):
        given = as_mapping(settings_of(settings).get("permissions"))
        holds = project or settings == claude_files(places)[0]
        if holds and "defaultMode" in given:
            asks = given["defaultMode"] != "bypassPermissions"
        found += [
            one for one in _of_claude(given, servers) if holds or one.effect != "allow" or one.server in only_here
        ]
    return found, asks


def _of_claude(permissions: Mapping[str, Any], servers: Sequence[str]) -> list[Permission]:
    found: list[Permission] = []
    for effect in EFFECTS:
        texts = [rule for rule in as_list(permissions.get(effect)) if isinstance(rule, str)]
        if effect == "allow":
            found += [Permission(effect, *meant) for rule in texts if (meant := _meant(rule, servers))]
            continue
        for rule in texts:  # `mcp__*` and `mcp__*__delete_*` deny and ask, they allow nothing
            for server in servers:
                rests = pattern_rests(rule, f"mcp__{claude_name(server)}__") if "*" in rule.partition("(")[0] else []
                found += [Permission(effect, server, rest) for rest in rests if rest]
            if meant := _meant(rule, servers):
                found.append(Permission(effect, *meant))
    return found


def _meant(rule: str, servers: Iterable[str]) -> tuple[str, str] | None:
    """Return the server and the tool that a rule of Claude Code means; `*` for all tools of it."""
    for server in longest_first(servers):
        prefix = f"mcp__{claude_name(server)}"
        if rule == prefix:
            return server, ALL
        if rule.startswith(f"{prefix}__"):
            return server, rule[len(prefix) + 2 :]
    return None


def _renamed(rule: str, names: Names) -> str:
    """Return the rule as it means the same tool behind us; empty for one that is about none of the servers."""
    meant = _meant(rule, names)
    return f"mcp__{NAME}__{declared_name(names[meant[0]], meant[1])}" if meant else ""


def rename_claude_rules(
    text: str,
    names: Names,
    *,
    allow: Sequence[str] = (),
    ask: Sequence[str] = (),
    kept: Collection[str] = (),
    file: str = "",
) -> str:
    """Return the settings of Claude Code with the rules about moved servers under their new names.

    Where the client still has another server of such a name (`kept`), its rule stays beside. `allow` is allowed, `ask`
    no longer. Raises `ConfigError` where that cannot be done without touching the rest.
    """
    after = text
    root = parse_json(text, file) if text.strip() else None
    found: list[tuple[Node, Sequence[str]]] = []
    known: list[str] = []
    for effect in EFFECTS:
        listed = root.find(("permissions", effect)) if root is not None else None
        for item in listed.items if listed is not None and listed.kind == "sequence" else ():
            rule: Any = item.plain()
            known += [rule] if effect == "allow" and isinstance(rule, str) else []
            meant = _meant(rule, names) if isinstance(rule, str) else None
            if meant is not None:
                new = _renamed(rule, names)
                found.append((item, (rule, new) if meant[0] in kept else (new,)))
    for item, rules in sorted(found, key=lambda pair: -pair[0].start):
        written = ", ".join(json.dumps(rule, ensure_ascii=False) for rule in rules)
        after = after[: item.start] + written + after[item.end :]
    for rule in allow:
        after = after if rule in known else _with_allow(after, rule, file)
    for rule in ask:
        after = _without_allow(after, rule, file)
    return check_json_edit(text or "{}", after or "{}", ("permissions",), file)


def switch_off(text: str, servers: Sequence[str], file: str = "") -> str:
    """Return personal settings of Claude Code in which `servers` of the project's `.mcp.json` are switched off."""
    node = parse_json(text, file).find((_OFF,)) if text.strip() else None
    if node is None:
        return insert_json(text, (), _OFF, list(servers), file)
    if node.kind != "sequence":
        raise ConfigError("a list of servers was expected", file=f"{file}:{node.line}", key=_OFF)
    known = [item.plain() for item in node.items]
    after = insert_items(text, node, reversed([one for one in servers if one not in known]))
    return check_json_edit(text, after, (_OFF,), file)


def switched_off(text: str, file: str = "") -> list[str]:
    """Return the servers of projects that personal settings of Claude Code switch off."""
    node = parse_json(text, file).find((_OFF,)) if text.strip() else None
    return [str(item.plain()) for item in node.items] if node is not None and node.kind == "sequence" else []


def original_claude_rules(text: str, done: ClientConnection, file: str) -> str:
    """Return settings of Claude Code with the names that rules about moved servers had, and without ours."""
    after, names = text, done.names
    before = as_mapping(data_of(done.content, Path(file)).get("permissions"))
    rules: list[Any] = [
        rule for given in before.values() if isinstance(given, list) for rule in cast("list[Any]", given)
    ]
    old_by_new = {
        _renamed(rule, {server: ours}): rule
        for rule in rules
        for ours, server in names.items()
        if isinstance(rule, str)
    }
    for effect in EFFECTS:
        listed = parse_json(after, file).find(("permissions", effect))
        for item in reversed(listed.items if listed is not None and listed.kind == "sequence" else ()):
            rule: Any = item.plain()
            old = _former_rule(rule, names, old_by_new) if isinstance(rule, str) else None
            if old is None:
                continue
            node = parse_json(after, file).find(("permissions", effect)) or listed
            if node is not None and old in node.plain():
                after = remove_item(after, node, item)
            else:
                after = after[: item.start] + json.dumps(old, ensure_ascii=False) + after[item.end :]
    for verb in (*META_TOOLS, READS):
        after = _without_allow(after, f"mcp__{NAME}__{verb}", file)
    for path in (("permissions", "allow"), ("permissions",)):  # what was made for them goes with them
        node, had = parse_json(after, file).find(path), parse_json(_text_before(done, file), file).find(path)
        if node is not None and not node.plain() and had is None:
            after = remove_json(after, path[:-1], path[-1], file)
    after = check_json_edit(text, after, ("permissions",), file)
    return _switched_on(after, done, file)


def _former_rule(rule: str, names: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    """Return the rule that was there before its server moved, if it is one about such a server."""
    for ours in longest_first(names):
        prefix = f"mcp__{NAME}__{claude_name(ours)}__"
        if rule.startswith(prefix):
            tool = rule.removeprefix(prefix)
            return known.get(rule) or f"mcp__{claude_name(names[ours])}" + ("" if tool == ALL else f"__{tool}")
    return None


def _switched_on(text: str, done: ClientConnection, file: str) -> str:
    """Return settings of Claude Code in which the servers that were moved are not switched off any more."""
    after = text
    kept = texts(data_of(done.content, Path(file)).get(_OFF))
    while (listed := parse_json(after, file).find((_OFF,))) is not None:
        item = next((one for one in listed.items if one.plain() in done.moved and one.plain() not in kept), None)
        if item is None:
            break
        after = remove_item(after, listed, item)
    return check_edit(text, after, (_OFF,), file, lambda content: _without_rules(parse_json(content).plain()))


def _without_rules(settings: Any) -> Any:
    """Return settings of Claude Code without the permissions, which were compared before."""
    return {key: value for key, value in settings.items() if key != "permissions"}


def _with_allow(text: str, rule: str, file: str) -> str:
    listed = parse_json(text, file).find(("permissions", "allow")) if text.strip() else None
    if listed is None:
        return insert_json(text, ("permissions",), "allow", [rule], file)
    if listed.kind != "sequence":
        raise ConfigError("a list of rules was expected", file=f"{file}:{listed.line}", key="permissions.allow")
    return insert_items(text, listed, [rule])


def _without_allow(text: str, rule: str, file: str) -> str:
    listed = parse_json(text, file).find(("permissions", "allow")) if text.strip() else None
    found = [item for item in listed.items if item.plain() == rule] if listed is not None else []
    return remove_item(text, listed, found[0]) if listed is not None and found else text


def _text_before(done: ClientConnection, file: str) -> str:
    return files.decode(done.content or b"", file).strip() or "{}"
