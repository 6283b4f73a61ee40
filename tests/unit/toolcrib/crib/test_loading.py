"""`crib.load` tells by content what a path holds; catalogs and skills of the configuration are mounted, if trusted."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from peers import LEDGER
from peers.api import api, described
from rig import PATIENCE, eventually
from toolcrib import Toolcrib
from toolcrib.config import load
from toolcrib.config.sources import confirmable_in
from toolcrib.config.trust import Trust
from toolcrib.errors import ConfigError, UsageError

CATALOG = """\
capabilities:
- name: say
  type: TOOL
  kind: read
  level: 1
  priority: high
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
  implementation: {command: [echo, "{text}"]}
- name: broken
  priority: 5000
"""
SKILL = "---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"


def _skill(folder: Path, name: str = "greet") -> Path:
    there = folder / name
    there.mkdir(parents=True)
    (there / "SKILL.md").write_text(SKILL.replace("greet\n", f"{name}\n"))
    return there


def _codes(crib: Toolcrib) -> list[str]:
    return [problem.code for problem in crib.problems]


@pytest.mark.process
async def test_a_catalog_is_loaded_and_called_through_the_one_door(tmp_path: Path) -> None:
    path = tmp_path / "office.yaml"
    path.write_text(CATALOG)
    async with Toolcrib() as crib:
        await crib.load(path)
        async with crib.session() as session:
            result = await session.call("say", {"text": "hi"})
            wrong = await session.call("say", {"text": 5, "more": [1]})

        assert result.text == "hi\n"
        assert wrong.error is not None
        assert [problem.tool for problem in crib.problems] == ["broken"]
        assert [(state.source, state.kind) for state in crib.tools.sources] == [("office", "yaml")]


async def test_a_rule_about_files_holds_for_those_of_skills_by_every_way_to_them(tmp_path: Path) -> None:
    there = _skill(tmp_path / "skills")
    for name in (".env", "notes.md"):
        (there / name).write_text("text")
    (tmp_path / "office.yaml").write_text("capabilities: [{name: hail, description: Hail, skill_path: skills/greet}]")
    async with Toolcrib(rules={"deny": [f"Read(/{tmp_path}/**/.env)"], "ask": [f"Read(/{there}/SKILL.md)"]}) as crib:
        for one in ("skills", "office.yaml"):
            await crib.load(tmp_path / one)
        async with crib.session(profile="selection") as session:
            session.begin(tools=["greet", "hail"])
            denied = [await session.call(name, {"reference": "./.env"}) for name in ("greet", "hail")]
            asked = [await session.call(name) for name in ("greet", "hail")]
            given = [await session.call(name, {"reference": "notes.md"}) for name in ("greet", "hail")]
        async with crib.session() as session:
            read = [await session.resources.read(f"skill://greet/{name}") for name in (".env", "notes.md")]

    results = (*denied, *asked, *given, *read)
    assert [result.error and result.error.code for result in results] == ["denied"] * 4 + [None] * 2 + ["denied", None]


async def test_what_a_file_holds_is_told_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(CATALOG)
    (tmp_path / "b.json").write_text(
        json.dumps({"capabilities": [{"name": "b", "implementation": {"command": ["ls"]}}]})
    )
    (tmp_path / "c.data").write_text("# only a list\n- name: c\n  implementation: {command: [ls]}\n")
    (tmp_path / "d.yaml").write_text(CATALOG.replace("say", "d") + '- name: "never closed\n')
    (tmp_path / "e.yaml").write_text("- {name: e, implementation: {command: [ls]}}\n")
    _skill(tmp_path / "skills")
    async with Toolcrib() as crib:
        for name in ("a.txt", "b.json", "c.data", "d.yaml", "e.yaml", "skills"):
            await crib.load(tmp_path / name)
        assert set(crib.catalog.tools) >= {"say", "b", "c", "d", "e", "greet"}


@pytest.mark.process
async def test_servers_and_an_openapi_description_are_loaded_too(tmp_path: Path) -> None:
    ledger = {"command": sys.executable, "args": [LEDGER, str(tmp_path / "ledger")]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"ledger": ledger}}))
    async with api() as running, Toolcrib() as crib:
        document = described({"/things": {"get": {"operationId": "listThings", "responses": {}}}})
        document["servers"] = [{"url": running.origin}]
        (tmp_path / "things.json").write_text(json.dumps(document))
        await crib.load(tmp_path / "mcp.json")
        await crib.load(tmp_path / "things.json")
        await crib.tools.wait_ready(PATIENCE)

        assert {state.kind for state in crib.tools.sources} == {"mcp", "openapi"}
        assert any(tool.source == "things" for tool in crib.catalog.tools.values())


@pytest.mark.parametrize("text", ["", "hello", "a: 1\n", "[1, 2]", '{"x": 1}'])
async def test_what_is_nothing_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    async with Toolcrib() as crib:
        with pytest.raises(UsageError, match="unknown content"):
            await crib.load(tmp_path / "x.yaml")
        with pytest.raises(UsageError, match=r"no folder in it has a SKILL\.md"):
            await crib.load(tmp_path)
        with pytest.raises(ConfigError, match="cannot be read"):
            await crib.load(tmp_path / "none.yaml")


async def test_options_of_an_api_are_taken_for_a_file_and_refused_for_one_of_another_kind(
    tmp_path: Path,
) -> None:
    (tmp_path / "tools.yaml").write_text(CATALOG)
    (tmp_path / "shop.json").write_text(json.dumps(described({"/pets": {"get": {"operationId": "list_pets"}}})))
    async with Toolcrib() as crib, api() as shop:
        await crib.load(tmp_path / "shop.json", base_url=shop.origin, allow_private=True)
        assert not (await crib.call("shop__list_pets")).is_error
        with pytest.raises(UsageError, match="base_url is an option of an API"):
            await crib.load(tmp_path / "tools.yaml", base_url="http://localhost")


async def test_two_files_of_one_name_get_two_names_and_a_given_name_must_be_free(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tools.yaml").write_text(CATALOG.replace("say", folder))
    async with Toolcrib() as crib:
        await crib.load(tmp_path / "one" / "tools.yaml")
        await crib.load(tmp_path / "two" / "tools.yaml")
        assert [state.source for state in crib.tools.sources] == ["tools", "tools-2"]
        with pytest.raises(UsageError, match="mounted already"):
            await crib.load(tmp_path / "one" / "tools.yaml", name="tools")


@pytest.mark.process
async def test_an_mcp_tool_behind_an_entry_is_a_call_of_its_own(tmp_path: Path) -> None:
    text = """\
