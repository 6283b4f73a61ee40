"""TOML of strangers: a document that would keep its reader busy is refused."""

import pytest

from toolcrib.core.documents.toml import read_toml


@pytest.mark.parametrize("text", ["a." * 400_000 + "b = 1\n", "a = " + "[" * 900, "a = 1\n" * 50_000, "a ="])
def test_a_document_that_takes_long_is_refused_as_a_broken_one_is(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_toml(text)


def test_an_ordinary_document_is_read() -> None:
    assert read_toml('[tool.poe.tasks]\nclean = "rm x"\n') == {"tool": {"poe": {"tasks": {"clean": "rm x"}}}}
