"""CalDAV (RFC 4791) through the guarded web client: discovery, changes since a token, reads and conditional writes.

The few requests are written here and not by the library `caldav`: its HTTP client would reach addresses that the guard
refuses, and what it depends on replaces `urllib3` for every other program of the environment.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit
from xml.etree import ElementTree

from msgspec import Struct, field

from toolcrib.plugin import LOCAL, Page, ToolFailure, Web, as_mapping

CATEGORY: Final = "calendar"
"""Section of the configuration: `tools.calendar`."""

_Login = Callable[[str, str], Awaitable[str]]
"""`Host.authorization`"""

_SECONDS: Final = 10.0
"""For one request."""
_AT_ONCE: Final = 50
"""Events that one request reads."""
_XML: Final = {"content-type": "application/xml; charset=utf-8"}
_ICAL: Final = {"content-type": "text/calendar; charset=utf-8"}
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_REDIRECTS: Final = (301, 302, 307, 308)
_PLACES: Final = 4
"""Requests until a redirect ends."""
_OK: Final = 200
_GONE: Final = 404
_CUT: Final = 507
"""Of the calendar itself: the answer holds a part of the changes (RFC 6578, 3.6)."""
_PAGES: Final = 500
"""Answers that the changes of one calendar come in."""
_EXPIRED: Final = (403, 409, 410, 412)
_UNSUPPORTED: Final = (400, 403, 405, 415, 501)
"""Answers of servers that know no changes since a token."""

_FOLD: Final = re.compile(r"\r?\n[ \t]")
_ORGANIZER: Final = re.compile(r"^ORGANIZER[;:]", re.MULTILINE | re.IGNORECASE)

_NAMES: Final = {"D": "DAV:", "C": "urn:ietf:params:xml:ns:caldav"}
_OF_CALENDAR: Final = ("D:resourcetype", "D:displayname", "D:owner", "D:sync-token")
_DISCOVERY: Final = (*_OF_CALENDAR, "D:current-user-principal", "C:calendar-home-set")
_LISTED: Final = (*_OF_CALENDAR, "C:supported-calendar-component-set")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A calendar account of one principal, from the setting `tools.calendar.accounts`."""

    name: str
    url: str
    principal: str
    login: Callable[[], Awaitable[str]] = dataclasses.field(repr=False)
    """Returns the `Authorization` of a request; empty without a login."""


class Found(Struct, frozen=True, kw_only=True):
    """A calendar on a server."""

    href: str
    """Path, not quoted."""
    name: str
    sync_token: str = ""
    is_shared: bool = False
    """Whether another person owns the calendar."""


class Resource(Struct, frozen=True, kw_only=True):
    """One event on a server, as iCalendar."""

    href: str
    etag: str
    data: str

    @property
    def is_invitation(self) -> bool:
        """Whether it has an organizer: anybody can invite, and servers put invitations into calendars unasked."""
        return _ORGANIZER.search(_FOLD.sub("", self.data)) is not None


class Changes(Struct, frozen=True, kw_only=True):
    """Resources that changed since a token."""

    etags: Mapping[str, str]
    deleted: Sequence[str]
    token: str
    is_whole: bool = False
    """Whether `etags` lists every resource of the calendar: one that is missing was deleted."""


def accounts_of(setting: object, principal: str, login: _Login) -> list[Account]:
    """Return the accounts of a principal."""
    accounts: list[Account] = []
    for name, entry in as_mapping(as_mapping(setting).get("accounts")).items():
        of = as_mapping(entry)
        if str(of.get("principal") or LOCAL) == principal:
            url = str(of.get("url") or "")
            accounts.append(Account(name=name, url=url, principal=principal, login=partial(login, CATEGORY, name)))
    return accounts


