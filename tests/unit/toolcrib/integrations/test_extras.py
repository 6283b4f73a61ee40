"""Each integration is installed by its extra alone: what it imports comes with what the extra names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
INTEGRATIONS = ROOT / "src" / "toolcrib" / "integrations"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["anthropic", "langchain", "openai", "openai-agents", "pydantic-ai"])
def test_what_an_integration_and_its_example_import_comes_with_its_extra(extra: str) -> None:
    module = extra.replace("-", "_")
    files = (INTEGRATIONS / f"{module}.py", ROOT / "docs" / "examples" / f"with_{module}.py")
    installed = brought([*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]])
    of = distributions()

    missing = [name for name in imported(files) if not installed & {plain(one) for one in of.get(name, ())}]

    assert missing == []


def imported(files: Iterable[Path]) -> set[str]:
    """Return the packages of others that `files` import."""
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    whole = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    parts = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in (*whole, *parts)} - sys.stdlib_module_names - {"toolcrib"}


def brought(requirements: Sequence[str]) -> set[str]:
    """Return the distributions that pip installs for `requirements`, without what their own extras would add."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        said = waiting.pop()
        name = plain(re.split(r"[^\w.-]", said, maxsplit=1)[0])
        if "extra ==" in said or name in found:
            continue
        found.add(name)
        try:
            waiting += requirements_of(name)
        except PackageNotFoundError:  # of another platform
            continue
    return found


distributions = cache(packages_distributions)
"""The distributions of each package: to read them all takes a second."""


@cache
def requirements_of(name: str) -> list[str]:
    return requires(name) or []


def plain(name: str) -> str:
    """Return the name of a distribution as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.process
def test_an_integration_without_its_extra_names_it() -> None:
    named = {
        "toolcrib.integrations.anthropic": "anthropic",
        "toolcrib.integrations.langchain": "langchain",
        "toolcrib.integrations.openai": "openai",
        "toolcrib.integrations.openai_agents": "openai-agents",
        "toolcrib.integrations.pydantic_ai": "pydantic-ai",
        "toolcrib.testing.models": "pydantic-ai",
    }
    program = f"""
import importlib, sys
sys.modules.update(dict.fromkeys(["agents", "anthropic", "langchain", "openai", "pydantic_ai"]))
for name in {list(named)}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, *str(error).rpartition("'toolcrib")[2:])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert dict(line.split() for line in done.stdout.splitlines()) == {
        name: f"[{extra}]'" for name, extra in named.items()
    }
