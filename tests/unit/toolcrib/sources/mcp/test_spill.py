import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.core.result import SpooledResult
from toolcrib.mcp.client.spooled_result import convert, id_of_big
from toolcrib.mcp.stdio import SpooledMessage

MEGABYTE = 1024 * 1024


def big(folder: Path, message: bytes) -> SpooledMessage:
    path = folder / "incoming"
    path.write_bytes(message)
    return SpooledMessage(path=path, size=len(message))


def answer(content: Any, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"content": content, **more}}).encode()


def text_block(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


UNITS = ["plain ", "line\nline\n", 'quote " and \\ back\\\\slash ', "\u00e4\u20ac", "\\ud83d not a surrogate", "\\"]
CASES = [
    *((unit, ascii_only, 1) for unit in UNITS for ascii_only in (True, False)),
    *(("\U0001f600", True, shift) for shift in range(12)),
    *(("\U0001f600", False, shift) for shift in range(4)),
]


@pytest.mark.parametrize(("unit", "ascii_only", "shift"), CASES)
def test_the_text_of_a_large_result_is_decoded_exactly(tmp_path: Path, unit: str, ascii_only: bool, shift: int) -> None:
    text = "." * shift + unit * (MEGABYTE // len(unit.encode()) + 1000)
    result = {"content": text_block(text), "isError": False}
    message = json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}, ensure_ascii=ascii_only).encode()

    spilled = convert(big(tmp_path, message), tmp_path)

    assert spilled.spooled.path.read_bytes() == text.encode()
    assert spilled.spooled == SpooledResult(
        path=spilled.spooled.path,
        size=len(text.encode()),
        mime_type="text/plain",
        head=text[:2000],
        tail=text[-2000:],
    )
    assert not spilled.is_error
    assert [path.name for path in tmp_path.iterdir()] == [spilled.spooled.path.name]
    assert spilled.spooled.path.stat().st_mode & 0o777 == 0o600


def test_a_large_result_of_another_shape_is_kept_as_json(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "a" * MEGABYTE}, {"type": "image", "data": "b", "mimeType": "image/png"}]
    message = answer(content, isError=True)

    spilled = convert(big(tmp_path, message), tmp_path)

    assert json.loads(spilled.spooled.path.read_bytes()) == {"content": content, "isError": True}
    assert (spilled.spooled.mime_type, spilled.is_error) == ("application/json", True)


def test_members_after_the_result_do_not_become_part_of_it(tmp_path: Path) -> None:
    result: dict[str, Any] = {"structuredContent": {"rows": ["r" * 100] * 10_000}, "content": []}
    message = json.dumps({"jsonrpc": "2.0", "result": result, "id": 7}).encode()

    spilled = convert(big(tmp_path, message), tmp_path)

    assert json.loads(spilled.spooled.path.read_bytes()) == result


@pytest.mark.parametrize("late", [True, False])
def test_a_large_failure_is_known_as_one(tmp_path: Path, late: bool) -> None:
    blocks = text_block("e" * MEGABYTE)
    result = {"content": blocks, "isError": True} if late else {"isError": True, "content": blocks}
    message = json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}).encode()

    assert convert(big(tmp_path, message), tmp_path).is_error


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"id":8}}', 7),
        (b'{"result":{"content":[{"id":8}]},"id":7,"jsonrpc":"2.0"}', 7),
        (b'{"id":"seven","error":{"code":1}}', "seven"),
        (b'{"method":"notifications/message","params":{"id":8}}', None),
        (b'{"result":{"id":8}}', None),
    ],
)
def test_the_id_is_that_of_the_message_and_not_one_inside(tmp_path: Path, message: bytes, key: Any) -> None:
    assert id_of_big(big(tmp_path, message)) == key


def test_text_that_does_not_end_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    message = b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"' + b"x" * MEGABYTE

    with pytest.raises(ValueError, match="does not end"):
        convert(big(tmp_path, message), tmp_path)

    assert list(tmp_path.iterdir()) == []
