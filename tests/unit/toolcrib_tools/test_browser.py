"""`browser`: a real Chromium in the sandbox, what it can do on a page, and what neither it nor a page can reach."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from peers.api import Api, api
from rig.desktop import needs_browser
from rig.sandbox import needs_sandbox
from toolcrib.config import bare
from toolcrib.core.result import ToolResult
from toolcrib.crib import Session, Toolcrib
from toolcrib.policy.modes import kind_of

pytestmark = [needs_sandbox, needs_browser, pytest.mark.process, pytest.mark.long]

SHOP = """<title>Loading</title>
<input aria-label=Name id=n><select aria-label=Size><option value=s>Small<option value=l>Large</select>
<button onclick="out.textContent = 'Hello ' + n.value">Greet</button><p id=out></p>
<a href=/sales.csv>Sales</a> <a href=/other target=_blank>Other</a> <a href="file:///etc/passwd">Passwords</a>
<script>document.title = 'Shop'</script>"""
HOSTILE = {
    "/keeps": "<title>Keeps</title><button>Touch</button><script>onbeforeunload = one => one.preventDefault()</script>",
    "/crashes": "<title>Crashes</title><button onclick='for (let a = [];;) a.push(Array(1e7).fill(1.5))'>Go</button>",
    "/busy": "<title>Busy</title><script>setTimeout(() => { while (1); }, 50)</script>",
    "/asks": "<p id=out></p><button onclick=\"out.textContent = confirm('Delete all?')\">Delete</button>",
    "/title": "<script>document.title = 'x'.repeat(20_000_000)</script>",
    "/many": """<title>Many</title><button onclick="for (let i = 0; i < 8; i++) { const a = document.createElement('a');
a.href = window.URL.createObjectURL(new Blob(['x'])); a.download = '../f' + i; a.click() }">Go</button>""",
    "/form": """<title>Form</title><textarea aria-label=Text></textarea><select aria-label=Size><option value=s>One
<option value=l>One<option disabled>Gone</select>""",
}
"""Pages that stand in the way, and some that are awkward only."""
KEPT = "<title>new</title><script>document.title = document.cookie || 'new'; document.cookie = 'seen=yes'</script>"


async def pages(request: Request) -> Response:
    """Answer as the shop does."""
    match request.url.path:
        case "/":
            return HTMLResponse(SHOP)
        case "/sales.csv":
            headers = {"content-disposition": "attachment; filename=sales.csv"}
            return Response("month,amount\nJan,10\n", media_type="text/csv", headers=headers)
        case "/away":
            return RedirectResponse("http://169.254.169.254/latest/meta-data")
        case "/kept":
            return HTMLResponse(KEPT)
        case path if path in HOSTILE:
            return HTMLResponse(f"<!doctype html><body>{HOSTILE[path]}")
        case _:
            return HTMLResponse("<title>Other</title><p>Nothing here</p>")


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[Api]:
    async with api() as running:
        running.otherwise = pages
        yield running


@pytest.fixture(scope="module")
async def crib(server: Api) -> AsyncGenerator[Toolcrib]:
    tools = {"web": {"private_hosts": [server.origin.removeprefix("http://")]}}
    async with Toolcrib(bare().with_values(builtins=("browser",), tools=tools), memory=True) as opened:
        yield opened


@pytest.fixture(scope="module")
async def session(crib: Toolcrib) -> AsyncGenerator[Session]:
    async with of(crib) as opened:
        yield opened


def of(crib: Toolcrib) -> Session:
    return crib.session(profile="flat", mode="autonomous", rules={"allow": ["browser"]})


async def said(session: Session, action: str, **given: Any) -> str:
    result = await session.call("browser", {"action": action, **given})
    assert result.error is None, result.text
    return result.text


async def refused(session: Session, action: str, **given: Any) -> tuple[str, str]:
    result = await session.call("browser", {"action": action, **given})
    assert result.error is not None, result.text
    return result.error.code, result.error.message


def ref(snapshot: str, what: str) -> str:
    """Return the ref of an element in a snapshot."""
    found = re.search(rf"{what}.*?\[ref=(\w+)\]", snapshot)
    assert found, snapshot
    return found[1]


