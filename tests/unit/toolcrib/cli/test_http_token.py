"""The bearer token of `serve --http`: an option, a file or the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.cli.processes.serve_options import http_token, read_options
from toolcrib.errors import UsageError

ENVIRON = {"TOOLCRIB_TOKEN": "of-the-environment"}


def test_the_option_comes_before_the_environment_and_without_any_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  of-a-file\n")
    assert http_token("of-the-option", None, ENVIRON) == "of-the-option"
    assert http_token(None, str(file), ENVIRON) == "of-a-file"
    assert http_token(None, None, ENVIRON) == "of-the-environment"
    assert (http_token(None, None, {}), http_token(None, None, {"TOOLCRIB_TOKEN": ""})) == (None, None)


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"two words", b"\xff\xfe", b"a\x1b[31m", None])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match="--token-file"):
        http_token(None, str(file), ENVIRON)


def test_two_tokens_are_refused_and_the_file_is_left_to_the_whole_command_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        http_token("a", str(tmp_path), {})
    assert read_options(["--http", "--token-file", "f"]) is None
