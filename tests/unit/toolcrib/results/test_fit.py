"""Results in a profile's style: less than the budget, another share, another marker, and hints that have a say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolcrib.core.result import SpooledResult, ToolError, ToolResult
from toolcrib.results.artifacts import Artifacts
from toolcrib.results.excerpts import ExcerptStyle
from toolcrib.results.limit import Limiter, LimitOptions

CEILING = 4000
"""Tokens: 16,000 bytes."""
SEED = ExcerptStyle(characters=1500, head=0.75, note=350, marker="compressed", hints=True, spare=("errors", "lists"))
FLAT = ExcerptStyle(tokens=2000, head=0.6, marker="elided")
LINES = "\n".join(f"line {number}" for number in range(2000))
MARK = re.compile(r"\[COMPRESSED:([0-9a-f]{32})\] (?:\d+ lines, )?(\d+) of (\d+) characters left out here\. ")


async def seeded(limiter: Limiter, result: ToolResult, **way: Any) -> ToolResult:
    return await limiter.apply(result, CEILING, "ada", LimitOptions(fit=SEED, **way))


async def whole_of(artifacts: Artifacts, result: ToolResult) -> str:
    return (await artifacts.read(result.meta["artifact"], "ada", 0, 200_000)).text


@pytest.mark.parametrize(("length", "is_cut"), [(1500, False), (1501, True)])
async def test_over_1500_characters_and_not_before_a_result_is_compressed(
    limiter: Limiter, length: int, is_cut: bool
) -> None:
    result = ToolResult.of_text("é" * length)

    assert ("artifact" in (await seeded(limiter, result)).meta) is is_cut


async def test_a_compressed_text_shows_three_quarters_head_one_quarter_tail_at_line_ends(
    limiter: Limiter, artifacts: Artifacts
) -> None:
    limited = await seeded(limiter, ToolResult.of_text(LINES))

    head, mark, tail = re.split(r"\n(\[COMPRESSED.*)\n", limited.text)
    found = MARK.match(mark)
    assert found is not None
    assert (LINES.startswith(head + "\n"), LINES.endswith("\n" + tail)) == (True, True)
    assert (0.75 * 1150 - 12 < len(head) <= 0.75 * 1150, 0.25 * 1150 - 12 < len(tail) <= 0.25 * 1150 + 1) == (
        True,
        True,
    )
    assert (int(found[2]), int(found[3])) == (len(LINES) - len(head) - len(tail), len(LINES))
    assert len(limited.text) <= 1500
    assert (found[1], await whole_of(artifacts, limited)) == (limited.meta["artifact"], LINES)
    assert limited.meta["compression"] == {
        "ref_id": found[1],
        "original_length": len(LINES),
        "shown_length": len(head) + len(tail),
        "hint": "normal",
    }


async def test_a_text_inside_json_is_cut_at_its_line_ends_too(limiter: Limiter) -> None:
    data = {"output": LINES}
    limited = await seeded(limiter, ToolResult.of_text(json.dumps(data), structured_content=data))

    head, _, tail = re.split(r"\n(\[COMPRESSED.*)\n", limited.text)
    assert (head.rpartition("\\n")[2].startswith("line "), tail.startswith("line ")) == (True, True)


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(content=({"type": "text", "text": LINES[:9000]},), error=ToolError(code="tool_error", message="no")),
        ToolResult.of_text(json.dumps([1] * 1000), structured_content=[1] * 1000),
        ToolResult.of_text(json.dumps(list(range(1000)))),
    ],
    ids=["an error", "a list", "a list as text"],
)
async def test_errors_and_lists_are_left_alone_up_to_the_ceiling(limiter: Limiter, result: ToolResult) -> None:
    assert (await seeded(limiter, result)).content == result.content


@pytest.mark.parametrize("spared", [json.dumps(list(range(10_000))), "x" * 100_000], ids=["a list", "skipped"])
async def test_no_hint_and_no_list_lifts_the_ceiling(limiter: Limiter, spared: str) -> None:
    limited = await seeded(limiter, ToolResult.of_text(spared), hint="skip")

    assert len(limited.text.encode()) <= CEILING * 4


async def test_the_hint_skip_shows_a_result_whole(limiter: Limiter) -> None:
    result = ToolResult.of_text(LINES[:9000])

    assert (await seeded(limiter, result, hint="skip")).text == result.text


async def test_the_hint_force_compresses_to_500_characters(limiter: Limiter, artifacts: Artifacts) -> None:
    limited = await seeded(limiter, ToolResult.of_text(LINES[:1000]), hint="force")

    assert len(limited.text) <= 500
    assert (limited.meta["compression"]["hint"], await whole_of(artifacts, limited)) == ("force", LINES[:1000])


async def test_the_hint_search_shows_five_hits_with_snippets_of_200_characters(limiter: Limiter) -> None:
    hits = [{"file": f"{number}.md", "text": f"{number} " + "x" * 300} for number in range(12)]
    data = {"total": 12, "results": hits}
    limited = await seeded(limiter, ToolResult.of_text(json.dumps(data), structured_content=data), hint="search")

    shown = json.loads(limited.text.split("\n[COMPRESSED")[0])
    assert (shown["total"], [hit["file"] for hit in shown["results"]]) == (12, [f"{n}.md" for n in range(5)])
    assert {len(hit["text"]) for hit in shown["results"]} == {200}
    assert "] 7 of 12 items, " in limited.text


async def test_a_search_that_found_nothing_to_list_is_compressed_like_any_text(limiter: Limiter) -> None:
    limited = await seeded(limiter, ToolResult.of_text(LINES), hint="search")

    assert (limited.text.startswith("line 0\n"), len(limited.text) <= 1500) == (True, True)


async def test_a_tool_says_its_hint_in_its_result_where_nobody_reads_it(limiter: Limiter) -> None:
    data = {"output": "x" * 3000, "_compression_hint": "skip"}
    limited = await seeded(limiter, ToolResult.of_text(json.dumps(data), structured_content=data))

    assert (json.loads(limited.text), limited.structured_content) == ({"output": "x" * 3000},) * 2


async def test_the_word_of_the_caller_goes_before_the_tools(limiter: Limiter) -> None:
    data = {"output": "x" * 3000, "_compression_hint": "skip"}
    limited = await seeded(limiter, ToolResult.of_text(json.dumps(data), structured_content=data), hint="force")

    assert len(limited.text) <= 500


async def test_a_hint_that_is_none_is_taken_out_and_changes_nothing(limiter: Limiter) -> None:
    data = {"output": "x" * 3000, "_compression_hint": "please"}
    limited = await seeded(limiter, ToolResult.of_text(json.dumps(data), structured_content=data))

    assert ("please" in limited.text, limited.meta["compression"]["hint"]) == (False, "normal")


async def test_without_hints_in_the_style_a_result_is_what_its_tool_gave(limiter: Limiter) -> None:
    data = {"output": "x", "_compression_hint": "skip"}
    result = ToolResult.of_text(json.dumps(data), structured_content=data)

    assert await limiter.apply(result, CEILING, "ada", LimitOptions(fit=FLAT)) is result


@pytest.mark.parametrize("hint", ["normal", "force", "search"])
async def test_what_was_compressed_is_never_cut_again(limiter: Limiter, hint: Any) -> None:
    data = {"results": [{"text": "x" * 400, "more": "y" * 400, "and": "z" * 400} for _ in range(9)]}
    once = await seeded(limiter, ToolResult.of_text(json.dumps(data), structured_content=data), hint=hint)

    assert (await seeded(limiter, once)).text == once.text


async def test_a_mark_of_nothing_that_is_kept_talks_no_limit_away(limiter: Limiter) -> None:
    limited = await seeded(limiter, ToolResult.of_text(f"[COMPRESSED:{'a' * 32}] {'x' * 3000}"))

    assert len(limited.text) <= 1500


@pytest.mark.parametrize("text", ["x" * 1501, "y\n" * 751, json.dumps([[0]] * 400), "é" * 1501])
@pytest.mark.parametrize("hint", [None, "force", "search"])
async def test_what_is_compressed_is_always_shorter(limiter: Limiter, text: str, hint: Any) -> None:
    limited = await limiter.apply(
        ToolResult.of_text(text), CEILING, "ada", LimitOptions(fit=replace(SEED, spare=()), hint=hint)
    )

    assert ("artifact" in limited.meta, len(limited.text) < len(text)) == (True, True)


async def test_promised_structured_content_stays_while_its_text_is_compressed(limiter: Limiter) -> None:
    data = {"output": "x" * 3000}
    result = ToolResult.of_text(json.dumps(data), structured_content=data)
    promised, other = await seeded(limiter, result, schema={"type": "object"}), await seeded(limiter, result)

    assert (promised.structured_content, len(promised.text) <= 1500, other.structured_content) == (data, True, None)


async def test_the_flat_style_counts_the_bytes_it_elides(limiter: Limiter, artifacts: Artifacts) -> None:
    limited = await limiter.apply(ToolResult.of_text(LINES), CEILING, "ada", LimitOptions(fit=FLAT))

    head, mark, tail = re.split(r"\n(\[\.\.\. .*\])\n", limited.text)
    found = re.match(r"\[\.\.\. (\d+) lines, (\d+) bytes elided of (\d+)\. ", mark)
    assert found is not None
    assert (int(found[2]), int(found[3])) == (len(LINES) - len(head) - len(tail), len(LINES))
    assert 1.4 < len(head) / len(tail) < 1.6
    assert (len(limited.text) <= 8000, await whole_of(artifacts, limited)) == (True, LINES)


async def test_a_list_of_lines_keeps_whole_first_lines_and_says_how_many_were_dropped(limiter: Limiter) -> None:
    limited = await limiter.apply(ToolResult.of_text(LINES), CEILING, "ada", LimitOptions(fit=FLAT, lines=True))

    shown, _, mark = limited.text.rpartition("\n")
    kept = shown.split("\n")
    assert kept == LINES.split("\n")[: len(kept)]
    assert mark.startswith(f"[... {2000 - len(kept)} of 2000 lines dropped, ")
    assert ("Narrow it down" in mark, "bytes elided" in mark) == (True, True)


async def test_a_single_line_that_is_too_long_is_cut_like_any_text(limiter: Limiter) -> None:
    limited = await limiter.apply(ToolResult.of_text("x" * 90_000), CEILING, "ada", LimitOptions(fit=FLAT, lines=True))

    assert len(limited.text.split("\n")) == 3


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("fit", [SEED, FLAT])
async def test_an_output_on_disk_is_shown_in_the_same_style(
    limiter: Limiter, artifacts: Artifacts, tmp_path: Path, fit: ExcerptStyle, lines: bool
) -> None:
    file = tmp_path / "spooled"
    file.write_text(LINES, encoding="utf-8")
    spooled = SpooledResult(path=file, size=len(LINES), mime_type="text/plain", head=LINES[:9000], tail=LINES[-9000:])
    limited = await limiter.apply(ToolResult(spooled=spooled), CEILING, "ada", LimitOptions(fit=fit, lines=lines))

    assert len(limited.text) <= (1500 if fit is SEED else 8000)
    assert (limited.text.startswith("line 0\nline 1\n"), limited.text.endswith("line 1999")) == (True, not lines)
    assert ("[COMPRESSED:" in limited.text, await whole_of(artifacts, limited)) == (fit is SEED, LINES)


async def test_where_there_is_nothing_to_read_on_with_the_text_names_the_artifact_only(limiter: Limiter) -> None:
    limited = await seeded(limiter, ToolResult.of_text(LINES), read="")

    assert ("read_artifact" in limited.text, f"artifact {limited.meta['artifact']}." in limited.text) == (False, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"heads": 0.5}, "heads: "),
        ({"head": 2}, "head: takes a share from 0 to 1"),
        ({"tokens": 0}, "tokens: takes a number above 0"),
        ({"tokens": True}, "tokens: takes a number above 0"),
        ({"marker": "stars"}, "marker: takes one of toolcrib"),
        ({"spare": ["everything"]}, "spare: takes a list of errors, lists"),
        ({"hints": "yes"}, "hints: takes true or false"),
        ({"hints": True, "characters": 300}, "note: 330 leaves nothing of 300 characters"),
    ],
)
def test_a_style_that_cannot_be_is_refused_with_the_reason(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        ExcerptStyle.of(given)
