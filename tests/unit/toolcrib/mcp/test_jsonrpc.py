"""JSON-RPC messages of clients: accepted and refused text."""

import json

import pytest

from toolcrib.mcp.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    Notification,
    Request,
    Response,
    RpcError,
    error_message,
    parse,
    result_message,
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"jsonrpc":"2.0","id":1,"method":"ping"}',
            Request(id=1, method="ping", params={}),
        ),
        (
            '{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"x": 1.5}}\n',
            Request(id="a", method="tools/call", params={"x": 1.5}),
        ),
        (
            '{"jsonrpc":"2.0","method":"notifications/initialized"}',
            Notification(method="notifications/initialized", params={}),
        ),
        ('{"jsonrpc":"2.0","id":"q","result":{"a":1}}', Response(id="q", result={"a": 1})),
        (
            '{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}',
            Response(id=7, result={}, error={"code": -1, "message": "no"}),
        ),
    ],
)
def test_a_message_is_read_as_what_it_is(text: str, message: object) -> None:
    assert parse(text.encode()) == message


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc": ',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"big":18446744073709551616}}',
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":{"b":1,"b":1}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
        b"",
    ],
)
def test_text_that_two_readers_could_take_differently_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(RpcError) as refused:
        parse(text)
    assert refused.value.code == PARSE_ERROR


@pytest.mark.parametrize(
    "value",
    [
        [],
        [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
        "ping",
        {"id": 1, "method": "ping"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
        {"jsonrpc": "2.0", "id": 1, "result": 5},
    ],
)
def test_json_that_is_no_single_message_is_an_invalid_request(value: object) -> None:
    with pytest.raises(RpcError) as refused:
        parse(json.dumps(value).encode())
    assert refused.value.code == INVALID_REQUEST


def test_what_is_written_reads_back_as_the_same_message() -> None:
    assert json.loads(result_message("é", b'{"a":[1]}')) == {"jsonrpc": "2.0", "id": "é", "result": {"a": [1]}}
    assert json.loads(error_message(None, RpcError(-1, "no", {"x": 1}))) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -1, "message": "no", "data": {"x": 1}},
    }
