"""Skills are found, judged and read by the Agent Skills format; a project's only once its user has agreed to them."""

import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import PATIENCE, eventually
from toolcrib.catalog.skill_groups import SkillGroups
from toolcrib.core.context import Context
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Annotations, Capability, Tool, VersionInfo
from toolcrib.errors import ToolFailure
from toolcrib.sources.skill_folder import SCHEMA
from toolcrib.sources.skills.skill_scan import SkillRoot, project_roots, user_roots
from toolcrib.sources.skills.source import SkillsOptions, SkillsSource
from toolcrib.sources.source import Listing


def skill(root: Path, name: str, *, head: str = "", body: str = "Do it.\n", **files: str) -> Path:
    """Write a skill; `files` are named with `__` for `/` and `_dot_` for `.`."""
    folder = root / name
    folder.mkdir(parents=True)
    leaf = name.rpartition("/")[2]
    text = head or f"---\nname: {leaf}\ndescription: About {leaf}.\n---\n{body}"
    (folder / "SKILL.md").write_bytes(text.encode(errors="surrogateescape"))
    for path, text in files.items():
        file = folder / path.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


class Opened:
    def __init__(self, source: SkillsSource) -> None:
        self.source = source
        self.listings: list[Listing] = []

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.listings[-1].tools]

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(problem.code, problem.tool) for problem in self.listings[-1].problems]

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        tool = next(tool for tool in self.listings[-1].tools if tool.name == name)
        return await self.source.call(tool, arguments, Context(call_id="c", session_key="s", principal="p"))


@asynccontextmanager
async def opened(*roots: SkillRoot, **options: Any) -> AsyncGenerator[Opened]:
    source = SkillsSource("skills", roots, SkillsOptions(poll_seconds=0.05, **options))
    one = Opened(source)
    await source.open(one.listings.append)
    try:
        with anyio.fail_after(PATIENCE):
            await source.ready()
        yield one
    finally:
        await source.close()


FULL = """\
---
name: excel-analyzer
description: Reads tables and says what is in them.
license: MIT
compatibility: needs python
allowed-tools: Bash(python:*) Read
metadata:
  priority: high
  version: "2.1"
  author: ann
---
# Use

See references/deep.md.
"""


async def test_a_skill_becomes_a_tool_with_what_its_frontmatter_says(tmp_path: Path) -> None:
    skill(tmp_path, "office/excel-analyzer", head=FULL)
    groups = SkillGroups.of({"data": {"skills": ["excel-analyzer"], "capabilities": ["tables"]}})
    async with opened(SkillRoot.named(tmp_path), groups=groups) as skills:
        assert skills.listings[-1].tools == (
            Tool(
                name="excel-analyzer",
                local_name="excel-analyzer",
                source="skills",
                origin="skill",
                description="Reads tables and says what is in them.",
                input_schema=SCHEMA,
                annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
                category="data",
                tags=("tables",),
                traits=("file_reader",),
                version_info=VersionInfo(version="2.1"),
                capability=Capability(
                    type="SKILL",
                    provider="named",
                    priority=80,
                    skill_path="office/excel-analyzer/SKILL.md",
                    metadata={
                        "compression_hint": "skip",
                        "license": "MIT",
                        "compatibility": "needs python",
                        "allowed-tools": "Bash(python:*) Read",
                    },
                ),
            ),
        )
        assert skills.problems == []


async def test_a_call_returns_the_text_and_the_list_of_files_and_each_file_on_demand(tmp_path: Path) -> None:
    skill(tmp_path, "greet", body="Say hello.\n", references__deep_dot_md="deep", scripts__run_dot_py="print(1)")
    async with opened(SkillRoot.named(tmp_path)) as skills:
        result = await skills.call("greet")

        assert result.structured_content == {
            "name": "greet",
            "description": "About greet.",
            "body": "Say hello.",
            "files": ["references/deep.md", "scripts/run.py"],
        }
        assert result.text == (
            'Say hello.\n\nFiles of this skill, read with {"reference": "…"}:\n- references/deep.md\n- scripts/run.py'
        )
        assert (await skills.call("greet", reference="references/deep.md")).text == "deep"
        assert (await skills.call("greet", reference="./scripts//run.py")).text == "print(1)"


