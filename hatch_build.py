"""The long description of the package: the README, with links that work away from the repository.

A package page resolves no relative link. With a `Source` among `[project.urls]` links and pictures become absolute;
without one a link becomes its text, and a picture is left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)]+)\)")


class PackagePage(MetadataHookInterface):
    """Hatch calls it when it builds."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": package_page(text, source)}


def package_page(readme: str, source: str = "") -> str:
    """Return the README for a page outside of the repository at `source`."""

    def link(found: re.Match[str]) -> str:
        mark, text, path = found["mark"], found["text"], found["path"]
        if source:
            return f"{mark}[{text}]({source.rstrip('/')}/{'raw' if mark else 'blob'}/main/{path})"
        return "" if mark else text

    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(link, readme))
