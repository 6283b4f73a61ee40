"""Runners of tasks: the documents that they take without a name, and the commands that a run of some tasks reaches.

A document holds its tasks by name, in tables; a task reaches another one that it names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from msgspec import Struct

from ...core.documents.toml import read_toml
from ...core.documents.yaml import parse_yaml
from ...core.json import read_json
from ...core.patterns import regex
from ...errors import ConfigError

_Tables = tuple[tuple[str, ...], ...]


class TaskFile(Struct, frozen=True):
    """A file that a runner takes, by its name in the folder."""

    name: str
    tables: _Tables = ()
    """Keys to the tables with its tasks, `*` for any, empty for the whole document."""


def _documents(names: str, *tables: str) -> tuple[TaskFile, ...]:
    return tuple(TaskFile(name, tuple(tuple(table.split(".")) for table in tables)) for name in names.split())


_PROJECT: Final = "pyproject.toml"
_FILES_BY_PROGRAM: Final[Sequence[tuple[str, tuple[TaskFile, ...]]]] = (
    ("task go-task", _documents("Taskfile.yml Taskfile.yaml taskfile.yml taskfile.yaml", "tasks")),
    ("mise", _documents("mise.toml .mise.toml", "tasks")),
    ("poe", (*_documents(_PROJECT, "tool.poe.tasks"), *_documents("poe_tasks.toml", "tasks", "tool.poe.tasks"))),
    ("pdm", _documents(_PROJECT, "tool.pdm.scripts")),
    ("rye", _documents(_PROJECT, "tool.rye.scripts")),
    (
        "hatch",
        (*_documents(_PROJECT, "tool.hatch.envs.*.scripts"), *_documents("hatch.toml", "envs.*.scripts")),
    ),
    (
        "pixi",
        (
            *_documents("pixi.toml", "tasks", "feature.*.tasks"),
            *_documents(_PROJECT, "tool.pixi.tasks", "tool.pixi.feature.*.tasks"),
        ),
    ),
    ("pipenv", _documents("Pipfile", "scripts")),
    ("cargo", _documents("Makefile.toml", "tasks")),
    ("deno", _documents("deno.json deno.jsonc", "tasks")),
    ("composer", _documents("composer.json", "scripts")),
    ("devbox", _documents("devbox.json", "shell.scripts")),
    ("nx", _documents("project.json", "targets")),
    ("turbo lerna nx nr rushx wsrun", _documents("package.json", "scripts")),
    ("lefthook", _documents("lefthook.yml lefthook.yaml .lefthook.yml .lefthook.yaml", "")),
    ("dvc", _documents("dvc.yaml", "stages")),
    ("process-compose", _documents("process-compose.yaml process-compose.yml", "processes")),
    ("goreleaser", _documents(".goreleaser.yaml .goreleaser.yml", "before")),
    ("wrangler", _documents("wrangler.toml", "build")),
    ("netlify", _documents("netlify.toml", "build")),
    ("vercel", _documents("vercel.json", "")),
    ("cdk", _documents("cdk.json", "")),
)
"""Programs, and the files that they take."""
_COMPOSER_EVENT: Final = regex(r"(?:pre|post)-[\w-]+-cmd|pre-autoload-dump|post-autoload-dump")
"""Scripts of `composer.json` that its own commands run."""
_PROGRAMS_WITHOUT_TASKS: Final = frozenset(
    {"cdk", "dvc", "goreleaser", "netlify", "process-compose", "vercel", "wrangler"}
)
"""Programs whose names are not those of tasks."""
_WORD: Final = regex(r"[\w:.-]+")
_MAX_TEXTS: Final = 500
"""Texts of one run."""


@lru_cache(maxsize=256)
def task_files(program: str) -> tuple[TaskFile, ...]:
    """Return the files that a program takes without a name."""
    return tuple(one for programs, files in _FILES_BY_PROGRAM if program in programs.split() for one in files)


def tasks_in(text: str, file: str, program: str, names: Sequence[str]) -> list[str] | None:
    """Return the commands of a run of the tasks `names`, or of the default ones.

    None where the document cannot be read.

    A task reaches every other one whose name stands in its texts, as words.
    """
    try:
        found: Any = _parse_file(text, file)
    except (ConfigError, ValueError):
        return None
    tasks: dict[str, Any] = {}
    for keys in (keys for one in task_files(program) if one.name == file for keys in one.tables):
        for table in _tables_at(found, keys):
            tasks |= table
    wanted = [name for one in names for name in (one, one.rpartition(":")[2]) if name in tasks]
    if program in _PROGRAMS_WITHOUT_TASKS or not names:
        wanted = ["default"] if "default" in tasks else list(tasks)
    wanted += filter(_COMPOSER_EVENT.fullmatch, tasks)
    texts, seen, waiting = list[str](), set(wanted), deque(wanted)
    while waiting and len(texts) < _MAX_TEXTS:
        name = waiting.popleft()
        own = [one for key in (f"pre_{name}", name, f"post_{name}") for one in _texts(tasks.get(key))]
        texts += own
        for other in (word for one in own for word in _WORD.findall(one)):
            if other in tasks and other not in seen:
                seen.add(other)
                waiting.append(other)
    return texts


def _parse_file(text: str, name: str) -> Any:
    if name.endswith((".yml", ".yaml")):
        return parse_yaml(text).plain()
    if name.endswith((".json", ".jsonc")):
        return read_json(text.encode())
    return read_toml(text)


def _tables_at(found: Any, keys: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    """Yield the tables at these keys."""
    if not isinstance(found, dict):
        return
    table = cast("dict[str, Any]", found)
    if not any(keys):
        yield table
        return
    inner = table.values() if keys[0] == "*" else (table.get(keys[0]),)
    for one in inner:
        yield from _tables_at(one, keys[1:])


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of a task; the words of a list may be one command, too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        words = [one for one in items if isinstance(one, str)]
        yield " ".join(words)
        for one in items:
            yield from _texts(one)
    elif isinstance(value, dict):
        for one in cast("dict[str, Any]", value).values():
            yield from _texts(one)
