"""With an embedder, tools are found by what they mean; without one, or before it is ready, by their words."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import numpy as np
import pytest
from msgspec.structs import replace

from rig import eventually
from toolcrib.catalog.embedding import open_meanings
from toolcrib.catalog.embedding.vectors import Vectors, text_of
from toolcrib.catalog.index import Index, IndexEntry
from toolcrib.catalog.registry import Registry
from toolcrib.core.tool import Tool

MATTERS = (
    {"umbrella", "parasol", "rain", "weather", "forecast", "sky"},
    {"letter", "mail", "send", "recipient", "post"},
    {"coin", "money", "bank", "balance", "broke"},
    {"file", "disk", "folder", "read", "path"},
)


class Concepts:
    """A small embedder: a text is how many of its words belong to each of four matters."""

    id = "concepts-1"
    dim = len(MATTERS) + 1

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        self.encoded.extend(texts)
        words = [[word.strip(".,:?()") for word in text.lower().split()] for text in texts]
        return [[*(float(sum(word in matter for word in text)) for matter in MATTERS), 0.2] for text in words]


class Broken(Concepts):
    """One that stops working."""

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        raise RuntimeError("out of memory")


def entry(name: str, description: str) -> IndexEntry:
    source, _, leaf = name.rpartition("__")
    return IndexEntry(name=name, leaf=leaf, source=source, description=description)


CATALOG = (
    entry("sky__outlook", "The weather forecast"),
    entry("post__dispatch", "Send mail to a recipient"),
    entry("bank__funds", "The balance of an account"),
    entry("disk__open", "Read a file of a folder"),
)


def filled(embedder: Concepts, path: Path | None = None) -> Vectors:
    vectors = Vectors(lambda: embedder, path)
    for one in CATALOG:
        vectors.put(one)
    vectors.fill()
    return vectors


def found(index: Index, vectors: Vectors, query: str) -> list[str]:
    return [hit.name for hit in index.search(query, near=vectors.near(query))]


def test_a_tool_is_found_by_its_meaning_when_no_word_is_shared() -> None:
    index, vectors = Index(CATALOG), filled(Concepts())
    assert index.search("parasol?") == []
    assert found(index, vectors, "parasol?")[0] == "sky__outlook"


def test_a_query_that_is_near_nothing_gets_nothing() -> None:
    assert found(Index(CATALOG), filled(Concepts()), "knit a woollen scarf") == []


def test_words_that_just_fit_are_no_answer_where_the_meaning_is_far() -> None:
    tools = [entry(f"s{n}__t{n}", "The weather: " + " ".join(f"word{n}x{k}" for k in range(40))) for n in range(100)]
    index, vectors = Index(tools), Vectors(Concepts)
    for one in tools[:99]:
        vectors.put(one)
    vectors.fill()

    def asked(number: int, shared: int) -> str:
        return " ".join((*(f"word{number}x{k}" for k in range(shared)), "knit a woollen scarf of grandmother"))

    just, well, late = asked(7, 6), asked(7, 20), asked(99, 6)
    by_words = [[hit.name for hit in index.search(query)] for query in (just, well, late)]
    by_meaning = [found(index, vectors, query) for query in (just, well, late)]
    assert by_words == [["s7__t7"], ["s7__t7"], ["s99__t99"]]
    assert by_meaning == [[], ["s7__t7"], ["s99__t99"]]  # the last has no vector yet


def test_what_is_not_allowed_is_not_found_by_its_meaning_either() -> None:
    index, vectors = Index(CATALOG), filled(Concepts())
    hits = index.search("umbrella?", near=vectors.near("umbrella?"), allowed=lambda name: name != "sky__outlook")
    assert "sky__outlook" not in [hit.name for hit in hits]


def test_the_exact_name_stands_before_the_nearest_meaning() -> None:
    assert found(Index(CATALOG), filled(Concepts()), "disk__open")[0] == "disk__open"


def test_each_sentence_of_a_request_counts() -> None:
    vectors = filled(Concepts())
    near = vectors.near("I am broke, no money and no coin in the bank. Any rain on the way?")
    assert near is not None
    assert near.best(2) == ["bank__funds", "sky__outlook"]
    assert near.of("sky__outlook") == pytest.approx(0.5, abs=0.3)


def test_saving_to_a_path_also_means_writing_a_file() -> None:
    embedder = Concepts()
    vectors = filled(embedder)
    embedder.encoded.clear()
    vectors.near("Save the rain to ./a.md")
    vectors.near("rain of today")
    assert embedder.encoded == ["Save the rain to ./a.md", "Write a file.", "rain of today"]


def test_vectors_of_tools_that_a_search_found_are_made_first() -> None:
    embedder = Concepts()
    vectors = Vectors(lambda: embedder)
    registry = Registry(meanings=vectors)
    tools = [Tool(name=f"t{n}", local_name=f"t{n}", source="many", description="rain " * 400) for n in range(20)]
    wanted = Tool(name="z", local_name="z", source="many", description=f"{'Send mail to a recipient. ' * 100}")
    registry.put("many", [*tools, wanted])
    assert [hit.name for hit in registry.index.search("mail to a recipient", 5)] == ["many__z"]
    vectors.fill()
    assert "recipient" in embedder.encoded[0]


async def test_the_vector_of_a_prepared_query_is_made_in_a_worker_thread_and_not_again() -> None:
    made_in: list[tuple[int, Sequence[str]]] = []

    class Watched(Concepts):
        def encode(self, texts: Sequence[str]) -> list[list[float]]:
            made_in.append((threading.get_ident(), texts))
            return super().encode(texts)

    vectors = filled(Watched())
    made_in.clear()
    await vectors.prepare("umbrella?")
    near = vectors.near("umbrella?")
    assert near is not None
    assert near.best(1) == ["sky__outlook"]
    assert [texts for _, texts in made_in] == [["umbrella?"]]
    assert made_in[0][0] != threading.get_ident()


async def test_a_query_is_prepared_although_the_embedder_fails(caplog: pytest.LogCaptureFixture) -> None:
    embedder = Concepts()
    vectors = filled(embedder)
    embedder.encode = Broken().encode
    await vectors.prepare("umbrella?")
    assert vectors.near("umbrella?") is None
    assert "ranking by meaning is off" in caplog.text


def test_texts_of_like_length_are_computed_together() -> None:
    asked: list[list[int]] = []

    class Watched(Concepts):
        def encode(self, texts: Sequence[str]) -> list[list[float]]:
            asked.append([len(text) for text in texts])
            return super().encode(texts)

    embedder = Watched()
    vectors = Vectors(lambda: embedder)
    for number in range(200):
        vectors.put(entry(f"many__t{number}", "rain " * (10 if number % 2 else 300)))
    vectors.fill()
    assert len(vectors) == 200
    mixed = [lengths for lengths in asked if max(lengths) > 2 * min(lengths)]
    assert len(mixed) <= 1, "where the short ones end"


def test_until_vectors_are_there_search_goes_by_words() -> None:
    vectors = Vectors(Concepts)
    vectors.put(CATALOG[0])
    assert vectors.near("umbrella") is None
    assert found(Index(CATALOG), vectors, "weather") == ["sky__outlook"]


def test_a_tool_without_its_vector_yet_is_still_found_by_its_words() -> None:
    vectors = filled(Concepts())
    late = entry("news__headlines", "Headlines of the day")
    vectors.put(late)
    assert found(Index([*CATALOG, late]), vectors, "headlines")[0] == "news__headlines"


def test_a_tool_that_changed_or_went_is_compared_by_what_it_says_now() -> None:
    vectors = filled(Concepts())
    vectors.put(entry("sky__outlook", "Money in the bank"))
    vectors.drop("bank__funds")
    vectors.fill()
    near = vectors.near("coin")
    assert near is not None
    assert (near.best(1), near.of("bank__funds"), len(vectors)) == (["sky__outlook"], None, 3)


def test_dropping_every_tool_leaves_nothing_to_compare() -> None:
    vectors = filled(Concepts())
    for one in CATALOG:
        vectors.drop(one.name)
    assert (len(vectors), vectors.near("umbrella")) == (0, None)


def test_vectors_outlive_a_restart_and_equal_texts_are_encoded_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "vectors.db"
    filled(Concepts(), path)
    again = Concepts()
    vectors = filled(again, path)
    vectors.put(IndexEntry(name="x__open", leaf="open", source="disk", description="Read a file of a folder"))
    vectors.fill()
    assert (again.encoded, len(vectors)) == ([], 5)
    near = vectors.near("umbrella")
    assert near is not None
    assert near.best(1) == ["sky__outlook"]
    assert path.parent.stat().st_mode & 0o077 == 0


def test_vectors_of_another_embedder_are_not_used(tmp_path: Path) -> None:
    filled(Concepts(), tmp_path / "v")
    other = Concepts()
    other.id = "concepts-2"
    filled(other, tmp_path / "v")
    assert sorted(other.encoded) == sorted(text_of(one) for one in CATALOG)


@pytest.mark.parametrize("harm", ["foreign", "no place"])
def test_a_file_that_cannot_be_used_costs_only_time(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "vectors.db"
    if harm == "foreign":
        path.write_bytes(b"PK\x03\x04" * 1000)
    else:
        path.write_text("in the way")
        path /= "vectors.db"
    assert found(Index(CATALOG), filled(Concepts(), path), "umbrella")[0] == "sky__outlook"
    if harm == "foreign":
        again = Concepts()
        filled(again, path)
        assert again.encoded == []


def test_an_embedder_that_fails_is_reported_once_and_search_goes_on_by_words(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        vectors = filled(Broken())
        assert found(Index(CATALOG), vectors, "weather") == ["sky__outlook"]
        vectors.put(entry("a__b", "more"))
        vectors.fill()
    assert [record.getMessage() for record in caplog.records] == [
        "ranking by meaning is off: the embedder failed; search goes on by words"
    ]


def test_an_embedder_that_returns_the_wrong_shape_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    wrong = Concepts()
    wrong.dim = 99
    assert filled(wrong).near("umbrella") is None
    assert "99 dimensions" in caplog.text


async def test_vectors_are_made_in_the_background_also_for_tools_that_come_later() -> None:
    embedder = Concepts()
    vectors = Vectors(lambda: embedder)
    async with anyio.create_task_group() as group:
        group.start_soon(vectors.keep_filled)
        for one in CATALOG:
            vectors.put(one)
        await eventually(lambda: len(vectors) == len(CATALOG))
        vectors.put(entry("wallet__spend", "Coin by coin"))
        await eventually(lambda: len(vectors) == len(CATALOG) + 1)
        group.cancel_scope.cancel()
    assert found(Index(CATALOG), vectors, "umbrella")[0] == "sky__outlook"


async def test_a_tool_that_goes_while_its_vector_is_made_leaves_none() -> None:
    class Dropping(Concepts):
        def encode(self, texts: Sequence[str]) -> list[list[float]]:
            if len(texts) == 2:
                anyio.from_thread.run_sync(vectors.drop, CATALOG[0].name)
            return super().encode(texts)

    vectors = Vectors(Dropping)
    vectors.put(CATALOG[0])
    vectors.put(CATALOG[1])
    async with anyio.create_task_group() as group:
        group.start_soon(vectors.keep_filled)
        await eventually(lambda: len(vectors) == 1)
        group.cancel_scope.cancel()
    near = vectors.near("mail")
    assert near is not None
    assert near.best(5) == [CATALOG[1].name]


def test_a_registry_keeps_the_vectors_of_what_it_holds() -> None:
    vectors = Vectors(Concepts)
    registry = Registry(meanings=vectors)
    registry.put("sky", [Tool(name="outlook", source="sky", local_name="outlook", description="The weather forecast")])
    registry.put("post", [Tool(name="go", source="post", local_name="go", description="Send mail")])
    vectors.fill()
    assert [hit.name for hit in registry.catalog.search("umbrella")][:1] == ["sky__outlook"]
    registry.remove("sky")
    assert len(vectors) == 1


def test_a_text_to_embed_is_the_name_in_words_the_description_and_whose_it_is() -> None:
    schema: dict[str, Any] = {"properties": {"filePath": {}, "line_no": {}}}
    long = "Opens what lies on the disk, wherever that may be"
    bare = IndexEntry(name="x", leaf="openFile_now", source="my-disk")
    assert text_of(replace(bare, description=long, schema=schema)) == f"open File now: {long} (my disk)"
    titled = replace(bare, title="Open", source_title="Disks", schema=schema)
    assert text_of(titled) == "Open: file Path, line no (Disks)"
    assert text_of(replace(bare, schema={"properties": 5})) == "open File now: (my disk)"


def test_an_embedder_that_does_not_exist_is_found_out_when_it_is_first_used(caplog: pytest.LogCaptureFixture) -> None:
    meanings = open_meanings("nowhere")
    meanings.put(CATALOG[0])
    meanings.fill()
    assert meanings.near("weather") is None
    assert "no embedder and no folder is named 'nowhere'" in caplog.text


def test_vectors_are_arrays_of_unit_length() -> None:
    near = filled(Concepts()).near("weather")
    assert near is not None
    assert near.most == pytest.approx(1.0, abs=0.05)
    assert np.isfinite(near.most)
