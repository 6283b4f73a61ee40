"""MCP clients that servers are configured in: the places and formats of their files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from .directories import Directories

__all__ = ["CLIENTS", "CLIENT_FILES", "Client", "Format", "Places", "here"]

Format = Literal["json", "toml", "yaml"]


_DIRECTORIES: Final = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
"""What says where a user keeps things."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look: one user, in one project."""

    directories: Directories
    environ: Mapping[str, str]
    project: Path
    platform: str = sys.platform
    """`linux`, `darwin` or `win32`, as Python names them."""

    @property
    def home(self) -> Path:
        """The user's home directory."""
        return self.directories.home

    @property
    def config(self) -> Path:
        """`$XDG_CONFIG_HOME`."""
        return self.directories.config.parent

    def application(self, name: str) -> Path:
        """The folder where a desktop application of this name keeps its settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / name
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming") / name
        return self.config / name


def here() -> Places:
    """Return where this process's user keeps things, for the folder that it runs in."""
    return Places(directories=Directories.of(os.environ), environ=os.environ, project=Path.cwd())


def _stdio(command: str, args: list[str]) -> dict[str, Any]:
    return {"command": command, "args": args}


def _typed(command: str, args: list[str]) -> dict[str, Any]:
    return {"type": "stdio", "command": command, "args": args}


def _codex_entry(command: str, args: list[str]) -> dict[str, Any]:
    """Codex starts servers with no more than HOME and PATH: without these ours would be another user's gateway."""
    return {"command": command, "args": args, "env_vars": list(_DIRECTORIES)}


def _opencode(command: str, args: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": [command, *args], "enabled": True}


def _goose(command: str, args: list[str]) -> dict[str, Any]:
    return {
        "enabled": True,
        "type": "stdio",
        "name": "toolcrib",
        "description": "All your tools, found by search",
        "cmd": command,
        "args": args,
        "envs": {},
        "timeout": 300,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One program. Of several user files the first that exists counts; the first of all is the one that is made."""

    name: str
    title: str
    user: Callable[[Places], tuple[Path, ...]]
    project: tuple[str, ...] = ()
    """Paths inside a project."""
    format: Format = "json"
    path: tuple[str, ...] = ("mcpServers",)
    """The mapping from a server's name to its entry."""
    defers: bool = False
    """Whether it holds definitions back itself until they are needed; then it is given the `flat` profile."""
    names: str = "mcp__{server}__{tool}"
    """How it declares a server's tools to its model: captured for Claude Code, Codex, OpenCode and Goose, and the
    form of Claude Code for the others."""
    entry: Callable[[str, list[str]], dict[str, Any]] = field(default=_stdio, repr=False)
    """Makes the entry that starts a command with arguments."""

    @property
    def profile(self) -> str:
        """The profile that suits it."""
        return "flat" if self.defers else "adaptive"

    def declared(self, server: str, tool: str) -> str:
        """Return the name under which its model sees `tool` of `server`."""
        return self.names.format(server=server, tool=tool)

    def user_file(self, places: Places) -> Path:
        """Return the user's file: the one that exists, else the one to make."""
        return _existing(self.user(places))

    def project_file(self, places: Places) -> Path | None:
        """Return the project's file, or None when this client has none."""
        return _existing(tuple(places.project / name for name in self.project)) if self.project else None


def _existing(paths: tuple[Path, ...]) -> Path:
    return next((path for path in paths if path.is_file()), paths[0])


def _claude_code(places: Places) -> tuple[Path, ...]:
    folder = places.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) / ".claude.json",) if folder else (places.home / ".claude.json",)


def _codex(places: Places) -> tuple[Path, ...]:
    return (Path(places.environ.get("CODEX_HOME") or places.home / ".codex") / "config.toml",)


def _opencode_files(places: Places) -> tuple[Path, ...]:
    folder = places.config / "opencode"
    return (folder / "opencode.json", folder / "opencode.jsonc")


def _mcporter(places: Places) -> tuple[Path, ...]:
    """It keeps to `~/.mcporter` unless `XDG_CONFIG_HOME` is set."""
    own, shared = places.home / ".mcporter", places.config / "mcporter"
    folders = (shared, own) if places.environ.get("XDG_CONFIG_HOME") else (own, shared)
    return tuple(folder / name for folder in folders for name in ("mcporter.json", "mcporter.jsonc"))


def _copilot(places: Places) -> tuple[Path, ...]:
    return (Path(places.environ.get("COPILOT_HOME") or places.home / ".copilot") / "mcp-config.json",)


