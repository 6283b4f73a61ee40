"""Vectors of texts: of their passages, kept by what they say, compared with a question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from toolcrib.catalog.embedding import vectors as module
from toolcrib.catalog.embedding.vectors import TextVectors, passages
from toolcrib.crib.services.records import mixed, near


class Letters:
    """A small embedder: how often a text says a, b and c. Knows what it was asked."""

    id = "letters-1"
    dim = 3

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.extend(texts)
        return [[float(text.count(letter)) for letter in "abc"] for text in texts]


def test_a_text_is_as_near_as_its_nearest_passage() -> None:
    vectors = TextVectors(Letters)
    long = "b" * 650 + "\n\n" + "a" * 600 + "\n\n" + "c" * 600

    found = vectors.cosines("a", [("long", vectors.packed(long, "")), ("b", vectors.packed("b", "")), ("none", b"")])
    assert found == {"long": pytest.approx(1.0, abs=1e-3), "b": pytest.approx(0.0, abs=1e-3)}


def test_a_title_belongs_to_each_passage_and_stands_for_a_text_that_is_empty() -> None:
    embedder = Letters()
    vectors = TextVectors(lambda: embedder)
    vectors.packed("b" * 700 + "\n\n" + "c" * 700, "title")
    vectors.packed(" ", "title")

    assert embedder.asked == [f"title: {'b' * 700}", f"title: {'c' * 700}", "title"]


def test_vectors_of_another_size_are_left_out() -> None:
    vectors = TextVectors(Letters)

    assert vectors.cosines("a", [("other", b"12345"), ("own", vectors.packed("a", ""))]) == {"own": pytest.approx(1.0)}
    assert vectors.cosines("a", []) == {}


def test_what_was_read_once_is_kept_on_disk_and_the_rest_is_read_in_its_time(tmp_path: Path) -> None:
    embedder = Letters()
    texts = {"1": "aa", "2": "b", "3": "ac"}
    vectors = TextVectors(lambda: embedder, tmp_path / "texts.db")

    assert vectors.nearest("a", texts, 0.0) == {}
    assert vectors.fill(texts, 60.0) is False
    embedder.asked.clear()
    again = TextVectors(lambda: embedder, tmp_path / "texts.db")
    assert again.nearest("a", texts, 0.0) == {
        "1": pytest.approx(1.0, abs=1e-3),
        "2": pytest.approx(0.0, abs=1e-3),
        "3": pytest.approx(0.5**0.5, abs=1e-3),
    }
    assert embedder.asked == ["a"]
    assert again.fill({**texts, "4": "new"}, 0.0) is True


def test_a_file_with_too_much_in_it_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_STORED_VECTORS", 2)
    vectors = TextVectors(Letters, tmp_path / "texts.db")
    vectors.fill({"1": "a", "2": "b", "3": "c"}, 60.0)

    assert vectors.nearest("a", {"1": "a"}, 0.0) == {}


def test_without_a_file_everything_is_read_each_time(tmp_path: Path) -> None:
    embedder = Letters()
    vectors = TextVectors(lambda: embedder)

    assert vectors.fill({"1": "a"}, 60.0) is False
    for _ in range(2):
        assert vectors.nearest("b", {"1": "b"}, 60.0) == {"1": pytest.approx(1.0, abs=1e-3)}
    assert embedder.asked == ["b", "b", "b"], "the text twice, the question once"


def test_a_question_is_read_once() -> None:
    embedder = Letters()
    vectors = TextVectors(lambda: embedder)
    held = [("1", vectors.packed("a", ""))]
    embedder.asked.clear()

    for query in ["b", "b", *(f"c{number}" for number in range(64)), "b"]:
        vectors.cosines(query, held)
    assert embedder.asked.count("b") == 2


def test_vectors_of_texts_have_length_one() -> None:
    rows = TextVectors(Letters).rows(["aab", "c"])

    assert np.linalg.norm(rows, axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        (" \n\n \n", []),
        ("one\ntwo\n\nthree", ["one two three"]),
        ("x" * 1500, ["x" * 700, "x" * 700, "x" * 100]),
        (f"{'word ' * 200}end", [("word " * 140).strip(), f"{'word ' * 60}end"]),
    ],
)
def test_a_text_is_read_in_passages_that_fit(text: str, pieces: list[str]) -> None:
    assert passages(text) == pieces


def test_of_a_long_text_the_beginning_is_read() -> None:
    found = passages("\n\n".join(f"{number} " + "x" * 690 for number in range(100)))

    assert len(found) == 16
    assert [piece.split()[0] for piece in found] == [str(number) for number in range(16)]


# What is near, and what words and meaning say together


def test_only_what_is_near_enough_is_meant() -> None:
    assert near({"a": 0.9, "b": 0.5, "c": 0.6, "d": 0.2}, 9) == {"a": 0.9, "c": 0.6}
    assert near({"a": 0.9, "c": 0.6}, 1) == {"a": 0.9}
    assert near({"a": 0.24}, 9) == near({}, 9) == {}


def test_what_words_and_meaning_speak_for_comes_first() -> None:
    shares = {"word": 1.0, "both": 0.8, "common": 0.1, "unread": 0.9}
    cosines = {"word": 0.1, "both": 0.5, "common": 0.0, "meant": 0.55, "far": 0.2}

    assert list(mixed(shares, cosines, 9)) == ["unread", "both", "meant", "word"]
    assert list(mixed(shares, cosines, 2)) == ["unread", "both"]
    assert mixed({}, {}, 9) == {}
    assert max(mixed({"all": 1.0}, {"all": 0.99}, 1).values()) == pytest.approx(1.0)
