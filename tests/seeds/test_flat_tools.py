"""Seed 002's 27 built-in tools at work, over files, a shell and git that are really there; and long results."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from seeds.flat_world.settings import DENIED
from seeds.rigging import seeded
from toolcrib.crib import Session, Toolcrib
from toolcrib.testing import RecordingApprover


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with seeded("flat") as opened:
        yield opened


def flat(crib: Toolcrib, folder: Path) -> Session:
    return crib.session(profile="flat", cwd=folder)


# Truncation


async def test_a_long_result_shows_its_head_and_its_tail_and_counts_what_was_elided(
    crib: Toolcrib, tmp_path: Path
) -> None:
    text = "".join(f"line {number:06d}\n" for number in range(8000))
    (tmp_path / "big.txt").write_text(text)
    shown = (await flat(crib, tmp_path).call("read_file", {"path": "big.txt"})).text
    head, _, tail = shown.partition("bytes elided")
    assert text.startswith(head[:9000]) and text.rstrip().endswith(tail[-5900:].rstrip())
    assert len(shown.encode()) <= 4000 * 4


async def test_grep_keeps_whole_first_lines_and_says_how_to_narrow(crib: Toolcrib, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("".join(f"match {number:06d}\n" for number in range(8000)))
    shown = (await flat(crib, tmp_path).call("grep", {"pattern": "match"})).text
    lines = shown.splitlines()
    kept = [line for line in lines if line.startswith("big.txt:")]
    assert kept == [f"big.txt:{number}:match {number - 1:06d}" for number in range(1, len(kept) + 1)]
    assert str(8000 - len(kept)) in shown.replace(",", "") and "narrow" in shown.lower()


# The tools work


async def test_files_are_written_read_edited_and_listed(crib: Toolcrib, tmp_path: Path) -> None:
    session = flat(crib, tmp_path)
    code = "# the port\nPORT = 80\n\n\ndef serve():\n    return PORT\n"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "src/app.py", "content": code}),
        ("edit_file", {"path": "src/app.py", "search": "PORT = 80", "replace": "PORT = 8080"}),
        ("edit_file", {"path": "src/app.py", "search": "missing", "replace": ""}),
        ("read_file", {"path": "src/app.py", "mode": "compact"}),
        ("read_file", {"path": "src/app.py", "mode": "outline"}),
        ("list_directory", {}),
        ("search_files", {"pattern": "**/*.py"}),
        ("grep", {"pattern": "return .*"}),
        ("find_references", {"symbol": "PORT"}),
        ("get_diagnostics", {}),
    ]
    texts = [(await session.call(name, given)).text for name, given in calls]
    assert texts == [
        f"File written: src/app.py ({len(code)} characters)",
        "File edited: src/app.py",
        "the text is 0 times in src/app.py, once is needed\nread the file first",
        "PORT = 8080\ndef serve():\n    return PORT",
        "5: def serve():",
        "src/",
        "src/app.py",
        "src/app.py:6:return PORT",
        "src/app.py:2: [definition] PORT = 8080\nsrc/app.py:6: return PORT",
        "No problems.",
    ]


@pytest.mark.parametrize(
    "path", ["", " ", "a\nb", "x" * 81, f"{'x' * 61}/a", "../a", "a/../../b", "/etc/passwd", ".env"]
)
async def test_a_path_that_leads_elsewhere_or_may_hold_secrets_is_refused(path: str, crib: Toolcrib) -> None:
    results = [await crib.session(profile="flat").call("read_file", {"path": path})]
    results.append(await crib.session(profile="flat").call("write_file", {"path": path, "content": ""}))
    assert [result.is_error for result in results] == [True, True]


@pytest.mark.process
async def test_git_stages_commits_branches_stashes_pushes_and_pulls(crib: Toolcrib, tmp_path: Path) -> None:
    work, remote = tmp_path / "work", tmp_path / "remote"
    for words in (["init", "--quiet", "--bare", remote], ["init", "--quiet", "-b", "main", work]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    subprocess.run(["git", "remote", "add", "origin", remote], cwd=work, check=True)
    session = flat(crib, work)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "a.txt", "content": "one\n"}),
        ("git_stage", {"files": ["a.txt"]}),
        ("git_commit", {"message": "The first"}),
        ("git_push", {"setUpstream": True}),
        ("git_branch", {"action": "create", "name": "next"}),
        ("write_file", {"path": "a.txt", "content": "two\n"}),
        ("git_stash", {"action": "push", "message": "later"}),
        ("git_stash", {"action": "list"}),
        ("git_stash", {"action": "pop"}),
        ("git_diff", {}),
        ("git_status", {}),
        ("git_log", {"count": 1}),
        ("git_branch", {}),
    ]
    texts = [(await session.call(name, given)).text for name, given in calls]
    assert texts[1].endswith("A  a.txt") and "The first" in texts[2] and "later" in texts[7]
    assert "-one\n+two" in texts[9] and " M a.txt" in texts[10]
    assert texts[11].endswith("The first") and texts[12] == "main\n* next"
    await session.call("git_stash", {})
    await session.call("git_branch", {"action": "switch", "name": "main"})
    assert "up to date" in (await session.call("git_pull", {"rebase": True})).text


@pytest.mark.process
async def test_commands_run_with_a_time_limit_in_the_background_and_as_tests(crib: Toolcrib, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert True\n")
    async with flat(crib, tmp_path) as session:
        slow = await session.call("run_command", {"command": "sleep 600", "timeout": 0.2})
        started = await session.call("run_command", {"command": "echo built; exit 3", "background": True})
        assert (slow.error and slow.error.code, started.text) == ("timeout", "Started in the background as cmd_1.")
        await session.state.runtime["cmd_1"].process.wait()
        assert (await session.call("run_command", {"command_id": "cmd_1"})).text == "(exit code 3)\nbuilt"
        assert "1 passed" in (await session.call("run_tests", {"file": "test_it.py"})).text
        failing = await session.call("run_tests", {"command": "sh -c 'exit 2'"})
        assert failing.text == "(exit code 2)"


async def test_the_web_diagrams_and_the_projects_symbols_are_found(crib: Toolcrib, tmp_path: Path) -> None:
    (tmp_path / "doc.md").write_text("```mermaid\nA-->B\n```\ntext\n```mermaid\nC-->D\n```\n")
    code = (
        '"""."""\ndef load():\n    """Read the configuration."""\n    return parse()\n\n\ndef parse():\n    return 1\n'
    )
    (tmp_path / "conf.py").write_text(code)
    session = flat(crib, tmp_path)
    search = {"query": "where is the configuration read", "graphWalkDepth": 1}
    calls = [
        ("web_search", {"query": "rebase"}),
        ("display_diagram", {"path": "doc.md", "index": 1}),
        ("display_diagram", {"path": "doc.md", "index": 2}),
        ("project_knowledge_search", search),
        ("project_knowledge_search", {**search, "kindFilter": "class"}),
        ("project_knowledge_search", {**search, "pathPrefix": "src"}),
        ("project_knowledge_search", {**search, "maxGraphHits": 0}),
    ]
    texts = [(await session.call(name, given)).text for name, given in calls]
    hit = "function load (conf.py:2)"
    assert texts[0].startswith("git rebase") and texts[1].endswith("C-->D\n")
    assert texts[2].startswith("doc.md has 2 diagrams")
    assert texts[3:] == [f"{hit}\n  near: parse (conf.py:7)", "Nothing found.", "Nothing found.", hit]


async def test_settings_are_read_and_changed_but_for_those_that_only_the_user_changes(crib: Toolcrib) -> None:
    session = crib.session(profile="flat", approver=RecordingApprover("yes"))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("update_setting", {"key": "model", "value": "m2"}),
        ("get_setting", {"key": "model"}),
        ("switch_backend", {"profile": "anthropic"}),
        ("get_setting", {"key": "backend"}),
        ("get_setting", {"key": "apiKey"}),
    ]
    texts = [(await session.call(name, given)).text for name, given in calls]
    assert texts == [
        "model: qwen3-coder:30b -> m2",
        "model = m2",
        "Switched to anthropic.",
        "backend = anthropic",
        "apiKey is a secret and is not shown",
    ]
    refused = [await session.call("update_setting", {"key": key, "value": "x"}) for key in sorted(DENIED)]
    assert [result.is_error for result in refused] == [True] * 18


async def test_the_machine_is_looked_at(crib: Toolcrib, tmp_path: Path) -> None:
    session = flat(crib, tmp_path)
    assert "processors" in (await session.call("system_monitor")).text
    assert "gpu:" in (await session.call("system_monitor", {"include_gpu": True})).text
