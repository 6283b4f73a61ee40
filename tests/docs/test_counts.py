"""What the documents count, list and point to is what there is."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from docs.documents import ARCHITECTURE, CALLS, CLIENTS, DISCLOSURE, DOCUMENTS, README, blocks
from rig import ROOT
from toolcrib.disclosure import meta_tools, profiles
from toolcrib.dispatch import default
from toolcrib.policy.modes import MODES

_NO_FLOORS = ("__init__.py", "__main__.py", "__init__.pyi", "__pycache__", "py.typed")
_METHODS = (
    "io.modelcontextprotocol/",
    "io.toolcrib/",
    "prompts/",
    "resources/",
    "server/discover",
    "skills/",
    "tasks/",
    "tools/",
)
"""What looks like a path and is a method or an extension of MCP."""
_ROWS = r"security\.md ((?:(?:, and |, | and )?[A-Z]\d+)+)"
"""Names of rows behind the name of the page."""
SECURITY = ROOT / "docs" / "explanation" / "security.md"
WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}


def prose(path: Path) -> str:
    """The words of a document in one line, without its blocks."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return " ".join(text.split())


def found(pattern: str, text: str) -> str:
    """The first group of the one place that says it."""
    (said,) = re.findall(pattern, text)
    return str(said)


def steps() -> list[str]:
    """The steps of every call, from THE list: by the word of its function or class that names the step.

    A starred entry holds the steps of a program, `(before)` or `(after)`, or one step that is there under a condition.
    """
    tree = ast.parse(Path(default.__file__).read_text("utf-8"))
    (plans,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Plans"]
    listed = [
        (given.arg, step)
        for given in plans.keywords
        if given.arg in ("before", "execute", "after")  # who carries it out meanwhile, or looks on, is no step
        for step in (given.value.elts if isinstance(given.value, ast.List) else [given.value])
    ]
    return [_word(step) or f"({place})" for place, step in listed]


def _word(step: ast.expr) -> str:
    if isinstance(step, ast.Starred):
        match step.value:
            case ast.IfExp(body=ast.Tuple(elts=[one])):
                return _word(one)
            case _:
                return ""
    name = ast.unparse(step.func if isinstance(step, ast.Call) else step).rpartition(".")[2]
    return next(word.lower() for word in re.findall("[A-Z]?[a-z]+", name) if word not in ("Check", "Note"))


def test_the_life_of_a_call_has_every_step_in_order() -> None:
    chain, *_ = [block.text for block in blocks("text") if block.file == CALLS]
    (life,) = [block.text for block in blocks("text") if block.file == ARCHITECTURE and "resolve" in block.text]
    rows = [line[8:19].strip() or line.split()[0] for line in life.splitlines()]

    assert chain.strip().split(" → ") == [step for step in steps() if not step.startswith("(")]
    assert [name for name in rows if name in steps()] == steps()


def test_the_floors_are_the_layers_that_are_checked() -> None:
    (drawn,) = [block.text for block in blocks("text") if block.file == ARCHITECTURE and "errors" in block.text]
    floors = [set(line[:68].split()) for line in drawn.splitlines()]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "floors"]
    built: list[set[str]] = [{name.strip() for name in layer.split("|") if "(" not in name} for layer in layers]

    assert floors == built
    there = {path.stem for path in (ROOT / "src" / "toolcrib").glob("*") if path.name not in _NO_FLOORS}
    assert {name for layer in built for name in layer} == there


@pytest.mark.parametrize("document", [DISCLOSURE, ARCHITECTURE], ids=lambda path: path.name)
def test_the_verbs_are_those_of_the_profile(document: Path) -> None:
    text = prose(document)
    adaptive = profiles.load("adaptive")
    shown = [adaptive.verbs[verb] for verb in ("search", "describe", "call")]

    assert re.search(", ".join(f"`{name}`" for name in shown) + r"(?:,| and) its read-only twin", text)
    named = set(re.findall(r"`(\w+_(?:tools?|artifact|readonly))`", text)) - {"toolcrib_tools"}
    known = {shown for name in profiles.BUILT_IN for shown in profiles.load(name).verbs.values()}
    assert named <= known


def test_the_budgets_are_those_of_the_profile() -> None:
    text, adaptive = prose(DISCLOSURE), profiles.load("adaptive")

    assert found(r"Below ([\d,]+) tokens", text) == f"{adaptive.tokens.budget_tokens:,}"
    assert found(r"at most ([\d,]+) tokens", text) == f"{adaptive.tokens.shown_tokens:,}"
    assert found(r"while it fits ([\d,]+) tokens", adaptive.description) == f"{adaptive.tokens.budget_tokens:,}"
    assert WORDS[found(r"above that (\w+) verbs", adaptive.description)] == len(
        [verb for verb in adaptive.verbs if verb in ("search", "describe", "call")]
    )
    assert set(adaptive.verbs) == set(meta_tools.VERBS)


def test_what_the_cautious_mode_does_is_what_its_page_says() -> None:
    assert "`cautious` lets reads run and asks for everything else" in prose(CALLS)
    cautious = MODES["cautious"]
    assert (cautious.read, cautious.write, cautious.destructive) == ("allow", "ask", "ask")


def test_make_run_has_as_many_sample_servers_as_the_readme_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert WORDS[found(r"in front of (\w+) sample MCP servers", prose(README))] == len(
        project["optional-dependencies"]["samples"]
    )
    assert project["requires-python"] == f">={found(r'With Python ([0-9.]+) or later and nothing else', prose(README))}"
    assert project["license"] == found(r"Licence: (\S+)\.$", prose(README))


def test_every_row_of_the_security_page_that_a_docstring_names_is_there() -> None:
    files = [path for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    named = " ".join(match for path in files for match in re.findall(_ROWS, path.read_text("utf-8")))
    rows = re.findall(r"^\| ([RT]\d+) ", SECURITY.read_text("utf-8"), re.MULTILINE)

    assert set(re.findall(r"[A-Z]\d+", named)) - set(rows) == set()
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_in_a_document_leads_somewhere(document: Path) -> None:
    text = prose(document)
    links = re.findall(r"\]\(([^)#]+)\)", text)
    named = re.findall(r"`((?!\.(?:claude|cursor|toolcrib|vscode)/)(?:[\w.]+/)+[\w.]*)`", text)  # no files of users
    named = named if document.parent != CLIENTS else []
    roots = (ROOT, document.parent, ROOT / "src" / "toolcrib")
    files = [path for path in [*links, *named] if "://" not in path and not path.startswith(_METHODS)]
    missing = [path for path in files if not any((root / path).exists() for root in roots)]

    assert missing == []
