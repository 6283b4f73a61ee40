"""Messages arrive at real receivers, and the addresses of channels are told to nobody."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MessageHandler

from rig import free_port
from toolcrib import Toolcrib
from toolcrib.config import load
from toolcrib_tools import messages
from unit.toolcrib_tools.online import gives, online

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


class Postbox(MessageHandler):
    """A mail server's letters."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[Message] = []

    def handle_message(self, message: Message) -> None:
        self.letters.append(message_from_bytes(message.as_bytes()))


@pytest.fixture
def postbox() -> Generator[tuple[Postbox, int]]:
    box = Postbox()
    port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield box, port
    finally:
        controller.stop()


def channels(**named: Any) -> dict[str, Any]:
    return {"messaging": {"channels": named}}


@pytest.mark.slow
async def test_a_message_arrives_at_a_webhook_with_title_and_level() -> None:
    async with online(messages, tools=channels(team="json://{host}/a-secret-path")) as at:
        text = await at.said("send_message", channel_id="team", content="All done", title="Build", level="success")

    [seen] = at.server.received
    body = json.loads(seen["body"])
    assert (seen["method"], seen["path"]) == ("POST", "/a-secret-path")
    assert (body["title"], body["message"], body["type"]) == ("Build", "All done", "success")
    assert text == "sent to team through JSON"


@pytest.mark.slow
async def test_a_mail_arrives_with_subject_and_text(postbox: tuple[Postbox, int]) -> None:
    box, port = postbox
    address = f"mailto://127.0.0.1:{port}?mode=insecure&from=crib@harbour.test&to=ann@harbour.test"
    async with online(messages, tools=channels(ann=address)) as at:
        await at.said("send_message", content="The **boat** is ready.", title="Boat", format="markdown")

    [letter] = box.letters
    pages = [part.get_payload(decode=True) for part in letter.walk() if part.get_content_type() == "text/html"]
    assert (letter["Subject"], letter["To"]) == ("Boat", "ann@harbour.test")
    assert b"<strong>boat</strong>" in b"".join(page for page in pages if isinstance(page, bytes))
    assert "crib@harbour.test" in letter["From"]


@pytest.mark.slow
async def test_a_channel_with_several_addresses_says_which_failed_and_which_were_sent() -> None:
    async with online(messages, tools=channels(all=["json://{host}/one", "xml://{host}/two"])) as at:
        assert await at.said("send_message", content="Hello") == "sent to all through JSON, XML"
        at.server.handlers["POST /two"] = gives("no", status=500)
        refused = await at.refused("send_message", content="Hello")

    assert refused.message == "all: XML did not take the message; it was sent through JSON"
    assert refused.details == {"sent": ["JSON"], "failed": ["XML"]}
    assert [seen["path"] for seen in at.server.received] == ["/one", "/two"] * 2


async def test_the_default_channel_takes_what_names_none_and_the_only_one_is_the_default() -> None:
    both = {"messaging": {"channels": {"a": "json://{host}/a", "b": "json://{host}/b"}}}
    with_default = {"messaging": {**both["messaging"], "default": "b"}}
    async with online(messages, tools=with_default) as at:
        assert await at.said("send_message", content="x") == "sent to b through JSON"
    async with online(messages, tools=both) as at:
        refused = await at.refused("send_message", content="x")

    assert (refused.message, refused.hint) == ("channel_id: there are several", "one of a, b")


async def test_a_channel_that_is_not_there_names_those_that_are() -> None:
    async with online(messages, tools=channels(team="json://{host}/a", ann="json://{host}/b")) as at:
        refused = await at.refused("send_message", content="x", channel_id="tem")
        blank = await at.refused("send_message", content=" \n", channel_id="team")

    assert refused.message == "channel_id: there is no 'tem'; did you mean 'team'?"
    assert refused.hint == "there are team, ann"
    assert blank.message == "content: it is blank"
    assert at.server.received == []


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ({}, "send_message needs the setting tools.messaging.channels,"),
        ({"messaging": {"channels": ["json://x"]}}, "the setting tools.messaging.channels is not a mapping"),
        (channels(team=7), "the setting tools.messaging.channels.team is not an address"),
        (channels(team=[]), "the setting tools.messaging.channels.team is not an address"),
        (channels(team="sesame-open://x"), "the setting tools.messaging.channels.team is not an address that Apprise"),
        (
            channels(team=["json://{host}/a", "no"]),
            "the setting tools.messaging.channels.team[1] is not an address that",
        ),
    ],
)
async def test_a_setting_that_cannot_be_used_is_named_without_its_value(tools: dict[str, Any], message: str) -> None:
    async with online(messages, tools=tools) as at:
        refused = await at.refused("send_message", content="x")

    assert (refused.code, refused.message[: len(message)]) == ("unavailable", message)
    assert "sesame-open" not in f"{refused}"
    assert at.server.received == []


async def test_a_message_that_is_too_long_for_the_service_arrives_in_several() -> None:
    long = "\n".join(f"line {number}" for number in range(9_000))[:40_000].strip()
    async with online(
        messages, tools=channels(team="json://{host}/a", whole="json://{host}/b?overflow=upstream")
    ) as at:
        await at.said("send_message", content=long, channel_id="team")
        await at.said("send_message", content=long, channel_id="whole")

    arrived = [(seen["path"], json.loads(seen["body"])["message"]) for seen in at.server.received]
    assert [path for path, _ in arrived] == ["/a", "/a", "/b"]
    assert "".join("".join(text for path, text in arrived if path == "/a").split()) == "".join(long.split())
    assert arrived[-1][1] == long


async def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    async with online(messages, tools=channels(team="json://{host}/a")) as at:
        refused = await at.refused("send_message", content="x")

    assert (refused.code, refused.details) == ("unavailable", {"needs": "the extra `messaging`"})


async def test_what_the_configuration_says_of_channels_and_services_is_masked_wherever_it_turns_up(
    tmp_path: Path,
) -> None:
    config = tmp_path / "toolcrib.yaml"
    config.write_text(
        "tools:\n"
        "  messaging: {channels: {team: ['discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV']}}\n"
        "  web: {search: {brave_key: BSA-71uT9pQ2}}\n"
    )

    def leak() -> str:
        """Say what nobody is to know."""
        return "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV or JHMHI8qBe7bk2ZwO5U711o3dV or BSA-71uT9pQ2"

    async with Toolcrib(load([config]), memory=True) as crib:
        crib.add(leak)
        text = (await crib.session(profile="flat", mode="autonomous").call("leak", {})).text

    assert "JHMHI8qBe7bk2ZwO5U711o3dV" not in text
    assert "BSA-71uT9pQ2" not in text
