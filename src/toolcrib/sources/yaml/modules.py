"""Finding the Python behind an entry without running any of it, and loading it at the first call.

A module is looked for in the catalog's code roots, then in what this Python has installed. Listing a catalog reads
source text at most; a module runs when a granted call needs it, and only from the file that was found then.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Final

from .implementation import Code

__all__ = ["Located", "load", "locate"]

_MAX_SOURCE: Final = 1 << 20
"""Bytes of source that are looked into; nobody's tool is larger, generated code may be."""

_LOADING: Final = threading.Lock()
"""`sys.path` belongs to everybody."""

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where the module of an entry is."""

    file: Path | None
    """None for a module that has no source file."""
    root: Path | None
    """The code root that it was found in; None for an installed one."""
    streams: bool = False
    """It yields its result in pieces."""


def locate(code: Code, roots: Iterable[Path]) -> Located:
    """Return where `code` is. Raises `ValueError` with the reason when it is nowhere, or has no such name."""
    for root in roots:
        found = _below(root.resolve(), code.module)
        if found is not None:
            return Located(file=found, root=root.resolve(), streams=_look_into(found, code))
    spec = _installed(code.module)
    if spec is None:
        places = ", ".join(str(root) for root in roots) or "no folder"
        raise ValueError(f"there is no module {code.module}, neither in {places} nor installed")
    file = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    return Located(file=file, root=None, streams=_look_into(file, code) if file else False)


def load(code: Code, located: Located) -> Any:
    """Return the class or function, importing its module. Runs the module's code; raises whatever that raises.

    Raises `ImportError` when the name stands for another file by now.
    """
    with _LOADING:
        if located.root is not None and str(located.root) not in sys.path:
            sys.path.append(str(located.root))  # last: nothing that is installed is hidden by a catalog's folder
        importlib.invalidate_caches()
    # Not inside: a module that never comes to an end must not keep the others from being loaded.
    module = importlib.import_module(code.module)
    loaded = getattr(module, "__file__", None)
    if located.file is not None and (loaded is None or Path(loaded).resolve() != located.file.resolve()):
        raise ImportError(f"{code.module} is {loaded or 'built in'} in this process, not {located.file}")
    value: Any = module
    for part in code.attribute.split("."):
        value = getattr(value, part)
    return value


def _below(root: Path, module: str) -> Path | None:
    base = root.joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
        if path.is_file():
            real = path.resolve()
            if not real.is_relative_to(root):
                raise ValueError(f"{module} leads out of {root}, to {real}")
            return real
    return None


def _installed(module: str) -> ModuleSpec | None:
    """Find it as an import would, but for the packages around it, which an import would run."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return None
    name = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _look_into(file: Path, code: Code) -> bool:
    """Return whether it yields its result in pieces; raises `ValueError` when `file` cannot have the name."""
    if file.stat().st_size > _MAX_SOURCE:
        return False
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{file} is no Python: {error}") from None
    first, *inner = code.attribute.split(".")
    if not _may_have(tree, first):
        kind = "class" if code.is_class else "function"
        raise ValueError(f"{file} has no {kind} {first}")
    body = next((node for node in tree.body if isinstance(node, _Definition) and node.name == first), None)
    if isinstance(body, ast.ClassDef) and not inner:
        body = next((node for node in body.body if isinstance(node, _Definition) and node.name == "execute"), None)
    return body is not None and not isinstance(body, ast.ClassDef) and _yields(body.body)


def _may_have(tree: ast.Module, name: str) -> bool:
    """Whether the module can have `name`: it is defined, assigned or imported somewhere, or may be by a star."""
    for node in ast.walk(tree):
        if isinstance(node, _Definition) and node.name == name:
            return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name:
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name).split(".")[0] in (name, "*"):
            return True
    return any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)


def _yields(body: Iterable[ast.stmt]) -> bool:
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, _Definition | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return False
