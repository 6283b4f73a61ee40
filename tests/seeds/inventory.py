"""The inventories of the seeds as data: what each tool is called, what it takes, one real call and what came of it.

A file of `inventories/` has one entry a tool, by the seed's own name:

    takes      its arguments, a star behind those that the seed requires
    core       true: shown from the start; `approval` A asks in a careful mode, AA always
    local      true: it is for whoever runs Toolcrib, not for its clients
    sandbox    true: it runs a program, and is passed over where there is no sandbox; `gh: true` needs gh, too
    needs      capabilities that the session is opened for, in a profile that selects
    files      put on the disk before; `git: true` makes the folder a repository with them as its first commit, `git: a`
               the folder `a` in it, and `remote: true` gives it an origin, in which `topic` is one commit ahead
    before     calls made first, in order; `keep` takes values out of their answers, and that of the call, by name and
               path
    through    the verb that makes the call, instead of the name itself
    with       the arguments of the call; `$name` is what was kept, in a text, too; `{origin}` is the test's own
               server
    says       patterns that its answer matches, and `lacks` one that it does not; `fails` the code of a refusal
    disk       what the files hold then, null where there is none
    git_says   what git itself says then: arguments → pattern
    then       other tools called afterwards: name → arguments and `says`
    received   what the test's own server got in the end: part of the request → pattern; `question` is what the user
               was asked

In a file of `inventories/arguments/` arguments stand behind the name: without one of them the rest is not true.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, cast

import pytest
import yaml

from rig.sandbox import needs_gh, needs_sandbox
from toolcrib.core.result import ToolResult
from toolcrib.core.tool import Tool

_FOLDER: Final = Path(__file__).parent / "inventories"
_OWN: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Ann"), ("EMAIL", "a@b.c"))
    },
}


class Conversation(Protocol):
    """Where calls are made: in the library, or over a wire."""

    async def call(self, name: str, arguments: Mapping[str, Any], /) -> ToolResult:
        """Call a tool."""
        ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """One tool of an inventory."""

    name: str
    shows: str = ""
    takes: str = ""
    core: bool = False
    approval: str = ""
    local: bool = False
    sandbox: bool = False
    gh: bool = False
    needs: list[str] = field(default_factory=list[str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    git: bool | str = False
    remote: bool = False
    before: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keep: Mapping[str, str] = field(default_factory=dict[str, str])
    through: str = ""
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    says: list[str] = field(default_factory=list[str])
    lacks: str = ""
    fails: str = ""
    disk: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    git_says: Mapping[str, str] = field(default_factory=dict[str, str])
    received: Mapping[str, str] = field(default_factory=dict[str, str])
    then: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def repository(self, folder: Path) -> Path:
        """Return where the repository is."""
        return folder / self.git if isinstance(self.git, str) else folder

    @property
    def arguments(self) -> dict[str, bool]:
        """The seed's arguments, and whether it requires them."""
        return {name.removesuffix("*"): name.endswith("*") for name in self.takes.split()}

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """The marks of its tests."""
        return [*([needs_sandbox] if self.sandbox else []), *([needs_gh] if self.gh else [])]

    @property
    def has_effect(self) -> bool:
        """Whether something outside of the call is looked at."""
        return bool(self.says or self.lacks or self.fails or self.disk or self.git_says or self.received or self.then)


@cache
def cases_of(seed: str) -> list[Case]:
    """Return the inventory of a seed; an entry that says something unknown is an error."""
    read: dict[str, dict[str, Any]] = yaml.load((_FOLDER / f"{seed}.yaml").read_text("utf-8"), yaml.CSafeLoader)
    known = {entry.name for entry in fields(Case)}
    found: list[Case] = []
    for words, said in read.items():
        name, _, shows = words.partition(" ")
        given: dict[str, Any] = {"given" if key == "with" else key: value for key, value in (said or {}).items()}
        assert given.keys() <= known, f"{name}: {given.keys() - known}"
        if isinstance(given.get("says"), str):
            given["says"] = [given["says"]]
        found.append(Case(name=name, shows=shows, **given))
    return found


def check_declared(case: Case, shown: Tool) -> None:
    """Check that the tool takes the seed's arguments, and requires none that the seed does not."""
    schema = shown.input_schema
    assert shown.name == case.name
    assert case.arguments.keys() <= schema.get("properties", {}).keys()
    required = {name for name, is_required in case.arguments.items() if is_required}
    assert set(schema.get("required", ())) <= required


