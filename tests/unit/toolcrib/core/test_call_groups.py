"""Fields of a call stand in groups, and a strategy has state of its own in a session."""

import pytest
from msgspec.structs import replace

from toolcrib.core.call import Call, Changes, Options
from toolcrib.core.result import ToolResult
from toolcrib.core.session import SessionState
from toolcrib.disclosure.selection.requirements import SelectionState

CALL = Call(id="c", name="n", arguments={}, session=SessionState(key="s"))


def test_a_field_of_a_group_changes_by_its_own_name_and_leaves_the_rest() -> None:
    changed = CALL.evolve(timeout=3.0, dry_run=True, repairs=("x",), name="m")
    expected = replace(CALL, name="m", options=Options(timeout=3.0, dry_run=True), changes=Changes(repairs=("x",)))
    assert (changed, CALL.options) == (expected, Options())


def test_a_default_that_is_repeated_keeps_the_shared_group() -> None:
    assert CALL.evolve(place=0, together=1, raw=False).options is CALL.options


def test_a_name_that_no_group_has_raises() -> None:
    with pytest.raises(TypeError, match="tiemout"):
        CALL.evolve(tiemout=3.0)


def test_state_of_a_strategy_is_one_object_a_session_and_part_of_what_a_view_depends_on() -> None:
    session, other = SessionState(key="s"), SessionState(key="t")
    before = session.shown_by
    session.state_of(SelectionState).intent = {"complexity": "simple"}
    assert session.state_of(SelectionState).intent == {"complexity": "simple"}
    assert (other.shown_by, session.shown_by == before) == (before, False)


def test_a_result_evolves_as_a_call_does_and_keeps_what_is_not_named() -> None:
    result = ToolResult.of_text("a").with_meta(rule="r")
    assert result.evolve(structured_content={"n": 1}) == replace(result, structured_content={"n": 1})
    with pytest.raises(TypeError, match="contents"):
        result.evolve(contents=())


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult.of_text("a"), "a"),
        (ToolResult.of_text("a", structured_content={}), None),
        (ToolResult.failed("denied", "no"), None),
        (ToolResult(content=({"type": "text", "text": "a"}, {"type": "text", "text": "b"})), None),
        (ToolResult(content=({"type": "text", "text": "a", "annotations": {}},)), None),
        (ToolResult(content=({"type": "text", "text": "a"},), input_required={}), None),
    ],
)
def test_only_a_result_that_is_one_text_and_nothing_else_has_an_only_text(result: ToolResult, text: str | None) -> None:
    assert result.only_text == text
