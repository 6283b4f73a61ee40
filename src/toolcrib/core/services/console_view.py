"""Views that guests bring to the console: pages as values, which the console makes HTML of.

    [project.entry-points."toolcrib.views"]
    weather = "weather_tools.view:VIEW"

A view reads and acts by tools, as the operator who looks at it: rules, roles and the record of calls hold as for a
model. It has no HTML of its own, so that nothing it shows can run in the operator's browser.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from .contributions import ToolCaller


class ViewLink(Struct, frozen=True):
    """A link to another page of the same view."""

    text: str
    path: str
    """One segment: what `ConsoleView.show` gets."""


class ViewTable(Struct, frozen=True, kw_only=True):
    """Rows under headings."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | ViewLink]]
    heading: str = ""
    empty: str = ""
    """Text in place of a table without rows."""


class ViewFields(Struct, frozen=True, kw_only=True):
    """Names with their values; empty values are left out."""

    fields: Mapping[str, str | ViewLink]
    heading: str = ""


class ViewText(Struct, frozen=True, kw_only=True):
    """Text with its line breaks, in a fixed width."""

    text: str
    heading: str = ""


class ViewForm(Struct, frozen=True, kw_only=True):
    """Buttons, with lines of text that go with them."""

    buttons: Mapping[str, str]
    """Labels by what `ConsoleView.act` gets as `button`. Enter in a line of text presses the first one."""
    inputs: Mapping[str, str] = {}
    """Labels of the lines of text by their names."""
    heading: str = ""


ViewBlock = ViewTable | ViewFields | ViewText | ViewForm


class ViewPage(Struct, frozen=True, kw_only=True):
    """One page."""

    title: str
    blocks: Sequence[ViewBlock]


class ConsoleView(Struct, frozen=True, kw_only=True):
    """A view at `/console/views/NAME`, where NAME is that of the entry point."""

    label: str
    """In the navigation."""
    categories: tuple[str, ...]
    """Categories of built-in tools that it needs: `toolcrib console` opens them, a gateway has those it serves."""
    tool: str
    """A tool without which there is no view."""
    show: Callable[[ToolCaller, str], Awaitable[ViewPage]]
    """Returns the page of a path, empty for the first one. Raises `ToolFailure` with the error of a call."""
    act: Callable[[ToolCaller, str, Mapping[str, str]], Awaitable[str]] | None = None
    """Does what a form of the page of a path asks for, and returns the path to go on with."""
