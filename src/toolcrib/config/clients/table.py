"""MCP clients: the places and formats of their configuration files, and the entry that each takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

from msgspec import Struct

from ...core.json import as_list
from ...core.patterns import regex
from ..directories import Places

Format = Literal["json", "toml", "yaml"]

_DIRECTORIES: Final = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
"""Environment variables with the user's directories."""

_ASKS_NOTHING: Final = (
    "It runs tools unasked unless its settings say otherwise; behind Toolcrib such tools run unasked, too."
)

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
    "cline": ("cline_mcp_settings.json",),
    "continue": (".continue/mcpServers/mcp.json",),
}
"""Endings of JSON paths by which a named file is recognised as a client's."""

_INTERPRETER: Final = regex(r"""#!(?:(/[^\n]*/python[\d.]*)\s|/bin/sh\n'{3}exec' (?:["']([^"'\n]+)["']|(/\S+)))""")
"""First lines of a script of a Python environment: the path of its Python, which a long path or a blank moves down."""

ConfigScope = Literal["user", "local", "project"]


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


class Client(Struct, frozen=True, kw_only=True):
    """One program. Of several user files the first that exists counts; the first of all is the one that is made."""

    name: str
    title: str
    user: Callable[[Places], tuple[Path, ...]]
    project: tuple[str, ...] = ()
    """Paths inside a project."""
    format: Format = "json"
    path: tuple[str, ...] = ("mcpServers",)
    """The mapping from a server's name to its entry."""
    profile: str = "adaptive"
    """The profile that costs the least context, measured with its own deferral of definitions on and off."""
    names: str = "mcp__{server}__{tool}"
    """How it declares a server's tools to its model: captured for Claude Code, Codex, OpenCode and Goose, and the
    form of Claude Code for the others."""
    entry: Callable[[str, list[str]], dict[str, Any]] = _stdio
    """Makes the entry that starts a command with arguments."""
    passes_environment: bool = False
    """Whether its stdio servers get its whole environment, so that they get ours: Claude Code (tried), and those whose
    source says so."""
    permissions: tuple[str, ...] = ()
    """Settings whose permissions `connect --replace` carries over, beside the keys of an entry."""
    notes: tuple[str, ...] = ()
    """Restrictions and differences, for the client's page of the documents."""

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


def _cline(places: Places) -> tuple[Path, ...]:
    """Return the file of its command line, which its extensions of editors do not share."""
    named = places.environ.get("CLINE_MCP_SETTINGS_PATH")
    return (Path(named or places.home / ".cline" / "data" / "settings" / "cline_mcp_settings.json"),)


