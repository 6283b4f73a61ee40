"""What tools keep has its limits: what is over one is refused in words, and nothing of it is kept."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolcrib import Context, Toolcrib, tool
from toolcrib.core.result import ToolResult
from toolcrib.core.services.records import Record, Records
from toolcrib.store import chain
from toolcrib.store import records as rows

SECRET = "ghp_" + "a1B2c3D4e5F6" * 3

Use = Callable[[Records], Awaitable[Any]]

REFUSED: list[tuple[Use, str, str]] = [
    (lambda kept: kept.add({"text": "x" * (1 << 20)}), "too_large", "1,048,587 bytes as JSON"),
    (lambda kept: kept.add({}, text="x " * (1 << 20)), "too_large", "2,097,152 characters"),
    (lambda kept: kept.put("x" * 10_000_000, {}), "too_large", "its id has 10,000,000 bytes"),
    (lambda kept: kept.put("x", {}, group="ü" * 1001), "too_large", "its group has 2,002 bytes"),
    (lambda kept: kept.put("a\0b", {}), "invalid_arguments", "its id has a NUL character"),
    (lambda kept: kept.put("a\ud800", {}), "invalid_arguments", "its id is not Unicode text"),
    (lambda kept: kept.put("x", {"text": "\ud800"}), "invalid_arguments", "surrogates"),
    (lambda kept: kept.put("x", {"number": 10**40}), "invalid_arguments", "64-bit"),
    (lambda kept: kept.put("x", {"what": object()}), "invalid_arguments", "object"),
    (lambda kept: kept.get("x" * 2001), "too_large", "2,000 is the most"),
]


async def used(*uses: Use, collection: str = "notes") -> tuple[list[ToolResult], list[Record]]:
    """Let a tool do each of `uses` in a call of its own; return what came of the calls, and what is kept then."""
    todo = list(uses)

    @tool(kind="write")
    async def use(ctx: Context) -> str:
        """Use the records."""
        return str(await todo.pop(0)(ctx.records(collection)))

    async with Toolcrib(memory=True) as crib:
        crib.add(use)
        session = crib.session(principal="ada", mode="autonomous")
        results = [await session.call("use", {}) for _ in uses]
        return results, await crib.store.records.list(("ada", collection), group=None, limit=100)


@pytest.mark.parametrize(("use", "code", "told"), REFUSED)
async def test_what_is_too_large_or_no_json_is_refused_and_says_so(use: Use, code: str, told: str) -> None:
    (result,), left = await used(use)

    assert result.error is not None
    assert (result.error.code, left) == (code, [])
    assert told in result.text


async def test_a_collection_that_is_full_takes_changes_and_no_new_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_RECORDS", 2)

    results, left = await used(
        lambda kept: kept.put("a", {}),
        lambda kept: kept.add({}),
        lambda kept: kept.add({}),
        lambda kept: kept.put("a", {"changed": True}),
        lambda kept: kept.remove("1"),
        lambda kept: kept.add({}),
    )

    codes = [result.error.code if result.error else "" for result in results]
    assert codes == ["", "", "too_large", "", "", ""]
    assert {(record.id, record.revision) for record in left} == {("a", 2), ("2", 1)}


async def test_a_collection_takes_as_many_records_as_it_may_have_though_few_of_them_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "MAX_RECORDS", 12)
    for name, value in (("_MAX_PROCESSES", 2), ("_ADDITIONS_BETWEEN_COUNTS", 4)):
        monkeypatch.setattr(chain, name, value)

    def add(kept: Records) -> Awaitable[Any]:
        return kept.add({})

    results, left = await used(*[add] * 14)

    assert [result.error.code if result.error else "" for result in results] == [""] * 12 + ["too_large"] * 2
    assert len(left) == 12


async def test_a_secret_in_an_id_or_a_group_is_masked_and_the_record_is_found_all_the_same() -> None:
    async def there(kept: Records) -> tuple[bool, int, int, bool]:
        found = await kept.get(f"the {SECRET}")
        listed, searched = await kept.list(group=SECRET), await kept.search("word", group=SECRET)
        return found is not None, len(listed), len(searched), await kept.remove(f"the {SECRET}")

    results, _ = await used(lambda kept: kept.put(f"the {SECRET}", {}, group=SECRET, text="word"), there)
    _, left = await used(lambda kept: kept.put(f"the {SECRET}", {}, group=SECRET))

    assert results[1].text == "(True, 1, 1, True)"
    assert SECRET not in repr(left)
    assert [record.id for record in left] == ["the [redacted:github_token]"]


@pytest.mark.parametrize("limit", [-1, 0, 10**40])
async def test_no_limit_of_a_list_or_a_search_breaks_it(limit: int) -> None:
    async def found(kept: Records) -> list[int]:
        return [len(await kept.list(limit=limit)), len(await kept.search("word " * 1_000_000, limit=limit))]

    results, _ = await used(lambda kept: kept.add({}, text="a word"), found)

    assert results[1].text == ("[1, 1]" if limit > 0 else "[0, 0]")