async def test_a_page_that_a_script_makes_is_read_and_worked_with(session: Session, server: Api) -> None:
    assert "title: Shop" in await said(session, "navigate", url=f"{server.origin}/")
    seen = await said(session, "snapshot")
    await said(session, "type", ref=ref(seen, 'textbox "Name"'), text="Ada")
    await said(session, "type", ref=ref(seen, 'textbox "Name"'), text=" L.")
    await said(session, "click", ref=ref(seen, 'button "Greet"'))
    assert "Hello Ada L." in await said(session, "snapshot")
    await said(session, "type", ref=ref(seen, 'textbox "Name"'), text="Eve", clear=True)
    await said(session, "click", ref=ref(seen, 'button "Greet"'))
    assert "selected: ['l']" in await said(session, "select", ref=ref(seen, 'combobox "Size"'), text="Large")
    after = await said(session, "snapshot")
    assert ("Hello Eve" in after, 'option "Large" [selected]' in after) == (True, True)
    code, message = await refused(session, "select", ref=ref(seen, 'combobox "Size"'), text="Huge")
    assert (code, "'Small', 'Large'" in message) == ("tool_error", True)
    assert "new snapshot" in (await refused(session, "click", ref="e999"))[1]


async def test_a_screenshot_is_a_picture(session: Session, server: Api) -> None:
    await said(session, "navigate", url=f"{server.origin}/")
    result = await session.call("browser", {"action": "screenshot"})
    (picture,) = [block for block in result.content if block["type"] == "image"]
    assert base64.b64decode(picture["data"]).startswith(b"\x89PNG")


async def test_a_download_is_an_artifact(session: Session, server: Api, crib: Toolcrib) -> None:
    await said(session, "navigate", url=f"{server.origin}/")
    result = await session.call(
        "browser", {"action": "click", "ref": ref(await said(session, "snapshot"), 'link "Sales"')}
    )
    assert await content_of(crib, result) == ("sales.csv", "month,amount\nJan,10\n", "untrusted")
    direct = await session.call("browser", {"action": "navigate", "url": f"{server.origin}/sales.csv"})
    assert (await content_of(crib, direct))[0] == "sales.csv"


async def content_of(crib: Toolcrib, result: ToolResult) -> tuple[str, str, str]:
    """Return name, text and trust of the artifact that a result refers to."""
    (link,) = [block for block in result.content if block["type"] == "resource_link"]
    artifact, data = await crib.artifacts.value(link["uri"].rpartition("/")[2], "local", 10_000)
    return link["name"], data.decode(), artifact.trust


async def test_tabs_are_listed_changed_and_closed(session: Session, server: Api) -> None:
    await said(session, "navigate", url=f"{server.origin}/")
    first = ref_of_tab(await said(session, "tabs"))
    opened = await said(session, "click", ref=ref(await said(session, "snapshot"), 'link "Other"'))
    other = ref_of_tab(opened)
    assert ("title: Other" in opened, first == other) == (True, False)
    assert "title: Shop" in await said(session, "tabs", tab_id=first)
    assert f"tabs: ['{first}']" in await said(session, "close", tab_id=other)
    assert (await refused(session, "tabs", tab_id=other))[0] == "tool_error"


def ref_of_tab(text: str) -> str:
    found = re.search(r"tab_id: (t\d+)", text)
    assert found, text
    return found[1]


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "chrome://settings", "devtools://devtools/bundled/inspector.html", "view-source:http://x.test",
     "javascript:alert(1)", "data:text/html,hello", "about:blank", "example.org"],
)  # fmt: skip
async def test_only_pages_of_the_web_are_opened(session: Session, url: str) -> None:
    assert (await refused(session, "navigate", url=url))[0] == "denied"


async def test_a_link_to_a_file_of_this_machine_leads_nowhere(session: Session, server: Api) -> None:
    await said(session, "navigate", url=f"{server.origin}/")
    await said(session, "click", ref=ref(await said(session, "snapshot"), 'link "Passwords"'))
    assert "root:" not in await said(session, "snapshot")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8/", "http://10.0.0.7/", "http://[::1]:8080/", "{origin}/away"])
async def test_addresses_of_this_machine_and_network_are_refused_by_the_proxy(
    session: Session, server: Api, url: str
) -> None:
    assert (await refused(session, "navigate", url=url.replace("{origin}", server.origin)))[0] == "denied"


async def test_the_reason_of_a_refusal_is_told_each_time(session: Session) -> None:
    answers = [await refused(session, "navigate", url="https://10.0.0.8/") for _ in range(2)]
    assert [(code, "may reach" in message) for code, message in answers] == [("denied", True)] * 2


async def test_a_page_that_asks_to_stay_is_left(session: Session, server: Api) -> None:
    await said(session, "navigate", url=f"{server.origin}/keeps")
    await said(session, "click", ref=ref(await said(session, "snapshot"), 'button "Touch"'))
    assert "title: Shop" in await said(session, "navigate", url=f"{server.origin}/")


async def test_a_page_that_crashes_takes_no_other_with_it(session: Session, server: Api) -> None:
    await said(session, "navigate", url=f"{server.origin}/crashes")
    broken = await refused(session, "click", ref=ref(await said(session, "snapshot"), 'button "Go"'))
    assert (broken[0], "closed, because the page crashed" in broken[1]) == ("tool_error", True)
    assert "title: Shop" in await said(session, "navigate", url=f"{server.origin}/")


