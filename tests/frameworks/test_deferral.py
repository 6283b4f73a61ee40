"""Where a model's API can hold tools back and search them itself, the integrations let it."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

import pytest

from frameworks import test_anthropic, test_langchain, test_openai, test_openai_agents
from frameworks.cases import Case, done, opened
from frameworks.mock import Mock
from frameworks.workbench import Workbench
from frameworks.world import Api, Talking
from toolcrib.telemetry.tokens import tokenizer

CASE = Case(
    name="deferred",
    turns=((("list_workers", {}), ("convert_money", {"amount": 100, "rate": 1.5})),),
    says=("worker-9", "150.0"),
)
QUIET = Case(name="quiet", turns=(), says=())
"""For the Agents SDK, which runs what the API has found by its namespace only: aimock names none."""
SEARCHES = {"anthropic": "tool_search_tool_bm25_20251119", "openai-responses": "tool_search"}

on_claude: Talking = partial(test_anthropic.talking, defer=True)
on_responses: Talking = partial(test_openai.talking, defer=True)
in_langchain: Talking = partial(test_langchain.talking, make=test_langchain.deferring_agent_of)
in_agents: Talking = partial(test_openai_agents.talking, defer=True)


@pytest.mark.parametrize(
    ("talking", "api", "case"),
    [
        pytest.param(on_claude, "anthropic", CASE, id="anthropic"),
        pytest.param(on_responses, "openai-responses", CASE, id="openai"),
        pytest.param(in_langchain, "anthropic", CASE, id="langchain-anthropic"),
        pytest.param(in_langchain, "openai-responses", CASE, id="langchain-openai"),
        pytest.param(in_agents, "openai-responses", QUIET, id="openai_agents"),
    ],
)
async def test_all_tools_are_declared_as_deferred_and_what_the_api_finds_runs(
    talking: Talking, api: Api, case: Case, mock: Mock
) -> None:
    prompt = f"[{case.name} {secrets.token_hex(4)}]"
    async with opened(case) as stage, talking(stage, mock, api) as talk:
        mock.learn(case, case.turns, prompt)
        assert await talk(prompt) == done(case)
        asked = mock.heard(prompt)

    declared: list[dict[str, Any]] = asked[0].body["tools"]
    kinds = [one.get("type") for one in declared]
    inside = [inner for one in declared for inner in (one["tools"] if one.get("type") == "namespace" else [one])]
    deferred = {one["name"] for one in inside if one.get("defer_loading")}
    live = [one for one in inside if not one.get("defer_loading")]
    assert kinds.count(SEARCHES[api]) == 1
    assert len(deferred) == len(Workbench().functions) - 1  # a rule always denies one of them
    assert tokenizer().count(str(live) + asked[0].system) < 900
    assert not {"search_tools", "call_tool", "describe_tools"} & {one.get("name") for one in inside}
    results = [text for _, text in asked[-1].results]
    assert len(results) == len(case.says)
    assert all(part in text for part, text in zip(case.says, results, strict=True))
