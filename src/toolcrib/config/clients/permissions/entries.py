"""Permissions in the entries of servers: Codex, Gemini CLI, Cline, Kiro, Roo and others; what our entry takes over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from ....core.json import as_mapping
from ....core.permission import Effect
from ..connections import NAME
from .permission import ALL, Names, Permission, declared_name

_CODEX: Final[Mapping[str, Effect]] = {"approve": "allow", "prompt": "ask"}
_CODEX_DEFAULT: Final = "default_tools_approval_mode"

_Moved = tuple[str, Mapping[str, Any]]
"""Our name of a server, and its entry in the client."""


def entry_permissions(server: str, entry: Mapping[str, Any]) -> list[Permission]:
    """Return the permissions of tools in a server's entry.

    Names in its lists are not patterns. A tool with another mode than its server's is asked about in any mode.
    """
    found: list[Permission] = []
    for key in ("autoApprove", "alwaysAllow"):
        given: Any = entry.get(key)
        names = cast("list[Any]", given) if isinstance(given, list) else [ALL] if given is True else []
        plain = (name for name in map(str, names) if name == ALL or not any(sign in name for sign in "*?"))
        found += [Permission("allow", server, name) for name in plain]
    if entry.get("trust") is True or entry.get("autoApproveAll") is True:
        found.append(Permission("allow", server, ALL))
    if effect := _CODEX.get(str(entry.get(_CODEX_DEFAULT))):
        found.append(Permission(effect, server, ALL))
    for name, value in as_mapping(entry.get("tools")).items():
        if mode := as_mapping(value).get("approval_mode"):
            found.append(Permission(_CODEX.get(str(mode), "ask"), server, str(name)))
    return found


def trusted_servers(entries: Mapping[str, Any], names: Names) -> list[str]:
    """Return the moved servers, by the client's names, all of whose tools their entries allow."""
    moved = ((name, entries[name]) for name in names if isinstance(entries.get(name), Mapping))
    return [name for name, entry in moved if Permission("allow", name, ALL) in entry_permissions(name, entry)]


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
    switches = ("trust", "autoApproveAll") if whole and moved else ()
    return {
        **_approved_tools(moved, listed or {}, whole=whole),
        **{key: True for key in switches if all(entry.get(key) is True for _, entry in moved)},
        **_codex_modes(moved, listed or {}, allow, whole=whole),
    }


def _approved_tools(moved: Sequence[_Moved], listed: Mapping[str, Sequence[str]], *, whole: bool) -> Mapping[str, Any]:
    """Return the lists of tools that need no approval, each in the form of its client."""
    found: dict[str, Any] = {}
    for key in ("autoApprove", "alwaysAllow"):
        given = [(ours, entry.get(key)) for ours, entry in moved]
        if whole and moved and all(value is True or value == [ALL] for _, value in given):
            found[key] = given[0][1]
            continue
        lists = ((ours, cast("list[Any]", value)) for ours, value in given if isinstance(value, list))
        tools = ((ours, listed.get(ours, ()) if ALL in value else value) for ours, value in lists)
        if names := [declared_name(ours, str(tool)) for ours, known in tools for tool in known]:
            found[key] = names
    return found


def _codex_modes(
    moved: Sequence[_Moved], listed: Mapping[str, Sequence[str]], allow: Sequence[str], *, whole: bool
) -> Mapping[str, Any]:
    """Return the modes of Codex: of the tools that an entry does not name, and of each that it names."""
    defaults = {str(entry.get(_CODEX_DEFAULT, "")) for _, entry in moved}
    default = "prompt" if "prompt" in defaults else next(iter(defaults)) if len(defaults) == 1 else ""
    default = default if whole or default != "approve" else ""
    modes: dict[str, Any] = dict.fromkeys(allow, "approve")
    for ours, entry in moved:
        if entry.get(_CODEX_DEFAULT) == "approve" != default:
            modes |= {declared_name(ours, tool): "approve" for tool in listed.get(ours, ())}
        tools: Any = entry.get("tools")
        for tool, config in as_mapping(tools).items():
            if mode := as_mapping(config).get("approval_mode"):
                modes[declared_name(ours, tool)] = mode
    shown = {tool: {"approval_mode": mode} for tool, mode in modes.items()}
    return ({_CODEX_DEFAULT: default} if default else {}) | ({"tools": shown} if shown else {})


def is_whole(extras: Mapping[str, Any]) -> bool:
    """Whether an entry with `extras` allows every tool behind it, those of servers that are added later included."""
    return Permission("allow", NAME, ALL) in entry_permissions(NAME, extras)
