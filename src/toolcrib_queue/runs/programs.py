"""Programs of agents: the command line that starts each, what it needs in the sandbox, and how its output is read.

    tools:
      queue:
        agents:
          claude:
            environment: {ANTHROPIC_API_KEY: "${ANTHROPIC_API_KEY}"}

The sandbox bounds every program: it writes in the workspace of its task alone, has an empty home, and reaches the
service of its model only. Where tools of ours are served to it, its own file and shell tools are switched off.

A further program is one entry of `_CLIENTS`: its options from a `Setup`, and its output read into an `Outcome`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field

from toolcrib.plugin import Reach, ServedTools, ToolFailure, as_mapping

_SECONDS: Final = 3600.0
"""Time that a run may take."""
_TOKENS: Final = 1_000_000_000
"""Tokens that one report may name."""
_DOLLARS: Final = 1_000_000.0
_SERVER: Final = "toolcrib"
"""Name of the server of our tools."""
_OURS: Final = f"mcp__{_SERVER}"
"""Name of our server in `allowed_tools` of a profile, and prefix of the names of its tools."""

_CLAUDE_TOOLS: Final = ("Bash", "Edit", "Glob", "Grep", "MultiEdit", "NotebookEdit", "Read", "TodoWrite", "Write")
_CLAUDE_OTHERS: Final = ("TodoWrite",)
"""Tools among them that neither touch files nor run commands."""

_NO_PATCH: Final = {
    "matcher": "apply_patch",
    "hooks": [{"type": "command", "command": f"echo 'edit by the tools of {_SERVER}' >&2; exit 2"}],
}
"""Hook that refuses the one file tool that Codex has no switch for."""

_OPENCODE_CONFIG: Final = "OPENCODE_CONFIG_CONTENT"
_OPENCODE_TOOLS: Final = ("apply_patch", "bash", "edit", "glob", "grep", "list", "multiedit", "patch", "read", "write")

_SILENT: Final = "it ended without a last message"


class Outcome(Struct, frozen=True, kw_only=True):
    """End of a run, as the program reports it."""

    text: str
    """Its last message."""
    tokens: int = 0
    """Sent and received, of all its requests."""
    cost: float | None = None
    """US dollars, for a program that reports them."""
    error: str = ""
    """Reason why it did not come to an end; empty for a run that did."""

    @property
    def spent(self) -> dict[str, Any]:
        """Usage of the run, as the tools of a worker take it."""
        return {"tokens_used": self.tokens, **({} if self.cost is None else {"cost_usd": self.cost})}


class Setup(Struct, frozen=True, kw_only=True):
    """Settings of a run, from the task and its agent profile."""

    prompt: str
    model: str = ""
    instructions: str = ""
    allowed_tools: tuple[str, ...] = ()
    mcp_servers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    permission_mode: str = ""
    served: ServedTools | None = None
    """Tools of ours that take the place of its own file and shell tools; None for a program that keeps those."""


class _AgentType(Struct, frozen=True, kw_only=True):
    """Description of one agent type."""

    program: str
    hosts: tuple[str, ...]
    """Hosts of the service of its model."""
    arguments: Callable[[Setup], Iterator[str]]
    read: Callable[[str], Outcome]
    switched_off: str = ""
    """Options that switch off its own file and shell tools, for the record; empty for a type that keeps them."""
    configure: Callable[[Mapping[str, str], ServedTools], Mapping[str, str]] = lambda environment, served: environment
    """Returns the environment with our tools, for a type that is configured there."""
    is_configurable: Callable[[Mapping[str, str]], bool] = lambda environment: True
    """Whether our tools can be added to the environment that the operator gives it."""
    tools: tuple[str, ...] = ()
    """Tools of its own that `allowed_tools` of a profile can name, beside those of the profile's servers."""
    modes: tuple[str, ...] = ("autonomous",)
    """Values of `permission_mode` that it can be bound to."""
    has_servers: bool = False
    """Whether `mcp_servers` of a profile can be given to it."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    readable: tuple[Path, ...] = ()
    """Paths that it reads beside its own package."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgram:
    """An agent type with its program on this machine and its configuration."""

    agent_type: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(repr=False)
    readable: tuple[Path, ...]
    network: Reach
    seconds: float
    keeps_own: bool
    """Whether the operator lets it keep its own tools (`own_tools: true`)."""
    client: _AgentType = dataclasses.field(repr=False)

    def takes_ours(self, setup: Setup) -> bool:
        """Whether tools of ours can take the place of its own file and shell tools, which its profile does not name."""
        client, named = self.client, setup.allowed_tools
        if not client.switched_off or self.keeps_own or _SERVER in setup.mcp_servers:
            return False
        if not client.is_configurable(self.environment):
            return False
        has_ours = any(one.startswith(_OURS) for one in named)
        return not named or (has_ours and not set(client.tools).intersection(named))

    def way(self, setup: Setup) -> str:
        """Return which tools a run has."""
        if setup.served is None:
            return "own tools, bounded by the sandbox"
        return f"{self.client.switched_off}: {len(setup.served.names)} tools of Toolcrib over MCP"

    def check(self, setup: Setup) -> None:
        """Raise `ToolFailure("unavailable")` for a profile with a field that this agent type cannot be bound to."""
        client = self.client
        unknown = [one for one in setup.allowed_tools if one not in client.tools and not one.startswith("mcp__")]
        unbound = {
            "allowed_tools": bool(unknown) or bool(setup.allowed_tools and not client.tools),
            "mcp_servers": bool(setup.mcp_servers) and not client.has_servers,
            "permission_mode": bool(setup.permission_mode) and setup.permission_mode not in client.modes,
        }
        if any(unbound.values()):
            names = ", ".join(name for name, is_unbound in unbound.items() if is_unbound)
            raise ToolFailure(
                "unavailable",
                f"an agent of type {self.agent_type} cannot be bound to {names} of its profile",
                hint=f"its tools: {', '.join(client.tools) or 'none'}; its modes: {', '.join(client.modes)}",
            )

    def command_line(self, setup: Setup) -> tuple[str, ...]:
        """Return program and arguments of a run whose setup was checked."""
        return (*self.argv, *self.client.arguments(setup))

    def environment_of(self, setup: Setup) -> Mapping[str, str]:
        """Return the environment of a run."""
        return self.environment if setup.served is None else self.client.configure(self.environment, setup.served)

    def outcome(self, output: str) -> Outcome:
        """Return the outcome of a run, from its output."""
        return self.client.read(output)


