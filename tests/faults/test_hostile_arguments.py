"""What a model may write into any argument of any tool that comes with us (security.md T4, T16).

The arguments are found by their schemas, so that a tool that is added tomorrow is attacked too. Every line of the
corpus of paths goes through some argument, and every argument meets links, a pipe, a file with a second name, and three
of the values that its schema lets through; at full size every line, and every value.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import anyio
import pytest

from contract.seats import PROFILES, at
from rig import PATIENCE
from rig.swapping import swapping
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.result import ToolResult
from toolcrib.core.schema import compile_schema
from toolcrib.core.tool import Tool
from toolcrib.crib import Session
from toolcrib.policy.taint import Taint
from unit.toolcrib_tools.repositories import git

CANARY = "kept-outside-5520"
READS = 3_000
UNSAID = "unsaid-8823.txt"
"""A file outside that no line names: who knows of it has looked."""
FILE = re.compile(r"[a-z_]+(/[a-z_]+)*(\.[a-z]{2,8})+")
"""A file as examples name it."""

# Paths

STEPS = (
    *("../", "..\\", "..%2f", "..%5c", "%2e%2e/", "%2e%2e%2f", "%2e%2e\\", "%2e%2e%5c", "..%252f", "..%255c"),
    *("%252e%252e%252f", "%252e%252e/", "..%c0%af", "..%c1%9c", "..%c0%2f", "%c0%ae%c0%ae/", "%c0%ae%c0%ae%c0%af"),
    *("..%e0%80%af", "..%f0%80%80%af", "%u002e%u002e%u2215", "..%u2215", "..%u2216", "．．/", "..∕", "․․/", "‥/"),
    *("....//", "....\\\\", "..//", "..///", "./../", "/../", "..;/", "..\t/", "..\0/", ".. /", "...%2f", ".%2e/"),
    *("\\../", "..%00/", "..%0d/", "..%ff/", "0x2e0x2e/", "%%32%65%%32%65/", "a/../../", "a/./../../", "~/../"),
)
DEPTHS = (1, 2, 3, 8)
TARGETS = ("outside/secret.txt", "etc/passwd", "etc/passwd%00", "etc/passwd\0.png", "proc/self/environ", "boot.ini")
BEFORE = ("", "/", "a/", "file:///", "/var/www/../../", "C:\\")


def lines(outside: Path) -> tuple[str, ...]:
    """Return ways to write a path that leads outside, or looks as if it did."""
    climbing = {f"{step * depth}{target}" for step, depth, target in product(STEPS, DEPTHS, TARGETS)}
    led = {f"{start}{step * 8}{target}" for start, step, target in product(BEFORE, STEPS, TARGETS[:2])}
    inner = str(outside).lstrip("/")
    whole = {
        f"{start}{inner}/secret.txt"
        for start in (
            *("/", "//", "///", "/./", "/.//", "file:/", "file://", "file:///", "FILE:///", "file://localhost/", "\\"),
            *("/proc/self/root/", "/proc/self/cwd/../", "/dev/fd/../../", "/proc/thread-self/root/", "~root/../", " /"),
            *("%2f", "/%2e/", "url:file:///", "php://filter/resource=/", "\\\\localhost\\", "smb://localhost/", "|/"),
        )
    }
    odd = {"/", "..", "~", "~/secret.txt", "$HOME", "${PWD}/../outside/secret.txt", "`pwd`/../outside", "/etc/passwd"}
    return tuple(sorted(climbing | led | whole | odd | {str(outside), f"{outside}/"}))


PLANTED = ("link", "link/", "link/secret.txt", "link/../link/secret.txt", "hard.txt", "pipe", "loop", "to_passwd")
"""What lies in the workspace and leads outside of it, or never ends."""

NAMED = re.compile(r"\b(paths?|files?|folders?|director(?:y|ies)|source|destination|attachments)\b", re.IGNORECASE)
"""Words of arguments that mean a file; one too many is one more that is attacked."""


@dataclass(frozen=True, kw_only=True)
class Aim:
    """One argument of one tool as a profile shows it: `way` leads to it, 0 for the first item of a list."""

    face: Tool
    tool: str
    """In the catalog."""
    way: tuple[str | int, ...]
    given: Sequence[Mapping[str, Any]]
    """The other arguments, in some ways: those that a call needs, and those of the examples."""

    def at(self, value: Any, others: int = 0) -> dict[str, Any]:
        """Return arguments with a value there."""
        given: Any = deepcopy(dict(self.given[others % len(self.given)]))
        inner = given
        for step, following in zip(self.way, self.way[1:], strict=False):
            inner = _entered(inner, step, [] if following == 0 else {})
        _put(inner, self.way[-1], value)
        return given

    def __str__(self) -> str:
        """Name it in a failure."""
        return f"{self.face.name}({'.'.join(map(str, self.way))})"


def _entered(inner: Any, step: str | int, fresh: Any) -> Any:
    known = (inner[:1] or [None])[0] if step == 0 else inner.get(step)
    _put(inner, step, known if isinstance(known, type(fresh)) else fresh)
    return inner[step]


def _put(inner: Any, step: str | int, value: Any) -> None:
    """Put it there; in a list it is alone, so that nothing else in it is refused first."""
    if isinstance(step, int):
        inner[:] = [value]
    else:
        inner[step] = value


def ways(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the way to each text in what a schema describes, and what is said of it; an enumeration is none."""
    if "$ref" in schema:
        schema = {**whole["$defs"][schema["$ref"].rpartition("/")[2]], "description": schema.get("description", "")}
    said = schema.get("description", "")
    if schema.get("type") == "string" and not {"enum", "const"} & schema.keys():
        yield (), said
    for inner in schema.get("anyOf", ()):
        yield from ((way, f"{said} {more}") for way, more in ways(inner, whole))
    if isinstance(schema.get("items"), dict):
        yield from (((0, *way), f"{said} {more}") for way, more in ways(schema["items"], whole))
    for name, inner in schema.get("properties", {}).items():
        yield from (((name, *way), f"{name.replace('_', ' ')} {more}") for way, more in ways(inner, whole))


