"""The Python that notebooks run with, and what starts a program of it in the sandbox.

    tools:
      notebook:
        python: ~/envs/science/bin/python     # one that has ipykernel; ours when not given

Of a Python that is not one of the machine's own programs, the folders that it lives in are made readable.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from toolcrib.plugin import Command, Context, ToolFailure

from .._workspace.place import workspace_of
from ..shell.running import sandbox_of

__all__ = ["NEEDED", "Interpreter", "command_of", "interpreter_of"]

_HERE: Final = Path(__file__).parent
_LIBRARY: Final = "ipykernel"
_KEY: Final = "tools.notebook.python"
NEEDED: Final = "the operator can install it: pip install 'toolcrib[notebook]'"
_NO_GPU: Final = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python with ipykernel."""

    program: Path
    readable: tuple[Path, ...]
    """Where it lives."""


def interpreter_of(ctx: Context) -> Interpreter:
    """Return the Python for notebooks. Raises `ToolFailure("unavailable")` naming what is to be installed or set."""
    said = ctx.lent.setting("notebook")
    named = cast("Mapping[str, Any]", said).get("python") if isinstance(said, Mapping) else None
    if named is not None:
        return _named(ctx, named)
    found = importlib.util.find_spec(_LIBRARY)
    if found is None or found.origin is None:
        raise ToolFailure("unavailable", f"notebooks need {_LIBRARY}, which is not installed here", hint=NEEDED)
    library = Path(found.origin).parent.parent
    places = [Path(sys.prefix)] if library.is_relative_to(sys.prefix) else [Path(sys.prefix), library]
    return Interpreter(program=Path(sys.executable), readable=_beside(ctx, places))


def command_of(ctx: Context, interpreter: Interpreter, *words: str, gpu: bool = False) -> Command:
    """Return what runs the program that starts kernels; without `gpu` no graphics card is shown to it."""
    workspace, sandbox = workspace_of(ctx), sandbox_of(ctx)
    own = "/tmp" if sandbox.kind == "bubblewrap" else str(ctx.lent.folder("notebook"))
    return Command(
        argv=(str(interpreter.program), str(_HERE / "inside.py"), *words),
        cwd=workspace.root,
        folders=workspace.roots,
        readable=(_HERE, *interpreter.readable),
        environment={
            "IPYTHONDIR": f"{own}/ipython",
            "JUPYTER_CONFIG_DIR": f"{own}/config",
            "JUPYTER_RUNTIME_DIR": f"{own}/runtime",
            "MPLCONFIGDIR": f"{own}/matplotlib",
            "PAGER": "cat",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **({} if gpu else _NO_GPU),
        },
        network=sandbox.network,
    )


def _named(ctx: Context, named: object) -> Interpreter:
    program = Path(named).expanduser() if isinstance(named, str) else Path()
    if not program.is_absolute() or not program.is_file():
        raise ToolFailure("unavailable", f"the setting {_KEY} names no program by its whole path: {named!r}")
    if any(program.is_relative_to(root) for root in workspace_of(ctx).roots):
        return Interpreter(program=program, readable=())  # it may lead anywhere: commands can change it
    real, own = program.resolve(), program.parent.parent
    places = [real.parent.parent, *([own] if (own / "pyvenv.cfg").is_file() else [])]
    return Interpreter(program=program, readable=_beside(ctx, places))


def _beside(ctx: Context, places: list[Path]) -> tuple[Path, ...]:
    """Return those that the sandbox does not show anyway. Raises `ToolFailure` for one that holds a person's home."""
    shown = (Path("/usr"), *workspace_of(ctx).roots)
    beside = [place for place in places if not any(place.is_relative_to(folder) for folder in shown)]
    if broad := next((place for place in beside if Path.home().is_relative_to(place)), None):
        hint = f"name one of a virtual environment in the setting {_KEY}"
        raise ToolFailure("unavailable", f"this Python would show commands all of {broad}", hint=hint)
    return tuple(beside)
