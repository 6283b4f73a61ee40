"""Permissions for tools of servers in the settings of any client: read, written under new names, and put back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ....core.json import as_mapping
from ....errors import ConfigError
from ... import files
from ...directories import Places
from ..claude_files import disconnect_hook, has_hook
from ..connections import NAME, ClientConnection, Outcome, connection_of, entries, forget, restore
from ..table import Client
from .claude_code import claude_permissions, original_claude_rules, rename_claude_rules, settings_files
from .entries import entry_permissions
from .permission import ALL, Names, Permission, data_of, settings_of
from .setting_keys import opencode_permissions, original_keys, zed_permissions
from .setting_lists import (
    cursor_permissions,
    gemini_permissions,
    original_cursor_list,
    original_gemini_list,
    rename_cursor_list,
)

_ASKING_GOOSE: Final = ("approve", "smart_approve")
_NEVER_ASKS: Final = frozenset({"goose", "mcporter", "opencode"})
"""Clients that run a tool unasked as long as their settings do not say otherwise."""
_AUTO_APPROVE: Final = "chat.tools.global.autoApprove"
"""Switch of VS Code: no tool is asked about. What its dialogs were answered is in its own storage, no file to read."""


def client_files(client: Client, places: Places, *, project: bool) -> list[Path]:
    """Return the settings files, beside the one of its servers, in which `client` keeps permissions.

    A project's shared file is one of them with `project` only.
    """
    if client.name == "cursor":
        return [(places.project if project else places.home) / ".cursor" / "permissions.json"]
    if client.name != "claude-code":
        return []
    return settings_files(places, project=project)


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
    """Return the permissions of `client` for the tools of `servers`; `file` is the one that has the servers.

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
    data: Mapping[str, Any] = data_of(content, file) if client.name in ("gemini", "goose", "opencode", "zed") else {}
    more, asks = _beside_entries(client, data, places, servers, project=project, only_here=only_here)
    found += more
    if client.name == "claude-code":  # its ask comes before its allow
        asked = {one.server for one in found if one.effect == "ask" and one.tool == ALL}
        found = [one for one in found if one.effect != "allow" or one.server not in asked]
    if not asks:
        ruled = {one.server for one in found if one.tool == ALL}
        found += [Permission("allow", server, ALL) for server in servers if server not in ruled]
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
    """Return the client's permissions beside the servers' entries, and whether it asks about other tools.

    `data` is the content of the file that has the servers.
    """
    asks = client.name not in _NEVER_ASKS
    if client.name == "goose":
        return [], data.get("GOOSE_MODE") in _ASKING_GOOSE
    if client.name == "opencode":
        return opencode_permissions(data, servers), asks
    if client.name == "zed":
        return zed_permissions(data, servers), asks
    if client.name == "cursor":
        return cursor_permissions(places, servers, project=project), asks
    if client.name == "vscode":
        return [], settings_of(places.application("Code") / "User" / "settings.json").get(_AUTO_APPROVE) is not True
    if client.name == "gemini":
        return gemini_permissions(as_mapping(data.get("mcp")), servers), asks
    if client.name == "claude-code":
        return claude_permissions(places, servers, project=project, only_here=only_here)
    return [], asks


def rename_settings(
    client: Client,
    text: str,
    names: Names,
    *,
    listed: Mapping[str, Sequence[str]],
    allow: Sequence[str],
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
    original = original_cursor_list if client == "cursor" else original_claude_rules
    files.write(file, original(text, done, str(file)).encode())
    if client == "claude-code" and has_hook(file):
        return disconnect_hook(file, state=state)
    forget(state, file)
    return "removed"


def original_names(client: Client, text: str, done: ClientConnection, file: str) -> str:
    """Return the file of a client's servers, which changed since, without what `connect` changed beside them."""
    if client.name == "gemini":
        return original_gemini_list(text, done, file)
    return original_keys(client.name, text, done, file)
