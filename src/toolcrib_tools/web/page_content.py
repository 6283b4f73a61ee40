"""Content of a page: main text as Markdown, headings, links, tables, forms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from typing import Any, Final, Literal, get_args
from urllib.parse import urljoin

from msgspec import Struct

from toolcrib.plugin import ToolFailure

from .._extras import optional

Part = Literal["metadata", "headings", "links", "images", "tables", "forms"]

_MOST: Final[Mapping[str, int]] = {"headings": 500, "links": 1_000, "images": 500, "tables": 50, "forms": 50}
"""Entries of each kind in a result; the rest is counted."""
_ROWS: Final = 500
"""Rows of one table."""
_TEXT: Final = 1_000
"""Characters of one text."""
_METADATA_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "description": ("description", "og:description", "twitter:description"),
    "author": ("author", "article:author"),
    "published": ("article:published_time", "date", "dc.date"),
    "site": ("og:site_name", "application-name"),
    "keywords": ("keywords",),
    "type": ("og:type",),
    "image": ("og:image", "twitter:image"),
}
"""Names under which pages give their metadata, best first."""

Mode = Literal["auto", "markdown", "reader", "text", "links", "structured", "raw"]

_MOST_CHARACTERS: Final = 4_000_000
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


def metadata_of(tree: Any, url: str) -> dict[str, str]:
    """Return the metadata in the head of a page; read before anything is taken out."""
    tags = {
        str(name).lower(): _words(one.get("content"))
        for one in tree.iter("meta")
        if (name := one.get("name") or one.get("property"))
    }
    made = {"title": _words(tree.findtext(".//title"))}
    made |= {key: next((tags[name] for name in names if tags.get(name)), "") for key, names in _METADATA_NAMES.items()}
    made["language"] = _words(tree.get("lang"))
    canonical = next((one.get("href") for one in tree.iter("link") if one.get("rel") == "canonical"), None)
    made["canonical"] = urljoin(url, str(canonical)) if canonical else ""
    return {key: value for key, value in made.items() if value}


def parts_of(tree: Any, metadata: Mapping[str, str], wanted: tuple[Part, ...]) -> str:
    """Return the parts that are wanted, all of them where none is named, as indented JSON."""
    parts: dict[str, Any] = {}
    for part in wanted or get_args(Part):
        if part == "metadata":
            parts[part] = metadata
            continue
        found = list(_READERS[part](tree))
        parts[part] = found[: _MOST[part]]
        if len(found) > _MOST[part]:
            parts[f"{part}_left_out"] = len(found) - _MOST[part]
    return json.dumps(parts, ensure_ascii=False, indent=1)


def _headings(tree: Any) -> Iterator[dict[str, Any]]:
    for one in tree.iter("h1", "h2", "h3", "h4", "h5", "h6"):
        if text := _text(one):
            yield {"level": int(one.tag[1]), "text": text}


def _links(tree: Any) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for one in tree.iter("a"):
        target = str(one.get("href", ""))
        if target.startswith(("http://", "https://")) and target not in seen:
            seen.add(target)
            yield {"url": target, "text": _text(one)}


def _images(tree: Any) -> Iterator[dict[str, Any]]:
    for one in tree.iter("img"):
        target = str(one.get("src") or one.get("data-src") or "")
        if target and not target.startswith("data:"):
            yield {"url": target, "text": _words(one.get("alt"))}


def _tables(tree: Any) -> Iterator[dict[str, Any]]:
    for one in tree.iter("table"):
        rows = [
            [_text(cell) for cell in row.iterchildren("td", "th")]
            for row in one.iter("tr")
            if next(row.iterancestors("table"), None) is one
        ]
        rows = [row for row in rows if any(row)]
        if not rows:
            continue
        has_head = any(True for _ in one.iter("th"))
        made: dict[str, Any] = {"caption": _text(one.find("caption"))} if one.find("caption") is not None else {}
        made |= {"head": rows[0]} if has_head else {}
        body = rows[1:] if has_head else rows
        yield made | {"rows": body[:_ROWS]} | ({"rows_left_out": len(body) - _ROWS} if len(body) > _ROWS else {})


def _forms(tree: Any) -> Iterator[dict[str, Any]]:
    for one in tree.iter("form"):
        fields = [
            {"name": str(field.get("name")), "type": str(field.get("type") or field.tag)}
            for field in one.iter("input", "select", "textarea", "button")
            if field.get("name")
        ]
        yield {"action": str(one.get("action") or ""), "method": str(one.get("method") or "get"), "fields": fields}


_READERS: Final[Mapping[str, Callable[[Any], Iterator[dict[str, Any]]]]] = {
    "headings": _headings,
    "links": _links,
    "images": _images,
    "tables": _tables,
    "forms": _forms,
}


def _text(element: Any) -> str:
    return _words("".join(element.itertext()))


def _words(value: object) -> str:
    return " ".join(str(value or "").split())[:_TEXT]


class Readable(Struct, frozen=True, kw_only=True):
    """A page as text."""

    text: str
    title: str = ""
    notes: tuple[str, ...] = ()
    """Notes for the reader about the extraction."""


class ReadOptions(Struct, frozen=True, kw_only=True):
    """Parts of a page to return, and their format."""

    mode: Mode = "markdown"
    selector: str = ""
    links: bool = False
    """Addresses of links stay in Markdown."""
    plain: bool = False
    """The main text without Markdown."""
    parts: tuple[Part, ...] = ()
    """Parts for mode structured; all if empty."""
    most: int = _MOST_CHARACTERS
    """Characters of HTML that are read."""


def read_html(html: str, url: str, wanted: ReadOptions) -> Readable:
    """Return the content of a page; `url` resolves its links. Takes about a second a megabyte: call in a thread.

    Raises `ToolFailure`: the extra is missing, the selector is none or finds nothing, there is no main text.
    """
    engine = optional("trafilatura", _EXTRA)
    most, mode = min(wanted.most, _MOST_CHARACTERS), wanted.mode
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
        tree = _select(tree, wanted.selector)
    if mode == "links":
        return Readable(text="\n".join(_link_lines(tree)) or "the page has no links", title=title, notes=tuple(notes))
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


def _select(tree: Any, selector: str) -> Any:
    """Return a page that consists only of the matches of a CSS selector."""
    css = optional("cssselect", _EXTRA)
    html = optional("lxml.html", _EXTRA)
    try:
        found = tree.xpath(css.HTMLTranslator().css_to_xpath(selector))
    except css.SelectorError as error:
        raise ToolFailure("invalid_arguments", f"selector: {selector!r} is not a CSS selector: {error}") from None
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


def _main_text(engine: Any, tree: Any, url: str, wanted: ReadOptions) -> str:
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
    """Return the text of a page that cannot be parsed, without its tags."""
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


def _link_lines(tree: Any) -> Iterator[str]:
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
