"""What is a description is taken, and what is none says why."""

import pytest

from toolcrib.errors import UsageError
from toolcrib.sources.openapi.description import is_openapi, parse


@pytest.mark.parametrize(
    ("value", "is_one"),
    [({"openapi": "3.1.0"}, True), ({"swagger": "2.0"}, True), ({"mcpServers": {}}, False), ([], False), (None, False)],
)
def test_a_description_is_known_by_its_first_key(value: object, is_one: bool) -> None:
    assert is_openapi(value) is is_one


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"swagger": "1.2"}', "not version 1.2; convert it to OpenAPI 3 first"),
        (b'{"openapi": "4.0.0"}', "not version 4.0.0"),
        (b'{"info": {}}', "has no key `openapi`"),
        (b'{"openapi": "3.0.0", "paths": []}', "`paths` must be a mapping"),
        (b'{"openapi": ', "spec.json: "),
        (b"[1]", "has no key `openapi`"),
        (b"a: b: c", "line 1: mapping values are not allowed"),
        (b"openapi: 3.0.0\ninfo:\n\ttitle: x", "line 3: a tab"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'{"a": "\xe9"}', "not UTF-8 at byte 7"),
        (b"[" * 100_000, "nested deeper than"),
        (b'{"a":' * 100_000, "spec.json: "),
    ],
)
def test_what_is_no_description_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(data, "spec.json")

    assert reason in str(caught.value)
    assert str(caught.value).startswith("spec.json: ")
