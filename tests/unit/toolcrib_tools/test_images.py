"""Images of the workspace: what a model is shown of them, whatever they are, and that every way in carries them."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import sys
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from PIL import Image
from pydantic_ai.messages import BinaryContent, ToolReturnPart

from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.budget import Budget, Budgets
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.mcp.server.connection import Connection
from toolcrib.mcp.server.service import Service
from toolcrib.plugin import ToolFailure
from toolcrib.server.backend import CribBackend
from toolcrib.testing.models import ScriptedModel, calls
from toolcrib_agent import Agent
from toolcrib_tools import files, images
from toolcrib_tools.images import view_image
from unit.toolcrib.server.wire_client import META, call

PLACE = 0x8825
"""The EXIF tag of where a picture was taken; 0x0112 says which side is up."""


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    target = io.BytesIO()
    image.save(target, form, **options)
    return target.getvalue()


def quartered(size: tuple[int, int] = (40, 20), mode: str = "RGB") -> Image.Image:
    """An image whose left half is red, and whose right half is blue."""
    image = Image.new(mode, size, "blue")
    image.paste("red", (0, 0, size[0] // 2, size[1]))
    return image


def sent(result: ToolResult) -> Image.Image:
    """Return the image that a result holds, as whoever gets it reads it."""
    (block,) = [block for block in result.content if block["type"] == "image"]
    image = Image.open(io.BytesIO(base64.b64decode(block["data"])))
    assert block["mimeType"] == f"image/{str(image.format).lower()}"
    image.load()
    return image


async def error_of(ctx: Context, path: str, region: list[int] | None = None) -> ToolFailure:
    with pytest.raises(ToolFailure) as failure:
        await view_image(path, ctx, region)
    return failure.value


@pytest.mark.parametrize(("form", "name"), [("PNG", "a.png"), ("JPEG", "a.jpg"), ("WEBP", "photo")])
async def test_a_small_image_is_sent_byte_for_byte(form: str, name: str, folder: Path, ctx: Context) -> None:
    data = encoded(quartered(), form)
    (folder / name).write_bytes(data)

    result = await view_image(name, ctx)

    block = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": f"image/{form.lower()}"}
    assert result.content == ({"type": "text", "text": f"{name}: {form}, 40x20 pixels"}, block)


@pytest.mark.parametrize("form", ["GIF", "BMP", "TIFF", "ICO", "AVIF"])
async def test_a_format_that_not_every_model_takes_is_sent_as_png(form: str, folder: Path, ctx: Context) -> None:
    (folder / "image").write_bytes(encoded(quartered((32, 32)), form))

    result = await view_image("image", ctx)
    image = sent(result)

    assert (image.format, image.size, result.text) == ("PNG", (32, 32), f"image: {form}, 32x32 pixels")
    red, blue = (image.convert("RGB").getpixel(place) for place in ((3, 3), (28, 3)))
    assert isinstance(red, tuple)
    assert isinstance(blue, tuple)
    assert red[0] > 200 > 50 > red[2]
    assert blue[2] > 200 > 50 > blue[0]


@pytest.mark.slow
async def test_a_large_image_is_shown_smaller_and_a_region_of_it_as_it_is(folder: Path, ctx: Context) -> None:
    (folder / "wide.png").write_bytes(encoded(quartered((4000, 1000)), "PNG"))

    whole, part = await view_image("wide.png", ctx), await view_image("wide.png", ctx, [1990, 980, 30, 100])

    assert (sent(whole).size, whole.text) == ((1568, 392), "wide.png: PNG, 4000x1000 pixels, shown at 1568x392")
    assert (sent(part).size, part.text) == ((30, 20), "wide.png: PNG, 30x20 pixels")
    assert sent(part).getcolors() == [(10 * 20, (255, 0, 0)), (20 * 20, (0, 0, 255))]


@pytest.mark.long
@pytest.mark.slow
async def test_a_picture_that_stays_too_large_is_compressed(folder: Path, ctx: Context) -> None:
    for name, mode in (("noise.png", "RGB"), ("holes.png", "RGBA")):
        noise = random.Random(4).randbytes(1100 * 1100 * len(mode))
        (folder / name).write_bytes(encoded(Image.frombytes(mode, (1100, 1100), noise), "PNG", compress_level=1))

        result = await view_image(name, ctx)

        assert (sent(result).size, sent(result).format) == ((1100, 1100), "JPEG")
        assert len(result.content[1]["data"]) < 5_000_000


async def test_what_a_camera_notes_is_not_sent_and_up_is_up(folder: Path, ctx: Context) -> None:
    notes = Image.Exif()
    notes[0x0112] = 6
    notes[PLACE] = {1: "N", 2: (52.0, 31.0, 12.0)}
    (folder / "photo.jpg").write_bytes(encoded(quartered((60, 40)), "JPEG", exif=notes, quality=95))

    image = sent(await view_image("photo.jpg", ctx))

    assert (image.size, dict(image.getexif()), "exif" in image.info) == ((40, 60), {}, False)
    top = image.getpixel((20, 5))
    assert isinstance(top, tuple)
    assert top[0] > 200 > 60 > top[2]


async def test_of_a_moving_image_the_first_frame_is_shown(folder: Path, ctx: Context) -> None:
    first, second = (Image.new("RGB", (10, 10), colour) for colour in ("red", "blue"))
    (folder / "moving.gif").write_bytes(encoded(first, "GIF", save_all=True, append_images=[second]))

    result = await view_image("moving.gif", ctx)

    assert sent(result).convert("RGB").getcolors() == [(100, (255, 0, 0))]
    assert result.text.endswith("10x10 pixels, the first of several frames")


async def test_sixteen_bits_of_grey_are_shown_as_eight(folder: Path, ctx: Context) -> None:
    (folder / "scan.tiff").write_bytes(encoded(Image.new("I;16", (4, 4), 40_000), "TIFF"))

    assert sent(await view_image("scan.tiff", ctx)).getcolors() == [(16, (156, 156, 156))]


async def test_a_drawing_is_shown_as_its_source(folder: Path, ctx: Context) -> None:
    drawing = (
        '<?xml version="1.0"?>\n<!-- made by hand -->\n<svg xmlns="http://www.w3.org/2000/svg"><circle r="4"/></svg>'
    )
    (folder / "logo.svg").write_text(drawing)
    (folder / "huge.svg").write_text(f"<svg>{' ' * (1 << 20)}</svg>")

    result = await view_image("logo.svg", ctx)

    assert (len(result.content), drawing in result.text) == (1, True)
    assert (await error_of(ctx, "huge.svg")).code == "too_large"


@pytest.mark.parametrize("piece", [b"<!---->", b"<?xml?>", b" ", b"<!-- -->\n"])
async def test_a_file_that_only_looks_like_a_drawing_is_told_at_once(ctx: Context, folder: Path, piece: bytes) -> None:
    """With a pattern that tries every way to read them, forty comments take a day."""
    (folder / "x.svg").write_bytes(piece * 500 + b"<svgg>")

    assert (await error_of(ctx, "x.svg")).message == "it is no image that can be read"


async def test_an_icon_that_holds_a_bomb_is_refused(ctx: Context, folder: Path) -> None:
    inside = bomb(20_000, 20_000)
    head = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inside), 22)
    (folder / "x.ico").write_bytes(head + inside)

    assert (await error_of(ctx, "x.ico")).code == "too_large"


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says to have so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_000, 6_000), (10_000, 10_000), (60_000, 60_000)])
async def test_an_image_made_to_hurt_is_refused_before_it_is_decoded(
    size: tuple[int, int], folder: Path, ctx: Context
) -> None:
    (folder / "bomb.png").write_bytes(bomb(*size))

    failure = await error_of(ctx, "bomb.png")

    assert (failure.code, "50 million pixels" in failure.message) == ("too_large", True)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (encoded(quartered(), "PNG")[:-40], "the image is broken: "),
        (encoded(quartered((200, 200)), "JPEG")[:400], "the image is broken: "),
        (b"%PDF-1.7 ...", "it is a PDF"),
        (b"just words\n", "it is no image that can be read"),
        (b"", "it is no image that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "it is no image that can be read"),
    ],
)
async def test_what_is_no_whole_image_is_refused(data: bytes, told: str, folder: Path, ctx: Context) -> None:
    (folder / "file").write_bytes(data)

    failure = await error_of(ctx, "file")

    assert (failure.code, failure.message[: len(told)]) == ("tool_error", told)


async def test_a_region_outside_and_a_file_that_is_none_are_refused(folder: Path, ctx: Context) -> None:
    (folder / "a.png").write_bytes(encoded(quartered(), "PNG"))
    (folder / "sub").mkdir()

    outside = [await error_of(ctx, "a.png", region) for region in ([40, 0, 5, 5], [0, 0, 0, 5])]

    assert [failure.code for failure in outside] == ["invalid_arguments"] * 2
    assert "40x20 pixels" in outside[0].message
    assert "did you mean a.png?" in ((await error_of(ctx, "b.png")).hint or "")
    assert (await error_of(ctx, "sub")).message == "'sub' is a folder"
    assert (await error_of(ctx, "../a.png")).code == "denied"


async def test_without_the_library_the_extra_is_named(
    folder: Path, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.png").write_bytes(encoded(quartered(), "PNG"))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)

    failure = await error_of(ctx, "a.png")

    assert (failure.code, "install the extra `images`" in (failure.hint or "")) == ("unavailable", True)


# Through a crib


@asynccontextmanager
async def opened(folder: Path, **more: Any) -> AsyncGenerator[Toolcrib]:
    (folder / "a.png").write_bytes(encoded(quartered(), "PNG"))
    settings = bare().with_values(workspace=WorkspaceSpec(roots=(folder,)), **more)
    async with Toolcrib(settings, memory=True) as crib:
        crib.add(images, files)
        crib.session(workspace=folder)  # with it, the tools that need one are in the catalog
        yield crib


@pytest.mark.parametrize("profile", ["adaptive", "flat", "gateway", "introspection", "selection", "tiered"])
async def test_in_every_profile_the_image_stands_beside_the_text(profile: str, folder: Path) -> None:
    async with opened(folder) as crib:
        session = crib.session(profile=profile, mode="autonomous")
        if profile == "gateway":
            tool = crib.catalog.tools["view_image"]
            result = await session.call("tool_exec", {"op": session.op_of(tool), "args": {"path": "a.png"}})
        else:
            await session.call("load_tools", {"tool_name": "view_image"})
            await session.call("get_tool_schemas", {"names": ["viewImage", "view_image"]})
            session.begin(intent={"required_tools": ["view_image"]})
            result = await session.call("view_image", {"path": "a.png"})

    assert result.error is None, result.text
    assert sent(result).size == (40, 20)
    assert "PNG, 40x20 pixels" in result.text
    assert base64.b64encode(b"\x89PNG").decode()[:5] not in result.text


async def test_a_client_of_the_gateway_gets_it_as_an_image(folder: Path) -> None:
    out, answers = anyio.create_memory_object_stream[Any](10)

    async def take(message: bytes) -> None:
        await out.send(json.loads(message))

    async with (
        opened(folder) as crib,
        Service(CribBackend(crib), profile="flat", mode="autonomous") as service,
        out,
        answers,
        Connection(service, take) as connection,
    ):
        await connection.feed(json.dumps(call("view_image", {"path": "a.png"}, _meta=META)).encode())
        answer = await answers.receive()

    text, image = answer["result"]["content"]
    assert (text["type"], image["type"], image["mimeType"]) == ("text", "image", "image/png")
    assert base64.b64decode(image["data"]) == (folder / "a.png").read_bytes()


async def test_the_model_of_an_agent_gets_it_as_an_image(folder: Path) -> None:
    async with opened(folder) as crib:
        model = ScriptedModel(calls("view_image", path="a.png"), "Red and blue.")
        await Agent(model, crib.session(profile="flat", mode="autonomous")).run("What is in a.png?")

    (part,) = [
        part for message in model.seen[-1].messages for part in message.parts if isinstance(part, ToolReturnPart)
    ]
    assert part.files == [BinaryContent(data=(folder / "a.png").read_bytes(), media_type="image/png")]


async def test_an_image_is_paid_for_by_the_budget_of_tokens(folder: Path) -> None:
    async with opened(folder, budgets=Budgets(session=Budget(tokens=10_000))) as crib:
        session = crib.session(profile="flat", mode="autonomous")
        await session.call("view_image", {"path": "a.png"})
        spent = session.state.usage.tokens["view_image"]

    assert 1500 < spent < 1550


async def test_what_waits_for_review_is_what_is_looked_at(folder: Path) -> None:
    (folder / "new.svg").write_text("<svg>old</svg>")
    async with opened(folder) as crib:
        session = crib.session(profile="flat", mode="review")
        await session.call("write_file", {"path": "new.svg", "content": "<svg>waiting</svg>"})
        result = await session.call("view_image", {"path": "new.svg"})

    assert ("waiting" in result.text, (folder / "new.svg").read_text()) == (True, "<svg>old</svg>")
