"""Claude Code plans a product launch with the three verbs of the gateway, over MCP over stdio."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clients.reactive import Wish, reactive_model
from clients.running import output
from clients.world import TOOLCRIB, reap
from rig import ensure_npm, node, node_env
from seeds.launch import STEPS, check, config

pytestmark = [pytest.mark.anyio, pytest.mark.process]

_PRIVATE = ("ANTHROPIC_", "CLAUDE", "TMPDIR", "TOOLCRIB_", "XDG_")


async def test_claude_code_plans_a_product_launch(tmp_path: Path) -> None:
    project, place = tmp_path / "project", tmp_path / "store.db"
    project.mkdir()
    (tmp_path / "toolcrib.yaml").write_text(json.dumps(config(place)))
    words = ["serve", "--config", str(tmp_path / "toolcrib.yaml"), "--profile", "gateway", "--no-daemon"]
    seen = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": ["mock"], "rejected": []}}
    trusted = {"projects": {str(project): {"hasTrustDialogAccepted": True}}}
    servers = {"mcpServers": {"toolcrib": {"command": TOOLCRIB, "args": words}}}
    (tmp_path / ".claude.json").write_text(json.dumps({**servers, **seen, **trusted}))
    main = ensure_npm() / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
    command = [node(), main, "--allowedTools=mcp__toolcrib", "-p", "Plan the launch of our kettle"]
    kept = {name: value for name, value in node_env().items() if not name.startswith(_PRIVATE)}
    quiet = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "ENABLE_TOOL_SEARCH": "false",
    }
    with reactive_model() as model:
        model.begin([Wish(server="toolcrib", tool=verb, arguments={}, after=given) for verb, given in STEPS])
        env = {**kept, **quiet, "HOME": str(tmp_path), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "mock"}
        try:
            output(command, env, project)
        finally:
            reap(tmp_path)

        await check(place, model.results)
