"""Tool definitions are what each API takes, judged by the types of its SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from anthropic.types import ToolUnionParam
from google.genai.types import GenerateContentConfig
from mcp_types import Tool as McpTool
from openai.types.chat import ChatCompletionToolParam
from openai.types.responses import ToolParam
from pydantic import TypeAdapter

from seeds.rigging import seeded
from toolcrib.crib import Toolcrib

TYPES: dict[str, Any] = {
    "anthropic": list[ToolUnionParam],
    "openai": list[ChatCompletionToolParam],
    "openai-responses": list[ToolParam],
}


@pytest.fixture(scope="module")
async def seed() -> AsyncGenerator[Toolcrib]:
    async with seeded("gateway") as crib:
        yield crib


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("format", TYPES)
async def test_definitions_are_what_the_sdk_takes(seed: Toolcrib, format: str, strict: bool) -> None:
    session = seed.session(profile="flat")
    shown = session.definitions(format, strict=strict)

    assert TypeAdapter(TYPES[format]).validate_python([*shown]) == shown
    assert {tool.name for tool in session.tools} == {*seed.catalog.tools, "read_artifact"}
    assert len(shown) == len(session.tools)


@pytest.mark.parametrize("format", ["anthropic", "openai-responses"])
async def test_deferred_definitions_are_what_the_sdk_takes(seed: Toolcrib, format: str) -> None:
    shown = seed.session(profile="adaptive").definitions(format, defer=True)
    adapter = TypeAdapter(TYPES[format])  # has to outlive the lists that it reads lazily
    checked = adapter.validate_python([*shown])

    assert [{**part, "tools": list(part["tools"])} if "tools" in part else part for part in checked] == shown


async def test_gemini_takes_its_definitions(seed: Toolcrib) -> None:
    shown = seed.session(profile="flat").definitions("gemini")
    (taken,) = GenerateContentConfig(tools=cast("Any", [*shown])).model_dump(exclude_none=True)["tools"]

    assert taken == shown[0]


async def test_mcp_definitions_are_those_of_the_list(seed: Toolcrib) -> None:
    session = seed.session(profile="flat")

    for definition, tool in zip(session.definitions("mcp"), session.tools, strict=True):
        assert McpTool.model_validate(definition).name == tool.name
        assert definition == tool.definition
