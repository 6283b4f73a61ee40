"""Which token is whom, and what they may do."""

import pytest

from toolcrib.config.settings import TokenSpec
from toolcrib.errors import UsageError
from toolcrib.server.request_checks import Authority, Caller

ADA = TokenSpec(token="ada-token", principal="ada", instances=("shop",))
BOB = TokenSpec(token="bob-token", principal="bob", scope="admin", instances=("a", "b"))


def _bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def test_each_token_is_a_caller_of_its_own() -> None:
    authority = Authority("plain", host="0.0.0.0", admin_token="root", tokens=[ADA, BOB])
    plain, root = authority.caller_of(_bearer("plain")), authority.caller_of(_bearer("root"))

    assert plain is not None
    assert root is not None
    assert (plain.scope, plain.instances, root.scope, root.instances) == ("call", (), "admin", ())
    assert plain.principal != root.principal
    assert authority.caller_of(_bearer("ada-token")) == Caller(principal="ada", instances=("shop",))
    assert authority.caller_of(_bearer("bob-token")) == Caller(principal="bob", scope="admin", instances=("a", "b"))
    for stranger in (None, b"", b"Basic plain", _bearer(""), _bearer("plai"), _bearer("plain2")):
        assert authority.caller_of(stranger) is None


def test_without_a_token_for_calls_everybody_here_is_the_local_user_and_only_a_token_administers() -> None:
    authority = Authority("", host="127.0.0.1", admin_token="root")
    anybody, root = authority.caller_of(None), authority.caller_of(_bearer("root"))

    assert anybody == Caller(principal="local", instances=("*",))
    assert root is not None
    assert root.scope == "admin"
    assert authority.caller_of(_bearer("guessed")) is None


def test_a_token_for_administration_alone_opens_no_server_to_other_machines() -> None:
    with pytest.raises(UsageError, match="can be reached from other machines"):
        Authority("", host="0.0.0.0", admin_token="root")
    assert Authority("", host="0.0.0.0", tokens=[ADA]).caller_of(None) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_where_the_only_person_with_a_token_administers_nobody_else_gets_in(host: str) -> None:
    authority = Authority("", host=host, tokens=[BOB])

    assert (authority.caller_of(None), authority.principal) == (None, "bob")
    assert authority.caller_of(_bearer("bob-token")) == Caller(principal="bob", scope="admin", instances=("a", "b"))


@pytest.mark.parametrize(
    ("admin", "named"),
    [
        ("plain", "the tokens of number 1, of scope call and number 3, of scope admin are equal"),
        ("ada-token", "the tokens of 'ada' and number 3, of scope admin are equal"),
    ],
)
def test_one_token_for_two_scopes_is_refused_with_the_names_of_both(admin: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Authority("plain", host="127.0.0.1", admin_token=admin, tokens=[ADA])


def test_a_caller_is_the_instances_of_its_token_and_by_default_the_only_one() -> None:
    one, two, every = (Caller(principal="p", instances=given) for given in (("a",), ("a", "b"), ("*",)))

    assert [caller.own for caller in (one, two, every)] == ["a", "", ""]
    assert [caller.may_be("b") for caller in (one, two, every)] == [False, True, True]
