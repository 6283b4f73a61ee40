"""A diagram is found in its file and put before the user as its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from toolcrib.core.context import Context, Output, Progress
from toolcrib.plugin import ToolFailure
from toolcrib_tools.diagrams import display_diagram

TEXT = """# Birds

```mermaid
graph TD
  A --> B
```

````markdown
```mermaid
not one
```
````

~~~ {.dot}
digraph {a -> b}
~~~

```python
print(1)
```

```mermaid
```

```Mermaid
pie
```
"""


@pytest.mark.parametrize(
    ("index", "language", "source", "line"),
    [(0, "mermaid", "graph TD\n  A --> B", 4), (1, "dot", "digraph {a -> b}", 15), (2, "mermaid", "pie", 26)],
)
async def test_a_diagram_of_a_file_is_told_as_it_is_written(
    folder: Path, ctx: Context, index: int, language: str, source: str, line: int
) -> None:
    (folder / "birds.md").write_text(TEXT)
    told: list[str] = []

    def hear(update: Progress | Output) -> None:
        if isinstance(update, Output):
            told.append(update.chunk)

    text = await display_diagram("birds.md", replace(ctx, listener=hear), index)

    block = f"```{language}\n{source}\n```"
    assert text == f"Diagram {index} of 3 in birds.md, from line {line}:\n\n{block}"
    assert told == [f"{block}\n"]


async def test_a_file_can_be_one_diagram(folder: Path, ctx: Context) -> None:
    (folder / "flow.mmd").write_bytes(b"\xef\xbb\xbfgraph LR\r\n  A --> B```\r\n")

    assert (await display_diagram("flow.mmd", ctx)).endswith("\n\n````mermaid\ngraph LR\n  A --> B```\n````")


async def test_what_is_not_there_is_counted(folder: Path, ctx: Context) -> None:
    (folder / "birds.md").write_text(TEXT)
    (folder / "none.md").write_text("words")
    (folder / "empty.dot").write_text(" \n")

    for path, index, message in (
        ("birds.md", 3, "birds.md has 3 diagrams, none with index 3"),
        ("none.md", 0, "none.md has no diagram in a fenced block (```mermaid, ```dot …)"),
        ("empty.dot", 0, "empty.dot has no diagram in a fenced block (```mermaid, ```dot …)"),
        ("bird.md", 0, "there is no 'bird.md'"),
    ):
        with pytest.raises(ToolFailure) as failure:
            await display_diagram(path, ctx, index)
        assert failure.value.message == message
