"""Toolcrib as the approval gate of the real Claude Code: by its hook, and as its permission-prompt tool.

The model is aimock: what it is told to do stands in `CASES`, and what Claude Code told it stands in its journal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from rig import PATIENCE, ensure_npm, eventually, free_port, node, node_env, serving

CASES = {
    "allowed": "touch allowed.txt",
    "denied": "rm kept.txt",
    "asked": "mkdir asked",
    "edited": "mkdir wrong",
    "commented": "mkdir commented",
    "refused": "mkdir refused",
    "silent": "mkdir silent",
    "bypassed": "rm kept.txt",
}
"""What the model wants to run when it reads `case NAME`."""
CONFIG = {
    "rules": {"allow": ["Bash(touch:*)"], "deny": ["Bash(rm:*)"]},
    "approvals": {"timeout": PATIENCE * 2},
    "builtins": False,
}
WAYS = ("hook", "dialog", "prompt")
"""Before every use of a tool, in place of Claude Code's dialog, and as its permission-prompt tool."""
_REPEATED = [pytest.param(way, marks=pytest.mark.full_size) for way in WAYS[1:]]
by_the_hook = pytest.mark.parametrize("claude", ["hook", *_REPEATED], indirect=True)
"""The other ways differ in the form of their answer: a denial and a yes prove each; `--full-size` runs all of them."""
TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))