@pytest.mark.parametrize(
    "reference",
    ["../other/SKILL.md", "/etc/passwd", "a/../../x", "link.md", "linked/x.md", "references", "no.md", "a\0b"],
)
async def test_nothing_outside_of_a_skill_is_read_through_it(tmp_path: Path, reference: str) -> None:
    folder = skill(tmp_path / "in", "greet", references__deep_dot_md="deep")
    skill(tmp_path / "in", "other")
    (tmp_path / "secret.md").write_text("secret")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "linked").symlink_to(tmp_path)
    async with opened(SkillRoot.named(tmp_path / "in")) as skills:
        with pytest.raises(ToolFailure) as caught:
            await skills.call("greet", reference=reference)

        assert caught.value.code == "not_found"
        assert caught.value.details == {"files": ["references/deep.md"]}


async def test_a_project_comes_before_a_user_and_ours_before_other_clients(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    for root, text in ((home / ".claude", "user"), (project / ".claude", "claude"), (project / ".toolcrib", "ours")):
        skill(root / "skills", "same", body=text)
    skill(home / ".agents" / "skills", "only-user")
    async with opened(*project_roots(project), *user_roots(home)) as skills:
        assert skills.names == ["same", "only-user"]
        assert (await skills.call("same")).structured_content["body"] == "ours"
        assert skills.problems == [("duplicate", "same"), ("duplicate", "same")]


async def test_a_projects_skill_waits_for_a_confirmation_of_all_of_its_files(tmp_path: Path) -> None:
    folder = skill(tmp_path / ".agents" / "skills", "greet", scripts__run_dot_py="print(1)")
    record = tmp_path / "trusted"
    record.mkdir()

    def trusted(path: Path, content: bytes) -> bool:
        (record / "asked").write_bytes(content)
        return (record / hashlib.sha256(content).hexdigest()).exists() and path == folder / "SKILL.md"

    def confirm() -> None:
        (record / hashlib.sha256((record / "asked").read_bytes()).hexdigest()).touch()

    async with opened(*project_roots(tmp_path), trusted=trusted, also_watched=(record,)) as skills:
        assert (skills.names, skills.problems) == ([], [("untrusted", "greet")])
        assert skills.source.resources() == ()
        assert "toolcrib trust" in skills.listings[-1].problems[0].hint

        confirm()
        await eventually(lambda: skills.names == ["greet"])
        assert (await skills.call("greet", reference="scripts/run.py")).text == "print(1)"

        (folder / "scripts" / "run.py").write_text("print(2)")
        await eventually(lambda: skills.names == [])
        assert skills.problems == [("untrusted", "greet")]


async def test_a_file_that_is_swapped_between_two_looks_is_not_handed_out(tmp_path: Path) -> None:
    folder = skill(tmp_path / ".agents" / "skills", "greet", scripts__run_dot_py="print(1)")
    source = SkillsSource("skills", project_roots(tmp_path), SkillsOptions(poll_seconds=3600))
    skills = Opened(source)
    await source.open(skills.listings.append)
    await source.ready()
    (folder / "scripts" / "run.py").write_text("evil")

    with pytest.raises(ToolFailure) as refused:
        await skills.call("greet", reference="scripts/run.py")
    assert refused.value.code == "unavailable"
    await source.close()


async def test_a_skill_that_is_changed_added_or_removed_is_published(tmp_path: Path) -> None:
    one = skill(tmp_path, "one")
    async with opened(SkillRoot.named(tmp_path)) as skills:
        skill(tmp_path, "two")
        await eventually(lambda: skills.names == ["one", "two"])
        (one / "SKILL.md").write_text("---\nname: one\ndescription: Something else.\n---\n")
        await eventually(lambda: skills.listings[-1].tools[0].description == "Something else.")
        (one / "SKILL.md").unlink()
        await eventually(lambda: skills.names == ["two"])


async def test_a_link_may_lead_elsewhere_in_the_project_and_nowhere_else(tmp_path: Path) -> None:
    project = tmp_path / "project"
    skill(project / ".agents" / "skills", "shared")
    skill(tmp_path, "outside")
    claude = project / ".claude" / "skills"
    claude.mkdir(parents=True)
    (claude / "shared").symlink_to("../../.agents/skills/shared")
    (claude / "outside").symlink_to(tmp_path / "outside")
    (claude / "loop").symlink_to(claude)
    async with opened(*project_roots(project)) as skills:
        assert skills.names == ["shared"]
        assert skills.problems == [("outside", "")]
        assert "leads out of" in skills.listings[-1].problems[0].message


@pytest.mark.parametrize(
    ("head", "name", "warning"),
    [
        ("---\ndescription: d\n---\n", "folder-name", "`name` must be a text that is not empty"),
        ("---\nname: Other_Name\ndescription: d\n---\n", "Other_Name", "`name` must be in lower case"),
        ("---\nname: folder-name\ndescription: Use when: asked\n---\n", "folder-name", "read as if its values were"),
        ("---\nname: a b/c\ndescription: d\n---\n", "folder-name", "cannot be used; the folder's name"),
        (f"---\nname: folder-name\ndescription: {'d' * 1100}\n---\n", "folder-name", "more than 1024"),
        ("---\nname: folder-name\ndescription: d\u200bd\n---\n", "folder-name", "1 invisible characters"),
        (
            "---\nname: folder-name\ndescription: d\n---\nDo it\U000e0061\U000e0062\n",
            "folder-name",
            "text has 2 invisible",
        ),
        ("---\nname: folder-name\ndescription: f\udcfcr\n---\n", "folder-name", "SKILL.md:3: is not UTF-8 there"),
    ],
)
async def test_what_the_format_forbids_and_a_model_can_use_is_loaded_with_a_warning(
    tmp_path: Path, head: str, name: str, warning: str
) -> None:
    skill(tmp_path, "folder-name", head=head)
    async with opened(SkillRoot.named(tmp_path)) as skills:
        assert skills.names == [name]
        assert any(warning in problem.message for problem in skills.listings[-1].problems)
        assert len(skills.listings[-1].tools[0].description) <= 1024


async def test_of_two_skills_with_one_name_the_one_in_a_folder_of_that_name_counts(tmp_path: Path) -> None:
    skill(tmp_path, "a-copy", head="---\nname: forms\ndescription: old\n---\n")
    skill(tmp_path, "forms", head="---\nname: forms\ndescription: new\n---\n")
    async with opened(SkillRoot.named(tmp_path)) as skills:
        assert [tool.description for tool in skills.listings[-1].tools] == ["new"]
        assert any(f"{tmp_path}/a-copy: not used" in one.message for one in skills.listings[-1].problems)


async def test_fields_of_ones_own_are_no_problem_and_those_of_the_seed_count(tmp_path: Path) -> None:
    head = "---\nname: a\ndescription: d\nhomepage: x\npriority: critical\ncapabilities: [one, two]\n---\n"
    skill(tmp_path, "a", head=head)
    skill(tmp_path, "b", head=head.replace("name: a", "name: b").replace("critical", "200"))
    groups = SkillGroups.of({"_always": ["a"], "first": ["a"]})
    async with opened(SkillRoot.named(tmp_path), groups=groups) as skills:
        assert skills.problems == []
        assert [(tool.capability.priority, tool.tags, tool.category) for tool in skills.listings[-1].tools] == [
            (90, ("one", "two"), "first"),
            (100, ("one", "two"), "skills"),
        ]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("---\nname: folder-name\n---\n", "has no `description`"),
        ("no frontmatter", "has no frontmatter"),
        ("---\nname: folder-name\ndescription: d\n", "a line `---` was expected"),
        ("\udcff\udcfe---\nname: folder-name\n", "is not UTF-8 text"),
        ("---\nname: folder-name\ndescription: [\n---\n", "SKILL.md:"),
        ("---\n- a\n---\n", "is not a mapping"),
    ],
)
async def test_what_cannot_be_used_is_a_problem_and_hides_no_other(tmp_path: Path, head: str, reason: str) -> None:
    skill(tmp_path, "folder-name", head=head)
    skill(tmp_path, "good")
    async with opened(SkillRoot.named(tmp_path)) as skills:
        assert skills.names == ["good"]
        assert skills.problems == [("bad_tool", "folder-name")]
        assert reason in skills.listings[-1].problems[0].message


