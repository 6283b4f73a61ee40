"""The parts that a page is made of, as JSON: what it says of itself, headings, links, pictures, tables, forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, get_args
from urllib.parse import urljoin

__all__ = ["Part", "metadata_of", "parts_of"]

Part = Literal["metadata", "headings", "links", "images", "tables", "forms"]

_MOST: Final[Mapping[str, int]] = {"headings": 500, "links": 1_000, "images": 500, "tables": 50, "forms": 50}
"""Of each kind that are told; what is left out is counted."""
_ROWS: Final = 500
"""Of one table."""
_TEXT: Final = 1_000
"""Characters of one text."""
_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "description": ("description", "og:description", "twitter:description"),
    "author": ("author", "article:author"),
    "published": ("article:published_time", "date", "dc.date"),
    "site": ("og:site_name", "application-name"),
    "keywords": ("keywords",),
    "type": ("og:type",),
    "image": ("og:image", "twitter:image"),
}
"""What pages say of themselves, under the names that they use for it, best first."""


def metadata_of(tree: Any, url: str) -> dict[str, str]:
    """Return what the head of a page says of it; read before anything is taken out."""
    said = {
        str(name).lower(): _words(one.get("content"))
        for one in tree.iter("meta")
        if (name := one.get("name") or one.get("property"))
    }
    made = {"title": _words(tree.findtext(".//title"))}
    made |= {key: next((said[name] for name in names if said.get(name)), "") for key, names in _SAID.items()}
    made["language"] = _words(tree.get("lang"))
    canonical = next((one.get("href") for one in tree.iter("link") if one.get("rel") == "canonical"), None)
    made["canonical"] = urljoin(url, str(canonical)) if canonical else ""
    return {key: value for key, value in made.items() if value}


def parts_of(tree: Any, metadata: Mapping[str, str], wanted: tuple[Part, ...]) -> str:
    """Return the parts that are wanted, all of them where none is named, as indented JSON."""
    told: dict[str, Any] = {}
    for part in wanted or get_args(Part):
        if part == "metadata":
            told[part] = metadata
            continue
        found = list(_READERS[part](tree))
        told[part] = found[: _MOST[part]]
        if len(found) > _MOST[part]:
            told[f"{part}_left_out"] = len(found) - _MOST[part]
    return json.dumps(told, ensure_ascii=False, indent=1)


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
