"""The console on a real socket: who comes in, what its pages show, and what its forms do (security.md T7, T11)."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import partial
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urljoin

import anyio
import httpx2
import pytest
from playwright.async_api import async_playwright

from peers.api import api
from rig import PATIENCE
from rig.desktop import CHROMIUM, needs_browser
from toolcrib import tool
from toolcrib.config.settings import TokenSpec
from toolcrib.console.app import Console
from toolcrib.console.html import render
from toolcrib.console.sign_in import SECONDS, SignIn
from toolcrib.core.call import VIEW
from toolcrib.core.permission import AnswersLater, Approval, Question
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session, Toolcrib
from toolcrib.errors import ToolFailure
from toolcrib.plugin import ConsoleView, ToolCaller, ViewFields, ViewForm, ViewLink, ViewPage, ViewTable, ViewText
from toolcrib.server.backend import CribBackend
from toolcrib.server.http import HttpOptions
from toolcrib.store.jobs import JobRow
from unit.toolcrib.server.wire_client import Site, serving

ADMIN, PLAIN = "admin-token-0001", "plain-token-0001"
OPTIONS = HttpOptions(
    token=PLAIN, tokens=(TokenSpec(token=ADMIN, scope="admin", principal="ada"),), hosts=("tools.example",)
)
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u200b'\"&amp;{{7*7}}"
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\u200b", "\\u200b")
PAGES = ("", "approvals", "calls", "tools", "tools/save_note", "jobs", "nothing")


@tool(kind="read", description=f"Read a note. {HOSTILE}")
async def read_note(title: str) -> str:
    return f"read {title}"


@tool(kind="write")
async def save_note(title: str) -> str:
    """Save a note."""
    return f"saved {title}"


@tool(kind="destructive")
async def delete_note(title: str) -> str:
    """Delete a note."""
    return f"deleted {title}"


async def answered_elsewhere(question: Question) -> Any:
    raise AnswersLater


class Html(HTMLParser):
    """Text, elements and links of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags, self.links = "", set[str](), list[str]()
        self.fields: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if tag in ("a", "link"):
            self.links.append(given.get("href") or "")
        if tag == "input" and given.get("type") == "hidden":
            self.fields[given.get("name") or ""] = given.get("value") or ""

    def handle_data(self, data: str) -> None:
        self.text += data


@dataclass(kw_only=True)
class Browser:
    """What a browser does of a console."""

    site: Site
    crib: Toolcrib
    console: Console
    origin: str
    base: str = "/console/"
    """Of the last sign-in."""

    @property
    def start(self) -> str:
        return f"{self.origin}{self.base}"

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.site.client.get(f"{self.start}{path}", headers=headers)

    async def html(self, path: str) -> Html:
        response = await self.get(path)
        assert response.status_code == 200
        return Html(response.text)

    async def send(self, path: str, fields: Mapping[str, str], **headers: str) -> httpx2.Response:
        sent = {"origin": self.origin, **headers}
        return await self.site.client.post(f"{self.start}{path}", data=fields, headers=sent)

    async def sign_in(self, token: str = ADMIN) -> httpx2.Response:
        response = await self.send("sign-in", {"token": token})
        if response.status_code != 303:
            return response
        self.base = str(response.url.join(response.headers["location"])).removeprefix(self.origin)
        return await self.get("")

    async def answer(self, approval: Approval, **fields: str) -> httpx2.Response:
        page = await self.html(f"approvals/{approval.id}")
        return await self.send(f"approvals/{approval.id}", {**page.fields, **fields})


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncGenerator[Browser]:
    made: list[Console] = []

    def route(*given: Any) -> Console:
        made.append(Console(crib, *given))
        return made[0]

    approvals = {"wait": True}
    async with Toolcrib(store=tmp_path / "store.db", mode="cautious", approvals=approvals, approval_wait=0.1) as crib:
        crib.add(read_note, save_note, delete_note)
        async with serving(CribBackend(crib), OPTIONS, [route]) as site:
            yield Browser(site=site, crib=crib, console=made[0], origin=f"http://127.0.0.1:{site.port}")


