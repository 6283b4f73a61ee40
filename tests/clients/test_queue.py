"""Real agents do tasks of the queue: their programs run in the sandbox, with models that we play."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from clients.reactive import Wish, reactive_model
from rig import ensure_npm, node
from rig.agents import agent_binary
from rig.sandbox import needs_sandbox
from seeds.inventory import git
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.testing import RecordingApprover

pytestmark = [pytest.mark.anyio, pytest.mark.process, needs_sandbox]

WORK = "printf 'answer = 42\\n' > answer.py"


def claude(url: str) -> tuple[Mapping[str, Any], Wish]:
    main = ensure_npm() / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
    environment = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "mock", "CLAUDE_CODE_MAX_RETRIES": "0"}
    wish = Wish(server="", tool="Bash", arguments={"command": WORK, "description": "Change the answer"})
    return {"program": [str(node()), str(main)], "environment": environment}, wish


def codex(url: str) -> tuple[Mapping[str, Any], Wish]:
    provider = f'{{name="mock", base_url="{url}/v1", wire_api="responses"}}'
    words = ['model="gpt-4.1"', 'model_provider="mock"', f"model_providers.mock={provider}"]
    options = [part for word in words for part in ("-c", word)]
    wish = Wish(server="", tool="exec_command", arguments={"cmd": WORK})
    return {"program": [str(agent_binary("@openai/codex")), *options]}, wish


def opencode(url: str) -> tuple[Mapping[str, Any], Wish]:
    options = {"baseURL": f"{url}/v1", "apiKey": "mock"}
    mock: dict[str, Any] = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"mock": {}}}
    config: dict[str, Any] = {"provider": {"mock": mock}, "model": "mock/mock", "autoupdate": False}
    wish = Wish(server="", tool="bash", arguments={"command": WORK, "description": "Change the answer"})
    environment = {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    return {"program": str(agent_binary("opencode-ai")), "environment": environment}, wish


def ours(url: str) -> tuple[Mapping[str, Any], Wish]:
    environment = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "mock"}
    written = {"path": "answer.py", "content": "answer = 42\n", "if_exists": "overwrite"}
    wish = Wish(server="", tool="write_file", arguments=written)
    return {"environment": environment}, wish


@pytest.mark.parametrize("client", [claude, codex, opencode, ours], ids=lambda client: client.__name__)
async def test_an_agent_does_a_task_in_the_sandbox(
    client: Callable[[str], tuple[Mapping[str, Any], Wish]], tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "answer.py").write_text("answer = 41\n")
    git(shop, "init", "--quiet", "--initial-branch=main")
    git(shop, "add", ".")
    git(shop, "commit", "--quiet", "-m", "Begin")
    with reactive_model() as model:
        configured, wish = client(model.url)
        model.begin([wish])
        agents = {client.__name__: {**configured, "private": [urlsplit(model.url).netloc]}}
        settings = bare().with_values(builtins=("agent", "queue", "tasks"), tools={"queue": {"agents": agents}})
        async with Toolcrib(settings, memory=True) as crib:
            ada = crib.session(workspace=shop, mode="autonomous", approver=RecordingApprover("yes"))
            made = await ada.call("create_agent", {"name": "Ann", "agent_type": client.__name__})
            acceptance = [{"type": "changed", "path": "answer.py"}, {"type": "commit"}]
            profile = {"id": "p", "name": "P", **({"model": "openai-chat:mock"} if client is ours else {})}
            await ada.call("create_profile", profile)
            await ada.call("create_task", {"title": "Answer 42", "acceptance": acceptance, "profile_id": "p"})

            ran = await ada.call("work_task", {"agent_id": made.structured_content["created"]})

    assert not ran.is_error, ran.text
    done = ran.structured_content
    assert (done["status"], done["summary"]) == ("COMPLETED", "finished"), (done, model.results)
    assert git(shop, "show", "main:answer.py") == "answer = 42\n"
