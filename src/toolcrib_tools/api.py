"""HTTP calls: to named APIs that the operator has configured with their logins, and to any public address.

    tools:
      api:
        weather: {url: "https://api.example.org/v2", headers: {authorization: "Bearer ${WEATHER_TOKEN}"}}

The login of a named API goes to addresses below its `url` and nowhere else, and the model never sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast
from urllib.parse import unquote, urljoin, urlsplit

import anyio
from anyio import to_thread
from msgspec import Struct
from pydantic import Field

from toolcrib.plugin import Context, Page, ToolFailure, as_mapping, climbs, did_you_mean, tool

from ._http import (
    Headers,
    Seconds,
    address,
    body_of,
    checked_headers,
    failure_of,
    is_text,
    origin_of,
    status_of,
    text_of,
    with_query,
)

__all__ = ["PollConfig", "api_calling"]

_DONE: Final = ("completed", "complete", "done", "finished", "ready", "succeeded", "success")
_FAILED: Final = ("cancelled", "canceled", "error", "expired", "failed", "failure", "rejected")
_MOST_POLLING: Final = 300
_INTERVAL: Final = 2.0
_PLACES: Final = ("operation-location", "location")
"""Headers that say where to ask how far a job is."""

_Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]


class PollConfig(TypedDict):
    """How to wait for a job that an API has begun."""

    path: NotRequired[Annotated[str, Field(description='Where to ask, such as "jobs/{id}": filled from the answer.')]]
    state: NotRequired[Annotated[str, Field(description="Key of the answer that holds the state; status or state.")]]
    done: NotRequired[Annotated[list[str], Field(description="States that mean it is finished.")]]
    failed: NotRequired[Annotated[list[str], Field(description="States that mean it failed.")]]
    interval: NotRequired[Annotated[float, Field(gt=0, le=60, description="Seconds between two questions; 2.")]]
    seconds: NotRequired[Annotated[float, Field(gt=0, le=_MOST_POLLING, description="How long to wait; 60.")]]


class _Api(Struct, frozen=True, kw_only=True):
    """A configured API."""

    base: str
    """Every address begins with it; empty where any address is taken."""
    headers: Mapping[str, str]

    def at(self, path: str) -> str:
        """Return an address below the API's own. Raises `ToolFailure` for what leads away from it."""
        bare, mark, query = path.partition("?")
        steps = bare.strip().lstrip("/").split("/")
        if "://" in bare or bare.startswith("//") or any(_leads_away(step) for step in steps):
            raise ToolFailure(
                "invalid_arguments", f"path: {path!r} leads out of the API; give a path below its address"
            )
        return f"{self.base.rstrip('/')}/{'/'.join(steps)}".rstrip("/" if not bare.strip() else "") + mark + query


async def _check_call(arguments: Mapping[str, Any], ctx: Context) -> None:
    """Raise the failure of an address that is never reached, before anyone is asked about it."""
    name, url, path = (str(arguments.get(key) or "").strip() for key in ("api_name", "url", "path"))
    _, target = _target(ctx, name, url, path)
    await ctx.lent.web.check(target)


