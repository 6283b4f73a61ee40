"""How things look in a chat: Markdown on its way, diffs, the region that moves."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from toolcrib.core.context import Output
from toolcrib.core.result import ToolResult
from toolcrib_agent.chat.call_view import between, call_line, changes_of, colored
from toolcrib_agent.chat.loop import MarkdownStream, TurnView
from toolcrib_agent.chat.screen import Screen, Tail, console_for
from toolcrib_agent.events import (
    CallBegun,
    CallEnded,
    CallProgress,
    Compacted,
    Concluding,
    Finished,
    Outcome,
    Requesting,
    Retrying,
    SubAgentEvent,
    TextDelta,
    ThinkingDelta,
)
from toolcrib_agent.limits import Usage
from unit.toolcrib.cli.chatter import Chatter

ANSWER = """\
# Title

A paragraph that
goes on.

- one
- two

  still two

```python
def f():

    return 1
```

| a | b |
|---|---|
| 1 | 2 |

The end.
"""


def shown(*texts: str) -> list[str]:
    out = io.StringIO()
    screen = Screen(console_for(out, width=60))
    for text in texts:
        screen.say(screen.markdown(text))
    return [line for line in out.getvalue().splitlines() if line.strip()]


def test_blocks_are_finished_one_after_another_and_look_as_in_the_whole() -> None:
    growing = MarkdownStream()
    done = [part for piece in ANSWER.splitlines(keepends=True) if (part := growing.add(piece))]
    parts = [*done, growing.end()]

    assert [part.split()[0] for part in parts] == ["#", "A", "-", "```python", "|", "The"]
    assert shown(*parts) == shown(ANSWER)


@pytest.mark.slow
@given(st.lists(st.sampled_from(ANSWER.splitlines(keepends=True)) | st.text(alphabet="a*`-# \n|>1.", max_size=8)))
def test_nothing_is_lost_or_said_twice_however_a_text_comes(pieces: list[str]) -> None:
    growing = MarkdownStream()

    done = [growing.add(piece) for piece in pieces]

    assert "".join(done) + growing.end() == "".join(pieces)
    assert growing.rest == ""


def test_a_diff_says_how_many_lines_came_and_went_and_a_long_one_is_cut_in_its_middle() -> None:
    diff = between("a.txt", "".join(f"{n}\n" for n in range(100)), "new\n")

    assert changes_of(diff) == (1, 100)
    cut = colored(diff, limit=30).plain.splitlines()
    assert len(cut) == 31
    assert cut[20] == f"… {len(diff.splitlines()) - 30} lines more …"
    assert cut[-1] == "+new"
    assert colored(diff, limit=0).plain.splitlines() == diff.splitlines()


def test_a_new_file_has_nothing_before_it() -> None:
    assert between("a", None, "x\n").splitlines()[:2] == ["--- /dev/null", "+++ b/a"]


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("read_file", {"path": "a.txt", "limit": 3}, "read_file path=a.txt limit=3"),
        ("write", {"text": "two words"}, 'write text="two words"'),
        ("call_tool", {"name": "read_file", "arguments": {"path": "a"}}, "read_file by call_tool path=a"),
        ("tool_exec", {"op": "x.task.list", "args": {}}, "x.task.list by tool_exec"),
        ("broken", '{"path": ', 'broken {"path": '),
        ("long", {"text": "x" * 100}, f"long text={'x' * 59}…"),
        ("sly", {"text": "\u202eevil"}, 'sly text="\\u202eevil"'),
    ],
)
def test_a_call_is_one_line(name: str, arguments: dict[str, object] | str, line: str) -> None:
    assert call_line(name, arguments).plain == line


def test_a_region_shows_its_end_and_nothing_stays_of_it() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=40, height=20, force_terminal=True, _environ={"TERM": "xterm"}))
    lines = Text("\n".join(f"line {number}" for number in range(30)))

    with screen.moving(lambda: Tail(lines, 3)):
        screen.redraw()
        screen.note("a note above")
        with screen.still():
            screen.note("a question")
        screen.redraw()

    drawn = out.getvalue()
    assert "line 29" in drawn
    assert "line 26" not in drawn
    assert "a note above" in drawn
    assert drawn.endswith("\x1b[1A\x1b[2K" * 3) or drawn.rstrip().endswith("\x1b[2K"), "it is taken away at the end"


async def test_a_turn_shows_what_an_agent_tells_in_its_order(tmp_path: Path) -> None:
    out = io.StringIO()
    async with Chatter(tmp_path).opened(out) as talk:
        view = TurnView(talk, lambda: "typed ahead")
        done = CallEnded(id="c2", name="grep", result=ToolResult.of_text("found"), seconds=0.5)
        for event in (
            Requesting(number=1, tools=(), context=1000, window=8000),
            ThinkingDelta(text="hm"),
            TextDelta(text="This does not count"),
            Retrying(attempt=1, wait=2.0, reason="HTTP 503", discards=True),
            Compacted(before=9000, after=1000, by="model"),
            TextDelta(text="First.\n\nSecond"),
            CallBegun(id="c1", name="spawn_agent", arguments={"task": "look"}),
            CallProgress(id="c1", name="spawn_agent", update=Output(call_id="x", chunk="working\non it\n")),
            SubAgentEvent(id="x", tool="spawn_agent", depth=1, task="look", event=done),
        ):
            view.take(event)
        talk.screen.say(view.draw())
        view.take(CallEnded(id="c1", name="spawn_agent", result=ToolResult.of_text("all seen"), seconds=3.0))
        view.take(Concluding(reason="the 50 requests are used up"))
        said = Outcome(text="What I have.", stopped="limit", history=(), usage=Usage(), reason="too many")
        view.take(TextDelta(text="What I have."))
        view.take(Finished(outcome=said))

    lines = [line.strip() for line in out.getvalue().splitlines() if line.strip()]
    assert "This does not count" not in lines
    assert lines == [
        "the model's API failed (HTTP 503); again in 2 s",
        "older messages are a summary now: 9,000 → 1,000 tokens",
        "First.",
        "Second",
        "↳ ✓ grep",
        "⠋  spawn_agent task=look  on it",
        "⠋  calling 0 s · esc interrupts · cautious",
        "❯ typed ahead",
        "✓ spawn_agent task=look",
        "3.0 s",
        "all seen",
        "the 50 requests are used up: the model is asked for its answer",
        "What I have.",
        "✗ limit: too many",
    ]
    assert (talk.context, talk.window) == (1000, 8000)


def test_where_nobody_looks_nothing_moves() -> None:
    out = io.StringIO()
    screen = Screen(console_for(out))

    with screen.moving(lambda: Text("on its way")):
        screen.redraw()
        screen.note("done")

    assert out.getvalue() == "done\n"
