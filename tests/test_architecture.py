"""What keeps the code readable and the promises of docs/ARCHITECTURE.md true, checked on the source itself.

Import floors are checked by import-linter and style by ruff (pyproject.toml); this file holds what they cannot say.
"""

import ast
import graphlib
import importlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

from rig import ROOT

MAX_MAKEFILE_LINES = 74

ENVIRONMENT_READERS = {
    "src/toolcrib/config/directories.py": "`here`: where this process's user keeps things, without loading the rest",
    "src/toolcrib/config/loader.py": "the one place that turns the environment and config files into settings",
    "src/toolcrib/cli/entry.py": "sets how many threads numpy's matrices get, before anybody loads it",
    "src/toolcrib/cli/main.py": "the entry point: it hands the environment to config",
}
"""Modules that may read the process environment, and why."""

JSON_READERS = {
    "src/toolcrib/core/json.py": "the one intake",
    "src/toolcrib/core/schema/repair.py": "says where a text is wrong that the intake refused",
    "src/toolcrib/mcp/client/transport.py": "mends an answer that the intake refused, and gives it to the intake again",
    "src/toolcrib/mcp/client/spooled_result.py": "one string or number at a time",
    "src/toolcrib/config/files.py": "one string or number at a time",
    "src/toolcrib/results/excerpts.py": "a result that was read or written before",
    "src/toolcrib/cli/processes/hook.py": "starts at every use of a tool: the standard library only",
    "src/toolcrib/claude_code/hook_messages.py": "the same",
    "src/toolcrib/daemon/rendezvous.py": "the same, for the shim",
    **dict.fromkeys(
        (
            "src/toolcrib/catalog/embedding/bert.py",
            "src/toolcrib/catalog/ranking/postings.py",
            "src/toolcrib/cli/output.py",
            "src/toolcrib/config/clients/connections.py",
            "src/toolcrib/config/trust.py",
            "src/toolcrib/disclosure/meta_tools.py",
            "src/toolcrib/results/artifacts.py",
            "src/toolcrib/sandbox/process.py",
            "src/toolcrib/store/calls.py",
            "src/toolcrib/store/chain.py",
            "src/toolcrib/store/postgres.py",
        ),
        "reads what this program wrote",
    ),
}
"""Modules that parse JSON otherwise than through `core.json.read_json` and `loads`, and why."""

PUBLIC = re.compile(
    r"toolcrib\.(agents|errors|plugin|testing\.models|integrations\.\w+)|toolcrib_agent\.events|toolcrib_tools\.[a-z]\w*"
)
"""Modules that programs import from (docs/ARCHITECTURE.md)."""

IMPORT_LOADS = {"toolcrib"}
"""All that `import toolcrib` may load beyond `importlib` and `typing`, which nearly every program has loaded."""

Function = ast.FunctionDef | ast.AsyncFunctionDef

SOURCE_FILES = sorted((ROOT / "src").rglob("*.py"))
ALL_FILES = sorted(path for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py"))


def test_no_modules_import_one_another_in_a_circle_local_and_typing_imports_included() -> None:
    packages = sorted(path.parent.name for path in (ROOT / "src").glob("*/__init__.py"))
    graph = grimp.build_graph(*packages, cache_dir=None)

    graphlib.TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    ).prepare()


@pytest.mark.slow
def test_all_lists_exactly_what_a_module_shows() -> None:
    """In public modules and packages. Elsewhere an underscore says which names are a module's own, and a list says
    which names of another module it hands on.
    """
    declared = {path: _declared_all(path) for path in SOURCE_FILES}
    modules = [path for path in SOURCE_FILES if path.name != "__init__.py"]
    public = {path for path in modules if PUBLIC.fullmatch(_module(path))}
    handing_on = {path for path in modules if _imported(path) & set(declared[path])}
    differences = {path: set(declared[path]) - _imported(path) ^ _visible(path) for path in public | handing_on}

    assert [_name(path) for path, names in declared.items() if len(names) != len(set(names))] == []
    assert {_name(path): names for path, names in differences.items() if names} == {}
    assert [_name(path) for path in modules if declared[path] and path not in public | handing_on] == []


def test_every_name_a_package_lists_can_be_had() -> None:
    packages = [path for path in SOURCE_FILES if path.name == "__init__.py"]
    modules = {path: importlib.import_module(_module(path)) for path in packages}

    assert [
        f"{_name(path)}: {name}"
        for path, module in modules.items()
        for name in _declared_all(path)
        if not hasattr(module, name)
    ] == []