@dataclass(frozen=True, kw_only=True)
class ClaudeCode:
    """A user whose Claude Code asks Toolcrib."""

    home: Path
    model: str
    """The URL of the model."""
    way: str

    @property
    def project(self) -> Path:
        return self.home / "project"

    @property
    def env(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "CLAUDE"))}
        said = {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "ANTHROPIC_BASE_URL": self.model,
            "ANTHROPIC_API_KEY": "mock",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        return {**node_env(clean), **said}

    def toolcrib(self, *words: str) -> str:
        """Type a command in another terminal, and return what it prints."""
        command = [TOOLCRIB, *words]
        done = subprocess.run(
            command, env=self.env, cwd=self.project, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def asks(self, case: str, *options: str) -> Generator[subprocess.Popen[str]]:
        """Run Claude Code on a case, in the background."""
        main = ensure_npm() / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
        asking = ["--permission-prompt-tool", "mcp__toolcrib__approve"] if self.way == "prompt" else []
        command: Sequence[str | Path] = [node(), main, "-p", self._prompt(case), *asking, *options]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command,
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):  # the launcher is gone, and what it launched with it
                    os.killpg(process.pid, signal.SIGKILL)

    def runs(self, case: str, *options: str) -> None:
        """Run Claude Code on a case to its end."""
        with self.asks(case, *options) as process:
            _ended(process)

    async def answers(self, case: str, verdict: str, *options: str) -> dict[str, Any]:
        """Run Claude Code on a case and answer what it asks from outside; return what was asked."""

        def look() -> list[dict[str, Any]]:
            return [one for one in json.loads(self.toolcrib("approvals", "--json")) if one["state"] == "pending"]

        def talk() -> dict[str, Any]:
            with self.asks(case) as process:
                asked = anyio.from_thread.run(_first, look)
                self.toolcrib("approvals", verdict, asked["id"], *options)
                _ended(process)
            return asked

        return await anyio.to_thread.run_sync(talk)

    def told(self, case: str) -> str:
        """Return what Claude Code told the model of the tool's outcome."""
        with urllib.request.urlopen(f"{self.model}/__aimock/journal", timeout=PATIENCE) as answer:
            journal: list[dict[str, Any]] = json.load(answer)
        bodies: list[dict[str, Any]] = [entry["body"] for entry in journal if entry.get("body")]
        talks: list[list[dict[str, Any]]] = [body["messages"] for body in bodies if body.get("messages")]
        mine = [talk for talk in talks if any(self._prompt(case) in str(said["content"]) for said in talk)]
        return str([said["content"] for talk in mine for said in talk if said["role"] == "tool"][-1])

    def _prompt(self, case: str) -> str:
        return f"case {case} of {self.home.name}"


async def _first(look: Any) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    with anyio.fail_after(PATIENCE):
        while not found:
            found = await anyio.to_thread.run_sync(look)
    return found[0]


def _ended(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=PATIENCE * 2)
    assert process.returncode == 0, out + err
    assert "finished" in out, out + err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A model that wants to run a command, and is finished once it was told what came of it."""
    folder = tmp_path_factory.mktemp("model")
    fixtures: list[dict[str, Any]] = []
    for case, command in CASES.items():
        call = {"name": "Bash", "arguments": json.dumps({"command": command, "description": case})}
        start = {"userMessage": f"case {case}", "hasToolResult": False}
        fixtures.append({"match": start, "response": {"toolCalls": [call]}})
        fixtures.append({"match": {"userMessage": f"case {case}"}, "response": {"content": "finished"}})
    (folder / "cases.json").write_text(json.dumps({"fixtures": fixtures}))
    main, port = ensure_npm() / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js", free_port()
    command = [node(), main, "-p", str(port), "-f", folder]
    with serving(command, port=port, log=folder / "log"):
        yield f"http://127.0.0.1:{port}"


def _claude_code(home: Path, model: str, way: str, config: dict[str, Any], *options: str) -> ClaudeCode:
    claude = ClaudeCode(home=home, model=model, way=way)
    claude.project.mkdir()
    (claude.project / "kept.txt").touch()
    (home / "run").mkdir(mode=0o700)
    own = home / ".config" / "toolcrib"
    own.mkdir(parents=True)
    (own / "config.yaml").write_text(json.dumps(config))
    claude.toolcrib("connect", "claude", "--approvals", "--command", TOOLCRIB, *options)
    settings = home / ".claude" / "settings.json"
    if way == "prompt":
        settings.unlink()
    elif way == "dialog":
        hooks = json.loads(settings.read_text())["hooks"]
        settings.write_text(json.dumps({"hooks": {"PermissionRequest": hooks["PreToolUse"]}}))
    return claude


@pytest.fixture(scope="module", params=WAYS)
def claude(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: str) -> ClaudeCode:
    return _claude_code(tmp_path_factory.mktemp(request.param), model, request.param, CONFIG)


@pytest.fixture(params=["hook", *_REPEATED])
def hasty(request: pytest.FixtureRequest, tmp_path: Path, model: str) -> ClaudeCode:
    """Where nobody has time to answer."""
    return _claude_code(tmp_path, model, request.param, {**CONFIG, "approvals": {"timeout": 1}})


@pytest.mark.timeout(900)
@by_the_hook
def test_what_a_rule_allows_runs_and_nobody_is_asked(claude: ClaudeCode) -> None:
    claude.runs("allowed")

    assert (claude.project / "allowed.txt").exists()
    [row] = [row for row in json.loads(claude.toolcrib("log", "--json")) if "allowed.txt" in row["arguments"]]
    assert (row["tool"], row["origin"], row["decision"], row["outcome"]) == ("Bash", "claude", "allow", "ok")
    assert row["rule"].startswith("allow Bash(touch:*)")


@pytest.mark.timeout(900)
def test_what_a_rule_denies_does_not_run_and_the_model_reads_why(claude: ClaudeCode) -> None:
    claude.runs("denied")

    assert (claude.project / "kept.txt").exists()
    assert "Bash is denied by deny Bash(rm:*)" in claude.told("denied")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("claude", ["hook"], indirect=True)
def test_a_rule_that_denies_holds_where_claude_code_would_not_ask(claude: ClaudeCode) -> None:
    claude.runs("bypassed", "--allowedTools", "Bash")

    assert (claude.project / "kept.txt").exists()
    assert "Bash is denied by deny Bash(rm:*)" in claude.told("bypassed")


@pytest.mark.timeout(900)
async def test_what_is_asked_about_runs_once_somebody_says_yes_elsewhere(claude: ClaudeCode) -> None:
    asked = await claude.answers("asked", "yes")

    assert (asked["tool"], json.loads(asked["arguments"])["command"]) == ("Bash", "mkdir asked")
    await eventually((claude.project / "asked").is_dir)


@pytest.mark.timeout(900)
@by_the_hook
async def test_an_edited_command_runs_instead(claude: ClaudeCode) -> None:
    await claude.answers("edited", "edit", "--args", '{"command": "mkdir right"}')

    assert (claude.project / "right").is_dir()
    assert not (claude.project / "wrong").exists()


@pytest.mark.timeout(900)
@by_the_hook
async def test_a_comment_reaches_the_model_and_nothing_runs(claude: ClaudeCode) -> None:
    await claude.answers("commented", "comment", "-m", "use the scratch folder instead")

    assert not (claude.project / "commented").exists()
    assert "use the scratch folder instead" in claude.told("commented")


@pytest.mark.timeout(900)
def test_silence_is_a_no(hasty: ClaudeCode) -> None:
    hasty.runs("silent")

    assert not (hasty.project / "silent").exists()
    assert "within 1 s" in hasty.told("silent")


@pytest.mark.timeout(900)
def test_disconnect_puts_the_settings_back(tmp_path: Path, model: str) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    before = b'{\n  "hooks": {\n    "PreToolUse": [\n      {"matcher": "X", "hooks": []}\n    ]\n  }\n}\n'
    settings.write_bytes(before)

    claude = _claude_code(tmp_path, model, "hook", CONFIG)
    hooks = json.loads(settings.read_text())["hooks"]["PreToolUse"]
    claude.toolcrib("disconnect", "claude")

    assert [hook["matcher"] for hook in hooks] == ["*", "X"]
    assert settings.read_bytes() == before