async def asked(crib: Toolcrib) -> Approval:
    """The question that comes next."""
    with anyio.fail_after(PATIENCE):
        async for approval in crib.approvals.watch():
            if approval.state == "pending":
                return approval
    raise AssertionError


async def call_asked(browser: Browser, name: str, **fields: str) -> tuple[httpx2.Response, ToolResult]:
    """Answer a call's question by the form, and return the response with the call's result."""
    results: list[ToolResult] = []
    responses: list[httpx2.Response] = []

    async def call(session: Session) -> None:
        results.append(await session.call(name, {"title": HOSTILE}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, browser.crib.session(approver=answered_elsewhere, key="talk"))
        approval = await asked(browser.crib)
        responses.append(await browser.answer(approval, **fields))
        if responses[0].status_code != 303:
            await browser.answer(approval, verdict="no")
    return responses[0], results[0]


async def test_guesses_of_a_token_wait_after_the_twentieth(browser: Browser) -> None:
    answers = [await browser.sign_in(f"guess-{number}") for number in range(21)]

    assert [answer.status_code for answer in answers] == [403] * 20 + [429]
    assert int(answers[-1].headers["retry-after"]) in range(1, 7)


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("approvals/approval_1", "approvals/approval_1"),
        ("views/queue/a%20b", "views/queue/a%20b"),
        ("//evil.example/x", ""),
        ("https:evil", ""),
        ("../../mcp", ""),
        ("views/../../mcp", ""),
        ("views/.%2E/%2e%2e/mcp", ""),
        ('"><b>', ""),
    ],
)
async def test_a_sign_in_leads_to_the_page_that_was_wanted_and_never_away(
    browser: Browser, wanted: str, shown: str
) -> None:
    entered = await browser.send("sign-in", {"token": ADMIN, "next": wanted})
    follows = await browser.site.client.get(urljoin(str(entered.url), entered.headers["location"]))

    assert f'content="0; url=./{shown}"' in follows.text


async def test_only_a_token_of_admin_scope_comes_in(browser: Browser) -> None:
    before = [(await browser.get(page)).headers.get("location", "").partition("?")[0] for page in PAGES]
    statuses = [(await browser.sign_in(token)).status_code for token in (PLAIN, "", "admin-token", "ädmin")]
    bearer = await browser.get("", authorization=f"Bearer {ADMIN}")

    entered = await browser.sign_in()
    after = [(await browser.get(page)).status_code for page in PAGES]

    assert before == ["sign-in"] * 4 + ["../sign-in", "sign-in", "sign-in"]
    assert (statuses, bearer.headers.get("location")) == ([403] * 4, "sign-in")
    assert (entered.status_code, after) == (200, [200] * 6 + [404])
    assert (await browser.send("sign-out", {"": ""})).status_code == 303
    assert (await browser.get("")).headers["location"] == "sign-in"


async def test_after_a_sign_out_its_cookie_is_good_for_nothing_and_another_one_stays(browser: Browser) -> None:
    cookies = [(await browser.sign_in()).headers["set-cookie"].partition(";")[0] for _ in range(2)]
    browser.site.client.cookies.clear()

    left = await browser.send("sign-out", {"": ""}, cookie=cookies[0])
    browser.site.client.cookies.clear()

    assert left.status_code == 303
    assert [(await browser.get("", cookie=cookie)).status_code for cookie in cookies] == [303, 200]


async def test_a_path_without_a_page_says_so_on_a_page(browser: Browser) -> None:
    await browser.sign_in()

    responses = [await browser.get(path) for path in ("nothing", "approvals/a/b", "/", "tools/a/b")]

    assert [response.status_code for response in responses] == [404] * 4
    assert all("approvals" in str(Html(response.text).links) for response in responses)


