"""What a client's own settings allow, ask and deny of its servers' tools: read, carried over and rewritten.

    Claude Code     `permissions` of its settings files: `mcp__server`, `mcp__server__*`, `mcp__server__tool`
    OpenCode        `permission` and `tools` beside the servers: `server_tool`, `server_*`, `*`
    Codex           `default_tools_approval_mode`, `tools.TOOL.approval_mode` in an entry
    Gemini CLI      `trust` in an entry, lists of servers `allowed` and `excluded` under `mcp`
    Cline, Kiro …   `autoApprove`, `autoApproveAll`; Roo: `alwaysAllow` in an entry
    Goose           `GOOSE_MODE`
    Cursor          `mcpAllowlist` of its `permissions.json`; `Mcp(server:tool)` of its command line
    VS Code         `chat.tools.global.autoApprove`

An allow and an ask become rules about `call_tool`: about a tool that the client shows by its name it asks itself, and
its own settings get the new name. A deny becomes a rule about the tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

from msgspec import Struct

from ..catalog.names import MAX_NAME, declared, portable, qualify
from ..core.document_tree import Node
from ..core.permission import Effect
from ..core.tool import Kind
from ..core.yaml_document import parse_yaml
from ..errors import ConfigError
from . import files
from .claude_files import claude_files, disconnect_hook, has_hook, list_item_text, without_item
from .clients import Client, Places
from .connections import NAME, ClientConnection, Outcome, connection_of, entries, forget, restore
from .edits import check_edit, insert_json, remove_json, remove_yaml, set_yaml
from .files import parse_json

__all__ = [
    "META_TOOLS",
    "READS",
    "Names",
    "Permission",
    "allow_in_gemini",
    "carried_mode",
    "client_files",
    "client_permissions",
    "disconnect_settings",
    "entry_extras",
    "entry_permissions",
    "is_settings_file",
    "is_whole",
    "mode_of",
    "original_names",
    "remove_mode",
    "rename_claude_rules",
    "rename_cursor_list",
    "rename_opencode_keys",
    "rename_settings",
    "switch_off",
    "switched_off",
    "trusted_servers",
    "write_mode",
]

META_TOOLS: Final = ("call_tool", "describe_tools", "read_artifact", "search_tools")
"""Our meta-tools that a client need not ask about: what `call_tool` calls is asked about here, the others only show."""
READS: Final = "call_tool_readonly"
"""Our meta-tool about which the client's own prompt is the question."""
_EFFECTS: Final[tuple[Effect, ...]] = ("allow", "ask", "deny")
_CODEX: Final[Mapping[str, Effect]] = {"approve": "allow", "prompt": "ask"}
_CODEX_DEFAULT: Final = "default_tools_approval_mode"
_ASKING_GOOSE: Final = ("approve", "smart_approve")
_NEVER_ASKS: Final = frozenset({"goose", "mcporter", "opencode"})
"""Clients that run a tool unasked as long as their settings do not say otherwise."""
_ALL: Final = "*"
_CURSOR_LIST: Final = "mcpAllowlist"
_CURSOR_TOKEN: Final = re.compile(r"Mcp\(\s*([^:,()]+?)\s*(?:[:,]\s*([^()]*?)\s*)?\)")
"""`Mcp(server:tool)` of Cursor's command line."""
_OFF: Final = "disabledMcpjsonServers"
"""Servers of the project's `.mcp.json` that Claude Code does not start for this user."""
_AUTO_APPROVE: Final = "chat.tools.global.autoApprove"
"""Switch of VS Code: no tool is asked about. What its dialogs were answered is in its own storage, no file to read."""

Names = Mapping[str, str]
"""Our name of each server that was moved, by the client's."""


class Permission(Struct, frozen=True):
    """What a client's settings say of one tool, or of all tools of a server (`*`)."""

    effect: Effect
    server: str
    """As the client names it."""
    tool: str


