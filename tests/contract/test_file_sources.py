"""What sources promise that follow files: changes are published, one bad entry hides no good one, closing ends it all.

A kind is a function that opens a source on a folder which has `good` and a second entry that is broken, and a
function that makes a further entry `more` there.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from rig import PATIENCE, eventually
from toolcrib.core.context import Context
from toolcrib.sources.skills.skill_scan import SkillRoot
from toolcrib.sources.skills.source import SkillsOptions, SkillsSource
from toolcrib.sources.source import Listing, Source
from toolcrib.sources.yaml.document import YamlOptions
from toolcrib.sources.yaml.source import YamlSource

pytestmark = pytest.mark.process


_GOOD = "- name: {}\n  implementation: {{command: [echo, hello]}}\n"


def _catalog(folder: Path) -> Source:
    (folder / "kind.yaml").write_text(_GOOD.format("good") + '- name: "broken\n', encoding="utf-8")
    return YamlSource("kind", folder / "kind.yaml", YamlOptions(poll_seconds=0.05))


def _more_catalog(folder: Path) -> None:
    path = folder / "kind.yaml"
    path.write_text(_GOOD.format("more") + path.read_text(encoding="utf-8"), encoding="utf-8")


def _skills(folder: Path) -> Source:
    for name, text in (("good", "---\nname: good\ndescription: d\n---\nhello\n"), ("broken", "nothing")):
        (folder / name).mkdir()
        (folder / name / "SKILL.md").write_text(text, encoding="utf-8")
    return SkillsSource("kind", (SkillRoot.named(folder),), SkillsOptions(poll_seconds=0.05))


def _more_skills(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "SKILL.md").write_text("---\nname: more\ndescription: d\n---\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Kind:
    make: Callable[[Path], Source]
    more: Callable[[Path], None]


KINDS = {
    "a YAML catalog": Kind(make=_catalog, more=_more_catalog),
    "skills": Kind(make=_skills, more=_more_skills),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_source_lists_calls_follows_and_closes(kind: str, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    source, listings = KINDS[kind].make(tmp_path), list[Listing]()
    with anyio.fail_after(PATIENCE):
        await source.open(listings.append)
        await source.ready()

        [good] = listings[-1].tools
        assert (good.name, good.local_name, good.source) == ("good", "good", "kind")
        assert [problem.code for problem in listings[-1].problems] == ["bad_tool"]
        result = await source.call(good, {}, Context(call_id="c", session_key="s", principal="p"))
        assert result.text.strip() == "hello"

        KINDS[kind].more(tmp_path)
        await eventually(lambda: {tool.name for tool in listings[-1].tools} == {"good", "more"})
        assert source.state.tools == 2

        await source.close()
        await source.close()
    assert source.state.state == "closed"
    assert {task.get_name() for task in asyncio.all_tasks() - before} == set()