def _copilot_entry(command: str, args: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": command, "args": args, "tools": ["*"]}


def _zed(places: Places) -> tuple[Path, ...]:
    """Its own folder on macOS, too; `XDG_CONFIG_HOME` counts on Linux only."""
    if places.platform == "win32":
        return (places.application("Zed") / "settings.json",)
    folder = places.config if places.platform == "linux" else places.home / ".config"
    return (folder / "zed" / "settings.json",)


def _amp(places: Places) -> tuple[Path, ...]:
    folder = places.home / ".config" / "amp"
    return (folder / "settings.json", folder / "settings.jsonc")


CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            user=_claude_code,
            project=(".mcp.json",),
            defers=True,
            entry=_typed,
        ),
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            user=lambda places: (places.application("Claude") / "claude_desktop_config.json",),
        ),
        Client(
            name="cursor",
            title="Cursor",
            user=lambda places: (places.home / ".cursor" / "mcp.json",),
            project=(".cursor/mcp.json",),
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            user=lambda places: (places.home / ".codeium" / "windsurf" / "mcp_config.json",),
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            user=lambda places: (places.home / ".gemini" / "settings.json",),
            project=(".gemini/settings.json",),
        ),
        Client(
            name="vscode",
            title="VS Code",
            user=lambda places: (places.application("Code") / "User" / "mcp.json",),
            project=(".vscode/mcp.json",),
            path=("servers",),
            entry=_typed,
        ),
        Client(
            name="codex",
            title="Codex",
            user=_codex,
            project=(".codex/config.toml",),
            format="toml",
            path=("mcp_servers",),
            defers=True,
            entry=_codex_entry,
        ),
        Client(
            name="opencode",
            title="OpenCode",
            user=_opencode_files,
            project=("opencode.json", "opencode.jsonc"),
            path=("mcp",),
            names="{server}_{tool}",
            entry=_opencode,
        ),
        Client(
            name="goose",
            title="Goose",
            user=lambda places: (places.config / "goose" / "config.yaml",),
            format="yaml",
            path=("extensions",),
            names="{server}__{tool}",
            entry=_goose,
        ),
        Client(
            name="mcporter",
            title="mcporter",
            user=_mcporter,
            project=("config/mcporter.json",),
        ),
        Client(
            name="zed",
            title="Zed",
            user=_zed,
            project=(".zed/settings.json",),
            path=("context_servers",),
        ),
        Client(
            name="kiro",
            title="Kiro",
            user=lambda places: (places.home / ".kiro" / "settings" / "mcp.json",),
            project=(".kiro/settings/mcp.json",),
        ),
        Client(
            name="copilot",
            title="Copilot CLI",
            user=_copilot,
            entry=_copilot_entry,
        ),
        Client(
            name="lm-studio",
            title="LM Studio",
            user=lambda places: (places.home / ".lmstudio" / "mcp.json",),
        ),
        Client(
            name="junie",
            title="JetBrains Junie",
            user=lambda places: (places.home / ".junie" / "mcp" / "mcp.json",),
            project=(".junie/mcp/mcp.json",),
        ),
        Client(
            name="amp",
            title="Amp",
            user=_amp,
            project=(".amp/settings.json", ".amp/settings.jsonc"),
            path=("amp.mcpServers",),
        ),
        Client(
            name="warp",
            title="Warp",
            user=lambda places: (places.home / ".warp" / ".mcp.json",),
            project=(".warp/.mcp.json",),
        ),
    )
}
"""Every client, by the name that `toolcrib connect` takes."""

CLIENT_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": (".mcp.json", ".claude.json"),
    "claude-desktop": ("claude_desktop_config.json",),
    "cursor": (".cursor/mcp.json",),
    "windsurf": ("mcp_config.json",),
    "gemini": (".gemini/settings.json",),
    "vscode": (".vscode/mcp.json", "Code/User/mcp.json"),
    "opencode": ("opencode.json", "opencode.jsonc"),
    "mcporter": ("mcporter.json", "mcporter.jsonc"),
    "zed": ("zed/settings.json",),
    "kiro": (".kiro/settings/mcp.json",),
    "copilot": (".copilot/mcp-config.json",),
    "lm-studio": (".lmstudio/mcp.json",),
    "junie": (".junie/mcp/mcp.json",),
    "amp": ("amp/settings.json", "amp/settings.jsonc"),
    "warp": (".warp/.mcp.json",),
}
"""Endings of JSON paths by which a named file is recognised as a client's."""
