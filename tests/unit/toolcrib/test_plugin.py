"""Guests arrive by entry point; one that cannot be loaded is a problem and hides nothing."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.plugin import load_entry_points
from toolcrib.sources.python import PythonSource

GROUP = "toolcrib.tests"
"""A group of our own, so that whatever is installed beside us does not matter."""


def install(site: Path, name: str, target: str, **modules: str) -> None:
    """Put a distribution there, as pip would: modules, and a dist-info with one entry point."""
    for module, text in modules.items():
        path = site / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    info = site / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name}-tools = {target}\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder that Python finds packages in, as it does in site-packages."""
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    sys.path.remove(str(tmp_path))


GOOD = "from toolcrib.plugin import tool\n@tool(kind='read')\ndef {name}() -> str:\n    return '{name}'\n"


def test_a_module_and_a_function_arrive_with_their_origin(site: Path) -> None:
    install(site, "alpha", "guest_alpha", guest_alpha=GOOD.format(name="one"))
    install(site, "beta", "guest_beta:two", guest_beta=GOOD.format(name="two"))

    guests, problems = load_entry_points(GROUP)

    assert [guest.origin for guest in guests] == ["alpha 1.2 (alpha-tools)", "beta 1.2 (beta-tools)"]
    assert problems == ()
    assert PythonSource().add(*[guest.thing for guest in guests]) == ("one", "two")


def test_a_package_stands_for_its_public_modules_and_a_broken_one_hides_nothing(site: Path) -> None:
    files = {
        "guest_pack.__init__": "",
        "guest_pack.good": GOOD.format(name="good"),
        "guest_pack.bad": "raise SystemExit('no licence')",
        "guest_pack._private": "raise RuntimeError('never imported')",
    }
    install(site, "pack", "guest_pack", **files)

    guests, problems = load_entry_points(GROUP)

    assert [guest.origin for guest in guests] == ["pack 1.2 (pack-tools), good"]
    (problem,) = problems
    where = f"{site}/guest_pack/bad.py:1"
    assert problem.message == f"pack 1.2 (pack-tools), bad cannot be loaded: SystemExit: no licence ({where})"


def test_a_package_that_names_its_modules_with_tools_stands_for_these_alone(site: Path) -> None:
    files = {
        "guest_named.__init__": "TOOL_MODULES = ['part.inner']",
        "guest_named.part.__init__": "",
        "guest_named.part.inner": GOOD.format(name="inner"),
        "guest_named.other": "raise RuntimeError('never imported')",
    }
    install(site, "named", "guest_named", **files)

    guests, problems = load_entry_points(GROUP)

    assert [guest.origin for guest in guests] == ["named 1.2 (named-tools), part.inner"]
    assert problems == ()


def test_a_guest_that_cannot_be_loaded_is_a_problem_and_the_others_arrive(site: Path) -> None:
    install(site, "broken", "guest_missing")
    install(site, "gone", "guest_gone:nothing", guest_gone="")
    install(site, "well", "guest_well", guest_well=GOOD.format(name="well"))

    guests, problems = load_entry_points(GROUP)

    assert [guest.origin for guest in guests] == ["well 1.2 (well-tools)"]
    assert [(problem.source, problem.code, problem.message) for problem in problems] == [
        (
            "plugins",
            "unavailable",
            "broken 1.2 (broken-tools) cannot be loaded: ModuleNotFoundError: No module named 'guest_missing'",
        ),
        (
            "plugins",
            "unavailable",
            "gone 1.2 (gone-tools) cannot be loaded: AttributeError: module 'guest_gone' has no attribute 'nothing'",
        ),
    ]


def test_a_package_that_is_installed_while_we_run_is_found(site: Path) -> None:
    install(site, "alpha", "guest_early", guest_early=GOOD.format(name="one"))
    before, _ = load_entry_points(GROUP)
    later = site.stat().st_mtime_ns + 1_000_000_000  # a clock of files may stand still for milliseconds
    install(site, "beta", "guest_late", guest_late=GOOD.format(name="two"))
    os.utime(site, ns=(later, later))
    importlib.invalidate_caches()

    after, _ = load_entry_points(GROUP)

    assert [guest.origin for guest in before] == ["alpha 1.2 (alpha-tools)"]
    assert [guest.origin for guest in after] == ["alpha 1.2 (alpha-tools)", "beta 1.2 (beta-tools)"]


STATIC = """
import os
from toolcrib.plugin import tool
@tool(kind='read', description=os.environ.get('SAID', 'first'))
async def greet(name: str) -> str:
    return f'hello {name}'
"""

START = """
import json, sys
import anyio
from toolcrib.core.context import Context
from toolcrib.errors import ToolFailure
from toolcrib.plugin import load_entry_points
from toolcrib.sources.python import PythonSource

async def main():
    source, listed = PythonSource(), []
    guests, again = load_entry_points(sys.argv[1])[0], load_entry_points(sys.argv[1])[0]
    assert all(guest.thing is same.thing for guest, same in zip(guests, again, strict=True)), 'read twice'
    for guest in guests:
        source.offer(guest.thing, guest.origin)
    if sys.argv[2:]:
        await source.load()
    imported = [name for name in ('static_pack.greeting', 'other_pack.greeting') if name in sys.modules]
    await source.open(lambda listing: listed.append({tool.name: tool for tool in listing.tools}))
    try:
        context = Context(call_id='1', session_key='', principal='')
        result = (await source.call(listed[-1]['greet'], {'name': 'you'}, context)).text
    except ToolFailure as failure:
        result = failure.code
    print(json.dumps([imported, listed[0]['greet'].description, result, listed[-1]['greet'].description]))

anyio.run(main)
"""


@pytest.mark.process
@pytest.mark.long
def test_the_tools_of_a_static_package_are_listed_without_an_import_while_its_code_is_the_same(tmp_path: Path) -> None:
    other = GOOD.format(name="other")
    install(tmp_path, "kept", "static_pack", **{"static_pack.__init__": "TOOLS_ARE_STATIC = True"})
    install(tmp_path, "other", "other_pack", **{"other_pack.__init__": "", "other_pack.greeting": other})
    greeting = tmp_path / "static_pack" / "greeting.py"
    greeting.write_text(STATIC, encoding="utf-8")

    def start(*words: str, **variables: str) -> list[object]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), **variables}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, "-c", START, GROUP, *words], env=environment, capture_output=True, check=True, text=True
        )
        return json.loads(done.stdout)

    every = ["static_pack.greeting", "other_pack.greeting"]
    assert start() == [every, "first", "hello you", "first"]
    assert start() == [["other_pack.greeting"], "first", "hello you", "first"]
    assert start("load") == [every, "first", "hello you", "first"]
    # Against its promise it depends on the environment: what was listed is not what would run.
    assert start(SAID="third") == [["other_pack.greeting"], "first", "definition_changed", "third"]
    greeting.write_text(STATIC.replace("first", "second"), encoding="utf-8")
    assert start() == [every, "second", "hello you", "second"]
    (tmp_path / "static_pack" / "new.py").write_text(GOOD.format(name="new"), encoding="utf-8")
    assert start()[0] == every