def program_of(agent_type: str, settings: Any) -> AgentProgram:
    """Return the program of an agent type; `settings` is the configuration under `tools: {queue: …}`.

    Raises `ToolFailure("unavailable")` where it is not installed, with the types whose program is there.
    """
    configured = as_mapping(as_mapping(as_mapping(settings).get("agents")).get(agent_type))
    client = _CLIENTS.get(agent_type)
    if client is None:
        raise ToolFailure("unavailable", f"agents of type {agent_type} take tasks by claim_task", hint=_installed())
    own: Any = configured.get("program") or client.program
    words: list[str] = [own] if isinstance(own, str) else [str(word) for word in cast("Sequence[Any]", own)]
    found = shutil.which(words[0])
    if found is None:
        message = f"the program of agents of type {agent_type}, {words[0]}, is not installed"
        raise ToolFailure("unavailable", message, hint=_installed())
    environment = {name: str(value) for name, value in as_mapping(configured.get("environment")).items()}
    named = [Path(word) for word in (found, *words[1:]) if os.path.isabs(word)]
    return AgentProgram(
        agent_type=agent_type,
        argv=(found, *words[1:]),
        environment={**client.variables, **environment},
        readable=(
            *client.readable,
            *chain.from_iterable(map(_folders, named)),
            *map(Path, configured.get("readable") or ()),
        ),
        network=Reach(
            hosts=tuple(configured.get("hosts") or client.hosts), private=tuple(configured.get("private") or ())
        ),
        seconds=float(configured.get("seconds") or _SECONDS),
        keeps_own=configured.get("own_tools") is True,
        client=client,
    )


def _installed() -> str:
    there = [name for name, client in _CLIENTS.items() if shutil.which(client.program)]
    return f"installed are: {', '.join(there)}" if there else "the programs of no agent type are installed"


