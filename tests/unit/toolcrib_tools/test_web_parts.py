"""Pages in parts as JSON, in other formats and languages, without redirects, and kept for later."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from toolcrib_tools import web
from unit.toolcrib_tools.online import Online, gives, online
from unit.toolcrib_tools.test_web_pages import MARKDOWN, PAGE, body_of


@pytest.fixture
async def at() -> AsyncGenerator[Online]:
    async with online(web) as opened:
        opened.server.handlers["GET /birds/kestrel"] = gives(PAGE)
        yield opened


STRUCTURED = """<!doctype html><html lang="en"><head><title>Fees</title><link rel="canonical" href="/fees">
<meta name="description" content="What berths  cost"><meta property="og:site_name" content="Port"></head><body>
<h1>Fees</h1><h2>Berths</h2><p>See <a href="/rules">the rules</a>, <a href="/rules">rules</a>.</p>
<img src="/quay.png" alt="The quay"><img src="data:image/png;base64,AA">
<table><caption>2026</caption><tr><th>Length</th><th>Fee</th></tr><tr><td>10 m</td><td>30</td></tr></table>
<div hidden><a href="/hidden">Hidden</a></div>
<form action="/book" method="post"><input name="boat"><select name="quay"></select><button>Go</button></form>
</body></html>"""


async def test_the_parts_of_a_page_are_told_as_json(at: Online) -> None:
    at.server.handlers["GET /fees"] = gives(STRUCTURED)
    origin = at.server.origin
    url = f"{origin}/fees"

    whole = json.loads(body_of(await at.said("web_fetch", url=url, mode="structured")))
    some = json.loads(body_of(await at.said("web_fetch", url=url, extract=["tables", "headings"])))
    inside = json.loads(
        body_of(await at.said("web_fetch", url=url, extract=["links", "headings"], selector="form, h2"))
    )

    assert whole == {
        "metadata": {
            "title": "Fees",
            "description": "What berths cost",
            "site": "Port",
            "language": "en",
            "canonical": f"{origin}/fees",
        },
        "headings": [{"level": 1, "text": "Fees"}, {"level": 2, "text": "Berths"}],
        "links": [{"url": f"{origin}/rules", "text": "the rules"}],
        "images": [{"url": f"{origin}/quay.png", "text": "The quay"}],
        "tables": [{"caption": "2026", "head": ["Length", "Fee"], "rows": [["10 m", "30"]]}],
        "forms": [
            {
                "action": f"{origin}/book",
                "method": "post",
                "fields": [{"name": "boat", "type": "input"}, {"name": "quay", "type": "select"}],
            }
        ],
    }
    assert list(some) == ["tables", "headings"]
    assert inside == {"links": [], "headings": [{"level": 2, "text": "Berths"}]}


async def test_parts_and_formats_that_do_not_go_together_are_refused(at: Online) -> None:
    url = f"{at.server.origin}/birds/kestrel"
    parts = await at.refused("web_fetch", url=url, mode="raw", extract=["links"])
    plain = await at.refused("web_fetch", url=url, mode="links", output_format="text")
    at.server.handlers["GET /data"] = gives("{}", "application/json")
    data = await at.refused("web_fetch", url=f"{at.server.origin}/data", mode="structured")

    assert parts.message == "extract: it is for mode=structured, not mode=raw"
    assert plain.message == "output_format: it is for the main text, not for mode=links"
    assert data.message.endswith("/data is read as application/json")


async def test_the_main_text_is_had_without_markdown_and_alone(at: Online) -> None:
    url = f"{at.server.origin}/birds/kestrel"
    plain = body_of(await at.said("web_fetch", url=url, output_format="text"))
    auto = await at.said("web_fetch", url=url, mode="auto")
    reader = await at.said("web_fetch", url=url, mode="reader")
    at.server.handlers["GET /app"] = gives("<html><body><div id=app></div></body></html>")
    nothing = await at.refused("web_fetch", url=f"{at.server.origin}/app", mode="reader")

    assert ("hovers over fields" in plain, "**" in plain, "## " in plain) == (True, False, False)
    assert auto == reader == f"Source: {url}\n\n{MARKDOWN}"
    assert (nothing.message, nothing.hint) == (
        f"no main text was found at {at.server.origin}/app",
        "mode=text is everything visible",
    )


async def test_no_more_html_is_read_than_wanted(at: Online) -> None:
    at.server.handlers["GET /long"] = gives(f"<html><body><p>{'a ' * 500}</p><p>the end</p></body></html>")
    url = f"{at.server.origin}/long"

    whole = await at.said("web_fetch", url=url, mode="text")
    some = await at.said("web_fetch", url=url, mode="text", max_html_chars=1_000)
    raw = await at.said("web_fetch", url=url, mode="raw", max_html_chars=1_000)

    assert ("the end" in whole, "the end" in some, "the end" in raw) == (True, False, False)
    assert some.endswith("[only the first 1,000 characters of the page were read]")
    assert raw.endswith("[only the first 1,000 characters were read]")


async def test_a_site_is_asked_for_a_language(at: Online) -> None:
    url = f"{at.server.origin}/echo"
    await at.said("web_fetch", url=url, prefer_language="pt-BR")
    await at.said("web_fetch", url=url, prefer_language="de", headers={"Accept-Language": "fr"})
    refused = await at.refused("web_fetch", url=url, prefer_language="german, please")

    assert [seen["headers"]["accept-language"] for seen in at.server.received] == ["pt-BR, *;q=0.5", "fr"]
    assert refused.code == "invalid_arguments"


async def test_a_redirect_is_told_instead_of_followed_when_that_is_wanted(at: Online) -> None:
    at.server.handlers["GET /old"] = gives("", status=301, location="/birds/kestrel")
    url = f"{at.server.origin}/old"
    told = await at.said("web_fetch", url=url, allow_redirects=False)
    followed = await at.said("web_fetch", url=url)

    assert told == f"Source: {url}\n\n301 Moved Permanently: it leads to {at.server.origin}/birds/kestrel"
    assert followed.startswith(f"Source: {at.server.origin}/birds/kestrel\n")


async def test_a_page_that_is_kept_is_read_in_later_conversations_until_it_is_fetched_anew(at: Online) -> None:
    at.server.handlers["GET /news"] = gives("first", "text/plain")
    url = f"{at.server.origin}/news"
    kept = await at.said("web_fetch", url=url, persist=True)
    at.server.handlers["GET /news"] = gives("second", "text/plain")
    later = at.crib.session(profile="flat", mode="autonomous")
    again = (await later.call("web_fetch", {"url": url})).text
    anew = (await later.call("web_fetch", {"url": url, "no_cache": True})).text
    bob = at.crib.session(profile="flat", mode="autonomous", principal="bob")
    theirs = (await bob.call("web_fetch", {"url": url})).text

    assert body_of(kept) == "first\n\n[it is kept for later conversations]"
    assert body_of(again).startswith("first\n\n[as it was kept on 20")
    assert (body_of(anew), body_of(theirs)) == ("second", "second")
