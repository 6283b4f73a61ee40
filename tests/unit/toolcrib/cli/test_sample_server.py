"""The servers that `toolcrib demo` brings itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib import Toolcrib
from toolcrib.cli.processes.sample_server import SERVERS


@pytest.mark.anyio
@pytest.mark.parametrize("tools", SERVERS.values(), ids=SERVERS)
async def test_a_sample_server_has_tools_that_read_and_no_others(tools: tuple[str, ...], tmp_path: Path) -> None:
    async with Toolcrib(builtins=tools, workspace={"roots": [str(tmp_path)]}) as crib:
        kinds = {tool.name: tool.kind for tool in crib.catalog.tools.values() if tool.category}

    assert kinds == dict.fromkeys(tools, "read")
