"""`make site`: the documents as a site, with the API reference from the docstrings."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from rig import ROOT

PUBLIC = (
    "toolcrib",
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
