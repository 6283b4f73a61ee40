"""A secret that comes in pieces is masked as if it had come whole, and other text is not held back."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.results.redaction.output import RedactedStream
from toolcrib.results.redaction.redactor import Redactor
from toolcrib.results.redaction.search import encoded_forms
from toolcrib.results.untrusted_text import visible_text

OWN = "correct horse/battery+staple 7ß"
REDACTOR = Redactor([OWN])
TOKENS = {
    "github_token": "ghp_" + "A1b2C3d4E5f6" * 3,
    "aws_key": "AKIAB2C3D4E5F6G7H2J3",
    "jwt": "eyJ" + "aB3dE5" * 8 + ".eyJ" + "xY7z" * 12 + "." + "Q2w3" * 10,
    "slack_token": "xoxb-27182818284-314159265358-R5tYq8LmNw2ZxCv7BnKj4HgF",
    "secret": OWN,
    "unknown": "MflR9b6aQg5PZDDbP5La15o0SvRep5SrYW3hk9mf",
    "private_key": "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkq\n" * 20 + "-----END PRIVATE KEY-----",
}
PLACES = (
    "{}",
    "INFO using {} now\n",
    "password: {}\n",
    "Authorization: Bearer {}\nAccept: */*",
    "https://api.test/v1?x={}&y=1",
    '{{"api_key": "{}"}}',
    "API_KEY={}",
    "\x1b[1mAuthorization: Bearer {}",
)


def streamed(pieces: Sequence[str], redactor: Redactor = REDACTOR) -> list[str]:
    """What is given on after each piece, and at the end."""
    stream = RedactedStream(redactor)
    return [*(stream.add(piece) for piece in pieces), stream.end()]


def parts(text: str, rng: random.Random, longest: int = 9) -> list[str]:
    """`text` in pieces of any length."""
    cut: list[str] = []
    while text:
        size = rng.randint(1, longest)
        cut.append(text[:size])
        text = text[size:]
    return cut


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", TOKENS)
def test_a_secret_in_pieces_of_any_length_does_not_get_out(kind: str, place: str) -> None:
    rng, secret = random.Random(f"{kind} {place}"), TOKENS[kind]
    before, after = "some words before ", " and some after"
    text = before + place.format(secret) + after
    whole = REDACTOR.text(text)
    windows = {secret[start : start + 8] for start in range(11 if "BEGIN" in secret else 0, len(secret) - 7)}
    for longest in (1, *([9] * 15)):
        clean = "".join(streamed(parts(text, rng, longest)))
        assert {one for one in windows if one in clean} == {one for one in windows if one in whole}, clean
        assert ("[redacted:" in clean) is ("[redacted:" in whole)
        assert (clean.startswith(before), clean.endswith(after)) == (True, True)


@pytest.mark.parametrize("sign", ["\x1b[31m", "\x1b[01;31m\x1b[K", "\x07", "\u200b"])
@pytest.mark.parametrize("kind", ["github_token", "aws_key", "secret"])
def test_a_secret_that_is_parted_by_what_is_not_seen_does_not_get_out(kind: str, sign: str) -> None:
    secret = TOKENS[kind]
    windows = {secret[start : start + 8] for start in range(len(secret) - 7)}
    for cut in range(0, len(secret), 2):
        text = f"see {secret[:cut]}{sign}{secret[cut:]}{sign} now"
        sevens = [text[at : at + 7] for at in range(0, len(text), 7)]
        for pieces in ([*text], [text[: cut + 5], text[cut + 5 :]], sevens):
            shown, _ = visible_text("".join(streamed(pieces)))
            assert {one for one in windows if one in shown} == set()


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from(sorted(encoded_forms(OWN))), st.text(max_size=30), st.text(max_size=30))
def test_our_own_secret_in_any_spelling_and_in_any_pieces_is_masked_whole(
    seed: int, written: bytes, before: str, after: str
) -> None:
    text = f"{before} {written.decode()} {after}"
    clean = "".join(streamed(parts(text, random.Random(seed))))
    assert written.decode() not in clean
    assert "[redacted:secret]" in clean


@pytest.mark.slow
@given(st.text(), st.integers(0, 2**32))
def test_text_without_secrets_arrives_as_it_was(text: str, seed: int) -> None:
    if REDACTOR.text(text) is text:
        assert "".join(streamed(parts(text, random.Random(seed)))) == text


def test_words_are_given_on_at_once() -> None:
    pieces = ["Building ", "the ", "project\n", "step 1", " of 3", " …", "done"]
    assert streamed(pieces) == [*pieces, ""]


def test_what_may_be_the_beginning_of_a_secret_waits_until_it_is_told_apart() -> None:
    assert streamed(["see ghp_", "stars are nice ", "to have"]) == ["see ", "ghp_stars are nice ", "to have", ""]
    assert streamed(["it is correct hor", "rible"]) == ["it is ", "correct horrible", ""]
    assert streamed(["password: hun", "ter2", "\nnext"])[:2] == ["", ""]


def test_a_private_key_line_by_line_is_masked_whole() -> None:
    body = [f"{line:02d}" + "AbCd1234" * 7 + "efghij\n" for line in range(25)]
    lines = ["before\n", "-----BEGIN RSA PRIVATE KEY-----\n", *body, "-----END RSA PRIVATE KEY-----\n", "after\n"]
    assert "".join(streamed(lines)) == "before\n[redacted:private_key]\nafter\n"


def test_a_flood_without_spaces_is_not_kept() -> None:
    stream = RedactedStream(REDACTOR)
    given_on = sum(len(stream.add("aB3d" * 4096)) for _ in range(64))
    assert given_on >= 1024 * 1024 - 64 * 1024
    assert given_on + len(stream.end()) == 1024 * 1024


def test_a_piece_never_ends_within_a_character() -> None:
    text = "é7" * 4000
    assert "".join(streamed([text, text])) == text * 2
