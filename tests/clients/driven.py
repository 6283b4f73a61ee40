"""Clients with a model: they are told what to do in words, the model makes the calls, and we read what it was told."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import yaml

from clients.models import Conversation
from clients.running import Command, output
from clients.script import ATTENDED, UNATTENDED, Said, approval, tour
from clients.world import World
from rig import ensure_npm, node
from rig.agents import agent_binary, agent_version, clai
from rig.screen import Screen, on_screen

_KEY: Final = "mock"


class Driven(ABC):
    """One such client. Nothing is kept here: every run is a process of its own, in the home of its world."""

    name: str
    title: str
    prefix: str
    """What it puts before the name of a verb."""
    asks = True
    """Whether it has a prompt at which its user could answer the gateway."""

    @abstractmethod
    def version(self) -> str:
        """Return the version that it says it has."""

    @abstractmethod
    def configure(self, world: World) -> None:
        """Write its configuration, or add to what `toolcrib connect` wrote."""

    @abstractmethod
    def command(self, world: World, prompt: str) -> Command:
        """Return what runs one conversation to its end with nobody there."""

    def interactive(self, world: World, prompt: str) -> Command:
        """Return what runs one conversation with somebody at the keyboard."""
        return self.command(world, prompt)

    def answer(self, screen: Screen) -> None:
        """Say yes at its own prompt, and wait for the end of the conversation."""
        raise LookupError(f"{self.title} has no prompt of its own")

    def env(self, world: World) -> Mapping[str, str]:
        """Return what is set for it beside what everybody has."""
        return {}

    def says(self, transport: str, conversation: str) -> str:
        """Return what the user says to begin a conversation."""
        return f"{conversation} of {self.name} over {transport}"

    def conversations(self, transport: str, artifact: str) -> Iterable[Conversation]:
        """Return the script for its model."""
        for kind in (ATTENDED, UNATTENDED):
            yield self.says(transport, kind), self.prefix, approval(f"{kind} {self.name}")
        yield self.says(transport, "tour"), self.prefix, tour(artifact)

    def tour(self, world: World) -> Said:
        """Run the tour with nobody at the keyboard."""
        return self._alone(world, "tour")

    def unattended(self, world: World) -> Said:
        """Have the call made that asks, with nobody at the keyboard."""
        return self._alone(world, UNATTENDED)

    def attended(self, world: World) -> Said:
        """Have the call made that asks, and say yes at the client's own prompt."""
        prompt = self.says(world.transport, ATTENDED)
        env = {**world.env, **self.env(world)}
        with on_screen(self.interactive(world, prompt), env=env, cwd=world.project) as screen:
            self.answer(screen)
            return replace(self.heard(world, prompt), output=screen.text)

    def _alone(self, world: World, conversation: str) -> Said:
        prompt = self.says(world.transport, conversation)
        said = output(self.command(world, prompt), {**world.env, **self.env(world)}, world.project)
        return replace(self.heard(world, prompt), output=said)

    def heard(self, world: World, prompt: str) -> Said:
        """Return what the model was told."""
        return world.chat.heard(prompt)


class ClaudeCode(Driven):
    """Claude Code, allowed to use all of the gateway: what may run is decided there."""

    name, title, prefix = "claude", "Claude Code", "mcp__toolcrib__"

    def version(self) -> str:
        return str(_manifest("@anthropic-ai/claude-code")["version"])

    def configure(self, world: World) -> None:
        file = world.home / ".claude.json"
        if world.url:
            file.write_text(json.dumps(world.servers()))
        seen = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [_KEY], "rejected": []}}
        trusted = {"projects": {str(world.project): {"hasTrustDialogAccepted": True}}}
        file.write_text(json.dumps({**json.loads(file.read_text()), **seen, **trusted}))

    def env(self, world: World) -> Mapping[str, str]:
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}
        return {"ANTHROPIC_BASE_URL": world.chat.url, "ANTHROPIC_API_KEY": _KEY, **quiet}

    def command(self, world: World, prompt: str) -> Command:
        return [*self.interactive(world, prompt), "-p"]

    def interactive(self, world: World, prompt: str) -> Command:
        main = ensure_npm() / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
        return [node(), main, "--allowedTools=mcp__toolcrib", prompt]

    def answer(self, screen: Screen) -> None:
        screen.until("Esc to cancel")
        screen.type("\x1b[C", "Space to select")
        screen.type(" ", "✔ Decision")
        for field in ("Comment", "Arguments", "Accept"):  # down, past what stays empty
            screen.type("\x1b[B", f"❯ {field}")
        screen.type("\r", "finished")