def _cline_vscode(places: Places) -> tuple[Path, ...]:
    folder = places.application("Code") / "User" / "globalStorage" / "saoudrizwan.claude-dev"
    return (folder / "settings" / "cline_mcp_settings.json",)


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
            passes_environment=True,
            project=(".mcp.json",),
            entry=_typed,
            permissions=(
                "`permissions` of `~/.claude/settings.json` (`allow`, `ask`, `deny`, `defaultMode`)",
                (
                    "`ask` and `deny` of the project's `.claude/settings.local.json`, of servers of this project alone "
                    "also `allow`"
                ),
                "with `--project` the project's `.claude/settings.json`",
            ),
            notes=(
                "`claude mcp list` shows whether it reaches Toolcrib.",
                "`CLAUDE_CONFIG_DIR` moves its files.",
                (
                    "`--replace` moves the servers of `mcpServers` and those that `~/.claude.json` has for the current "
                    "folder (`projects`), which are used in that folder alone (`projects: [FOLDER]`). Connect again in "
                    "the folder of another project to move its servers; the first `disconnect` puts all of them back."
                ),
                "A file that git tracks (`.mcp.json`, `.claude/settings.json`) is changed with `--project` only.",
                (
                    "To leave every question to Toolcrib, allow all of it: `mcp__toolcrib` in `permissions.allow`, or "
                    "`--allowedTools=mcp__toolcrib`."
                ),
                (
                    "Toolcrib can also decide about its own tools: "
                    "[Put Claude Code's own tools under your rules](../how-to/claude-code-tools.md)."
                ),
            ),
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
            permissions=(
                "`mcpAllowlist` of `~/.cursor/permissions.json`; with `--project` also of the project's",
                "`Mcp(SERVER:TOOL)` in `~/.cursor/cli-config.json`; of the project's `.cursor/cli.json` the `deny`",
            ),
            notes=(
                (
                    "The allow list in Cursor's own settings is in no documented file: it asks about those tools "
                    "anew. `connect` makes no `permissions.json`, because one would replace that list."
                ),
                "`cli-config.json` is not changed: Cursor's command line asks about moved tools anew, its denies hold.",
            ),
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
            passes_environment=True,
            project=(".gemini/settings.json",),
            permissions=("the lists `allowed` and `excluded` of `mcp`",),
            notes=("With a list `allowed` in `mcp`, `connect` adds Toolcrib to it.",),
        ),
        Client(
            name="vscode",
            title="VS Code",
            user=lambda places: (places.application("Code") / "User" / "mcp.json",),
            passes_environment=True,
            project=(".vscode/mcp.json",),
            path=("servers",),
            entry=_typed,
            permissions=("`chat.tools.global.autoApprove` of the user's `settings.json`",),
            notes=(
                "`${input:ID}` has no value outside VS Code: such a server stays until `toolcrib secret set ID`.",
                "Answers of its dialogs are in its own storage, which is not a documented file: it asks anew.",
            ),
        ),
        Client(
            name="codex",
            title="Codex",
            user=_codex,
            project=(".codex/config.toml",),
            format="toml",
            path=("mcp_servers",),
            entry=_codex_entry,
            notes=(
                "`CODEX_HOME` moves its file.",
                (
                    "It asks about tools that may change something before Toolcrib sees them, and `codex exec` refuses "
                    'them: `default_tools_approval_mode = "approve"` in the entry leaves the question to Toolcrib.'
                ),
                (
                    "It passes few variables to a server. The entry lists the directories of XDG in `env_vars`; add "
                    "the variables that your own configuration names."
                ),
                "It waits only a moment for a server to start: a model that searches at once may have to search twice.",
            ),
        ),
        Client(
            name="opencode",
            title="OpenCode",
            user=_opencode_files,
            passes_environment=True,
            project=("opencode.json", "opencode.jsonc"),
            path=("mcp",),
            names="{server}_{tool}",
            entry=_opencode,
            permissions=("`permission` and `tools` of its file",),
            notes=(
                "Its own permissions come before those of Toolcrib.",
                _ASKS_NOTHING,
            ),
        ),
        Client(
            name="goose",
            title="Goose",
            user=lambda places: (places.config / "goose" / "config.yaml",),
            passes_environment=True,
            format="yaml",
            path=("extensions",),
            names="{server}__{tool}",
            entry=_goose,
            permissions=("`GOOSE_MODE`",),
            notes=(_ASKS_NOTHING,),
        ),
        Client(
            name="mcporter",
            title="mcporter",
            user=_mcporter,
            passes_environment=True,
            project=("config/mcporter.json",),
            notes=(_ASKS_NOTHING,),
        ),
        Client(
            name="zed",
            title="Zed",
            user=_zed,
            passes_environment=True,
            project=(".zed/settings.json",),
            path=("context_servers",),
            permissions=("`agent.tool_permissions` (`default`, and `tools` by the names `mcp:SERVER:TOOL`)",),
            notes=(
                "A server of a Zed extension stays: only Zed starts it.",
                "An agent profile that lists its servers (`agent.profiles`) shows Toolcrib once it is on its list.",
            ),
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
        Client(
            name="cline",
            title="Cline",
            user=_cline,
            notes=("`CLINE_MCP_SETTINGS_PATH` moves its file. Its extension of VS Code has a file of its own.",),
        ),
        Client(
            name="cline-vscode",
            title="Cline in VS Code",
            user=_cline_vscode,
            notes=("In other editors its button *Configure MCP Servers* opens the file; the entry is the same.",),
        ),
        Client(
            name="continue",
            title="Continue",
            user=lambda places: (places.home / ".continue" / "mcpServers" / "mcp.json",),
            project=(".continue/mcpServers/mcp.json",),
            notes=(
                (
                    "It reads every file of that folder. Servers of other files, and those of the list in "
                    "`config.yaml`, stay where they are; `toolcrib add` takes them over one by one."
                ),
                "It shows MCP tools in agent mode only.",
            ),
        ),
    )
}
"""Every client, by the name that `toolcrib connect` takes."""


def inputs_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs for which a file of VS Code asks a person: the description of each, by its id."""
    items = as_list(data.get("inputs"))
    asked = [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]
    return {str(item["id"]): str(item.get("description") or "") for item in asked if "id" in item}


def words_of(entry: Mapping[str, Any]) -> list[str]:
    """Return the words that an entry starts, the program first: some clients have it in one list with the arguments."""
    parts: list[Any] = [entry.get(key) for key in ("command", "cmd", "args")]
    lists = [cast("list[Any]", part) if isinstance(part, list) else [part] for part in parts if part]
    return [str(word) for part in lists for word in part]


def is_ours(value: Mapping[str, Any]) -> bool:
    """Whether an entry starts Toolcrib itself."""
    names = [Path(word).stem for word in words_of(value)]
    return "toolcrib" in names and "serve" in names


def missing_program(words: Iterable[str]) -> Path | None:
    """Return the missing program of a command line: the program, if named by an absolute path, or its Python."""
    program = Path(next(iter(words), ""))
    if not program.is_absolute():
        return None
    try:
        with program.open("rb") as file:
            found = _INTERPRETER.match(file.read(1024).decode(errors="replace"))
    except OSError:
        found = None
    needed = [program, *(Path(path) for path in (found.groups() if found else ()) if path)]
    return next((path for path in needed if not path.exists()), None)