@tool(
    check=_check_call,
    op="x.api.call",
    category="api",
    kind="destructive",
    open_world=True,
    idempotent=False,
    traits=["by_method", "untrusted", "outbound"],
    tags=["http", "rest", "request", "endpoint", "service"],
    metadata={"invocation_hint": "programmatic"},
    timeout=_MOST_POLLING + 60,
    examples=[
        {"api_name": "weather", "path": "forecast", "query": {"city": "Tallinn"}},
        {"url": "https://example.org/api/items/7", "method": "PATCH", "body": {"count": 2}},
        {"api_name": "images", "path": "jobs", "method": "POST", "body": {"prompt": "a boat"}, "mode": "async_poll"},
    ],
    policy={
        "do": ["Use the name of an API if there is one: its login is added by itself."],
        "dont": ["Do not write keys or passwords into headers or the address."],
        "edge_cases": [
            "Where the API has tools of its own in the catalog, use those: their arguments are checked.",
            "A failure status (400 and above) is an error that quotes the server's answer.",
        ],
    },
)
async def api_calling(
    ctx: Context,
    api_name: str = "",
    url: str = "",
    path: Annotated[str, Field(max_length=2_000)] = "",
    method: _Method = "GET",
    query: dict[str, Any] | None = None,
    headers: Headers | None = None,
    body: dict[str, Any] | list[Any] | str | None = None,
    mode: Literal["sync", "stream", "async_poll"] = "sync",
    poll_config: PollConfig | None = None,
    timeout_seconds: Seconds = 30,
) -> str:
    """Call an HTTP API: one that is set up by name, or any public address. Returns the status and the answer.

    Args:
        api_name: Name of an API that the operator has set up; else give url.
        url: Whole address, if there is no name.
        path: What follows the address of the API.
        method: HTTP method.
        query: Parameters of the address.
        headers: HTTP headers to send.
        body: What to send: an object or a list as JSON, a text as it is.
        mode: sync returns the answer; stream collects the events of a stream until it ends, telling each as progress;
            async_poll waits for a job that the API begins.
        poll_config: How to wait with async_poll.
        timeout_seconds: How long each request may take.
    """
    if poll_config is not None and mode != "async_poll":
        raise ToolFailure("invalid_arguments", "poll_config: it is for mode=async_poll")
    api, target = _target(ctx, api_name.strip(), url.strip(), path)
    kind, content = body_of(body)
    sent = _send(api, headers, kind)
    target = with_query(target, query or {})
    page = await ctx.lent.web.send(method, target, headers=sent, content=content, seconds=timeout_seconds)
    _check(page)
    if mode == "async_poll":
        page = await _polled(ctx, api, page, poll_config or {}, timeout_seconds)
    if mode == "stream" and is_text(page):
        events = await to_thread.run_sync(partial(_events, text_of(page), page.media_type))
        for event in events:
            await ctx.output(f"{event}\n")
        return "\n".join([f"{status_of(page)}, {len(events)} events", "", *events])
    return _format_answer(page)


def _target(ctx: Context, name: str, url: str, path: str) -> tuple[_Api, str]:
    """Return the API and the address of a call. Raises `ToolFailure`."""
    if bool(name) == bool(url):
        known = ", ".join(_apis(ctx)) or "no API is set up here"
        raise ToolFailure("invalid_arguments", "give api_name or url, one of them", hint=f"names: {known}")
    if url:
        whole = address(url)
        if not path:
            return _Api(base="", headers={}), whole
        return _Api(base="", headers={}), _Api(base=whole.partition("?")[0], headers={}).at(path)
    apis = _apis(ctx)
    if name not in apis:
        hint = (
            f"there are {', '.join(apis)}" if apis else "the operator names them under `tools: {api: …}`; or give url"
        )
        raise ToolFailure("not_found", f"api_name: there is no {name!r}{did_you_mean(name, apis)}", hint=hint)
    value: Any = apis[name]
    entry = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {"url": None}
    base: Any = entry.get("url")
    headers: Any = entry.get("headers") or {}
    if not isinstance(base, str) or not isinstance(headers, Mapping) or urlsplit(base).query:
        raise ToolFailure(
            "unavailable", f"the setting tools.api.{name} is not a mapping with url (without ?) and headers"
        )
    given = {str(key): str(value) for key, value in cast("Mapping[Any, Any]", headers).items()}
    api = _Api(base=address(base), headers=checked_headers(given, f"tools.api.{name}.headers"))
    return api, api.at(path)


def _apis(ctx: Context) -> Mapping[str, Any]:
    return as_mapping(ctx.lent.setting("api"))


def _leads_away(step: str) -> bool:
    """True if a segment of a path is `.` or `..` to some server, or more than one segment."""
    return climbs(step) or bool(re.search(r"[\x00-\x1f\x7f/\\]", unquote(unquote(step))))


