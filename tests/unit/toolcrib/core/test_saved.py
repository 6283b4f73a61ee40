"""A call that is written down is the same call when it is read again."""

import json
from pathlib import Path
from typing import Any

from toolcrib.core.call import Call
from toolcrib.core.saved_call import SavedCall
from toolcrib.core.session import Scope, SessionFiles, SessionState
from toolcrib.core.taint import Taint
from toolcrib.core.tool import Tool

_TOOL = Tool(name="files__write", source="files", local_name="write")


def _call(**session: Any) -> Call:
    state = SessionState(key="s", **session)
    return Call(id="c1", name="files__write", arguments={"path": "a", "n": [1, {"x": None}]}, session=state, tool=_TOOL)


def test_what_was_written_down_is_read_as_the_same_value() -> None:
    saved = SavedCall.of(
        _call(
            scope=Scope(allowed=frozenset({"b", "a"}), exact=("a",), available={"network": True}, versions={"t": "1"}),
            files=SessionFiles(cwd=Path("/w"), task="t"),
            taint=Taint(source="web_fetch", private_read_by="mail"),
            mode="review",
            defaults={"p": 1},
            user="u",
        )
    )

    assert SavedCall.from_json(json.loads(json.dumps(saved.to_json()))) == saved
    assert (saved.session.available, saved.session.task, saved.session.confided) == ({"network": True}, "t", "mail")


def test_no_tool_in_scope_and_every_tool_in_scope_stay_apart() -> None:
    none, every = SavedCall.of(_call(scope=Scope(allowed=frozenset()))), SavedCall.of(_call())

    read = [SavedCall.from_json(json.loads(json.dumps(saved.to_json()))) for saved in (none, every)]

    assert [saved.session.allowed for saved in read] == [(), None]


def test_keys_of_a_newer_version_are_left_out() -> None:
    saved = SavedCall.of(_call())
    newer = {**saved.to_json(), "later": 1, "session": {**saved.to_json()["session"], "later": 2}}

    assert SavedCall.from_json(newer) == saved
