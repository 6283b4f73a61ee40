"""Seven real servers behind one `toolcrib serve`: every tool is reached by three real clients, over stdio and HTTP.

The FastMCP client calls every tool. The others, with a process a call, call one tool of each server; with `--full-size`
(`make clients-full`) they call every tool, too.
"""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from fastmcp import Client

from clients.real import CLIENTS, FastMcpClient, Target, gateway_command, make
from clients.seven import Step, config, prepare, steps, write_config
from clients.world import reap
from rig import free_port, serving
from toolcrib.telemetry.tokens import tokenizer

TRANSPORTS = ("http", "stdio")
OURS = {"get_prompt", "list_prompts", "list_resources", "read_artifact", "read_resource"}
"""Tools of the gateway itself: what a server offers beside tools is there for clients without it, too."""
SHOWN = {"search_tools", "describe_tools", "call_tool", "call_tool_readonly", "read_artifact"}
BEYOND_CLI = {
    "everything trigger-sampling-request",
    "everything trigger-elicitation-request",
    "everything get-roots-list",
}
"""Tools that turn round and ask the client: what a command line client cannot answer has a test of its own."""


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><p>the page of the test</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def page() -> Generator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seven") / "workspaces"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def env(root: Path) -> dict[str, str]:
    """A home of its own: no test meets the records or the daemon of whoever runs it."""
    homes = {f"XDG_{kind}_HOME": str(root.parent / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    run = root.parent / "run"
    run.mkdir(mode=0o700)
    return {**os.environ, **homes, "XDG_RUNTIME_DIR": str(run)}


@pytest.fixture(scope="module")
def targets(root: Path, env: dict[str, str]) -> Generator[dict[str, Target]]:
    file, port = write_config(root), free_port()
    command = gateway_command(file, "--http", "--port", str(port))
    try:
        with serving(command, port=port, log=root.parent / "gateway.log", env=env):
            yield {
                "http": Target(url=f"http://127.0.0.1:{port}/mcp", env=env),
                "stdio": Target(command=gateway_command(file), env=env),
            }
    finally:
        reap(root.parent)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", CLIENTS)
async def test_every_tool_runs_with_its_effect(
    name: str, transport: str, targets: dict[str, Target], root: Path, page: str, full_size: bool
) -> None:
    space = root / f"{name}-{transport}"
    prepare(space)
    client = make(name, targets[transport], root.parent)
    assert set(await client.tools()) == SHOWN
    assert "git__git_commit(" in await client.call("search_tools", {"query": "commit staged changes to git"})
    failed: list[str] = []
    planned = steps(space, root / "memory.jsonl", page)
    for step in planned if full_size or name == "fastmcp" else _first_of_each_server(planned):
        called = step.tool.replace(" ", "__")
        text = await client.call("call_tool", {"name": called, "arguments": step.arguments})
        if not _came_true(step, text):
            failed.append(f"{step.tool}: {text[:300]}")
    assert failed == []


def _first_of_each_server(planned: list[Step]) -> list[Step]:
    return list({step.tool.partition(" ")[0]: step for step in reversed(planned)}.values())


def _came_true(step: Step, text: str) -> bool:
    said = step.says in text or json.dumps(step.says)[1:-1] in text
    return said and step.holds()


async def test_every_tool_of_the_seven_has_a_step(targets: dict[str, Target], root: Path, page: str) -> None:
    flat = Target(url=targets["http"].url + "/flat", env=targets["http"].env)
    listed = [name for name in await FastMcpClient(flat).tools() if name not in OURS]
    planned = {step.tool for step in steps(root / "none", root / "memory.jsonl", page)} | BEYOND_CLI
    servers = set(config(root)["mcpServers"])
    assert {server for server in servers for name in listed if name.startswith(f"mcp_{server}_")} == servers
    assert len(listed) == len(planned)


async def test_a_client_that_does_not_defer_pays_at_most_900_tokens(targets: dict[str, Target]) -> None:
    counter = tokenizer()
    assert counter.name == "o200k"
    async with Client(targets["http"].url) as client, Client(targets["http"].url + "/flat") as flat:
        shown = json.dumps([tool.model_dump(mode="json", exclude_none=True) for tool in await client.list_tools()])
        full = json.dumps([tool.model_dump(mode="json", exclude_none=True) for tool in await flat.list_tools()])
        result = client.initialize_result
        instructions = (result.instructions if result else "") or ""
    assert counter.count(shown) + counter.count(instructions) <= 900
    assert counter.count(full) > 5000