def _send(api: _Api, headers: Mapping[str, str] | None, kind: str) -> dict[str, str]:
    given = checked_headers(headers)
    if taken := sorted(given.keys() & api.headers.keys()):
        raise ToolFailure("invalid_arguments", f"headers: {', '.join(taken)} is set by the operator; leave it out")
    typed = {"content-type": kind} if kind else {}
    return {"accept": "application/json, */*;q=0.5", **typed, **given, **api.headers}


def _check(page: Page) -> None:
    if page.status >= 400:
        raise failure_of(page, text_of(page) if is_text(page) else "")


def _format_answer(page: Page) -> str:
    if not page.body:
        return status_of(page)
    if not is_text(page):
        return f"{status_of(page)}: {page.media_type or 'binary data'}, {len(page.body):,} bytes, which is not text"
    return f"{status_of(page)}\n\n{text_of(page)}"


def _events(text: str, kind: str) -> list[str]:
    """Return the events of a stream: the data of server-sent events, else the lines."""
    if kind != "text/event-stream":
        return [line for line in text.splitlines() if line.strip()]
    events: list[str] = []
    for block in re.split(r"(?:\r\n|\r|\n){2,}", text):
        lines = (line for line in block.splitlines() if line.startswith("data:"))
        data = "\n".join(line.removeprefix("data:").removeprefix(" ") for line in lines)
        if data and data != "[DONE]":
            events.append(data)
    return events


async def _polled(ctx: Context, api: _Api, page: Page, config: PollConfig, seconds: float) -> Page:
    """Ask how far a job is until it is finished; return the last answer. Raises `ToolFailure` when it failed."""
    place = _place(api, page, config)
    headers = {
        "accept": "application/json",
        **(api.headers if api.base and place.startswith(f"{api.base.rstrip('/')}/") else {}),
    }
    done, failed = config.get("done", _DONE), config.get("failed", _FAILED)
    allowed = min(config.get("seconds", 60.0), max(ctx.remaining - 5, 0))
    state = _state(page, config)
    with anyio.move_on_after(allowed):
        for count in range(1, 10_000):
            if state in done:
                return page
            if state in failed:
                raise ToolFailure("tool_error", f"the job ended as {state}: {_format_answer(page)[:1_000]}")
            await anyio.sleep(config.get("interval", _INTERVAL))
            page = await ctx.lent.web.send("GET", place, headers=headers, seconds=seconds)
            _check(page)
            state = _state(page, config)
            await ctx.report(count, message=f"state {state or 'unknown'}")
    raise ToolFailure(
        "timeout",
        f"the job was not finished within {allowed:g} s; its state is {state or 'unknown'}",
        hint=f"ask again later: GET {place}",
    )


def _place(api: _Api, page: Page, config: PollConfig) -> str:
    """Return the address of the request. A login is sent only below the address of its API."""
    fields = _fields(page)
    if template := config.get("path"):
        missing = [name for name in re.findall(r"{(\w+)}", template) if not isinstance(fields.get(name), str | int)]
        if missing:
            raise ToolFailure(
                "tool_error",
                f"the answer has no {', '.join(missing)} for poll_config.path: {_format_answer(page)[:500]}",
            )
        filled = re.sub(r"{(\w+)}", lambda found: str(fields[found[1]]), template)
        return _Api(base=api.base or f"{origin_of(page.url)}", headers={}).at(filled)
    named = (page.headers.get(header, "") for header in _PLACES)
    listed = (fields.get(key) for key in ("status_url", "poll_url", "url", "href"))
    for place in (*named, *listed):
        if isinstance(place, str) and place:
            return address(urljoin(page.url, place), is_given=False)
    raise ToolFailure(
        "tool_error",
        f"the answer does not say where to ask how far the job is: {_format_answer(page)[:500]}",
        hint="name it with poll_config.path",
    )


def _state(page: Page, config: PollConfig) -> str:
    fields = _fields(page)
    keys = [config["state"]] if "state" in config else ["status", "state"]
    return next((str(fields[key]).lower() for key in keys if fields.get(key) is not None), "")


def _fields(page: Page) -> Mapping[str, Any]:
    try:
        data: Any = json.loads(text_of(page))
    except (ValueError, RecursionError):
        return {}
    return as_mapping(data)
