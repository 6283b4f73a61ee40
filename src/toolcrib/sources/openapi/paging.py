"""Where the next page of an answer is, said as the arguments that get it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urljoin, urlsplit

from .document import mapping
from .operation import Operation

__all__ = ["next_arguments"]

_LINK: Final = re.compile(r"<([^<>]{1,4000})>\s*((?:;[^,<]{0,200}){0,8})")
_NEXT: Final = re.compile(r';\s*rel\s*=\s*"?(?:[^";]*\s)?next(?:\s[^";]*)?"?\s*(?:;|$)', re.IGNORECASE)
_TOKENS: Final = ("next_page_token", "nextPageToken", "next_cursor", "nextCursor")
"""Members of an answer that hold the next value of a parameter …"""
_TAKES: Final = ("page_token", "pageToken", "cursor", "after", "starting_after")
"""… and the parameters that take it."""
_HOLDERS: Final = ("meta", "paging", "pagination", "response_metadata")


def next_arguments(
    operation: Operation, arguments: Mapping[str, Any], url: str, link: str, body: object
) -> Mapping[str, Any] | None:
    """Return what to change in `arguments` to get the next page; None when there is none, or nobody can tell.

    `link` is the `Link` header (RFC 8288); `url` where the answer came from.
    """
    query = {one.name: one.argument for one in operation.parameters if one.place == "query"}
    for target, said in _LINK.findall(link):
        if _NEXT.search(said):
            return _changed(query, arguments, urljoin(url, target))
    members = mapping(body)
    for name in ("next", "next_page", "@odata.nextLink"):
        target = members.get(name)
        if isinstance(target, str) and target.startswith(("http://", "https://", "/", "?")):
            return _changed(query, arguments, urljoin(url, target))
    for holder in (
        members,
        *(mapping(members.get(name)) for name in ("meta", "paging", "pagination", "response_metadata")),
    ):
        token = next((holder[name] for name in _TOKENS if isinstance(holder.get(name), str) and holder[name]), "")
        taking = next((query[name] for name in _TAKES if name in query), "")
        if token and taking:
            return {taking: token}
    return None


def _changed(query: Mapping[str, str], arguments: Mapping[str, Any], target: str) -> Mapping[str, Any] | None:
    """The arguments that `target`'s query sets otherwise; None when it asks for what no argument can say."""
    changed: dict[str, Any] = {}
    for name, value in parse_qsl(urlsplit(target).query):
        argument = query.get(name)
        if argument is None or str(arguments.get(argument)) == value:
            continue
        changed[argument] = int(value) if value.isdecimal() and len(value) < 16 else value
    return changed or None