async def play(case: Case, session: Conversation, folder: Path, received: list[dict[str, Any]], origin: str) -> None:
    """Make the calls, and look at what came of it."""
    kept: dict[str, Any] = {"origin": origin}
    for step in case.before:
        ((name, given),) = step.items()
        result = await session.call(name, _filled(given or {}, kept))
        assert not result.is_error, f"{name}: {result.text}"
        kept |= {key: _picked(result.structured_content, path) for key, path in case.keep.items() if _has(result, path)}
    start = len(received)
    result = await session.call(case.through or case.name, _filled(case.given, kept))
    if case.fails:
        assert result.error is not None, result.text
        assert result.error.code == case.fails, result.text
    else:
        assert not result.is_error, result.text
    kept |= {key: _picked(result.structured_content, path) for key, path in case.keep.items() if _has(result, path)}
    for pattern in case.says:
        assert re.search(_filled(pattern, kept), result.text), f"{pattern}: {result.text}"
    assert not case.lacks or not re.search(case.lacks, result.text), result.text
    for path, content in case.disk.items():
        place = folder / path
        assert (place.read_text("utf-8") if place.exists() else None) == content, path
    for words, pattern in case.git_says.items():
        told = git(case.repository(folder), *words.split())
        assert re.search(pattern, told), told
    for step in case.then:
        ((name, given),) = ((key, value) for key, value in step.items() if key != "says")
        after = await session.call(name, _filled(given or {}, kept))
        assert re.search(_filled(step["says"], kept), after.text), f"{name}: {after.text}"
    for part, pattern in case.received.items():
        assert any(re.search(pattern, str(one.get(part))) for one in received[start:]), received[start:]


def prepare(case: Case, folder: Path, origin: str) -> tuple[Path, ...]:
    """Put the files on the disk; return the folders that the tools may work in."""
    for path, text in case.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace("{origin}", origin), encoding="utf-8")
    place = case.repository(folder)
    if case.git:
        shutil.copytree(_empty_repository(), place, dirs_exist_ok=True)
        git(place, "add", ".")
        git(place, "commit", "--quiet", "--allow-empty", "-m", "first")
    if not case.remote:
        return (folder,)
    remote = folder.parent / "origin.git"
    git(place, "init", "--quiet", "--bare", str(remote))
    git(place, "remote", "add", "origin", str(remote))
    git(place, "push", "--quiet", "origin", "main")
    git(place, "switch", "--quiet", "--create", "topic")
    (place / "topic.txt").write_text("topic\n")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "on topic")
    git(place, "push", "--quiet", "origin", "topic")
    git(place, "switch", "--quiet", "main")
    return (folder, remote)


@cache
def _empty_repository() -> Path:
    keeper = tempfile.TemporaryDirectory(prefix="toolcrib-test-")
    atexit.register(keeper.cleanup)
    place = Path(keeper.name)
    git(place, "init", "--quiet")
    git(place, "config", "user.name", "Ann")
    git(place, "config", "user.email", "a@b.c")
    return place


def git(folder: Path, *arguments: str) -> str:
    """Ask the user's own git."""
    words = ["git", "-c", "init.defaultBranch=main", *arguments]
    done = subprocess.run(words, cwd=folder, env={**os.environ, **_OWN}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _filled(value: Any, kept: Mapping[str, Any]) -> Any:
    """Return a value with what was kept in it."""
    if isinstance(value, str):
        if value.startswith("$") and value[1:] in kept:
            return kept[value[1:]]
        text = value.replace("{origin}", str(kept["origin"]))
        return re.sub(r"\$(\w+)", lambda found: str(kept.get(found[1], found[0])), text)
    if isinstance(value, list):
        return [_filled(one, kept) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _filled(one, kept) for name, one in cast("dict[str, Any]", value).items()}
    return value


def _has(result: Any, path: str) -> bool:
    try:
        _picked(result.structured_content, path)
    except (KeyError, IndexError, TypeError, ValueError):
        return False
    return True


def _picked(value: Any, path: str) -> Any:
    """Return what is at `a.0.b`."""
    for step in path.split("."):
        value = value[int(step) if step.isdigit() else step]
    return value
