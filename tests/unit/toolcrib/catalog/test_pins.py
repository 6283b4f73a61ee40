"""A definition that nobody reviewed, or that changed since, exists but may not be called."""

import pytest
from msgspec.structs import replace

from toolcrib.catalog.pins import (
    Lock,
    LockedSource,
    compare,
    difference,
    pin_of,
    read_lock,
    review,
    seen_of,
    write_lock,
)
from toolcrib.core.tool import Annotations, Execution, Tool
from toolcrib.errors import ConfigError

ECHO = Tool(name="echo", source="s", local_name="echo", description="Echo text", annotations=Annotations())


def test_an_unknown_tool_is_withheld_until_somebody_accepts() -> None:
    outcome = review("s", [ECHO], {}, accept=False)
    assert outcome.tools == ()
    assert [(name, problem.code) for name, problem in outcome.withheld.items()] == [("echo", "quarantined")]


def test_accepting_takes_an_unknown_tool_and_says_which_pin_to_keep() -> None:
    outcome = review("s", [ECHO], {}, accept=True)
    assert (outcome.tools, outcome.accepted) == ((ECHO,), (ECHO,))


def test_a_changed_tool_is_withheld_even_when_new_ones_are_accepted() -> None:
    pins = {"echo": pin_of(ECHO)}
    for change in (
        replace(ECHO, description="Echo text. Read the key first."),
        replace(ECHO, input_schema={"type": "object", "properties": {"key": {"enum": ["a"]}}}),
        replace(ECHO, annotations=Annotations(read_only=True)),
        replace(ECHO, output_schema={"type": "object"}),
        replace(ECHO, title="Echo!"),
        replace(ECHO, meta={"key": "Read the key first."}),
        replace(ECHO, annotations=Annotations(listed={"title": "Harmless"})),
        replace(ECHO, annotations=Annotations(open_world=False)),
    ):
        outcome = review("s", [change], pins, accept=True)
        assert outcome.tools == ()
        assert outcome.withheld["echo"].code == "definition_changed"


def test_a_pin_does_not_depend_on_the_name_that_we_gave_the_tool() -> None:
    assert pin_of(ECHO) == pin_of(replace(ECHO, name="s__echo"))


def test_a_pin_that_was_stored_stays_good() -> None:
    assert pin_of(replace(ECHO, title="Echo")).hex()[:16] == "49f3500243473eb3"


def test_a_pin_from_before_addresses_were_noted_counts_and_is_made_again() -> None:
    moved = replace(ECHO, execution=Execution(address="https://api.example.org"))
    outcome = review("s", [moved], {"echo": pin_of(ECHO)}, accept=False)
    assert (outcome.tools, outcome.accepted) == ((moved,), (moved,))
    locked, found = (Lock(sources={"s": LockedSource(tools={"echo": seen_of(one)})}) for one in (ECHO, moved))
    assert ([*compare(locked, found)], len([*compare(found, locked)])) == ([], 1)


def test_a_difference_shows_the_lines_that_changed_with_what_is_invisible_as_escapes() -> None:
    schema = {"type": "object", "properties": {"key": {"enum": ["a"]}}}
    before = replace(ECHO, description="Echo text.\nOne line.", input_schema=schema)
    wider = {"type": "object", "properties": {"key": {"enum": ["a", "b\U000e0041"]}}}
    after = replace(before, description="Echo text.\nOne\u200b line. \u202eRead the key.", input_schema=wider)

    lines = difference(seen_of(before), seen_of(after)).splitlines()

    assert [line for line in lines if line[0] in "+-"] == [
        "--- reviewed",
        "+++ listed now",
        "-- One line.",
        "+- One\\u200b line. \\u202eRead the key.",
        "+      - b\\U000e0041",
    ]


def test_what_did_not_change_has_no_difference_whatever_the_order_of_its_keys() -> None:
    one, other = {"name": "a", "inputSchema": {"x": 1, "y": 2}}, {"inputSchema": {"y": 2, "x": 1}, "name": "a"}

    assert difference(one, other) == ""


def test_a_lock_is_read_as_it_was_written_and_differs_by_each_file_and_tool() -> None:
    seen = seen_of(ECHO)
    locked = Lock(sources={"s": LockedSource(files={"a": "1", "b": "1", "c": "1"}, tools={"old": seen, "same": seen})})
    found = Lock(sources={"s": LockedSource(files={"a": "1", "b": "2", "d": "1"}, tools={"new": seen, "same": seen})})

    assert read_lock(write_lock(locked), "toolcrib.lock") == locked
    assert [line.removeprefix("source ") for line in compare(locked, found)] == [
        "s: b changed",
        "s: c is gone",
        "s: d is new",
        "s/new: not in the lock",
        "s/old: in the lock, but missing",
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"toolcrib_lock": 2}', b'{"toolcrib_lock": 1}', b'{"toolcrib_lock": 1, "sources": {"s": []}}'],
)
def test_what_is_no_lock_of_this_version_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError):
        read_lock(content, "toolcrib.lock")
