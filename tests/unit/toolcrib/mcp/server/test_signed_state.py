"""`requestState` comes from the outside: only our own, for the same request, once and in time."""

import pytest

from toolcrib.mcp.server.suspended_calls import Binding, InvalidState, StateSigner, binding


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


BOUND = binding("alice", "git__push", {"branch": "main"})


def test_a_state_comes_back_as_it_went() -> None:
    sealer = StateSigner()
    assert sealer.open(sealer.seal("state", "what ✓", BOUND), BOUND) == ("state", "what ✓")


@pytest.mark.parametrize(
    "other",
    [
        binding("bob", "git__push", {"branch": "main"}),
        binding("alice", "git__pull", {"branch": "main"}),
        binding("alice", "git__push", {"branch": "dev"}),
    ],
)
def test_a_state_is_refused_for_another_caller_tool_or_arguments(other: Binding) -> None:
    sealer = StateSigner()
    with pytest.raises(InvalidState):
        sealer.open(sealer.seal("state", "x", BOUND), other)


def test_no_single_changed_character_is_accepted() -> None:
    sealer = StateSigner()
    token = sealer.seal("state", "x", BOUND)
    for place in range(len(token)):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(InvalidState):
            sealer.open(changed, BOUND)
    for changed in (token + "-TAMPERED", "", ".", "é", token.partition(".")[0], "x." + token):
        with pytest.raises(InvalidState):
            sealer.open(changed, BOUND)
    assert sealer.open(token, BOUND) == ("state", "x")


def test_a_state_is_good_once() -> None:
    sealer = StateSigner()
    token = sealer.seal("state", "x", BOUND)
    sealer.open(token, BOUND)
    with pytest.raises(InvalidState):
        sealer.open(token, BOUND)


def test_a_state_is_refused_after_ten_minutes() -> None:
    clock = _Clock()
    sealer = StateSigner(clock=clock)
    token, late = sealer.seal("state", "x", BOUND), sealer.seal("state", "y", BOUND)
    clock.now += 599
    assert sealer.open(token, BOUND) == ("state", "x")
    clock.now += 1
    with pytest.raises(InvalidState):
        sealer.open(late, BOUND)


def test_a_caller_that_uses_up_its_states_uses_up_no_others() -> None:
    sealer, eve = StateSigner(remembered=3), binding("eve", "git__push", {})

    def opens(bound: Binding) -> bool:
        try:
            return sealer.open(sealer.seal("state", "x", bound), bound) == ("state", "x")
        except InvalidState:
            return False

    assert [opens(eve) for _ in range(4)] == [True] * 3 + [False]
    assert [opens(BOUND) for _ in range(4)] == [True] * 3 + [False]


def test_a_state_of_another_process_is_refused() -> None:
    with pytest.raises(InvalidState):
        StateSigner().open(StateSigner().seal("state", "x", BOUND), BOUND)
