"""`toolcrib console` as a person starts it: a process of its own, beside the programs that share its store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from rig import PATIENCE, Hearing
from toolcrib import tool
from toolcrib.core.permission import Answer, AnswersLater, Question
from toolcrib.core.result import ToolResult
from toolcrib.crib import Toolcrib

pytestmark = pytest.mark.process


@tool(kind="write")
async def save_note(title: str) -> str:
    """Save a note."""
    return f"saved {title}"


async def answered_elsewhere(question: Question) -> Answer:
    raise AnswersLater


@contextmanager
def console(home: Path, *words: str) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """Start the command and yield its process with the address that it prints."""
    folders = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    command = [Path(sys.executable).with_name("toolcrib"), "console", "--no-browser", "--wait", "0", *words]
    with subprocess.Popen(command, env={**folders, "HOME": str(home)}, cwd=home, stderr=subprocess.PIPE) as process:
        try:
            hearing = Hearing(process.stderr)
            yield process, next(line.decode().strip() for line in iter(hearing.line, b"") if line.startswith(b"http:"))
        finally:
            process.kill()


async def question(crib: Toolcrib) -> str:
    """The id of the question that waits."""
    async for approval in crib.approvals.watch():
        if approval.state == "pending":
            return approval.id
    raise AssertionError


async def test_a_person_answers_a_call_of_another_process(tmp_path: Path) -> None:
    (tmp_path / "toolcrib.yaml").write_text("store: ./store.db\n")
    results: list[ToolResult] = []

    async def call(crib: Toolcrib) -> None:
        results.append(await crib.session(approver=answered_elsewhere).call("save_note", {"title": "tea"}))

    async with Toolcrib(store=tmp_path / "store.db", mode="cautious") as crib:
        crib.add(save_note)
        with console(tmp_path, "--config", "toolcrib.yaml") as (process, url):
            async with httpx2.AsyncClient(trust_env=False) as client:
                entered = await client.get(url, follow_redirects=True)
                assert entered.status_code == 200
                base, origin = str(entered.url), url.partition("/console/")[0]
                tools = (await client.get(f"{base}tools")).text
                assert "<p>0 tools</p>" in tools, "those of a gateway, which has no built-in ones of its own accord"
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, crib)
                    page = f"{base}approvals/{await question(crib)}"
                    fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', (await client.get(page)).text))
                    headers = {"origin": origin}
                    await client.post(page, data={**fields, "verdict": "yes"}, headers=headers)
                assert [result.text for result in results] == ["saved tea"]
                client.cookies.clear()
                assert (await client.get(url)).headers["location"] == "sign-in"
            process.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(process.wait, PATIENCE) == 0
