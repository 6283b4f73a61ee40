"""Every import of ours in a document or an example is of a public name: one that its public module lists."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import get_type_hints

import toolcrib
from docs.documents import ARCHITECTURE, EXAMPLES, blocks
from rig import ROOT
from toolcrib import errors

_SECTION = re.compile(r"^## Public modules\n(?P<text>.*?)^## ", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (?P<modules>`[^|]+`) \|", re.MULTILINE)


def _public() -> tuple[str, ...]:
    section = _SECTION.search(ARCHITECTURE.read_text("utf-8"))
    assert section is not None
    rows = [match["modules"] for match in _ROW.finditer(section["text"])]
    return tuple(name for row in rows for name in re.findall(r"`([\w.*]+)`", row))


def _is_public(module: str) -> bool:
    return any(module == name or (name.endswith(".*") and module.rpartition(".")[0] == name[:-2]) for name in _public())


def _imports() -> Iterator[tuple[str, str, str]]:
    """Yield the place, the module and the name (empty for a whole module) of every import of ours."""
    texts = [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in sorted(EXAMPLES.rglob("*.py"))]
    texts += [(str(block), block.text) for block in blocks("python")]
    for place, text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and _is_ours(node.module or ""):
                yield from ((place, node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((place, alias.name, "") for alias in node.names if _is_ours(alias.name))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0].startswith("toolcrib")


def test_every_import_of_the_documents_is_of_a_public_name() -> None:
    imports = list(_imports())

    assert len(imports) > 50
    assert [one for one in imports if not _is_public(one[1])] == []
    assert [one for one in imports if one[2] and one[2] not in _names(one[1])] == []


def test_every_public_module_has_names_that_can_be_had() -> None:
    modules = [name for name in _public() if not name.endswith(".*")]

    assert "toolcrib" in modules
    assert [name for name in modules if not _names(name)] == []
    assert [f"{module}: {name}" for module in modules for name in _names(module) if not _exists(module, name)] == []


def test_a_program_can_name_the_types_of_every_option_and_callback() -> None:
    public = {name for module in ("toolcrib", "toolcrib.plugin") for name in _names(module)}
    hints = {**get_type_hints(toolcrib.SessionOptions), **get_type_hints(toolcrib.CallOptions)}
    named = set(re.findall(r"\btoolcrib(?:\.\w+)*\.(\w+)", str(hints)))

    assert {"Answer", "Clarification", "Output", "Progress", "Question"} <= named
    assert named - public == {"Peer"}  # what speaks for a client is part of a way in


def _names(module: str) -> tuple[str, ...]:
    """Return what a module lists; of a package without a list its modules, as `toolcrib_tools` is one."""
    found = import_module(module)
    modules = (info.name for info in iter_modules(getattr(found, "__path__", ())))
    return tuple(found.__all__) or tuple(name for name in modules if not name.startswith("_"))


def _exists(module: str, name: str) -> bool:
    return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None


def test_the_errors_are_exceptions_and_the_table_of_their_codes() -> None:
    found = {name: vars(errors)[name] for name in errors.__all__}
    kinds = {name for name, one in found.items() if isinstance(one, type) and issubclass(one, errors.ToolcribError)}

    assert sorted(found.keys() - kinds) == ["CODES", "CodeInfo"]
