"""The mode of ours that holds what was carried over from a client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from ....catalog.names import MAX_NAME
from ....core.documents.yaml import parse_yaml
from ....core.tool import Kind
from ... import files
from ...edits import remove_yaml, set_yaml
from ..table import Client
from .permission import ALL, Names, Permission, claude_name


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
    lost += [one for one in carried if one.effect == "allow" and ALL in one.tool and one.server in strict]
    rules: dict[str, list[str]] = {}
    for one in carried:
        if one in lost or (one.effect == "ask" and one.tool == ALL):
            continue  # what nothing allows is asked about in any case
        name = _rule_name(names[one.server], one.tool)
        # Of a name that is shortened, or had several odd characters, the client's rule may miss the new one.
        is_asked_here = one.effect == "ask" and (len(name) > MAX_NAME or "__" in one.tool)
        texts = [name] if one.effect == "deny" or is_asked_here else [f"call_tool(name={name})"]
        if trusts_entry and one.effect == "allow" and one.tool == ALL:
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
    server = claude_name(ours)
    if tool == ALL and "__" not in server:
        return f"mcp__{server}"
    return f"{server}__{re.sub(r'[^A-Za-z0-9_*?-]', '_', tool)}"


def write_mode(file: Path, name: str, mode: Mapping[str, Any]) -> None:
    """Put the mode into our configuration file, in place of an older one of this name."""
    text = files.decode(files.read(file), str(file)) if file.is_file() else ""
    files.write(file, set_yaml(text, ("modes",), name, dict(mode), str(file)).encode())


def remove_mode(file: Path, name: str) -> None:
    """Take the mode out of our configuration file, if it is there, and the mapping around it if that is empty."""
    text = files.decode(files.read(file), str(file)) if file.is_file() else ""
    modes = parse_yaml(text, str(file)).find(("modes",)) if text.strip() else None
    if modes is None or modes.kind != "mapping" or modes.member(name) is None:
        return
    is_only = len(modes.members) == 1
    text = remove_yaml(text, () if is_only else ("modes",), "modes" if is_only else name, str(file))
    files.write(file, text.encode())