async def test_a_browser_that_leaves_amid_a_form_is_no_error(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []
    headers = {
        "host": browser.origin.removeprefix("http://"),
        "origin": browser.origin,
        "content-type": "application/x-www-form-urlencoded",
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/console/sign-in",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await browser.console(scope, receive, send)

    assert (sent, caplog.records) == ([], [])


async def test_the_page_of_a_tool_says_what_a_call_would_come_to(browser: Browser) -> None:
    await browser.sign_in()
    read, write = [(await browser.html(f"tools/{name}")).text for name in ("read_note", "save_note")]

    assert [re.findall(r"Verdict(\w+)", page) for page in (read, write)] == [["runs"], ["asks"]]


async def test_every_page_shows_hostile_text_as_text_and_names_hidden_characters(browser: Browser) -> None:
    session = browser.crib.session(key=HOSTILE, principal=HOSTILE)
    await session.call("read_note", {"title": HOSTILE})
    await browser.sign_in()
    row = (await browser.crib.store.calls.list())[0]

    calls, call, tool = await browser.html("calls"), await browser.html(f"calls/{row.id}"), await browser.html("tools")

    assert all(SHOWN in page.text for page in (calls, call, tool))
    assert SHOWN.replace('"', '\\"') in call.text  # the arguments, which are JSON
    assert not {"script", "img"} & (calls.tags | call.tags | tool.tags)


@pytest.mark.process
async def test_what_a_server_says_of_its_failure_is_shown_without_secrets(browser: Browser) -> None:
    program = "import sys; sys.exit('the key ghp_0123456789abcdefghijABCDEFGHIJ012345 is refused')"
    server = {"command": sys.executable, "args": ["-c", program]}
    await browser.crib.mount({"mcpServers": {"broken": server}})
    await browser.crib.tools.wait_ready(PATIENCE)
    await browser.sign_in()

    for path in ("", "tools?source=broken"):
        text = (await browser.html(path)).text
        assert ("the key " in text, "ghp_0123456789" in text) == (True, False)


async def test_a_call_that_waits_for_a_person_is_no_failure(browser: Browser) -> None:
    held = await browser.crib.session().call("delete_note", {"title": "a"})
    assert await browser.crib.store.calls.list()  # it is written
    await browser.sign_in()

    pages = [(await browser.get(path)).text for path in ("", "calls")]

    assert held.error and held.error.code == "approval_pending", held.text
    assert [("approval_pending" in page, 'class="bad"' in page) for page in pages] == [(True, False)] * 2


async def test_no_page_may_run_scripts_or_load_from_elsewhere_and_none_is_kept(browser: Browser) -> None:
    await browser.sign_in()

    headers = [(await browser.get(page)).headers for page in PAGES[:-1]]

    policy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    assert {one["content-security-policy"] for one in headers} == {policy}
    assert {(one["cache-control"], one["referrer-policy"]) for one in headers} == {("no-store", "same-origin")}


async def test_a_yes_runs_the_call_that_was_shown(browser: Browser) -> None:
    await browser.sign_in()

    response, result = await call_asked(browser, "save_note", verdict="yes")

    settled = (await browser.crib.approvals.list())[0]
    assert (response.status_code, response.headers["location"]) == (303, "../approvals")
    assert (result.text, settled.state, settled.by) == (f"saved {HOSTILE}", "used", "ada (console)")


async def test_a_no_has_a_comment_that_the_model_reads(browser: Browser) -> None:
    await browser.sign_in()

    _, result = await call_asked(browser, "save_note", verdict="no", comment="not on Fridays")

    assert result.error is not None
    assert (result.error.code, "not on Fridays" in result.text) == ("denied", True)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"verdict": "yes"}, 400),
        ({"verdict": "always", "word": "delete"}, 400),
        ({"verdict": "edit"}, 400),
        ({"verdict": "yes", "word": "Delete_Note"}, 303),
        ({"verdict": "yes", "word": "delete_note", "hash": "0" * 64}, 409),
        ({"verdict": "yes", "word": "delete_note", "hash": ""}, 400),
        ({"verdict": "yes", "word": "delete_note", "form_token": "0" * 64}, 403),
        ({"verdict": "never"}, 303),
    ],
)
async def test_a_destructive_call_needs_its_word(browser: Browser, fields: dict[str, str], status: int) -> None:
    await browser.sign_in()

    response, result = await call_asked(browser, "delete_note", **fields)

    assert response.status_code == status
    assert (result.error is None) == (status == 303 and "word" in fields)


