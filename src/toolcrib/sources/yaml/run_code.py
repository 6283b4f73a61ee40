"""Python implementations of a catalog: found without running them, loaded at the first call.

    locate   at each reading of the catalog: the file, its names and generators, by the syntax tree; runs nothing
    load     at the first call, in a thread: imports the module, which must come from the file that was located

Modules are those of the process: two catalogs with a module of one name cannot both have it, and the second one is
refused at its first call. A changed module is used as it was imported until the process ends.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from threading import Lock
from typing import Any, Final

import anyio
from msgspec import Struct

from ...core.context import Context
from ...core.json import as_mapping
from ...core.result import ToolResult
from ...core.tool import Tool
from ...errors import ToolFailure
from ...results.normalize import to_result
from ...system.tasks import Threads
from ..function_run import body_of
from .implementation import Code

_MAX_SOURCE: Final = 1 << 20
"""Bytes of source that are analysed; hand-written tools are smaller, generated code may be larger."""

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_logger = logging.getLogger(__name__)
_INJECTED: Final = ("context", "ctx")
"""Names of a function's parameter that gets the context, unless the tool has an argument of that name."""

_roots: Final[dict[Path, None]] = {}
"""Folders whose modules `_finder` loads, in their order; none is taken out again."""
_LOCK: Final = Lock()
"""Held for changes of what is global: `sys.path`, and the way from a folder to its modules."""

_Prepared = Callable[[Mapping[str, Any], Context], Callable[[], Any]]


class ToolContext(Struct, frozen=True, kw_only=True):
    """Caller and origin of a call. Lives as long as the call."""

    session_id: str
    conversation_id: str
    """The session: conversations are sessions here."""
    user_id: str
    """User of the conversation, as the session declares it, else the principal."""
    instance_id: str
    """Empty for a session without an instance."""
    call: Context
    """The rest: the deadline, progress, the client at the far end."""

    @classmethod
    def of(cls, context: Context) -> ToolContext:
        """Return `context` as classes of a catalog get it."""
        return cls(
            session_id=context.session_key,
            conversation_id=context.session_key,
            user_id=context.user or context.principal,
            instance_id=context.instance,
            call=context,
        )


class Located(Struct, frozen=True, kw_only=True):
    """Location of an entry's module."""

    file: Path | None
    """None for a module that has no source file."""
    root: Path | None
    """The code root that it was found in; None for an installed one."""
    streams: bool = False
    """It yields its result in pieces."""


def locate(code: Code, roots: Iterable[Path]) -> Located:
    """Return the location of `code`. Raises `ValueError` with the reason if it is missing, or has no such name."""
    for root in roots:
        found = _below(root.resolve(), code.module)
        if found is not None:
            return Located(file=found, root=root.resolve(), streams=_look_into(found, code))
    spec = _installed(code.module)
    if spec is None:
        places = ", ".join(str(root) for root in roots) or "no folder"
        raise ValueError(f"no module {code.module}, neither in {places} nor installed")
    file = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    return Located(file=file, root=None, streams=_look_into(file, code) if file else False)


def load(code: Code, located: Located) -> Any:
    """Return the class or function, importing its module. Runs the module's code; raises its exceptions.

    Raises `ImportError` when the name now belongs to another file.
    """
    if located.root is not None:
        _import_from(located.root)
    importlib.invalidate_caches()
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
        text = _read(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{file} is not Python: {error}") from None
    first, *inner = code.attribute.split(".")
    if first not in text.names and not text.is_open:
        kind = "class" if code.is_class else "function"
        raise ValueError(f"{file} has no {kind} {first}")
    return first in text.yielding or (not inner and first in text.executing)


class _ModuleNames(Struct, frozen=True, kw_only=True):
    """Definitions found in the text of a module."""

    names: frozenset[str]
    """Names defined, assigned or imported in it."""
    is_open: bool
    """It may have any name: by a star, or by a `__getattr__`."""
    yielding: frozenset[str]
    """Functions that yield their result in pieces."""
    executing: frozenset[str]
    """Classes whose `execute` does."""


@lru_cache(maxsize=32)
def _read(source: bytes) -> _ModuleNames:
    """Read a module once, however many tools are in it. Raises `SyntaxError` and `ValueError`."""
    tree = ast.parse(source)
    names = frozenset(name for node in ast.walk(tree) for name in _names_in(node))
    has_getattr = any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)
    there = _definitions(tree.body)
    methods = {name: _definitions(node.body) for name, node in there.items() if isinstance(node, ast.ClassDef)}
    return _ModuleNames(
        names=names,
        is_open="*" in names or has_getattr,
        yielding=frozenset(name for name, node in there.items() if _yields(node)),
        executing=frozenset(name for name, own in methods.items() if "execute" in own and _yields(own["execute"])),
    )


