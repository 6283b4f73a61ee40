"""What Toolcrib tells of itself: true for the session that asks, and by tools that there are."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.plugin import ToolFailure
from toolcrib_queue.tools import tasks
from toolcrib_tools import files, product, settings, system
from toolcrib_tools.product import get_usage_guide
from unit.toolcrib_tools.telling import failure_of, told


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib(bare(), memory=True) as opened:
        opened.add(product, system, tasks, settings)
        yield opened


async def test_the_overview_is_of_this_session(crib: Toolcrib) -> None:
    everything = await told(crib.session(profile="flat"), "get_product_overview")
    limited = await told(
        crib.session(profile="flat", allowed_tools=["get_product_overview", "create_task"]), "get_product_overview"
    )

    assert everything["tools"]["by_category"]["tasks"] == 4
    assert everything["session"]["profile"] == "flat"
    assert limited["tools"] == {"count": 2, "by_category": {"knowledge": 1, "tasks": 1}}
    assert {"approval", "background", "settings"} <= set(everything["guide_topics"])


def test_the_guide_is_told_whole_or_by_topic() -> None:
    topic = get_usage_guide(" Approval ")

    assert topic.startswith("Every call is allowed, asked for or denied")
    assert topic in get_usage_guide()
    with pytest.raises(ToolFailure) as failure:
        get_usage_guide("aproval")
    assert (failure.value.code, "did you mean 'approval'" in failure.value.message) == ("not_found", True)


async def test_the_guide_names_only_tools_that_there_are(crib: Toolcrib) -> None:
    from_jobs = {"start_background_task", "get_background_task", "list_background_tasks", "cancel_background_task"}
    known = {*crib.catalog.tools, *from_jobs, *files.__all__, "task_id"}

    assert set(re.findall(r"\b[a-z]+_[a-z_]+\b", get_usage_guide())) <= known


async def test_fields_are_those_of_the_tools_that_work_on_a_thing(crib: Toolcrib) -> None:
    session = crib.session(profile="flat")
    one = await told(session, "get_field_info", entity_type="task", field_name="title")
    every = await told(session, "get_field_info", entity_type="Tasks")
    kind = every["fields"]["task_type"]

    assert one["fields"].keys() == {"title"}
    assert one["fields"]["title"]["type"] == "string"
    assert one["fields"]["title"]["maxLength"] == 500
    assert {"create_task", "edit_task"} <= set(one["fields"]["title"]["taken_by"])
    assert one["fields"]["title"]["required_by"] == ["create_task"]
    assert {"title", "priority", "depends_on", "status"} <= every["fields"].keys()
    assert (kind["type"], "bugfix" in kind["enum"]) == ("string", True)


async def test_what_is_not_there_is_said_with_what_there_is(crib: Toolcrib) -> None:
    session = crib.session(profile="flat")
    field = await failure_of(session, "get_field_info", entity_type="task", field_name="titel")
    thing = await failure_of(session, "get_field_info", entity_type="submarine")
    hidden = await failure_of(
        crib.session(profile="flat", allowed_tools=["get_field_info"]), "get_field_info", entity_type="task"
    )

    assert (field.code, "did you mean 'title'" in field.message) == ("not_found", True)
    assert (thing.code, "'submarine'" in thing.message) == ("not_found", True)
    assert hidden.code == "not_found"


async def test_a_gateway_has_the_field_info_under_the_op_that_its_model_knows(crib: Toolcrib) -> None:
    session = crib.session(profile="gateway")
    result = await session.call(
        "tool_exec", {"op": "util.schema.field_info", "args": {"entity_type": "task", "field_name": "title"}}
    )

    assert result.error is None, result.text
    assert '"taken_by"' in result.text
