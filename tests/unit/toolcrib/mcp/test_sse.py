from pathlib import Path

import pytest

from toolcrib.mcp.client.spec import McpLimits
from toolcrib.mcp.sse import Event, EventReader
from toolcrib.mcp.stdio import Flood, SpooledMessage

SMALL = McpLimits(noise_bytes=100, memory_bytes=1000, inline_bytes=5000, spool_bytes=20_000)


@pytest.mark.parametrize("step", [1, 2, 5, 1000])
def test_events_are_the_same_however_the_bytes_arrive(tmp_path: Path, step: int) -> None:
    stream = (
        b": comment\r\n\r\nid: 1\nretry: 250\ndata: \n\n"
        b'event: message\r\nid: 2\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
        b"event: endpoint\ndata:/messages?x=1\n\ndata: unfinished"
    )
    reader = EventReader(SMALL, tmp_path)

    events = [event for at in range(0, len(stream), step) for event in reader.feed(stream[at : at + step])]

    data = [
        event.data if isinstance(event.data, SpooledMessage) else event.data.replace(b"\r", b"") for event in events
    ]
    assert [event.name for event in events] == ["message", "message", "endpoint"]
    assert data == [b"", b'{"a":\n 1}', b"/messages?x=1"]
    assert (reader.last_id, reader.retry) == ("2", 0.25)


def test_a_large_event_waits_on_disk(tmp_path: Path) -> None:
    reader = EventReader(SMALL, tmp_path)
    message = b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 8000 + b'"}'

    (event,) = reader.feed(b"data: " + message + b"\n\n")

    assert isinstance(event.data, SpooledMessage)
    assert event.data.path.read_bytes().strip() == message


@pytest.mark.parametrize("stream", [b"data: " + b"y" * 200, b"y" * 200, b": " + b"y" * 200])
def test_what_cannot_be_an_event_is_a_flood(tmp_path: Path, stream: bytes) -> None:
    with pytest.raises(Flood):
        EventReader(SMALL, tmp_path).feed(stream)


def test_small_events_do_not_touch_each_other(tmp_path: Path) -> None:
    reader = EventReader(SMALL, tmp_path)

    assert reader.feed(b"event: a\ndata: 1\n\ndata: 2\n\n") == [
        Event(name="a", data=b"1"),
        Event(name="message", data=b"2"),
    ]