async def test_enter_in_the_reason_of_a_no_is_a_no(browser: Browser) -> None:
    await browser.sign_in()
    pages: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(browser.crib.session(approver=answered_elsewhere).call, "delete_note", {"title": "a"})
        approval = await asked(browser.crib)
        pages.append((await browser.get(f"approvals/{approval.id}")).text)
        await browser.answer(approval, verdict="no")

    forms = pages[0].split("<form")[1:]
    first = {name: form for form in forms for name in re.findall(r'<input name="(\w+)"', form)}
    pressed = {name: re.findall(r'<button name="verdict" value="(\w+)"', form)[0] for name, form in first.items()}
    assert pressed == {"word": "yes", "comment": "no"}


async def test_the_first_answer_counts(browser: Browser) -> None:
    await browser.sign_in()
    await call_asked(browser, "save_note", verdict="yes")
    settled = (await browser.crib.approvals.list())[0]
    token = browser.console.sign_in.form_token(next(iter(browser.site.client.cookies.values())))
    shown = {"form_token": token, "hash": settled.hash, "verdict": "no"}

    late = await browser.send(f"approvals/{settled.id}", shown)
    unknown = await browser.send("approvals/approval_0", shown)

    assert (late.status_code, unknown.status_code) == (409, 404)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json"}, 415),
        ({"host": "tools.example", "origin": "http://tools.example"}, 403),
    ],
)
async def test_a_form_of_another_site_is_refused(browser: Browser, headers: dict[str, str], status: int) -> None:
    assert (await browser.send("sign-in", {"token": ADMIN}, **headers)).status_code == status


async def test_a_page_with_a_megabyte_shows_all_of_it_and_others_have_their_turns_while_it_is_made() -> None:
    text = (HOSTILE + "x" * 13) * 12_000
    names = ("status", "principal", "session", "source", "progress", "tool", "call_id", "output")
    job = {**dict.fromkeys(names, ""), "started": 1.0, "ended": 2.0}
    turns, page = 0, ""

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    values = {"job": job, "result": text, "up": "", "here": "jobs", "operator": "ada", "form_token": "t"}
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        page = await render("job", {**values, "views": {}, "refresh": 0, "is_still": False})
        group.cancel_scope.cancel()

    assert unescape(re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)[-1]) == (SHOWN + "x" * 13) * 12_000
    assert turns > 1


async def test_a_form_without_origin_and_one_that_is_too_large_are_refused(browser: Browser) -> None:
    url = f"{browser.origin}/console/sign-in"

    bare = await browser.site.client.post(url, data={"token": ADMIN})
    large = await browser.send("sign-in", {"token": "x" * 70_000})

    assert (bare.status_code, large.status_code) == (403, 413)


async def test_away_from_the_machine_the_cookie_is_for_https_and_this_host_alone(browser: Browser) -> None:
    headers = {"host": "tools.example", "origin": "https://tools.example"}

    here, there = await browser.sign_in(), await browser.send("sign-in", {"token": ADMIN}, **headers)

    def attributes(response: httpx2.Response) -> tuple[str, set[str]]:
        cookie, *rest = response.headers["set-cookie"].split("; ")
        return cookie.partition("=")[0], set(rest)

    common = {"HttpOnly", f"Max-Age={SECONDS}", "SameSite=strict"}
    assert attributes(here) == (f"toolcrib-console-{browser.site.port}", common)
    assert attributes(there) == ("__Host-toolcrib-console", {*common, "Path=/", "Secure"})


