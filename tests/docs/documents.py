"""The documents of this project, and the blocks of code in them."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rig import ROOT

README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
DOCUMENTS = (README, *sorted((ROOT / "docs").rglob("*.md")))
CALLS = ROOT / "docs" / "explanation" / "calls.md"
CLIENTS = ROOT / "docs" / "clients"
DISCLOSURE = ROOT / "docs" / "explanation" / "disclosure.md"
EXAMPLES = ROOT / "docs" / "examples"

SERVERS = ROOT / "docs" / "tutorials" / "servers.md"

_FENCE = re.compile(r"^(?P<margin> *)```(?P<language>\S*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block of a document."""

    file: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Where it is."""
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Return every block in one of the languages, document by document; of all languages when none is named."""
    found: list[Block] = []
    for file in DOCUMENTS:
        text = file.read_text("utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            shown = re.sub(f"^{match['margin']}", "", match["text"], flags=re.MULTILINE)
            found.append(Block(file=file, line=line, language=match["language"], text=shown))
    return [block for block in found if not languages or block.language in languages]


def commands(block: Block) -> list[str]:
    """Return the commands of a shell block: one a line, or over several lines where a quotation goes on."""
    found: list[str] = []
    command = ""
    for line in block.text.splitlines(keepends=True):
        command += line
        with suppress(ValueError):  # the quotation is not closed yet
            shlex.split(command, comments=True)
            found.append(command.strip())
            command = ""
    assert not command, block
    return [command for command in found if command]


def newcomer(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment of somebody with an empty home, for whom pip has installed what these tests run on."""
    kept = {key: value for key, value in environ.items() if not key.startswith(("XDG_", "CLAUDE_", "CODEX_", "GIT_"))}
    programs = Path(sys.executable).parent
    own = {"PATH": f"{programs}:{environ['PATH']}", "TOOLCRIB_COMMAND": str(programs / "toolcrib")}
    return {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(home), **own}