class Remote:
    """One account. Every method raises `ToolFailure`: `unavailable`, `timeout`, `denied`, `tool_error`.

    Holds no connection. Paths (`href`) come and go unquoted, and are quoted for the request alone: servers quote the
    same path in different ways.
    """

    def __init__(self, web: Web, account: Account) -> None:
        """Raises `ToolFailure` for an account whose URL would send a login in the clear."""
        _check_url(account)
        self._web = web
        self._account = account
        self._origin = "{0.scheme}://{0.netloc}".format(urlsplit(account.url))

    async def calendars(self) -> tuple[str, list[Found]]:
        """Return the home of the account's calendars, and the calendars for events in it.

        The URL of the account may be a calendar itself, the home of calendars, the principal, or any place of the
        server that names the principal (RFC 4791, 6.2.1; RFC 5397).
        """
        url, answer = await self._propfind(urlsplit(self._account.url).path or "/", _DISCOVERY)
        props = next(iter(answer.resources.values()), _Properties())
        me = self._path(props.href("D:current-user-principal"), url)
        if "C:calendar" in props.kinds:
            return url, [self._found(url, props, me)]
        home = self._path(props.href("C:calendar-home-set"), url)
        if not home and me:
            _, answer = await self._propfind(me, _DISCOVERY)
            for props in answer.resources.values():
                home = home or self._path(props.href("C:calendar-home-set"), me)
        home, answer = await self._propfind(home or url, _LISTED, depth="1")
        found = [
            self._found(href, props, me)
            for href, props in answer.resources.items()
            if "C:calendar" in props.kinds and props.holds_events
        ]
        return home, found

    async def changes(self, href: str, token: str) -> Changes:
        """Return the changes since a token, or everything: without a token, and after one that has expired."""
        etags: dict[str, str] = {}
        deleted: list[str] = []
        is_whole, now = not token, token
        for _ in range(_PAGES):
            wanted = _element("D:prop", _element("D:getetag"))
            level, since = _element("D:sync-level", "1"), _element("D:sync-token", now)
            body = _element("D:sync-collection", since, level, wanted)
            page = await self._send("REPORT", href, content=_xml(body), headers={**_XML, "depth": "0"})
            if page.status in _EXPIRED and now and b"valid-sync-token" in page.body:
                etags, deleted, is_whole, now = {}, [], True, ""
                continue
            if page.status in _UNSUPPORTED:
                return await self._listed(href)
            self._check(page)
            answer, is_cut = self._multistatus(page, href), False
            for path, one in answer.resources.items():
                if _is_same(path, href):
                    is_cut = is_cut or one.status == _CUT
                elif one.status == _GONE:
                    deleted.append(path)
                else:
                    etags[path] = one.text("D:getetag")
            if not is_cut or answer.sync_token in ("", now):
                return Changes(etags=etags, deleted=deleted, token=answer.sync_token, is_whole=is_whole)
            now = answer.sync_token
        raise ToolFailure("unavailable", f"calendar account {self._account.name}: its list of changes does not end")

    async def read(self, calendar: str, hrefs: Sequence[str]) -> list[Resource]:
        """Return resources of a calendar; those that are gone are missing."""
        found: list[Resource] = []
        for first in range(0, len(hrefs), _AT_ONCE):
            some = [_element("D:href", quote(href)) for href in hrefs[first : first + _AT_ONCE]]
            wanted = _element("D:prop", _element("D:getetag"), _element("C:calendar-data"))
            body = _xml(_element("C:calendar-multiget", wanted, *some))
            page = await self._send("REPORT", calendar, content=body, headers={**_XML, "depth": "1"})
            self._check(page)
            found += [
                Resource(href=href, etag=one.text("D:getetag"), data=one.text("C:calendar-data"))
                for href, one in self._multistatus(page, calendar).resources.items()
                if one.text("C:calendar-data")
            ]
        return found

    async def get(self, href: str) -> Resource | None:
        """Return one resource; None where it is gone."""
        page = await self._send("GET", href)
        if page.status in (404, 410):
            return None
        self._check(page)
        return Resource(href=href, etag=page.headers.get("etag", ""), data=page.body.decode("utf-8", "replace"))

    async def put(self, href: str, data: str, etag: str) -> str | None:
        """Write a resource that has this etag, or a new one without; return its new etag, None for another state."""
        condition = {"if-match": etag} if etag else {"if-none-match": "*"}
        page = await self._send("PUT", href, content=data.encode(), headers={**_ICAL, **condition})
        if page.status in (404, 409, 412):
            return None
        self._check(page)
        if page.headers.get("etag"):
            return page.headers["etag"]
        stored = await self.get(href)  # a server that changed what it stored sends no etag
        return stored.etag if stored is not None else None

    async def delete(self, href: str, etag: str) -> bool:
        """Delete a resource that has this etag; return False for another state."""
        page = await self._send("DELETE", href, headers={"if-match": etag} if etag else {})
        if page.status in (404, 410):
            return True
        if page.status in (409, 412):
            return False
        self._check(page)
        return True

    async def make_calendar(self, href: str, name: str, description: str) -> None:
        """Create a calendar for events."""
        kinds = _element("C:supported-calendar-component-set", _element("C:comp", name="VEVENT"))
        props = _element("D:prop", *_named(name, description), kinds)
        body = _xml(_element("C:mkcalendar", _element("D:set", props)))
        self._check(await self._send("MKCALENDAR", href, content=body, headers=_XML))

    async def rename_calendar(self, href: str, name: str, description: str) -> None:
        """Change the name and description of a calendar."""
        props = _element("D:prop", *_named(name, description))
        body = _xml(_element("D:propertyupdate", _element("D:set", props)))
        self._check(await self._send("PROPPATCH", href, content=body, headers=_XML))

    async def _listed(self, href: str) -> Changes:
        _, answer = await self._propfind(href, ("D:getetag", "D:resourcetype"), depth="1")
        etags = {
            path: props.text("D:getetag")
            for path, props in answer.resources.items()
            if not _is_same(path, href) and "D:collection" not in props.kinds
        }
        return Changes(etags=etags, deleted=(), token="", is_whole=True)

    async def _propfind(self, href: str, names: Sequence[str], depth: str = "0") -> tuple[str, _Multistatus]:
        """Return the path that answered, after redirects on the same server, and its properties."""
        body = _xml(_element("D:propfind", _element("D:prop", *map(_element, names))))
        for _ in range(_PLACES):
            page = await self._send("PROPFIND", href, content=body, headers={**_XML, "depth": depth})
            if page.status not in _REDIRECTS:
                self._check(page)
                return href, self._multistatus(page, href)
            href = self._path(page.headers.get("location"), href)
        raise ToolFailure("unavailable", f"calendar account {self._account.name}: too many redirects")

    async def _send(
        self, method: str, href: str, *, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Page:
        """Send a request to the account's own server; it follows no redirect."""
        header = await self._account.login()
        sent = {**(headers or {}), **({"authorization": header} if header else {})}
        url = f"{self._origin}/{quote(href.removeprefix('/'))}"
        page = await self._web.send(method, url, headers=sent, content=content, seconds=_SECONDS, redirects=False)
        if page.status == 401 or (page.status == 403 and not header):
            raise ToolFailure(
                "denied",
                f"calendar account {self._account.name} refuses the login",
                hint=f"the operator runs `toolcrib login {self._account.name}`",
            )
        return page

    def _check(self, page: Page) -> None:
        if 200 <= page.status < 300:
            return
        codes = {403: "denied", 404: "not_found", 410: "not_found"}
        code = codes.get(page.status, "unavailable" if page.status >= 500 else "tool_error")
        raise ToolFailure(code, f"calendar account {self._account.name} answered with HTTP {page.status}")

    def _multistatus(self, page: Page, requested: str) -> _Multistatus:
        """Return the resources of an answer by their path on this server, which is all that is taken of a reference."""
        try:
            root = ElementTree.fromstring(page.body, ElementTree.XMLParser(target=_Plain()))
        except (ElementTree.ParseError, ValueError) as error:
            message = f"calendar account {self._account.name}: the answer is not WebDAV: {error}"
            raise ToolFailure("tool_error", message) from error
        resources: dict[str, _Properties] = {}
        for response in root.iterfind("D:response", _NAMES):
            reference = response.findtext("D:href", "", _NAMES).strip()
            path = unquote(urlsplit(urljoin(f"{self._origin}{quote(requested)}", reference)).path)
            resources[path] = _Properties(
                status=_status(response.findtext("D:status", "", _NAMES)),
                elements={
                    element.tag: element
                    for propstat in response.iterfind("D:propstat", _NAMES)
                    if _status(propstat.findtext("D:status", "", _NAMES)) == _OK
                    for element in propstat.iterfind("D:prop/*", _NAMES)
                },
            )
        return _Multistatus(resources=resources, sync_token=root.findtext("D:sync-token", "", _NAMES).strip())

    def _found(self, href: str, props: _Properties, me: str) -> Found:
        owner = self._path(props.href("D:owner"), href)
        name = props.text("D:displayname") or href.rstrip("/").rpartition("/")[2] or "calendar"
        return Found(
            href=href,
            name=name[:500],
            sync_token=props.text("D:sync-token"),
            is_shared=bool(me and owner and not _is_same(owner, me)),
        )

    def _path(self, reference: str | None, base: str) -> str:
        """Return the path of a reference. Raises `ToolFailure` for one to another server: the login is not for it."""
        if not reference:
            return ""
        absolute = urlsplit(urljoin(f"{self._origin}{quote(base)}", reference))
        if f"{absolute.scheme}://{absolute.netloc}" != self._origin:
            place = f"{absolute.scheme}://{absolute.netloc}{absolute.path}"
            raise ToolFailure(
                "unavailable",
                f"calendar account {self._account.name} refers to {place}: a login is sent to its own server only",
                hint=f"the operator can name that address: tools.calendar.accounts.{self._account.name}.url",
            )
        return unquote(absolute.path)


class _Plain(ElementTree.TreeBuilder):
    """Builder of an answer without a document type, whose entities could make gigabytes of it."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Refuse the declaration anywhere in the text and in any encoding."""
        raise ValueError("it declares a document type")


class _Properties(Struct, frozen=True, kw_only=True):
    """Properties of one resource of an answer; names have the prefixes of `_NAMES`."""

    status: int = 200
    elements: Mapping[str, ElementTree.Element] = field(default_factory=dict[str, ElementTree.Element])

    def text(self, name: str) -> str:
        element = self.elements.get(_tag(name))
        return (element.text or "").strip() if element is not None else ""

    def href(self, name: str) -> str:
        """Return the first reference of a property."""
        element = self.elements.get(_tag(name))
        return element.findtext("D:href", "", _NAMES).strip() if element is not None else ""

    @property
    def kinds(self) -> Collection[str]:
        """Types of the resource."""
        element = self.elements.get(_tag("D:resourcetype"))
        tags = {child.tag for child in element} if element is not None else set[str]()
        return [name for name in ("D:collection", "C:calendar") if _tag(name) in tags]

    @property
    def holds_events(self) -> bool:
        """Whether a calendar takes events; one that names no components takes all."""
        element = self.elements.get(_tag("C:supported-calendar-component-set"))
        return element is None or len(element) == 0 or any(child.get("name") == "VEVENT" for child in element)


class _Multistatus(Struct, frozen=True, kw_only=True):
    resources: Mapping[str, _Properties]
    sync_token: str


def _tag(name: str) -> str:
    prefix, _, plain = name.partition(":")
    return f"{{{_NAMES[prefix]}}}{plain}"


def _element(name_: str, *children: ElementTree.Element | str, **attributes: str) -> ElementTree.Element:
    element = ElementTree.Element(_tag(name_), attributes)
    for child in children:
        if isinstance(child, str):
            element.text = child
        else:
            element.append(child)
    return element


def _xml(element: ElementTree.Element) -> bytes:
    return ElementTree.tostring(element, encoding="utf-8", xml_declaration=True)


def _named(name: str, description: str) -> list[ElementTree.Element]:
    return [_element("D:displayname", name), _element("C:calendar-description", description)]


def _status(text: str) -> int:
    """Return the number of a status line; 200 for a missing one."""
    parts = text.split()
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else _OK


def _is_same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")


def _check_url(account: Account) -> None:
    place = urlsplit(account.url)
    if place.hostname and (place.scheme == "https" or (place.scheme == "http" and place.hostname in _LOOPBACK)):
        return
    raise ToolFailure(
        "unavailable",
        f"tools.calendar.accounts.{account.name}.url: {account.url!r} is not an https address",
        hint="a login is sent over TLS, or to this machine",
    )
