"""What scripts write into the documents is up to date: pictures and the pages of clients."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import yaml

from docs.documents import CLIENTS, DISCLOSURE, README, newcomer
from rig import ROOT
from toolcrib.config.clients.permissions.entries import entry_permissions
from toolcrib.config.clients.table import CLIENTS as KNOWN

IMAGES = ROOT / "docs" / "images"
CATALOG = ROOT / "tests" / "seeds" / "tiered.yaml"
PROGRAM = Path(sys.executable).with_name("toolcrib")


def script(path: Path) -> Any:
    """Return a script of the documents as a module."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_the_first_minute_is_what_the_commands_print_now() -> None:
    minute = script(IMAGES / "first_minute.py")
    recording = minute.record(PROGRAM)
    picture = minute.PICTURE.read_text("utf-8")

    assert minute.comparable(minute.described(picture)) == minute.comparable(recording.transcript), (
        "run `python docs/images/first_minute.py`"
    )


def test_the_tokens_beside_the_picture_are_those_in_it() -> None:
    minute = script(IMAGES / "first_minute.py")
    (alternative,) = re.findall(r"!\[(.*?)\]\(docs/images/first_minute.svg\)", README.read_text("utf-8"))

    before, after = re.findall(r"[\d,]*\d(?= tokens| become)|(?<=become )[\d,]+", alternative)
    assert f"{before}tokensbefore,{after}after" in minute.comparable(
        minute.described(minute.PICTURE.read_text("utf-8"))
    )


def test_the_chart_is_drawn_from_the_catalog_that_its_page_names(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "compare", "--catalog", CATALOG, "--json"],
        cwd=tmp_path,
        env=newcomer(os.environ, tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )

    drawn = script(IMAGES / "compare.py").chart(json.loads(done.stdout)["profiles"])
    assert drawn == (IMAGES / "compare.svg").read_text("utf-8")
    (said,) = re.findall(r"For the (\d+) tools of seed 000", DISCLOSURE.read_text("utf-8"))
    assert int(said) == len(yaml.safe_load(CATALOG.read_text("utf-8"))["capabilities"])


def test_every_client_has_the_page_that_the_client_table_generates() -> None:
    generator = script(CLIENTS / "pages.py")
    index = (CLIENTS / "index.md").read_text("utf-8")
    stale = [name for name, text in generator.pages().items() if (CLIENTS / name).read_text("utf-8") != text]

    assert (stale, generator.index(index)) == ([], index), "run `python docs/clients/pages.py`"
    assert {path.stem for path in CLIENTS.glob("*.md")} == {*KNOWN, "index", "others"}


def test_the_keys_that_pages_say_are_carried_over_are_carried_over() -> None:
    values: dict[str, Any] = {
        "alwaysAllow": ["get"],
        "autoApprove": ["get"],
        "autoApproveAll": True,
        "default_tools_approval_mode": "approve",
        "tools.TOOL.approval_mode": {"get": {"approval_mode": "approve"}},
        "trust": True,
    }
    entries = {key: {key.partition(".")[0]: value} for key, value in values.items()}

    assert sorted(script(CLIENTS / "pages.py").ENTRY_KEYS) == sorted(values)
    assert [key for key, entry in entries.items() if not entry_permissions("server", entry)] == []
