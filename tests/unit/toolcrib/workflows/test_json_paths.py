"""JSON paths that a model writes, on values that a server wrote: neither may hold up the process."""

from typing import Any

import pytest

from toolcrib.errors import ToolFailure, UsageError
from toolcrib.workflows.templates import Template


def _nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value, "b": [1, 2]}
    return value


WIDE = [{"n": number} for number in range(3_000)]
HOSTILE = {
    "descents": ("$.input..*..*..*..*..*..*", _nested(60)),
    "descents that lead nowhere": ("$.input..*..*..*..*..*..*.nothing", _nested(60)),
    "selectors that double": ("$.input" + "['a','a']" * 40, _nested(60)),
    "wildcards that double": ("$.input" + "[*,*]" * 40, _nested(60)),
    "slices": ("$.input" + "[::,::]" * 40, [[[[[[[1] * 8] * 8] * 8] * 8]]]),
    "a filter of the whole for each item": ("$.input[?count($.input[*]) == 1]", WIDE),
    "filters of filters": ("$.input[?count($.input[?count($.input[*]) > 1]) == 1]", WIDE),
    "descents in a filter": ("$.input[?@..*..*..*..*..*..*]", [_nested(60)]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_a_path_that_looks_at_too_much_ends(name: str) -> None:
    path, value = HOSTILE[name]
    with pytest.raises(ToolFailure) as caught:
        Template({"$from": path}).fill({"input": value, "steps": {}})
    assert caught.value.code == "too_large"


@pytest.mark.parametrize("function", ["match", "search"])
@pytest.mark.parametrize("pattern", ["(a|aa)+b", "(a*)*b", "((((a+)+)+)+)+b"])
def test_a_pattern_takes_a_time_that_grows_with_its_text_alone(function: str, pattern: str) -> None:
    path = f"$.input[?{function}(@, '{pattern}')]"
    assert Template({"$from": path}).fill({"input": ["a" * 5_000, "aab"], "steps": {}}) == ["aab"]


@pytest.mark.parametrize(
    ("pattern", "found"), [("a.c", ["abc", "a𝄞c"]), ("[^.]+", ["abc", "a\nc", "a𝄞c"]), ("a{0,9999}", []), ("(", [])]
)
def test_patterns_are_those_of_rfc_9485(pattern: str, found: list[str]) -> None:
    texts = ["abc", "a\nc", "a𝄞c", "a\rc."]
    assert Template({"$from": f"$.input[?match(@, '{pattern}')]"}).fill({"input": texts, "steps": {}}) == found


@pytest.mark.parametrize("many", [{"$text": "{$.input}" * 11}, [{"$from": "$.input"}] * 11])
def test_values_that_are_named_again_and_again_are_counted_together(many: Any) -> None:
    with pytest.raises(ToolFailure) as caught:
        Template(many).fill({"input": "x" * 100_000, "steps": {}})
    assert caught.value.code == "too_large"


@pytest.mark.parametrize(
    "path",
    ["$.input" + ".a" * 600, f"$.input[?{'!' * 900}@]", "$.input" + "[?@" * 200],
)
def test_a_path_that_no_one_would_write_is_refused_when_it_is_read(path: str) -> None:
    with pytest.raises(UsageError):
        Template({"$from": path})