def _definitions(body: Iterable[ast.stmt]) -> dict[str, _Definition]:
    """Return the definitions by name: of two the last, as when it runs."""
    return {node.name: node for node in body if isinstance(node, _Definition)}


def _names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _Definition):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]


def _yields(definition: _Definition) -> bool:
    """Whether it is a generator function; nested definitions do not count."""
    pending: list[ast.AST] = [] if isinstance(definition, ast.ClassDef) else [*definition.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, _Definition | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return False


class CodeRunner:
    """One class or function. Its instance, if it is a class, lives as long as this."""

    def __init__(self, code: Code, located: Located, threads: Threads) -> None:
        self._code = code
        self._located = located
        self._threads = threads
        self._prepare: _Prepared | None = None
        self._loading = anyio.Lock()

    async def __call__(self, tool: Tool, arguments: Mapping[str, Any], context: Context) -> ToolResult:
        """Run it. Raises `ToolFailure`: `unavailable` when it cannot be loaded, else its own."""
        if self._prepare is None:
            async with self._loading:
                self._prepare = self._prepare or await self._load(tool)
        call = self._prepare(arguments, context)
        return _judged(await body_of(call, tool.name)({}, context, self._threads))

    async def _load(self, tool: Tool) -> _Prepared:
        code = self._code
        try:
            return await self._threads.run(
                partial(_prepared, code, self._located, frozenset(as_mapping(tool.input_schema.get("properties"))))
            )
        except (Exception, SystemExit) as error:
            _logger.warning("tool %s: %s.%s cannot be loaded", tool.name, code.module, code.attribute, exc_info=error)
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise ToolFailure(
                "unavailable",
                f"{tool.name} is not loaded: {code.module}.{code.attribute}: {reason}",
                hint="Its operator has to fix this; another tool may do.",
            ) from error


def _prepared(code: Code, located: Located, names: frozenset[str]) -> _Prepared:
    """Load, and return how a call is made of arguments. Runs in a thread."""
    found = load(code, located)
    if not code.is_class:
        if not callable(found):
            raise TypeError(f"{code.attribute} cannot be called")
        return _of_function(found, names)
    execute = getattr(found(), "execute", None)
    if not callable(execute):
        raise TypeError(f"{code.attribute} has no method execute(params, context)")
    takes_context = _positional(execute) != 1
    return lambda arguments, context: partial(
        execute, dict(arguments), *((ToolContext.of(context),) if takes_context else ())
    )


def _of_function(function: Callable[..., Any], names: frozenset[str]) -> _Prepared:
    parameters = inspect.signature(function).parameters
    injected = next((name for name in _INJECTED if name in parameters and name not in names), "")
    return lambda arguments, context: partial(
        function, **dict(arguments), **({injected: ToolContext.of(context)} if injected else {})
    )


def _positional(execute: Callable[..., Any]) -> int:
    """Return the number of its positional arguments; any number counts as two."""
    kinds = [parameter.kind for parameter in inspect.signature(execute).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 2
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _judged(value: Any) -> ToolResult:
    """Raise the failure that a tool of seed 004 reports as `{"success": false, "error": …}`."""
    result = to_result(value)
    fields = as_mapping(result.structured_content)
    if fields.get("success") is not False or "error" not in fields:
        return result
    hint = fields.get("recovery_hint")
    raise ToolFailure(
        "tool_error",
        str(fields["error"]),
        hint=hint if isinstance(hint, str) else "",
        details={key: item for key, item in fields.items() if key not in ("success", "error", "recovery_hint")},
    )


def _import_from(root: Path) -> None:
    """Let modules be imported from `root` and the folders in it, after those of all other places."""
    with _LOCK:
        if not _roots:
            sys.path_hooks.insert(0, _finder)
        if root not in _roots:
            _roots[root] = None
            for known in [place for place in sys.path_importer_cache if _is_ours(place)]:
                del sys.path_importer_cache[known]
        if str(root) not in sys.path:
            sys.path.append(str(root))  # last: nothing that is installed is hidden by a catalog's folder


class _FromSource(SourceFileLoader):
    """Loader that neither reads nor writes byte code.

    A repository may bring byte code in `__pycache__` that claims to fit the source beside it (PEP 552, unchecked): what
    was read and confirmed would not be what runs.
    """

    def get_data(self, path: str) -> bytes:
        if path.endswith(tuple(BYTECODE_SUFFIXES)):
            raise OSError(f"{path} is not used")
        return super().get_data(path)

    def set_data(self, *given: Any, **more: Any) -> None:
        pass


def _finder(path: str) -> FileFinder:
    if not _is_ours(path):
        raise ImportError(f"{path} is not a folder of a catalog")
    return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES))


def _is_ours(path: str) -> bool:
    return any(Path(path).is_relative_to(root) for root in _roots)
