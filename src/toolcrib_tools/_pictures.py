"""Images for a model: decoded, scaled down and checked, because one broken image ends a conversation.

A model's API refuses a request with an image that it cannot read, and every later one of that conversation too: what is
handed on was decoded whole. Pillow does it, with the formats below and no others; none of them runs a program.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from toolcrib.plugin import ToolFailure

from ._extras import optional

LONGEST_FILE: Final = 32 << 20
"""Bytes of a file that is read."""
_MOST_PIXELS: Final = 50_000_000
"""Pixels of a decoded image: those of phone cameras, 200 MB of memory. A decompression bomb announces more."""
_PRIVATE: Final = frozenset({"exif", "photoshop", "xmp"})
"""Metadata that a camera adds, such as the location: it is not sent."""
_EDGE: Final = 1568
"""Pixels of the longer side; larger ones are made that small by the API itself (Anthropic, "Vision", image size)."""
_LARGEST: Final = 3_500_000
"""Bytes of a picture that is sent: 4.7 MB of base64, where the strictest of the APIs takes 5 MB an image."""
_QUALITIES: Final = (85, 60, 35)
"""JPEG qualities, tried in order until the picture is small enough."""
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "ICO")
_AS_IT_IS: Final[Mapping[str, str]] = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Formats that every model takes. A GIF may move, and not every model takes it then: it is sent as PNG."""
_SVG: Final = re.compile(rb"(?:\s++|<\?xml[^>]*+>|(?><!--.*?-->)|<!DOCTYPE[^>]*+>)*+<svg[\s>]", re.DOTALL)
"""Nothing is tried twice: a file may be written so that every comment doubles the ways to read it."""
_INSIDE: Final = re.compile(rb"\x89PNG\r\n\x1a\n.{8}(.{4})(.{4})", re.DOTALL)
"""An image in an icon, with its width and height: the icon's own say nothing of it, and it is decoded at once."""
_ICON: Final = b"\0\0\1\0"
_KNOWN: Final = ((b"%PDF-", "a PDF"), (b"PK\x03\x04", "a ZIP archive or an office document"), (b"\x1f\x8b", "gzipped"))


class Picture(Struct, frozen=True, kw_only=True):
    """An image as it is sent to a model, and a description of it."""

    data: bytes
    media_type: str
    size: tuple[int, int]
    """Width and height as it is shown, in pixels."""
    whole: tuple[int, int]
    """Width and height of the image itself, or of the requested part."""
    format: str
    """The image's own, such as `PNG`; or what else it is."""
    moves: bool = False
    """It has several frames or pages; the first one is shown."""

    @property
    def about(self) -> str:
        """The picture in words."""
        width, height = self.whole
        shown = "" if self.size == self.whole else f", shown at {self.size[0]}x{self.size[1]}"
        return f"{self.format}, {width}x{height} pixels{shown}{', the first of several frames' if self.moves else ''}"

    @property
    def block(self) -> Mapping[str, Any]:
        """The picture as a content block of MCP."""
        return {"type": "image", "data": base64.b64encode(self.data).decode(), "mimeType": self.media_type}


def drawing_of(data: bytes) -> str | None:
    """Return the source of an SVG drawing; None for everything else."""
    if not _SVG.match(data[:4096]):
        return None
    return data.decode("utf-8", "replace")


