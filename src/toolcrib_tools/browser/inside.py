"""Program that drives Chromium in the sandbox: JSON lines on one side, Playwright on the other.

It is run by the Python that has Playwright; nothing of ours can be imported there. The profile is in the memory of the
sandbox, so that each browser begins with a new one; only files that a page has downloaded are written to the folder.

    us → it     {"id": 1, "action": "navigate", "url": "https://…"}
    it → us     {"event": "ready"}   {"event": "failed", "why": …}
                {"event": "done", "id": 1, "result": …}   {"event": "done", "id": 1, "failure": …}
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = 10
"""For one step of an action; the call itself has more."""
_PAGE_SECONDS: Final = 30
"""For a page to begin to load."""
_ALIVE: Final = 2
"""Seconds that a page gets to answer at all, after an action has failed."""
_FRAMES: Final = 15
"""Seconds for a snapshot: a frame that was refused never answers."""
_QUIET: Final = 3
"""Seconds that a page gets to load what an action has begun."""
_LONGEST: Final = 400_000
"""Characters of a snapshot that are handed on."""
_KEYS: Final = 500
"""Characters that are typed key by key."""
_LONGEST_NAME: Final = 2_000
"""Characters of an address or a title: a page may make them as long as it likes."""
_MOST_TABS: Final = 10
_MOST_DOWNLOADS: Final = 20
_MOST_DIALOGS: Final = 10
"""Dialogs of one action whose text is handed on."""
_BECAUSE: Final = r"intercepts pointer events|element is not|outside of the viewport|did not find"
"""In the line of a log of attempts that says why an element could not be worked with."""
_SWITCHES: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-tools",
    "--proxy-bypass-list=<-loopback>",
)
"""Without exceptions for this machine: the sandbox has a network of its own, and the proxy decides."""


def main(words: list[str]) -> None:
    """Serve one browser until our input ends."""
    program, folder, proxy = words
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    out = os.dup(1)
    os.dup2(2, 1)  # other writers to stdout must not look like an answer
    try:
        # By name: Playwright belongs to the interpreter in the sandbox, not to this installation.
        with import_module("playwright.sync_api").sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program, args=list(_SWITCHES), proxy={"server": proxy}, chromium_sandbox=False
            )
            driver = _Browser(browser, Path(folder))
            _tell(out, event="ready", language="browser", version=browser.version)
            for line in sys.stdin:
                wanted = json.loads(line)
                answer = driver.answer(wanted)
                if not browser.is_connected():
                    raise RuntimeError("Chromium has ended")
                _tell(out, event="done", id=wanted["id"], **answer)
            browser.close()
    except Exception as error:  # noqa: BLE001 - any failure is reported as the reason why there is no browser
        _tell(out, event="failed", why=_first_line(error))


def _tell(out: int, **event: Any) -> None:
    data = json.dumps(event, ensure_ascii=True).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


def _first_line(error: Exception) -> str:
    """Return the reason of Playwright: of its log of attempts only the last that says why."""
    text, _, log = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).partition("Call log:")
    because = [line.strip(" -") for line in log.splitlines() if re.search(_BECAUSE, line)]
    return f"{type(error).__name__}: {'; '.join((text.strip(), *because[-1:]))}"[:1_000]


class _Refused(Exception):
    """A request that cannot be carried out, in words for the model."""


class _Browser:
    """The tabs of one browser, by the names that a model calls them by."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._context: Any = browser.new_context(accept_downloads=True)
        self._context.set_default_timeout(_SECONDS * 1000)
        self._context.set_default_navigation_timeout(_PAGE_SECONDS * 1000)
        self._folder = folder
        self._tabs: dict[str, Any] = {}
        self._named = 0
        self._current = ""
        self._pending: list[Any] = []
        self._saved = 0
        self._sessions: dict[str, Any] = {}
        self._crashed: list[str] = []
        self._dialogs: list[str] = []
        self._context.on("page", self._add)

    def answer(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return `result`, or `failure` with the reason."""
        actions: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "navigate": self._navigate,
            "snapshot": self._snapshot,
            "click": self._click,
            "type": self._type,
            "select": self._select,
            "screenshot": self._screenshot,
            "tabs": self._switch,
            "close": self._close,
        }
        self._close_crashed()
        try:
            more = actions[wanted["action"]](wanted)
            return {"result": {**self._about(), **more, **self._dismissed(), "downloads": self._downloads()}}
        except _Refused as refused:
            return {"failure": str(refused)}
        except Exception as error:  # noqa: BLE001 - Playwright's own errors, and those of a page that has gone
            return {"failure": _first_line(error) + self._without_stuck(), "downloads": self._downloads()}

    def _without_stuck(self) -> str:
        """Close tabs whose page has crashed, and the current one when it answers no more: the next action needs one."""
        page = self._tabs.get(self._current)
        if page is not None and self._current not in self._crashed:
            try:
                page.wait_for_selector(":root", state="attached", timeout=_ALIVE * 1000)
            except Exception as error:  # noqa: BLE001 - no answer, whatever the words for it
                if "crash" in str(error) or type(error).__name__ == "TimeoutError":
                    self._crashed.append(self._current)
        closed = self._close_crashed()
        return f"; closed, because the page crashed or did not answer any more: {', '.join(closed)}" if closed else ""

    def _close_crashed(self) -> list[str]:
        """Close tabs whose page has crashed; return their names."""
        crashed, self._crashed = [name for name in self._crashed if name in self._tabs], []
        for name in crashed:
            page = self._tabs[name]
            self._remove(name)
            with suppress(Exception):
                page.close()
        return crashed

    def _dismissed(self) -> dict[str, Any]:
        """Return the texts of the dialogs since the last action; nothing without one."""
        texts, self._dialogs = self._dialogs, []
        return {"dismissed_dialogs": texts} if texts else {}

    def _add(self, page: Any) -> None:
        self._named += 1
        name = f"t{self._named}"
        self._tabs[name] = page
        self._current = name

        # Functions of their own: Playwright sets attributes on what it calls.
        def close(_: Any) -> None:
            self._remove(name)

        def download(one: Any) -> None:
            self._pending.append(one)

        def dialog(one: Any) -> None:
            if one.type == "beforeunload":  # to dismiss this one is to stay: no page may keep the tab
                one.accept()
                return
            if len(self._dialogs) < _MOST_DIALOGS:
                self._dialogs.append(f"{one.type}: {one.message[:300]}")
            one.dismiss()

        def crash(_: Any) -> None:
            self._crashed.append(name)

        page.on("close", close)
        page.on("crash", crash)
        page.on("download", download)
        page.on("dialog", dialog)

    def _remove(self, name: str) -> None:
        self._tabs.pop(name, None)
        self._sessions.pop(name, None)
        if self._current == name:
            self._current = next(reversed(self._tabs), "")

    def _page(self) -> Any:
        if not self._current:
            raise _Refused("no page is open: navigate opens one")
        return self._tabs[self._current]

    def _about(self) -> dict[str, Any]:
        if not self._current:
            return {"tabs": []}
        return {**self._about_tab(self._current), "tab_id": self._current, "tabs": list(self._tabs)}

    def _about_tab(self, name: str) -> dict[str, Any]:
        """Return address and title of a tab. The browser is asked, not the page, which may be busy without an end."""
        if name not in self._sessions:
            self._sessions[name] = self._context.new_cdp_session(self._tabs[name])
        about = self._sessions[name].send("Target.getTargetInfo")["targetInfo"]
        return {"url": self._tabs[name].url[:_LONGEST_NAME], "title": about["title"][:_LONGEST_NAME]}

    def _navigate(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        if not self._current:
            self._context.new_page()
        try:
            response = self._page().goto(wanted["url"], wait_until="domcontentloaded")
        except Exception as error:
            if "Download is starting" not in str(error):
                raise
            for _ in range(20):  # Playwright says so before it tells of the download itself
                if self._pending:
                    break
                self._page().wait_for_timeout(50)
            return {}
        self._settle()
        return {"status": response.status} if response is not None else {}

    def _snapshot(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        text = self._page().aria_snapshot(mode="ai", timeout=_FRAMES * 1000)
        left = len(text) - _LONGEST
        return {"snapshot": text if left <= 0 else f"{text[:_LONGEST]}\n[… {left:,} characters left out …]"}

    def _click(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self._element(wanted).click()
        self._settle()
        return {}

    def _type(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        element = self._element(wanted)
        if wanted["clear"]:
            element.fill("")
        element.focus()
        self._page().keyboard.press("End")
        if len(wanted["text"]) <= _KEYS:
            element.press_sequentially(wanted["text"])
        else:
            self._paste(wanted["text"])
        self._settle()
        return {}

    def _paste(self, text: str) -> None:
        """Enter text line by line: key by key, a page of it would take longer than the action may."""
        keyboard = self._page().keyboard
        for place, line in enumerate(text.split("\n")):
            if place:
                keyboard.press("Enter")
            if line:
                keyboard.insert_text(line)

    def _select(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        element, text = self._element(wanted), wanted["text"]
        options = element.evaluate(
            "one => Array.from(one.options || [], it => [it.label.trim(), it.value, it.matches(':disabled')])"
        )
        meant = [place for place, (label, _, _) in enumerate(options) if label == text]
        meant += [place for place, (_, value, _) in enumerate(options) if value == text]
        if not meant:
            known = ", ".join(repr(label) for label, _, _ in options[:30]) or "none: it is not a list to select from"
            raise _Refused(f"no option {text!r}; there are {known}")
        enabled = [place for place in meant if not options[place][2]]
        if not enabled:
            raise _Refused(f"the option {text!r} is disabled")
        return {"selected": element.select_option(index=enabled[0])}

    def _screenshot(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        return {"image": base64.b64encode(self._page().screenshot(type="png", animations="disabled")).decode()}

    def _switch(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        if wanted["tab_id"]:
            self._current = self._known(wanted["tab_id"])
            self._tabs[self._current].bring_to_front()
        return {"open": {name: self._about_tab(name) for name in list(self._tabs)}}

    def _close(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self._tabs[self._known(wanted["tab_id"])].close()
        return {}

    def _known(self, name: str) -> str:
        if name not in self._tabs:
            raise _Refused(f"no tab {name!r}; there are {', '.join(self._tabs) or 'none'}")
        return name

    def _element(self, wanted: Mapping[str, Any]) -> Any:
        found = self._page().locator(f"aria-ref={wanted['ref']}")
        try:
            count = found.count()
        except Exception:  # noqa: BLE001 - Playwright raises where no snapshot was taken yet
            count = 0
        if not count:
            raise _Refused(f"no element {wanted['ref']!r} on this page: take the ref from a new snapshot")
        return found

    def _settle(self) -> None:
        """Wait for what an action has begun, as long as it is worth it, and keep to the tabs that there may be."""
        with suppress(Exception):  # a page may close itself, or load for ever and be of use
            self._page().wait_for_timeout(150)  # a click tells nothing of what it begins
            self._page().wait_for_load_state("load", timeout=_QUIET * 1000)
        for name in list(self._tabs)[:-_MOST_TABS]:
            self._tabs[name].close()

    def _downloads(self) -> list[dict[str, Any]]:
        """Save what was downloaded, and return where it came from and what it is called here."""
        saved: list[dict[str, Any]] = []
        while self._pending:
            download = self._pending.pop(0)
            entry = {"name": str(download.suggested_filename)[:200], "url": download.url[:_LONGEST_NAME]}
            saved.append(entry)
            if len(saved) > _MOST_DOWNLOADS:
                entry["failure"] = f"not kept, nor any that follow it: more than {_MOST_DOWNLOADS} files at once"
                for one in (download, *self._pending):
                    with suppress(Exception):
                        one.cancel()
                self._pending.clear()
                break
            self._saved += 1
            entry["file"] = f"download-{self._saved}"
            try:
                download.save_as(self._folder / entry["file"])
            except Exception as error:  # noqa: BLE001 - a server that stopped in the middle, say
                entry["failure"] = _first_line(error)
        return saved


if __name__ == "__main__":
    main(sys.argv[1:])
