"""An agent that has nothing but the three verbs of the gateway plans a product launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from seeds.launch import STEPS, VERBS, check, settings_at
from toolcrib import Toolcrib
from toolcrib.testing.models import Call, Reply, ScriptedModel, Seen
from toolcrib_agent import Agent

pytestmark = pytest.mark.anyio


async def test_an_agent_plans_a_product_launch_through_three_verbs(tmp_path: Path) -> None:
    place, told = tmp_path / "store.db", list[str]()

    def plan(seen: Seen) -> Reply:
        assert seen.tools == VERBS
        told[:] = seen.results
        if len(told) == len(STEPS):
            return Reply(text="The launch is planned.")
        verb, arguments = STEPS[len(told)]
        return Reply(calls=(Call(name=verb, arguments=arguments(told)),))

    async with Toolcrib(settings_at(place)) as crib, crib.session(profile="gateway") as session:
        outcome = await Agent(ScriptedModel(*[plan] * (len(STEPS) + 1)), session).run(
            "Plan the launch of our new kettle in May."
        )

    assert (outcome.stopped, outcome.text) == ("answered", "The launch is planned.")
    await check(place, told)