def read_picture(data: bytes, region: Sequence[int] = ()) -> Picture:
    """Return the image that a file holds, or a `region` of it: left, top, width and height in its pixels.

    For a thread: it takes a second for a large one. Raises `ToolFailure`: `unavailable` without the library,
    `too_large`, `invalid_arguments` for a region outside, `tool_error` for what cannot be shown.
    """
    module, operations = optional("PIL.Image", "images"), optional("PIL.ImageOps", "images")
    for inside in _INSIDE.finditer(data) if data.startswith(_ICON) else ():
        width, height = (int.from_bytes(side) for side in inside.groups())
        if width * height > _MOST_PIXELS:
            raise _too_many(f"{width}x{height}")
    try:
        image = module.open(io.BytesIO(data), formats=_FORMATS)
    except (module.DecompressionBombError, module.DecompressionBombWarning):
        raise _too_many("far more") from None
    except Exception as error:  # noqa: BLE001 - decoders raise any exception on a broken file
        raise _unreadable(data, error) from None
    with image:
        if image.width * image.height > _MOST_PIXELS:
            raise _too_many(f"{image.width}x{image.height}")
        form, moves = str(image.format), bool(getattr(image, "is_animated", False))
        tells_more = not image.info.keys().isdisjoint(_PRIVATE)
        try:
            image.load()
            upright = operations.exif_transpose(image)
        except Exception as error:  # noqa: BLE001 - as above
            raise _unreadable(data, error) from None
    if region:
        upright = _cut(upright, region)
    elif form in _AS_IT_IS and not moves and not tells_more and max(upright.size) <= _EDGE and len(data) <= _LARGEST:
        size = upright.size
        return Picture(data=data, media_type=_AS_IT_IS[form], size=size, whole=size, format=form)
    return to_picture(upright, form, moves=moves)


def to_picture(image: Any, form: str, *, moves: bool = False) -> Picture:
    """Return an image of Pillow as it is sent: in colours, no larger than a model sees, without what a camera noted."""
    whole = image.size
    if image.mode.startswith("I;16"):
        image = image.point(_high_byte).convert("L")
    has_holes = image.has_transparency_data
    image = image.convert("RGBA" if has_holes else "RGB")
    image.thumbnail((_EDGE, _EDGE))
    is_photo = form == "JPEG" and not has_holes
    data, media_type = (b"", "") if is_photo else (png_of(image), "image/png")
    for quality in _QUALITIES:
        if 0 < len(data) <= _LARGEST:
            break
        if image.mode == "RGBA":
            image = _on_white(image)
        data, media_type = _saved(image, "JPEG", quality=quality), "image/jpeg"
    return Picture(data=data, media_type=media_type, size=image.size, whole=whole, format=form, moves=moves)


def png_of(image: Any) -> bytes:
    """Return an image of Pillow as it is, in PNG."""
    return _saved(image, "PNG")


def _saved(image: Any, form: str, **options: Any) -> bytes:
    target = io.BytesIO()
    image.save(target, form, **options)
    return target.getvalue()


def _high_byte(value: Any) -> Any:
    return value / 256


def _on_white(image: Any) -> Any:
    sheet = optional("PIL.Image", "images").new("RGB", image.size, "white")
    sheet.paste(image, mask=image.getchannel("A"))
    return sheet


def _cut(image: Any, region: Sequence[int]) -> Any:
    left, top, width, height = region
    if left >= image.width or top >= image.height or not width or not height:
        raise ToolFailure(
            "invalid_arguments",
            f"region: {list(region)} holds nothing of the image, which has {image.width}x{image.height} pixels",
            hint="give left, top, width and height in pixels of the image",
        )
    return image.crop((left, top, min(left + width, image.width), min(top + height, image.height)))


def _too_many(size: str) -> ToolFailure:
    most = f"{_MOST_PIXELS // 1_000_000} million pixels"
    hint = "make a smaller copy of it: a program such as ImageMagick can"
    return ToolFailure("too_large", f"the image has {size} pixels; what can be read has up to {most}", hint=hint)


def _unreadable(data: bytes, error: Exception) -> ToolFailure:
    """Return the error for a file that cannot be shown, with its kind if that is known."""
    known = ", ".join(_FORMATS)
    if type(error).__name__ != "UnidentifiedImageError":
        return ToolFailure("tool_error", f"the image is broken: {str(error) or type(error).__name__}")
    what = next((name for magic, name in _KNOWN if data.startswith(magic)), "no image that can be read")
    return ToolFailure("tool_error", f"it is {what}", hint=f"images are {known} or SVG; read_file reads text")
