"""What is known of a tool's Python before any of it runs."""

from __future__ import annotations

from pathlib import Path

from peers.catalog import opened

MANY = """
from os import path

def told():
    def inner():
        yield 1
    return "told"

def spoken():
    yield "spoken"

class Speaker:
    class Inner:
        def execute(self): return "inner"

    def execute(self):
        yield "class"

def twice(): return "this one is gone when the module has run"
def twice(): yield "this one is there"
"""


async def test_of_many_tools_in_one_file_each_is_what_its_own_name_says(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(MANY, encoding="utf-8")
    named = {"a": "function: told", "b": "function: spoken", "c": "class: Speaker", "d": "class: Speaker.Inner"}
    named |= {"e": "function: path", "f": "function: twice", "g": "function: nowhere", "h": "class: Nothing"}
    entries = [f"- name: {name}\n  implementation: {{module: many, {how}}}\n" for name, how in named.items()]

    async with opened(tmp_path, "".join(entries)) as catalog:
        streams = {name: catalog.tool(name).execution.streaming for name in "abcdef"}
        problems = [problem.message.partition(" has ")[2] for problem in catalog.listing.problems]

    assert streams == {"a": False, "b": True, "c": True, "d": False, "e": False, "f": True}
    assert problems == ["no function nowhere", "no class Nothing"]