def _folders(program: Path) -> Iterator[Path]:
    """Return the paths that a program needs to start: its npm packages, or its virtual environment, else its file."""
    for place in dict.fromkeys((program, program.resolve())):
        above = [folder for folder in place.parents if folder.name == "node_modules"]
        environment = place.parent.parent
        yield above[-1] if above else environment if (environment / "pyvenv.cfg").exists() else place


# Values are in one word with their options: some programs take `--model --share` for two options.


def _claude(setup: Setup) -> Iterator[str]:
    yield from ("-p", "--output-format", "json", "--strict-mcp-config")
    yield from ("--mcp-config", json.dumps({"mcpServers": {**setup.mcp_servers, **_claude_server(setup)}}))
    if setup.model:
        yield f"--model={setup.model}"
    if setup.instructions:
        yield f"--append-system-prompt={setup.instructions}"
    if setup.permission_mode == "plan":
        yield from ("--permission-mode", "plan")
    default = _CLAUDE_TOOLS if setup.served is None else (*_CLAUDE_OTHERS, _OURS)
    yield f"--allowedTools={','.join(setup.allowed_tools or default)}"
    if setup.allowed_tools or setup.served is not None:
        yield f"--tools={','.join(name for name in setup.allowed_tools or default if name in _CLAUDE_TOOLS)}"
    yield from ("--", setup.prompt)


def _claude_server(setup: Setup) -> Mapping[str, Any]:
    if setup.served is None:
        return {}
    command, *arguments = setup.served.command
    return {_SERVER: {"type": "stdio", "command": command, "args": arguments}}


def _read_claude(output: str) -> Outcome:
    last = _last(output)
    usage = as_mapping(last.get("usage"))
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    text = str(last.get("result") or "")
    tokens = _sum_of(usage, names)
    failed = not last or last.get("is_error") or last.get("subtype") != "success"
    error = (text or str(last.get("subtype") or _SILENT)) if failed else ""
    return Outcome(text=text, tokens=tokens, cost=_dollars(last.get("total_cost_usd")), error=error)


def _codex(setup: Setup) -> Iterator[str]:
    # Its own sandbox cannot be opened inside ours, which bounds it already.
    yield from ("exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access")
    if setup.served is not None:
        command, *arguments = setup.served.command
        server = {"command": command, "args": arguments, "default_tools_approval_mode": "approve"}
        yield from ("--dangerously-bypass-hook-trust", "-c", "features.shell_tool=false")
        yield from ("-c", f"hooks.PreToolUse=[{_toml(_NO_PATCH)}]", "-c", f"mcp_servers.{_SERVER}={_toml(server)}")
        yield from ("-c", f"mcp_servers.{_SERVER}.tool_timeout_sec={_SECONDS:g}")
    if setup.model:
        yield f"--model={setup.model}"
    yield from ("--", _with_instructions(setup))


def _toml(value: Any) -> str:
    """Return a value as inline TOML. A string of JSON is one of TOML, too."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value).items()
        return f"{{{', '.join(f'{name} = {_toml(one)}' for name, one in fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, cast('Sequence[Any]', value)))}]"
    return json.dumps(value, ensure_ascii=False)


def _read_codex(output: str) -> Outcome:
    text, tokens, error, is_over = "", 0, "", False
    for event in _objects(output.splitlines()):
        item, usage = as_mapping(event.get("item")), as_mapping(event.get("usage"))
        if event.get("type") == "item.completed" and item.get("type") == "agent_message":
            text = str(item.get("text") or "")
        elif event.get("type") == "turn.completed":
            is_over = True
            tokens += _sum_of(usage, ("input_tokens", "output_tokens"))
        elif event.get("type") in ("turn.failed", "error"):
            error = str(as_mapping(event.get("error")).get("message") or event.get("message") or _SILENT)
    return Outcome(text=text, tokens=tokens, error="" if is_over else error or _SILENT)


def _opencode(setup: Setup) -> Iterator[str]:
    yield from ("run", "--pure", "--format", "json")
    if setup.model:
        yield f"--model={setup.model}"
    yield from ("--", _with_instructions(setup))


def _configure_opencode(environment: Mapping[str, str], served: ServedTools) -> Mapping[str, str]:
    """Add our server to the configuration that the operator gives it, and switch its own tools off."""
    config = _opencode_config(environment) or {}
    server = {"type": "local", "command": list(served.command), "enabled": True, "timeout": int(_SECONDS * 1000)}
    changed = {
        **config,
        "mcp": {**as_mapping(config.get("mcp")), _SERVER: server},
        "tools": {**as_mapping(config.get("tools")), **dict.fromkeys(_OPENCODE_TOOLS, False)},
    }
    return {**environment, _OPENCODE_CONFIG: json.dumps(changed)}


def _opencode_config(environment: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return its configuration; None for one with comments, which is not JSON."""
    return _json_object(environment.get(_OPENCODE_CONFIG) or "{}")


