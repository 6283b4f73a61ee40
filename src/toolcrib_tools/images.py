"""Images of the workspace, for models with vision."""

from __future__ import annotations

from typing import Annotated, Final

import anyio
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, ToolResult

from ._extras import lacks_library
from ._pictures import LONGEST_FILE, drawing_of, read_picture
from ._workspace.place import file_at, workspace_of, workspace_tool

__all__ = ["view_image"]

_DRAWING: Final = 1 << 20
"""Bytes of an SVG drawing; what is too long for the session is cut like any text."""

_Region = Annotated[list[Annotated[int, Field(ge=0, le=1_000_000)]], Field(min_length=4, max_length=4)]


@workspace_tool(
    lacks=lacks_library("PIL", "images"),
    op="x.image.view",
    category="files",
    kind="read",
    tags=["image", "picture", "photo", "screenshot", "look", "see", "png", "jpeg", "svg"],
    examples=[{"path": "docs/design.png"}, {"path": "scan.jpg", "region": [0, 0, 800, 600]}],
    policy={
        "do": ["Look at a region where a detail is too small to be read: it is shown larger."],
        "edge_cases": [
            "A large image is shown smaller, a moving one by its first frame, an SVG drawing as its source.",
        ],
    },
)
async def view_image(path: str, ctx: Context, region: _Region | None = None) -> ToolResult:
    """Look at an image file: PNG, JPEG, GIF, WebP, BMP, TIFF, AVIF, ICO or SVG.

    Args:
        path: The file.
        region: Only this part of it: left, top, width and height in pixels of the image.
    """
    workspace = workspace_of(ctx)
    entry = await file_at(workspace, path)
    data = await workspace.read(path, limit=LONGEST_FILE)
    source = drawing_of(data)
    if source is not None:
        if len(data) > _DRAWING:
            raise ToolFailure("too_large", f"the drawing has {len(data)} bytes", hint="read_file shows pages of it")
        return ToolResult.of_text(f"{entry.path}: an SVG drawing, this is its source:\n{source}")
    picture = await anyio.to_thread.run_sync(read_picture, data, region or (), abandon_on_cancel=True)
    return ToolResult(content=({"type": "text", "text": f"{entry.path}: {picture.about}"}, picture.block))
