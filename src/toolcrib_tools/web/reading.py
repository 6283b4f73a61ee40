"""What a page says: its main text as Markdown, everything that is visible, its links.

The main text is found by trafilatura (extra `web`). What a page hides from its readers is taken out before anything is
read: it is written for machines, and often for models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolcrib.plugin import ToolFailure

from .._extras import optional

__all__ = ["Mode", "Readable", "read_html"]

Mode = Literal["markdown", "text", "links", "raw"]

_MOST: Final = 4_000_000
"""Characters of HTML that are read; a parse takes about 20 times as much memory."""
_MOST_LINKS: Final = 2_000
_EXTRA: Final = "web"
_NOT_SHOWN: Final = "//script|//style|//noscript|//template|//svg|//iframe|//object|//head/*[not(self::title)]"
_STYLE: Final = "translate(@style, ' ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
_HIDDEN: Final = (
    f"//body//*[@hidden or @aria-hidden='true' or contains({_STYLE}, 'display:none')"
    f" or contains({_STYLE}, 'visibility:hidden') or contains({_STYLE}, 'font-size:0')]"
)
_BLOCKS: Final = frozenset(
    """address article aside blockquote body br caption dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4
    h5 h6 header hr li main nav ol p pre section table tbody td tfoot th thead tr ul""".split()
)
_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """A page as text."""

    text: str
    title: str = ""
    notes: tuple[str, ...] = ()
    """What a reader has to know of how the text was made."""


def read_html(html: str, url: str, mode: Mode, *, selector: str = "", links: bool = False) -> Readable:
    """Return what a page says; `url` is what its links begin from. Takes about a second a megabyte: call in a thread.

    Raises `ToolFailure`: the extra is missing, the selector is none or finds nothing.
    """
    engine = optional("trafilatura", _EXTRA)
    notes = [f"only the first {_MOST:,} characters of the page were read"] if len(html) > _MOST else []
    tree: Any = engine.load_html(html[:_MOST])
    if tree is None:
        return Readable(text="", notes=(*notes, "the page is empty"))
    title = " ".join((tree.findtext(".//title") or "").split())
    for element in (*tree.xpath(_NOT_SHOWN), *tree.xpath(_HIDDEN)):
        if element.getparent() is not None:
            element.drop_tree()
    tree.make_links_absolute(url, handle_failures="ignore")
    if selector:
        tree = _selected(tree, selector)
    if mode == "links":
        return Readable(text="\n".join(_links(tree)) or "the page has no links", title=title, notes=tuple(notes))
    text = _main_text(engine, tree, url, links=links) if mode == "markdown" else ""
    if not text:
        if mode == "markdown" and not selector:
            notes.append("no main text was found: this is everything that is visible")
        text = _visible(tree)
    return Readable(text=text, title=title, notes=tuple(notes))


def _selected(tree: Any, selector: str) -> Any:
    """Return a page of nothing but what a CSS selector finds."""
    css = optional("cssselect", _EXTRA)
    html = optional("lxml.html", _EXTRA)
    try:
        found = tree.xpath(css.HTMLTranslator().css_to_xpath(selector))
    except css.SelectorError as error:
        raise ToolFailure("invalid_arguments", f"selector: {selector!r} is no CSS selector: {error}") from None
    if not found:
        raise ToolFailure(
            "tool_error", f"nothing on the page fits the selector {selector!r}", hint="leave it out, or use mode=raw"
        )
    inside = {id(child) for element in found for child in element.iterdescendants()}
    page = html.document_fromstring("<html><body></body></html>")
    for element in found:
        if id(element) not in inside:
            element.tail = None
            page.body.append(element)
    return page


def _main_text(engine: Any, tree: Any, url: str, *, links: bool) -> str:
    try:
        found = engine.extract(
            tree, url=url, output_format="markdown", include_comments=False, include_links=links, favor_recall=True
        )
    except (RecursionError, ValueError):  # pages that are nested too deeply for it
        return ""
    return str(found or "").strip()


def _visible(tree: Any) -> str:
    """Return all the text, a line for every block."""
    etree = optional("lxml.etree", _EXTRA)
    pieces: list[str] = []
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start" and tag != "title":
            pieces += ["\n" if tag in _BLOCKS else "", _mark(tag), element.text or "" if tag else ""]
        elif event == "end":
            pieces += ["\n" if tag in _BLOCKS else "", element.tail or ""]
    lines = (" ".join(line.split()) for line in "".join(pieces).splitlines())
    return "\n".join(line for line in lines if line and line != "-")


def _mark(tag: str) -> str:
    if tag in _HEADINGS:
        return f"{'#' * int(tag[1])} "
    return "- " if tag == "li" else ""


def _links(tree: Any) -> Iterator[str]:
    """Yield where the links lead, each address once, with the words that lead there."""
    seen: set[str] = set()
    for element in tree.iter("a"):
        target = str(element.get("href", "")).partition("#")[0]
        if not target.startswith(("http://", "https://")) or target in seen:
            continue
        seen.add(target)
        words = " ".join("".join(element.itertext()).split())
        yield f"- {words[:200] or '(no text)'}: {target}"
        if len(seen) == _MOST_LINKS:
            yield f"(more than {_MOST_LINKS:,}: the rest was left out)"
            return