def test_the_stub_of_the_root_says_where_each_name_really_is() -> None:
    root = ROOT / "src" / "toolcrib" / "__init__.py"
    stub = {
        alias.name: node.module
        for node in _tree(root.with_suffix(".pyi")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = next(node for node in _tree(root).body if isinstance(node, ast.Assign) and _targets(node) == {"_HOMES"})

    assert ast.literal_eval(homes.value) == stub


@pytest.mark.process
def test_import_is_silent_and_loads_only_what_is_listed() -> None:
    probe = (
        "import importlib, sys, typing; before = set(sys.modules); import toolcrib; "
        "loaded = sorted(set(sys.modules) - before); import json; print(json.dumps(loaded))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)

    assert (done.stdout.count("\n"), done.stderr) == (1, "")
    assert set(json.loads(done.stdout)) - IMPORT_LOADS == set()


@pytest.mark.slow
def test_only_the_listed_modules_read_the_environment() -> None:
    readers = {
        _name(path)
        for path in _saying(SOURCE_FILES, r"\bos\.(?:environ|getenv)|from os import")
        if any(_reads_environment(node) for node in ast.walk(_tree(path)))
    }

    assert readers - ENVIRONMENT_READERS.keys() == set()


@pytest.mark.slow
def test_json_is_parsed_by_the_intake_or_in_a_listed_module() -> None:
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in _saying(SOURCE_FILES, r"\b(?:or)?json\.loads?\(")
        if path.is_relative_to(ROOT / "src" / "toolcrib")
    }

    assert readers == set(JSON_READERS)


OWN_JSON = {name for name, reason in JSON_READERS.items() if "wrote" in reason or "or number" in reason} | {
    "src/toolcrib_tools/notebook/inside.py",
    "src/toolcrib_tools/browser/inside.py",
}
"""Modules that read only what this program wrote; those in a sandbox read what it asks them for."""


@pytest.mark.slow
def test_a_text_of_strangers_that_is_nested_too_deeply_is_an_error_of_theirs() -> None:
    open_calls = {
        f"{path.relative_to(ROOT).as_posix()}:{call.lineno}"
        for path in _saying(SOURCE_FILES, r"\bjson\.loads?\(")
        if path.relative_to(ROOT).as_posix() not in OWN_JSON
        for call in _unguarded(ast.parse(path.read_text(encoding="utf-8")))
    }

    assert open_calls == set()


def _unguarded(tree: ast.Module) -> set[ast.Call]:
    """The calls of `json.loads` outside of a `try` that takes the `RecursionError` of CPython's parser."""
    calls, guarded = set[ast.Call](), set[ast.Call]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load"):
            calls.add(node)
        if isinstance(node, ast.Try) and any(
            one.type is not None and "RecursionError" in ast.unparse(one.type) for one in node.handlers
        ):
            guarded |= {call for part in node.body for call in ast.walk(part) if isinstance(call, ast.Call)}
    return calls - guarded


@pytest.mark.slow
def test_dotted_names_in_the_source_are_of_modules_and_members_that_exist() -> None:
    """Backticked `package.module.name`, from a package of `toolcrib` on."""
    known = _known_names()
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    settings = set(re.findall(r"^\| `([a-z_.]+)`(?: \*)? \|", page, flags=re.MULTILINE))
    packages = {path.name for path in (ROOT / "src" / "toolcrib").iterdir() if path.is_dir()}
    stale = [
        f"{_name(path)}: {name}"
        for path in SOURCE_FILES
        for name in re.findall(r"`([a-z_]+(?:\.\w+)+)(?:\(\))?`", _text(path))
        if name.split(".")[0] in packages
        and not name.endswith((".json", ".yaml", ".NAME", ".guarded"))  # no names of Python
        and name not in settings
        and not _is_known(name.split("."), known)
    ]

    assert stale == []


def test_the_modules_that_a_package_lists_exist() -> None:
    stale = [
        f"{_name(path)}: {name}"
        for path in SOURCE_FILES
        if path.name == "__init__.py"
        for listed in re.findall(r"(?:^|· )((?:`\w+`(?:, )?)+) ", ast.get_docstring(_tree(path)) or "", re.MULTILINE)
        for name in re.findall(r"\w+", listed)
        if "·" in (ast.get_docstring(_tree(path)) or "")
        and not (path.parent / name).is_dir()
        and not (path.parent / f"{name}.py").exists()
    ]

    assert stale == []


@pytest.mark.slow
def test_no_test_sleeps() -> None:
    sleepers = [
        f"{_name(path)}:{node.lineno}"
        for path in _saying(ALL_FILES, r"\bsleep\((?!0\))")
        if path.is_relative_to(ROOT / "tests") and path.name.startswith("test_")
        for name, function in _functions(_tree(path).body)
        if name.startswith("test_")
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _is_sleep(node)
    ]

    assert sleepers == [], "wait for the event itself, or with `rig.eventually` for what nobody announces"


def test_no_test_hears_a_process_but_through_the_rig() -> None:
    heard = [
        f"{_name(path)}:{node.lineno}"
        for path in _saying(ALL_FILES, "readline")
        if path.is_relative_to(ROOT / "tests") and path != ROOT / "tests" / "rig" / "pipes.py"
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Attribute) and node.attr in ("readline", "readlines")
    ]

    assert heard == [], "use `rig.Hearing`: a buffered reader hides what it holds from `select` and waits for ever"


def test_no_test_fails_because_the_machine_is_slow() -> None:
    limits = [
        f"{_name(path)}: {limit}"
        for path in _saying(ALL_FILES, r"anyio\.fail_after\(")
        if path.is_relative_to(ROOT / "tests")
        for limit in re.findall(r"anyio\.fail_after\(\s*(?:None|[\d.]+)\s*[,)]", _text(path))
    ]

    assert limits == [], "wait for `rig.PATIENCE`: a limit only ends what hangs"


def test_nothing_is_left_unfinished_or_switched_off() -> None:
    words = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error"]
    words += [f"pytest.{word}" for word in ("mark.sk" + "ip", "mark.x" + "fail", "sk" + "ip(", "x" + "fail(")]
    words += ["# ty" + "pe: ignore", "# py" + "right: ignore\n"]
    left = [
        f"{_name(path)}:{number}: {word}"
        for path in _saying(ALL_FILES, "|".join(re.escape(word.strip()) for word in words))
        if path
        not in [
            ROOT / "tests" / "rig" / name for name in ("sandbox.py", "containers.py", "desktop.py")
        ]  # not on every machine
        for number, line in enumerate(_lines(path), start=1)
        for word in words
        if word in f"{line}\n" or (word.strip() in line and path in SOURCE_FILES)
    ]

    assert left == []


def test_the_makefile_fits_on_one_screen() -> None:
    assert len((ROOT / "Makefile").read_text(encoding="utf-8").splitlines()) <= MAX_MAKEFILE_LINES


def _saying(paths: Iterable[Path], pattern: str) -> list[Path]:
    """Return the files in whose text the pattern is: to parse and walk through the others takes seconds."""
    found = re.compile(pattern)
    return [path for path in paths if found.search(_text(path))]


def _functions(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        if isinstance(node, Function | ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def _declared_all(path: Path) -> list[str]:
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and _targets(node) == {"__all__"}:
            if isinstance(node.value, ast.Call):  # made of a table of lazy names
                return list(importlib.import_module(_module(path)).__all__)
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def _visible(path: Path) -> set[str]:
    """Public names that the module makes itself; what it imports belongs to somebody else."""
    made = set[str]()
    for node in _statements(_tree(path).body):
        if isinstance(node, Function | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not _is_type_variable(node):
            made |= _targets(node)
    return {name for name in made if not name.startswith("_")}


def _imported(path: Path) -> set[str]:
    """Names that the module takes from elsewhere; listing one in `__all__` hands it on."""
    imports = (node for node in _tree(path).body if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _known_names() -> dict[str, set[str]]:
    """Return what is below each name: modules of a package, names of a module, members of a class."""
    known: dict[str, set[str]] = {}
    for path in SOURCE_FILES:
        parent, _, name = _module(path).rpartition(".")
        known.setdefault(parent.rpartition(".")[2], set()).add(name)
        inside = known.setdefault(name, set())
        for node in _statements(_tree(path).body, within=True):
            if isinstance(node, Function | ast.ClassDef):
                inside.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                inside |= _targets(node)
            if isinstance(node, ast.ClassDef):
                known.setdefault(node.name, set()).update(_members(node))
    return known


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Names that a class defines, attributes of `self` included; an inherited one may be any."""
    for inside in _statements(node.body, within=True):
        if isinstance(inside, Function):
            yield inside.name
        elif isinstance(inside, ast.Assign | ast.AnnAssign):
            yield from _targets(inside)
            targets = inside.targets if isinstance(inside, ast.Assign) else [inside.target]
            yield from (name.attr for target in targets for name in ast.walk(target) if isinstance(name, ast.Attribute))
    yield from ("*" for base in node.bases if ast.unparse(base) != "Protocol")


def _is_known(parts: list[str], known: dict[str, set[str]]) -> bool:
    pairs = itertools.pairwise(parts)
    return all(after in known[before] or "*" in known[before] for before, after in pairs if before in known)


def _is_type_variable(node: ast.Assign | ast.AnnAssign) -> bool:
    call = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(call, ast.Name) and call.id in ("ParamSpec", "TypeVar", "TypeVarTuple")


def _statements(body: Iterable[ast.stmt], *, within: bool = False) -> Iterator[ast.stmt]:
    """Statements, also those under `if` and `try`; `within` functions, classes, `with` and loops, too."""
    for node in body:
        yield node
        if within or isinstance(node, ast.If | ast.Try):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, ()), within=within)
            for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                yield from _statements(part.body, within=within)


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = (name for target in targets for name in ast.walk(target))
    return {name.id for name in names if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def _reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ("environ", "getenv", "environb") for alias in node.names)
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("os", "environ"), ("os", "getenv"), ("os", "environb")}
    )


def _is_sleep(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "sleep"
    sleeps = isinstance(function, ast.Attribute) and function.attr == "sleep"
    only_yields = [ast.unparse(argument) for argument in call.args] == ["0"]
    return sleeps and not only_yields


def _module(path: Path) -> str:
    inside = path.relative_to(ROOT / "src")
    return ".".join((inside.parent if path.name == "__init__.py" else inside.with_suffix("")).parts)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path), filename=str(path))
