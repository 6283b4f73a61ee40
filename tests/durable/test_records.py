"""What tools remember: the same on every place, in every process, and never of another principal."""

import anyio
import pytest
from msgspec.structs import replace

from durable.places import Place, everywhere, shared
from toolcrib import Context, Toolcrib, tool
from toolcrib.core.services.records import Record
from toolcrib.errors import ToolFailure
from toolcrib.store.records import SearchText

KEY = ("ada", "notes")


@everywhere
async def test_a_record_is_kept_changed_and_forgotten_and_its_number_is_never_given_again(place: Place) -> None:
    now = 1000.0
    async with place.open(clock=lambda: now) as store:
        rows = store.records
        first = await rows.add(KEY, {"text": "Grüße\0"}, group="inbox", text="Grüße")
        second = await rows.add(KEY, {"text": "milk"}, group="shopping", text="milk")
        now = 2000.0
        changed = await rows.put(KEY, "1", {"text": "changed"}, group="done", text="changed", revision=1)
        everything = await rows.list(KEY, group=None, limit=10)
        done = await rows.list(KEY, group="done", limit=10)
        removed = await rows.remove(KEY, "2")
        again = await rows.remove(KEY, "2")
        third = await rows.add(KEY, {}, group="", text="")
        missing = await rows.get(KEY, "2")
    async with place.open(clock=lambda: now) as store:
        kept = await store.records.get(KEY, "1")

    expected = Record(id="1", value={"text": "changed"}, group="done", revision=2, created=1000.0, updated=2000.0)
    assert first == Record(id="1", value={"text": "Grüße\0"}, group="inbox", created=1000.0, updated=1000.0)
    assert second == Record(id="2", value={"text": "milk"}, group="shopping", created=1000.0, updated=1000.0)
    assert (changed, kept) == (expected, expected if place.where else None)
    assert everything == [expected, second]
    assert done == [expected]
    assert (removed, again, missing, third.id) == (True, False, None, "3")


@everywhere
async def test_a_search_finds_the_other_forms_of_its_words(place: Place) -> None:
    texts = ("Write the page", "Pager of the night shift", "Companies that tried", "Überprüfungen", "v2 planes")
    async with place.open() as store:
        for text in texts:
            await store.records.add(KEY, {"text": text}, group="", text=text)

        async def found(query: str) -> list[str]:
            hits = await store.records.search(KEY, query, group=None, limit=9)
            return [hit.value["text"].split()[0] for hit in hits]

        assert await found("writing pages") == ["Write"]
        assert await found("page") == ["Write", "Pager"]
        assert await found("company tries") == ["Companies"]
        assert await found("plans") == []
        assert await found("überprüfung") == ["Überprüfungen"]


@everywhere
async def test_who_changes_a_record_from_an_old_state_is_told_and_changes_nothing(place: Place) -> None:
    async with place.open(clock=lambda: 1.0) as store:
        made = await store.records.put(KEY, "plan", {"step": 1}, group="", text="", revision=0)
        with pytest.raises(ToolFailure) as there:
            await store.records.put(KEY, "plan", {"step": 9}, group="", text="", revision=0)
        await store.records.put(KEY, "plan", {"step": 2}, group="", text="", revision=made.revision)
        with pytest.raises(ToolFailure) as old:
            await store.records.put(KEY, "plan", {"step": 9}, group="", text="", revision=made.revision)
        found = await store.records.get(KEY, "plan")

    assert [failure.value.code for failure in (there, old)] == ["conflict", "conflict"]
    assert "revision 2, not 1" in old.value.message
    assert found is not None
    assert found.value == {"step": 2}


@everywhere
async def test_a_search_finds_words_and_what_they_begin_best_first_and_only_of_the_collection(place: Place) -> None:
    texts = {
        "deploy": "How to deploy the billing service to production",
        "billing": "Billing: invoices, billing dates and billing addresses",
        "code": "createInvoice and delete_invoice live in the module payments",
        "other": "Nothing of interest 100% _ here",
    }
    async with place.open(clock=lambda: 1.0) as store:
        for id, text in texts.items():
            await store.records.put(KEY, id, {}, group=id[0], text=text, revision=None)
        await store.records.put(("bob", "notes"), "his", {}, group="", text="billing", revision=None)
        await store.records.put(("ada", "tasks"), "task", {}, group="", text="billing", revision=None)

        async def found(query: str, group: str | None = None) -> list[str]:
            return [hit.id for hit in await store.records.search(KEY, query, group=group, limit=10)]

        results = {query: await found(query) for query in ("billing", "invoice", "PROD", "nowhere", "", "%", "_")}
        of_a_group = await found("billing", "d")
        await store.records.put(KEY, "billing", {}, group="b", text="nothing any more", revision=None)
        later = await found("billing")

    assert results == {
        "billing": ["billing", "deploy"],
        "invoice": ["code", "billing"],
        "PROD": ["deploy"],
        "nowhere": [],
        "": [],
        "%": [],
        "_": [],
    }
    assert (of_a_group, later) == (["deploy"], ["deploy"])


