"""A plugin from the moment it is found to its end: told of where it fails, and hiding nothing else."""

from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolcrib, ToolFailure, UsageError, tool
from toolcrib.core.context import Context
from toolcrib.crib.plugins import PluginState
from toolcrib.plugin import Plugin, Services
from toolcrib.testing import RecordingApprover


class Counter(Plugin):
    """Counts from where its configuration says; notes its life."""

    name = "counter"
    instructions = "Count with me."

    def __init__(self) -> None:
        self.life: list[str] = []

    def requirements(self, config: Mapping[str, Any]) -> Iterable[str]:
        return [] if "start" in config else ["config.start: where to begin"]

    async def initialize(self, config: Mapping[str, Any], services: Services) -> None:
        self.life.append(f"begin {config['start']}")
        self.count = int(config["start"])
        self.services = services
        if config.get("broken"):
            raise RuntimeError("no luck")

    @tool(kind="read")
    async def next_number(self) -> int:
        """Return the next number."""
        self.count += 1
        return self.count

    async def shutdown(self) -> None:
        self.life.append("end")


@pytest.fixture
async def crib() -> AsyncIterator[Toolcrib]:
    async with Toolcrib() as crib:
        yield crib


async def test_an_exposed_plugin_has_its_tools_under_its_name_and_a_folder_of_its_own(crib: Toolcrib) -> None:
    plugin = Counter()

    state = await crib.plugins.expose(plugin, {"start": 4})
    result = await crib.session().call("counter__next_number")

    assert state == PluginState(name="counter", origin=f"{__name__}.Counter", state="ready", tools=1)
    assert (result.text, plugin.services.data.name, plugin.services.data.is_dir()) == ("5", "counter", True)
    assert plugin.services.catalog().find("counter__next_number") is not None


async def test_the_check_of_a_plugins_tool_runs_before_the_question(crib: Toolcrib) -> None:
    async def check(arguments: Mapping[str, Any], context: Context) -> None:
        raise ToolFailure("not_found", "no such place")

    class Post(Plugin):
        name = "post"

        @tool(kind="write", check=check)
        async def send(self) -> str:
            """Send."""
            return "sent"

    approver = RecordingApprover("yes")
    await crib.plugins.expose(Post(), {})
    error = (await crib.session(mode="cautious", approver=approver).call("post__send")).error

    assert (error and error.code, approver.questions) == ("not_found", [])


async def test_exposing_again_ends_it_and_begins_it_with_the_new_configuration(crib: Toolcrib) -> None:
    plugin = Counter()
    await crib.plugins.expose(plugin, {"start": 4})

    await crib.plugins.expose("counter", {"start": 7})
    result = await crib.session().call("counter__next_number")

    assert (result.text, plugin.life) == ("8", ["begin 4", "end", "begin 7"])


async def test_after_it_was_taken_back_its_tools_are_gone_until_it_is_exposed_again(crib: Toolcrib) -> None:
    plugin = Counter()
    await crib.plugins.expose(plugin, {"start": 4})

    await crib.plugins.unexpose("counter")
    gone = await crib.session().call("counter__next_number")
    await crib.plugins.expose("counter", {"start": 1})

    assert (gone.error and gone.error.code, plugin.life) == ("not_found", ["begin 4", "end", "begin 1"])
    assert crib.catalog.find("counter__next_number") is not None


@pytest.mark.parametrize(
    ("config", "why", "life"),
    [
        ({}, "it needs config.start: where to begin", []),
        ({"start": 1, "broken": True}, f"RuntimeError: no luck ({__file__}:", ["begin 1", "end"]),
    ],
    ids=["what it needs is missing", "it breaks when it begins"],
)
async def test_one_that_cannot_begin_is_told_with_its_reason_and_hides_nothing_else(
    crib: Toolcrib, config: dict[str, Any], why: str, life: list[str]
) -> None:
    @tool(kind="read")
    async def hello() -> str:
        """Say hello."""
        return "hello"

    crib.add(hello)
    plugin = Counter()

    state = await crib.plugins.expose(plugin, config)

    assert (state.state, plugin.life) == ("failed", life)
    assert state.error.startswith(why)
    assert [problem.message for problem in crib.problems if problem.source == "counter"] == [
        f"{__name__}.Counter: not exposed: {state.error}"
    ]
    assert (await crib.session().call("hello")).text == "hello"