def paths_of(session: Session) -> list[Aim]:
    """Return the arguments of all tools that mean a file, by their schemas; the others are those that a call needs."""
    aims: list[Aim] = []
    for tool in session.visible.offered():
        for face in session.visible.presentations(tool):
            found = {way for way, said in ways(face.input_schema, face.input_schema) if NAMED.search(said)}
            given = [needed(face), *face.guidance.examples]
            aims += [Aim(face=face, tool=tool.name, way=way, given=given) for way in sorted(found, key=str)]
    return aims


def needed(face: Tool) -> dict[str, Any]:
    """Return the arguments that a call needs, with the values of an example."""
    required = face.input_schema.get("required", ())
    given: dict[str, Any] = {}
    for example in reversed(face.guidance.examples):
        given |= {name: value for name, value in example.items() if name in required}
    return given


def tries(aim: Aim, planted: Iterable[str], told: Iterable[str], *, each_way: bool) -> Iterator[tuple[int, str]]:
    """Yield what is planted and each line with a way to give the other arguments; `each_way`: what is planted with all.

    A tool that starts programs does it with what is planted only: each takes a second.
    """
    starts = aim.tool in STARTED
    every = range(min(len(aim.given), 2 if starts else 9))
    for place, line in enumerate(planted):
        yield from ((others, line) for others in (every if each_way else (place % len(every),)))
    yield from ((0 if starts else others, line) for others, line in enumerate(told))


def restore(root: Path, given: Any) -> None:
    """Let everything that leads outside be there, and a file at every place that the arguments of an example name."""
    outside = root.parent / "outside"
    for name, leads in (("link", outside), ("loop", "loop"), ("to_passwd", "/etc/passwd")):
        if not (root / name).is_symlink():
            (root / name).symlink_to(leads)
    if not (root / "hard.txt").exists():
        os.link(outside / "secret.txt", root / "hard.txt")
    if not (root / "pipe").exists():
        os.mkfifo(root / "pipe")
    for name in files_of(given):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("inside\n")


def files_of(given: Any) -> Iterator[str]:
    """Yield the files that the arguments of an example name."""
    if isinstance(given, str) and FILE.fullmatch(given):
        yield given
    elif isinstance(given, list | tuple):
        for inner in cast("Sequence[Any]", given):
            yield from files_of(inner)
    elif isinstance(given, dict):
        yield from files_of(tuple(cast("dict[str, Any]", given).values()))


def plant(folder: Path) -> Path:
    """Make a workspace with everything in it that leads outside; return it."""
    root, outside = folder / "root", folder / "outside"
    (root / "a").mkdir(parents=True)
    outside.mkdir()
    for name in ("secret.txt", UNSAID):
        (outside / name).write_text(CANARY)
    restore(root, ())
    git(root, "init", "--quiet")
    return root


def state_of(folder: Path) -> dict[str, bytes]:
    """Return what is beside the workspace."""
    around = [path for path in folder.iterdir() if path.name != "root"]
    return {str(path): path.read_bytes() for top in around for path in (top, *top.rglob("*")) if path.is_file()}


