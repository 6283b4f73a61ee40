"""The console as a route of an HTTP server: sign-in, pages and forms below `/console`.

`Host` and `Origin` are checked as for MCP, before anything is read. A form needs the cookie, the token that its page
carried, and an `Origin` of this server. Links are relative: a proxy may serve all of it below a path of its own.

Browsers send a cookie of 127.0.0.1 to every port there, to programs that we do not know. On one machine each sign-in
has a folder with a random name, `/console/in/NAME/`, and its cookie is for that folder: a program at another port would
have to know the name to get it.

    code or token, on this machine   ──> redirect to in/NAME/ ──> cookie for that folder ──> pages in it
    code or token, over HTTPS        ──> cookie `__Host-…` ─────────────────────────────────> pages below /console/

NAME is a code of `SignIn` itself, used up by the first request of the folder: a later one needs the cookie.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, Router

from ..core.call import VIEW
from ..core.patterns import regex
from ..crib import Toolcrib
from ..errors import CODES, ToolFailure
from ..mcp.server.http_messages import Receive, Refusal, Send
from ..net.urls import is_loopback
from ..server.request_checks import RequestLimits
from ..store.calls import CallFilter
from .html import render
from .pages import ConsolePage, Pages
from .sign_in import SECONDS, SignIn
from .views import GuestViews

_logger = logging.getLogger(__name__)

PATH: Final = "/console"
_INSIDE: Final = regex(r"/console/in/(?P<name>[\w-]{1,64})(?P<rest>/.*)", re.ASCII)
"""A path in the folder of one sign-in."""
_PAGE: Final = regex(r"[a-z]+(?:/(?!(?:\.|%2[eE])+(?:/|$))[\w.~%-]+)*", re.ASCII)
"""A page below `/console`, as a sign-in leads to it: never another site, never a folder above.

Browsers take `%2e%2e` for `..`.
"""
_FOLDER: Final = "toolcrib.console.folder"
"""Key of the scope: the folder's name."""
_FORM_BYTES: Final = 64 << 10
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",  # with `no-referrer` browsers send forms with `Origin: null`
    "x-content-type-options": "nosniff",
}

_Show = Callable[[Request], Awaitable[ConsolePage]]
_Act = Callable[[Request, Mapping[str, str], str], Awaitable[str]]
"""Does what a form asks for and returns where to go on, relative to the form's address."""


