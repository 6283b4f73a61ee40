"""Who gets past the edge: Host, Origin and token, by exact parsed match."""

import pytest

from toolcrib.config.settings import TokenSpec
from toolcrib.errors import UsageError
from toolcrib.mcp.server.http_messages import Refusal, accepts_json_and_stream, is_json
from toolcrib.server.request_checks import Authority, FailedAttempts, RequestLimits


def _status(edge: RequestLimits, *headers: tuple[str, str], address: str = "192.0.2.1") -> int:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    try:
        edge.admit({"headers": raw, "client": (address, 40000)})
    except Refusal as refusal:
        return refusal.status
    return 200


LOCAL = RequestLimits(Authority("", host="127.0.0.1"), host="127.0.0.1", origins=["https://app.example"])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8737", 200),
        ("localhost:8737", 200),
        ("LOCALHOST", 200),
        ("[::1]:8737", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8737", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.0.0.1@evil.example", 421),
        ("evil.example#127.0.0.1", 421),
        ("127.0.0.1:99999", 421),
        ("127.0.0.1:", 421),
        ("127.0.0.1:80:80", 421),
        ("127.0.0.2", 421),
        ("0.0.0.0", 421),
        ("", 421),
    ],
)
def test_a_loopback_server_answers_to_loopback_names_only(host: str, status: int) -> None:
    assert _status(LOCAL, ("host", host)) == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8737", 200),
        ("https://app.example", 200),
        ("https://APP.example", 200),
        ("null", 403),
        ("", 403),
        ("http://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("http://127.0.0.1:8737@evil.example", 403),
        ("http://evil.example/http://127.0.0.1:8737", 403),
        ("http://127.0.0.1:8737/", 403),
        ("http://127.0.0.1:9999", 403),
        ("http://localhost:8737", 403),
        ("file://127.0.0.1:8737", 403),
        ("https://app.example.evil.example", 403),
        ("http://app.example", 403),
    ],
)
def test_a_page_may_call_only_from_our_own_origin_or_a_configured_one(origin: str, status: int) -> None:
    assert _status(LOCAL, ("host", "127.0.0.1:8737"), ("origin", origin)) == status


def test_the_refusal_of_a_host_or_an_origin_names_what_arrived() -> None:
    for headers, named in (
        ([(b"host", b"upstream")], "'upstream'"),
        ([(b"host", b"localhost"), (b"origin", b"https://a.example")], "'https://a.example'"),
    ):
        with pytest.raises(Refusal, match=named):
            LOCAL.admit({"headers": headers})


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "content-type", "mcp-method", "mcp-param-x"])
def test_a_header_that_decides_something_may_be_given_once(name: str) -> None:
    twice = [("host", "localhost")] * (name != "host") + [(name, "localhost")] * 2
    assert _status(LOCAL, *twice) == 400


def test_a_server_that_others_can_reach_needs_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.com"):
        with pytest.raises(UsageError):
            Authority("", host=host)
        assert Authority("secret", host=host).principal.startswith("token-")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer s3cret", 200),
        ("bearer s3cret", 200),
        ("Bearer s3cret2", 401),
        ("Bearer s3cre", 401),
        ("Bearer ", 401),
        ("Basic s3cret", 401),
        ("s3cret", 401),
    ],
)
def test_only_the_right_bearer_token_opens_a_guarded_server(authorization: str, status: int) -> None:
    edge = RequestLimits(Authority("s3cret", host="0.0.0.0"), host="0.0.0.0")
    assert _status(edge, ("host", "gateway.example:8737"), ("authorization", authorization)) == status
    assert _status(edge, ("host", "gateway.example:8737")) == 401


def test_a_refused_caller_is_told_how_to_authenticate() -> None:
    edge = RequestLimits(Authority("s3cret", host="127.0.0.1"), host="127.0.0.1")
    with pytest.raises(Refusal) as refused:
        edge.admit({"headers": [(b"host", b"localhost"), (b"authorization", b"Bearer nope")]})
    assert dict(refused.value.headers) == {b"www-authenticate": b'Bearer realm="toolcrib", error="invalid_token"'}


