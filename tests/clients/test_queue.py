"""Real agents do tasks of the queue: their programs run in the sandbox, with models that we play."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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

Configured = tuple[Mapping[str, Any], Wish]
"""How a program of an agent is started, and the call of its own tools that does the work."""

WORK = "printf 'answer = 42\\n' > answer.py"
WRITTEN = {"path": "answer.py", "content": "answer = 42\n", "if_exists": "overwrite"}
QUEUE = ("agent", "queue", "tasks")
FOLDER = ("code", "files", "git", "search", "shell")


def claude(url: str) -> Configured:
    main = ensure_npm() / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
    environment = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "mock", "CLAUDE_CODE_MAX_RETRIES": "0"}
    wish = Wish(server="", tool="Bash", arguments={"command": WORK, "description": "Change the answer"})
    return {"program": [str(node()), str(main)], "environment": environment}, wish


def codex(url: str) -> Configured:
    provider = f'{{name="mock", base_url="{url}/v1", wire_api="responses"}}'
    words = ['model="gpt-4.1"', 'model_provider="mock"', f"model_providers.mock={provider}"]
    options = [part for word in words for part in ("-c", word)]
    wish = Wish(server="", tool="exec_command", arguments={"cmd": WORK})
    return {"program": [str(agent_binary("@openai/codex")), *options]}, wish


with_any_model = codex


def opencode(url: str) -> Configured:
    options = {"baseURL": f"{url}/v1", "apiKey": "mock"}
    mock: dict[str, Any] = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"mock": {}}}
    config: dict[str, Any] = {"provider": {"mock": mock}, "model": "mock/mock", "autoupdate": False}
    wish = Wish(server="", tool="bash", arguments={"command": WORK, "description": "Change the answer"})
    environment = {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    return {"program": str(agent_binary("opencode-ai")), "environment": environment}, wish


def ours(url: str) -> Configured:
    environment = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "mock"}
    return {"environment": environment}, Wish(server="", tool="write_file", arguments=WRITTEN)


async def do_task(
    client: Callable[[str], Configured], folder: Path, builtins: Sequence[str], wishes: Sequence[Wish] = ()
) -> tuple[Mapping[str, Any], frozenset[str], list[tuple[str, str, str]]]:
    """Let an agent do a task; return what came of it, what its model was shown, and the calls in the record.

    Without `wishes` its model calls the client's own tool.
    """
    shop = folder / "shop"
    shop.mkdir()
    (shop / "answer.py").write_text("answer = 41\n")
    git(shop, "init", "--quiet", "--initial-branch=main")
    git(shop, "add", ".")
    git(shop, "commit", "--quiet", "-m", "Begin")
    with reactive_model() as model:
        configured, wish = client(model.url)
        model.begin(wishes or [wish])
        agents = {client.__name__: {**configured, "private": [urlsplit(model.url).netloc]}}
        settings = bare().with_values(builtins=(*QUEUE, *builtins), tools={"queue": {"agents": agents}})
        async with Toolcrib(settings, memory=True) as crib:
            ada = crib.session(workspace=shop, mode="autonomous", approver=RecordingApprover("yes"))
            made = await ada.call("create_agent", {"name": "Ann", "agent_type": client.__name__})
            acceptance = [{"type": "changed", "path": "answer.py"}, {"type": "commit"}]
            profile = {"id": "p", "name": "P", **({"model": "openai-chat:mock"} if client is ours else {})}
            await ada.call("create_profile", profile)
            await ada.call("create_task", {"title": "Answer 42", "acceptance": acceptance, "profile_id": "p"})

            ran = await ada.call("work_task", {"agent_id": made.structured_content["created"]})

            rows = [row for row in await crib.store.calls.list(limit=100) if row.session != ada.state.key]
    assert not ran.is_error, ran.text
    done = ran.structured_content
    assert (done["status"], done["summary"]) == ("COMPLETED", "finished"), (done, model.results)
    assert git(shop, "show", "main:answer.py") == "answer = 42\n"
    return done, model.shown[0], [(row.tool, row.outcome, row.principal) for row in reversed(rows)]


@pytest.mark.parametrize("client", [claude, codex, opencode, ours], ids=lambda client: client.__name__)
async def test_an_agent_does_a_task_with_its_own_tools_in_the_sandbox(
    client: Callable[[str], Configured], tmp_path: Path
) -> None:
    done, _, recorded = await do_task(client, tmp_path, ())

    assert (done["tools"], recorded) == ("own tools, bounded by the sandbox", [])


@pytest.mark.parametrize(
    ("client", "own"),
    [
        (claude, {"Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "Write"}),
        (codex, {"exec_command", "shell", "write_stdin"}),
        (opencode, {"bash", "edit", "glob", "grep", "list", "patch", "read", "write"}),
    ],
    ids=["claude", "codex", "opencode"],
)
async def test_an_agent_whose_own_tools_are_off_does_a_task_with_ours_and_each_call_is_recorded(
    client: Callable[[str], Configured], own: set[str], tmp_path: Path
) -> None:
    wishes = [
        Wish(server="toolcrib", tool="write_file", arguments={**WRITTEN, "content": "answer = 40\n"}),
        Wish(server="toolcrib", tool="run_command", arguments={"command": WORK}),
    ]

    done, shown, recorded = await do_task(client, tmp_path, FOLDER, wishes)

    assert "tools of Toolcrib over MCP" in done["tools"]
    assert recorded == [("write_file", "ok", "local"), ("run_command", "ok", "local")]
    assert own.isdisjoint(names_in(shown))


PATCH = "*** Begin Patch\n*** Update File: answer.py\n@@\n-answer = 41\n+answer = 43\n*** End Patch\n"


async def test_a_patch_of_codex_is_refused_by_its_hook_since_it_has_no_switch_for_it(tmp_path: Path) -> None:
    def codex(url: str) -> Configured:
        configured, wish = with_any_model(url)
        return {"program": [word.replace("gpt-4.1", "gpt-5.5") for word in configured["program"]]}, wish

    wishes = [
        Wish(server="", tool="apply_patch", arguments={"input": PATCH}),
        Wish(server="toolcrib", tool="edit_file", arguments={"path": "answer.py", "search": "41", "replace": "42"}),
    ]

    done, shown, recorded = await do_task(codex, tmp_path, FOLDER, wishes)

    assert done["tools"].startswith("own tools off, apply_patch by a hook: ")
    assert "apply_patch" in names_in(shown)
    assert recorded == [("edit_file", "ok", "local")]


def names_in(shown: frozenset[str]) -> set[str]:
    """Return the names of the tools in a request."""
    tools = [json.loads(line) for line in shown if line.startswith("{")]
    return {str(tool.get("name") or tool.get("function", {}).get("name")) for tool in tools}
