"""A catalog follows its file: changes are published, troubles leave the last good listing, and code is kept."""

import importlib.util
import os
import py_compile
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from peers.catalog import Opened, opened
from rig import eventually
from toolcrib.errors import ToolFailure
from toolcrib.sources.yaml.document import YamlOptions
from toolcrib.sources.yaml.source import YamlSource

ONE = "- name: one\n  implementation: {command: [echo, one]}\n"
TWO = "- name: two\n  implementation: {command: [echo, two]}\n"


def _names(catalog: Opened) -> list[str]:
    return [tool.name for tool in catalog.listing.tools]


@pytest.mark.process
async def test_a_change_of_the_file_is_published_and_called_as_it_says_now(tmp_path: Path) -> None:
    async with opened(tmp_path, ONE) as catalog:
        await catalog.write(ONE.replace("echo, one", "echo, changed") + TWO)

        assert _names(catalog) == ["one", "two"]
        assert (await catalog.call("one")).text == "changed\n"
        assert (catalog.source.state.state, catalog.source.state.tools) == ("ready", 2)


async def test_an_entry_that_is_not_listed_is_in_the_log_and_the_others_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, ONE + "- name: nothing\n") as catalog:
        assert _names(catalog) == ["one"]
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
            problem.message for problem in catalog.listing.problems
        ]


async def test_a_file_that_is_written_again_with_the_same_content_publishes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, ONE) as catalog:
        catalog.path.write_text(ONE)
        await catalog.write(TWO)

        assert [len(listing.tools) for listing in catalog.listings] == [1, 1]


async def test_a_file_that_is_replaced_as_editors_do_it_is_noticed(tmp_path: Path) -> None:
    async with opened(tmp_path, ONE) as catalog:
        fresh = tmp_path / "fresh"
        fresh.write_text(TWO)
        before = catalog.path.stat().st_mtime_ns
        os.utime(fresh, ns=(before, before))
        fresh.replace(catalog.path)
        await eventually(lambda: _names(catalog) == ["two"])


@pytest.mark.process
async def test_a_catalog_that_cannot_be_read_any_more_keeps_what_it_listed_and_recovers(tmp_path: Path) -> None:
    async with opened(tmp_path, ONE) as catalog:
        broken = await catalog.write("capabilities: 5\n")

        assert _names(catalog) == ["one"]
        assert [problem.code for problem in broken.problems] == ["unreadable"]
        assert catalog.source.state.state == "stale"
        assert (await catalog.call("one")).text == "one\n"

        await catalog.write(ONE)
        assert (catalog.listing.problems, catalog.source.state.state) == ((), "ready")


async def test_a_file_that_is_removed_is_a_problem_and_one_that_comes_back_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path, ONE) as catalog:
        catalog.path.unlink()
        await eventually(lambda: catalog.source.state.state == "stale")
        assert "cannot be read: No such file or directory" in catalog.listing.problems[0].message

        await catalog.write(TWO)
        assert _names(catalog) == ["two"]


async def test_a_catalog_that_does_not_exist_yet_is_read_once_it_does(tmp_path: Path) -> None:
    path = tmp_path / "later.yaml"
    source = YamlSource("cat", path, YamlOptions(poll_seconds=0.05))
    catalog = Opened(source, path)
    await source.open(catalog.listings.append)
    await source.ready()
    assert source.state.state == "failed"

    await catalog.write(ONE)
    assert _names(catalog) == ["one"]
    await source.close()


async def test_an_instance_of_a_class_survives_a_change_of_other_entries(tmp_path: Path) -> None:
    (tmp_path / "counting_tools.py").write_text(
        "class Count:\n    n = 0\n    def execute(self, params):\n        self.n += 1\n        return self.n\n"
    )
    count = "- name: count\n  implementation: {module: counting_tools, class: Count}\n"
    async with opened(tmp_path, count) as catalog:
        await catalog.call("count")
        await catalog.write(count + ONE)
        assert (await catalog.call("count")).text == "2"


async def test_a_catalog_that_nobody_confirmed_is_not_read_until_somebody_does(tmp_path: Path) -> None:
    record = tmp_path / "trusted.json"
    record.write_text("{}")

    def trusted(path: Path, content: bytes) -> bool:
        return content.decode() in record.read_text()

    async with opened(tmp_path, ONE, trusted=trusted, also_watched=(record,)) as catalog:
        assert _names(catalog) == []
        assert [(problem.code, "toolcrib trust" in problem.hint) for problem in catalog.listing.problems] == [
            ("untrusted", True)
        ]

        record.write_text(ONE)
        await eventually(lambda: _names(catalog) == ["one"])

        changed = await catalog.write(TWO)
        assert _names(catalog) == ["one"]
        assert [problem.code for problem in changed.problems] == ["untrusted"]