def test_an_address_that_sends_many_wrong_tokens_waits_but_nobody_with_a_token_that_cannot_be_guessed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    long = "token-of-sixteen"
    edge = RequestLimits(Authority("s3cret", host="0.0.0.0", tokens=[TokenSpec(token=long)]), host="0.0.0.0")

    def status(token: str, address: str = "192.0.2.1") -> int:
        return _status(edge, ("host", "gateway.example"), ("authorization", f"Bearer {token}"), address=address)

    assert [status(f"wrong-{number}") for number in range(22)] == [401] * 20 + [429] * 2
    assert ["192.0.2.1" in record.getMessage() for record in caplog.records] == [True]
    assert [status(token) for token in ("s3cret", long)] == [429, 200]
    assert [status(token, "192.0.2.2") for token in ("s3cret", "wrong")] == [200, 401]
    assert _status(edge, ("host", "gateway.example")) == 401
    with pytest.raises(Refusal) as refused:
        edge.identify(b"Bearer wrong", {"client": ("192.0.2.1", 1)})
    assert dict(refused.value.headers) == {b"retry-after": b"6"}


def test_failures_count_for_a_while_by_network_and_for_as_many_addresses_as_fit() -> None:
    now = 0.0
    failed = FailedAttempts(lambda: now)

    def waits(*hosts: str) -> list[float]:
        return [failed.wait({"client": (host, 1)}) for host in hosts]

    for number in range(20):
        failed.add({"client": (f"2001:db8::{number}", 1)})
        failed.add({"client": ("::ffff:192.0.2.1", 1)})
        failed.add({"client": None})
    assert waits("2001:db8::ff", "2001:db8:0:1::1", "192.0.2.1") == [6, 0, 6]
    assert failed.wait({"client": None}) == 6
    now = 6.0
    assert waits("2001:db8::1") == [0]
    failed.add({"client": ("2001:db8::1", 1)})
    assert waits("2001:db8::1") == [6]
    for number in range(4096):
        failed.add({"client": (f"10.0.{number >> 8}.{number & 255}", 1)})
    assert waits("2001:db8::1") == [0]


def test_configured_names_are_the_only_ones_where_names_are_configured() -> None:
    edge = RequestLimits(Authority("s3cret", host="0.0.0.0"), host="0.0.0.0", hosts=["tools.example"])
    bearer = ("authorization", "Bearer s3cret")
    assert _status(edge, ("host", "tools.example"), bearer) == 200
    assert _status(edge, ("host", "other.example"), bearer) == 421


def test_a_token_that_no_header_can_carry_is_refused_at_once() -> None:
    with pytest.raises(UsageError):
        Authority("two words", host="127.0.0.1")


@pytest.mark.parametrize(
    ("content_type", "taken"),
    [
        (b"application/json", True),
        (b"application/json; charset=utf-8", True),
        (b'Application/JSON; charset="UTF-8"', True),
        (b"application/json; charset=utf-16", False),
        (b"application/json-patch+json", False),
        (b"text/plain", False),
        (b"text/plain; application/json", False),
        (b"", False),
    ],
)
def test_a_body_must_be_declared_as_json_in_utf_8(content_type: bytes, taken: bool) -> None:
    assert is_json(content_type) is taken


@pytest.mark.parametrize(
    ("accept", "taken"),
    [
        (b"application/json, text/event-stream", True),
        (b"text/event-stream;q=0.5,application/json", True),
        (b"*/*", True),
        (b"application/json", False),
        (b"text/event-stream", False),
        (b"", False),
    ],
)
def test_a_post_must_accept_json_and_a_stream(accept: bytes, taken: bool) -> None:
    assert accepts_json_and_stream(accept) is taken