async def test_a_program_at_another_port_of_the_machine_gets_no_cookie_of_the_console(browser: Browser) -> None:
    client, code = browser.site.client, browser.console.sign_in.new_code("ada", time.time())
    await browser.sign_in()
    entered = await client.get(f"{browser.origin}/console/?code={code}", follow_redirects=True)
    folders = [browser.base, entered.url.path]
    async with api() as stranger:
        for path in (
            "/",
            "/console",
            "/console/",
            "/console/approvals",
            "/console/in/",
            f"/console/in/{code}/",
            *folders,
        ):
            await client.get(f"{stranger.origin}{path}")

    cookies = [bool(one["headers"].get("cookie")) for one in stranger.received]
    assert entered.status_code == 200 and "ada" not in entered.url.path and len(set(folders)) == 2
    assert cookies == [False] * 6 + [True] * 2, "ports share cookies: the folders alone keep them apart"


async def test_every_link_leads_to_a_page(browser: Browser) -> None:
    await browser.crib.session().call("read_note", {"title": "a"})
    await browser.sign_in()
    await call_asked(browser, "save_note", verdict="yes")
    start = browser.start
    seen, left = dict[str, int](), [start]

    while left:
        url = left.pop()
        if url not in seen:
            response = await browser.site.client.get(url)
            seen[url] = response.status_code
            left += [urljoin(url, link) for link in Html(response.text).links]

    assert set(seen.values()) == {200}
    assert {url.removeprefix(start).partition("/")[0] for url in seen} >= {"approvals", "calls", "tools", "jobs"}
    assert all(url.startswith(start) for url in seen)


async def test_calls_are_listed_in_pages_and_by_their_filters(browser: Browser) -> None:
    session = browser.crib.session()
    for number in range(101):
        await session.call("read_note", {"title": f"number {number}"})
    await session.call("read_note", {})
    await browser.sign_in()

    first = await browser.html("calls")
    older = await browser.html(next(link for link in first.links if "before=" in link))
    failed = await browser.html("calls?tool=read_*&outcome=error&principal=local")

    def numbers(page: Html) -> list[int]:
        return [int(found) for found in re.findall(r"number (\d+)", page.text)]

    assert numbers(first) == list(range(100, 1, -1))
    assert (numbers(older), numbers(failed), failed.text.count("invalid_arguments")) == ([1, 0], [], 2)


async def test_a_page_that_loads_itself_again_can_be_told_to_stand_still(browser: Browser) -> None:
    await browser.sign_in()

    pages = [(await browser.get(path)).text for path in ("", "approvals", "jobs", "approvals?still=1", "calls")]

    assert [page.count('http-equiv="refresh"') for page in pages] == [1, 1, 1, 0, 0]
    assert [link for link in Html(pages[1]).links + Html(pages[3]).links if "?" in link] == ["?still=1", "?"]


async def test_a_list_shows_the_beginning_of_long_arguments_and_their_page_shows_all(browser: Browser) -> None:
    await browser.crib.session().call("read_note", {"title": "x" * 5000})
    await browser.sign_in()
    row = (await browser.crib.store.calls.list())[0]

    listed, whole = await browser.html("calls"), await browser.html(f"calls/{row.id}")

    assert (listed.text.count("x") < 400, whole.text.count("x")) == (True, row.arguments.count("x"))


async def test_the_tools_of_one_source_are_listed_from_the_overview(browser: Browser) -> None:
    await browser.sign_in()

    link = next(link for link in (await browser.html("")).links if "source=python" in link)
    own, none = await browser.html(link), await browser.html("tools?source=nothing")

    assert [sum(one.startswith("tools/") for one in page.links) for page in (own, none)] == [3, 0]


async def test_tools_are_found_by_what_they_do_and_an_unknown_one_by_its_nearest_name(browser: Browser) -> None:
    await browser.sign_in()

    found, unknown = await browser.html("tools?q=delete+a+note"), await browser.get("tools/save_nite")

    assert next(link for link in found.links if link.startswith("tools/")) == "tools/delete_note"
    assert (unknown.status_code, "save_note" in unknown.text) == (404, True)