async def test_a_page_that_is_busy_without_an_end_is_listed_and_closed(session: Session, server: Api) -> None:
    tab = ref_of_tab(await said(session, "navigate", url=f"{server.origin}/busy"))
    assert "/busy" in await said(session, "tabs")
    await said(session, "close", tab_id=tab)
    assert "title: Shop" in await said(session, "navigate", url=f"{server.origin}/")


async def test_a_dialog_is_dismissed_and_its_text_told(session: Session, server: Api) -> None:
    await said(session, "navigate", url=f"{server.origin}/asks")
    clicked = await said(session, "click", ref=ref(await said(session, "snapshot"), 'button "Delete"'))
    assert "dismissed_dialogs: ['confirm: Delete all?']" in clicked
    assert "paragraph [ref=" in (after := await said(session, "snapshot"))
    assert "false" in after


async def test_a_title_is_as_long_as_is_of_use(session: Session, server: Api) -> None:
    assert len(await said(session, "navigate", url=f"{server.origin}/title")) < 3_000


async def test_each_action_may_download_many_files_under_plain_names(session: Session, server: Api) -> None:
    names: list[str] = []
    for _ in range(3):  # the limit of 20 is one of an action, not of the session
        await said(session, "navigate", url=f"{server.origin}/many")
        button = ref(await said(session, "snapshot"), 'button "Go"')
        result = await session.call("browser", {"action": "click", "ref": button})
        names += [block["name"] for block in result.content if block["type"] == "resource_link"]
    assert (len(names), {name for name in names if "/" in name}) == (24, set())


async def test_long_text_is_entered_and_an_option_selected_by_its_value(session: Session, server: Api) -> None:
    await said(session, "navigate", url=f"{server.origin}/form")
    seen = await said(session, "snapshot")
    await said(session, "type", ref=ref(seen, 'textbox "Text"'), text="first\n" + "word " * 3_000 + "\nlast")
    assert re.search(r'textbox "Text".*: first (word )+ ?last', await said(session, "snapshot"))
    size = ref(seen, 'combobox "Size"')
    assert "selected: ['l']" in await said(session, "select", ref=size, text="l")
    assert await refused(session, "select", ref=size, text="Gone") == ("tool_error", "the option 'Gone' is disabled")


async def test_each_session_has_a_profile_of_its_own_that_ends_with_it(crib: Toolcrib, server: Api) -> None:
    async with of(crib) as one:
        assert "title: new" in await said(one, "navigate", url=f"{server.origin}/kept")
        assert "title: seen=yes" in await said(one, "navigate", url=f"{server.origin}/kept")
        saved = one.state.runtime["browser"].folder
        async with of(crib) as other:
            assert "title: new" in await said(other, "navigate", url=f"{server.origin}/kept")
    assert not Path(saved).exists()
    assert (await refused(one, "snapshot"))[0] == "not_found"


async def test_a_browser_that_was_killed_is_followed_by_a_new_one(crib: Toolcrib, server: Api) -> None:
    async with of(crib) as session:
        await said(session, "navigate", url=f"{server.origin}/")
        saved: Path = session.state.runtime["browser"].folder
        os.kill(chromium_below(str(saved)), signal.SIGKILL)
        code, message = await refused(session, "snapshot")
        assert (code, "has ended" in message) == ("tool_error", True)
        assert "title: Shop" in await said(session, "navigate", url=f"{server.origin}/")
        assert not saved.exists()


def chromium_below(folder: str) -> int:
    """Return the id of the first Chromium of the sandbox that a folder belongs to."""
    rows = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    table = [
        (int(one), int(parent), words) for one, parent, words in (row.split(None, 2) for row in rows.splitlines()[1:])
    ]
    below = {pid for pid, _, words in table if folder in words}
    while more := {pid for pid, parent, _ in table if parent in below} - below:
        below |= more
    return min(pid for pid, _, words in table if pid in below and "--headless" in words and "--type=" not in words)


async def test_what_has_no_page_says_how_to_open_one(crib: Toolcrib) -> None:
    async with of(crib) as session:
        assert await refused(session, "snapshot") == ("not_found", "no browser is open")
        assert await refused(session, "click") == ("invalid_arguments", "ref: click needs an element")


async def test_looking_reads_and_working_with_a_page_writes(crib: Toolcrib) -> None:
    tool = crib.catalog.tools["browser"]
    kinds = {action: kind_of(tool, {"action": action}) for action in tool.input_schema["properties"]["action"]["enum"]}
    assert {action for action, kind in kinds.items() if kind == "write"} == {"click", "type", "select"}
