"""What a page says: its main text as Markdown, everything that is visible, its links.

The main text is found by trafilatura (extra `web`). What a page hides from its readers is taken out before anything is
read: it is written for machines, and often for models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any, Final, Literal

from toolcrib.plugin import ToolFailure

from .._extras import optional
from .parts import Part, metadata_of, parts_of

__all__ = ["Mode", "Readable", "Wanted", "read_html"]

Mode = Literal["auto", "markdown", "reader", "text", "links", "structured", "raw"]

_MOST: Final = 4_000_000
"""Characters of HTML that are read; a parse takes about 20 times as much memory."""
_MOST_LINKS: Final = 2_000
_EXTRA: Final = "web"
_UNSEEN: Final = re.compile(r"(?i)<(script|style|noscript|template)\b")
_NOT_SHOWN: Final = "//script|//style|//noscript|//template|//svg|//iframe|//object|//head/*[not(self::title)]"
_STYLE: Final = "translate(@style, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ \t\n', 'abcdefghijklmnopqrstuvwxyz')"
_HIDDEN: Final = (
    f"//body//*[@hidden or @aria-hidden='true' or contains({_STYLE}, 'display:none')"
    f" or contains({_STYLE}, 'visibility:hidden') or contains({_STYLE}, 'font-size:0')]"
)
_BLOCKS: Final = frozenset(
    """address article aside blockquote body br caption dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4
    h5 h6 header hr li main nav ol p pre section table tbody tfoot thead tr ul""".split()
)
_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """A page as text."""

    text: str
    title: str = ""
    notes: tuple[str, ...] = ()
    """What a reader has to know of how the text was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of a page is wanted, and how."""

    mode: Mode = "markdown"
    selector: str = ""
    links: bool = False
    """Addresses of links stay in Markdown."""
    plain: bool = False
    """The main text without Markdown."""
    parts: tuple[Part, ...] = ()
    """Of mode structured; none named is all of them."""
    most: int = _MOST
    """Characters of HTML that are read."""


def read_html(html: str, url: str, wanted: Wanted) -> Readable:
    """Return what a page says; `url` is what its links begin from. Takes about a second a megabyte: call in a thread.

    Raises `ToolFailure`: the extra is missing, the selector is none or finds nothing, there is no main text.
    """
    engine = optional("trafilatura", _EXTRA)
    most, mode = min(wanted.most, _MOST), wanted.mode
    notes = [f"only the first {most:,} characters of the page were read"] if len(html) > most else []
    tree = _parsed(html[:most])
    if tree is None:
        return Readable(text="", notes=(*notes, "the page is empty"))
    title = " ".join((tree.findtext(".//title") or "").split())
    metadata = metadata_of(tree, url) if mode == "structured" else {}
    for element in (*tree.xpath(_NOT_SHOWN), *tree.xpath(_HIDDEN)):
        if element.getparent() is not None:
            element.drop_tree()
    tree.make_links_absolute(url, handle_failures="ignore")
    if wanted.selector:
        tree = _selected(tree, wanted.selector)
    if mode == "links":
        return Readable(text="\n".join(_links(tree)) or "the page has no links", title=title, notes=tuple(notes))
    if mode == "structured":
        return Readable(text=parts_of(tree, metadata, wanted.parts), title=title, notes=tuple(notes))
    text = _main_text(engine, tree, url, wanted) if mode != "text" else ""
    if not text and mode == "reader":
        raise ToolFailure("tool_error", f"no main text was found at {url}", hint="mode=text is everything visible")
    if not text:
        text = _visible(tree) or ("" if wanted.selector else _stripped(html[:most]))
        if mode != "text" and not wanted.selector:
            notes.append("no main text was found: this is everything that is visible")
    return Readable(text=text, title=title, notes=tuple(notes))


def _parsed(html: str) -> Any:
    """Return the tree of a page, None for an empty one. The parser gives up what is nested more than 256 deep."""
    library, etree = optional("lxml.html", _EXTRA), optional("lxml.etree", _EXTRA)
    parser = library.HTMLParser(remove_comments=True, remove_pis=True, encoding="utf-8")
    try:
        return library.document_fromstring(html.encode("utf-8", "replace"), parser=parser)
    except etree.LxmlError:
        return None


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


def _main_text(engine: Any, tree: Any, url: str, wanted: Wanted) -> str:
    try:
        found = engine.extract(
            tree,
            url=url,
            output_format="txt" if wanted.plain else "markdown",
            include_comments=False,
            include_links=wanted.links and not wanted.plain,
            favor_recall=True,
        )
    except (RecursionError, ValueError):  # pages that are nested too deeply for it
        return ""
    return "\n".join(line.rstrip() for line in str(found or "").strip().splitlines())


def _visible(tree: Any) -> str:
    """Return all the text, a line for every block."""
    etree = optional("lxml.etree", _EXTRA)
    pieces: list[str] = []
    verbatim = 0
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start" and tag != "title":
            verbatim += tag == "pre"
            pieces += ["\n" if tag in _BLOCKS else "", _mark(tag), _flowing(element.text, verbatim)]
        elif event == "end":
            verbatim -= tag == "pre"
            pieces += ["\n" if tag in _BLOCKS else "", _flowing(element.tail, verbatim)]
    lines = (line.strip() for line in "".join(pieces).splitlines())
    return "\n".join(line for line in lines if line.strip("-# "))


def _flowing(text: str | None, verbatim: int) -> str:
    """In a page a line break is a blank, but where it is written as it is to be shown."""
    return (text or "") if verbatim else re.sub(r"\s+", " ", text or "")


def _stripped(html: str) -> str:
    """Return what is left of a page that cannot be parsed when its tags are taken out."""
    pieces: list[str] = []
    at = 0
    while at < len(html) and (opened := _UNSEEN.search(html, at)):
        pieces.append(html[at : opened.start()])
        closed = re.compile(rf"(?i)</{opened[1]}[^<>]{{0,200}}>").search(html, opened.end())
        at = closed.end() if closed else len(html)  # as browsers do: what is not closed goes to the end
    return " ".join(unescape(re.sub(r"<[^<>]{0,2000}>", " ", " ".join([*pieces, html[at:]]))).split())


def _mark(tag: str) -> str:
    if tag in _HEADINGS:
        return f"{'#' * int(tag[1])} "
    if tag in ("td", "th"):
        return " "
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
