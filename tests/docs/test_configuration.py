"""The page of configuration keys has every key that there is, and the configurations of all pages can be read."""

from __future__ import annotations

import base64
import re
import runpy
from pathlib import Path

import pytest
import yaml

from docs.documents import Block, blocks
from rig import ROOT
from toolcrib.config import load
from toolcrib.config.keys import KEYS

PAGE = ROOT / "docs" / "reference" / "configuration.md"
SHOWN = [block for block in blocks("yaml") if next(iter(yaml.safe_load(block.text))) in {*KEYS, "servers"}]
VALUE = base64.b64encode(bytes(32)).decode()
"""Of each variable: it may be a token, a secret of a sender, or the key of a store."""


def test_every_key_has_its_section_and_no_section_is_of_a_key_that_is_none() -> None:
    sections = re.findall(r"^## (\S+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)

    assert sorted(sections) == sorted((*KEYS, "servers"))


def test_the_table_of_all_keys_is_the_one_that_the_models_generate() -> None:
    page = PAGE.read_text("utf-8")

    script = runpy.run_path(str(PAGE.with_suffix(".py")))
    assert page == script["rewritten"](page), "run `python docs/reference/configuration.py`"


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_every_example_is_taken_as_it_stands(block: Block, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    folder = tmp_path / "project"
    folder.mkdir()
    file = folder / "toolcrib.yaml"
    file.write_text(block.text, "utf-8")

    variables = re.findall(r"\$\{(\w+)", block.text)
    settings = load([file], environ={"HOME": str(tmp_path), **dict.fromkeys(variables, VALUE)}, cwd=folder)

    assert (settings.files, settings.problems, settings.policy.broken_rules) == ((file,), (), ())
