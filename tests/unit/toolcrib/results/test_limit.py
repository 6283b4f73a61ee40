"""Results within their budget, the whole kept, and nothing shown that was not there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.result import SpooledResult, ToolError, ToolResult
from toolcrib.results.artifacts import Artifacts
from toolcrib.results.limit import Limiter
from toolcrib.results.redaction.redactor import Redactor
from toolcrib.results.settings import RetentionSettings

REDACTOR = Redactor()

BUDGET = 500
"""Tokens: 2,000 bytes."""


async def whole_of(artifacts: Artifacts, result: ToolResult) -> str:
    artifact = artifacts.find(result.meta["artifact"], "ada")
    return (await artifacts.read(artifact.id, "ada", 0, artifact.size)).text


async def test_what_fits_comes_back_as_the_same_object(limiter: Limiter) -> None:
    result = ToolResult.of_text("x" * 900, structured_content={"text": "x" * 900})

    assert await limiter.apply(result, BUDGET, "ada") is result


async def test_a_long_text_shows_head_and_tail_counts_the_rest_and_keeps_the_whole(
    limiter: Limiter, artifacts: Artifacts
) -> None:
    text = "\n".join(f"line {number}" for number in range(2000))

    limited = await limiter.apply(ToolResult.of_text(text), BUDGET, "ada")

    shown = limited.text
    head, marker, tail = re.split(r"\n(\[toolcrib: .*\])\n", shown)
    assert text.startswith(head + "\n")
    assert text.endswith("\n" + tail)
    missing = len(text) - len(head) - len(tail)
    assert f"{missing} of {len(text)} bytes (about {-(-missing // 4)} of {-(-len(text) // 4)}" in marker
    assert "estimated as bytes / 4" in marker
    assert len(shown.encode()) <= BUDGET * 4
    assert await whole_of(artifacts, limited) == text


async def test_the_marker_says_how_to_read_on_from_where_the_head_ends(limiter: Limiter, artifacts: Artifacts) -> None:
    text = "".join(f"{number:05d} ä\n" for number in range(2000))

    limited = await limiter.apply(ToolResult.of_text(text), BUDGET, "ada")

    head, rest = limited.text.split("\n[toolcrib: ")
    arguments = json.loads(rest[rest.index("{") : rest.index("}") + 1])
    page = await artifacts.read(arguments["id"], "ada", arguments["offset"], 100)
    assert text.startswith(head + page.text)


async def test_the_whole_is_linked_as_a_resource(limiter: Limiter) -> None:
    limited = await limiter.apply(ToolResult.of_text("x" * 9000), BUDGET, "ada")

    name = limited.meta["artifact"]
    assert limited.content[1] == {
        "type": "resource_link",
        "uri": f"toolcrib://artifact/{name}",
        "name": f"artifact-{name[:8]}",
        "description": "the whole output",
        "mimeType": "text/plain",
        "size": 9000,
    }


@pytest.mark.parametrize("style", [{}, {"separators": (",", ":")}, {"indent": 2}, {"indent": 4}])
async def test_a_json_list_stays_json_and_loses_whole_items(
    limiter: Limiter, artifacts: Artifacts, style: dict[str, Any]
) -> None:
    items = [{"number": number, "name": f"item ä {number}"} for number in range(300)]
    text = json.dumps(items, ensure_ascii=False, **style)

    limited = await limiter.apply(ToolResult.of_text(text, structured_content=items), BUDGET, "ada")

    shown = json.loads(limited.text)
    place = next(index for index, item in enumerate(shown) if isinstance(item, str))
    assert shown[:place] == items[:place]
    assert shown[place + 1 :] == items[place + 1 - len(shown) :]
    assert f"{300 - len(shown) + 1} of 300 items" in shown[place]
    assert len(limited.text.encode()) <= BUDGET * 4
    assert limited.structured_content is None
    assert await whole_of(artifacts, limited) == text


async def test_structured_content_that_repeats_the_text_is_counted_once(limiter: Limiter) -> None:
    data = {"text": "x" * 1500}
    limited = await limiter.apply(ToolResult.of_text(json.dumps(data), structured_content=data), BUDGET, "ada")

    assert (limited.structured_content, limited.text) == (data, json.dumps(data))


async def test_structured_content_that_does_not_fit_is_kept_and_said_to_be(
    limiter: Limiter, artifacts: Artifacts
) -> None:
    data = {"rows": list(range(2000))}

    limited = await limiter.apply(ToolResult.of_text("2000 rows", structured_content=data), BUDGET, "ada")

    name = str(limited.content[2]["uri"]).rsplit("/", 1)[1]
    assert limited.structured_content is None
    assert limited.content[0]["text"] == "2000 rows"
    assert "structured content of" in limited.content[1]["text"]
    assert json.loads((await artifacts.read(name, "ada", 0, 100_000)).text) == data


@pytest.mark.parametrize("structured", [None, list(range(5000))])
async def test_a_limited_result_passes_a_second_time(limiter: Limiter, structured: Any) -> None:
    result = ToolResult.of_text("x" * 9000, structured_content=structured)
    limited = await limiter.apply(result, BUDGET, "ada")

    assert await limiter.apply(limited, BUDGET, "ada") is limited


async def test_metadata_of_a_source_cannot_talk_the_limit_away(limiter: Limiter) -> None:
    result = ToolResult.of_text("x" * 9000).with_meta(limited=True, artifact="0" * 32)

    limited = await limiter.apply(result, BUDGET, "ada")

    assert len(limited.text.encode()) <= BUDGET * 4
    assert limited.meta["artifact"] != "0" * 32


async def test_several_texts_share_the_budget_and_other_blocks_keep_their_place(limiter: Limiter) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    file = {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "b" * 3000}}
    result = ToolResult(content=({"type": "text", "text": "a" * 3000}, image, file))

    limited = await limiter.apply(result, BUDGET, "ada")

    assert [block["type"] for block in limited.content] == ["text", "resource_link", "image", "resource_link"]
    assert limited.content[3] == {
        "type": "resource_link",
        "uri": "file:///a.txt",
        "name": "a.txt",
        "mimeType": "text/plain",
    }
    assert len(limited.text.encode()) <= BUDGET * 4


async def test_media_beyond_the_cap_are_replaced_by_a_note(artifacts: Artifacts) -> None:
    image = {"type": "image", "data": "A" * 60, "mimeType": "image/png"}

    limited = await Limiter(artifacts, REDACTOR, media_bytes=100).apply(
        ToolResult(content=(image, image)), BUDGET, "ada"
    )

    note = "[toolcrib: image/png of 60 base64 bytes left out: more than 100 in one result]"
    assert limited.content == (image, {"type": "text", "text": note})


async def test_errors_are_limited_too(limiter: Limiter) -> None:
    failed = ToolResult.failed("tool_error", "x" * 50_000, details={"trace": "y" * 50_000})

    limited = await limiter.apply(failed, BUDGET, "ada")

    assert limited.error == ToolError(code="tool_error", message=f"{'x' * 2000} … (50000 characters)")
    assert len(limited.text.encode()) <= BUDGET * 4


async def test_what_cannot_be_kept_is_said_to_be_lost(tmp_path: Path) -> None:
    limiter = Limiter(Artifacts(tmp_path, RetentionSettings(each=100)), REDACTOR)

    limited = await limiter.apply(ToolResult.of_text("x" * 9000), BUDGET, "ada")

    assert "The rest is lost: the output has more than 100 bytes" in limited.text
    assert [block["type"] for block in limited.content] == ["text"]


async def test_a_spilled_output_becomes_a_clean_artifact(
    limiter: Limiter, artifacts: Artifacts, tmp_path: Path
) -> None:
    token = "ghp_" + "A1b2C3d4E5" * 4
    text = "first line\n" + "filling line\n" * 50_000 + f"token {token}\n" + "filling line\n" * 50_000 + "last line"
    raw = tmp_path / "raw"
    raw.write_text(text)
    spooled = SpooledResult(path=raw, size=len(text), mime_type="text/plain", head=text[:500], tail=text[-500:])

    limited = await limiter.apply(ToolResult(spooled=spooled), BUDGET, "ada")

    kept = artifacts.find(limited.meta["artifact"], "ada")
    with artifacts.open(kept) as source:
        assert source.read().decode() == text.replace(token, "[redacted:github_token]")
    assert limited.text.startswith("first line\n")
    assert limited.text.endswith("\nlast line")
    assert len(limited.text.encode()) <= BUDGET * 4
    assert limited.spooled is None


async def test_a_spill_that_cannot_be_kept_shows_its_clean_excerpts(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_text("x" * 5000)
    spooled = SpooledResult(path=raw, size=5000, mime_type="text/plain", head="password: hunter22\n", tail="the end")
    limiter = Limiter(Artifacts(tmp_path / "a", RetentionSettings(each=100)), REDACTOR)

    limited = await limiter.apply(ToolResult(spooled=spooled), BUDGET, "ada")

    assert "hunter22" not in limited.text
    assert "The rest is lost" in limited.text
    assert limited.text.endswith("the end")


@pytest.mark.slow
@given(
    lines=st.lists(st.text(max_size=80), min_size=1, max_size=200),
    budget=st.integers(100, 800),
)
async def test_every_visible_span_is_a_span_of_the_original_and_the_budget_holds(lines: list[str], budget: int) -> None:
    text = "\n".join(lines)
    store = Artifacts(None)

    limited = await Limiter(store, REDACTOR).apply(ToolResult.of_text(text), budget, "ada")

    clean = text.encode("utf-8", "replace").decode()
    assert len(limited.text.encode("utf-8", "replace")) <= max(budget * 4, 400)
    if "artifact" in limited.meta:
        head, _, rest = limited.text.partition("\n[toolcrib: ")
        tail = rest.partition(" goes on here.]\n")[2]
        assert clean.startswith(head)
        assert clean.endswith(tail)
        assert await whole_of(store, limited) == clean
    store.close()
