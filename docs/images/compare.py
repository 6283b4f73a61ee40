"""The chart of profiles in docs/explanation/disclosure.md, drawn from what `toolcrib compare` measures.

toolcrib compare --catalog tests/seeds/tiered.yaml --json | python docs/images/compare.py > docs/images/compare.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

TITLE: Final = "Tokens of tool definitions"
SERIES: Final = {"shown": "shown at first", "read": "read until the first correct call"}
"""Figures of `compare --json` that are drawn, each with its legend."""

ROW: Final = 26
LABEL: Final = 110
BARS: Final = 420
HEAD: Final = 54
COLOURS: Final = ("#2563eb", "#94a3b8")
STYLE: Final = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#1f2937}.small{font-size:11px;fill:#6b7280}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.small{fill:#9ca3af}}"
)


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG with the bars of `rows`, all to one scale."""
    height = HEAD + len(rows) * (ROW * len(SERIES) + 6) + 8
    box = f"0 0 {LABEL + BARS + 90} {height}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" aria-label="{TITLE}">',
        f"<style>{STYLE}</style>",
        f'<text x="0" y="16">{TITLE}</text>',
        *legend(),
        *bars(rows),
        "</svg>",
        "",
    ])  # fmt: skip


def legend() -> Iterator[str]:
    """Yield the names of the series beside their colours."""
    left = 0
    for colour, name in zip(COLOURS, SERIES.values(), strict=True):
        yield f'<rect x="{left}" y="27" width="10" height="10" rx="2" fill="{colour}"/>'
        yield f'<text class="small" x="{left + 15}" y="36">{name}</text>'
        left += 34 + 7 * len(name)


def bars(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the label of each row, and one bar a series."""
    most = max(row[key] for row in rows for key in SERIES)
    top = HEAD
    for row in rows:
        yield f'<text x="0" y="{top + 16}">{escape(row["profile"])}</text>'
        for colour, key in zip(COLOURS, SERIES, strict=True):
            width = max(row[key] / most * BARS, 1)
            yield f'<rect x="{LABEL}" y="{top + 3}" width="{width:.1f}" height="{ROW - 8}" rx="3" fill="{colour}"/>'
            yield f'<text class="small" x="{LABEL + width + 6:.1f}" y="{top + 16}">{row[key]:,.0f}</text>'
            top += ROW
        top += 6


if __name__ == "__main__":
    sys.stdout.write(chart(json.load(sys.stdin)["profiles"]))
