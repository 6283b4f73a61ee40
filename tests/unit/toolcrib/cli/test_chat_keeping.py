"""Conversations on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import load
from toolcrib.errors import ConfigError, UsageError
from toolcrib.results.redaction.redactor import Redactor
from toolcrib_agent.chat.chat_session import Chats, SavedChat

SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def chats(tmp_path: Path) -> Chats:
    return Chats(load((), {}, {"HOME": str(tmp_path)}, cwd=tmp_path), Redactor([SECRET]))


def folder(tmp_path: Path) -> Path:
    return tmp_path / ".local" / "share" / "toolcrib" / "chats"


def chat(id: str, **more: Any) -> SavedChat:
    return SavedChat(id=id, folder="/project", title="How it began", **more)


def test_the_newest_conversation_comes_first_and_a_folder_has_its_own(chats: Chats) -> None:
    for id in ("aaaa1", "bbbb2"):
        chats.save(chat(id), [])
    chats.save(SavedChat(id="cccc3", folder="/elsewhere"), [])

    assert [one.id for one in chats.all("/project")] == ["bbbb2", "aaaa1"]
    assert len(chats.all()) == 3


def test_a_conversation_is_found_by_the_beginning_of_its_id(chats: Chats) -> None:
    saved = chats.save(chat("abcd1234"), [{"kind": "request", "parts": []}])

    assert chats.find("abcd") == saved
    assert chats.messages(saved) == [{"kind": "request", "parts": []}]


@pytest.mark.parametrize("id", ["abcd", "ffff", "../x", "", "*"])
def test_an_id_that_means_none_or_several_is_refused(chats: Chats, id: str) -> None:
    chats.save(chat("abcd1"), [])
    chats.save(chat("abcd2"), [])

    with pytest.raises(UsageError):
        chats.find(id)


def test_a_broken_file_hides_no_other_and_is_named_when_it_is_wanted(chats: Chats, tmp_path: Path) -> None:
    good, half = chats.save(chat("abcd1"), []), chats.save(chat("abcd2"), [])
    broken = ["", "{", "[]", '{"version": 2}', '{"version": 1, "id": "eeee", "folder": "/", "changed": "never"}']
    for number, text in enumerate(broken):
        (folder(tmp_path) / f"eeee{number}.jsonl").write_text(text)
    path = folder(tmp_path) / "abcd2.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\nnothing\n")

    assert [one.id for one in chats.all()] == ["abcd2", "abcd1"]
    assert chats.messages(good) == []
    with pytest.raises(ConfigError, match=r"abcd2\.jsonl"):
        chats.messages(half)


def test_secrets_are_masked_in_all_that_was_said_and_what_is_opaque_stays(chats: Chats) -> None:
    image = {"kind": "binary", "data": SECRET, "media_type": "image/png"}
    said = [
        {
            "kind": "request",
            "instructions": SECRET,
            "parts": [{"part_kind": "user-prompt", "content": [SECRET, image]}],
        },
        {
            "kind": "response",
            "parts": [
                {"part_kind": "thinking", "content": SECRET, "signature": SECRET},
                {"part_kind": "tool-call", "tool_call_id": "c1", "args": {"data": SECRET, "id": SECRET}},
                {"part_kind": "text", "content": f"it is {SECRET}"},
            ],
        },
    ]

    (request, response) = chats.messages(chats.save(chat("abcd1"), said))

    assert SECRET not in str(request["instructions"])
    assert SECRET not in request["parts"][0]["content"][0]
    assert request["parts"][0]["content"][1] == image
    thinking, call, text = response["parts"]
    assert (SECRET in thinking["content"], thinking["signature"]) == (False, SECRET)
    assert SECRET not in str(call["args"])
    assert text["content"].startswith("it is ")
    assert SECRET not in text["content"]
