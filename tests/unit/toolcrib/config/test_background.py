"""Which tools of a server go on in the background, as its entry says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.config import Settings
from unit.toolcrib.config.written import read


def background(folder: Path, said: str) -> Settings:
    return read(folder, f"servers: {{builder: {{command: x, background_after: {said}}}, other: {{command: y}}}}\n")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("10", {"build": 10.0, "test": 10.0}),
        ("{build: 0}", {"build": 0.0, "test": None}),
        ("{build: 0, '*': 2.5}", {"build": 0.0, "test": 2.5}),
    ],
)
def test_an_entry_says_it_for_all_tools_or_by_tool(tmp_path: Path, said: str, seconds: dict[str, float | None]) -> None:
    builder, other = background(tmp_path, said).sources.servers

    assert {tool: builder.goes_on_after(tool) for tool in seconds} == seconds
    assert {tool: other.goes_on_after(tool) for tool in seconds} == dict.fromkeys(seconds)
    assert builder.key() != background(tmp_path, "99").sources.servers[0].key(), (
        "a list that was kept on disk is not taken for it"
    )


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("soon", "background_after"),
        ("-1", "background_after"),
        ("true", "background_after"),
        (".inf", "background_after"),
        ("{build: later}", "background_after.build"),
    ],
)
def test_what_is_no_number_of_seconds_is_named_and_hides_no_other_server(tmp_path: Path, said: str, key: str) -> None:
    settings = background(tmp_path, said)

    assert [spec.name for spec in settings.sources.servers] == ["other"]
    assert [problem.message for problem in settings.problems if key in problem.message] != []
