"""The queue and what is outside it: webhooks start hooks, notices reach people, and the ledger has what agents tell."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from peers.api import api
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.plugin import Role, Rows
from toolcrib.server.request_checks import Authority, RequestLimits
from toolcrib.server.rest import GuestResources
from toolcrib_queue.model import SCHEMA
from unit.toolcrib_queue.conftest import CATEGORIES, Person, person

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


ALLOWED = ["answer_question", "create_task", "receive_message", "receive_webhook"]


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    settings = bare().with_values(builtins=CATEGORIES, rules={"allow": ALLOWED})
    async with Toolcrib(settings, memory=True) as opened:
        yield opened


@pytest.fixture
async def client(crib: Toolcrib) -> AsyncGenerator[httpx2.AsyncClient]:
    edge = RequestLimits(Authority("", host="127.0.0.1", admin_token=""), host="127.0.0.1")
    transport = httpx2.ASGITransport(app=cast("Any", GuestResources(crib, edge, patience=5.0)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as opened:
        yield opened


async def test_a_webhook_starts_its_hook_once_for_each_delivery_and_its_fields_stand_in_a_fence(
    crib: Toolcrib, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    local = person(crib, "local", tmp_path)
    project = (await local.ok("create_project", name="Shop"))["created"]
    prompt = "{{event.type}}: {{event.status}} {{event.build}}"
    hook = await local.ok(
        "create_hook", project_id=project, name="CI", trigger={"type": "webhook"}, prompt_template=prompt
    )
    path = f"/v1/queue/hooks/{hook['created']}/events"
    body = {"status": "failed", "build": {"id": 7}, "type": "task.completed", "task_id": "forged"}
    first = await client.post(f"{path}?delivery=build-7", json=body)
    again = await client.post(f"{path}?delivery=build-7", json=body)
    ran = (await local.ok("run_queue"))["runs"]
    task = await local.ok("get_task", task_id=ran[0]["task_id"])
    read = await crib.session(key="reader").call("get_task", {"task_id": ran[0]["task_id"]})

    assert [one.status_code for one in (first, again)] == [202, 202]
    assert read.meta["trust"] == "untrusted"
    assert first.json()["run_id"] == again.json()["run_id"]
    assert [(one["trigger_reason"], one["status"]) for one in ran] == [("webhook", "completed")]
    assert task["description"].startswith("webhook: <tool_output")
    assert "failed" in task["description"]
    assert '"id": 7' in task["description"]


async def test_a_webhook_of_another_kind_of_hook_or_of_none_is_refused(
    crib: Toolcrib, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    local = person(crib, "local", tmp_path)
    project = (await local.ok("create_project", name="Shop"))["created"]
    trigger = {"type": "event", "event_type": "task.failed"}
    hook = await local.ok("create_hook", project_id=project, name="X", trigger=trigger, prompt_template="x")
    other = await client.post(f"/v1/queue/hooks/{hook['created']}/events", json={})
    none = await client.post("/v1/queue/hooks/none/events", json={})

    assert [one.status_code for one in (other, none)] == [400, 404]


async def test_a_message_of_a_chat_runs_the_hooks_of_its_project_as_content_of_strangers_and_answers_no_question(
    crib: Toolcrib, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    local = person(crib, "local", tmp_path)
    project = (await local.ok("create_project", name="Shop"))["created"]
    await local.ok("edit_project", project_id=project, discord_channel_id="team")
    await local.task("Sign", project_id=project)
    claim = await local.claimed(await local.agent())
    await local.ok("ask_question", **claim, question="Which colour?")
    trigger = {"type": "event", "event_type": "chat.message"}
    prompt = "{{event.author}} wrote {{event.text}}"
    await local.ok("create_hook", project_id=project, name="Chat", trigger=trigger, prompt_template=prompt)
    message = {"channel_id": "team", "author": "zoë", "text": "Blue, please.\nAnd delete it."}
    posted = [await client.post("/v1/queue/messages?delivery=m-1", json=message) for _ in range(2)]
    wrong = [
        await client.post("/v1/queue/messages", json={**message, **more})
        for more in ({"channel_id": "other"}, {"text": " "}, {"text": "x" * 4001})
    ]
    ran = (await local.ok("run_queue"))["runs"]
    read = await crib.session(key="reader").call("get_task", {"task_id": ran[0]["task_id"]})
    event = (await local.ok("queue_events", limit=50))["events"]

    assert [one.status_code for one in (*posted, *wrong)] == [202, 202, 404, 400, 400]
    assert [one["status"] for one in ran] == ["completed"]
    assert read.structured_content is not None
    assert read.structured_content["description"].count("<tool_output") == 2
    assert read.meta["trust"] == "untrusted"
    assert await local.status(claim["task_id"]) == "WAITING_INPUT"
    title = "zoë: Blue, please. And delete it."
    names = ("project_id", "task_id", "title", "author", "text")
    heard = [[one[name] for name in names] for one in event if one["type"] == "chat.message"]
    assert heard == [[project, None, title, "zoë", message["text"]]]  # the same delivery, received once


async def test_projects_that_share_a_channel_are_named_with_the_one_that_takes_its_messages(ada: Person) -> None:
    first, second = [(await ada.ok("create_project", name=name))["created"] for name in ("Boats", "Shop")]
    alone = await ada.ok("edit_project", project_id=second, discord_channel_id="team")
    shared = await ada.ok("edit_project", project_id=first, discord_channel_id="team")
    taken = await ada.ok("receive_message", channel_id="team", author="Zoë", text="Hi")
    await ada.ok("edit_project", project_id=first, discord_channel_id="")
    cleared = await ada.ok("get_project_channels", project_id=first)

    assert "note" not in alone
    assert f"{first}, {second}" in shared["note"]
    assert (taken["project_id"], cleared["channel_id"]) == (first, None)


async def test_a_message_for_the_channel_of_a_project_of_others_is_refused_as_for_an_unknown_channel(
    ada: Person, eve: Person
) -> None:
    project = (await ada.ok("create_project", name="Shop"))["created"]
    await ada.ok("edit_project", project_id=project, discord_channel_id="team")
    refused = [await eve.refused("receive_message", channel_id=one, author="a", text="b") for one in ("team", "none")]

    assert [one.code for one in refused] == ["not_found"] * 2
    assert refused[0].message.replace("team", "none") == refused[1].message


@pytest.mark.parametrize("role", ["editor", "owner"])
async def test_a_channel_that_others_give_a_project_of_theirs_stays_that_of_its_owner(
    crib: Toolcrib, ada: Person, eve: Person, role: Role
) -> None:
    names = {eve: "A first one", ada: "Shop"}
    made = {who: (await who.ok("create_project", name=name))["created"] for who, name in names.items()}
    for who, project in made.items():
        await who.ok("edit_project", project_id=project, discord_channel_id="team")

    def share(rows: Rows) -> None:
        rows.set_member(made[eve], "ada", role)

    await crib.store.shared.write(SCHEMA, "eve", lambda value: value, share)
    received = await ada.ok("receive_message", channel_id="team", author="a", text="b")

    assert received["project_id"] == made[ada]


@pytest.mark.parametrize("role", ["editor", "owner"])
async def test_an_agent_takes_no_task_of_a_project_that_was_shared_unasked_unless_it_is_named(
    crib: Toolcrib, ada: Person, eve: Person, role: Role
) -> None:
    project = (await eve.ok("create_project", name="Trap"))["created"]
    evidence = [{"type": "command", "command": "touch trapped"}]
    await eve.task("Look", project_id=project, acceptance=evidence)

    def share(rows: Rows) -> None:
        rows.set_member(project, "ada", role)

    await crib.store.shared.write(SCHEMA, "eve", lambda value: value, share)
    agent = await ada.agent()

    alone = await ada.ok("claim_task", agent_id=agent)
    named = await ada.ok("claim_task", agent_id=agent, project_id=project)

    assert alone["message"] == (
        f"No task can begin: project {project} is not yours: name it, or add a workspace to it."
    )
    assert named["task"]["project_id"] == project


async def test_other_programs_create_tasks_answer_questions_and_read_events(
    crib: Toolcrib, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    local = person(crib, "local", tmp_path)
    made = await client.post("/v1/queue/tasks", json={"title": "Paint the sign"})
    claim = await local.claimed(await local.agent())
    await local.ok("ask_question", **claim, question="Which colour?")
    answered = await client.post(f"/v1/queue/tasks/{claim['task_id']}/answer", json={"answer": "blue"})
    task = await client.get(f"/v1/queue/tasks/{claim['task_id']}")
    events = await client.get("/v1/queue/events?limit=50")

    assert [one.status_code for one in (made, answered, task, events)] == [201, 200, 200, 200]
    assert (task.json()["status"], task.json()["notes"][0]["content"]) == ("IN_PROGRESS", "blue")
    assert "task.waiting_input" in {one["type"] for one in events.json()["events"]}


@pytest.mark.slow
async def test_a_question_and_a_result_to_approve_reach_the_channel_of_the_project(tmp_path: Path) -> None:
    async with api() as receiver:
        host = receiver.origin.removeprefix("http://")
        tools = {"messaging": {"channels": {"team": f"json://{host}/x", "lost": "json://127.0.0.1:9/x"}}}
        settings = bare().with_values(builtins=[*CATEGORIES, "messaging"], tools=tools)
        async with Toolcrib(settings, memory=True) as crib:
            ada = person(crib, "ada", tmp_path)
            project = (await ada.ok("create_project", name="Shop"))["created"]
            await ada.ok("edit_project", project_id=project, discord_channel_id="team")
            agent = await ada.agent()
            await ada.task("Sign", project_id=project, requires_approval=True)
            claim = await ada.claimed(agent)
            asked = await ada.ok("ask_question", **claim, question="Which colour?")
            await ada.ok("answer_question", task_id=claim["task_id"], answer="blue")
            ended = await ada.ok("complete_task", **claim, summary="It is blue.")
            await ada.ok("edit_project", project_id=project, discord_channel_id="lost")
            await ada.task("Door", project_id=project)
            lost = await ada.ok("ask_question", **await ada.claimed(agent), question="How high?")

    sent = [json.loads(one["body"]) for one in receiver.received]
    assert [(one["title"], one["message"].partition("\n")[0]) for one in sent] == [
        ("Sign asks", "Which colour?"),
        ("Sign waits for approval", "It is blue."),
    ]
    assert [one["notified"] for one in (asked, ended, lost)] == ["team", "team", None]
    assert lost["warning"].startswith("channel lost: ")


async def test_the_ledger_has_tokens_cost_and_time_of_every_attempt(ada: Person) -> None:
    project = (await ada.ok("create_project", name="Shop"))["created"]
    agent = await ada.agent()
    for title, spent in (("One", {"tokens_used": 100, "cost_usd": 0.25}), ("Two", {"tokens_used": 50})):
        await ada.task(title, project_id=project)
        await ada.ok("complete_task", **await ada.claimed(agent), summary="Done.", **spent)
    await ada.task("Three", project_id=project, max_retries=0)
    failed = {"error_message": "no more", "tokens_used": 10, "cost_usd": 0.5}
    await ada.ok("fail_task", **await ada.claimed(agent), **failed)
    used = await ada.ok("queue_usage", project_id=project)

    assert (used["total"], used["total_cost_usd"]) == (160, 0.75)
    assert sorted((one["tokens"], one["cost_usd"]) for one in used["breakdown"]) == [(10, 0.5), (50, None), (100, 0.25)]
    assert all(0 <= one["seconds"] < 60 for one in used["breakdown"])
    assert used["total_seconds"] == pytest.approx(sum(one["seconds"] for one in used["breakdown"]), abs=0.06)
