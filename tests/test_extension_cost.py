"""The cost of an extension: each is made in a copy of the source, and works there, with so many files and lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rig import ROOT

pytestmark = pytest.mark.process


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Texts of files, new ones or modules that they are added to, and new lines elsewhere, by path below `src`."""

    files: Mapping[str, str] = field(default_factory=dict[str, str])
    lines: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])

    @property
    def cost(self) -> tuple[int, int]:
        """Files with the text of the extension, and new lines elsewhere."""
        return len(self.files), sum(len(lines) for lines in self.lines.values())

    def apply(self, source: Path) -> None:
        """Write everything below `source`."""
        for path, text in self.files.items():
            with (source / path).open("a", encoding="utf-8") as file:
                file.write(text)
        for path, lines in self.lines.items():
            text = (source / path).read_text("utf-8")
            for anchor, line in lines.items():
                assert text.count(f"{anchor}\n") == 1, anchor
                text = text.replace(f"{anchor}\n", f"{anchor}\n{line}\n")
            (source / path).write_text(text, "utf-8")


EXTENSIONS = {
    "tool": Extension(
        files={
            "toolcrib_tools/dice.py": '''
"""Dice."""

from toolcrib.plugin import tool

__all__ = ["roll_dice"]


@tool(op="x.dice.roll", category="math", kind="read")
async def roll_dice(sides: int) -> int:
    """Roll a die that always shows its largest number."""
    return sides
'''
        }
    ),
    "command": Extension(
        files={
            "toolcrib/cli/commands/hello.py": '''
"""`toolcrib hello`."""

from ..actions import action_group
from ..options import AsJson
from ..output import emit_json, out

hello = action_group("Greet somebody.", default="say")


@hello.command("say")
def say(name: str = "you", as_json: AsJson = False) -> None:
    """Say hello."""
    emit_json({"hello": name}) if as_json else out(f"hello {name}")
'''
        },
        lines={
            "toolcrib/cli/main.py": {
                '    "version": CommandModule("version", "Print the version."),': (
                    '    "hello": CommandModule("hello", "Greet somebody."),'
                )
            }
        },
    ),
    "strategy": Extension(
        files={
            "toolcrib/disclosure/backwards.py": '''
"""Every tool, in the opposite order."""

from .base import Strategy, View, VisibleCatalog


def backwards(visible: VisibleCatalog) -> View:
    """Show every tool in scope, the last one first."""
    return View(tools=tuple(face for tool in visible.listed() for face in visible.presentations(tool))[::-1])


STRATEGY = Strategy(view=backwards)
'''
        },
        lines={
            "toolcrib/disclosure/strategies.py": {
                "from .adaptive import STRATEGY as adaptive": "from .backwards import STRATEGY as backwards"
            }
        },
    ),
    "mode": Extension(
        lines={
            "toolcrib/policy/modes.py": {
                '            Mode(name="cautious", read="allow", write="ask", destructive="ask"),': (
                    '            Mode(name="museum", read="allow", write="deny", destructive="deny"),'
                )
            }
        }
    ),
    "source": Extension(
        files={
            "toolcrib/sources/bell.py": '''
"""A bell that rings as often as its configuration wants."""

from ..core.events import SourceState
from ..core.result import ToolResult
from ..core.settings import Count, Section, Text, setting
from ..core.tool import Annotations, Tool
from .configuration import ConfiguredSource, SourceKind
from .source import Listing


class BellSettings(Section):
    """One entry of `sources.bell`."""

    times: Count = 1
    """How often it rings."""
    code: Text = setting("", secret=True)


class BellSource:
    def __init__(self, name: str, settings: BellSettings) -> None:
        self.name = name
        self.state = SourceState(source=name, kind="bell", state="ready", tools=1)
        self._settings = settings

    async def open(self, publish) -> None:
        schema = {"type": "object", "properties": {}}
        plain = Annotations(read_only=True, destructive=False)
        publish(
            Listing(
                tools=(
                    Tool(
                        name="ring",
                        local_name="ring",
                        source=self.name,
                        description="Ring.",
                        input_schema=schema,
                        annotations=plain,
                    ),
                )
            )
        )

    async def ready(self) -> None: ...

    async def call(self, tool, arguments, context) -> ToolResult:
        return ToolResult.of_text("ding " * self._settings.times)

    async def close(self) -> None: ...


def make(entry: ConfiguredSource) -> BellSource:
    return BellSource(entry.name, entry.settings)


KIND = SourceKind(settings=BellSettings, make=make)
'''
        },
        lines={
            "toolcrib/sources/kinds.py": {"# pyright: reportUnusedImport=false": "\nfrom .bell import KIND as bell"}
        },
    ),
    "step": Extension(
        files={
            "toolcrib/dispatch/steps/content.py": '''

async def shout(call: Call, result: ToolResult) -> ToolResult:
    """Return the result in capitals."""
    return replace(result, content=[{"type": "text", "text": result.text.upper()}])
'''
        },
        lines={
            "toolcrib/dispatch/default.py": {
                "            content.NoteVersion(),": "            content.shout,",
            }
        },
    ),
}