async def test_a_job_is_shown_and_cancelled(browser: Browser) -> None:
    begun = anyio.Event()

    @tool(kind="read", background_after=0.01)
    async def dig(depth: int) -> str:
        """Dig a hole."""
        begun.set()
        await anyio.sleep_forever()
        return f"{depth} m"

    browser.crib.add(dig)
    await browser.crib.session().call("dig", {"depth": 3})
    with anyio.fail_after(PATIENCE):
        await begun.wait()
    await browser.sign_in()
    job = next(link for link in (await browser.html("jobs")).links if link.startswith("jobs/"))
    page = await browser.html(job)

    response = await browser.send(job, page.fields)

    assert (response.status_code, response.headers["location"]) == (303, job.removeprefix("jobs/"))
    assert "cancelled" in (await browser.html(job)).text


async def test_the_list_of_jobs_says_why_one_failed(browser: Browser) -> None:
    @tool(kind="read")
    async def dig() -> str:
        """Dig a hole."""
        raise ToolFailure("unavailable", "the spade is away")

    browser.crib.add(dig)
    told = await browser.crib.session().call("dig", background=True)
    await browser.crib.jobs.result(told.structured_content["task_id"], "local", seconds=PATIENCE)
    await browser.sign_in()

    assert "unavailable" in (await browser.html("jobs")).text


async def test_the_newest_hundred_jobs_are_listed_and_those_that_run_are_counted(browser: Browser) -> None:
    row = partial(JobRow, principal="a", session="s", source="python", status="working", saved="", repeatable=False)
    for number in range(101):
        job = row(id=f"task_{number}", call=f"call_{number}", tool=f"tool_{number}", accepted=1e9 + number)
        await browser.crib.store.jobs.accept(job, most=1000)
    await browser.sign_in()

    overview, jobs = await browser.html(""), await browser.html("jobs")

    listed = [link for link in jobs.links if link.startswith("jobs/")]
    assert (len(listed), listed[0], listed[-1]) == (100, "jobs/task_100", "jobs/task_1")
    assert "101 running in the background" in overview.text


