"""The YAML of docs/how-to/sources.md is taken as it stands there, and what it describes runs."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from docs.documents import blocks
from rig.wait import eventually
from toolcrib import Toolcrib
from toolcrib.config import load

SHOP = {
    "openapi": "3.0.3",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders": {
            "get": {"operationId": "listOrders", "tags": ["orders"], "responses": {"200": {"description": "."}}}
        },
        "/users": {"get": {"operationId": "listUsers", "tags": ["users"], "responses": {"200": {"description": "."}}}},
    },
}


async def test_the_sources_of_the_document_are_mounted_without_a_problem_and_run(tmp_path: Path) -> None:
    said = {
        key: block.text
        for block in blocks("yaml")
        if block.file.name == "sources.md"
        for key in yaml.safe_load(block.text)
    }
    assert set(said) == {"capabilities", "catalogs", "skills", "sources"}
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "more.yaml").write_text("- name: more\n  implementation: {command: [echo, more]}\n")
    (tmp_path / "capabilities.yaml").write_text(said["capabilities"])
    (tmp_path / "my_tools.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    (tmp_path / "shop.json").write_text(json.dumps(SHOP))
    file = tmp_path / "config.yaml"
    file.write_text(said["catalogs"] + said["skills"] + said["sources"])

    async with Toolcrib(
        load([file], {"accept": True, "builtins": False}, {"HOME": str(tmp_path), "SHOP_TOKEN": "t"}, cwd=tmp_path),
        memory=True,
    ) as crib:
        await eventually(lambda: crib.catalog.find("shop__listOrders"))
        session = crib.session(profile="flat")
        added = await session.call("add_numbers", {"a": 1, "b": 2})
        listed = await session.call("list_folder", {"path": str(tmp_path / "shared")})

        assert crib.problems == ()
        assert sorted(crib.catalog.tools) == ["add_numbers", "get_item", "list_folder", "more", "shop__listOrders"]
        assert (added.text, listed.text) == ("3", "more.yaml\n")