@asynccontextmanager
async def opened(root: Path) -> AsyncGenerator[Toolcrib]:
    settings = bare().with_values(
        builtins=True,
        workspace=WorkspaceSpec(roots=(root,)),
        untrusted=Taint(ask=False),  # what stops an attack here shall be the tool, and not the user
        tools={"lsp": {"servers": {"none": {"command": ["no-such-server"], "files": ["*.txt"]}}}},
    )
    async with Toolcrib(settings, memory=True) as crib:
        yield crib


def leaks(told: ToolResult) -> bool:
    """Whether a result knows what only somebody outside can know."""
    text = repr(told)
    return CANARY in text or UNSAID in text or "root:x:0:0" in text


@pytest.mark.parametrize("profile", PROFILES)
async def test_no_argument_of_any_tool_reads_or_writes_outside(tmp_path: Path, profile: str, full_size: bool) -> None:
    root = plant(tmp_path)
    corpus = lines(tmp_path / "outside")
    before, ran, leaked = state_of(tmp_path), set[str](), list[str]()
    assert len(corpus) >= 1_500
    async with opened(root) as crib, at(crib, profile) as seat:
        assert seat.session is not None
        crib.calls.on_finished(lambda finished: ran.add(finished.tool))
        aims = paths_of(seat.session)
        rest, planted = cycle(corpus), cycle(PLANTED)
        is_whole = full_size or profile == "flat"  # the others differ in names only
        each = len(corpus) if full_size else len(corpus) // len(aims) + 1 if is_whole else 1
        for aim in aims:
            name = aim.tool if profile == "gateway" else aim.face.name
            await seat.reach(name)
            some = islice(planted, len(PLANTED) if is_whole else 1 if aim.tool in STARTED else 3)
            for others, line in tries(aim, some, islice(rest, each), each_way=full_size):
                restore(root, aim.given)
                called, given = await seat.way(name, aim.at(line, others))
                with anyio.fail_after(PATIENCE):
                    result = await seat.session.call(called, given)
                assert "needs approval" not in result.text
                if leaks(result):
                    leaked.append(f"{aim} {line!r}: {result.text[:200]}")

    assert leaked == []
    assert state_of(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"root", "outside"}
    assert {aim.tool for aim in aims} <= ran
    assert len(aims) >= 60


