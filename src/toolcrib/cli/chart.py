"""A bar chart as SVG, readable in light and dark pages: one file, no script, no font of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["Bar", "bars"]

_ROW: Final = 26
_LABEL: Final = 110
_BARS: Final = 420
_WIDTH: Final = _LABEL + _BARS + 90
_HEAD: Final = 54
_COLOURS: Final = ("#2563eb", "#94a3b8")
_STYLE: Final = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#1f2937}.small{font-size:11px;fill:#6b7280}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.small{fill:#9ca3af}}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row: a label, and a value for each series."""

    label: str
    values: tuple[float, ...]


def bars(title: str, series: Sequence[str], rows: Sequence[Bar]) -> str:
    """Return an SVG of `rows`, each with one bar a series (at most two), all to one scale."""
    most = max((value for row in rows for value in row.values), default=0.0) or 1.0
    height = _HEAD + len(rows) * _ROW * len(series) + len(rows) * 6 + 8
    label = escape(title, {'"': "&quot;"})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">',
        f"<style>{_STYLE}</style>",
        f'<text x="0" y="16">{escape(title)}</text>',
        *_legend(series),
    ]
    top = _HEAD
    for row in rows:
        parts.append(f'<text x="0" y="{top + 16}">{escape(row.label)}</text>')
        for place, value in enumerate(row.values):
            parts += _bar(top, value / most * _BARS, value, _COLOURS[place])
            top += _ROW
        top += 6
    return "\n".join([*parts, "</svg>", ""])


def _bar(top: int, width: float, value: float, colour: str) -> tuple[str, str]:
    return (
        f'<rect x="{_LABEL}" y="{top + 3}" width="{max(width, 1):.1f}" height="{_ROW - 8}" rx="3" fill="{colour}"/>',
        f'<text class="small" x="{_LABEL + max(width, 1) + 6:.1f}" y="{top + 16}">{value:,.0f}</text>',
    )


def _legend(series: Sequence[str]) -> list[str]:
    shown: list[str] = []
    left = 0
    for place, name in enumerate(series):
        shown.append(f'<rect x="{left}" y="27" width="10" height="10" rx="2" fill="{_COLOURS[place]}"/>')
        shown.append(f'<text class="small" x="{left + 15}" y="36">{escape(name)}</text>')
        left += 34 + 7 * len(name)
    return shown