async def test_code_is_taken_from_its_source_whatever_byte_code_is_beside_it(tmp_path: Path) -> None:
    package = tmp_path / "forged"
    package.mkdir()
    for file in (package / "__init__.py", package / "inner.py", tmp_path / "forged_helper.py"):
        file.write_text("word = 'forged'\n")
        cached = importlib.util.cache_from_source(str(file))
        py_compile.compile(str(file), cfile=cached, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        file.write_text("word = 'source'\n")
    (package / "tools.py").write_text(
        "import forged, forged.inner, forged_helper\n"
        "def run() -> str:\n    return ' '.join([forged.word, forged.inner.word, forged_helper.word])\n"
    )

    async with opened(tmp_path, "- name: run\n  implementation: {module: forged.tools, function: run}\n") as catalog:
        result = await catalog.call("run")

    assert (result.text, [*package.glob("__pycache__/tools.*")]) == ("source source source", [])


@pytest.mark.parametrize(
    ("entry", "file"),
    [
        ("{name: run, implementation: {module: counted, function: run}}", "counted.py"),
        pytest.param(
            "{name: run, implementation: {command: [sh, -c, echo hello, package]}}",
            "package/__main__.py",
            marks=pytest.mark.process,
        ),
        ("{name: run, type: SKILL, skill_path: how/SKILL.md}", "how/SKILL.md"),
        ("{name: run, type: SKILL, skill_path: how}", "how/more.txt"),
        ("{name: run, type: SKILL, skill_path: SKILL.md}", "SKILL.md"),
    ],
)
async def test_what_changed_after_it_was_confirmed_is_neither_run_nor_shown(
    tmp_path: Path, entry: str, file: str
) -> None:
    skill = "---\nname: run\ndescription: Run.\n---\nhello"
    texts = {"counted.py": "def run() -> str:\n    return 'hello'\n", "SKILL.md": skill, "how/SKILL.md": skill}
    for name, text in {**texts, "how/more.txt": "", "package/__main__.py": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    known: set[bytes] = set()

    def trusted(path: Path, content: bytes) -> bool:
        if not known:
            known.add(content)
        return content in known

    async with opened(tmp_path, f"- {entry}\n", trusted=trusted) as catalog:
        before = await catalog.call("run")
        (tmp_path / file).write_text(f"{texts.get(file, '')}\n# changed")
        with pytest.raises(ToolFailure) as changed:
            await catalog.call("run")

    assert (before.text[:5], changed.value.code) == ("hello", "definition_changed")


async def test_a_catalog_of_absurd_size_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, ONE + "#" * (1 << 20)) as catalog:
        assert "is larger than 1 MiB" in catalog.listing.problems[0].message
        assert catalog.source.state.state == "failed"


@pytest.mark.process
async def test_five_hundred_entries_are_read_and_one_broken_one_costs_itself(tmp_path: Path) -> None:
    entries = "".join(f"- name: t{n}\n  implementation: {{command: [echo, '{n}']}}\n" for n in range(500))
    async with opened(tmp_path, entries + '- name: "\n' + TWO) as catalog:
        assert len(catalog.listing.tools) == 501
        assert (await catalog.call("t499")).text == "499\n"


async def test_a_module_named_as_another_that_is_loaded_is_not_mistaken_for_it(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for number, folder in enumerate((one, two)):
        folder.mkdir()
        (folder / "clashing_tools.py").write_text(f"def f():\n    return {number}\n")
    text = "- name: f\n  implementation: {module: clashing_tools, function: f}\n"
    async with opened(one, text) as first, opened(two, text) as second:
        assert (await first.call("f")).text == "0"
        with pytest.raises(ToolFailure, match=r"clashing_tools is .* in this process, not") as caught:
            await second.call("f")
    assert caught.value.code == "unavailable"


@pytest.mark.parametrize(
    ("implementation", "reason"),
    [
        ('{endpoint: {url: "http://[::1/x"}}', "bad.implementation.endpoint.url: not a URL: Invalid IPv6 URL"),
        ('{endpoint: {url: "http://h:99999/x"}}', "bad.implementation.endpoint.url: not a URL: Port out of range"),
    ],
)
async def test_an_address_that_is_none_takes_only_its_own_entry_away(
    tmp_path: Path, implementation: str, reason: str
) -> None:
    async with opened(tmp_path, f"{ONE}- name: bad\n  implementation: {implementation}\n") as catalog:
        assert _names(catalog) == ["one"]
        assert catalog.problems == [("bad_tool", "bad")]
        assert reason in catalog.listing.problems[0].message


@pytest.mark.process
async def test_a_home_folder_that_nobody_has_is_told_by_the_call_and_hides_no_other(tmp_path: Path) -> None:
    bad = "- name: bad\n  implementation: {command: [echo, x], cwd: ~nobody-has-this-name/x}\n"
    async with opened(tmp_path, ONE + bad) as catalog:
        assert (await catalog.call("one")).text == "one\n"
        with pytest.raises(ToolFailure, match="cannot be started: No such file or directory"):
            await catalog.call("bad")


async def test_a_confirmation_that_is_taken_back_is_told_though_the_file_says_the_same(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.touch()

    def trusted(path: Path, content: bytes) -> bool:
        return record.exists()

    async with opened(tmp_path, ONE, trusted=trusted, also_watched=(record,)) as catalog:
        assert (_names(catalog), catalog.problems) == (["one"], [])
        record.unlink()
        await eventually(lambda: catalog.problems == [("untrusted", "")])
        assert catalog.source.state.state == "stale"


async def test_what_an_entry_says_without_end_is_told_in_short(tmp_path: Path) -> None:
    unknown = "".join(f"  unknown_key_{number}: 1\n" for number in range(5_000))
    endless = f"- name: bad\n  type: {'X' * 500_000}\n  implementation: {{command: [echo]}}\n"
    async with opened(tmp_path, ONE + unknown + endless) as catalog:
        assert _names(catalog) == ["one"]
        assert [code for code, _ in catalog.problems] == ["unknown_key"] * 21 + ["bad_tool"]
        assert max(len(problem.message) for problem in catalog.listing.problems) < 1_000