- name: keep
  implementation: {mcp: {server: files, tool: put}}
- name: nowhere
  implementation: {mcp: {server: files, tool: nothing}}
"""
    (tmp_path / "c.yaml").write_text(text)
    server = {"command": sys.executable, "args": ["-IS", LEDGER, str(tmp_path / "ledger")]}
    async with Toolcrib() as crib:
        await crib.mount({"mcpServers": {"files": server}})
        await crib.load(tmp_path / "c.yaml")
        await crib.tools.wait_ready(PATIENCE)
        async with crib.session(mode="autonomous") as session:
            # Both write the same path: neither waits for the other's turn.
            result = await session.call("keep", {"path": "a"})
        async with crib.session(mode="autonomous") as session:
            missing = await session.call("nowhere", {})
        async with crib.session(mode="cautious") as session:
            denied = await session.call("keep", {"path": "b"})
        recorded = [row.tool for row in await crib.store.calls.list(limit=10)]

    assert result.text.splitlines()[2:] == ['{"path": "a", "value": 0}', "</tool_output>"]
    assert (result.meta["source"], result.meta["trust"]) == ("files", "untrusted")
    assert (missing.error and missing.error.code, denied.error and denied.error.code) == ("unavailable", "denied")
    assert sorted(recorded) == ["files__put", "keep", "keep", "nowhere"]


@pytest.mark.process
async def test_an_entry_that_calls_a_tool_of_a_server_is_as_ready_as_that_tool(tmp_path: Path) -> None:
    tools = {
        "here": "files, tool: put",
        "nowhere": "files, tool: nothing",
        "gone": "gone, tool: x",
        "no": "no, tool: x",
    }
    entries = [f"- name: {name}\n  implementation: {{mcp: {{server: {tool}}}}}\n" for name, tool in tools.items()]
    (tmp_path / "c.yaml").write_text("".join(entries))
    servers = {"files": {"command": sys.executable, "args": ["-IS", LEDGER, str(tmp_path / "ledger")]}}
    async with Toolcrib() as crib:
        await crib.mount({"mcpServers": servers | {"gone": {"command": "no-such-program"}}})
        await crib.load(tmp_path / "c.yaml")
        await crib.tools.wait_ready(PATIENCE)
        states = {name: crib.tools.state_of(crib.catalog.tools[name]).state for name in tools}
        why = {name: crib.explainer.why(name, crib.session(mode="autonomous")).stopped_by for name in tools}

    assert states == {"here": "ready", "nowhere": "failed", "gone": "failed", "no": "failed"}
    assert why == {"here": "", "nowhere": "source", "gone": "source", "no": "source"}


@pytest.mark.slow
async def test_a_changed_catalog_changes_what_a_session_sees(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("- name: first\n  implementation: {command: [ls]}\n")
    async with Toolcrib() as crib:
        await crib.load(path)
        changed = anyio.Event()
        crib.tools.on_change(lambda event: changed.set())
        path.write_text("- name: second\n  implementation: {command: [ls]}\n")
        with anyio.fail_after(PATIENCE):
            await changed.wait()

        assert set(crib.catalog.tools) == {"second"}


def _environ(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin"}


async def _mounted(settings: Any) -> tuple[set[str], list[str]]:
    async with Toolcrib(settings, memory=True) as crib:
        await crib.tools.wait_ready(PATIENCE)
        ours = {tool.name for tool in crib.catalog.tools.values() if tool.origin in ("yaml", "skill")}
        return ours, _codes(crib)


async def test_a_named_configuration_mounts_its_catalogs_and_skills(tmp_path: Path) -> None:
    (tmp_path / "office.yaml").write_text(CATALOG.replace("- name: broken\n  priority: 5000\n", ""))
    (tmp_path / "groups.yaml").write_text("skill_groups: {manners: {skills: [greet], capabilities: [polite]}}\n")
    _skill(tmp_path / "lib")
    config = tmp_path / "toolcrib.yaml"
    config.write_text("catalogs: [office.yaml]\nskills: {paths: [lib], groups: groups.yaml}\n")
    settings = load([config], environ=_environ(tmp_path / "home"), cwd=tmp_path)

    async with Toolcrib(settings, memory=True) as crib:
        await crib.tools.wait_ready(PATIENCE)
        assert {"say", "greet"} <= set(crib.catalog.tools)
        assert crib.catalog.tools["greet"].category == "manners"
        assert crib.catalog.tools["greet"].tags == ("polite",)
        assert crib.views.skill_groups.expand(["manners"]).skills == ("greet",)
        assert _codes(crib) == []


async def test_nothing_is_looked_for_unless_it_is_configured(tmp_path: Path) -> None:
    _skill(tmp_path / ".agents" / "skills")
    config = tmp_path / "toolcrib.yaml"
    config.write_text("profile: flat\n")
    settings = load([config], environ=_environ(tmp_path / "home"), cwd=tmp_path)

    assert settings.sources.skills is None
    assert await _mounted(settings) == (set(), [])


@pytest.mark.slow
async def test_skills_of_a_project_wait_for_their_user_and_the_users_own_do_not(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    _skill(home / ".claude" / "skills", "mine")
    theirs = _skill(project / ".agents" / "skills", "theirs")
    config = tmp_path / "toolcrib.yaml"
    config.write_text("skills: true\n")
    settings = load([config], environ=_environ(home), cwd=project)

    async with Toolcrib(settings, memory=True) as crib:
        await crib.tools.wait_ready(PATIENCE)
        assert ("mine" in crib.catalog.tools, "theirs" in crib.catalog.tools) == (True, False)
        assert _codes(crib) == ["untrusted"]

        [found] = confirmable_in(theirs)
        Trust(settings.directories).confirm([(found.path, found.content)])
        await eventually(lambda: "theirs" in crib.catalog.tools)


async def test_a_catalog_that_a_projects_configuration_names_waits_as_well(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "project" / ".toolcrib"
    folder.mkdir(parents=True)
    catalog = folder / "office.yaml"
    catalog.write_text("- name: say\n  implementation: {command: [ls]}\n")
    config = folder / "config.yaml"
    config.write_text("catalogs: [office.yaml]\nbuiltins: false\n")
    environ = _environ(home)
    trust = Trust(load([], environ=environ, cwd=tmp_path).directories)
    trust.confirm([(config, config.read_bytes())])
    settings = load([], environ=environ, cwd=tmp_path / "project")

    assert await _mounted(settings) == (set(), ["untrusted"])
    trust.confirm([(catalog, catalog.read_bytes())])
    assert await _mounted(settings) == ({"say"}, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("catalogs: office.yaml", "catalogs: a list of files was expected"),
        ("catalogs:\n- {name: x}", "catalogs.0.file: is required"),
        ("catalogs:\n- {file: x, cod: y}", "catalogs.0.cod: unknown key; did you mean 'code'?"),
        ("skills: {proyect: true}", "skills.proyect: unknown key; did you mean 'project'?"),
        ("skills: {user: maybe}", "skills.user: true or false was expected"),
        ("skills: 5", "skills: a mapping was expected"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    config = tmp_path / "toolcrib.yaml"
    config.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load([config], environ=_environ(tmp_path), cwd=tmp_path)

    assert problem in str(caught.value)


@pytest.mark.process
async def test_variables_of_a_catalog_come_from_the_environment_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        '- name: say\n  kind: read\n  implementation: {command: [sh, -c, "echo $WHO"], env: {WHO: "${NAME}"}}\n'
        '- name: unset\n  implementation: {command: [echo, "${NOT_SET_ANYWHERE}"]}\n'
    )
    config = tmp_path / "toolcrib.yaml"
    config.write_text("catalogs: [c.yaml]\nbuiltins: false\n")
    settings = load([config], environ={**_environ(tmp_path), "NAME": "ann"}, cwd=tmp_path)

    async with Toolcrib(settings, memory=True) as crib:
        await crib.tools.wait_ready(PATIENCE)
        async with crib.session() as session:
            assert (await session.call("say", {})).text == "ann\n"
        assert ["NOT_SET_ANYWHERE is not set" in problem.message for problem in crib.problems] == [True]


async def test_a_catalog_may_be_kept_from_loading_code(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("- name: f\n  implementation: {module: json, function: dumps}\n")
    config = tmp_path / "toolcrib.yaml"
    config.write_text("catalogs: [{file: c.yaml, code: false}]\nbuiltins: false\n")
    settings = load([config], environ=_environ(tmp_path), cwd=tmp_path)

    assert await _mounted(settings) == (set(), ["unavailable"])


async def test_a_catalog_and_an_api_under_a_name_that_is_taken_hide_nobody(tmp_path: Path) -> None:
    (tmp_path / "office.yaml").write_text("- name: say\n  implementation: {command: [echo, hi]}\n")
    (tmp_path / "api.json").write_text(json.dumps(described({"/x": {"get": {"operationId": "op"}}})))
    file = tmp_path / "toolcrib.yaml"
    file.write_text(
        "catalogs: [{file: office.yaml, name: one}, {file: office.yaml, name: one}]\n"
        "sources: {openapi: {one: {spec: api.json, base_url: 'https://api.example'}}}\n"
    )
    settings = load([file], environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    async with Toolcrib(settings=settings) as crib:
        await eventually(lambda: "say" in crib.catalog.tools)

        assert [state.kind for state in crib.tools.sources if state.source == "one"] == ["yaml"]
        assert [(problem.source, problem.code) for problem in crib.problems] == [
            (str(tmp_path / "office.yaml"), "bad_config"),
            ("sources.openapi.one", "bad_config"),
        ]
        assert all("something else is named one" in problem.message for problem in crib.problems)


async def test_a_url_that_is_none_says_so() -> None:
    async with Toolcrib() as crib:
        with pytest.raises(UsageError, match=r"http://\[::1/x is not a URL: Invalid IPv6 URL"):
            await crib.load("http://[::1/x")