@everywhere
async def test_words_are_found_without_their_accents_and_however_those_are_written(place: Place) -> None:
    texts = {"german": "Überprüfung der Verträge", "apart": "Vertra\u0308ge", "kana": "がく"}
    async with place.open(clock=lambda: 1.0) as store:
        for id, text in texts.items():
            await store.records.put(KEY, id, {}, group="", text=text, revision=None)

        found = {
            query: {hit.id for hit in await store.records.search(KEY, query, group=None, limit=10)}
            for query in ("uberprufung", "Vertrag", "VERTRÄGE", "がく", "かく")
        }

    assert found == {
        "uberprufung": {"german"},
        "Vertrag": {"german", "apart"},
        "VERTRÄGE": {"german", "apart"},
        "がく": {"kana"},
        "かく": set(),
    }


@shared
async def test_two_processes_that_add_at_once_get_different_numbers(place: Place) -> None:
    async with place.open(clock=lambda: 1.0) as one, place.open(clock=lambda: 1.0) as two:
        ids: list[str] = []

        async def add(store: object) -> None:
            record = await (one if store == 1 else two).records.add(KEY, {}, group="", text="")
            ids.append(record.id)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(add, number % 2)

    assert sorted(map(int, ids)) == list(range(1, 21))


@tool(kind="write")
async def remember(text: str, ctx: Context) -> str:
    """Remember something.

    Args:
        text: What.
    """
    return (await ctx.records("notes").add({"text": text}, text=text)).id


@tool(kind="read")
async def recall(query: str, ctx: Context) -> list[str]:
    """Find what was remembered.

    Args:
        query: Words of it.
    """
    return [record.value["text"] for record in await ctx.records("notes").search(query)]


async def test_tools_keep_records_for_their_caller_alone_and_secrets_are_masked() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    async with Toolcrib(memory=True) as crib:
        crib.add(remember, recall)
        ada = crib.session(principal="ada", mode="autonomous")
        bob = crib.session(principal="bob", mode="autonomous")
        await ada.call("remember", {"text": f"the token is {secret}"})
        hers = await ada.call("recall", {"query": "token"})
        his = await bob.call("recall", {"query": "token"})
        kept = await crib.store.records.get(("ada", "notes"), "1")

    assert kept is not None
    assert kept.value == {"text": "the token is [redacted:github_token]"}
    assert (hers.text, his.text) == ('["the token is [redacted:github_token]"]', "[]")


@everywhere
async def test_vectors_are_of_what_a_record_says_now_and_of_one_model(place: Place) -> None:
    async with place.open(clock=lambda: 1.0) as store:
        rows = store.records
        search_text = SearchText(text="rain", model="m1", vectors=b"\x00\xff\x01")
        await rows.add(KEY, {"n": 1}, group="a", text=search_text)
        await rows.add(KEY, {"n": 2}, group="b", text=replace(search_text, vectors=b"two"))
        await rows.add(KEY, {"n": 3}, group="a", text=replace(search_text, model="m2"))
        await rows.add(("somebody", KEY[1]), {"n": 4}, group="a", text=search_text)
        first = await rows.vectors(KEY, group="a", model="m1")
        everywhere_ = sorted(await rows.vectors(KEY, group=None, model="m1"))
        counts = [await rows.count_vectors(KEY, group=group, model="m1") for group in ("a", "b", "c", None)]
        await rows.put(KEY, "1", {"n": 1}, group="b", text=replace(search_text, vectors=b"new"), revision=1)
        moved = sorted(await rows.vectors(KEY, group="b", model="m1"))
        await rows.put(KEY, "1", {"n": 1}, group="b", text="by words only", revision=2)
        await rows.remove(KEY, "2")
        left = await rows.vectors(KEY, group=None, model="m1")
        some = [record.id for record in await rows.some(KEY, ["3", "2", "1"])]

    assert first == [("1", b"\x00\xff\x01")]
    assert everywhere_ == [("1", b"\x00\xff\x01"), ("2", b"two")]
    assert counts == [1, 1, 0, 2]
    assert moved == [("1", b"new"), ("2", b"two")]
    assert (left, some) == ([], ["3", "1"])


@everywhere
async def test_a_score_says_how_much_of_what_is_asked_for_a_record_has(place: Place) -> None:
    async with place.open(clock=lambda: 1.0) as store:
        for text in ("alpha beta", "beta gamma", "delta"):
            await store.records.add(KEY, {}, group="", text=text)
        whole = await store.records.search(KEY, "alpha beta", group=None, limit=9)
        part = await store.records.search(KEY, "alpha omega psi", group=None, limit=9)

    assert [record.id for record in whole] == ["1", "2"]
    assert whole[0].score == pytest.approx(1.0, abs=0.2)
    assert 0.0 < part[0].score < 0.5
