"""A kept output as an argument of the next call, by every path, without passing through the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from toolcrib.config import Settings, bare
from toolcrib.core.json import canonical
from toolcrib.core.permission import Answer, Question
from toolcrib.crib import Toolcrib
from toolcrib.crib.session import Session
from toolcrib.plugin import tool
from toolcrib.testing import RecordingApprover

ROWS = [{"id": number, "name": f"row {number}"} for number in range(2000)]
TEXT = "\n".join(f"{number} grey heron" for number in range(4000))
LONG = "x" * 1_200_000
URI = "toolcrib://artifact/"


@tool(kind="read", op="rows.list", core=True)
def rows() -> list[dict[str, Any]]:
    """List all rows."""
    return ROWS


@tool(kind="read", op="text.get", core=True)
def words() -> str:
    """Get all words."""
    return TEXT


@tool(kind="read", op="text.long", core=True)
def endless() -> str:
    """Get more than arguments may have."""
    return LONG


@tool(kind="read", op="text.count", core=True)
def count(text: str) -> int:
    """Count characters."""
    return len(text)


@tool(kind="read", op="text.strange", core=True, traits=["untrusted"])
def strange() -> str:
    """Get words of strangers."""
    return TEXT


@tool(kind="write", op="rows.store", core=True)
def store(rows: list[dict[str, Any]], label: str = "none") -> int:
    """Store rows."""
    return len(rows)


@tool(kind="read", op="any.echo", core=True)
def echo(value: str | int | list[Any] | dict[str, Any] | None = None, nested: dict[str, Any] | None = None) -> str:
    """Say what came."""
    return json.dumps([value, nested])[:300]


@pytest.fixture
async def crib() -> AsyncGenerator[Toolcrib]:
    async with Toolcrib() as opened:
        opened.add(rows, words, strange, endless, count, store, echo)
        yield opened


async def kept(session: Session, name: str = "words") -> str:
    """Return the id of the artifact that a result became."""
    return str((await session.call(name)).meta["artifact"])


async def failed(session: Session, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    error = (await session.call(name, arguments)).error
    assert error is not None
    return error.code, error.message


async def test_the_note_of_a_cut_says_that_the_whole_can_be_an_argument(crib: Toolcrib) -> None:
    assert 'as an argument: {"$artifact": ID}' in (await crib.session().call("words")).text


@pytest.mark.parametrize("written", ["{}", URI + "{}"])
async def test_the_whole_stands_where_its_reference_stood(crib: Toolcrib, written: str) -> None:
    session = crib.session()
    reference = {"$artifact": written.format(await kept(session))}
    assert (await session.call("count", {"text": reference})).text == str(len(TEXT))


async def test_where_plain_text_is_wanted_the_uri_alone_is_enough_and_inside_other_text_it_is_text(
    crib: Toolcrib,
) -> None:
    session = crib.session()
    uri = URI + await kept(session)
    assert (await session.call("count", {"text": uri})).text == str(len(TEXT))
    assert (await session.call("count", {"text": f"see {uri}"})).text == str(len(uri) + 4)
    assert json.loads((await session.call("echo", {"nested": {"a": uri}})).text) == [None, {"a": uri}]


async def test_a_piece_is_taken_in_bytes_and_a_value_by_its_pointer(crib: Toolcrib) -> None:
    session = crib.session()
    text, data = await kept(session), await kept(session, "rows")
    piece = await session.call("echo", {"value": {"$artifact": text, "offset": 2, "limit": 10}})
    value = await session.call("echo", {"nested": {"deep": [{"$artifact": data, "path": "/3/name"}]}})
    assert json.loads(piece.text)[0] == TEXT[2:12]
    assert json.loads(value.text)[1] == {"deep": ["row 3"]}


async def test_json_is_an_array_where_an_array_is_wanted_and_text_where_text_is(crib: Toolcrib) -> None:
    session = crib.session(mode="autonomous")
    data = await kept(session, "rows")
    assert (await session.call("store", {"rows": {"$artifact": data}})).text == str(len(ROWS))
    counted = await session.call("count", {"text": {"$artifact": data}})
    assert counted.error is None and int(counted.text) > 50_000


@pytest.mark.parametrize(
    ("reference", "code", "said"),
    [
        ({"$artifact": "0" * 32}, "not_found", "text: no such artifact"),
        ({"$artifact": "nonsense"}, "invalid_arguments", "text: 'nonsense' names no artifact"),
        ({"$artifact": "ID", "ofset": 1}, "invalid_arguments", "has no key 'ofset'"),
        ({"$artifact": "ID", "offset": -1}, "invalid_arguments", "offset is a number of bytes"),
        ({"$artifact": "ID", "path": "/0"}, "invalid_arguments", "JSON"),
        ({"$artifact": "ID", "path": "/0", "limit": 4}, "invalid_arguments", "not both"),
    ],
)
async def test_a_reference_that_cannot_be_had_names_the_argument(
    crib: Toolcrib, reference: dict[str, Any], code: str, said: str
) -> None:
    session = crib.session()
    if reference["$artifact"] == "ID":
        reference = {**reference, "$artifact": await kept(session)}
    found = await failed(session, "count", {"text": reference})
    assert (found[0], said in found[1]) == (code, True)


async def test_nobody_passes_on_what_belongs_to_somebody_else(crib: Toolcrib) -> None:
    id = await kept(crib.session(principal="ada"))
    assert await failed(crib.session(principal="bob"), "count", {"text": {"$artifact": id}}) == (
        "not_found",
        "text: no such artifact",
    )


async def test_arguments_have_their_limit_with_what_is_put_into_them(crib: Toolcrib) -> None:
    session = crib.session()
    id = await kept(session, "endless")
    assert (await failed(session, "count", {"text": {"$artifact": id}}))[0] == "too_large"
    half = {"$artifact": id, "limit": 700_000}
    assert (await failed(session, "echo", {"value": half, "nested": {"a": half}}))[0] == "too_large"
    assert (await session.call("count", {"text": half})).text == "700000"


async def test_the_schema_and_the_rules_see_the_value(crib: Toolcrib) -> None:
    session = crib.session(mode="autonomous")
    text = await kept(session)
    assert (await failed(session, "store", {"rows": {"$artifact": text}}))[0] == "invalid_arguments"
    async with Toolcrib(_denying("count(text=0 grey heron*)"), memory=True) as strict:
        strict.add(words, count)
        other = strict.session()
        assert (await failed(other, "count", {"text": {"$artifact": await kept(other)}}))[0] == "denied"


def _denying(rule: str) -> Settings:
    return bare().with_values(rules={"deny": (rule,)})


async def test_who_is_asked_and_who_reads_the_log_see_size_hash_and_beginning(crib: Toolcrib) -> None:
    approver = RecordingApprover()
    session = crib.session(approver=approver)
    id = await kept(session, "rows")
    result = await session.call("store", {"rows": {"$artifact": id}, "label": "mine"})
    row = next(row for row in await crib.store.calls.list(limit=5) if row.tool == "store")
    value = canonical(ROWS)
    told = {
        "$artifact": URI + id,
        "bytes": len(value),
        "sha256": hashlib.sha256(value).hexdigest(),
        "head": value.decode()[:200],
    }
    assert result.text == str(len(ROWS))
    assert json.loads(row.arguments) == {"rows": told, "label": "mine"}
    assert row.arguments_hash == hashlib.sha256(canonical({"rows": ROWS, "label": "mine"})).hexdigest()
    assert json.loads(approver.questions[0].shown) == {"rows": told, "label": "mine"}
    assert approver.questions[0].arguments == {"rows": ROWS, "label": "mine"}


async def test_the_log_says_what_ran_where_somebody_put_other_arguments_in_the_place_of_a_reference(
    crib: Toolcrib,
) -> None:
    async def approver(question: Question) -> Answer:
        return Answer(verdict="edit", arguments={"rows": [], "label": "theirs"})

    session = crib.session(approver=approver)
    result = await session.call("store", {"rows": {"$artifact": await kept(session, "rows")}})
    row = next(row for row in await crib.store.calls.list(limit=5) if row.tool == "store")
    assert (result.text.splitlines()[0], json.loads(row.arguments)) == ("0", {"rows": [], "label": "theirs"})


async def test_what_strangers_wrote_taints_the_session_that_takes_it_as_an_argument(crib: Toolcrib) -> None:
    reader, other = crib.session(mode="autonomous"), crib.session(mode="autonomous")
    id = await kept(reader, "strange")
    said = await other.call("count", {"text": {"$artifact": id}})
    assert (said.text, other.state.taint.source) == (str(len(TEXT)), "count")
    assert (await failed(other, "store", {"rows": []}))[0] == "denied"


async def test_what_is_put_in_is_not_searched_for_references(crib: Toolcrib) -> None:
    session = crib.session()
    planted = json.dumps([{"$artifact": "0" * 32}] * 2000)

    @tool(kind="read")
    def plant() -> str:
        """Return text that looks like references."""
        return planted

    crib.add(plant)
    id = await kept(session, "plant")
    assert json.loads((await session.call("echo", {"value": {"$artifact": id, "path": "/0"}})).text)[0] == {
        "$artifact": "0" * 32
    }


async def test_every_path_puts_it_in(crib: Toolcrib) -> None:
    session = crib.session()
    reference = {"text": {"$artifact": await kept(session)}}
    verb = await session.call("call_tool", {"name": "count", "arguments": reference})
    gateway = crib.session(profile="gateway")
    run = await gateway.call("tool_exec", {"op": "text.count", "args": reference})
    batch = await gateway.call(
        "tool_batch", {"ops": [{"type": "exec", "op": "text.count", "args": reference}] * 2, "mode": "parallel"}
    )
    assert verb.text == str(len(TEXT))
    assert run.structured_content["result"] == len(TEXT)
    assert [one["ok"] for one in batch.structured_content["results"]] == [True, True]


async def test_the_verb_that_reads_has_a_second_name_and_finds_lines(crib: Toolcrib) -> None:
    session = crib.session()
    id = await kept(session)
    page = await session.call("read_result", {"id": URI + id, "offset": 0, "limit": 12})
    found = await session.call("read_artifact", {"id": id, "find": "17 GREY"})
    assert page.text.startswith("0 grey heron\n[bytes 0-12 of")
    assert found.text.splitlines()[0] == f"18 @{TEXT.index('17 grey')}: 17 grey heron"
    lines = sum("17 grey" in line for line in TEXT.splitlines())
    assert found.text.splitlines()[-1] == f"[{lines} lines found; number @offset: line]"
    assert page.meta["trust"] == "local"
