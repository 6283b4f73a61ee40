"""The gateway as a real client meets it: the MCP SDK over stdio, both eras of the protocol, a real server behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from contract.ways_in import TOOLCRIB, Home

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_goes_from_root_to_a_call_and_reads_the_same_as_text_and_as_data(
    tmp_path: Path, mode: Literal["legacy", "2026-07-28"]
) -> None:
    home = Home(folder=tmp_path)
    config = Path(home.config)
    told = {key: value for key, value in json.loads(config.read_text()).items() if key != "limits"}
    config.write_text(json.dumps(told))
    words = ["serve", "--config", str(config), "--profile", "gateway", "--no-daemon"]
    server = StdioServerParameters(command=TOOLCRIB, args=words, env=home.environ, cwd=tmp_path)
    async with Client(stdio_client(server), mode=mode) as client:

        async def asked(name: str, arguments: dict[str, Any]) -> Any:
            result = await client.call_tool(name, arguments)
            (block,) = result.content
            assert json.loads(getattr(block, "text", "")) == result.structured_content
            return result.structured_content

        listed = (await client.list_tools()).tools
        root = await asked("tool_help", {"path": "root"})
        group = await asked("tool_help", {"path": root["groups"][0]})
        op = next(item["name"] for item in group["items"] if item["name"].endswith("look"))
        call = (await asked("tool_help", {"path": op}))["example_call"]
        looked = await asked("tool_exec", call)
        refused = await asked("tool_exec", {"op": "x.t.erase", "args": {"path": "/etc/passwd"}})

    assert [tool.name for tool in listed] == ["tool_help", "tool_exec", "tool_batch"]
    assert [(tool.annotations and tool.annotations.read_only_hint) for tool in listed] == [True, False, False]
    assert (op, looked["ok"], looked["result"]["query"]) == ("x.t.look", True, "<query>")
    assert (refused["error"]["code"], refused["error"]["help_path"]) == ("PERMISSION_DENIED", "x.t.erase")
    assert home.ledger == [("look", looked["result"])]