class Codex(Driven):
    """Codex, which asks nobody itself about tools of the gateway: what may run is decided there."""

    name, title, prefix = "codex", "Codex", "mcp__toolcrib"

    def version(self) -> str:
        return agent_version(agent_binary("@openai/codex"))

    def configure(self, world: World) -> None:
        file = world.home / ".codex" / "config.toml"
        file.parent.mkdir(exist_ok=True)
        server = file.read_text() if not world.url else f'[mcp_servers.toolcrib]\nurl = "{world.url}"\n'
        general = 'model = "gpt-5.5"\nmodel_provider = "mock"\ncheck_for_update_on_startup = false\n'
        model = f'name = "mock"\nbase_url = "{world.responses.url}"\nwire_api = "responses"\n'
        parts = [
            general,
            f'{server}\ndefault_tools_approval_mode = "approve"\n',
            f"[model_providers.mock]\n{model}",
            f'[projects."{world.project}"]\ntrust_level = "trusted"\n',
            '[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n',  # no, thank you
        ]
        file.write_text("\n".join(parts))

    def command(self, world: World, prompt: str) -> Command:
        return [agent_binary("@openai/codex"), "exec", "--skip-git-repo-check", "--json", prompt]

    def interactive(self, world: World, prompt: str) -> Command:
        return [agent_binary("@openai/codex"), prompt]

    def answer(self, screen: Screen) -> None:
        screen.until("Field 1/3")
        for number in (2, 3):  # past what stays empty: it shows them in the order of the alphabet
            screen.type("\x0e", f"Field {number}/3")
        screen.type("\r", "finished")

    def heard(self, world: World, prompt: str) -> Said:
        return world.responses.heard(prompt)


class OpenCode(Driven):
    """OpenCode."""

    name, title, prefix, asks = "opencode", "OpenCode", "toolcrib_", False

    def version(self) -> str:
        return agent_version(agent_binary("opencode-ai"))

    def configure(self, world: World) -> None:
        file = world.home / ".config" / "opencode" / "opencode.json"
        file.parent.mkdir(exist_ok=True)
        remote = {"mcp": {"toolcrib": {"type": "remote", "url": world.url, "enabled": True}}}
        written: dict[str, Any] = remote if world.url else json.loads(file.read_text())
        options = {"baseURL": f"{world.chat.url}/v1", "apiKey": _KEY}
        provider: dict[str, Any] = {
            "mock": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"mock": {}}}
        }
        file.write_text(json.dumps({**written, "provider": provider, "autoupdate": False}))

    def command(self, world: World, prompt: str) -> Command:
        return [agent_binary("opencode-ai"), "run", "--pure", "--format", "json", "-m", "mock/mock", prompt]


class Goose(Driven):
    """Goose."""

    name, title, prefix = "goose", "Goose", "toolcrib__"

    def version(self) -> str:
        return agent_version(agent_binary("@aaif/goose"))

    def configure(self, world: World) -> None:
        if not world.url:
            return
        file = world.home / ".config" / "goose" / "config.yaml"
        file.parent.mkdir(exist_ok=True)
        entry = {"enabled": True, "type": "streamable_http", "name": "toolcrib", "uri": world.url, "timeout": 300}
        file.write_text(yaml.safe_dump({"extensions": {"toolcrib": {**entry, "description": "All your tools"}}}))

    def env(self, world: World) -> Mapping[str, str]:
        model = {"OPENAI_HOST": world.chat.url, "OPENAI_API_KEY": _KEY, "GOOSE_PROVIDER": "openai"}
        quiet = {"GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"}
        return {**model, **quiet, "GOOSE_MODEL": "gpt-4o", "GOOSE_MODE": "auto"}

    def command(self, world: World, prompt: str) -> Command:
        return [agent_binary("@aaif/goose"), "run", "--no-session", "-t", prompt]

    def interactive(self, world: World, prompt: str) -> Command:
        return [agent_binary("@aaif/goose"), "run", "--no-session", "-s", "-t", prompt]

    def answer(self, screen: Screen) -> None:
        screen.until("all arguments, as JSON)")
        screen.type("\r", "comment (")
        screen.type("\r", "decision")
        screen.type("yes\r", "finished")


class Clai(Driven):
    """The command line of Pydantic AI."""

    name, title, prefix, asks = "clai", "clai", "toolcrib_", False

    def version(self) -> str:
        return agent_version(clai()).removeprefix("v")

    def configure(self, world: World) -> None:
        (world.home / "clai.json").write_text(json.dumps(world.servers()))

    def env(self, world: World) -> Mapping[str, str]:
        return {"OPENAI_BASE_URL": f"{world.chat.url}/v1", "OPENAI_API_KEY": _KEY}

    def command(self, world: World, prompt: str) -> Command:
        return [clai(), "-m", "openai-chat:gpt-5", "--no-stream", "--mcp-config", world.home / "clai.json", prompt]


DRIVEN: Final = (ClaudeCode(), Codex(), OpenCode(), Goose(), Clai())


def _manifest(package: str) -> dict[str, Any]:
    file = ensure_npm() / "node_modules" / package / "package.json"
    return cast("dict[str, Any]", json.loads(file.read_text()))