async def test_a_plugin_ends_with_its_crib() -> None:
    plugin = Counter()

    async with Toolcrib() as crib:
        await crib.plugins.expose(plugin, {"start": 0})

    assert plugin.life == ["begin 0", "end"]


async def test_a_plugin_may_have_other_tools_later(crib: Toolcrib) -> None:
    class Growing(Plugin):
        name = "growing"

        def __init__(self) -> None:
            self.offered: list[object] = []

        def initialize(self, config: Mapping[str, Any], services: Services) -> None:
            self.services = services

        def tools(self) -> Iterable[object]:
            return self.offered

    async def late() -> str:
        """Come late."""
        return "here"

    plugin = Growing()
    await crib.plugins.expose(plugin)
    plugin.offered.append(late)
    added: list[tuple[str, ...]] = []
    crib.tools.on_change(lambda change: added.append(change.added))

    plugin.services.changed()
    await crib.plugins.settle("growing")
    result = await crib.session(mode="autonomous").call("growing__late")

    assert (added, result.text) == ([("growing__late",)], "here")


async def test_what_is_not_there_is_named_with_the_nearest(crib: Toolcrib) -> None:
    await crib.plugins.expose(Counter(), {"start": 0})

    for attempt, said in (
        (crib.plugins.expose("countr"), "there is no plugin 'countr'; did you mean 'counter'?"),
        (crib.plugins.unexpose("countr"), "the plugin 'countr' is not exposed; did you mean 'counter'?"),
        (crib.plugins.expose(Plugin()), "Plugin has no name: set `name` in the class"),
    ):
        with pytest.raises(UsageError) as refused:
            await attempt
        assert str(refused.value) == said


_GOOD = '''
from toolcrib.plugin import Plugin, tool

class Good(Plugin):
    def initialize(self, config, services):
        self.word = config.get("word", "none")

    @tool(kind="read")
    def say(self) -> str:
        """Say the word."""
        return self.word
'''
_INNER = '''
from toolcrib.plugin import Plugin, tool

class Inner(Plugin):
    @tool(kind="read")
    def look(self) -> str:
        """Look."""
        return "seen"
'''
_FOLDER = {
    "good.py": _GOOD,
    "package/__init__.py": "from .inner import Inner as _Inner\nplugin = _Inner()\n",
    "package/inner.py": _INNER,
    "bad.py": "raise RuntimeError('cannot be imported')\n",
    "empty.py": "x = 1\n",
    "off.py": "raise RuntimeError('must not run')\n",
    "_private.py": "raise RuntimeError('must not run')\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("builtins", ["", "builtins: false\n"], ids=["built-in tools", "none, as in a gateway"])
async def test_plugins_of_a_folder_are_exposed_with_what_the_file_says_of_them(tmp_path: Path, builtins: str) -> None:
    folder = tmp_path / "mine"
    for name, text in _FOLDER.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    config = tmp_path / "toolcrib.yaml"
    config.write_text(
        builtins + "plugins: {folders: [mine, gone], disabled: [off], config: {good: {word: hello}, god: {}}}\n",
        encoding="utf-8",
    )

    async with Toolcrib(config, memory=True) as crib:
        for name in ("good", "package", "bad", "empty"):
            await crib.plugins.settle(name)
        states = {state.name: (state.state, state.tools, state.error) for state in crib.plugins.all}
        said = [(await crib.session().call(name)).text for name in ("good__say", "package__look")]
        problems = [problem.message for problem in crib.problems if problem.source == "plugins"]

    none = f"UsageError: {folder}/empty.py holds 0 plugins, and one was expected: derive from Plugin once"
    assert states == {
        "bad": ("failed", 0, f"RuntimeError: cannot be imported ({folder}/bad.py:1)"),
        "empty": ("failed", 0, none),
        "good": ("ready", 1, ""),
        "off": ("disabled", 0, ""),
        "package": ("ready", 1, ""),
    }
    missing = f"plugins.folders: there is no folder {tmp_path}/gone"
    assert said == ["hello", "seen"]
    assert problems == [missing, "plugins: there is no plugin 'god'; did you mean 'good'?"]