async def test_no_tool_leaks_while_a_folder_is_swapped_for_a_link(tmp_path: Path) -> None:
    root = plant(tmp_path)
    (root / "a" / "secret.txt").write_text("inside\n")
    asked: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": "a/secret.txt"}),
        ("grep", {"pattern": ".", "path": "a"}),
        ("grep", {"pattern": ".", "path": "a/secret.txt"}),
        ("list_directory", {"path": "a"}),
        ("glob_files", {"pattern": "a/*"}),
        ("search_files", {"pattern": "t", "path": "a"}),
        ("copy_file", {"source": "a/secret.txt", "destination": "copy.txt", "overwrite": True}),
        ("write_file", {"path": "a/new.txt", "content": "x", "if_exists": "overwrite"}),
        ("find_and_replace", {"pattern": "kept", "replacement": "lost", "paths": ["a"]}),
        (
            "multi_edit",
            {"operations": [{"action": "write", "path": "a/secret.txt", "content": "inside\n"}]},
        ),
    ]
    leaked: list[str] = []
    codes = Counter[str]()
    async with opened(root) as crib, crib.session(profile="flat", mode="autonomous") as session:
        with swapping(root / "a", tmp_path / "outside", pause=0.0001):
            for number, (name, given) in enumerate(cycle(asked)):
                if number >= READS and (codes["ok"] > READS // 10 or number >= 10 * READS):
                    break  # where much else runs, a folder rarely stays for as long as a call takes: more are needed
                with anyio.fail_after(PATIENCE):
                    result = await session.call(name, given)
                codes[result.error.code if result.error else "ok"] += 1
                if leaks(result):
                    leaked.append(f"{name}: {result.text[:200]}")

    assert (leaked, {path.name for path in (tmp_path / "outside").iterdir()}) == ([], {"secret.txt", UNSAID})
    assert {path.read_text() for path in (tmp_path / "outside").iterdir()} == {CANARY}
    assert CANARY not in (root / "copy.txt").read_text()
    assert codes["ok"] > READS // 10
    assert codes["invalid_arguments"] == 0


# Values made to hurt

HUGE: Final = "a" * 200_000
HURTFUL: Final[Mapping[str, Any]] = {
    "nothing": "",
    "blanks": " \t\n",
    "huge": HUGE,
    "many lines": "x\n" * 50_000,
    "NUL": "a\0b",
    "control characters": "\x1b[2J\x07\r\x85\u2028",
    "half a character": "a\ud800b",
    "unseen characters": "a\u202eb\u200b\U000e0041",
    "a regular expression": "(a+)+$" + "(" * 50,
    "a template": "{{ ''.__class__ }} ${7*7} %s%n {0.__class__}",
    "minus one": -1,
    "a large number": 10**30,
    "a very large number": 10**4_000,
    "a small number": -(10**30),
    "a huge fraction": 1.7e308,
    "not a number": float("nan"),
    "endless": float("inf"),
    "yes": True,
    "null": None,
    "nothing in a list": [],
    "many": ["a"] * 5_000,
    "an object": {"a": {"b": []}},
}
STARTED: Final = frozenset({"notebook_execute", "run_command", "run_tests", "shell_spawn", "nodes"})
"""Tools that start a program of the caller's: what they may take is tried in the suites of the sandbox."""
OUTWARD: Final = frozenset({"web_search"})
"""Tools that ask somebody else, whatever they are told."""


def nested(depth: int) -> list[Any]:
    """Return a list in a list in a list."""
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def arguments_of(session: Session) -> list[Aim]:
    """Return every argument of every tool, with others from its first example."""
    aims: list[Aim] = []
    for tool in session.visible.offered():
        if tool.name in STARTED | OUTWARD:
            continue
        given = dict(tool.guidance.examples[0]) if tool.guidance.examples else {}
        given |= {name: "http://127.0.0.1:9/" for name in given if name in ("url", "base_url")}
        aims += [Aim(face=tool, tool=tool.name, way=(name,), given=[given]) for name in tool.input_schema["properties"]]
    return aims


async def test_no_value_of_any_argument_breaks_a_tool_or_holds_it_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, full_size: bool
) -> None:
    root = plant(tmp_path)
    broken: list[str] = []
    async with opened(root) as crib, crib.session(profile="flat", mode="autonomous") as session:
        aims = arguments_of(session)
        values = [*HURTFUL.items(), ("deep", nested(500))]
        rest = cycle(values)
        for aim in aims:
            some = admitted(aim, values)
            some = Random(f"{aim.tool}.{aim.way[0]}").sample(some, min(len(some), 3))
            tried = values if full_size else [*some, *islice(rest, 2)]
            for what, value in tried:
                with anyio.fail_after(PATIENCE):
                    result = await session.call(aim.tool, aim.at(value))
                broken += [f"{aim} {what}: {wrong}" for wrong in complaints(result)]

    assert broken == []
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert len({aim.tool for aim in aims}) >= 120


def admitted(aim: Aim, values: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the values that the schema of the argument lets through to the tool; one check refuses all others."""
    check = compile_schema({**aim.face.input_schema, "required": []}).check
    return [(what, value) for what, value in values if not check({aim.way[0]: value})]


def complaints(result: ToolResult) -> Iterable[str]:
    """Yield what is wrong with an outcome: a fault of ours, a failure that says nothing, or one that says too much."""
    if result.error is None:
        return
    if result.error.code == "internal" or "Traceback" in result.text:
        yield f"a fault of ours: {result.text[:200]}"
    if not result.error.message:
        yield "it says nothing"
    if len(result.text) > 20_000:
        yield f"a failure of {len(result.text)} characters"
    if unseen := CONTROLS.findall(result.text):
        yield f"characters that nobody sees: {unseen[:3]}"


CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff\U000e0000-\U000e007f]")


def test_the_ways_into_a_schema_lead_to_every_text_in_it() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "path": {"type": "string", "description": "The file."},
            "kind": {"type": "string", "enum": ["a"]},
            "files": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "operations": {"type": "array", "items": {"$ref": "#/$defs/One"}},
        },
        "$defs": {"One": {"properties": {"new_path": {"type": "string"}, "count": {"type": "integer"}}}},
    }
    found = [way for way, _ in ways(schema, schema)]

    assert found == [("path",), ("files", 0), ("operations", 0, "new_path")]
    assert [_aim(schema, way).at("x") for way in found] == [
        {"path": "x"},
        {"files": ["x"]},
        {"operations": [{"new_path": "x"}]},
    ]


def _aim(schema: Mapping[str, Any], way: Sequence[str | int]) -> Aim:
    tool = Tool(name="t", local_name="t", source="s", description="", input_schema=schema)
    return Aim(face=tool, tool="t", way=tuple(way), given=[{}])