def entry_permissions(server: str, entry: Mapping[str, Any]) -> list[Permission]:
    """Return what the entry of a server says of its tools.

    Names in its lists are no patterns. A tool with another mode than its server's is asked about in any mode.
    """
    found: list[Permission] = []
    for key in ("autoApprove", "alwaysAllow"):
        given: Any = entry.get(key)
        names = cast("list[Any]", given) if isinstance(given, list) else [_ALL] if given is True else []
        plain = (name for name in map(str, names) if name == _ALL or not any(sign in name for sign in "*?"))
        found += [Permission("allow", server, name) for name in plain]
    if entry.get("trust") is True or entry.get("autoApproveAll") is True:
        found.append(Permission("allow", server, _ALL))
    if effect := _CODEX.get(str(entry.get(_CODEX_DEFAULT))):
        found.append(Permission(effect, server, _ALL))
    tools: Any = entry.get("tools")
    for name, value in _mapping(tools).items():
        if mode := _mapping(value).get("approval_mode"):
            found.append(Permission(_CODEX.get(str(mode), "ask"), server, str(name)))
    return found


def trusted_servers(entries: Mapping[str, Any], names: Names) -> list[str]:
    """Return the moved servers, by the client's names, all of whose tools their entries allow."""
    moved = ((name, entries[name]) for name in names if isinstance(entries.get(name), Mapping))
    return [name for name, entry in moved if Permission("allow", name, _ALL) in entry_permissions(name, entry)]