def open_view(given: str = HOSTILE) -> ConsoleView:
    """A view of a guest, which calls a tool as whoever looks."""

    async def show(tools: ToolCaller, path: str) -> ViewPage:
        read = await tools.call("read_note", {"title": path or "first"})
        return ViewPage(
            title=given,
            blocks=(
                ViewFields(fields={"Read": read, "Empty": ""}),
                ViewTable(columns=(given,), rows=[(given,), (ViewLink(given, "a b?c"),)]),
                ViewTable(columns=("None",), rows=[], empty="Nothing."),
                ViewText(heading="Text", text=given),
                ViewForm(inputs={"title": given}, buttons={"save": given}),
            ),
        )

    async def act(tools: ToolCaller, path: str, form: Mapping[str, str]) -> str:
        await tools.call("save_note", {"title": form["title"]})
        return "next"

    return ConsoleView(label="Notes", categories=(), tool="read_note", show=show, act=act)


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Install a package with a view, one that is none, and one that cannot be loaded, as pip would."""
    info = tmp_path / "site" / "guest_notes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-notes\nVersion: 1.0\n")
    points = "[toolcrib.views]\nnotes = guest_notes:VIEW\nother = guest_notes:OTHER\ngone = guest_gone:VIEW\n"
    (info / "entry_points.txt").write_text(points)
    module = ModuleType("guest_notes")
    vars(module).update(VIEW=open_view(), OTHER={})
    monkeypatch.setitem(sys.modules, "guest_notes", module)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])


@pytest.mark.usefixtures("guest")
async def test_a_view_of_a_guest_is_shown_as_text_and_calls_tools_as_the_operator(browser: Browser) -> None:
    await browser.sign_in()

    page = await browser.html("views/notes")
    linked = await browser.html(next(link for link in page.links if "a%20b" in link).removeprefix("../"))
    acted = await browser.send("views/notes", {**page.fields, "title": "tea", "button": "save"})
    missing = [(await browser.get(f"views/{name}")).status_code for name in ("other", "gone", "none")]

    calls = await browser.crib.store.calls.list()
    assert (page.text.count(SHOWN), {"script", "img"} & page.tags, "Notes" in page.text) == (8, set(), True)
    assert ("read first" in page.text, "Nothing." in page.text, "Empty" in page.text) == (True, True, False)
    assert "read a b?c" in linked.text
    assert (acted.status_code, acted.headers["location"], missing) == (303, "../views/notes/next", [404] * 3)
    assert [(call.tool, call.principal, call.origin, call.outcome) for call in calls] == [
        ("save_note", "ada", "console", "ok"),
        ("read_note", "ada", "view", "ok"),
        ("read_note", "ada", "view", "ok"),
    ]
    assert [call.tool for call in await browser.crib.store.calls.list(without=VIEW)] == ["save_note"]
    told = [problem.message for problem in browser.crib.problems]
    assert len([text for text in told if "guest-notes" in text]) == 2


def test_a_code_is_good_once_and_for_five_minutes() -> None:
    sign_in = SignIn(b"key")
    code, late = sign_in.new_code("ada", 1000.0), sign_in.new_code("ada", 1000.0)

    assert [sign_in.by_code(code, 1001.0), sign_in.by_code(code, 1001.0)] == ["ada", ""]
    assert sign_in.by_code(late, 1300.0) == ""


def test_a_cookie_is_good_for_its_key_and_its_time() -> None:
    sign_in, other = SignIn(b"key"), SignIn(b"another")
    cookie = sign_in.cookie("ädá", 1000.0)
    forged = cookie.replace(cookie.split(".")[2], b"bob".hex())

    operators = [sign_in.operator(cookie, now) for now in (1000.0, 1000.0 + SECONDS - 1, 1000.0 + SECONDS)]

    assert operators == ["ädá", "ädá", ""]
    assert [other.operator(cookie, 1000.0), *(sign_in.operator(text, 0.0) for text in (forged, "", "é", "..."))] == [
        ""
    ] * 5


async def test_a_server_without_a_token_of_admin_scope_lets_nobody_in() -> None:
    async with (
        Toolcrib(memory=True) as crib,
        serving(CribBackend(crib), HttpOptions(), [partial(Console, crib)]) as site,
    ):
        origin = f"http://127.0.0.1:{site.port}"
        sent = {"token": ""}, {"token": "x"}
        answers = [
            await site.client.post(f"{origin}/console/sign-in", data=one, headers={"origin": origin}) for one in sent
        ]

    assert [one.status_code for one in answers] == [403, 403]


@needs_browser
@pytest.mark.process
@pytest.mark.long
async def test_in_a_real_browser_nothing_runs_nothing_is_loaded_and_a_person_answers(browser: Browser) -> None:
    await browser.crib.session(key=HOSTILE).call("read_note", {"title": HOSTILE})
    base, seen = f"{browser.origin}/console", list[str]()
    async with (
        anyio.create_task_group() as tasks,
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as chromium,
    ):
        page = await chromium.new_page()
        page.on("dialog", lambda dialog: seen.append(dialog.message))
        page.on("request", lambda request: None if request.url.startswith(base) else seen.append(request.url))
        await page.goto(base)
        await page.fill("input[name=token]", ADMIN)
        await page.click("main button")
        await page.wait_for_selector("nav")
        base = page.url.rstrip("/")
        tasks.start_soon(browser.crib.session(approver=answered_elsewhere).call, "delete_note", {"title": HOSTILE})
        approval = await asked(browser.crib)
        for path in (*PAGES, "calls", f"approvals/{approval.id}"):
            await page.goto(f"{base}/{path}")
        await page.goto(f"{base}/approvals")
        for key in ("Tab", "Enter", "Tab", "Enter"):  # skip to the content, where the first link ends the loading
            await page.keyboard.press(key)
        await page.wait_for_url(f"{base}/approvals?still=1")
        await page.goto(f"{base}/approvals/{approval.id}")
        await page.fill("input[name=word]", "delete_note")
        await page.click("text=Allow this call")
        await page.wait_for_url(f"{base}/approvals")
        assert (await browser.crib.approvals.get(approval.id)).verdict == "yes"

    assert seen == []
