"""What comes from a language server and goes to it: messages, places in texts, and what the configuration says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib_tools.lsp.documents import Lines, wide
from toolcrib_tools.lsp.protocol import MOST_BYTES, Frames, ProtocolError, packed
from toolcrib_tools.lsp.settings import read_settings

ONE: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": "é😀"}
TWO: dict[str, Any] = {"jsonrpc": "2.0", "method": "two"}


# Messages


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_messages_come_out_whole_whatever_the_pieces(size: int) -> None:
    stream, frames = packed(ONE) + packed(TWO) + packed(ONE), Frames()

    found = [one for at in range(0, len(stream), size) for one in frames.feed(stream[at : at + size])]

    assert found == [ONE, TWO, ONE]


def test_other_headers_and_cases_are_as_good() -> None:
    body = b'{"a":1}'
    header = b"content-type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:7\r\n\r\n"

    assert Frames().feed(header + body) == [{"a": 1}]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"Welcome!\n", "its stdout is not JSON-RPC: 'Welcome!\\n'"),
        (b"Content-Length: x\r\n\r\n", "it sent a header that tells no length"),
        (b"Content-Type: a\r\n\r\n", "it sent a header that tells no length"),
        (b"Content-" + b"a" * 5_000, "it sent a header without an end"),
        (b"Content-Length: 99999999\r\n\r\n", "it sent a message of 99,999,999 bytes, and 32 MiB are the most"),
        (b"Content-Length: 2\r\n\r\n{]", "it sent a message that is not JSON: '{]'"),
        (b"Content-Length: 2\r\n\r\n[]", "it sent a message that is not an object: '[]'"),
        (b"Content-Length: 3000\r\n\r\n" + b"[" * 3_000, "it sent a message that is not JSON"),
    ],
)
def test_what_is_no_message_is_told_as_soon_as_it_is_seen(stream: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError) as garbage:
        Frames().feed(stream)

    assert str(garbage.value).startswith(reason)
    assert len(str(garbage.value)) < 400
    assert MOST_BYTES == 32 << 20


# Places


def test_a_place_counts_utf_16_there_and_characters_here() -> None:
    lines = Lines("a\r\n😀é😀b\rlast")

    assert [lines.line(number) for number in range(len(lines))] == ["a", "😀é😀b", "last"]
    assert [lines.offset(1, character) for character in (0, 2, 3, 5, 6)] == [3, 4, 5, 6, 7]
    assert [lines.column(1, character) for character in (0, 2, 3, 5, 6)] == [1, 2, 3, 4, 5]
    assert [lines.position(offset) for offset in (0, 4, 6, 8)] == [
        {"line": 0, "character": 0},
        {"line": 1, "character": 2},
        {"line": 1, "character": 5},
        {"line": 2, "character": 0},
    ]
    assert wide("😀é") == 3


def test_a_place_beyond_an_end_is_that_end_and_within_a_pair_it_is_before_it() -> None:
    lines = Lines("😀\nab")

    assert (lines.offset(0, 1), lines.offset(0, 99), lines.offset(1, 99), lines.offset(9, 0)) == (0, 1, 4, 4)
    assert lines.line(9) == ""


def test_every_place_of_a_text_comes_back() -> None:
    text = "x😀\r\n\n\ry\U0010ffff𝒳é\n"
    lines = Lines(text)

    for offset, character in enumerate(text):
        if character != "\n" or text[offset - 1 : offset] != "\r":  # within CRLF is no place
            place = lines.position(offset)
            assert lines.offset(place["line"], place["character"]) == offset


# The configuration


def test_a_server_is_read_with_all_that_is_said_of_it() -> None:
    said = read_settings(
        {
            "servers": {
                "ts": {
                    "command": ["tsc", "--lsp"],
                    "files": ["*.ts", "*.tsx"],
                    "environment": {"N": 1},
                    "options": {"a": [1]},
                    "readable": ["/opt/ts"],
                    "seconds": 5,
                    "settings": {"ts": {"format": {"semicolons": "insert"}}},
                    "writes": True,
                },
                "go": {"command": "gopls", "files": "*.go"},
            }
        }
    )
    ts, go = said.servers

    assert said.problems == ()
    assert (ts.name, ts.command, dict(ts.environment), ts.options) == ("ts", ("tsc", "--lsp"), {"N": "1"}, {"a": [1]})
    assert (ts.readable, ts.seconds, ts.writes) == ((Path("/opt/ts"),), 5.0, True)
    assert (go.command, go.seconds, go.writes) == (("gopls",), 60.0, False)
    assert [name for name in ("a.ts", "src/b.tsx", "a.js") if ts.takes(name)] == ["a.ts", "src/b.tsx"]
    assert (ts.language("a.tsx"), go.language("a.go"), go.language("a.gotmpl")) == ("typescriptreact", "go", "go")
    assert (ts.section("ts.format.semicolons"), ts.section("ts.format.none"), ts.section("other")) == (
        "insert",
        None,
        None,
    )
    assert ts.section("") == {"ts": {"format": {"semicolons": "insert"}}}


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ("pyright", ": command and files are needed"),
        ({"files": ["*.py"]}, ".command: a list of texts is needed, such as [pyright-langserver, --stdio]"),
        ({"command": [], "files": ["*.py"]}, ".command: a list of texts is needed"),
        ({"command": ["a", 1], "files": ["*.py"]}, ".command: a list of texts is needed"),
        ({"command": ["a"]}, '.files: a list of texts is needed, such as ["*.py"]'),
        ({"command": ["a"], "files": ["{a"]}, ".files: "),
        ({"command": ["a"], "files": ["*"], "file": 1}, ".file: there is no such key, only command, environment"),
        ({"command": ["a"], "files": ["*"], "seconds": 0}, ".seconds: a number of seconds up to 600"),
        ({"command": ["a"], "files": ["*"], "seconds": True}, ".seconds: a number of seconds up to 600"),
        ({"command": ["a"], "files": ["*"], "writes": "no"}, ".writes: true or false is needed, not 'no'"),
        ({"command": ["a"], "files": ["*"], "settings": []}, None),
        ({"command": ["a"], "files": ["*"], "settings": ["x"]}, ".settings: a mapping is needed"),
        ({"command": ["a"], "files": ["*"], "environment": "x"}, ".environment: a mapping is needed, not 'x'"),
        ({"command": ["a"], "files": ["*"], "options": {1, 2}}, ".options: options and settings are plain JSON"),
        ({"command": ["a"], "files": ["*"], "readable": ["lib"]}, ".readable: a path from the root on is needed"),
    ],
)
def test_what_is_wrong_is_told_with_its_key_and_hides_nothing_else(server: Any, problem: str | None) -> None:
    said = read_settings({"servers": {"bad": server, "good": {"command": ["gopls"], "files": ["*.go"]}}})

    if problem is None:
        assert (said.problems, len(said.servers)) == ((), 2)
    else:
        assert [one.name for one in said.servers] == ["good"]
        assert len(said.problems) == 1
        assert said.problems[0].startswith(f"tools.lsp.servers.bad{problem}")


@pytest.mark.parametrize(
    ("setting", "problems"),
    [
        (None, ()),
        ({}, ()),
        ([], ("tools.lsp: a mapping with the key servers is needed",)),
        ({"server": {}}, ("tools.lsp.server: there is no such key, only servers",)),
        (
            {"servers": ["pyright"]},
            ("tools.lsp.servers: a mapping of a server's name to its command and files is needed",),
        ),
    ],
)
def test_a_configuration_without_servers_says_why(setting: Any, problems: tuple[str, ...]) -> None:
    said = read_settings(setting)

    assert (said.servers, said.problems) == ((), problems)
