"""Tools that do the opposite of what is wanted come after those that do it, and ties are settled by what tools do."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolcrib.catalog.index import Index, IndexEntry
from toolcrib.catalog.ranking.query import actions_of_name, are_opposed, wanted_actions
from toolcrib.catalog.registry import Registry
from toolcrib.core.tool import Annotations, Availability, Tool

PAIRS = Path(__file__).parents[4] / "bench" / "opposites.jsonl"


def test_of_the_labelled_pairs_the_tool_comes_before_its_opposite() -> None:
    pairs = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    index = Index(
        IndexEntry(
            name=f"{pair['server']}__{pair[side]['name']}",
            leaf=pair[side]["name"],
            source=pair["server"],
            description=pair[side]["description"],
        )
        for pair in pairs
        for side in ("right", "wrong")
    )
    missed: list[str] = []
    for pair in pairs:
        right, wrong = (f"{pair['server']}__{pair[side]['name']}" for side in ("right", "wrong"))
        found = [hit.name for hit in index.search(pair["query"], weak=True) if hit.name in (right, wrong)]
        if found[:1] != [right]:
            missed.append(pair["query"])
    assert len(pairs) >= 60
    assert len(missed) <= 4, missed


@pytest.mark.parametrize(
    ("query", "opposed", "agreed"),
    [
        ("undo the deletion", "delete_file", "restore_file"),
        ("cancel the request", "approve_request", "cancel_request"),
        ("do not approve it", "files__approve", "files__reject"),
        ("remove the lock", "lock_thread", "remove_lock"),
        ("lock the thread", "unlockThread", "lockThread"),
        ("stop following Ann", "follow_user", "unfollow_user"),
        ("turn the alarms off", "enable_alarm", "disable_alarm"),
        ("log Ann out", "login", "logout"),
        ("use the archived board", "archive_board", "unarchive_board"),
        ("pin the note", "unpin_note", "pin_note"),
        ("deselect the row", "select_row", "deselect_row"),
        ("switch it on", "toggle/disable", "enable"),
    ],
)
def test_a_name_that_promises_the_opposite_of_what_is_wanted_is_opposed(query: str, opposed: str, agreed: str) -> None:
    wanted = wanted_actions(query).actions
    assert [are_opposed(wanted, actions_of_name(name)) for name in (opposed, agreed)] == [True, False]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("lock or unlock the door", "lock_door"),
        ("disable alarms", "enable_or_disable_alarms"),
        ("mute Ann, then unmute Bob", "mute_user"),
        ("find a discounted laptop", "discount_finder"),
        ("discover hosts", "cover_image"),
        ("I can never find a book", "find_book"),
        ("delete the old branch", "delete_branch"),
        ("what is the weather", "start_server"),
    ],
)
def test_a_name_that_has_nothing_against_what_is_wanted_is_not_opposed(query: str, name: str) -> None:
    assert not are_opposed(wanted_actions(query).actions, actions_of_name(name))


UNKNOWN = Annotations()
READS = Annotations(read_only=True, destructive=False)


def tool(source: str, name: str, annotations: Annotations = UNKNOWN) -> Tool:
    """A tool with the description of every other."""
    description = "Works with the thread."
    return Tool(name=name, source=source, local_name=name, description=description, annotations=annotations)


def test_of_tools_with_one_score_the_one_that_does_least_harm_comes_first_and_then_the_one_listed_first() -> None:
    registry = Registry()
    registry.put("zeta", [tool("zeta", "thread_y"), tool("zeta", "thread_x", READS)])
    registry.put("alpha", [tool("alpha", "thread_v"), tool("alpha", "thread_w", READS)])
    names = [hit.name for hit in registry.catalog.search("thread")]
    assert names == ["zeta__thread_x", "alpha__thread_w", "zeta__thread_y", "alpha__thread_v"]
    assert [hit.name for hit in registry.catalog.search("thread", 1)] == ["zeta__thread_x"]


def test_a_users_tool_comes_before_one_of_ours_that_fits_as_well() -> None:
    registry = Registry()
    registry.declare("builtin", prefix=False, yields=True)
    registry.put("builtin", [tool("builtin", "read_thread"), tool("builtin", "count_words")])
    registry.put("zeta", [tool("zeta", "read_thread")])
    for query in ("read a thread", "read_thread"):
        assert [hit.name for hit in registry.catalog.search(query)][:2] == ["zeta__read_thread", "read_thread"], query
    assert registry.catalog.search("count words")[0].name == "count_words"


@pytest.mark.parametrize(("missing", "first"), [("", "mail__send_text"), ("a key", "voice__say")])
def test_a_tool_that_cannot_work_comes_behind_one_that_works_and_fits_nearly_as_well(missing: str, first: str) -> None:
    registry = Registry()
    sends = replace(tool("mail", "send_text"), description="Send a text.", availability=Availability(missing=missing))
    says = replace(tool("voice", "say"), description="Say aloud what is given here, slowly and twice: a short text.")
    registry.put("mail", [sends])
    registry.put("voice", [says])
    assert registry.catalog.search("text")[0].name == first
    assert registry.catalog.search("send text")[0].name == "mail__send_text"


def test_where_nothing_comes_near_the_categories_of_the_user_come_first() -> None:
    registry = Registry()
    registry.declare("builtin", prefix=False, yields=True)
    registry.put("builtin", [tool("builtin", name) for name in ("count_words", "read_thread")])
    registry.put("zeta", [tool("zeta", "say")])
    assert registry.catalog.nearest_categories("xylophone") == {"zeta": 1, "builtin": 2}
