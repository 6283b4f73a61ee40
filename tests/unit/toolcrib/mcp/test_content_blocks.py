"""Content of a server's results: its fields are checked before anything reads them, and their number is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.errors import ToolFailure
from toolcrib.mcp.client.content_blocks import MOST_BLOCKS, content_blocks

TEXT = {"type": "text", "text": "a"}
BROKEN: list[Any] = [
    *(5, "x", None, [], {}, {"type": 5}, {"type": "text"}, {"type": "text", "text": 5}),
    *({"type": kind, "data": data} for kind in ("image", "audio", "later") for data in (5, [1], {"a": 1})),
    {"type": "image", "data": "AAAA", "mimeType": 5},
    *({"type": "resource", "resource": value} for value in (5, "x", None, [1], {"uri": 5}, {"uri": "x:y", "blob": 7})),
    {"type": "resource_link", "uri": {"a": 1}},
]
SLOPPY: list[Any] = [
    {"type": "image", "data": None, "mimeType": None},
    {"type": "resource", "resource": {"uri": "x:y", "text": "a", "blob": None}},
    {"type": "later"},
]


@pytest.mark.parametrize("block", BROKEN, ids=str)
def test_a_block_with_a_field_of_another_type_is_a_fault_of_the_server(block: Any) -> None:
    with pytest.raises(ToolFailure) as refused:
        content_blocks([TEXT, block])

    assert refused.value.code == "tool_error"


def test_a_field_that_is_missing_or_null_is_taken() -> None:
    assert content_blocks(SLOPPY) == tuple(SLOPPY)


def test_more_texts_than_a_result_may_have_become_one() -> None:
    texts = [{"type": "text", "text": str(number)} for number in range(MOST_BLOCKS + 1)]

    assert content_blocks(texts[:-1]) == tuple(texts[:-1])
    assert content_blocks(texts) == ({"type": "text", "text": "\n".join(map(str, range(MOST_BLOCKS + 1)))},)


def test_more_blocks_of_which_one_is_no_text_are_too_large() -> None:
    with pytest.raises(ToolFailure) as refused:
        content_blocks([TEXT] * MOST_BLOCKS + [{"type": "image", "data": "AAAA"}])

    assert refused.value.code == "too_large"