def entry_extras(
    entries: Mapping[str, Any],
    names: Names,
    *,
    whole: bool,
    listed: Mapping[str, Sequence[str]] | None = None,
    allow: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the tool permissions for our own entry, merged from the entries of the moved servers.

    `whole`: a permission that each of them gives to all its tools is given to our entry. Else a list or a table of
    tools names those that the server lists (`listed`, by our names of servers), and a switch for a whole server
    (`trust`) is left out. `allow` are tools of ours that Codex runs without asking.
    """
    moved = [(ours, cast("Mapping[str, Any]", entries[name])) for name, ours in names.items() if name in entries]
    of_server = listed or {}
    extras: dict[str, Any] = {}
    for key in ("autoApprove", "alwaysAllow"):
        given = [(ours, entry.get(key)) for ours, entry in moved]
        if whole and moved and all(value is True or value == [_ALL] for _, value in given):
            extras[key] = given[0][1]
            continue
        lists = ((ours, cast("list[Any]", value)) for ours, value in given if isinstance(value, list))
        tools = [
            (ours, str(tool)) for ours, value in lists for tool in (of_server.get(ours, ()) if _ALL in value else value)
        ]
        if tools:
            extras[key] = [_declared(ours, tool) for ours, tool in tools]
    for key in ("trust", "autoApproveAll"):
        if whole and moved and all(entry.get(key) is True for _, entry in moved):
            extras[key] = True
    modes: dict[str, Any] = {tool: {"approval_mode": "approve"} for tool in allow}
    defaults = [str(entry.get(_CODEX_DEFAULT, "")) for _, entry in moved]
    if "prompt" in defaults or (defaults and len(set(defaults)) == 1 and (whole or defaults[0] != "approve")):
        extras |= {_CODEX_DEFAULT: mode} if (mode := "prompt" if "prompt" in defaults else defaults[0]) else {}
    for ours, entry in moved:
        if entry.get(_CODEX_DEFAULT) == "approve" and extras.get(_CODEX_DEFAULT) != "approve":
            modes |= {_declared(ours, tool): {"approval_mode": "approve"} for tool in of_server.get(ours, ())}
        tools: Any = entry.get("tools")
        for tool, config in _mapping(tools).items():
            mode: Any = _mapping(config).get("approval_mode")
            modes |= {_declared(ours, tool): {"approval_mode": mode}} if mode else {}
    return extras | ({"tools": modes} if modes else {})


def is_whole(extras: Mapping[str, Any]) -> bool:
    """Whether an entry with `extras` allows every tool behind it, those of servers that are added later included."""
    return Permission("allow", NAME, _ALL) in entry_permissions(NAME, extras)


def client_files(client: Client, places: Places, *, project: bool) -> list[Path]:
    """Return the settings files, beside the one of its servers, in which `client` keeps permissions.

    A project's shared file is one of them with `project` only.
    """
    if client.name == "cursor":
        return [(places.project if project else places.home) / ".cursor" / "permissions.json"]
    if client.name != "claude-code":
        return []
    user, shared, local = claude_files(places)
    return [shared, local] if project else [user, local]


def is_settings_file(client: str, file: Path) -> bool:
    """Whether `file` is one of `client_files`, and not the file of its servers."""
    return file.name in {
        "claude-code": ("settings.json", "settings.local.json"),
        "cursor": ("permissions.json",),
    }.get(client, ())


def client_permissions(
    client: Client,
    file: Path,
    places: Places,
    servers: Sequence[str],
    *,
    project: bool,
    only_here: Collection[str] = (),
) -> list[Permission]:
    """Return what the settings of `client` say of the tools of `servers`; `file` is the one that has the servers.

    A client that asks about nothing by itself allows every server about which it says nothing. What Claude Code allows
    in one project is left out, unless with `project`, but of the servers that are used `only_here`. Raises
    `ConfigError` for a file that cannot be read.
    """
    content = files.read(file, limit=files.FOREIGN_MAX_BYTES) if file.exists() else b""
    raw = entries(client, content, str(file))
    found: list[Permission] = []
    for server in servers:
        entry: Any = raw.get(server)
        found += entry_permissions(server, cast("Mapping[str, Any]", entry)) if isinstance(entry, Mapping) else []
    data: Mapping[str, Any] = _data(content, file) if client.name in ("gemini", "goose", "opencode") else {}
    more, asks = _beside_entries(client, data, places, servers, project=project, only_here=only_here)
    found += more
    if client.name == "claude-code":  # its ask comes before its allow
        asked = {one.server for one in found if one.effect == "ask" and one.tool == _ALL}
        found = [one for one in found if one.effect != "allow" or one.server not in asked]
    if not asks:
        ruled = {one.server for one in found if one.tool == _ALL}
        found += [Permission("allow", server, _ALL) for server in servers if server not in ruled]
    return list(dict.fromkeys(found))


def _beside_entries(
    client: Client,
    data: Mapping[str, Any],
    places: Places,
    servers: Sequence[str],
    *,
    project: bool,
    only_here: Collection[str],
) -> tuple[list[Permission], bool]:
    """Return what the client's settings say beside the entries of servers, and whether it asks about the rest.

    `data` is the content of the file that has the servers.
    """
    asks = client.name not in _NEVER_ASKS
    if client.name == "goose":
        return [], data.get("GOOSE_MODE") in _ASKING_GOOSE
    if client.name == "opencode":
        return _of_opencode(data, servers), asks
    if client.name == "cursor":
        return _of_cursor(places, servers, project=project), asks
    if client.name == "vscode":
        return [], _settings_of(places.application("Code") / "User" / "settings.json").get(_AUTO_APPROVE) is not True
    if client.name == "gemini":
        return _of_gemini(_mapping(data.get("mcp")), servers), asks
    if client.name == "claude-code":
        return _of_claude_files(client, places, servers, project=project, only_here=only_here)
    return [], asks


def _of_gemini(lists: Mapping[str, Any], servers: Sequence[str]) -> list[Permission]:
    """Return a deny of each server that Gemini CLI does not start."""
    allowed, excluded = lists.get("allowed"), lists.get("excluded")
    off = set(cast("list[str]", excluded) if isinstance(excluded, list) else ())
    off |= set(servers) - set(cast("list[str]", allowed)) if isinstance(allowed, list) else set()
    return [Permission("deny", server, _ALL) for server in servers if server in off]


def _of_claude_files(
    client: Client, places: Places, servers: Sequence[str], *, project: bool, only_here: Collection[str]
) -> tuple[list[Permission], bool]:
    """Return what the settings files of Claude Code say, and whether it asks about the rest."""
    found: list[Permission] = []
    asks = True
    for settings in client_files(client, places, project=project):
        given = _mapping(_settings_of(settings).get("permissions"))
        holds = project or settings == claude_files(places)[0]
        if holds and "defaultMode" in given:
            asks = given["defaultMode"] != "bypassPermissions"
        found += [
            one for one in _of_claude(given, servers) if holds or one.effect != "allow" or one.server in only_here
        ]
    return found, asks


def mode_of(client: Client, *, project: bool) -> str:
    """Return the name of the mode that holds what was carried over."""
    return f"connected-{client.name}" + ("-project" if project else "")


def carried_mode(
    permissions: Iterable[Permission], names: Names, *, extends: str = "autonomous", trusts_entry: bool = False
) -> tuple[dict[str, Any], list[Permission]]:
    """Return the equivalent mode for our tools (may be empty), and the permissions without an equivalent.

    Where what a server's settings deny or ask has none, its tools are not allowed together either. `trusts_entry`: the
    client asks about no tool of our entry, so the mode asks about tools of every server that is not allowed as a whole.
    """
    carried = [one for one in permissions if one.server in names]
    lost = [one for one in carried if not _is_expressible(one)]
    strict = {one.server for one in lost if one.effect != "allow"}
    lost += [one for one in carried if one.effect == "allow" and _ALL in one.tool and one.server in strict]
    rules: dict[str, list[str]] = {}
    for one in carried:
        if one in lost or (one.effect == "ask" and one.tool == _ALL):
            continue  # what nothing allows is asked about in any case
        name = _rule_name(names[one.server], one.tool)
        # Of a name that is shortened, or had several odd characters, the client's rule may miss the new one.
        is_asked_here = one.effect == "ask" and (len(name) > MAX_NAME or "__" in one.tool)
        texts = [name] if one.effect == "deny" or is_asked_here else [f"call_tool(name={name})"]
        if trusts_entry and one.effect == "allow" and one.tool == _ALL:
            texts.append(name)
        known = rules.setdefault(one.effect, [])
        known += [text for text in texts if text not in known]
    mode: dict[str, Any] = {"extends": extends, "rules": rules} if rules else {}
    if trusts_entry:
        mode = {**mode, "extends": extends, **dict.fromkeys(get_args(Kind), "ask")}
    return mode, lost


def _is_expressible(permission: Permission) -> bool:
    """Whether a rule of ours means the same: brackets after a tool of MCP have no equivalent."""
    return bool(permission.tool) and not any(sign in permission.tool for sign in "()")


def _rule_name(ours: str, tool: str) -> str:
    """Return the name in our rules of a tool, a pattern of tools, or all tools (`*`) of our server."""
    server = _claude_name(ours)
    if tool == _ALL and "__" not in server:
        return f"mcp__{server}"
    return f"{server}__{re.sub(r'[^A-Za-z0-9_*?-]', '_', tool)}"


def write_mode(file: Path, name: str, mode: Mapping[str, Any]) -> None:
    """Put the mode into our configuration file, in place of an older one of this name."""
    text = files.decode(files.read(file), str(file)) if file.is_file() else ""
    files.write(file, set_yaml(text, ("modes",), name, dict(mode), str(file)).encode())


def remove_mode(file: Path, name: str) -> None:
    """Take the mode out of our configuration file, if it is there, and the mapping around it where that is empty."""
    text = files.decode(files.read(file), str(file)) if file.is_file() else ""
    modes = parse_yaml(text, str(file)).find(("modes",)) if text.strip() else None
    if modes is None or modes.kind != "mapping" or modes.member(name) is None:
        return
    is_only = len(modes.members) == 1
    text = remove_yaml(text, () if is_only else ("modes",), "modes" if is_only else name, str(file))
    files.write(file, text.encode())


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
    for effect in _EFFECTS:
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
    return check_edit(text or "{}", after or "{}", ("permissions",), file, lambda content: parse_json(content).plain())


def rename_settings(
    client: Client,
    text: str,
    names: Names,
    *,
    listed: Mapping[str, Sequence[str]],
    allow: Sequence[str] = (),
    ask: Sequence[str] = (),
    kept: Collection[str] = (),
    file: str = "",
) -> str:
    """Return one of `client_files` with the permissions of moved servers under their new names.

    `allow` are our meta-tools that it is to allow: we ask about their calls. About those of `ask` Claude Code asks
    again. `listed` are the tools of each server, by our name of it. `kept` are names of moved servers of which Claude
    Code still has another server.
    """
    if client.name == "cursor":
        return rename_cursor_list(text, names, listed=listed, allow=allow, file=file)
    allowed, asked = ([f"mcp__{NAME}__{verb}" for verb in verbs] for verbs in (allow, ask))
    return rename_claude_rules(text, names, allow=allowed, ask=asked, kept=kept, file=file)


def switch_off(text: str, servers: Sequence[str], file: str = "") -> str:
    """Return personal settings of Claude Code in which `servers` of the project's `.mcp.json` are switched off."""
    node = parse_json(text, file).find((_OFF,)) if text.strip() else None
    if node is None:
        return insert_json(text, (), _OFF, list(servers), file)
    if node.kind != "sequence":
        raise ConfigError("a list of servers was expected", file=f"{file}:{node.line}", key=_OFF)
    known, after, place = [item.plain() for item in node.items], text, node.start + 1
    for server in [one for one in servers if one not in known]:
        node = parse_json(after, file).find((_OFF,)) or node
        after = after[:place] + list_item_text(after, node, server) + after[place:]
    return check_edit(text, after, (_OFF,), file, lambda content: parse_json(content).plain())


def switched_off(text: str, file: str = "") -> list[str]:
    """Return the servers of projects that personal settings of Claude Code switch off."""
    node = parse_json(text, file).find((_OFF,)) if text.strip() else None
    return [str(item.plain()) for item in node.items] if node is not None and node.kind == "sequence" else []


def rename_cursor_list(
    text: str, names: Names, *, listed: Mapping[str, Sequence[str]], allow: Sequence[str] = (), file: str = ""
) -> str:
    """Return `permissions.json` of Cursor with the tools of moved servers under their new names.

    A file without a list stays so: the list would take the place of the one in Cursor's settings.
    """
    node = parse_json(text, file).find((_CURSOR_LIST,)) if text.strip() else None
    if node is None or node.kind != "sequence" or not node.items:
        return text
    after = text
    values = [item.plain() for item in node.items]
    for item, value in reversed([*zip(node.items, values, strict=True)]):
        new = [one for one in _cursor_names(value, names, listed) if one not in values]
        if new:
            after = after[: item.start] + ", ".join(map(json.dumps, new)) + after[item.end :]
    place = node.start + 1
    for verb in [f"{NAME}:{verb}" for verb in allow if f"{NAME}:{verb}" not in values]:
        after = after[:place] + list_item_text(text, node, verb) + after[place:]
    return check_edit(text, after, (_CURSOR_LIST,), file, lambda content: parse_json(content).plain())


def _cursor_names(value: Any, names: Names, listed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the new entries for one of Cursor's list; none for one that is about no moved server alone."""
    server, colon, tool = value.partition(":") if isinstance(value, str) else ("", "", "")
    ours = names.get(server)
    if ours is None or not colon:
        return []
    tools = listed.get(ours) or [_ALL] if tool == _ALL else [tool]
    return [f"{NAME}:{_declared(ours, one)}" for one in tools]


def _original_cursor_list(text: str, done: ClientConnection, file: str) -> str:
    """Return `permissions.json` with the entries of moved servers that it had, and without ours."""

    def list_of(content: str) -> Node | None:
        node = parse_json(content, file).find((_CURSOR_LIST,))
        return node if node is not None and node.kind == "sequence" else None

    after = text
    while (node := list_of(after)) is not None:
        ours = next((item for item in node.items if str(item.plain()).startswith(f"{NAME}:")), None)
        if ours is None:
            before = _texts(_data(done.content, Path(file)).get(_CURSOR_LIST))
            for value in (one for one in reversed(before) if one.partition(":")[0] in done.names.values()):
                place = node.start + 1
                after = after[:place] + list_item_text(after, node, value) + after[place:]
                node = list_of(after) or node
            break
        after = without_item(after, node, ours)
    return check_edit(text, after, (_CURSOR_LIST,), file, lambda content: parse_json(content).plain())


def disconnect_settings(file: Path, *, state: Path, client: str = "claude-code") -> Outcome:
    """Put settings of a client back as they were before `rename_settings` and our hook.

    Of a file that changed since, rules get their old names, and what is ours is taken out.
    """
    done = connection_of(state, file)
    outcome = restore(file, state=state)
    if outcome is not None:
        return outcome
    if done is None and client == "claude-code":
        return disconnect_hook(file, state=state)
    if done is None:
        raise ConfigError("Toolcrib has not changed this file", file=str(file))
    if not file.exists():
        forget(state, file)
        return "removed"
    text = files.decode(files.read(file, limit=files.FOREIGN_MAX_BYTES), str(file))
    original = _original_cursor_list if client == "cursor" else _original_names
    files.write(file, original(text, done, str(file)).encode())
    if client == "claude-code" and has_hook(file):
        return disconnect_hook(file, state=state)
    forget(state, file)
    return "removed"


def _text_before(done: ClientConnection, file: str) -> str:
    return files.decode(done.content or b"", file).strip() or "{}"


def _original_names(text: str, done: ClientConnection, file: str) -> str:
    """Return settings of Claude Code with the names that rules about moved servers had, and without ours."""
    after, names = text, done.names
    before = _mapping(_data(done.content, Path(file)).get("permissions"))
    rules: list[Any] = [
        rule for given in before.values() if isinstance(given, list) for rule in cast("list[Any]", given)
    ]
    old_by_new = {
        _renamed(rule, {server: ours}): rule
        for rule in rules
        for ours, server in names.items()
        if isinstance(rule, str)
    }
    for effect in _EFFECTS:
        listed = parse_json(after, file).find(("permissions", effect))
        for item in reversed(listed.items if listed is not None and listed.kind == "sequence" else ()):
            rule: Any = item.plain()
            for ours in _longest_first(names) if isinstance(rule, str) else ():
                prefix = f"mcp__{NAME}__{_claude_name(ours)}__"
                if str(rule).startswith(prefix):
                    tool = str(rule)[len(prefix) :]
                    added = f"mcp__{_claude_name(names[ours])}" + ("" if tool == _ALL else f"__{tool}")
                    old = old_by_new.get(str(rule), added)
                    node = parse_json(after, file).find(("permissions", effect)) or listed
                    if node is not None and old in node.plain():
                        after = without_item(after, node, item)
                    else:
                        after = after[: item.start] + json.dumps(old, ensure_ascii=False) + after[item.end :]
                    break
    for verb in (*META_TOOLS, READS):
        after = _without_allow(after, f"mcp__{NAME}__{verb}", file)
    for path in (("permissions", "allow"), ("permissions",)):  # what was made for them goes with them
        node, had = parse_json(after, file).find(path), parse_json(_text_before(done, file), file).find(path)
        if node is not None and not node.plain() and had is None:
            after = remove_json(after, path[:-1], path[-1], file)
    after = check_edit(text, after, ("permissions",), file, lambda content: parse_json(content).plain())
    return _switched_on(after, done, file)


def _switched_on(text: str, done: ClientConnection, file: str) -> str:
    """Return settings of Claude Code in which the servers that were moved are not switched off any more."""
    after = text
    kept = _texts(_data(done.content, Path(file)).get(_OFF))
    while (listed := parse_json(after, file).find((_OFF,))) is not None:
        item = next((one for one in listed.items if one.plain() in done.moved and one.plain() not in kept), None)
        if item is None:
            break
        after = without_item(after, listed, item)
    return check_edit(text, after, (_OFF,), file, lambda content: _without_rules(parse_json(content).plain()))


def _without_rules(settings: Any) -> Any:
    """Return settings of Claude Code without the permissions, which were compared before."""
    return {key: value for key, value in settings.items() if key != "permissions"}


def rename_opencode_keys(text: str, names: Names, file: str = "") -> str:
    """Return the configuration of OpenCode with its permissions of moved servers under their new names."""
    for section in ("permission", "tools"):
        text = _with_keys(text, section, lambda key: _opencode_key(key, names), file)
    return text


def allow_in_gemini(text: str, file: str = "") -> str:
    """Return the settings of Gemini CLI with us in its list of allowed servers, where it has one."""
    listed = parse_json(text, file).find(("mcp", "allowed")) if text.strip() else None
    if listed is None or listed.kind != "sequence" or NAME in [item.plain() for item in listed.items]:
        return text
    place = listed.start + 1
    after = text[:place] + list_item_text(text, listed, NAME) + text[place:]
    return check_edit(text, after, ("mcp",), file, lambda content: parse_json(content).plain())


def original_names(client: Client, text: str, done: ClientConnection, file: str) -> str:
    """Return the file of a client's servers, which changed since, without what `connect` changed beside them."""
    if client.name == "gemini":
        return _not_allowed_in_gemini(text, done, file)
    return _original_opencode_keys(text, done, file) if client.name == "opencode" else text


def _not_allowed_in_gemini(text: str, done: ClientConnection, file: str) -> str:
    listed = parse_json(text, file).find(("mcp", "allowed"))
    had = _texts(_mapping(_data(done.content, Path(file)).get("mcp")).get("allowed"))
    ours = [item for item in listed.items if item.plain() == NAME] if listed is not None else []
    if listed is None or not ours or NAME in had:
        return text
    after = without_item(text, listed, ours[0])
    return check_edit(text, after, ("mcp",), file, lambda content: parse_json(content).plain())


def _original_opencode_keys(text: str, done: ClientConnection, file: str) -> str:
    before = _data(done.content, Path(file))
    for section in ("permission", "tools"):
        names = {server: ours for ours, server in done.names.items()}
        old_by_new = {_opencode_key(key, names): key for key in _mapping(before.get(section))}
        text = _with_keys(text, section, lambda key, old=old_by_new: old.get(key, ""), file)
    return text


def _opencode_key(key: str, names: Names) -> str:
    """Return the pattern of OpenCode as it means the same tools behind us; empty for one of no moved server."""
    server = next((name for name in _longest_first(names) if key.startswith(f"{_claude_name(name)}_")), "")
    return f"{NAME}_{_declared(names[server], key[len(server) + 1 :])}" if server else ""


def _with_keys(text: str, section: str, rename: Callable[[str], str], file: str) -> str:
    """Return `text` with other keys in a section of OpenCode's file, where `rename` returns one."""
    node = parse_json(text, file).find((section,))
    after = text
    for member in sorted(node.members if node is not None else (), key=lambda one: -one.start):
        if key := rename(member.key):
            length = len(text[member.start : text.index(":", member.start)].rstrip())
            after = after[: member.start] + json.dumps(key, ensure_ascii=False) + after[member.start + length :]
    return check_edit(text, after, (section,), file, lambda content: parse_json(content).plain())


def _settings_of(file: Path) -> Mapping[str, Any]:
    """Return the content of a settings file, nothing for one that is not there. Raises `ConfigError`."""
    return _data(files.read(file, limit=files.FOREIGN_MAX_BYTES), file) if file.is_file() else {}


def _of_cursor(places: Places, servers: Sequence[str], *, project: bool) -> list[Permission]:
    """Return what Cursor allows (`permissions.json`), and what its command line allows and denies.

    Without `project` what one project allows is left out.
    """
    found: list[Permission] = []
    files_of = [places.home / ".cursor" / "permissions.json"]
    files_of += [places.project / ".cursor" / "permissions.json"] if project else []
    for file in files_of:
        for pattern in _texts(_settings_of(file).get(_CURSOR_LIST)):
            server, colon, tool = pattern.partition(":")
            found += [Permission("allow", name, tool) for name in servers if colon and server in (name, _ALL)]
    of_command_line = [
        (places.home / ".cursor" / "cli-config.json", True),
        (places.project / ".cursor" / "cli.json", project),
    ]
    for file, holds in of_command_line:
        permissions = _mapping(_settings_of(file).get("permissions"))
        for effect in ("allow", "deny") if holds else ("deny",):
            tokens = filter(None, map(_CURSOR_TOKEN.fullmatch, _texts(permissions.get(effect))))
            found += [
                Permission(effect, name, token[2] or _ALL)
                for token in tokens
                for name in servers
                if token[1] in (name, _ALL)
            ]
    return found


def _texts(value: Any) -> list[str]:
    """Return the texts of a list, none for what is no list."""
    return [item for item in cast("list[Any]", value) if isinstance(item, str)] if isinstance(value, list) else []


def _of_claude(permissions: Mapping[str, Any], servers: Sequence[str]) -> list[Permission]:
    found: list[Permission] = []
    for effect in _EFFECTS:
        rules: Any = permissions.get(effect)
        texts = [rule for rule in cast("list[Any]", rules) if isinstance(rule, str)] if isinstance(rules, list) else []
        if effect == "allow":
            found += [Permission(effect, *meant) for rule in texts if (meant := _meant(rule, servers))]
            continue
        for rule in texts:  # `mcp__*` and `mcp__*__delete_*` deny and ask, they allow nothing
            for server in servers:
                rests = _rests(rule, f"mcp__{_claude_name(server)}__") if "*" in rule.partition("(")[0] else []
                found += [Permission(effect, server, rest) for rest in rests if rest]
            if meant := _meant(rule, servers):
                found.append(Permission(effect, *meant))
    return found


def _of_opencode(data: Mapping[str, Any], servers: Sequence[str]) -> list[Permission]:
    """Return what OpenCode says; the last of its patterns that fits a tool counts, and without one it runs."""
    permission: Any = data.get("permission")
    given = cast("Mapping[str, Any]", permission) if isinstance(permission, Mapping) else {_ALL: permission}
    switches: Any = data.get("tools")
    off = _mapping(switches)
    rules = [*given.items(), *((pattern, "deny") for pattern, is_on in off.items() if is_on is False)]
    found: list[Permission] = []
    for server in servers:
        ruled: list[Permission] = []
        whole: Effect | None = None
        for pattern, value in rules:
            effect = _strictest(value)
            rests = _rests(pattern, f"{_claude_name(server)}_") if effect is not None else []
            if effect is not None and _ALL in rests:
                ruled = [one for one in ruled if one.effect != "allow"]  # the later one counts
                whole = effect
            elif effect is not None:
                ruled += [Permission(effect, server, rest) for rest in rests if rest]
        found += ruled + ([Permission(whole, server, _ALL)] if whole is not None else [])
    return found


def _strictest(value: Any) -> Effect | None:
    """Return an effect as OpenCode writes it: a word, or words by pattern of arguments, of which one is returned."""
    given = list(cast("Mapping[str, Any]", value).values()) if isinstance(value, Mapping) else [value]
    return next((effect for effect in reversed(_EFFECTS) if effect in given), None)


def _rests(pattern: str, prefix: str) -> list[str]:
    """Return the patterns of what may follow `prefix` in a name that fits `pattern`."""
    pattern, places = re.sub(r"\*+", _ALL, pattern), {0}
    for character in prefix:
        places |= {place + 1 for place in places if pattern[place : place + 1] == _ALL}
        stars = {place for place in places if pattern[place : place + 1] == _ALL}
        places = stars | {place + 1 for place in places - stars if pattern[place : place + 1] in (character, "?")}
    return sorted((pattern[place:] for place in places), key=len)


def _meant(rule: str, servers: Iterable[str]) -> tuple[str, str] | None:
    """Return the server and the tool that a rule of Claude Code means; `*` for all tools of it."""
    for server in _longest_first(servers):
        prefix = f"mcp__{_claude_name(server)}"
        if rule == prefix:
            return server, _ALL
        if rule.startswith(f"{prefix}__"):
            return server, rule[len(prefix) + 2 :]
    return None


def _renamed(rule: str, names: Names) -> str:
    """Return the rule as it means the same tool behind us; empty for one that is about none of the servers."""
    meant = _meant(rule, names)
    return f"mcp__{NAME}__{_declared(names[meant[0]], meant[1])}" if meant else ""


def _with_allow(text: str, rule: str, file: str) -> str:
    listed = parse_json(text, file).find(("permissions", "allow")) if text.strip() else None
    if listed is None:
        return insert_json(text, ("permissions",), "allow", [rule], file)
    if listed.kind != "sequence":
        raise ConfigError("a list of rules was expected", file=f"{file}:{listed.line}", key="permissions.allow")
    place = listed.start + 1
    return text[:place] + list_item_text(text, listed, rule) + text[place:]


def _without_allow(text: str, rule: str, file: str) -> str:
    listed = parse_json(text, file).find(("permissions", "allow")) if text.strip() else None
    found = [item for item in listed.items if item.plain() == rule] if listed is not None else []
    return without_item(text, listed, found[0]) if listed is not None and found else text


def _longest_first(servers: Iterable[str]) -> list[str]:
    return sorted(servers, key=lambda name: -len(name))


def _declared(ours: str, tool: str) -> str:
    """Return the name under which we declare a tool; a pattern stays one, and so do brackets."""
    return (
        f"{portable(ours)}__{tool}"
        if any(sign in tool for sign in "*?(")
        else declared(qualify(ours, tool), ours, tool)
    )


def _claude_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _data(content: bytes, file: Path) -> Mapping[str, Any]:
    data: Any = files.parse(content, str(file)).plain() if content.strip() else {}
    return _mapping(data)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return `value`, nothing for what is no mapping."""
    if not isinstance(value, Mapping):
        return {}
    return cast("Mapping[str, Any]", value)