class Console:
    """ASGI application of the console. Lives as long as the HTTP server."""

    def __init__(
        self, crib: Toolcrib, edge: RequestLimits, patience: float, *, tools_of_views: Toolcrib | None = None
    ) -> None:
        """`crib` is open; `patience` is how many seconds a form may take to arrive.

        `tools_of_views` has the tools that the views of guests call, if `crib` is not to offer them.
        """
        self._pages = pages = Pages(crib)
        self._views = GuestViews(tools_of_views or crib)
        self._edge = edge
        self._patience = patience
        self.sign_in = SignIn(edge.authority.signing_key("console"))
        """By which operators come in."""
        self._style = files(__package__ or "").joinpath("style.css").read_text("utf-8")
        shown: Mapping[str, _Show] = {
            "/": lambda _: pages.overview(),
            "/approvals": lambda _: pages.approvals(),
            "/approvals/{id}": lambda request: pages.approval(request.path_params["id"]),
            "/calls": lambda request: pages.calls(_wanted(request), _number(request, "before")),
            "/calls/{id}": lambda request: pages.call(request.path_params["id"]),
            "/tools": lambda request: pages.tools(
                _text(request, "q"), _text(request, "source"), _number(request, "page")
            ),
            "/tools/{name:path}": lambda request: pages.tool(request.path_params["name"]),
            "/jobs": lambda _: pages.jobs(),
            "/jobs/{id}": lambda request: pages.job(request.path_params["id"]),
            "/views/{name}": self._view,
            "/views/{name}/{path}": self._view,
            "/{path:path}": _nowhere,
        }
        done: Mapping[str, _Act] = {
            "/approvals/{id}": self._answer,
            "/jobs/{id}": self._cancel,
            "/views/{name}": self._act,
            "/views/{name}/{path}": self._act,
        }
        self._router = Router(
            [
                Route(PATH, _to_overview),
                Route(f"{PATH}/style.css", self._send_style),
                Route(f"{PATH}/sign-in", self._show_sign_in),
                Route(f"{PATH}/sign-in", self._take_token, methods=["POST"]),
                Route(f"{PATH}/sign-out", self._sign_out, methods=["POST"]),
                *(Route(f"{PATH}{path}", self._acting(act), methods=["POST"]) for path, act in done.items()),
                *(Route(f"{PATH}{path}", self._showing(show)) for path, show in shown.items()),
            ],
            redirect_slashes=False,
        )

    def serves(self, path: str) -> bool:
        """Whether a path is the console's."""
        return path == PATH or path.startswith(f"{PATH}/")

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer any request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        begun = False
        request = dict(scope)
        if inside := _INSIDE.fullmatch(scope["path"]):
            request |= {"path": PATH + inside["rest"], _FOLDER: inside["name"]}

        async def sent(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            self._edge.check(scope["headers"])
            await self._router(request, receive, sent)
        except Refusal as refusal:
            more = {name.decode(): value.decode() for name, value in refusal.headers}
            await _plain(refusal.message, refusal.status, more)(request, receive, sent)
        except ClientDisconnect:
            return
        except Exception:
            _logger.exception("a %s of %s failed", scope["method"], scope["path"][:200])
            if not begun:
                await _plain("Internal error; the log has the cause", 500)(request, receive, sent)

    def _showing(self, show: _Show) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if (code := request.query_params.get("code")) and (principal := self.sign_in.by_code(code, time.time())):
                return await self._entered(request, principal)
            if request.url.path == f"{PATH}/" and (principal := self.sign_in.by_code(_folder(request), time.time())):
                return await self._signed_in(request, principal, request.query_params.get("next", ""))
            if not (operator := self._operator(request)):
                page = quote(request.url.path.removeprefix(f"{PATH}/"))
                return _redirect(f"{_up(request)}sign-in" + (f"?next={quote(page, safe='')}" if page else ""))
            try:
                page = await show(request)
            except ToolFailure as failure:
                return await self._problem(request, failure, operator)
            return await self._page(request, page, operator)

        return endpoint

    def _acting(self, act: _Act) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if not (operator := self._operator(request)):
                return _redirect(f"{_up(request)}sign-in")
            form = await self._form(request)
            if not self.sign_in.is_of_form(form.get("form_token", ""), request.cookies[_cookie_name(request)]):
                raise Refusal(403, "Forbidden: the form is not of this sign-in; load its page again")
            try:
                return _redirect(await act(request, form, operator))
            except ToolFailure as failure:
                return await self._problem(request, failure, operator)

        return endpoint

    async def _answer(self, request: Request, form: Mapping[str, str], operator: str) -> str:
        await self._pages.answer(request.path_params["id"], form, operator)
        return "../approvals"

    async def _cancel(self, request: Request, form: Mapping[str, str], operator: str) -> str:
        id = request.path_params["id"]
        await self._pages.cancel(id)
        return id

    async def _view(self, request: Request) -> ConsolePage:
        given = request.path_params
        return await self._views.page(given["name"], given.get("path", ""), self._operator(request))

    async def _act(self, request: Request, form: Mapping[str, str], operator: str) -> str:
        given = request.path_params
        to = await self._views.act(given["name"], given.get("path", ""), form, operator)
        return f"{_up(request)}views/{given['name']}" + (f"/{quote(to, safe='')}" if to else "")

    async def _show_sign_in(self, request: Request) -> Response:
        values = {"is_wrong": False, "next": request.query_params.get("next", "")}
        return await self._page(request, ConsolePage(template="sign_in", values=values), "")

    async def _take_token(self, request: Request) -> Response:
        form = await self._form(request)
        bearer = b"Bearer " + form.get("token", "").encode()
        caller = self._edge.identify(bearer, request.scope)
        if caller is not None and caller.scope == "admin":
            return await self._entered(request, caller.principal, form.get("next", ""))
        values = {"is_wrong": True, "next": form.get("next", "")}
        return await self._page(request, ConsolePage(template="sign_in", values=values), "", status=403)

    async def _sign_out(self, request: Request) -> Response:
        await self._form(request)
        self.sign_in.end(request.cookies.get(_cookie_name(request), ""), time.time())
        response = _redirect("sign-in")
        response.set_cookie(_cookie_name(request), max_age=0, **_cookie_attributes(request))
        return response

    async def _entered(self, request: Request, principal: str, page: str = "") -> Response:
        """Return the answer to a right token or code. On one machine it leads to a new folder, which sets the cookie.

        The folder's name is not the code that led here: that one stood in a terminal or among a program's arguments.
        """
        if _is_secure(request):
            return await self._signed_in(request, principal, page)
        top = "../../" if _folder(request) else ""
        wanted = f"?next={quote(page, safe='')}" if page else ""
        return _redirect(f"{top}{_up(request)}in/{self.sign_in.new_code(principal, time.time())}/{wanted}")

    async def _signed_in(self, request: Request, principal: str, page: str) -> Response:
        """Return a page that goes on to the wanted one: a redirect would not bring the cookie where a link led here."""
        to = (_up(request) or "./") + (page if _PAGE.fullmatch(page) else "")
        response = await self._page(request, ConsolePage(template="signed_in", values={"to": to}), "")
        response.set_cookie(
            _cookie_name(request),
            self.sign_in.cookie(principal, time.time()),
            max_age=SECONDS,
            **_cookie_attributes(request),
        )
        return response

    async def _form(self, request: Request) -> Mapping[str, str]:
        """Return the fields of a form that a page of this server sent. Raises `Refusal`."""
        origin = request.headers.get("origin")
        if origin is None:  # one that is there was checked with the other headers
            raise Refusal(403, "Forbidden: a form needs the header Origin, which browsers send")
        if _is_secure(request) and origin.startswith("http:"):
            raise Refusal(403, "Forbidden: away from its own machine the console needs HTTPS (a proxy in front of it)")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise Refusal(415, "The body must be a form")
        body = bytearray()
        with anyio.move_on_after(self._patience) as waiting:
            async for part in request.stream():
                body += part
                if len(body) > _FORM_BYTES:
                    raise Refusal(413, f"The form has more than {_FORM_BYTES} bytes")
        if waiting.cancelled_caught:
            raise Refusal(408, "The form did not arrive in time")
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

    def _operator(self, request: Request) -> str:
        return self.sign_in.operator(request.cookies.get(_cookie_name(request), ""), time.time())

    async def _page(self, request: Request, page: ConsolePage, operator: str, *, status: int = 200) -> Response:
        place = request.url.path.removeprefix(PATH).strip("/").split("/")
        here = "/".join(place[: 2 if place[0] == "views" else 1])
        token = self.sign_in.form_token(request.cookies[_cookie_name(request)]) if operator else ""
        common = {"up": _up(request), "here": here, "operator": operator, "form_token": token}
        loading = {"refresh": page.refresh, "is_still": "still" in request.query_params}
        values = {**page.values, **common, **loading, "views": self._views.labels}
        return HTMLResponse(await render(page.template, values), status, headers=_HEADERS)

    async def _problem(self, request: Request, failure: ToolFailure, operator: str) -> Response:
        page = ConsolePage(template="problem", values={"failure": failure})
        return await self._page(request, page, operator, status=max(CODES[failure.code].http, 400))

    async def _send_style(self, request: Request) -> Response:
        return Response(self._style, media_type="text/css", headers={**_HEADERS, "cache-control": "max-age=3600"})


async def _to_overview(request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return _redirect(f"{PATH.removeprefix('/')}/{query}")


def _redirect(to: str) -> RedirectResponse:
    return RedirectResponse(to, 303, headers=_HEADERS)


def _plain(text: str, status: int, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers={**_HEADERS, **headers})


def _up(request: Request) -> str:
    """Return the way from a page to the console's first one."""
    return "../" * (request.url.path.count("/") - 2)


def _is_secure(request: Request) -> bool:
    """Whether the browser is on another machine, and so has to come by HTTPS."""
    return not is_loopback(request.url.hostname or "")


def _folder(request: Request) -> str:
    """Return the name of the folder that a request is for; empty outside of them."""
    return request.scope.get(_FOLDER, "")


def _cookie_attributes(request: Request) -> dict[str, Any]:
    """Return the cookie's attributes. Without a path it is for the folder of its page, also behind a proxy."""
    is_secure = _is_secure(request)
    return {"path": "/" if is_secure else None, "secure": is_secure, "httponly": True, "samesite": "strict"}


def _cookie_name(request: Request) -> str:
    """Return the cookie's name; on one machine ports share their cookies."""
    return "__Host-toolcrib-console" if _is_secure(request) else f"toolcrib-console-{request.url.port or 80}"


async def _nowhere(request: Request) -> ConsolePage:
    hint = "Follow the links above; an approval, a call or a job that is gone was removed by its time."
    raise ToolFailure("not_found", f"there is no page {request.path_params['path'][:100]!r} here", hint=hint)


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "").strip()


def _number(request: Request, name: str) -> int:
    text = _text(request, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _wanted(request: Request) -> CallFilter:
    return CallFilter(
        tool=_text(request, "tool"),
        outcome=_text(request, "outcome"),
        principal=_text(request, "principal"),
        client=_text(request, "client"),
        session=_text(request, "session"),
        without=VIEW,
    )
