"""Kernels of a session's notebooks: started in the sandbox, one for each notebook, ended with the session."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

import anyio
from msgspec import Struct, field

from toolcrib.plugin import Command, Context, ToolFailure, as_mapping, did_you_mean

from .._extras import lacks_library, lacks_unless_set
from .._python_program import Interpreter, PythonProgram, beside, interpreter_with
from .._workspace.place import workspace_of
from ..shell.processes import sandbox_of

_HERE: Final = Path(__file__).parent
_LIBRARY: Final = "ipykernel"
lacks_kernels: Final = lacks_unless_set("notebook", "python", lacks_library(_LIBRARY, "notebook"))
_KERNELS_KEY: Final = "tools.notebook.python"
_ANOTHER: Final = f"name one of a virtual environment in the setting {_KERNELS_KEY}"
NEEDED: Final = "the operator can install the extra `notebook`"
_NO_GPU: Final = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
_BACKENDS: Final = "notebook_backends names the kernels that there are"

MAIN: Final = "main"
"""The notebook that is there without being made."""
_MOST: Final = 4
"""Kernels at a time in one session: each takes some 80 MB."""
_NAMED: Final = 32
_KEY: Final = "notebook.kernels"


def interpreter_of(ctx: Context) -> Interpreter:
    """Return the Python for notebooks. Raises `ToolFailure("unavailable")` naming what is to be installed or set."""
    named = as_mapping(ctx.lent.setting("notebook")).get("python")
    if named is not None:
        return _configured_interpreter(ctx, named)
    return interpreter_with(_LIBRARY, "notebook", workspace_of(ctx).roots, hint=_ANOTHER)


def command_of(ctx: Context, interpreter: Interpreter, *words: str, gpu: bool = False) -> Command:
    """Return the command of the program that starts kernels; without `gpu` it sees no graphics card."""
    workspace, sandbox = workspace_of(ctx), sandbox_of(ctx)
    own = "/tmp" if sandbox.kind != "none" else str(ctx.lent.folder("notebook"))
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


def _configured_interpreter(ctx: Context, named: object) -> Interpreter:
    program = Path(named).expanduser() if isinstance(named, str) else Path()
    if not program.is_absolute() or not program.is_file():
        raise ToolFailure("unavailable", f"the setting {_KERNELS_KEY} names no program by its whole path: {named!r}")
    if any(program.is_relative_to(root) for root in workspace_of(ctx).roots):
        return Interpreter(program=program, readable=())  # it may lead anywhere: commands can change it
    real, own = program.resolve(), program.parent.parent
    places = [real.parent.parent, *([own] if (own / "pyvenv.cfg").is_file() else [])]
    return Interpreter(program=program, readable=beside(workspace_of(ctx).roots, places, _ANOTHER))


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class Notebook:
    """A notebook: what it is called and runs with, and its kernel while there is one."""

    name: str
    backend: str = "python3"
    """Jupyter's name of the kernel."""
    gpu: bool = False
    kernel: PythonProgram | None = None
    cells: int = 0
    """Number of cells since the last start."""
    lost: str = ""
    """Reason why earlier variables are lost; a note of the next cell."""
    turn: anyio.Lock = dataclasses.field(default_factory=anyio.Lock, repr=False)

    @property
    def is_alive(self) -> bool:
        """True if its kernel runs."""
        return self.kernel is not None and not self.kernel.is_over

    async def close(self) -> tuple[str, ...]:
        """End the kernel; return what it made and may not make, by its new names."""
        kernel, self.kernel, self.cells, self.lost = self.kernel, None, 0, ""
        if kernel is None:
            return ()
        await kernel.aclose()
        return kernel.aside


class NotebookRegistry(Struct, eq=False):
    """The notebooks of one session."""

    current: str = MAIN
    """The one that is meant when none is named: the one made last."""
    _notebooks: dict[str, Notebook] = field(default_factory=lambda: {MAIN: Notebook(name=MAIN)})

    def find(self, name: str) -> Notebook:
        """Return a notebook, the current one without a name. Raises `ToolFailure("not_found")` naming the others."""
        if (name or self.current) in self._notebooks:
            return self._notebooks[name or self.current]
        raise ToolFailure(
            "not_found",
            f"there is no notebook {name!r}{did_you_mean(name, self._notebooks)}",
            hint=f"there are {', '.join(self._notebooks)}; notebook_create makes one",
        )

    def all(self) -> list[Notebook]:
        """Return all notebooks, in the order in which they were made."""
        return list(self._notebooks.values())

    async def create(self, ctx: Context, notebook: Notebook) -> PythonProgram:
        """Take a new notebook up, start its kernel and make it the current one.

        Raises `ToolFailure`: `conflict` for a name that is taken, `overloaded`, and those of `kernel`.
        """
        before = self._notebooks.get(notebook.name)
        if before is not None and (before.cells or before.is_alive):
            hint = "use it as it is, empty it with notebook_reset, or take another name"
            raise ToolFailure("conflict", f"there is a notebook {notebook.name!r} already", hint=hint)
        if before is None and len(self._notebooks) >= _NAMED:
            raise ToolFailure(
                "overloaded", f"this session has {_NAMED} notebooks already: {', '.join(self._notebooks)}"
            )
        self._notebooks[notebook.name] = notebook
        try:
            kernel = await self.kernel(ctx, notebook)
        except BaseException:
            if self._notebooks.get(notebook.name) is notebook:
                if before is None:
                    del self._notebooks[notebook.name]
                else:
                    self._notebooks[notebook.name] = before
            raise
        self.current = notebook.name
        return kernel

    async def kernel(self, ctx: Context, notebook: Notebook) -> PythonProgram:
        """Return the kernel of a notebook, started on first use.

        Raises `ToolFailure`: `overloaded` when there are too many, `unavailable` for one that does not start.
        """
        if notebook.kernel is not None and not notebook.kernel.is_over:
            return notebook.kernel
        if notebook.kernel is not None:
            notebook.lost, notebook.cells = notebook.kernel.ending(), 0
        alive = [other.name for other in self._notebooks.values() if other.is_alive]
        if len(alive) >= _MOST:
            raise ToolFailure(
                "overloaded",
                f"this session runs {_MOST} kernels already: {', '.join(alive)}",
                hint="notebook_reset ends one",
            )
        command = command_of(ctx, interpreter_of(ctx), notebook.backend, gpu=notebook.gpu)
        kernel = notebook.kernel = PythonProgram(command=command, what="kernel", hint=_BACKENDS)
        try:
            await kernel.begin(ctx)
        except BaseException:
            notebook.kernel = None
            raise
        return kernel

    async def aclose(self) -> None:
        """End all kernels: the session is over."""
        async with anyio.create_task_group() as group:
            for notebook in self.all():
                group.start_soon(notebook.close)


def notebooks_of(ctx: Context) -> NotebookRegistry:
    """Return the notebooks of the session that makes this call."""
    found = ctx.runtime.get(_KEY)
    if not isinstance(found, NotebookRegistry):
        found = ctx.runtime[_KEY] = NotebookRegistry()
    return found