async def test_skills_are_looked_for_six_folders_deep_and_not_inside_one_another(tmp_path: Path) -> None:
    skill(tmp_path, "a/b/c/d/e/deep")
    skill(tmp_path, "a/b/c/d/e/f/too-deep")
    skill(tmp_path, "outer")
    skill(tmp_path / "outer", "inner")
    async with opened(SkillRoot.named(tmp_path)) as skills:
        assert sorted(skills.names) == ["deep", "outer"]
        assert "inner/SKILL.md" in (await skills.call("outer")).structured_content["files"]


async def test_without_skills_there_is_no_tool_and_no_problem(tmp_path: Path) -> None:
    async with opened(*project_roots(tmp_path), *user_roots(tmp_path / "nowhere")) as skills:
        assert (skills.names, skills.problems, skills.source.state.state) == ([], [], "ready")


async def test_skills_are_resources_with_digests_that_fit_what_is_read(tmp_path: Path) -> None:
    skill(tmp_path, "office/greet", **{"references__a b_dot_md": "deep"})
    skill(tmp_path, "Not_Valid")
    async with opened(SkillRoot.named(tmp_path)) as skills:
        source = skills.source
        resources = source.resources()
        assert [(r.uri, r.name, r.description, r.mime_type) for r in resources] == [
            ("skill://greet/SKILL.md", "greet", "About greet.", "text/markdown"),
            ("skill://greet/references/a%20b.md", "greet/references/a b.md", "", "text/markdown"),
        ]
        [entry] = source.skill_entries()
        assert entry["uri"] == "skill://greet/SKILL.md"
        assert entry["frontmatter"] == {"name": "greet", "description": "About greet."}
        for listed in entry["resources"]:
            kind, content = source.read_resource(listed["uri"])
            assert kind == "text/markdown"
            assert (listed["digest"], listed["size"]) == (
                f"sha256:{hashlib.sha256(content).hexdigest()}",
                len(content),
            )


