"""The screen: windows of known colours on a real X server, and what a model is shown of them."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from rig.desktop import SIZE, Desktop, desktop, needs_bus, needs_tesseract, needs_x_server, portal
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.core.result import ToolResult
from toolcrib.crib.session import Session
from toolcrib.testing import RecordingApprover
from toolcrib_tools import screen

RED, GREEN, BLUE = 0xFF0000, 0x00FF00, 0x0000FF


@pytest.fixture(scope="module")
def server() -> Generator[Desktop]:
    with desktop() as opened:
        yield opened


@pytest.fixture
def on_screen(server: Desktop, monkeypatch: pytest.MonkeyPatch) -> Generator[Desktop]:
    """A screen with two windows: red on the left, blue over a part of it, with a letter of its own alphabet in it."""
    monkeypatch.setenv("DISPLAY", server.name)
    red = server.window("Invoice – March", "Ledger", RED, (20, 30, 300, 200))
    blue = server.window("Grüße", "Mail", BLUE, (220, 130, 200, 150))
    yield server
    red.destroy()
    blue.destroy()
    for name in ("_NET_CLIENT_LIST_STACKING", "_NET_ACTIVE_WINDOW"):
        server.display.screen().root.delete_property(server.display.intern_atom(name))
    server.display.sync()


@asynccontextmanager
async def opened(**options: Any) -> AsyncGenerator[Session]:
    given: dict[str, Any] = {"profile": "flat", "mode": "autonomous", "approver": RecordingApprover("yes"), **options}
    async with Toolcrib(bare(), memory=True) as crib, crib.session(**given) as session:
        crib.add(screen)
        yield session


async def looked(**arguments: Any) -> ToolResult:
    async with opened() as session:
        return await session.call("observe_screen", arguments)


def shown(result: ToolResult) -> Image.Image:
    """Return the picture in a result."""
    assert result.error is None, result.text
    (block,) = [block for block in result.content if block["type"] == "image"]
    image = Image.open(io.BytesIO(base64.b64decode(block["data"])))
    assert block["mimeType"] == f"image/{str(image.format).lower()}"
    return image.convert("RGB")


def code(result: ToolResult) -> str:
    return result.error.code if result.error is not None else ""


@pytest.mark.process
@needs_x_server
async def test_the_whole_screen_is_shown_with_what_is_on_it(on_screen: Desktop) -> None:
    result = await looked()
    picture = shown(result)

    assert picture.size == SIZE
    places = {place: picture.getpixel(place) for place in ((5, 5), (25, 35), (219, 129), (221, 131), (419, 279))}
    assert places == {
        (5, 5): (0, 0, 0),
        (25, 35): (255, 0, 0),
        (219, 129): (255, 0, 0),
        (221, 131): (0, 0, 255),
        (419, 279): (0, 0, 255),
    }
    assert "The whole screen: screenshot, 640x480 pixels" in result.text


@pytest.mark.process
@needs_x_server
async def test_one_window_is_shown_by_its_program_or_its_title(on_screen: Desktop) -> None:
    by_app, by_title = await looked(app="mail"), await looked(window_title="invoice")

    assert shown(by_app).size == (200, 150)
    assert shown(by_app).getcolors() == [(200 * 150, (0, 0, 255))]
    assert "Mail: Grüße, at 220,130 of the screen: screenshot, 200x150 pixels" in by_app.text
    assert shown(by_title).size == (300, 200)
    assert shown(by_title).getpixel((0, 0)) == (255, 0, 0)
    assert "Over a part of it lies: Mail: Grüße" in by_title.text
    assert "Over a part" not in by_app.text


@pytest.mark.process
@needs_x_server
async def test_of_several_windows_that_fit_the_one_with_the_keyboard_is_shown(on_screen: Desktop) -> None:
    below = on_screen.window("Grüße aus Rom", "Mail", GREEN, (10, 300, 60, 50))
    above = on_screen.window("Grüße aus Bari", "Mail", RED, (10, 400, 60, 50))
    on_screen.manage([below, above], active=below)
    chosen, listed = await looked(app="Mail"), await looked(app="Mail", mode="windows")
    below.destroy()
    above.destroy()

    assert shown(chosen).getcolors() == [(60 * 50, (0, 255, 0))]
    assert "Another window that fits: Mail: Grüße aus Bari" in chosen.text
    assert json.loads(listed.text) == {
        "windows": [
            {"app": "Mail", "title": "Grüße aus Bari", "box": [10, 400, 60, 50]},
            {"app": "Mail", "title": "Grüße aus Rom", "box": [10, 300, 60, 50], "active": True},
        ],
        "count": 2,
    }


@pytest.mark.process
@needs_x_server
async def test_a_window_that_hangs_over_the_edge_is_shown_as_far_as_it_is_on_the_screen(on_screen: Desktop) -> None:
    hanging = on_screen.window("Edge", "Edge", GREEN, (-50, 400, 100, 200))
    beside = on_screen.window("Away", "Away", GREEN, (2000, 0, 100, 100))
    seen, unseen = await looked(app="Edge"), await looked(app="Away")
    hanging.destroy()
    beside.destroy()

    assert shown(seen).getcolors() == [(50 * 80, (0, 255, 0))]
    assert (code(unseen), "lies beside the screen" in unseen.text) == ("tool_error", True)


@pytest.mark.process
@needs_x_server
async def test_windows_are_listed_the_topmost_first_and_filtered(on_screen: Desktop) -> None:
    everything, some = await looked(mode="windows"), await looked(mode="windows", window_title="MARCH")

    red = {"app": "Ledger", "title": "Invoice – March", "box": [20, 30, 300, 200]}
    blue = {"app": "Mail", "title": "Grüße", "box": [220, 130, 200, 150]}
    assert json.loads(everything.text) == {"windows": [blue, red], "count": 2}
    assert json.loads(some.text) == {"windows": [red], "count": 1}


@pytest.mark.process
@needs_x_server
async def test_a_window_that_is_not_there_is_refused_with_those_that_are(on_screen: Desktop) -> None:
    result = await looked(app="Solitaire")

    assert code(result) == "not_found"
    assert "there are: Mail: Grüße; Ledger: Invoice – March" in result.text


@pytest.mark.process
@needs_x_server
@needs_tesseract
async def test_the_text_on_the_screen_is_read(on_screen: Desktop) -> None:
    sheet = Image.new("RGB", (600, 90), "white")
    ImageDraw.Draw(sheet).text((20, 20), "Amount due 4711", font=ImageFont.load_default(40), fill="black")
    window = on_screen.window("Bill", "Bill", 0xFFFFFF, (10, 300, 600, 90))
    on_screen.picture(window, sheet)
    result = await looked(app="Bill", mode="text")
    window.destroy()

    assert "Amount due 4711" in result.text
    assert [block["type"] for block in result.content] == ["text"]


@pytest.mark.process
@needs_x_server
async def test_where_nothing_reads_text_it_is_said(
    on_screen: Desktop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = await looked(mode="text")
    program(tmp_path / "tesseract", "cat > /dev/null; echo no languages are here >&2; exit 4")
    failing = await looked(mode="text")

    assert (code(missing), "tesseract-ocr" in missing.text) == ("unavailable", True)
    assert (code(failing), "tesseract failed: no languages are here" in failing.text) == ("tool_error", True)


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)


async def test_where_there_is_no_screen_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = await looked()
    monkeypatch.setenv("DISPLAY", "nowhere")
    refused = await looked(mode="windows")

    assert [code(absent), code(refused)] == ["unavailable", "unavailable"]
    assert "there is no screen to look at" in absent.text
    assert "grim, gnome-screenshot, spectacle" in absent.text
    assert "desktop session" in refused.text


@pytest.mark.process
async def test_a_wayland_desktop_is_looked_at_by_its_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    Image.new("RGB", (2000, 1000), "green").save(tmp_path / "screen.png")
    program(tmp_path / "grim", f'cp "{tmp_path}/screen.png" "$1"')
    whole, window = await looked(), await looked(app="mail")
    program(tmp_path / "grim", "echo compositor does not support this >&2; exit 1")
    failed = await looked()

    assert shown(whole).size == (1568, 784)
    assert shown(whole).getpixel((700, 300)) == (0, 128, 0)
    assert "2000x1000 pixels, shown at 1568x784" in whole.text
    assert (code(window), "leave app and window_title out" in window.text) == ("unavailable", True)
    assert (code(failed), "grim took no picture: compositor does not" in failed.text) == ("tool_error", True)


@pytest.mark.process
@needs_bus
async def test_a_wayland_desktop_without_such_a_program_takes_the_picture_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    picture = tmp_path / "a picture.png"
    Image.new("RGB", (30, 20), "green").save(picture)
    program(tmp_path / "grim", "echo compositor does not support this >&2; exit 1")
    with portal(picture) as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        whole, kept = await looked(), picture.exists()
        windows = await looked(mode="windows")
    with portal(picture, code=1) as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        refused = await looked()

    assert shown(whole).getcolors() == [(30 * 20, (0, 128, 0))]
    assert not kept
    assert [code(windows), code(refused)] == ["unavailable", "denied"]
    assert "grim took no picture: compositor does not support this; the portal took no picture" in refused.text


@pytest.mark.process
@pytest.mark.parametrize("library", ["Xlib.display", "PIL.ImageGrab"])
@needs_x_server
async def test_without_the_libraries_the_extra_is_named(
    library: str, on_screen: Desktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    result = await looked()

    assert (code(result), "install the extra `screen`" in result.text) == ("unavailable", True)


@pytest.mark.process
@needs_x_server
async def test_the_user_is_asked_each_time_whatever_the_mode_and_the_session_is_tainted(on_screen: Desktop) -> None:
    approver = RecordingApprover("all")
    async with opened(approver=approver) as session:
        first, second = [await session.call("observe_screen") for _ in range(2)]
        state = session.state

    assert [shown(result).size for result in (first, second)] == [SIZE, SIZE]
    assert [question.decision.rule for question in approver.questions] == [
        "approval always: observe_screen asks in every mode"
    ] * 2
    assert (state.taint.private_read_by, state.taint.source) == ("observe_screen", "observe_screen")


@pytest.mark.process
@needs_x_server
async def test_nobody_sees_it_without_a_yes_and_a_client_not_at_all(on_screen: Desktop) -> None:
    async with opened(approver=RecordingApprover("no")) as session:
        refused = await session.call("observe_screen")
    async with opened(principal="guest") as session:
        stranger = [await session.call("observe_screen", {"mode": mode}) for mode in ("image", "text", "windows")]

    async with opened(approver=None) as session:
        unasked = await session.call("observe_screen")

    assert [code(refused), code(unasked)] == ["denied", "denied"]
    assert "add the rule" not in unasked.text  # it asks whatever the rules say
    assert [code(result) for result in stranger] == ["denied"] * 3
    assert {block["type"] for result in (refused, *stranger) for block in result.content} == {"text"}