COSTS = {"tool": (1, 0), "command": (1, 1), "strategy": (1, 1), "mode": (0, 1), "source": (1, 1), "step": (1, 1)}
"""Files that get text of the extension, and new lines in others. A step stands in the module that it belongs to."""

SCRIPT = '''
import json
import runpy
import sys
from pathlib import Path

import anyio
from typer.testing import CliRunner

from toolcrib import Toolcrib, tool
from toolcrib.cli.main import app
from toolcrib.config import bare
from toolcrib.disclosure.profiles import build

BELLS = """
accept: true
sources:
  bell:
    door: {times: 2, code: ding-dong}
    gate: {time: 2}
    cellar: {enabled: false}
"""


@tool(kind="write")
def write_letter() -> str:
    """Write a letter."""
    return "dear ada"


@tool(kind="read")
def read_letter() -> str:
    """Read a letter."""
    return "dear bob"


def command(*words: str) -> str:
    return CliRunner().invoke(app, ["hello", *words]).stdout


async def main() -> dict:
    async with Toolcrib(bare().with_values(builtins=True, mode="autonomous"), memory=True) as crib:
        crib.add(write_letter, read_letter)
        crib.profiles.add(build({"name": "mine", "strategy": "backwards"}, file="mine.yaml"))
        flat, mine = (crib.session(profile=name) for name in ("flat", "mine"))
        names = [tool.name for tool in mine.tools]
        rolled = await flat.call("roll_dice", {"sides": 6})
        denied = await crib.session(mode="museum").call("write_letter", {})
        shouted = await flat.call("read_letter", {})
    Path("toolcrib.yaml").write_text(BELLS)
    async with Toolcrib("toolcrib.yaml", memory=True) as crib, crib.session() as session:
        rung = (await session.call("door_ring", {})).text
        masked = "ding-dong" in crib.settings.secrets
        wrong = [problem.message.replace(str(Path.cwd()), "") for problem in crib.problems]
    table = runpy.run_path(sys.argv[1])["key_table"]()
    digests = {Toolcrib(sources={"bell": {"door": {"times": times}}}).settings.digest() for times in (1, 2)}
    return {
        "source": [rung, wrong, masked, len(digests), "| `sources.bell.*.times` | whole number" in table],
        "command": [command("--name", "Ada"), command("--json"), "Say hello." in command("--help")],
        "tool": rolled.text,
        "strategy": names.index("read_letter") < names.index("write_letter"),
        "mode": denied.error.code,
        "step": shouted.text,
    }


print(json.dumps(anyio.run(main)))
'''


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return what each extension does, in one copy of the source that has all of them."""
    source = tmp_path_factory.mktemp("house") / "src"
    shutil.copytree(ROOT / "src", source)
    for extension in EXTENSIONS.values():
        extension.apply(source)
    home = {"HOME": str(source.parent), "PYTHONPATH": str(source)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, ROOT / "docs" / "reference" / "configuration.py"],
        cwd=source.parent,
        env={**kept, **home},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("tool", "6"),
        ("command", ["hello Ada\n", '{\n  "hello": "you"\n}\n', True]),
        ("strategy", True),
        ("mode", "denied"),
        (
            "source",
            [
                "DING DING ",
                ["/toolcrib.yaml:6: sources.bell.gate.time: unknown key; did you mean 'times'?"],
                True,
                2,
                True,
            ],
        ),
        ("step", "DEAR BOB"),
    ],
)
def test_an_extension_costs_what_it_should_and_works(outcomes: Mapping[str, Any], kind: str, outcome: Any) -> None:
    assert (outcomes[kind], EXTENSIONS[kind].cost) == (outcome, COSTS[kind])