@pytest.mark.parametrize(
    "uri",
    [
        "skill://greet/../greet/SKILL.md",
        "skill://greet/%2e%2e/other/SKILL.md",
        "skill://greet/nothing.md",
        "skill://nobody/SKILL.md",
        "file:///etc/passwd",
        "skill://greet",
    ],
)
async def test_an_address_that_is_no_file_of_a_skill_is_not_read(tmp_path: Path, uri: str) -> None:
    skill(tmp_path, "greet")
    skill(tmp_path, "other")
    async with opened(SkillRoot.named(tmp_path)) as skills:
        with pytest.raises(KeyError):
            skills.source.read_resource(uri)


@pytest.mark.parametrize("scope", ["project", "named"])
async def test_names_that_are_no_utf_8_are_left_out_and_hide_no_skill(tmp_path: Path, scope: Any) -> None:
    odd = skill(tmp_path, "odd", notes_dot_md="n")
    skill(tmp_path, "plain")
    (Path(os.fsdecode(os.fsencode(odd) + b"/b\xff.md"))).write_text("x")
    nameless = Path(os.fsdecode(os.fsencode(tmp_path) + b"/z\xff"))
    nameless.mkdir()
    (nameless / "SKILL.md").write_text("---\ndescription: About nothing.\n---\n")

    async with opened(SkillRoot(path=tmp_path, scope=scope, within=tmp_path)) as skills:
        assert skills.names == ["odd", "plain"]
        answer: Any = (await skills.call("odd")).structured_content
        assert answer["files"] == ["notes.md"]
        assert [resource.uri for resource in skills.source.resources()] == [
            "skill://odd/SKILL.md",
            "skill://odd/notes.md",
            "skill://plain/SKILL.md",
        ]


async def test_a_name_with_invisible_characters_names_no_skill(tmp_path: Path) -> None:
    skill(tmp_path, "plain")
    skill(tmp_path, "hidden", head='---\nname: "pl\\u200bain"\ndescription: About it.\n---\n')

    async with opened(SkillRoot.named(tmp_path)) as skills:
        assert (skills.names, skills.problems) == (["plain"], [("bad_tool", "hidden")])
        assert "its name has invisible characters" in skills.listings[-1].problems[0].message


async def test_a_named_root_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with opened(SkillRoot.named(tmp_path / "nope")) as skills:
        assert [problem.message for problem in skills.listings[-1].problems] == [
            f"{tmp_path / 'nope'}, a root of skills, is not a folder"
        ]