def _read_opencode(output: str) -> Outcome:
    text, tokens, cost, error, is_over = "", 0, 0.0, "", False
    for event in _objects(output.splitlines()):
        part = as_mapping(event.get("part"))
        if event.get("type") == "text":
            text = str(part.get("text") or "")
        elif event.get("type") == "step_finish":
            is_over, used = True, as_mapping(part.get("tokens"))
            tokens += _sum_of(used, ("input", "output", "reasoning"))
            cost += _dollars(part.get("cost")) or 0.0
        elif event.get("type") == "error":
            error = json.dumps(event.get("error"), ensure_ascii=False)[:2000]
    return Outcome(text=text, tokens=tokens, cost=cost or None, error=error or ("" if is_over else _SILENT))


def _ours(setup: Setup) -> Iterator[str]:
    yield from ("chat", "--json", "--mode", setup.permission_mode or "autonomous")
    if setup.model:
        yield f"--model={setup.model}"
    yield f"--prompt={_with_instructions(setup)}"


def _read_ours(output: str) -> Outcome:
    last = _last(output)
    usage = as_mapping(last.get("usage"))
    tokens = _sum_of(usage, ("input_tokens", "output_tokens"))
    text, reason = str(last.get("text") or ""), str(last.get("reason") or "")
    return Outcome(
        text=text, tokens=tokens, error="" if last and last.get("stopped") == "answered" else reason or _SILENT
    )


def _sum_of(usage: Mapping[str, Any], names: Sequence[str]) -> int:
    """Return the sum of token counts. The program's word alone: an implausible count is 0."""
    counts = (usage.get(name) for name in names)
    return sum(one for one in counts if isinstance(one, int) and 0 <= one <= _TOKENS)


def _dollars(given: Any) -> float | None:
    """Return a cost; None for an implausible one."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return float(given) if is_number and 0 <= given <= _DOLLARS else None


def _with_instructions(setup: Setup) -> str:
    return f"{setup.prompt}\n\n{setup.instructions}" if setup.instructions else setup.prompt


def _last(output: str) -> Mapping[str, Any]:
    """Return the last line that is a JSON object; empty without one."""
    found = list(_objects(output.splitlines()))
    return found[-1] if found else {}


def _objects(lines: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Return the lines that are JSON objects; a program prints other lines, too."""
    for line in lines:
        if (found := _json_object(line)) is not None:
            yield found


def _json_object(text: str) -> Mapping[str, Any] | None:
    """Return a JSON object; None for any other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else None


_CLIENTS: Final[Mapping[str, _AgentType]] = {
    "claude": _AgentType(
        program="claude",
        hosts=("api.anthropic.com",),
        arguments=_claude,
        read=_read_claude,
        tools=_CLAUDE_TOOLS,
        modes=("autonomous", "plan"),
        has_servers=True,
        switched_off="own tools off",
        variables={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"},
    ),
    "codex": _AgentType(
        program="codex",
        hosts=("api.openai.com",),
        arguments=_codex,
        read=_read_codex,
        switched_off="own tools off, apply_patch by a hook",
    ),
    "opencode": _AgentType(
        program="opencode",
        hosts=("models.dev", "opencode.ai"),
        arguments=_opencode,
        read=_read_opencode,
        switched_off="own tools off",
        configure=_configure_opencode,
        is_configurable=lambda environment: _opencode_config(environment) is not None,
    ),
    "ours": _AgentType(
        program=str(Path(sys.executable).with_name("toolcrib")),
        hosts=("api.anthropic.com", "api.openai.com"),
        arguments=_ours,
        read=_read_ours,
        modes=("autonomous", "cautious", "plan"),
        readable=(Path(__file__).resolve().parents[2],),  # ours need not be in the environment that its program is in
    ),
}
