"""`make site`: the documents as a site, with the API reference from the docstrings."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from docs.documents import DOCUMENTS
from rig import ROOT

PUBLIC = (
    "toolcrib",
    "toolcrib.agents",
    "toolcrib.plugin",
    "toolcrib.testing",
    "toolcrib.testing.models",
    "toolcrib_agent",
    "toolcrib.integrations.anthropic",
    "toolcrib.integrations.langchain",
    "toolcrib.integrations.openai",
    "toolcrib.integrations.openai_agents",
    "toolcrib.integrations.pydantic_ai",
)


@pytest.mark.process
def test_the_site_builds_without_a_warning_and_its_reference_has_every_public_name() -> None:
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr

    page = (ROOT / ".cache" / "site" / "reference" / "api.html").read_text("utf-8")
    anchors = set(re.findall(r' id="([^"]+)"', page))
    names = {f"{module}.{name}" for module in PUBLIC for name in import_module(module).__all__}
    assert names - anchors == set()


def test_the_navigation_has_every_page_and_the_index_links_to_all_but_those_of_single_clients() -> None:
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in DOCUMENTS if page.is_relative_to(docs)}
    navigation = set(re.findall(r'"([^"]+\.md)"', (ROOT / "zensical.toml").read_text("utf-8")))
    linked = set(re.findall(r"]\(([^)#]+\.md)", (docs / "index.md").read_text("utf-8")))

    assert navigation == pages
    assert {page for page in pages if not page.startswith("clients/")} - linked == {"index.md"}
