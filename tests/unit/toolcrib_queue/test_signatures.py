"""Signed webhooks: services without a token of the server start hooks by a secret that they share with it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import httpx2
import pytest

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import TokenSpec
from toolcrib.plugin import Host, SignedRequest, ToolFailure
from toolcrib.server.request_checks import Authority, RequestLimits
from toolcrib.server.rest import GuestResources
from toolcrib_queue.rest import signed_call
from unit.toolcrib_queue.conftest import CATEGORIES, Person, person

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

TOKEN: Final = "a-token-that-no-service-has"
SECRET: Final = "It's a Secret to Everybody"
KEY: Final = "whsec_plJ3nmyCDGBKInavdOK15jsl"
SENDERS: Final[Mapping[str, Any]] = {
    "github": {"scheme": "github", "secret": SECRET},
    "gitlab": {"scheme": "gitlab", "secret": SECRET},
    "billing": {"scheme": "standard", "secret": KEY},
}
ISSUE: Final[Mapping[str, Any]] = {
    "action": "opened",
    "issue": {"number": 7, "title": "The sails are torn", "user": {"login": "eve"}},
    "repository": {"full_name": "boats/harbour"},
    "sender": {"login": "eve", "type": "User"},
    "hook_id": 4711,
    "delivery": {"forged": True},
}
"""An event as GitHub posts it, with keys that the tool has arguments for."""


def signed_by_github(body: bytes, event: str = "issues", secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    named = {"X-GitHub-Event": event, "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}
    return {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={digest}", **named}


def signed_by_standard(body: bytes, *, id: str = "msg_1", age: float = 0.0, key: str = KEY) -> dict[str, str]:
    sent = str(int(time.time() - age))
    digest = hmac.digest(base64.b64decode(key.removeprefix("whsec_")), f"{id}.{sent}.".encode() + body, "sha256")
    signature = f"v1,Zm9yZ2Vk v1,{base64.b64encode(digest).decode()}"
    named = {"webhook-id": id, "webhook-timestamp": sent, "webhook-signature": signature}
    return {"Content-Type": "application/json", **named}


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    tools = {"queue": {"webhooks": dict(SENDERS)}}
    settings = bare().with_values(builtins=CATEGORIES, rules={"allow": ["receive_webhook"]}, tools=tools)
    async with Toolcrib(settings, memory=True) as opened:
        yield opened


@pytest.fixture
async def client(crib: Toolcrib) -> AsyncGenerator[httpx2.AsyncClient]:
    edge = RequestLimits(
        Authority("", host="127.0.0.1", tokens=[TokenSpec(token=TOKEN, principal="ada")]), host="127.0.0.1"
    )
    transport = httpx2.ASGITransport(app=cast("Any", GuestResources(crib, edge, patience=5.0)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as opened:
        yield opened


@pytest.fixture
async def ada(crib: Toolcrib, tmp_path: Path) -> Person:
    return person(crib, "ada", tmp_path)


async def hook_of(ada: Person, **trigger: Any) -> str:
    project = (await ada.ok("create_project", name="Boats"))["created"]
    prompt = "{{event.event}} {{event.action}}: {{event.issue.title}}"
    given = {"project_id": project, "name": "Issues", "prompt_template": prompt, "cooldown_seconds": 0}
    return str((await ada.ok("create_hook", trigger={"type": "webhook", **trigger}, **given))["created"])


async def test_an_issue_on_github_starts_its_hook_once_however_often_it_is_delivered(
    client: httpx2.AsyncClient, ada: Person
) -> None:
    hook, body = await hook_of(ada, sender="github", event_type="issues"), json.dumps(ISSUE).encode()
    path = f"/v1/queue/webhooks/github/{hook}"
    first = await client.post(path, content=body, headers=signed_by_github(body))
    again = await client.post(path, content=body, headers=signed_by_github(body) | {"X-GitHub-Delivery": "another"})
    ping = await client.post(path, content=b'{"zen": "x"}', headers=signed_by_github(b'{"zen": "x"}', "ping"))
    push = await client.post(path, content=b"{}", headers=signed_by_github(b"{}", "push"))
    ran = (await ada.ok("run_queue"))["runs"]
    task = await ada.ok("get_task", task_id=ran[0]["task_id"])

    assert [one.status_code for one in (first, again, ping, push)] == [202] * 4
    assert first.json() == again.json()
    assert [one.json().get("ignored") for one in (first, ping, push)] == [None, "ping", "push"]
    assert [one["status"] for one in ran] == ["completed"]
    assert "The sails are torn" in task["description"]


async def test_a_request_that_is_not_signed_as_its_sender_signs_is_refused_and_runs_nothing(
    client: httpx2.AsyncClient, ada: Person
) -> None:
    hook, body = await hook_of(ada, sender="github"), json.dumps(ISSUE).encode()
    right = signed_by_github(body)
    wrong: dict[str, tuple[str, bytes, dict[str, str]]] = {
        "another secret": ("github", body, signed_by_github(body, secret="another secret of 16")),
        "another body": ("github", body + b" ", right),
        "no signature": ("github", body, {"Content-Type": "application/json"}),
        "the token in its place": ("github", body, {**right, "X-Hub-Signature-256": TOKEN}),
        "an unknown sender": ("gitea", body, right),
        "another scheme": ("gitlab", body, right),
        "another sender's hook": ("gitlab", body, {**right, "X-Gitlab-Token": SECRET}),
        "a host by another name": ("github", body, {**right, "Host": "evil.example"}),
        "no JSON": ("github", b"zen=1", signed_by_github(b"zen=1")),
        "no object": ("github", b"[1]", signed_by_github(b"[1]")),
        "deep": ("github", b"[" * 100_000, signed_by_github(b"[" * 100_000)),
        "a form": ("github", body, {**right, "Content-Type": "application/x-www-form-urlencoded"}),
        "too large": ("github", body, {**right, "Content-Length": str(5 << 20)}),
    }
    found = {
        name: (await client.post(f"/v1/queue/webhooks/{sender}/{hook}", content=content, headers=headers)).status_code
        for name, (sender, content, headers) in wrong.items()
    }
    ran = (await ada.ok("run_queue"))["runs"]

    assert found == {
        "another secret": 401,
        "another body": 401,
        "no signature": 401,
        "the token in its place": 401,
        "an unknown sender": 401,
        "another scheme": 401,
        "another sender's hook": 403,
        "a host by another name": 421,
        "no JSON": 400,
        "no object": 400,
        "deep": 400,
        "a form": 415,
        "too large": 413,
    }
    assert ran == []


async def test_a_standard_webhook_is_taken_once_and_not_when_it_is_old(client: httpx2.AsyncClient, ada: Person) -> None:
    hook, body = await hook_of(ada, sender="billing"), b'{"type": "invoice.paid", "data": {"id": 7}}'
    path = f"/v1/queue/webhooks/billing/{hook}"
    headers = [
        signed_by_standard(body),
        signed_by_standard(body, age=200),
        signed_by_standard(body, id="msg_2"),
        signed_by_standard(body, age=400),
        signed_by_standard(body, age=-400),
        signed_by_standard(body) | {"webhook-id": "msg_3"},
        signed_by_standard(body) | {"webhook-timestamp": "nan"},
    ]
    answers = [await client.post(path, content=body, headers=one) for one in headers]

    assert [one.status_code for one in answers] == [202, 202, 202, 401, 401, 401, 401]
    assert len({one.json()["run_id"] for one in answers[:3]}) == 2


async def test_a_hook_that_names_no_sender_takes_no_signed_request_and_the_token_opens_its_own_path_alone(
    client: httpx2.AsyncClient, ada: Person
) -> None:
    hook, body = await hook_of(ada), json.dumps(ISSUE).encode()
    bearer = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    signed = await client.post(f"/v1/queue/webhooks/github/{hook}", content=body, headers=signed_by_github(body))
    unsigned = await client.post(f"/v1/queue/webhooks/github/{hook}", content=body, headers=bearer)
    with_token = await client.post(f"/v1/queue/hooks/{hook}/events", json={"action": "x"}, headers=bearer)
    with_signature = await client.post(f"/v1/queue/hooks/{hook}/events", content=body, headers=signed_by_github(body))
    description = (await client.get("/v1/queue/openapi.json", headers=bearer)).json()["paths"]

    answers = (signed, unsigned, with_token, with_signature)
    assert [one.status_code for one in answers] == [403, 401, 202, 401]
    assert description["/v1/queue/webhooks/{sender}/{hook_id}"]["post"]["security"] == []


class Configured:
    """A host whose only setting is that of the queue."""

    def __init__(self, webhooks: Any) -> None:
        self._webhooks = webhooks

    def setting(self, name: str) -> Any:
        return {"webhooks": self._webhooks}


def checked(webhooks: Any, headers: Mapping[str, str], body: bytes, sender: str = "one") -> Any:
    request = SignedRequest(place={"sender": sender, "hook_id": "h"}, headers=headers, body=body)
    return signed_call(cast("Host", Configured(webhooks)), request)


def test_the_examples_of_github_and_of_standard_webhooks_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1731705200.0)
    github = {"one": {"scheme": "github", "secret": SECRET}}
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    with pytest.raises(ToolFailure) as not_json:
        checked(github, {"x-hub-signature-256": signature}, b"Hello, World!")
    standard = {"one": {"scheme": "standard", "secret": KEY, "principal": "bob"}}
    headers = {
        "webhook-id": "msg_loFOjxBNrRLzqYUf",
        "webhook-timestamp": "1731705121",
        "webhook-signature": "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
    }
    call = checked(standard, headers, b'{"event_type":"ping","data":{"success":true}}')

    assert not_json.value.code == "invalid_arguments"  # the signature was right
    assert (call.principal, call.arguments["signed"]["by"]) == ("bob", "one")


@pytest.mark.parametrize(
    ("webhooks", "key"),
    [
        (["github"], "tools.queue.webhooks:"),
        ({"one": "secret"}, "tools.queue.webhooks.one:"),
        ({"one": {"scheme": "github", "secret": "short"}}, "tools.queue.webhooks.one.secret:"),
        ({"one": {"scheme": "md5", "secret": SECRET}}, "tools.queue.webhooks.one.scheme:"),
        ({"one": {"scheme": "github", "secret": SECRET, "url": "x"}}, "tools.queue.webhooks.one.url:"),
    ],
)
def test_a_wrong_entry_of_the_configuration_is_named(webhooks: Any, key: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        checked(webhooks, {}, b"{}")

    assert (failure.value.code, key in failure.value.message) == ("unavailable", True)


async def test_the_time_of_a_refusal_does_not_tell_whether_a_sender_is_known(crib: Toolcrib) -> None:
    body, took = b" " * (8 << 20), dict[str, float]()
    headers = {"webhook-timestamp": "x"}
    for name in (*SENDERS, "nobody"):
        request = SignedRequest(place={"sender": name, "hook_id": "x"}, headers=headers, body=body)
        times: list[float] = []
        for _ in range(5):
            began = time.thread_time()
            with pytest.raises(ToolFailure):
                signed_call(crib.parts.host_services, request)
            times.append(time.thread_time() - began)
        took[name] = min(times)

    assert max(took.values()) < 4 * min(took.values())  # without a hash of the body: 500 times as much
