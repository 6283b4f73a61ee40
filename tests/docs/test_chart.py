"""The chart of the README is what `toolcrib compare` draws."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from docs.documents import README, newcomer
from rig import ROOT

CHART = ROOT / "docs" / "images" / "compare.svg"
CATALOG = ROOT / "tests" / "seeds" / "tiered.yaml"


def test_the_chart_of_the_readme_is_drawn_from_the_catalog_that_it_names(tmp_path: Path) -> None:
    drawn = tmp_path / "compare.svg"
    program = Path(sys.executable).with_name("toolcrib")
    environ = {**newcomer(os.environ, tmp_path), "PYTHONPATH": str(ROOT / "tests")}

    done = subprocess.run(
        [program, "compare", "--catalog", CATALOG, "--svg", drawn],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (done.returncode, drawn.read_text("utf-8")) == (0, CHART.read_text("utf-8"))
    (said,) = re.findall(r"For the (\d+) tools of seed 000", README.read_text("utf-8"))
    assert int(said) == len(yaml.safe_load(CATALOG.read_text("utf-8"))["capabilities"])
